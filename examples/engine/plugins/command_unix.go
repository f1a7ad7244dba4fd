//go:build unix

package plugins

import (
	"os/exec"
	"syscall"
)

// apart makes a command's process the first of a group of its own. An interrupt that the terminal sends to the engine does not
// reach the command, which the engine waits for; and the end of the command's context ends all of the group.
func apart(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
