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

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// These are tests of the engine on the vault of this module, as docs/embedding.md tells authors of engines to
// write them.

// diary notes which actions ran, in order.
type diary struct {
	mu  sync.Mutex
	ran []uuid.UUID
}

func (d *diary) run(_ context.Context, call engine.Call, _ string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ran = append(d.ran, call.Action)
	return "done", nil
}

// onEmulator opens a vault, with the diary's plugin.
func (d *diary) onEmulator(t *testing.T, server *emulator.Server, opts ...azblob.Option) (*azblob.Vault, *registry.Register) {
	t.Helper()
	reg := registry.Must(engine.Func("note", d.run))
	opts = append([]azblob.Option{azblob.WithTransport(server.Transport())}, opts...)
	vault, err := azblob.NewFromConnectionString(t.Context(), "test", server.ConnectionString(), reg, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return vault, reg
}

// create stores a plan whose three actions run in order.
func (d *diary) create(t *testing.T, server *emulator.Server) *workflow.Plan {
	t.Helper()
	vault, _ := d.onEmulator(t, server)
	var actions []*workflow.Action
	for i := range 3 {
		actions = append(actions, &workflow.Action{Name: fmt.Sprint(i), Plugin: "note"})
	}
	p := plan(block("b", sequence("s", actions...)))
	if err := vault.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// start runs all plans, for an hour at most. It returns what the engine reported.
func (d *diary) start(t *testing.T, vault storage.Vault, reg *registry.Register) error {
	t.Helper()
	return d.work(t.Context(), t, vault, reg, nil)
}

func (d *diary) work(ctx context.Context, t *testing.T, vault storage.Vault, reg *registry.Register, member *fleet.Options) error {
	t.Helper()
	var mu sync.Mutex
	var errs []error
	note := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	e, err := engine.New(vault, reg, engine.Options{UntilIdle: true, Fleet: member, Observer: engine.Observer{
		Left:    func(_ context.Context, _ uuid.UUID, err error) { note(err) },
		Problem: func(_ context.Context, err error) { note(err) },
	}})
	if err != nil {
		t.Error(err)
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer time.AfterFunc(time.Hour, cancel).Stop()
	err = e.Run(ctx)
	return errors.Join(append(errs, err)...)
}

// wantDone checks that a plan is Completed with all its sub-objects, that its actions ran in order, each once
// except for those that a death cut off, and that nothing is left over.
func (d *diary) wantDone(t *testing.T, server *emulator.Server, plan *workflow.Plan, deaths int) {
	t.Helper()
	vault, _ := d.onEmulator(t, server)
	stored, err := vault.Read(t.Context(), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	var want []uuid.UUID
	for o := range workflow.Walk(stored) {
		if s := o.Header().State.Status; s != workflow.Completed {
			t.Errorf("%s %s is %s", o.Kind(), *o.Header().ID, s)
		}
		if o.Kind() == workflow.KindAction {
			want = append(want, *o.Header().ID)
		}
	}
	if got := slices.Compact(slices.Clone(d.ran)); !slices.Equal(got, want) || len(d.ran) > len(want)+deaths {
		t.Errorf("ran %q, want %q and %d again at most", d.ran, want, deaths)
	}
	time.Sleep(15 * time.Minute) // Recovery leaves alone what is younger
	if err := vault.Recovery(t.Context()); err != nil {
		t.Error(err)
	}
	report, err := vault.Check(t.Context(), azblob.CheckOptions{})
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("check: %v, %v", report.Problems, err)
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
			synctest.Test(t, func(t *testing.T) {
				d, server := &diary{}, emulator.New()
				p := d.create(t, server)
				server.Inject(fault)
				vault, reg := d.onEmulator(t, server)
				if err := d.start(t, vault, reg); err != nil || fault.Fired() == 0 {
					t.Errorf("%v after %d faults", err, fault.Fired())
				}
				server.ClearFaults()
				d.wantDone(t, server, p, 0)
			})
		})
	}
}

// TestEngineWithoutService checks that an engine that can't reach the service at all says so.
func TestEngineWithoutService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, server := &diary{}, emulator.New()
		vault, reg := d.onEmulator(t, server)
		server.Inject(emulator.On().Do(emulator.Reset()))
		if err := d.start(t, vault, reg); !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("the engine reported %v", err)
		}
	})
}

// TestEngineDiesAtEachRequest lets an engine die at its first request, at its second and so on, before and
// after that took effect. The next engine must bring the plan to its end.
func TestEngineDiesAtEachRequest(t *testing.T) {
	var all int
	synctest.Test(t, func(t *testing.T) { all = engineDies(t, 1<<30, emulator.Crash()) })
	if all < 15 {
		t.Errorf("the engine makes only %d requests", all)
	}
	for _, crash := range []emulator.Effect{emulator.Crash(), emulator.Crash().Applied()} {
		for n := 1; n <= all; n += efforttest.Pick(23, 3, 1) {
			t.Run(fmt.Sprint(crash, " ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { engineDies(t, n, crash) })
			})
		}
	}
}

// engineDies lets an engine die at its nth request, and returns how many it made.
func engineDies(t *testing.T, n int, crash emulator.Effect) (requests int) {
	d, server := &diary{}, emulator.New()
	p := d.create(t, server)
	dying := server.Transport()
	death := emulator.On().Nth(n).Do(crash)
	dying.Inject(death)
	vault, reg := d.onEmulator(t, server, azblob.WithTransport(dying), azblob.WithRetry(azblob.Retry{MaxElapsed: time.Second}))
	ctx, end := context.WithTimeout(t.Context(), 10*time.Second) // a process that has died asks for nothing any more
	defer end()
	if err := d.work(ctx, t, vault, reg, nil); err != nil && death.Fired() == 0 {
		t.Error(err)
	}
	requests = death.Seen()
	next, reg := d.onEmulator(t, server)
	if err := d.start(t, next, reg); err != nil {
		t.Error(err)
	}
	d.wantDone(t, server, p, 1)
	return requests
}

// TestMemberDiesAtEachRequest lets a member of a fleet die at its first request, at its second and so on,
// before and after that took effect. Another one brings the plan to its end within two minutes.
func TestMemberDiesAtEachRequest(t *testing.T) {
	var all int
	synctest.Test(t, func(t *testing.T) { all = memberDies(t, 1<<30, emulator.Crash()) })
	if all < 20 {
		t.Errorf("the member makes only %d requests", all)
	}
	for _, crash := range []emulator.Effect{emulator.Crash(), emulator.Crash().Applied()} {
		for n := 1; n <= all; n += efforttest.Pick(19, 4, 1) {
			t.Run(fmt.Sprint(crash, " ", n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { memberDies(t, n, crash) })
			})
		}
	}
}

// memberDies lets a member die at its nth request, and returns how many it made.
func memberDies(t *testing.T, n int, crash emulator.Effect) (requests int) {
	d, server := &diary{}, emulator.New()
	p := d.create(t, server)
	dying := server.Transport()
	death := emulator.On().Nth(n).Do(crash)
	dying.Inject(death)
	ctx, end := context.WithCancel(t.Context())
	began := time.Now()
	var first sync.WaitGroup
	vault, reg := d.onEmulator(t, server, azblob.WithTransport(dying), azblob.WithRetry(azblob.Retry{MaxElapsed: time.Second}))
	first.Go(func() { _ = d.work(ctx, t, vault, reg, &fleet.Options{Name: "dying"}) })
	time.Sleep(time.Second)
	other, reg2 := d.onEmulator(t, server)
	if err := d.work(t.Context(), t, other, reg2, &fleet.Options{Name: "other"}); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 2*time.Minute {
		t.Errorf("the plan ended after %v", took)
	}
	end()
	first.Wait()
	requests = death.Seen()
	d.wantDone(t, server, p, 1)
	return requests
}

// TestEngineGoesOnBesideADamagedPlan starts an engine where a sub-object of a plan was lost. It reports the
// plan and runs the others.
func TestEngineGoesOnBesideADamagedPlan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, server := &diary{}, emulator.New()
		damaged, p := d.create(t, server), d.create(t, server)
		vault, reg := d.onEmulator(t, server)
		damaged.State.Status = workflow.Running
		if err := vault.UpdatePlan(t.Context(), damaged); err != nil {
			t.Fatal(err)
		}
		for c := range server.Containers() {
			server.Remove(c, fmt.Sprintf("actions/%s/%s.json", damaged.ID, damaged.Blocks[0].Sequences[0].Actions[1].ID))
		}
		if err := d.start(t, vault, reg); !errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the engine reported %v, want ErrCorrupt and nothing else", err)
		}
		if got, err := vault.Read(t.Context(), p.ID); err != nil || got.State.Status != workflow.Completed || len(d.ran) != 3 {
			t.Errorf("%v, ran %v", err, d.ran)
		}
	})
}

// TestOneEngineBeginsAPlan lets several engines that read a plan as NotStarted move it to Running at once.
func TestOneEngineBeginsAPlan(t *testing.T) {
	d, server := &diary{}, emulator.New()
	p := d.create(t, server)
	vault, _ := d.onEmulator(t, server)
	errs := make([]error, 8)
	read := make([]*workflow.Plan, len(errs))
	for i := range read {
		var err error
		if read[i], err = vault.Read(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		read[i].State.Status = workflow.Running
	}
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() { errs[i] = vault.UpdatePlan(t.Context(), read[i]) })
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
