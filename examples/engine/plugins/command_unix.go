//go:build unix

package plugins

import (
	"os/exec"
	"syscall"
)

// apart starts a command in a process group of its own. An interrupt from the terminal then reaches the
// engine but not the command, for which the engine waits. The end of the command's context ends the whole
// group.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
