package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// These are tests of an engine, as docs/embedding.md tells its authors to write them. The engine is that of
// the examples.

// threeActions is a plan whose actions must be done in order.
func threeActions() *workflow.Plan { return plantest.Sized(1, 1, 3) }

// diary notes which actions were done, by their IDs.
type diary []string

func (d *diary) act(_ context.Context, action *workflow.Action) (any, error) {
	*d = append(*d, action.ID.String())
	return nil, nil
}

// resume goes on with everything that is open, as an engine does at its start. What can't be mended or read
// does not keep it from the rest; an engine logs what resume returns.
func resume(ctx context.Context, vault storage.Vault, do act) error {
	var errs []error
	if err := vault.Recovery(ctx); err != nil {
		errs = append(errs, err)
	}
	open, err := vault.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}})
	if err != nil {
		return err
	}
	for found := range open {
		if found.Err != nil {
			errs = append(errs, found.Err)
			continue
		}
		plan, err := vault.Read(ctx, found.Result.ID)
		if err == nil {
			err = runPlan(ctx, vault, plan, do)
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// wantDone checks that a plan and all its sub-objects are Completed, and that its actions were done in order, each
// once or, where the engine died around it, twice.
func wantDone(t *testing.T, vault storage.Vault, plan *workflow.Plan, done diary, deaths int) {
	t.Helper()
	stored, err := vault.Read(t.Context(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	var want diary
	for o := range workflow.Walk(stored) {
		if s := o.Header().State.Status; s != workflow.Completed {
			t.Errorf("%s %s is %s", o.Kind(), *o.Header().ID, s)
		}
		if o.Kind() == workflow.KindAction {
			want = append(want, o.Header().ID.String())
		}
	}
	if got := slices.Compact(slices.Clone(done)); !slices.Equal(got, want) || len(done) > len(want)+deaths {
		t.Errorf("done was %q, want %q and %d again at most", done, want, deaths)
	}
}

// TestEngineInMemory is a unit test: a vault in memory, and another on its store for the engine that starts
// again.
func TestEngineInMemory(t *testing.T) {
	store := memvault.NewStore()
	plan := threeActions()
	if err := store.Open(plantest.Register()).Create(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	var done diary
	restarted := store.Open(plantest.Register())
	if err := resume(t.Context(), restarted, done.act); err != nil {
		t.Fatal(err)
	}
	wantDone(t, restarted, plan, done, 0)
}

// TestEngineRidesOutFaults runs a plan while answers are lost, and while the service is busy for a minute.
func TestEngineRidesOutFaults(t *testing.T) {
	for _, fault := range []*emulator.Rule{
		emulator.On(emulator.PutBlob).Every(2).Do(emulator.LostAnswer()),
		emulator.On(emulator.PutBlob).Path("actions/*/*").Range(2, 5).Do(emulator.Answer(503, "ServerBusy").RetryAfter(15 * time.Second)),
		emulator.On().Chance(0.3, 1).Do(emulator.Reset()),
	} {
		t.Run(fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := emulator.New()
				vault := onEmulator(t, server)
				plan := threeActions()
				if err := vault.Create(t.Context(), plan); err != nil {
					t.Fatal(err)
				}
				server.Inject(fault)
				var done diary
				if err := runPlan(t.Context(), vault, plan, done.act); err != nil {
					t.Fatal(err)
				}
				if fault.Fired() == 0 {
					t.Error("the fault did not befall anything")
				}
				wantDone(t, vault, plan, done, 0)
			})
		})
	}
}

// TestEngineDiesAtEachRequest lets an engine die at its first request, at its second and so on, before and
// after that took effect. The next engine must bring the plan to its end.
func TestEngineDiesAtEachRequest(t *testing.T) {
	const never = 1 << 30
	var all int
	synctest.Test(t, func(t *testing.T) { all = engineDies(t, never, emulator.Crash()) })
	if all < 15 {
		t.Errorf("the engine makes %d requests only", all)
	}
	for _, crash := range []emulator.Effect{emulator.Crash(), emulator.Crash().Applied()} {
		for n := 1; n <= all; n++ {
			t.Run(fmt.Sprint(crash, " ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { engineDies(t, n, crash) })
			})
		}
	}
}

// engineDies lets an engine die at its nth request, and returns how many it made.
func engineDies(t *testing.T, n int, crash emulator.Effect) (requests int) {
	server := emulator.New()
	plan := threeActions()
	if err := onEmulator(t, server).Create(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	dying := server.Transport()
	death := emulator.On().Nth(n).Do(crash)
	dying.Inject(death)
	var done diary
	// Each call of the dead engine ends soon, in virtual time.
	err := resume(t.Context(), onEmulator(t, server, azblob.WithTransport(dying), azblob.WithRetry(azblob.Retry{MaxElapsed: time.Second})), done.act)
	if died := death.Fired() > 0; died != (err != nil) {
		t.Errorf("died: %t, and said %v", died, err)
	}

	next := onEmulator(t, server)
	if err := resume(t.Context(), next, done.act); err != nil {
		t.Fatal(err)
	}
	wantDone(t, next, plan, done, 1)
	time.Sleep(pastGrace)
	if err := next.Recovery(t.Context()); err != nil {
		t.Error(err)
	}
	report, err := next.Check(t.Context(), azblob.CheckOptions{})
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("check: %v, %v", report.Problems, err)
	}
	return death.Seen()
}

// TestTakeover lets one engine take a plan over from another that is still alive: it stores the plan and what
// it runs again as they are, with the versions that it has read. From then on the other one's updates of
// these are conflicts.
func TestTakeover(t *testing.T) {
	server := emulator.New()
	vault := onEmulator(t, server)
	plan := threeActions()
	if err := vault.Create(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	var done diary
	err := runPlan(t.Context(), vault, plan, func(ctx context.Context, action *workflow.Action) (any, error) {
		taken, err := vault.Read(ctx, plan.ID)
		if err != nil {
			return nil, err
		}
		for o := range workflow.Walk(taken) {
			if err := storage.Update(ctx, vault, o); err != nil {
				return nil, err
			}
		}
		return done.act(ctx, action)
	})
	if !errors.Is(err, storage.ErrConflict) || len(done) != 1 {
		t.Errorf("the other one did %d actions, and said %v", len(done), err)
	}
	for o := range workflow.Walk(plan) {
		if err := storage.Update(t.Context(), vault, o); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("the other one's update of %s: %v", o.Kind(), err)
		}
	}
	if err := resume(t.Context(), vault, done.act); err != nil {
		t.Fatal(err)
	}
	wantDone(t, vault, plan, done, 1)
}

// TestEngineGoesOnBesideADamagedPlan starts an engine where a sub-object of a plan was lost. It is told, and runs
// the other plans.
func TestEngineGoesOnBesideADamagedPlan(t *testing.T) {
	server := emulator.New()
	vault := onEmulator(t, server)
	damaged, plan := threeActions(), threeActions()
	for _, p := range []*workflow.Plan{damaged, plan} {
		if err := vault.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	damaged.State.Status = workflow.Running
	if err := vault.UpdatePlan(t.Context(), damaged); err != nil {
		t.Fatal(err)
	}
	for c := range server.Containers() {
		server.Remove(c, fmt.Sprintf("actions/%s/%s.json", damaged.ID, damaged.Blocks[0].Sequences[0].Actions[1].ID))
	}
	var done diary
	err := resume(t.Context(), vault, done.act)
	if !errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrNotFound) {
		t.Errorf("the engine was told %v, want ErrCorrupt and nothing else", err)
	}
	wantDone(t, vault, plan, done, 0)
}

// TestOneEngineBeginsAPlan lets several engines that read a plan as NotStarted move it to Running at once.
func TestOneEngineBeginsAPlan(t *testing.T) {
	server := emulator.New()
	vault := onEmulator(t, server)
	plan := threeActions()
	if err := vault.Create(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 8)
	read := make([]*workflow.Plan, len(errs))
	for i := range read {
		var err error
		if read[i], err = vault.Read(t.Context(), plan.ID); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = begin(t.Context(), vault, read[i]) })
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, storage.ErrConflict) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d engines began the plan: %v", won, errs)
	}
}
