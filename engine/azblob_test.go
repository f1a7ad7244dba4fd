package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/settings"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// These are tests of the engine on the vault of this module, as docs/embedding.md tells authors of engines to
// write them.

// onEmulator calls play in virtual time, with a vault on the emulator.
func onEmulator(t *testing.T, play func(t *testing.T, s *stage, server *emulator.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, server := newStage(t), emulator.New(emulator.Options{})
		s.stored = nil // an update may take effect without an answer
		s.open = func() storage.Vault { return s.vault(server) }
		play(t, s, server)
	})
}

// vault opens a vault on the emulator.
func (s *stage) vault(server *emulator.Server, opts ...azblob.Options) *azblob.Vault {
	s.t.Helper()
	opts = append([]azblob.Options{settings.Over(server.Transport())}, opts...)
	vault, err := azblob.NewFromConnectionString(s.t.Context(), "test", server.ConnectionString(), s.reg, merge.Fields(opts...))
	must(s.t, err)
	return vault
}

// inOrder returns a plan whose three actions run in order.
func inOrder() *workflow.Plan {
	return plan(block("b", sequence("s", do(job{Name: "0"}), do(job{Name: "1"}), do(job{Name: "2"}))))
}

// report runs all plans, for an hour at most. It returns what the engine reported.
func (s *stage) report(ctx context.Context, vault storage.Vault) error {
	s.t.Helper()
	var mu sync.Mutex
	var errs []error
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	e := s.engine(vault, engine.Options{Observer: engine.Observer{
		Left:    func(_ context.Context, e engine.LeftEvent) { note(e.Err) },
		Problem: func(_ context.Context, e engine.ProblemEvent) { note(e.Err) },
	}})
	ctx, cancel := context.WithCancel(ctx) // the vault would retry until a deadline
	defer cancel()
	defer time.AfterFunc(time.Hour, cancel).Stop()
	err := e.Run(ctx)
	return errors.Join(append(errs, err)...)
}

// wantDone checks that a plan is Completed with all its sub-objects, that its actions ran in order, each once
// except for those that a death cut off, and that nothing is left over.
func (s *stage) wantDone(server *emulator.Server, plan *workflow.Plan, deaths int) {
	s.t.Helper()
	for o := range workflow.Walk(s.read(plan.ID)) {
		if status := o.Header().State.Status; status != workflow.Completed {
			s.t.Errorf("%s %s is %s", o.Kind(), *o.Header().ID, status)
		}
	}
	if ran := s.names(); !slices.Equal(slices.Compact(slices.Clone(ran)), []string{"0", "1", "2"}) || len(ran) > 3+deaths {
		s.t.Errorf("ran %q, want each in order and %d again at most", ran, deaths)
	}
	time.Sleep(15 * time.Minute) // Recovery leaves alone what is younger
	vault := s.vault(server)
	must(s.t, vault.Recovery(s.t.Context()))
	report, err := vault.Admin().Check(s.t.Context(), azblob.CheckOptions{})
	if err != nil || len(report.Problems) > 0 {
		s.t.Errorf("check: %v, %v", report.Problems, err)
	}
}

// TestEngineRidesOutFaults runs a plan while answers are lost, and while the service is busy for a minute.
func TestEngineRidesOutFaults(t *testing.T) {
	for _, fault := range []*emulator.Rule{
		emulator.On(emulator.PutBlob).Every(2).Do(emulator.LostAnswer()),
		emulator.On(emulator.PutBlob).Path("actions/*/*").Range(2, 5).Do(emulator.Answer(503, "ServerBusy").RetryAfter(15 * time.Second)),
		emulator.On().Chance(0.3, 1).Do(emulator.Reset()),
	} {
		t.Run(fault.String(), func(t *testing.T) {
			onEmulator(t, func(t *testing.T, s *stage, server *emulator.Server) {
				p := s.create(inOrder())
				server.Inject(fault)
				if err := s.report(t.Context(), s.process()); err != nil || fault.Fired() == 0 {
					t.Errorf("%v after %d faults", err, fault.Fired())
				}
				server.ClearFaults()
				s.wantDone(server, p, 0)
			})
		})
	}
}

// TestEngineWithoutService checks that an engine that can't reach the service at all says so.
func TestEngineWithoutService(t *testing.T) {
	onEmulator(t, func(t *testing.T, s *stage, server *emulator.Server) {
		server.Inject(emulator.On().Do(emulator.Reset()))
		fails(t, s.report(t.Context(), s.process()), storage.ErrUnavailable, "the engine reported")
	})
}

// TestEngineDiesAtEachRequest lets an engine die at its first request, at its second and so on, before and
// after that took effect. The next engine must bring the plan to its end.
func TestEngineDiesAtEachRequest(t *testing.T) {
	for _, crash := range []emulator.Effect{emulator.Crash(), emulator.Crash().Applied()} {
		for n, more := 1, true; more; n += efforttest.Pick(23, 3, 1) {
			onEmulator(t, func(t *testing.T, s *stage, server *emulator.Server) {
				p := s.create(inOrder())
				dying := server.Transport()
				dying.Inject(emulator.On().Nth(n).Do(crash))
				ctx, end := context.WithTimeout(t.Context(), 10*time.Second) // a process that has died asks for nothing any more
				defer end()
				s.open = func() storage.Vault {
					return s.vault(server, azblob.Options{ClientOptions: policy.ClientOptions{Transport: dying}, Backoff: azblob.Backoff{MaxElapsed: time.Second}})
				}
				err := s.report(ctx, s.process())
				if more = dying.Crashed(); !more && err != nil {
					t.Error(err)
				}
				s.open = func() storage.Vault { return s.vault(server) }
				if err := s.report(t.Context(), s.process()); err != nil {
					t.Errorf("%v at request %d: %v", crash, n, err)
				}
				s.wantDone(server, p, 1)
				if !more && n < 15 {
					t.Errorf("the engine makes only %d requests", n)
				}
			})
		}
	}
}

// TestEngineGoesOnBesideADamagedPlan starts an engine where a sub-object of a plan was lost. It reports the
// plan and runs the others.
func TestEngineGoesOnBesideADamagedPlan(t *testing.T) {
	onEmulator(t, func(t *testing.T, s *stage, server *emulator.Server) {
		damaged, p := s.create(inOrder()), s.create(inOrder())
		damaged.State.Status = workflow.Running
		must(t, s.open().UpdatePlan(t.Context(), damaged))
		for c := range server.Containers() {
			server.Remove(c, fmt.Sprintf("actions/%s/%s.json", damaged.ID, damaged.Blocks[0].Sequences[0].Actions[1].ID))
		}
		if err := s.report(t.Context(), s.process()); !errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the engine reported %v, want ErrCorrupt and nothing else", err)
		}
		s.wantNames("0", "1", "2")
		if got := s.read(p.ID); got.State.Status != workflow.Completed {
			t.Errorf("%s", outline(got))
		}
	})
}

// TestPlansOfAnotherProgram: an engine runs its plan, and neither runs nor reports those that another program wrote.
func TestPlansOfAnotherProgram(t *testing.T) {
	onEmulator(t, func(t *testing.T, s *stage, server *emulator.Server) {
		server.PutContainer(vaulttest.ContainerOf(vaulttest.DaysAgo(0)), nil)
		others := vaulttest.PutForeign(server, vaulttest.DaysAgo(0), 0)
		vault, plan := s.vault(server), inOrder()
		must(t, vault.Create(t.Context(), plan))
		must(t, s.report(t.Context(), vault))
		if got := s.read(plan.ID).State.Status; got != workflow.Completed || len(others.Changed()) > 0 {
			t.Errorf("the plan is %s, and %v changed", got, others.Changed())
		}
	})
}
