//go:build !unix

package main

import "syscall"

// sigFreeze and sigThaw are refused: no process of the chaos freezes here.
const sigFreeze, sigThaw = syscall.Signal(0), syscall.Signal(0)
