//go:build !linux

package azurite

import "os/exec"

// setAttributes leaves the command in this process's group. The command survives this process, but an
// interrupt in the terminal reaches it.
func setAttributes(*exec.Cmd) {}

// killProcess kills the command, which has no children.
func killProcess(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
