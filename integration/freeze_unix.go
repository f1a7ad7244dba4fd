//go:build unix

package main

import "syscall"

// sigFreeze stops a process and sigThaw lets it continue.
const sigFreeze, sigThaw = syscall.SIGSTOP, syscall.SIGCONT
