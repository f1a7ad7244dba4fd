package engine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// gate is a plugin that waits for signals.
type gate struct {
	*engine.TypedPlugin[int, string]
	every time.Duration

	mu    sync.Mutex
	began time.Time
	calls []string // when each was, and how many signals there were
}

// onGate adds a gate to a stage that looks again after a time.
func onGate(s *stage, every time.Duration) *gate {
	g := &gate{every: every, began: time.Now()}
	g.TypedPlugin = engine.Task("gate", g.run)
	s.reg = registry.Must(s, g.TypedPlugin)
	return g
}

func (g *gate) run(_ context.Context, call engine.Call, wanted int) (string, error) {
	there, err := call.Signals("go")
	if err != nil {
		return "", err
	}
	g.mu.Lock()
	g.calls = append(g.calls, fmt.Sprintf("%v:%d", time.Since(g.began).Truncate(30*time.Second), len(there)))
	g.mu.Unlock()
	if len(there) < wanted {
		return "", engine.LaterFor("the others", g.every, nil)
	}
	var names []string
	for _, s := range there {
		names = append(names, s.By.By)
	}
	return strings.Join(names, " "), nil
}

func (g *gate) took() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.calls, " ")
}

func (g *gate) action(wanted int) *workflow.Action {
	a := g.Action("gate", wanted)
	a.Timeout = 1000 * time.Hour
	return a
}

func (s *stage) send(plan *workflow.Plan, name, by string) {
	s.t.Helper()
	_, err := fleet.Send(s.t.Context(), s.process(), plan.ID, fleet.Signal{Name: name, By: workflow.Attribution{By: by}})
	must(s.t, err)
}

// modes are engines in a fleet and alone, that run in memory and asleep.
func modes(t *testing.T, play func(t *testing.T, s *stage, opts engine.Options, every time.Duration)) {
	for _, members := range []*fleet.Options{nil, {}} {
		for _, every := range []time.Duration{4 * time.Minute, 24 * time.Hour} {
			stageRun(t, fmt.Sprintf("fleet=%v,every=%v", members != nil, every), func(t *testing.T, s *stage) {
				opts := engine.Options{Poll: 10 * time.Second, Fleet: members}
				play(t, s, opts, every)
			})
		}
	}
}

// TestSignals: an action that waits is called once for each signal, also for one from before it began, and not again for those
// that it has seen. After the plan's end there are none.
func TestSignals(t *testing.T) {
	modes(t, func(t *testing.T, s *stage, opts engine.Options, every time.Duration) {
		g := onGate(s, every)
		p := s.create(plan(block("b", sequence("s", second("first"), g.action(3)))))
		s.send(p, "go", "ana")
		if opts.Fleet != nil {
			time.Sleep(time.Minute)
			g.began = time.Now()
		}
		ended := start(t.Context(), s.engine(s.process(), opts))
		time.Sleep(time.Minute)
		now := s.read(p.ID)
		a := now.Blocks[0].Sequences[0].Actions[1]
		if l := a.Later(); l == nil || l.LastSignal != 1 || l.For != "the others" || now.Asleep() != (every > time.Hour) || now.Asleep() && now.LastSignal != 1 {
			t.Errorf("stored as %+v with %+v", now, a.Later())
		}
		seen, err := fleet.Inspect(t.Context(), s.process(), fleet.InspectOptions{ReadAll: true})
		must(t, err)
		if why := seen.Plans[0].Why; seen.Plans[0].Stuck || seen.Gauges().Asleep > 0 != now.Asleep() || opts.Fleet != nil && !strings.Contains(why, " Action b/s/gate has waited for 59s for: the others.") {
			t.Errorf("stuck %v, asleep %d: %s", seen.Plans[0].Stuck, seen.Gauges().Asleep, why)
		}
		s.send(p, "go", "ben")
		time.Sleep(time.Minute)
		s.send(p, "other", "cem")
		time.Sleep(time.Minute)
		s.send(p, "go", "dia")
		time.Sleep(time.Minute)
		must(t, <-ended)
		end := s.read(p.ID)
		if end.LastSignal != 0 {
			t.Errorf("a plan that is awake has LastSignal %d", end.LastSignal)
		}
		a = end.Blocks[0].Sequences[0].Actions[1]
		if got := a.Attempts[len(a.Attempts)-1].Resp; got != "ana ben dia" || len(a.Attempts) != 1 {
			t.Errorf("%d attempts, response %q", len(a.Attempts), got)
		}
		if got := g.took(); got != "0s:1 1m0s:2 2m0s:2 3m0s:3" {
			t.Errorf("called at %s", got)
		}
		if r, _ := s.process().Roster(t.Context()); len(r.Notes) > 0 {
			t.Errorf("after the end: %v", r.Notes)
		}
	})
}

// TestSignalsSurviveDeath: the engine dies in the call that a signal has made. The next one calls the plugin for it.
func TestSignalsSurviveDeath(t *testing.T) {
	modes(t, func(t *testing.T, s *stage, opts engine.Options, every time.Duration) {
		g := onGate(s, every)
		p := s.create(plan(block("b", sequence("s", g.action(1)))))
		opts.Observer.Problem = func(context.Context, engine.ProblemEvent) {} // of the one that dies
		dying := s.process()
		ctx, cancel := context.WithCancel(t.Context())
		ended := start(ctx, s.engine(dying, opts))
		time.Sleep(time.Minute)
		dying.OnOp("FindNote", func(context.Context, processtest.Call, func() error) error {
			dying.Kill()
			return context.Canceled
		})
		s.send(p, "go", "ana")
		time.Sleep(time.Minute)
		cancel()
		<-ended
		opts.Observer = engine.Observer{}
		next := s.engine(s.process(), opts)
		must(t, next.Run(t.Context()))
		if end := s.read(p.ID); end.State.Status != workflow.Completed || end.State.End.Sub(end.SubmitTime) > 10*time.Minute {
			t.Errorf("%s after %v, called at %s", outline(end), end.State.End.Sub(end.SubmitTime), g.took())
		}
	})
}

// TestSignalCosts counts the calls of the vault that a signal makes of an engine. Without signals there are none.
func TestSignalCosts(t *testing.T) {
	modes(t, func(t *testing.T, s *stage, opts engine.Options, every time.Duration) {
		g := onGate(s, every)
		p := s.create(plan(block("b", sequence("s", g.action(3)))))
		v := s.process()
		var reads, lists, others, removes atomic.Int64
		v.On(func(_ context.Context, c processtest.Call, do func() error) error {
			switch c.Op {
			case "FindNote":
				reads.Add(1)
			case "Roster":
				lists.Add(1)
			case "RemoveNote":
				removes.Add(1)
			case "Read", "UpdatePlan", "UpdateAction":
				others.Add(1)
			}
			return do()
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := start(ctx, s.engine(v, opts))
		time.Sleep(2 * time.Minute)
		if most := int64(2*60/10 + 3); reads.Load() > 1 || lists.Load() > most { // a node looks once whether the vault is suspended
			t.Errorf("without signals, %d reads and %d lists", reads.Load(), lists.Load())
		}
		others.Store(0)
		reads.Store(0)
		s.send(p, "go", "ana")
		time.Sleep(time.Minute)
		// A plan in memory stores that it waits. One that sleeps is also read, woken and put to sleep.
		if most := map[bool]int64{false: 1, true: 4}[every > time.Hour]; others.Load() > most || reads.Load() != 1 {
			t.Errorf("a signal costs %d calls and %d reads of signals, at most %d and 1", others.Load(), reads.Load(), most)
		}
		cancel()
		must(t, <-ended)
	})
}

// TestNobodyListens: an engine without a fleet whose plans don't wait for signals asks for none.
func TestNobodyListens(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.create(plan(block("b", sequence("s", do(job{Name: "long", For: 30 * time.Minute})))))
		lists, v := 0, s.process()
		v.OnOp("Roster", func(_ context.Context, _ processtest.Call, do func() error) error { lists++; return do() })
		must(t, s.engine(v, engine.Options{}).Run(t.Context()))
		if lists != 1 {
			t.Errorf("%d lists; one tells the time", lists)
		}
	})
}

// uncontrolled is a vault without records.
type uncontrolled struct {
	storage.Vault
	reg *registry.Register
}

func (u uncontrolled) Registry() *registry.Register { return u.reg }

// TestNoSignals: without storage.Control there are no signals, and a plugin hears of it.
func TestNoSignals(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		g, opts := onGate(s, time.Minute), engine.Options{}
		opts.Observer.Problem = func(context.Context, engine.ProblemEvent) {} // what else such a vault lacks
		p := s.create(plan(block("b", sequence("s", g.action(1)))))
		must(t, s.engine(uncontrolled{s.process(), s.reg}, opts).Run(t.Context()))
		if a := s.read(p.ID).Blocks[0].Sequences[0].Actions[0]; a.State.Status != workflow.Failed || !strings.Contains(a.Attempts[0].Err.Message, "the vault keeps no signals") {
			t.Errorf("%s: %+v", a.State.Status, a.Attempts)
		}
		if _, err := (engine.Call{}).Signals("go"); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("without an engine: %v", err)
		}
	})
}
