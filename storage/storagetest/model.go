package storagetest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Model runs random operations of several clients, one after the other, on the vault under test and on a plain map of what
// the vault must hold. The map predicts each result and each error exactly; only where a process died is there more than one
// possibility, until a result decides. Whatever differs breaks the test, with the shortest sequence that still shows it.
//
// The operations depend on the seed alone (what the vault makes of time and chance aside), so the same Model finds the same
// again. Each run is on a store of its own.
type Model struct {
	// Seed chooses the operations; the failure prints it.
	Seed uint64
	// Ops is how many there are; 0 is 100.
	Ops int
	// Clients is how many clients do them, each with its own knowledge of plans and versions; 0 is 3.
	Clients int
	// Plans is how many IDs they use; 0 is 8.
	Plans int
	// Faults lets some of the calls meet passing faults, which must not show. The run is skipped where the store does not offer
	// them.
	Faults bool
	// Deaths lets the process of some of the calls die. The run is skipped where the store does not offer that.
	Deaths bool
	// Deadlines lets the context of some of the calls end early. It is for stores that do not apply a request after the call that
	// sent it has returned: what was read after that would not be the last word.
	Deadlines bool
}

// Figures tell what a run came to.
type Figures struct {
	// Operations is how many calls of a vault there were.
	Operations int
	// Faulty is how many of them were on a vault that meets faults.
	Faulty int
	// Deaths is how many processes died in one, Unknown how many writes ended with an unknown outcome.
	Deaths, Unknown int
}

// Plus adds up what two runs came to.
func (f Figures) Plus(g Figures) Figures {
	return Figures{f.Operations + g.Operations, f.Faulty + g.Faulty, f.Deaths + g.Deaths, f.Unknown + g.Unknown}
}

// modelCases are small runs; longer ones are for programs that call Model and History themselves.
func modelCases() []Case {
	model := func(name string, m Model) Case {
		return Case{Name: "model/" + name, Run: func(t T, h Harness) {
			for _, seed := range []uint64{1, 2} {
				m.Seed = seed
				f := m.Run(t, h)
				t.Logf("%+v: %+v", m, f)
			}
		}}
	}
	return []Case{
		model("a vault answers random operations as a plain map does", Model{}),
		model("passing faults do not show", Model{Faults: true}),
		model("what a dying process did is done whole or not at all", Model{Deaths: true, Ops: 150}),
		{Name: "model/concurrent histories are linearizable for each plan", Run: func(t T, h Harness) {
			for _, seed := range []uint64{1, 2, 3} {
				hist := History{Seed: seed}
				f := hist.Run(t, h)
				t.Logf("%+v: %+v", hist, f)
			}
		}},
	}
}

// Run runs the model, and breaks the test where the vault differs from it. Cases that need what the harness does not offer
// are skipped.
func (m Model) Run(t T, h Harness) Figures {
	t.Helper()
	m = m.withDefaults()
	steps := m.steps()
	first := m.attempt(t, h, steps)
	switch {
	case first.skipped != "":
		t.Skipf("%s", first.skipped)
	case first.failure == "":
		return first.Figures
	}
	t.Logf("%+v: after %d of %d operations: %s: looking for a shorter sequence", m, first.steps, m.Ops, first.failure)
	// The one that failed last: what is reported is what was reduced. Each try is on a store of its own.
	last := first
	fails := func(steps []modelStep) bool {
		a := m.attempt(t, h, steps)
		if a.failure != "" {
			last = a
		}
		return a.failure != ""
	}
	short := modelReduce(steps[:first.steps], 600, fails, modelStep.simpler)
	t.Fatalf("%s\n\nThe model's run %+v failed after %d of its operations; %d of them suffice:\n%s", last.failure, m, first.steps, len(short), last.trace)
	return first.Figures
}

func (m Model) withDefaults() Model {
	for n, fallback := range map[*int]int{&m.Ops: 100, &m.Clients: 3, &m.Plans: 8} {
		if *n == 0 {
			*n = fallback
		}
	}
	return m
}

// modelResult is what an attempt came to: a failure, or "".
type modelResult struct {
	Figures
	failure, skipped, trace string
	// steps is how many were done, the one that failed included.
	steps int
}

// attempt does the steps on a new store.
func (m Model) attempt(t T, h Harness, steps []modelStep) modelResult {
	var r *modelRun
	p := modelTry(t, func(p *modelT) {
		r = newModelRun(p, m, h.New(p))
		for _, s := range steps {
			r.do(s)
		}
		r.finish()
	})
	result := modelResult{failure: p.failure, skipped: p.skipped}
	if r != nil {
		result.Figures, result.trace, result.steps = r.Figures, strings.Join(r.trace, "\n"), min(r.done, len(steps))
	}
	return result
}

// modelReduce finds a short list that still fails, by leaving out ever smaller runs of it, then by making its elements
// simpler. It calls fails limit times or a little more. A list that does not fail again, because chance has a part in it, is
// returned as it is.
func modelReduce[E any](list []E, limit int, fails func([]E) bool, simpler func(E) []E) []E {
	tries := 0
	try := func(candidate []E) bool {
		if tries++; tries > limit || !fails(candidate) {
			return false
		}
		list = candidate
		return true
	}
	for !try(list) {
		if tries == 5 {
			return list
		}
	}
	for size := max(len(list)/2, 1); ; size = max(size/2, 1) {
		shorter := false
		for at := 0; at < len(list); {
			if try(slices.Delete(slices.Clone(list), at, min(at+size, len(list)))) {
				shorter = true
			} else {
				at += size
			}
		}
		if size == 1 && !shorter || tries > limit {
			break
		}
	}
	for at := range list {
		for _, e := range simpler(list[at]) {
			candidate := slices.Clone(list)
			candidate[at] = e
			if try(candidate) {
				break
			}
		}
	}
	for again := 0; again < 5 && !fails(list); again++ { // so that the last failure is this list's
	}
	return list
}

// modelT is a T whose failures do not break the test, so that another try may follow.
type modelT struct {
	T
	ctx context.Context

	mu               sync.Mutex
	cleanups         []func()
	failure, skipped string
}

// modelStop is what Fatalf and Skipf panic with: unlike runtime.Goexit it leaves the caller's goroutine to go on.
type modelStop struct{}

// modelTry runs a function with a T of its own, and with all its cleanups.
func modelTry(t T, run func(p *modelT)) *modelT {
	ctx, cancel := context.WithCancel(t.Context())
	p := &modelT{T: t, ctx: ctx}
	protect := func(f func()) {
		defer func() {
			if r := recover(); r != nil {
				if _, stop := r.(modelStop); !stop {
					panic(r)
				}
			}
		}()
		f()
	}
	protect(func() { run(p) })
	cancel()
	for _, f := range slices.Backward(p.cleanups) {
		protect(f)
	}
	return p
}

func (p *modelT) Context() context.Context { return p.ctx }

func (p *modelT) Cleanup(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}

func (p *modelT) Failed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failure != ""
}

func (p *modelT) Errorf(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == "" { // what follows is often only its consequence
		p.failure = fmt.Sprintf(format, args...)
	}
}

func (p *modelT) Fatalf(format string, args ...any) {
	p.Errorf(format, args...)
	panic(modelStop{})
}

func (p *modelT) Skipf(format string, args ...any) {
	p.mu.Lock()
	p.skipped = fmt.Sprintf(format, args...)
	p.mu.Unlock()
	panic(modelStop{})
}
