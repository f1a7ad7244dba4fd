package week_test

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/workflow"
)

// The plugins of a week. All processes have the first one, and some have the second.
const (
	common = "common"
	rare   = "rare"
)

// task is the request of both plugins: what an attempt does.
type task struct {
	Takes time.Duration
	// Fails is how many calls fail, and Crashes how many end the process; -1 is all.
	Fails, Crashes int
	// Deaf calls go on after their context has ended.
	Deaf bool
	// Exits and Panics are what a call does in place of a return.
	Exits, Panics bool
	// Polls is how many calls of an attempt return Later, -1 is all, and Wants how many signals an attempt waits for. Nap is
	// the time until the next call, and Fill the size of the state.
	Polls, Wants int
	Nap          time.Duration
	Fill         int
}

// signal is the name of the signals that actions wait for.
const signal = "go"

// memo is the state of a plugin that waits. A plugin knows how often it has polled from it alone.
type memo struct {
	Action uuid.UUID
	Polls  int
	Fill   string
}

// next returns what a plugin that waits remembers until its next call, and whether it waits any longer. It has the signals
// of the plan.
func (t task) next(action uuid.UUID, m memo, signals int) (memo, bool) {
	return memo{action, m.Polls + 1, strings.Repeat("x", t.Fill)}, t.Polls < 0 || m.Polls < t.Polls || signals < t.Wants
}

// career is a plan, and what is known of it.
type career struct {
	plan  *workflow.Plan // as it was submitted
	shape string
	// rare means that only processes with the second plugin can run it.
	rare bool
	// delay is the longest time that the plan waits because its author wants it to.
	delay time.Duration
	// wants is how many signals it waits for.
	wants int
	// completes means that the plan becomes Completed unless it is stopped.
	completes bool
	// beside are the continuous checks, whose rounds are no progress, ending the work that a stop lets begin, and idempotent
	// the actions that run once more before deaths are counted.
	beside, ending, idempotent map[uuid.UUID]bool

	ledger
	progress
}

// maxRetryDelay is the longest wait before a retry with the engine's defaults and no more than three retries.
const maxRetryDelay = 4 * time.Second

// drawPlan draws the next plan. Its longest action takes about the given time.
func drawPlan(r *rand.Rand, longest time.Duration) *career {
	c := &career{completes: true, beside: map[uuid.UUID]bool{}, ending: map[uuid.UUID]bool{}, idempotent: map[uuid.UUID]bool{}, delay: maxRetryDelay}
	c.shape = []string{"short", "short", "short", "wide", "wide", "checked", "delayed", "long", "odd", "odd", "crash", "later", "later", "signal"}[r.IntN(14)]
	c.rare = r.IntN(6) == 0
	few := func(n int) int { return 1 + r.IntN(n) }
	takes := func() time.Duration {
		d := 10 * time.Millisecond << r.IntN(13) // up to 41 s
		return d + time.Duration(r.Int64N(int64(d)))
	}
	actions := func(n int) (all []*workflow.Action) {
		for range n {
			t := task{Takes: takes()}
			a := &workflow.Action{Name: "a", Plugin: common, Retries: 2, Timeout: 2*t.Takes + 10*time.Minute, Idempotent: r.IntN(3) == 0}
			if c.rare {
				a.Plugin = rare
			}
			if r.IntN(8) == 0 {
				t.Fails = 1
			}
			if c.shape == "later" && r.IntN(2) == 0 {
				t.Polls, t.Nap = few(3), min(30*time.Second<<r.IntN(9), longest)+time.Duration(r.IntN(30000))*time.Millisecond
				t.Fill = []int{0, 100, engine.MaxState - 200}[r.IntN(3)]
				a.Timeout += 4*time.Duration(t.Polls)*t.Nap + 2*time.Hour
			}
			a.Req = t
			all = append(all, a)
		}
		return all
	}
	checks := func() *workflow.Checks { return &workflow.Checks{Actions: actions(few(2))} }
	p := &workflow.Plan{Name: c.shape}
	for range few(2) {
		b := &workflow.Block{Name: "b", Concurrency: few(3)}
		sequences := 1
		if c.shape == "wide" {
			sequences = few(6)
		}
		for range sequences {
			b.Sequences = append(b.Sequences, &workflow.Sequence{Name: "s", Actions: actions(few(3))})
		}
		if c.shape == "delayed" {
			b.EntranceDelay, b.ExitDelay = time.Duration(r.IntN(90))*time.Minute, time.Duration(r.IntN(90))*time.Second
			c.delay = max(c.delay, b.EntranceDelay, b.ExitDelay)
		}
		p.Blocks = append(p.Blocks, b)
	}
	if c.shape == "checked" || c.shape == "long" {
		p.PreChecks, p.PostChecks, p.ContChecks, p.DeferredChecks = checks(), checks(), checks(), checks()
		p.PreChecks.Delay, p.ContChecks.Delay = time.Duration(r.IntN(20))*time.Second, time.Duration(few(5))*time.Minute
		c.delay = max(c.delay, p.PreChecks.Delay)
		for _, a := range p.ContChecks.Actions {
			a.Req = task{Takes: time.Second}
		}
	}
	if r.IntN(3) == 0 {
		p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{Name: "d", When: workflow.Always, Actions: actions(few(2))}}}
	}
	odd := &p.Blocks[0].Sequences[0].Actions[0].Req
	t := (*odd).(task)
	switch {
	case c.shape == "long":
		t.Takes = longest/10 + time.Duration(r.Int64N(int64(longest)))
	case c.shape == "signal":
		t.Wants, t.Nap, t.Fill = few(3), time.Duration(few(24))*time.Hour, 100
	case c.shape == "later" && r.IntN(4) == 0:
		t.Polls, t.Nap, c.completes = -1, time.Duration(few(20))*time.Minute, false
	case c.shape == "crash":
		t.Crashes, c.completes = []int{1, 2, -1}[r.IntN(3)], false
	case c.shape != "odd":
	case r.IntN(4) == 0:
		t.Fails, c.completes = -1, false
	case r.IntN(3) == 0:
		t.Takes, t.Deaf = time.Duration(few(50))*time.Minute, true
	case r.IntN(2) == 0:
		t.Panics, c.completes = true, false
	default:
		t.Exits, c.completes = true, false
	}
	*odd = t
	switch a := p.Blocks[0].Sequences[0].Actions[0]; {
	case t.Wants > 0:
		a.Timeout = 2*longest + 6*time.Hour
	case t.Polls < 0:
		a.Timeout, a.Retries = time.Duration(10+few(60))*time.Minute, 0
	case t.Polls == 0:
		a.Timeout = 2*t.Takes + 10*time.Minute
	}
	c.plan = p
	return c
}

// sort notes which objects are beside the work of the plan and which follow it, once they have IDs.
func (c *career) sort() {
	for o, parent := range workflow.Walk(c.plan) {
		id := *o.Header().ID
		if parent == nil {
			continue
		}
		above := *parent.Header().ID
		kind := o.Kind()
		c.beside[id] = o == workflow.Object(c.plan.ContChecks) || c.beside[above]
		if a, ok := o.(*workflow.Action); ok {
			c.idempotent[id] = a.Idempotent
		}
		c.ending[id] = o == workflow.Object(c.plan.DeferredChecks) || kind == workflow.KindDeferredActions || c.ending[above]
	}
}
