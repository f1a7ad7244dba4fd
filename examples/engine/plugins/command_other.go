//go:build !unix

package plugins

import "os/exec"

// apart does nothing: the system has no process groups.
func apart(*exec.Cmd) {}
