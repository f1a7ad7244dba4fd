package storagetest

import (
	"context"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/google/uuid"
)

// leavesNoGoroutine runs f and fails the test if a goroutine that f started, directly or indirectly, outlives
// it.
//
// A profiler label marks these goroutines: each goroutine inherits the label of the goroutine that starts it.
// A count of all goroutines would include those of the rest of the process, and those that have returned but
// still count in runtime.NumGoroutine. In virtual time, waiting does not help against either.
func (s *stage) leavesNoGoroutine(f func()) {
	s.Helper()
	mark := uuid.NewString()
	pprof.Do(s.ctx, pprof.Labels("storagetest", mark), func(context.Context) { f() })
	var left string
	for range 3000 { // connections have half a minute to close
		if left = marked(mark); left == "" {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.Errorf("goroutines are left:\n%s", left)
}

// marked returns the stacks of all goroutines with this label.
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
