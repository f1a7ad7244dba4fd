package week_test

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// event is something that happens to a week, as often as its weight says.
type event struct {
	name   string
	weight int
	play   func(w *week, p *process)
}

var events = []event{
	{"kill", 10, func(w *week, p *process) { w.kill(p, "kill") }},
	{"freeze", 10, func(w *week, p *process) {
		w.suffer(p, &fault{kind: "freeze", mute: true, frozen: true}, w.span(time.Second, 2*time.Minute))
	}},
	lasting("cut", 8, true, 20, func(w *week) *emulator.Rule { return emulator.On().Do(w.cut()) }),
	lasting("no writes", 2, true, 10, func(w *week) *emulator.Rule { return emulator.On().Where(writes).Do(w.cut()) }),
	lasting("no reads", 2, false, 10, func(*week) *emulator.Rule { return emulator.On().Where(reads).Do(emulator.Reset()) }),
	lasting("no answers", 2, false, 10, func(*week) *emulator.Rule { return emulator.On().Do(emulator.LostAnswer()) }),
	lasting("no answers to writes", 2, false, 10, func(*week) *emulator.Rule { return emulator.On().Where(writes).Do(emulator.LostAnswer()) }),
	{"noise", 6, func(w *week, p *process) {
		w.suffer(p, &fault{kind: "noise", rule: emulator.Random(0.05+w.r.Float64()/4, w.r.Uint64(), emulator.LostRequest(), emulator.LostAnswer(),
			emulator.LostRequest().Late(1), emulator.LostRequest().Late(50), emulator.Reset().Late(5), emulator.Duplicate(0), emulator.Duplicate(20))},
			w.span(time.Minute, time.Hour))
	}},
	lasting("denied", 2, true, 10, func(*week) *emulator.Rule { return emulator.On().Do(denied) }),
	lasting("denied writes", 2, true, 10, func(*week) *emulator.Rule { return emulator.On().Where(writes).Do(denied) }),
	lasting("denied once", 2, false, 10, func(*week) *emulator.Rule { return emulator.On().Path("actions/").Where(writes).Times(1).Do(denied) }),
	lasting("denied plans", 2, false, 10, func(*week) *emulator.Rule { return emulator.On().Where(ofPlans).Do(denied) }),
	lasting("busy", 6, true, 10, func(w *week) *emulator.Rule {
		return emulator.On().Do(emulator.Answer(503, "ServerBusy").RetryAfter(time.Duration(w.r.IntN(2)*10) * time.Second))
	}),
	{"outage", 2, func(w *week, _ *process) {
		if w.outage != nil {
			return
		}
		answers := []emulator.Effect{emulator.Answer(503, "ServerBusy"), emulator.Reset(), emulator.Answer(403, "AuthorizationFailure")}
		w.outage = &fault{kind: "outage", mute: true, rule: emulator.On().Do(answers[w.r.IntN(len(answers))])}
		d := w.span(time.Second, 15*time.Minute)
		for _, p := range w.alive {
			w.suffer(p, w.outage, d)
		}
		f := w.outage
		w.after(d, func() {
			w.outage = nil
			for _, p := range w.alive {
				w.heal(p, f)
			}
		})
	}},
	{"deploy", 8, func(w *week, p *process) { w.deploy(slices.Index(w.seats, p), p) }},
	{"deploys", 1, func(w *week, _ *process) {
		for i, p := range w.seats {
			w.after(time.Duration(i)*time.Minute, func() { w.deploy(i, p) })
		}
	}},
	{"evict", 4, func(w *week, p *process) {
		node := p.node
		w.call(func(ctx context.Context) {
			if node == uuid.Nil || fleet.Evict(ctx, w.operator, node, fleet.EvictOptions{By: person}) != nil {
				return
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			w.hits(p, "evict")
			w.gone(node)
		})
	}},
	{"backlog", 2, func(w *week, _ *process) {
		for range 150 {
			w.submit()
		}
	}},
	{"pause", 6, func(w *week, _ *process) {
		all := w.openPlans()
		if len(all) == 0 {
			return
		}
		c, d := all[w.r.IntN(len(all))], w.span(time.Second, w.longestAction)
		if c.paused {
			return
		}
		w.call(func(ctx context.Context) {
			err := fleet.PausePlan(ctx, w.operator, c.plan.ID, person)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.note(nil, c, "paused for %v: %v", d, err)
			if err == nil {
				c.paused, c.pausedAt = true, time.Now()
				w.after(d, func() { w.resume(c) })
			}
		})
	}},
	{"pause key", 10, (*week).pauseKey},
	lasting("denied keys", 4, false, 20, func(*week) *emulator.Rule { return emulator.On().Path("keys/").Where(writes).Do(denied) }),
	{"stop", 10, func(w *week, p *process) {
		all := w.openPlans()
		if len(all) == 0 || p.engine == nil {
			return
		}
		c := all[w.r.IntN(len(all))]
		c.asked = true
		byEngine := w.r.IntN(2) == 0
		w.call(func(ctx context.Context) {
			var err error
			if byEngine {
				err = p.engine.Stop(ctx, c.plan.ID, person)
			} else {
				err = fleet.Stop(ctx, w.operator, c.plan.ID, person)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if err == nil && !p.dead && c.stopped.IsZero() {
				c.stopped, c.since, c.kind = time.Now(), time.Now(), "stop"
			}
			w.note(nil, c, "stop by %s (engine: %t): %v", p.name, byEngine, err)
		})
	}},
}

// resume ends a pause.
func (w *week) resume(c *career) {
	w.call(func(ctx context.Context) {
		err := fleet.ResumePlan(ctx, w.operator, c.plan.ID, person)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.note(nil, c, "resumed: %v", err)
		if err != nil {
			w.find("resume", c, "%v", err)
		}
		c.paused, c.since, c.kind = false, time.Now(), "resume"
	})
}

// person asks for evictions and stops.
var person = workflow.Attribution{By: "a person"}

func writes(r emulator.Request) bool { return r.Method != "GET" && r.Method != "HEAD" }
func reads(r emulator.Request) bool  { return !writes(r) }
func ofPlans(r emulator.Request) bool {
	return r.Container != "" && r.Container != prefix+"-control"
}

var denied = emulator.Answer(403, "AuthorizationPermissionMismatch")

// lasting is a fault of the requests of a process, for up to some minutes.
func lasting(kind string, weight int, mute bool, minutes time.Duration, rule func(*week) *emulator.Rule) event {
	return event{kind, weight, func(w *week, p *process) {
		w.suffer(p, &fault{kind: kind, mute: mute, rule: rule(w)}, w.span(time.Second, minutes*time.Minute))
	}}
}

// cut ends connections, or lets them hang.
func (w *week) cut() emulator.Effect {
	return []emulator.Effect{emulator.Reset(), emulator.Silence()}[w.r.IntN(2)]
}

// span draws a time between two, short ones as likely as long ones.
func (w *week) span(least, most time.Duration) time.Duration {
	d := least
	for d < most && w.r.IntN(4) > 0 {
		d *= 2
	}
	return min(d+time.Duration(w.r.Int64N(int64(d))), most)
}

// disturb lets something happen.
func (w *week) disturb() {
	total := 0
	for _, e := range events {
		total += e.weight
	}
	n, p := w.r.IntN(total), w.seats[w.r.IntN(len(w.seats))]
	for _, e := range events {
		if n -= e.weight; n < 0 {
			if p != nil && !p.dead && p.leaving.IsZero() {
				w.counts[e.name]++
				e.play(w, p)
			}
			return
		}
	}
}

// submit gives a plan to one of the processes.
func (w *week) submit() {
	c, p := drawPlan(w.r, w.longestAction), w.seats[w.r.IntN(len(w.seats))]
	if p == nil || p.dead || p.engine == nil || c.rare && !p.rare {
		return
	}
	c.plan.ID = workflow.NewV7At(time.Now().Add(p.ahead))
	w.add(c)
	w.keyed(c)
	c.by = p
	w.call(func(ctx context.Context) {
		_, err := p.engine.Submit(ctx, c.plan)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.note(nil, c, "%s plan by %s: %v", c.shape, p.name, err)
		if err == nil && !p.dead {
			w.created(c)
		}
	})
	w.signal(c)
}

// signal sends a plan the signals that it waits for, some before it has begun.
func (w *week) signal(c *career) {
	for n := range c.wants {
		r := w.draws("signal", c.number, n)
		s := fleet.Signal{Name: signal, By: person, Key: []string{"", strconv.Itoa(n)}[r.IntN(2)]}
		w.after(time.Duration(r.Int64N(int64(w.longestAction)))>>r.IntN(10), func() { w.send(c, s, 0) })
	}
}

// send sends a signal until it is stored.
func (w *week) send(c *career, s fleet.Signal, tries int) {
	vault, p := storage.Vault(w.operator), w.seats[w.draws("sends", c.number, s.Key, tries).IntN(len(w.seats))]
	if tries%2 == 0 && p != nil && !p.dead && p.vault != nil {
		vault = p.vault
	}
	w.call(func(ctx context.Context) {
		number, err := fleet.Send(ctx, vault, c.plan.ID, s)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.catchUp()
		w.note(nil, c, "signal %q: %d, %v", s.Key, number, err)
		switch {
		case err == nil && c.signals[number].IsZero():
			w.find("signal", c, "signal %d is acknowledged and not stored", number)
		case err != nil && !c.status.Final() && (c.stored || tries < 30):
			w.after(time.Minute, func() { w.send(c, s, tries+1) })
		}
	})
}

// fork does again what is left of a plan.
func (w *week) fork(from *career) {
	w.call(func(ctx context.Context) {
		old, err := w.operator.Read(ctx, from.plan.ID)
		if err != nil {
			return // the object is not final yet
		}
		plan, err := workflow.Fork(old, workflow.ForkOptions{})
		if err != nil {
			w.t.Error(err)
			return
		}
		c := &career{plan: plan, shape: "fork", rare: from.rare, delay: from.delay, beside: map[uuid.UUID]bool{}, ending: map[uuid.UUID]bool{}, idempotent: map[uuid.UUID]bool{}}
		w.mu.Lock()
		w.add(c)
		w.mu.Unlock()
		err = w.operator.Create(ctx, plan)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.note(nil, c, "fork of %s: %v", old.ID, err)
		if err == nil {
			w.created(c)
			w.signal(c)
		}
	})
}
