package azurite

import (
	"os/exec"
	"syscall"
)

// setAttributes puts the command into a process group of its own, and has the
// kernel kill it when the thread that starts it ends.
func setAttributes(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killProcess kills the command's process group.
func killProcess(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
