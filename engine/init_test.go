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
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// TestInit runs engines whose plugins have an Init, and looks what Run returns, how long it took, and what became of a plan.
func TestInit(t *testing.T) {
	never := make(chan struct{})
	for name, test := range map[string]struct {
		init  func(ctx context.Context) error
		want  string // what Run returns of each plugin, or of 16 at least if they hang: others never begin
		takes time.Duration
		ends  time.Duration // when the context of Run ends; 0 means never
	}{
		"succeeds":     {func(context.Context) error { return nil }, "<nil>", 0, 0},
		"takes long":   {func(context.Context) error { time.Sleep(4 * time.Minute); return nil }, "<nil>", 8 * time.Minute, 0}, // 20 plugins, 16 at a time
		"fails":        {func(context.Context) error { return errors.New("no login") }, "no login", 0, 0},
		"panics":       {func(context.Context) error { panic("boom") }, "panic: boom", 0, 0},
		"exits":        {func(context.Context) error { runtime.Goexit(); return nil }, "panic: runtime.Goexit", 0, 0},
		"is late":      {func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }, "timed out after 10m0s", 10 * time.Minute, 0},
		"hangs":        {func(context.Context) error { <-never; return nil }, "it did not return: timed out after 10m0s", 10*time.Minute + time.Second, 0},
		"is shut down": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, "<nil>", time.Minute, time.Minute},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			never = make(chan struct{})
			defer close(never)
			s.reg, s.stored = registry.New(), nil
			var ran time.Time
			for i := range 20 {
				task := engine.Task(fmt.Sprintf("p%02d", i), func(context.Context, engine.Call, string) (string, error) { ran = time.Now(); return "", nil })
				must(t, s.reg.Register(task.With(engine.TaskOptions[string]{Init: test.init})))
			}
			p := s.create(plan(block("b", sequence("s", &workflow.Action{Plugin: "p00"}))))
			ctx := t.Context()
			if test.ends > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.ends)
				defer cancel()
			}
			began := time.Now()
			err := s.engine(s.process(), engine.Options{Timeout: 10 * time.Minute}).Run(ctx)
			runs := test.want == "<nil>" && test.ends == 0
			lines, said := strings.Split(fmt.Sprint(err), "\n"), 0
			for i, line := range lines {
				why, named := strings.CutPrefix(line, fmt.Sprintf("init plugin \"p%02d\": ", i))
				if why == test.want {
					said++
				} else if err != nil && (!named || name != "hangs" || why != "timed out after 10m0s") { // it never began
					t.Errorf("%s: Run returned %v", name, err)
				}
			}
			if err != nil && len(lines) != 20 || said < 16 && fmt.Sprint(err) != test.want {
				t.Errorf("%s: Run returned %v", name, err)
			}
			if took := time.Since(began).Truncate(time.Second); !runs && took != test.takes || runs && ran.Sub(began).Truncate(time.Second) != test.takes {
				t.Errorf("%s: it took %v, and the action ran after %v, want %v", name, took, ran.Sub(began), test.takes)
			}
			if got := s.read(p.ID).State.Status; (got == workflow.Completed) != runs || got == workflow.Running {
				t.Errorf("%s: the plan is %v", name, got)
			}
		})
	}
}

// TestRunPlanInitWaits has a RunPlan that waits for the Init that another one has begun, and is shut down.
func TestRunPlanInitWaits(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		slow := engine.Task("slow", func(context.Context, engine.Call, string) (string, error) { return "", nil })
		s.reg = registry.Must(s, slow.With(engine.TaskOptions[string]{Init: func(context.Context) error { time.Sleep(time.Minute); return nil }}))
		e := s.engine(s.process(), engine.Options{})
		first, second := s.create(plan(block("b", sequence("s", second("a"))))), s.create(plan(block("b", sequence("s", second("b")))))
		ended := make(chan error)
		go func() {
			_, err := e.RunPlan(t.Context(), first.ID, engine.RunOptions{External: queue})
			ended <- err
		}()
		time.Sleep(time.Second)
		began := time.Now()
		ctx, shutdown := context.WithTimeout(t.Context(), 5*time.Second)
		defer shutdown()
		_, err := e.RunPlan(ctx, second.ID, engine.RunOptions{External: queue})
		if took := time.Since(began); !errors.Is(err, engine.ErrDraining) || took != 5*time.Second {
			t.Errorf("it returned %v after %v", err, took)
		}
		must(t, <-ended)
		s.wantNames("a")
	})
}
