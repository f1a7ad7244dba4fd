package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// told is the hook of the tests: what it was told of, and what it does.
type told struct {
	t     *testing.T
	s     *stage
	heard []string
	plan  *workflow.Plan
	does  func(ctx context.Context, n int) error
}

func (h *told) ended(ctx context.Context, p *workflow.Plan) error {
	h.s.mu.Lock()
	h.heard = append(h.heard, fmt.Sprint(p.State.Status, " ", p.Reason))
	n := len(h.heard)
	h.plan = p
	h.s.mu.Unlock()
	if got := h.s.read(p.ID); got.State.Status != workflow.Running || got.Ending.Reason != p.Reason {
		h.t.Errorf("the hook is called, and the plan is stored as %s", outline(got))
	}
	if h.does == nil {
		return nil
	}
	return h.does(ctx, n)
}

// TestEnded: the hook gets the plan as it is stored later, once, before it is final.
func TestEnded(t *testing.T) {
	for want, p := range map[string]*workflow.Plan{
		"Completed NoFailure":   plan(block("b", sequence("s", second("a")))),
		"Failed BlockFailed":    plan(block("b", sequence("s", bad("a")))),
		"Stopped StopRequested": plan(block("b", sequence("s", do(job{Name: "a", For: 20 * time.Second}), second("b")))),
	} {
		onStages(t, []*fleet.Options{nil, {}}, func(t *testing.T, s *stage, members *fleet.Options) {
			p := workflow.Copy(p)
			h := &told{t: t, s: s}
			e := s.engine(s.process(), engine.Options{Ended: h.ended, Fleet: members})
			handle := submit(t, e, p)
			if strings.HasPrefix(want, "Stopped") {
				time.AfterFunc(10*time.Second, func() { must(t, e.Stop(t.Context(), handle.ID(), asked)) })
			}
			must(t, e.Run(t.Context()))
			got, err := handle.Wait(t.Context())
			must(t, err)
			h.plan.State.ETag = got.State.ETag
			if fmt.Sprint(h.heard) != "["+want+"]" || text(t, h.plan) != text(t, got) || text(t, got) != text(t, s.read(p.ID)) {
				t.Errorf("told %v of\n%s\nwant %s\n%s", h.heard, text(t, h.plan), want, text(t, got))
			}
		})
	}
}

// TestEndedAgain: the engine dies in the hook or after it, and somebody asks for a stop. The next one, of a fleet or alone,
// tells the same outcome again. One without the hook ends the plan.
func TestEndedAgain(t *testing.T) {
	for _, members := range []*fleet.Options{nil, {}} {
		for _, after := range []bool{false, true} {
			onStages(t, []bool{false, true}, func(t *testing.T, s *stage, hookless bool) {
				s.stored = nil
				v := s.process()
				if after {
					v = s.diesAt(func(o workflow.Object) bool {
						p, ok := o.(*workflow.Plan)
						return ok && p.State.Status.Final()
					})
				}
				h := &told{t: t, s: s}
				h.does = func(context.Context, int) error {
					if !after {
						v.Kill()
					}
					return nil
				}
				p := s.create(long("a"))
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				_ = s.engine(v, engine.Options{Ended: h.ended, Fleet: members, Observer: engine.Observer{Problem: func(context.Context, engine.ProblemEvent) {}}}).Run(ctx)
				var next *engine.Engine
				h.does = func(context.Context, int) error {
					fails(t, next.Stop(t.Context(), p.ID, asked), fleet.ErrNotRunning, "a stop of what is ending")
					return nil
				}
				if members != nil {
					must(t, fleet.Stop(t.Context(), s.open(), p.ID, asked))
				}
				fixed := s.read(p.ID).Ending.At
				o := engine.Options{Ended: h.ended, Fleet: members}
				if hookless {
					o.Ended = nil
				}
				next = s.engine(s.process(), o)
				must(t, next.Run(t.Context()))
				got, n := s.read(p.ID), 2
				if hookless {
					n = 1
				}
				if got.State.Status != workflow.Completed || got.State.End != fixed || fixed.IsZero() || fmt.Sprint(h.heard) != "["+strings.Repeat("Completed NoFailure ", n)[:20*n-1]+"]" {
					t.Errorf("fleet %v, after %v: told %v, then %s", members != nil, after, h.heard, outline(got))
				}
			})
		}
	}
}

// TestEndedFails: a hook that panics, ends its goroutine, fails or hangs is called again, without a place meanwhile. One that
// fails for ever is given up an hour after the outcome, also by another engine.
func TestEndedFails(t *testing.T) {
	for name, fails := range map[string]func(ctx context.Context) error{
		"fails":  func(context.Context) error { return errors.New("no\nanswer") },
		"panics": func(context.Context) error { panic("oh") },
		"exits":  func(context.Context) error { runtime.Goexit(); return nil },
		"hangs":  func(context.Context) error { time.Sleep(10 * time.Minute); return errors.New("late") },
		"nil":    func(context.Context) error { return (*plugins.Panic)(nil) },
		"waits":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		onStage(t, func(t *testing.T, s *stage) {
			h := &told{t: t, s: s}
			h.does = func(ctx context.Context, n int) error {
				if n < 4 {
					return fails(ctx)
				}
				return nil
			}
			p := s.create(long("a"))
			other := s.create(long("b"))
			must(t, s.engine(s.process(), engine.Options{Ended: func(ctx context.Context, of *workflow.Plan) error {
				if of.ID == other.ID {
					return nil
				}
				return h.ended(ctx, of)
			}, Plans: 1}).Run(t.Context()))
			if got := s.read(p.ID); len(h.heard) != 4 || got.State.Status != workflow.Completed || got.Ending.Trouble != "" {
				t.Errorf("%s: told %d times, then %q %s", name, len(h.heard), got.Ending.Trouble, outline(got))
			}
			time.Sleep(time.Hour) // what hangs
		})
	}
	onStage(t, func(t *testing.T, s *stage) {
		var problems []error
		h := &told{t: t, s: s, does: func(context.Context, int) error { return &plugins.Error{Message: "nobody\nlistens"} }}
		o := engine.Options{Plans: 1, RetryDelay: 10_000 * time.Hour, Ended: func(ctx context.Context, p *workflow.Plan) error {
			if p.Name == "other" {
				return nil
			}
			return h.ended(ctx, p)
		}, Observer: engine.Observer{Problem: func(_ context.Context, e engine.ProblemEvent) { problems = append(problems, e.Err) }}}
		p := s.create(long("a"))
		first := s.process()
		time.AfterFunc(40*time.Minute, first.Kill)
		ctx, cancel := context.WithTimeout(t.Context(), 41*time.Minute)
		defer cancel()
		time.AfterFunc(10*time.Minute, func() {
			other := long("c")
			other.Name = "other"
			s.create(other)
			time.Sleep(time.Minute)
			if got := s.read(other.ID); got.State.Status != workflow.Completed {
				t.Errorf("a plan beside the hook is %s", outline(got))
			}
		})
		_ = s.engine(first, o).Run(ctx)
		problems = nil
		must(t, s.engine(s.process(), o).Run(t.Context()))
		got := s.read(p.ID)
		if took := time.Since(got.State.End); took < time.Hour || took > time.Hour+2*time.Minute {
			t.Errorf("the hook was given up after %v", took)
		}
		if got.State.Status != workflow.Completed || !strings.Contains(got.Ending.Trouble, "nobody listens") || len(problems) != 1 || len(h.heard) < 50 {
			t.Errorf("%d times; %q; %v", len(h.heard), got.Ending.Trouble, problems)
		}
	})
}

// TestEndedAtShutdown: a hook that does not return does not hold a shutdown, and the next start calls it again.
func TestEndedAtShutdown(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		h := &told{t: t, s: s, does: func(_ context.Context, n int) error {
			if n == 1 {
				time.Sleep(time.Hour)
			}
			return nil
		}}
		p := s.create(long("a"))
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		began := time.Now()
		must(t, s.engine(s.process(), engine.Options{Ended: h.ended}).Run(ctx))
		if took := time.Since(began); took > 15*time.Second+22*time.Second || !errors.Is(s.left[p.ID], engine.ErrDraining) {
			t.Errorf("Run took %v, and left the plan: %v", took, s.left[p.ID])
		}
		must(t, s.engine(s.process(), engine.Options{Ended: h.ended}).Run(t.Context()))
		if got := s.read(p.ID); len(h.heard) != 2 || got.State.Status != workflow.Completed {
			t.Errorf("told %v, then %s", h.heard, outline(got))
		}
		time.Sleep(time.Hour)
	})
}
