package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// pastGrace is long enough for Recovery to act on remains from before it.
const pastGrace = 15 * time.Minute

// shape makes a plan of one form.
type shape func() *workflow.Plan

// shapes are the plans on which crashes and faults are tried.
var shapes = map[string]shape{
	"empty":    func() *workflow.Plan { return &workflow.Plan{Name: "empty"} },
	"small":    plantest.Small,
	"kinds":    eachKind,
	"checks":   checksOnly,
	"deferred": deferredOnly,
	"blocks":   func() *workflow.Plan { return plantest.Sized(2, 2, 1) },
}

// twoBatches is a plan whose sub-objects are deleted in two batches.
func twoBatches() *workflow.Plan { return plantest.Sized(1, 1, 258) }

func work(name string) []*workflow.Action {
	return []*workflow.Action{{Name: name, Plugin: plantest.PluginName}}
}

// eachKind is the smallest plan that has an object of each kind.
func eachKind() *workflow.Plan {
	plan := plantest.Small()
	plan.PreChecks = &workflow.Checks{Actions: work("check")}
	plan.Blocks[0].PostChecks = &workflow.Checks{}
	plan.DeferredActions = deferredOnly().DeferredActions
	return plan
}

func checksOnly() *workflow.Plan {
	plan := &workflow.Plan{Name: "checks"}
	for _, c := range workflow.ChecksOf(plan) {
		*c = &workflow.Checks{Actions: work("check")}
	}
	return plan
}

func deferredOnly() *workflow.Plan {
	batch := &workflow.DeferBatch{Name: "batch", Actions: work("deferred")}
	return &workflow.Plan{Name: "deferred", DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch}}}
}

// world is a service and a way to open vaults on it.
type world struct {
	server *emulator.Server
	open   func(t *testing.T, server *emulator.Server, opts ...azblob.Option) *azblob.Vault
	skew   *atomic.Int64 // nanoseconds by which the service's clock is ahead; nil for a clock that a test doesn't change
	// pairs says that the call sends two requests at once, of which one may decide while the process dies at the other.
	pairs bool
}

// worldOf returns a world whose vaults are opened with onEmulator.
func worldOf(server *emulator.Server) world { return world{server: server, open: onEmulator} }

// plainWorld returns a new service that answers as real accounts do.
func plainWorld() world {
	return worldOf(emulator.New(emulator.WithoutLog(), emulator.WithRealAnswers(1)))
}

// unversionedWorld is plainWorld with vaults that accept updates without a version.
func unversionedWorld() world {
	w := plainWorld()
	w.open = func(t *testing.T, server *emulator.Server, opts ...azblob.Option) *azblob.Vault {
		return onEmulator(t, server, append(opts, azblob.WithUnversionedUpdates())...)
	}
	return w
}

// vault opens a vault. Each process has its own.
func (w world) vault(t *testing.T, opts ...azblob.Option) *azblob.Vault {
	t.Helper()
	return w.open(t, w.server, opts...)
}

// clone returns the world with a copy of the store.
func (w world) clone() world {
	w.server = w.server.Clone()
	return w
}

// mayDie makes a call on a vault whose process dies at the request that the rule matches, before the request
// takes effect. It sends one request at a time, so that the remains are always the same.
func (w world) mayDie(t *testing.T, at *emulator.Rule, do func(v *azblob.Vault), opts ...azblob.Option) (died bool) {
	t.Helper()
	transport := w.server.Transport()
	transport.Inject(at.Do(emulator.Crash()))
	opts = append(opts, azblob.WithTransport(transport), azblob.WithConcurrency(1), azblob.WithRetry(azblob.Retry{MaxElapsed: time.Second}))
	do(w.vault(t, opts...))
	return transport.Crashed()
}

// dies is [world.mayDie] for a process that must die.
func (w world) dies(t *testing.T, at *emulator.Rule, do func(v *azblob.Vault), opts ...azblob.Option) {
	t.Helper()
	if !w.mayDie(t, at, do, opts...) {
		t.Fatalf("the process did not die: %v", at)
	}
}

// dies is [world.dies] for a process that uses onEmulator.
func dies(t *testing.T, server *emulator.Server, at *emulator.Rule, do func(v *azblob.Vault), opts ...azblob.Option) {
	t.Helper()
	worldOf(server).dies(t, at, do, opts...)
}

// nthRequest is the request of a call before which something else happens.
type nthRequest struct{ n, sent int }

// vault opens a vault that sends one request at a time, and calls do before the nth. The vault's goroutines call
// do, so it must not end the test.
func (r *nthRequest) vault(t *testing.T, server *emulator.Server, do func()) *azblob.Vault {
	t.Helper()
	transport := server.Transport()
	transport.SetGate(gate(func() {
		if r.sent++; r.sent == r.n {
			do()
		}
	}))
	return onEmulator(t, server, azblob.WithTransport(transport), azblob.WithConcurrency(1))
}

// came reports whether there was an nth request.
func (r *nthRequest) came() bool { return r.sent >= r.n }

// beforeEach runs a test for each request of the call that it makes, and once more without anything before a
// request.
func beforeEach(t *testing.T, name string, test func(t *testing.T, server *emulator.Server, at *nthRequest)) {
	t.Helper()
	for n := 1; ; n++ {
		at := &nthRequest{n: n}
		inBubble(t, fmt.Sprintf("%s, at %d", name, n), func(t *testing.T, server *emulator.Server) { test(t, server, at) })
		if t.Failed() || !at.came() {
			return
		}
	}
}

// scenario is a store in some state and one call on it. Tests make the call fail in every way.
type scenario struct {
	name string
	// prepare brings a store into its state, using healthy vaults. It returns a function that makes the call
	// anew for each run on a clone of the store, or nil if a plan of this shape has no such call.
	prepare func(t *testing.T, w world, shape shape) func() *call
}

// call is a call of a vault, and its possible outcomes.
type call struct {
	do   func(ctx context.Context, t *testing.T, v *azblob.Vault) error
	plan *workflow.Plan // has the ID of the plan it is about, when it returns
	// before and after are the plans that readers find if the call had no effect, and if it had its effect.
	// Nil stands for no plan.
	before, after *workflow.Plan
	// pairs is that of the world in which the call dies.
	pairs bool
	// done is the error of the same call if the first one took effect. It is usually nil. blocked is the
	// error, if any, of the same call while remains of the first are in its way.
	done, blocked error
	// untouched, if not nil, is the content of the store before a call that must write nothing.
	untouched map[string]string
}

// The scenarios are all calls of a vault on stores in all states that matter to them.
var (
	creations = []scenario{{"Create", func(_ *testing.T, _ world, shape shape) func() *call {
		return func() *call {
			plan := shape()
			return &call{
				do:   func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.Create(ctx, plan) },
				plan: plan, after: plan, done: storage.ErrExists, blocked: storage.ErrConflict,
			}
		}
	}}}
	updates = []scenario{
		updateOf("UpdatePlan", (*azblob.Vault).UpdatePlan),
		updateOf("UpdateChecks", (*azblob.Vault).UpdateChecks),
		updateOf("UpdateBlock", (*azblob.Vault).UpdateBlock),
		updateOf("UpdateSequence", (*azblob.Vault).UpdateSequence),
		updateOf("UpdateAction", (*azblob.Vault).UpdateAction),
		updateOf("UpdateDeferredActions", (*azblob.Vault).UpdateDeferredActions),
		updateOf("UpdateDeferBatch", (*azblob.Vault).UpdateDeferBatch),
		starts("half deleted", deleteBroken(emulator.BatchDelete, ""), true, storage.ErrNotFound),
	}
	// unversioned are updates by vaults that are opened with unversionedWorld.
	unversioned = []scenario{
		starts("running", atWork, false, nil),
		starts("final", final, false, storage.ErrConflict),
		starts("half complete", completionBroken(emulator.PutBlob, "plans/*-object.json"), false, storage.ErrConflict),
		starts("half deleted", deleteBroken(emulator.BatchDelete, ""), false, storage.ErrNotFound),
	}
	completions = []scenario{{"completion", func(t *testing.T, w world, shape shape) func() *call {
		before, after := running(t, w.vault(t), shape())
		return func() *call {
			mine := *after // gets the versions that it writes
			return &call{
				do:   func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.UpdatePlan(ctx, &mine) },
				plan: before, before: before, after: after,
			}
		}
	}}}
	deletions = []scenario{
		deletion("not started", notStarted),
		deletion("running", atWork),
		deletion("final", final),
		deletion("half deleted", deleteBroken(emulator.BatchDelete, "")),
	}
	recoveries = []scenario{
		recovery("nothing, not started", notStarted),
		recovery("nothing, running", atWork),
		recovery("a create with a marker alone", createBroken("plans/*-entry.json", 1)),
		recovery("a create without sub-objects", createBroken("", 3)),
		recovery("a create without object", createBroken("plans/*-object.json", 1)),
		recovery("a completion without object", completionBroken(emulator.PutBlob, "plans/*-object.json")),
		recovery("a completion with a marker", completionBroken(emulator.DeleteBlob, "open/")),
		recovery("a delete with a delete marker alone", deleteBroken(emulator.DeleteBlob, "plans/*-object.json")),
		recovery("a delete without object", deleteBroken(emulator.BatchDelete, "")),
		recovery("a delete without sub-objects", deleteBroken(emulator.DeleteBlob, "plans/*-entry.json")),
		recovery("a delete without entry", deleteBroken(emulator.BatchDelete, "open/")),
	}
	readings = []scenario{
		reading("not started", notStarted),
		reading("running", atWork),
		reading("half complete", completionBroken(emulator.PutBlob, "plans/*-object.json")),
	}
)

// updateOf updates the first object of one type in a Running plan.
func updateOf[T any, O interface {
	*T
	workflow.Object
}](name string, do func(*azblob.Vault, context.Context, O) error) scenario {
	return scenario{name, func(t *testing.T, w world, shape shape) func() *call {
		plan := shape()
		for o := range workflow.Walk(plan) {
			o, ok := o.(O)
			if !ok {
				continue
			}
			v := w.vault(t)
			before := reread(t, v, createdRunning(t, v, plan))
			s := o.Header().State
			s.Status, s.Start = workflow.Running, time.Now()
			return func() *call {
				mine := *o // gets the version that it writes
				return &call{
					do:   func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return do(v, ctx, &mine) },
					plan: plan, before: before, after: plan,
				}
			}
		}
		return nil
	}}
}

// starts updates a plan to Running, with the version that the caller knows or without one. If want is not nil, the
// update has no effect and fails so.
func starts(of string, in state, versioned bool, want error) scenario {
	return scenario{fmt.Sprintf("UpdatePlan of a plan that is %s, with a version %t", of, versioned), func(t *testing.T, w world, shape shape) func() *call {
		plan, shown := in(t, w, shape())
		after := *plan
		after.State.Status, after.State.Start = workflow.Running, time.Now()
		if !versioned {
			after.State.ETag = ""
		}
		return func() *call {
			mine := after
			c := &call{plan: plan, before: shown, after: &after}
			if want != nil {
				c.after, c.pairs = shown, true
			}
			c.do = func(ctx context.Context, t *testing.T, v *azblob.Vault) error {
				err := v.UpdatePlan(ctx, &mine)
				if want != nil && err == nil {
					t.Errorf("the update succeeded, want %v", want)
				} else if want != nil && errors.Is(err, want) {
					return nil
				}
				return err
			}
			return c
		}
	}}
}

func deletion(of string, in state) scenario {
	return scenario{"Delete of a plan that is " + of, func(t *testing.T, w world, shape shape) func() *call {
		plan, shown := in(t, w, shape())
		return func() *call {
			return &call{
				do:   func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.Delete(ctx, plan.ID) },
				plan: plan, before: shown, done: storage.ErrNotFound,
			}
		}
	}}
}

func recovery(of string, in state) scenario {
	return scenario{"Recovery of " + of, func(t *testing.T, w world, shape shape) func() *call {
		plan, shown := in(t, w, shape())
		time.Sleep(pastGrace)
		return func() *call {
			return &call{
				do:   func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.Recovery(ctx) },
				plan: plan, before: shown, after: shown,
			}
		}
	}}
}

// reading calls every method that reads.
func reading(of string, in state) scenario {
	return scenario{"reads of a plan that is " + of, func(t *testing.T, w world, shape shape) func() *call {
		plan, shown := in(t, w, shape())
		before := contents(w.server)
		return func() *call {
			return &call{
				do:   func(ctx context.Context, t *testing.T, v *azblob.Vault) error { return readAll(ctx, t, v, shown) },
				plan: plan, before: shown, after: shown, untouched: before,
			}
		}
	}}
}

// readAll reads a store of one plan in every way and checks the results. It stops at the first error.
func readAll(ctx context.Context, t *testing.T, v *azblob.Vault, plan *workflow.Plan) error {
	t.Helper()
	got, err := v.Read(ctx, plan.ID)
	if err != nil {
		return err
	}
	if d := plantest.Diff(plan, got); d != "" {
		t.Error(d)
	}
	if ok, err := v.Exists(ctx, plan.ID); err != nil {
		return err
	} else if !ok {
		t.Error("Exists does not find the plan")
	}
	for _, f := range []storage.Filters{{}, {ByIDs: []uuid.UUID{plan.ID}}, {ByStatus: []workflow.Status{plan.State.Status}}} {
		list, err := v.List(ctx, 0)
		if f.ByIDs != nil || f.ByStatus != nil {
			list, err = v.Search(ctx, f)
		}
		if err != nil {
			return err
		}
		n := 0
		for r := range list {
			if r.Err != nil {
				return r.Err
			}
			n++
		}
		if n != 1 {
			t.Errorf("a listing with %+v has %d plans, want 1", f, n)
		}
	}
	report, err := v.Check(ctx, azblob.CheckOptions{})
	if err == nil && (len(report.Problems) > 0 || report.Plans != 1) {
		t.Errorf("Check: %+v", report)
	}
	_, dryErr := v.Recover(ctx, azblob.RecoverOptions{DryRun: true})
	return errors.Join(err, dryErr)
}

// state brings a store into a state. It returns the plan concerned, and the plan that readers find.
type state func(t *testing.T, w world, plan *workflow.Plan) (about, shown *workflow.Plan)

func notStarted(t *testing.T, w world, plan *workflow.Plan) (about, shown *workflow.Plan) {
	t.Helper()
	plan = created(t, w.vault(t), plan)
	return plan, plan
}

func atWork(t *testing.T, w world, plan *workflow.Plan) (about, shown *workflow.Plan) {
	t.Helper()
	before, _ := running(t, w.vault(t), plan)
	return before, before
}

func final(t *testing.T, w world, plan *workflow.Plan) (about, shown *workflow.Plan) {
	t.Helper()
	v := w.vault(t)
	_, after := running(t, v, plan)
	must(t, v.UpdatePlan(t.Context(), after))
	return after, after
}

// createBroken leaves the remains of a Create that dies before its nth write to a path.
func createBroken(path string, n int) state {
	return func(t *testing.T, w world, plan *workflow.Plan) (about, shown *workflow.Plan) {
		t.Helper()
		w.dies(t, emulator.On(emulator.PutBlob).Path(path).Nth(n), func(v *azblob.Vault) { _ = v.Create(t.Context(), plan) })
		return plan, nil
	}
}

// completionBroken leaves the remains of a completion that dies before a request, with its entry written.
func completionBroken(op emulator.Op, path string) state {
	return func(t *testing.T, w world, plan *workflow.Plan) (about, shown *workflow.Plan) {
		t.Helper()
		_, after := running(t, w.vault(t), plan)
		w.dies(t, emulator.On(op).Path(path), func(v *azblob.Vault) {
			dying := *after
			_ = v.UpdatePlan(t.Context(), &dying)
		})
		return after, after
	}
}

// deleteBroken leaves the remains of a Delete that dies before a request.
func deleteBroken(op emulator.Op, path string) state {
	return func(t *testing.T, w world, plan *workflow.Plan) (about, shown *workflow.Plan) {
		t.Helper()
		before := createdRunning(t, w.vault(t), plan)
		w.dies(t, emulator.On(op).Path(path), func(v *azblob.Vault) { _ = v.Delete(t.Context(), before.ID) })
		if exists, err := w.vault(t).Exists(t.Context(), before.ID); err != nil {
			t.Fatal(err)
		} else if !exists {
			return before, nil
		}
		return before, before
	}
}

// find returns the plan that readers find. It must be the plan before or after the call.
func (c *call) find(t *testing.T, v *azblob.Vault) *workflow.Plan {
	t.Helper()
	wanted := slices.DeleteFunc([]*workflow.Plan{c.before, c.after}, func(p *workflow.Plan) bool { return p == nil })
	if len(wanted) == 0 {
		wanted = []*workflow.Plan{{ID: c.plan.ID}} // which no plan is like
	}
	found := wholeOrGone(t, v, wanted...)
	if found == nil && c.before != nil && c.after != nil {
		t.Fatal("the plan is gone")
	}
	return found
}

// judge checks the store and the returned error. Nil means durable; an error means no effect, or it is
// ErrUnknown; and Recovery changes nothing that readers see. A new process reads the store.
func (c *call) judge(t *testing.T, w world, err error) {
	t.Helper()
	if c.untouched != nil {
		if !maps.Equal(c.untouched, contents(w.server)) {
			t.Error("the call changed what is stored")
		}
		return
	}
	v := w.vault(t)
	early := c.find(t, v)
	switch {
	case err == nil && early != c.after:
		t.Error("the call returned nil and had no effect")
	case err != nil && !errors.Is(err, storage.ErrUnknown) && early != c.before:
		t.Errorf("the call had its effect, and returned %v", err)
	}
	// A restarted process may well call Recovery at once.
	must(t, v.Recovery(t.Context()))
	if c.find(t, v) != early {
		t.Error("an early Recovery changed what readers find")
	}
	c.recovered(t, w, v, early)
}

// recovered checks the store after the grace period and a Recovery.
func (c *call) recovered(t *testing.T, w world, v *azblob.Vault, early *workflow.Plan) {
	t.Helper()
	report := settled(t, v)
	late := c.find(t, v)
	if late != early {
		t.Error("Recovery changed what readers find")
	}
	if left := report.Blobs - catalogues(w.server); late == nil && left != 0 {
		t.Errorf("%d blobs are left of a plan that is not there", left)
	}
}

// boundaries returns the requests of n at which to try something: all, or the first, the last and some
// between.
func boundaries(n int) (chosen []int) {
	many := efforttest.Pick(8, 40, math.MaxInt)
	for i := 1; i <= n; i++ {
		if n <= many || i <= 3 || i > n-3 || i%(n/4) == 0 {
			chosen = append(chosen, i)
		}
	}
	return chosen
}

// stage is a scenario prepared for one shape.
type stage struct {
	world
	at       time.Time
	call     func() *call // nil where the shape can't have it
	number   int          // of the stage in its test; samples of different stages differ by it
	requests int          // of the call without any fault
}

// on prepares a scenario, and makes its call once without a fault. That call must succeed.
func (s scenario) on(t *testing.T, newWorld func() world, shape shape) (st stage) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st.world = newWorld()
		strict(t, st.server)
		st.call = s.prepare(t, st.world, shape)
		if st.call == nil {
			return
		}
		st.at = time.Now().Round(0)
		w, c := st.clone(), st.call()
		strict(t, w.server)
		var sent atomic.Int64
		transport := w.server.Transport()
		transport.SetGate(gate(func() { sent.Add(1) }))
		must(t, c.do(t.Context(), t, w.vault(t, azblob.WithTransport(transport))))
		st.requests = int(sent.Load())
		c.judge(t, w, nil)
	})
	return st
}

// run runs a test on a clone of the stage. Virtual time continues from the preparation.
func (st stage) run(t *testing.T, name string, test func(t *testing.T, w world, c *call)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(st.at))
			w := st.clone()
			strict(t, w.server)
			test(t, w, st.call())
		})
	})
}

// everywhere runs a test on each scenario for each shape that can have it. It logs how many runs the tests
// report.
func everywhere(t *testing.T, newWorld func() world, scenarios []scenario, shapes map[string]shape, test func(t *testing.T, st stage) (runs int)) {
	t.Helper()
	var runs atomic.Int64
	t.Cleanup(func() { t.Logf("space: %d runs", runs.Load()) })
	number := 0
	for _, s := range scenarios {
		for _, name := range slices.Sorted(maps.Keys(shapes)) {
			number++
			nth := number
			t.Run(s.name+", "+name, func(t *testing.T) {
				t.Parallel()
				if st := s.on(t, newWorld, shapes[name]); st.call != nil {
					st.number = nth
					runs.Add(int64(test(t, st)))
				}
			})
		}
	}
}

// sampled reports whether a run belongs to an even sample of a space of two dimensions: n of each n×n
// neighbouring runs, with one in each row and column. With PLANVAULT_LONG every run does.
func sampled(n, row, column int) bool {
	return efforttest.Long() || (row+column)%n == 0
}

// crashes are the ways to die at a request: before it takes effect, and after.
var crashes = []emulator.Effect{emulator.Crash(), emulator.Crash().Applied()}

// dying makes a call in a process that dies at its nth request. It reports whether there was an nth request.
func (w world) dying(t *testing.T, n int, crash emulator.Effect, do func(ctx context.Context, t *testing.T, v *azblob.Vault) error) (died bool, err error) {
	t.Helper()
	transport := w.server.Transport()
	transport.Inject(emulator.On().Nth(n).Do(crash))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	// A dead process does not retry.
	err = do(ctx, t, w.vault(t, azblob.WithTransport(transport), azblob.WithRetry(azblob.Retry{InitialInterval: 20 * time.Minute})))
	if died = transport.Crashed(); died && err == nil && !w.pairs {
		t.Error("the call of a process that died returned nil")
	}
	return died, err
}

// crashAt runs a test with a crash before and after each second request of the call. Where requests follow each
// other, these are all crashes: a crash after a request leaves what one before the next request leaves.
func crashAt(t *testing.T, st stage, test func(t *testing.T, w world, c *call, err error)) (runs int) {
	t.Helper()
	for _, crash := range crashes {
		for _, n := range boundaries(st.requests) {
			if !sampled(efforttest.Pick(3, 2, 1), st.number, n) {
				continue
			}
			runs++
			st.run(t, fmt.Sprintf("%v at %d", crash, n), func(t *testing.T, w world, c *call) {
				w.pairs = c.pairs
				died, err := w.dying(t, n, crash, c.do)
				if !died {
					t.Fatal("the process did not die")
				}
				test(t, w.clone(), c, err)
			})
		}
	}
	if all := 2 * st.requests; runs < all {
		t.Logf("%d of %d crashes are tried", runs, all)
	}
	return runs
}

// crashEverywhere crashes the process before and after each request of each scenario.
func crashEverywhere(t *testing.T, newWorld func() world, scenarios []scenario, shapes map[string]shape) {
	t.Helper()
	shapes = efforttest.Pick(smallOnly, shapes, shapes)
	everywhere(t, newWorld, scenarios, shapes, func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w world, c *call, err error) { c.judge(t, w, err) })
	})
}

// crashInSome is [crashEverywhere] for an even sample: one of n shapes with each scenario.
func crashInSome(t *testing.T, n int, scenarios []scenario) {
	t.Helper()
	names := slices.Sorted(maps.Keys(shapes))
	for i := range scenarios {
		some := maps.Clone(shapes)
		maps.DeleteFunc(some, func(name string, _ shape) bool { return !sampled(n, i, slices.Index(names, name)) })
		crashEverywhere(t, plainWorld, scenarios[i:i+1], some)
	}
}

func TestCrashInCreate(t *testing.T) { crashEverywhere(t, plainWorld, creations, shapes) }
func TestCrashInUpdate(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	crashEverywhere(t, plainWorld, updates, shapes)
	crashEverywhere(t, unversionedWorld, unversioned, smallOnly)
}

func TestCrashInCompletion(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	crashEverywhere(t, plainWorld, completions, shapes)
}

func TestCrashInDelete(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	crashInSome(t, 2, deletions)
}

func TestCrashInReads(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	crashInSome(t, 2, readings)
}

func TestCrashInRecovery(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	crashInSome(t, 3, recoveries)
}

// settled waits for the grace period, runs Recovery, and checks that the store is sound.
func settled(t *testing.T, v *azblob.Vault) azblob.CheckReport {
	t.Helper()
	time.Sleep(pastGrace)
	if err := v.Recovery(t.Context()); err != nil {
		t.Fatalf("Recovery: %v", err)
	}
	report := sound(t, v)
	if report.InProgress != 0 {
		t.Errorf("%d plans are in progress after Recovery", report.InProgress)
	}
	return report
}

// wholeOrGone reads a plan. It returns the one of the wanted plans that it found, or nil if the plan is
// absent, and fails the test for anything else.
func wholeOrGone(t *testing.T, v *azblob.Vault, wanted ...*workflow.Plan) (found *workflow.Plan) {
	t.Helper()
	id := wanted[0].ID
	got, err := v.Read(t.Context(), id)
	shown := false
	list, listErr := v.List(t.Context(), 0)
	if listErr != nil {
		t.Fatal(listErr)
	}
	for r := range list {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		shown = shown || r.Result.ID == id
	}
	exists, existsErr := v.Exists(t.Context(), id)
	if existsErr != nil {
		t.Fatal(existsErr)
	}
	if errors.Is(err, storage.ErrNotFound) {
		if shown || exists {
			t.Errorf("Read does not find the plan; List shows it: %v, Exists: %v", shown, exists)
		}
		return nil
	}
	must(t, err)
	if !shown || !exists {
		t.Errorf("Read finds the plan; List shows it: %v, Exists: %v", shown, exists)
	}
	var d string
	for _, plan := range wanted {
		if d = plantest.Diff(plan, got); d == "" {
			return plan
		}
	}
	t.Fatalf("the plan is none of those it may be: %s", d)
	return nil
}

// createdRunning creates a plan and makes it Running.
func createdRunning(t *testing.T, v *azblob.Vault, plan *workflow.Plan) *workflow.Plan {
	t.Helper()
	must(t, v.Create(t.Context(), plan))
	plan.State.Status = workflow.Running
	must(t, v.UpdatePlan(t.Context(), plan))
	return plan
}

// running prepares a plan that is about to end: the plan is Running and all its sub-objects have finished.
// after is the plan with its final state.
func running(t *testing.T, v *azblob.Vault, plan *workflow.Plan) (before, after *workflow.Plan) {
	t.Helper()
	createdRunning(t, v, plan)
	finished := *plan
	finished.State = finishParts(t, v, plan)
	return plan, &finished
}

// finishParts finishes and stores all sub-objects of a running plan. It returns the plan's final state, which is
// not stored yet.
func finishParts(t *testing.T, v *azblob.Vault, plan *workflow.Plan) (final workflow.State) {
	t.Helper()
	running := plan.State
	plantest.Finish(plan)
	final, plan.State = plan.State, running
	final.ETag = running.ETag
	for _, o := range workflow.Parts(plan) {
		must(t, updateObject(t, v, o))
	}
	return final
}

// TestDeleteAgain calls a Delete that died again, without a Recovery in between.
func TestDeleteAgain(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	everywhere(t, plainWorld, deletions, efforttest.Pick(smallOnly, map[string]shape{"small": plantest.Small, "kinds": eachKind}, shapes), func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w world, c *call, first error) {
			v := w.vault(t)
			if err := c.do(t.Context(), t, v); err != nil && !errors.Is(err, storage.ErrNotFound) {
				t.Fatalf("Delete again after %v: %v", first, err)
			}
			if report := sound(t, v); report.Blobs != 0 {
				t.Errorf("%d blobs are left", report.Blobs)
			}
		})
	})
}

// TestCrashInThoroughRecovery crashes a Recovery that rewrites lost blobs. The next Recovery finishes the
// work.
func TestCrashInThoroughRecovery(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	recovery := func(ctx context.Context, _ *testing.T, v *azblob.Vault) error {
		_, err := v.Recover(ctx, azblob.RecoverOptions{Thorough: true})
		return err
	}
	robbed := scenario{"thorough Recovery", func(t *testing.T, w world, shape shape) func() *call {
		plan, _ := notStarted(t, w, shape())
		for c := range w.server.Containers() {
			for b := range w.server.Blobs(c) {
				if !strings.HasPrefix(b.Name, "open/") && !strings.HasPrefix(b.Name, "plans/") {
					w.server.Remove(c, b.Name)
				}
			}
		}
		return func() *call { return &call{do: recovery, plan: plan, before: plan, after: plan} }
	}}
	everywhere(t, plainWorld, []scenario{robbed}, map[string]shape{"small": plantest.Small, "kinds": eachKind}, func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w world, c *call, _ error) {
			v := w.vault(t)
			c.find(t, v)
			must(t, recovery(t.Context(), t, v))
			c.judge(t, w, nil)
		})
	})
}

// TestCrashTwice crashes the process, and then crashes the Recovery of what that left at each of its
// requests.
func TestCrashTwice(t *testing.T) {
	efforttest.NotShort(t, "it takes a minute under the race detector")
	// A Delete is the same whatever the plan's status.
	scenarios, few := slices.Concat(creations, completions, deletions[1:2]), map[string]shape{"empty": shapes["empty"], "small": plantest.Small}
	if efforttest.Long() {
		scenarios, few = slices.Concat(creations, updates, completions, deletions), shapes
	}
	recovery := func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.Recovery(ctx) }
	everywhere(t, plainWorld, scenarios, few, func(t *testing.T, st stage) (runs int) {
		crashAt(t, st, func(t *testing.T, first world, c *call, _ error) {
			early := c.find(t, first.vault(t))
			time.Sleep(pastGrace)
			for _, crash := range crashes {
				for n := 1; ; n++ {
					if !sampled(3, st.number, n) {
						continue
					}
					second := first.clone()
					died, err := second.dying(t, n, crash, recovery)
					if !died {
						break
					}
					runs++
					second = second.clone()
					v := second.vault(t)
					if c.find(t, v) != early {
						t.Errorf("a Recovery that died (%v at %d, %v) changed what readers find", crash, n, err)
					}
					c.recovered(t, second, v, early)
					if t.Failed() {
						t.Fatalf("the second crash: %v at %d", crash, n)
					}
				}
			}
		})
		return runs
	})
}

// TestCrashOfTwoBatches uses plans with more sub-objects than one batch deletes.
func TestCrashOfTwoBatches(t *testing.T) {
	efforttest.NotShort(t, "it takes a minute under the race detector")
	scenarios := []scenario{
		deletion("not started", notStarted),
		recovery("a create without object", createBroken("plans/*-object.json", 1)),
		recovery("a delete without object", deleteBroken(emulator.BatchDelete, "")),
	}
	if efforttest.Long() { // these send no batch
		scenarios = append(scenarios, creations[0], completions[0], reading("running", atWork))
	}
	crashEverywhere(t, plainWorld, scenarios, map[string]shape{"260 sub-objects": twoBatches})
}
