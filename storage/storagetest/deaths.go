package storagetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/pprof"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// death is one call in a process that dies.
type death struct {
	s     *stage
	n     int
	after bool
	// died reports whether the process died during the call.
	died bool
}

func (d *death) String() string {
	return fmt.Sprintf("death at request %d (after it took effect: %v)", d.n, d.after)
}

// run makes the call. Its context ends when the process has died.
func (d *death) run(do func(ctx context.Context, v storage.Vault) error) error {
	d.s.Helper()
	v, died := d.s.Dying(d.s.T, d.n, d.after)
	d.s.closing(v)
	ctx, cancel := context.WithTimeout(d.s.ctx, time.Minute)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !died() && ctx.Err() == nil {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		cancel()
	})
	err := do(ctx, v)
	d.died = died() // no goroutine of do is left that could still send a request
	cancel()
	wg.Wait()
	if !d.died && err != nil {
		d.s.Errorf("the process did not die, but its call failed: %v", err)
	}
	return err
}

// deaths yields a death at each request of an operation, first before and then after the request takes
// effect. Each of the two series ends with an operation that is not interrupted.
func (s *stage) deaths() iter.Seq[*death] {
	s.Helper()
	s.needs(s.Dying != nil, "processes that die")
	return func(yield func(*death) bool) {
		for _, after := range []bool{false, true} {
			for n := 1; ; n++ {
				d := &death{s: s, n: n, after: after}
				more := yield(d)
				if s.Failed() {
					s.Fatalf("the failure was with %v", d)
				}
				if !more {
					return
				}
				if !d.died {
					break
				}
			}
		}
	}
}

// write is a write in which a process dies. A plan that is nil is not stored.
type write struct {
	op string
	// begin prepares the nth write. It returns what is stored, and the plan that the write gets.
	begin func(s *stage, n int) (before, plan *workflow.Plan)
	do    func(ctx context.Context, v storage.Vault, plan *workflow.Plan) error
	// removes says that nothing is stored after the write. Otherwise it is the plan.
	removes bool
}

var (
	updateOfAction = write{op: "UpdateAction", begin: func(s *stage, _ int) (before, plan *workflow.Plan) {
		before = s.started(allKinds())
		plan = plantest.Clone(before)
		o := plan.DeferredActions.Batches[0].Actions[0]
		o.State.Status, o.Attempts = workflow.Running, attemptsOf(3)
		return before, plan
	}, do: func(ctx context.Context, v storage.Vault, plan *workflow.Plan) error {
		return v.UpdateAction(ctx, plan.DeferredActions.Batches[0].Actions[0])
	}}
	completion = write{op: "UpdatePlan", begin: func(s *stage, _ int) (before, plan *workflow.Plan) {
		before = s.started(allKinds())
		s.must(finishParts(s.ctx, s.vault, before))
		return before, plantest.Clone(before)
	}, do: complete}
	deletion = write{op: "Delete", begin: func(s *stage, n int) (before, plan *workflow.Plan) {
		before = [...]func(*workflow.Plan) *workflow.Plan{s.create, s.started, s.completed}[n%3](allKinds())
		return before, before
	}, do: func(ctx context.Context, v storage.Vault, plan *workflow.Plan) error { return v.Delete(ctx, plan.ID) }, removes: true}
)

// left is what a write left whose process died: the plan that readers see, or nil, and the plan that the write was given.
type left struct {
	shown, plan *workflow.Plan
}

// dies lets processes die in a write, at each of its requests. Readers must see what was stored before or after it, and the
// error must say which, as far as it can.
func (s *stage) dies(w write) iter.Seq[left] {
	s.Helper()
	deaths := s.deaths()
	return func(yield func(left) bool) {
		for d := range deaths {
			before, plan := w.begin(s, d.n)
			err := d.run(func(ctx context.Context, v storage.Vault) error { return w.do(ctx, v, plan) })
			if plan.ID == uuid.Nil {
				s.Fatalf("%s left the plan without an ID", w.op)
			}
			if !yield(left{s.beforeOrAfter(w, before, plan, err), plan}) {
				return
			}
		}
	}
}

// beforeOrAfter returns the plan that readers see after a write that returned err: the one before it, or the one after it.
func (s *stage) beforeOrAfter(w write, before, plan *workflow.Plan, err error) *workflow.Plan {
	s.Helper()
	after := plan
	if w.removes {
		after = nil
	}
	got := s.find(s.vault, plan.ID)
	differs := func(want *workflow.Plan) string {
		switch {
		case want == nil && got == nil:
			return ""
		case want == nil || got == nil:
			return fmt.Sprintf("there is a plan: %t", got != nil)
		}
		return plantest.Diff(want, got)
	}
	switch {
	case differs(after) == "":
		if err != nil && !errors.Is(err, storage.ErrUnknown) {
			s.Errorf("%s took effect, but did not return nil or ErrUnknown: %v", w.op, err)
		}
	case err == nil:
		s.Errorf("%s returned nil, but did not take effect: %s", w.op, differs(after))
	case differs(before) != "":
		s.Errorf("readers see neither what was before the %s nor what is after it: %s; %s", w.op, differs(before), differs(after))
	}
	return got
}

// leftovers lets processes die in writes, and returns what readers see of each plan, which is nil if they see none.
func (s *stage) leftovers(writes ...write) map[uuid.UUID]*workflow.Plan {
	s.Helper()
	shown := map[uuid.UUID]*workflow.Plan{}
	for _, w := range writes {
		for l := range s.dies(w) {
			shown[l.plan.ID] = l.shown
		}
	}
	return shown
}

// stays checks that readers see of each plan what they saw before.
func (s *stage) stays(shown map[uuid.UUID]*workflow.Plan) {
	s.Helper()
	for id, plan := range shown {
		if plan == nil {
			s.lacks(s.vault, id)
		} else {
			s.shows(s.vault, plan)
		}
	}
}

// recovered is the promise that a Recovery after the grace period removes what deaths in writes left, and no more.
func recovered(writes ...write) func(s *stage) {
	return func(s *stage) {
		shown := s.leftovers(writes...)
		s.recoverAll()
		s.stays(shown)
	}
}

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
