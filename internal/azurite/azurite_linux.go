package azurite

import (
	"os/exec"
	"syscall"
)

// setAttributes gives the command its own process group. The kernel kills the command when the thread that
// started it ends.
func setAttributes(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// killProcess kills the command's process group.
func killProcess(cmd *exec.Cmd) {
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
}
