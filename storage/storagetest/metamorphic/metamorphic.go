// Package metamorphic runs random operations on a vault and compares the results with a model of the vault.
// It finds bugs that need a sequence of calls, or calls at the same time, which nobody would think of as a
// case of storagetest.
//
// [Model] runs the operations of several clients one after the other and predicts each result. [History] runs
// them at the same time and looks for an order that explains the results.
package metamorphic

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/planvault/azblob/internal/trial"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/storagetest"
)

// Model runs random operations of several clients, one after the other, on a vault and on a map that holds
// what the vault must hold. The map predicts each result and each error. If a process died there are several
// possibilities, until a later result decides between them. Any difference fails the test, which prints the
// shortest sequence that it could find.
//
// The operations depend only on the seed, so the same Model finds the same difference again, as far as the
// vault does not depend on time and chance. Each run has a store of its own.
type Model struct {
	// Seed determines the operations. A failure prints it.
	Seed uint64
	// Ops is the number of operations; 0 means 100.
	Ops int
	// Clients is the number of clients, each with its own knowledge of plans and versions; 0 means 3.
	Clients int
	// Plans is the number of IDs that the clients use; 0 means 8.
	Plans int
	// Faults lets some calls meet temporary faults, which must not change any result. The run is skipped if
	// the store has no Faulty.
	Faults bool
	// Deaths lets the process of some calls die. The run is skipped if the store has no Dying.
	Deaths bool
	// Deadlines lets the context of some calls end early. It requires a store that never applies a request
	// after the call that sent it has returned.
	Deadlines bool
}

// Figures are the statistics of a run.
type Figures struct {
	// Operations is the number of calls of a vault.
	Operations int
	// Faulty is the number of those on a vault that meets faults.
	Faulty int
	// Deaths is the number of processes that died in a call, Unknown the number of writes with an unknown
	// outcome.
	Deaths, Unknown int
}

// Plus returns the sums of the figures of two runs.
func (f Figures) Plus(g Figures) Figures {
	return Figures{f.Operations + g.Operations, f.Faulty + g.Faulty, f.Deaths + g.Deaths, f.Unknown + g.Unknown}
}

// Cases returns short runs as cases of the conformance suite: storagetest.Run(t, h, metamorphic.Cases()...).
// Programs call [Model.Run] and [History.Run] for longer runs.
func Cases() []storagetest.Case {
	return []storagetest.Case{
		modelCase("a vault answers random operations like a map", Model{}),
		modelCase("temporary faults change no result", Model{Faults: true}),
		modelCase("the call of a dying process takes effect completely or not at all", Model{Deaths: true, Ops: 150}),
		{Name: "model/concurrent histories are linearizable for each plan", Long: true, Run: func(t storagetest.T, h storagetest.Harness) {
			for _, seed := range []uint64{1, 2, 3} {
				hist := History{Seed: seed}
				t.Logf("%+v: %+v", hist, hist.Run(t, h))
			}
		}},
	}
}

func modelCase(name string, m Model) storagetest.Case {
	return storagetest.Case{Name: "model/" + name, Long: true, Run: func(t storagetest.T, h storagetest.Harness) {
		for _, seed := range []uint64{1, 2} {
			m.Seed = seed
			t.Logf("%+v: %+v", m, m.Run(t, h))
		}
	}}
}

// Run runs the model, and fails the test if the vault differs from it. It skips the test if the harness lacks
// what the run needs.
func (m Model) Run(t storagetest.T, h storagetest.Harness) Figures {
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
	t.Logf("%+v: failed after %d of %d operations: %s: looking for a shorter sequence", m, first.steps, m.Ops, first.failure)
	// Report the last attempt that failed, which is that of the reduced sequence.
	last := first
	short := reduce(steps[:first.steps], func(steps []step) bool {
		a := m.attempt(t, h, steps)
		if a.failure != "" {
			last = a
		}
		return a.failure != ""
	})
	t.Fatalf("%s\n\nThe run %+v failed after %d operations; %d of them are enough:\n%s", last.failure, m, first.steps, len(short), last.trace)
	return first.Figures
}

func (m Model) withDefaults() Model {
	m.Ops, m.Clients, m.Plans = cmp.Or(m.Ops, 100), cmp.Or(m.Clients, 3), cmp.Or(m.Plans, 8)
	return m
}

// offers skips the run if the store lacks what it needs.
func offers(t storagetest.T, store storagetest.Store, faults, deaths bool) {
	switch {
	case faults && store.Faulty == nil:
		t.Skipf("the harness offers no faults")
	case deaths && store.Dying == nil:
		t.Skipf("the harness offers no processes that die")
	}
}

// closing closes a vault when the run has ended.
func closing(t storagetest.T, v storage.Vault) storage.Vault {
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() { _ = v.Close(ctx) })
	return v
}

// check fails the run if Check finds a problem.
func check(t storagetest.T, store storagetest.Store, v storage.Vault, when string) {
	if store.Check == nil {
		return
	}
	if problems := store.Check(t, v); len(problems) > 0 {
		t.Fatalf("Check %s:\n%s", when, strings.Join(problems, "\n"))
	}
}

// attemptResult is the result of an attempt. failure is empty if the vault agreed with the model.
type attemptResult struct {
	Figures
	failure, skipped, trace string
	// steps is the number of steps done, including the one that failed.
	steps int
}

// attempt runs the steps on a new store.
func (m Model) attempt(t storagetest.T, h storagetest.Harness, steps []step) attemptResult {
	var r *modelRun
	p := trial.Run(t.Context(), t.Name(), func(p storagetest.T) {
		r = newModelRun(p, m, h.New(p))
		for _, s := range steps {
			r.do(s)
		}
		r.finish()
	})
	result := attemptResult{failure: p.Failure(), skipped: p.Skipped()}
	if r != nil {
		result.Figures, result.trace, result.steps = r.Figures, strings.Join(r.trace, "\n"), min(r.done, len(steps))
	}
	return result
}

// reduce returns a short list of steps that still fails. It leaves out smaller and smaller runs of steps, then makes
// steps plain. It calls fails about 600 times. If the list does not fail again, because the failure depends on chance,
// reduce returns it unchanged.
func reduce(list []step, fails func([]step) bool) []step {
	const limit = 600
	tries := 0
	try := func(candidate []step) bool {
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
	for at, s := range list {
		if candidate := slices.Clone(list); s != s.plain() {
			candidate[at] = s.plain()
			try(candidate)
		}
	}
	for again := 0; again < 5 && !fails(list); again++ { // the last failure must be that of this list
	}
	return list
}
