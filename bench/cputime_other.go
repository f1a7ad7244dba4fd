//go:build !unix

package main

import (
	"errors"
	"time"
)

// processorTime returns the processor time that the process has used.
func processorTime() (time.Duration, error) {
	return 0, errors.New("processor time is not measured on this system")
}
