package storagetest

import (
	"context"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/google/uuid"
)

// leavesNoGoroutine runs f and fails the test if goroutines that f started, directly or not, outlive it.
//
// A profiler label marks them: each goroutine inherits it from the one that starts it. Other goroutines of the process don't
// count, nor do those that have returned but that the runtime has not put away yet, which runtime.NumGoroutine includes. In
// virtual time no wait outlasts either.
func (s *stage) leavesNoGoroutine(f func()) {
	s.Helper()
	mark := uuid.NewString()
	pprof.Do(s.ctx, pprof.Labels("storagetest", mark), func(context.Context) { f() })
	var left string
	for range 3000 { // half a minute for connections to close
		if left = marked(mark); left == "" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Errorf("goroutines are left:\n%s", left)
}

// marked returns the stacks of all goroutines whose label has the value mark.
func marked(mark string) string {
	var all, found strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	for stack := range strings.SplitSeq(all.String(), "\n\n") {
		if strings.Contains(stack, mark) {
			found.WriteString(stack + "\n\n")
		}
	}
	return found.String()
}
