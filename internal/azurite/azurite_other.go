//go:build !linux

package azurite

import "os/exec"

// setAttributes leaves the command in this process's group: nothing ends it
// when this process dies, but an interrupt typed in the terminal reaches it.
func setAttributes(*exec.Cmd) {}

// killProcess kills the command, which has no children of its own.
func killProcess(cmd *exec.Cmd) { _ = cmd.Process.Kill() }
