package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/workflow"
)

// blocks makes the methods of odd block until the channel is closed, unless it is nil.
var blocks atomic.Pointer[chan struct{}]

func await() {
	if c := blocks.Load(); c != nil {
		<-*c
	}
}

// odd is a request that is up to its methods.
type odd struct{ text string }

func (o *odd) UnmarshalJSON(text []byte) error { await(); o.text = string(text); return nil }
func (o odd) MarshalJSON() ([]byte, error)     { return []byte(o.text), nil }

// late is a response that never becomes JSON.
type late struct{ N int }

func (late) MarshalJSON() ([]byte, error) { await(); return []byte("{}"), nil }

// TestBlockedMethods runs 40 plans with a request whose UnmarshalJSON blocks, and one whose response does. They fail, another
// plan runs, and a shutdown ends at any time.
func TestBlockedMethods(t *testing.T) {
	for _, inFleet := range []bool{true, false} {
		for _, shutdown := range []time.Duration{5 * time.Second, 15 * time.Second, time.Hour} {
			t.Run(fmt.Sprintf("fleet %t, shut down after %v", inFleet, shutdown), func(t *testing.T) {
				onStage(t, func(t *testing.T, s *stage) { blockedMethods(t, s, inFleet, shutdown) })
			})
		}
	}
}

func blockedMethods(t *testing.T, s *stage, inFleet bool, shutdown time.Duration) {
	must(t, s.reg.Register(engine.Task("odd", func(context.Context, engine.Call, odd) (string, error) { return "", nil })))
	must(t, s.reg.Register(engine.Task("late", func(context.Context, engine.Call, string) (late, error) { return late{1}, nil })))
	act := func(plugin string, req any) *workflow.Action {
		return &workflow.Action{Name: plugin, Plugin: plugin, Req: req}
	}
	bad := []uuid.UUID{s.create(plan(block("b", sequence("s", act("late", ""))))).ID}
	for range 40 {
		bad = append(bad, s.create(plan(block("b", sequence("s", act("odd", odd{"{}"}), act("odd", odd{"{}"}))))).ID)
	}
	good := s.create(plan(block("b", sequence("s", second("good")))))
	c := make(chan struct{})
	blocks.Store(&c)
	defer close(c)

	var told atomic.Int64
	opts := engine.Options{Plans: 4, Observer: engine.Observer{Panicked: func(context.Context, engine.PanickedEvent) { told.Add(1) }}}
	ended := make(chan error, 1)
	ctx, stop := context.WithTimeout(t.Context(), shutdown)
	defer stop()
	if inFleet {
		p := s.join("node", opts)
		ended = p.ended
		context.AfterFunc(ctx, p.end)
	} else {
		go func() { ended <- s.engine(s.process(), opts).Run(ctx) }()
	}
	select {
	case err := <-ended:
		must(t, err)
	case <-time.After(shutdown + time.Minute):
		t.Error("Run does not return")
	}
	blocks.Store(nil)
	if shutdown < time.Hour {
		return
	}
	if got := s.read(good.ID); got.State.Status != workflow.Completed || told.Load() != int64(len(bad)) {
		t.Errorf("the observer was told %d times, and another plan is %s", told.Load(), outline(got))
	}
	for _, id := range bad {
		got := s.read(id)
		last := got.Blocks[0].Sequences[0].Actions[0].Attempts
		if got.State.Status != workflow.Failed || len(last) != 1 || !strings.Contains(last[0].Err.Message, "within 10s") {
			t.Fatalf("%+v: %s", last, outline(got))
		}
	}
}
