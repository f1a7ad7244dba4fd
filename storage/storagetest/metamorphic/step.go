package metamorphic

import (
	"math/rand/v2"
	"time"
)

// op is what a step does.
type op int

const (
	opCreate op = iota
	opUpdate
	opDelete
	opRepeat
	opRead
	opExists
	opList
	opSearch
	opRecover
	opReopen
	opGrace
	opRecoverAll
	opCount
)

func (o op) String() string {
	return [opCount]string{opCreate: "Create", opUpdate: "Update", opDelete: "Delete", opRead: "Read", opExists: "Exists", opRecover: "Recovery"}[o]
}

// acts are the steps with their relative frequencies.
var acts = [opCount]struct {
	often int
	do    func(r *modelRun)
}{
	opCreate: {14, (*modelRun).create}, opUpdate: {40, (*modelRun).update}, opDelete: {5, (*modelRun).delete},
	opRepeat: {4, (*modelRun).again}, opRead: {15, (*modelRun).read}, opExists: {4, (*modelRun).exists},
	opList: {5, (*modelRun).list}, opSearch: {8, (*modelRun).search}, opRecover: {3, (*modelRun).recover},
	opReopen: {2, (*modelRun).reopen}, opGrace: {1, (*modelRun).grace}, opRecoverAll: {1, (*modelRun).recoverAll},
}

// step is one step of a run. Its details follow from the step and from the state that it meets, so any steps
// can be left out of a sequence, and the others still make sense.
type step struct {
	kind         op
	client, plan int
	// seed determines everything else.
	seed uint64
	// faulty uses the vault that meets faults.
	faulty bool
	// dies is the request at which the process dies, or 0. after means that this request takes effect.
	dies  int
	after bool
	// limit is the deadline of the call, or 0.
	limit time.Duration
}

// steps returns the steps of the run.
func (m Model) steps() []step {
	r := rand.New(rand.NewPCG(m.Seed, 1))
	total := 0
	for _, act := range acts {
		total += act.often
	}
	steps := make([]step, m.Ops)
	for i := range steps {
		s := step{client: r.IntN(m.Clients), plan: r.IntN(m.Plans), seed: r.Uint64()}
		for n := r.IntN(total); n >= acts[s.kind].often; s.kind++ {
			n -= acts[s.kind].often
		}
		switch n := r.IntN(100); {
		case n < 40:
			s.faulty = m.Faults
		case n < 52 && m.Deaths:
			s.dies, s.after = 1+r.IntN(1+r.IntN(12)), r.IntN(2) == 0 // most calls are of few requests
		case n < 60 && m.Deadlines:
			s.limit = time.Duration(1 + r.IntN(40_000_000))
		}
		steps[i] = s
	}
	return steps
}

// plain returns the step without faults, deaths and deadlines.
func (s step) plain() step { return step{kind: s.kind, client: s.client, plan: s.plan, seed: s.seed} }

// cut reports whether the step may be interrupted.
func (s step) cut() bool { return s.dies > 0 || s.limit > 0 }
