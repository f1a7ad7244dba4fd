package costs_test

import (
	"syscall"
	"time"
)

// processorTime returns the processor time that the process has used.
func processorTime() time.Duration {
	var created, ended, kernel, user syscall.Filetime
	self, _ := syscall.GetCurrentProcess()
	_ = syscall.GetProcessTimes(self, &created, &ended, &kernel, &user)
	units := func(t syscall.Filetime) int64 { return int64(t.HighDateTime)<<32 | int64(t.LowDateTime) }
	return time.Duration(units(kernel)+units(user)) * 100
}
