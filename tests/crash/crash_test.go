package crash_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// twoBatches is a plan whose sub-objects are deleted in two batches.
func twoBatches() *workflow.Plan { return plantest.Sized(1, 1, 258) }

// plainWorld returns a new service that answers as real accounts do.
func plainWorld() vaulttest.World {
	return vaulttest.WorldOf(emulator.New(emulator.Options{NoLog: true, RealAnswers: 1}))
}

// unversionedWorld is plainWorld with vaults that accept updates without a version.
func unversionedWorld() vaulttest.World {
	w := plainWorld()
	w.Open = func(t *testing.T, server *emulator.Server, opts ...azblob.Options) *azblob.Vault {
		return vaulttest.OnEmulator(t, server, append(opts, azblob.Options{UnversionedUpdates: true})...)
	}
	return w
}

// scenario is a store in some state and one call on it. Tests make the call fail in every way.
type scenario struct {
	name string
	// prepare brings a store into its state, using healthy vaults. It returns a function that makes the call
	// anew for each run on a clone of the store, or nil if a plan of this shape has no such call.
	prepare func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call
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
	creations = []scenario{making("Create", func(shape vaulttest.Shape) *workflow.Plan { return shape() }, (*azblob.Vault).Create)}
	updates   = []scenario{
		updateOf("UpdatePlan", (*azblob.Vault).UpdatePlan),
		updateOf("UpdateChecks", (*azblob.Vault).UpdateChecks),
		updateOf("UpdateBlock", (*azblob.Vault).UpdateBlock),
		updateOf("UpdateSequence", (*azblob.Vault).UpdateSequence),
		updateOf("UpdateAction", (*azblob.Vault).UpdateAction),
		updateOf("UpdateDeferredActions", (*azblob.Vault).UpdateDeferredActions),
		updateOf("UpdateDeferBatch", (*azblob.Vault).UpdateDeferBatch),
		starts("half deleted", vaulttest.DeleteBroken(emulator.BatchDelete, ""), true, storage.ErrNotFound),
	}
	// unversioned are updates by vaults that are opened with unversionedWorld.
	unversioned = []scenario{
		starts("running", vaulttest.AtWork, false, nil),
		starts("final", vaulttest.Final, false, storage.ErrConflict),
		starts("half created", vaulttest.CreateBroken("-object.json", 1), false, storage.ErrNotFound),
		starts("half complete", vaulttest.CompletionBroken(emulator.PutBlob, "plans/*-object.json"), false, storage.ErrConflict),
		starts("half deleted", vaulttest.DeleteBroken(emulator.BatchDelete, ""), false, storage.ErrNotFound),
	}
	completions = []scenario{{"completion", func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
		before, after := vaulttest.Running(t, w.Vault(t), shape())
		return func() *call {
			mine := *after // gets the versions that it writes
			return &call{
				do:   func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.UpdatePlan(ctx, &mine) },
				plan: before, before: before, after: after,
			}
		}
	}}}
	deletions = []scenario{
		deletion("not started", vaulttest.NotStarted),
		deletion("running", vaulttest.AtWork),
		deletion("final", vaulttest.Final),
		deletion("half deleted", vaulttest.DeleteBroken(emulator.BatchDelete, "")),
	}
	recoveries = []scenario{
		recovery("nothing, not started", vaulttest.NotStarted),
		recovery("nothing, running", vaulttest.AtWork),
		recovery("a create with a marker alone", vaulttest.CreateBroken("plans/*-entry.json", 1)),
		recovery("a create without sub-objects", vaulttest.CreateBroken("", 3)),
		recovery("a create without object", vaulttest.CreateBroken("plans/*-object.json", 1)),
		recovery("a completion without object", vaulttest.CompletionBroken(emulator.PutBlob, "plans/*-object.json")),
		recovery("a completion with a marker", vaulttest.CompletionBroken(emulator.DeleteBlob, "open/")),
		recovery("a delete with a delete marker alone", vaulttest.DeleteBroken(emulator.DeleteBlob, "plans/*-object.json")),
		recovery("a delete without object", vaulttest.DeleteBroken(emulator.BatchDelete, "")),
		recovery("a delete without sub-objects", vaulttest.DeleteBroken(emulator.DeleteBlob, "plans/*-entry.json")),
		recovery("a delete without entry", vaulttest.DeleteBroken(emulator.BatchDelete, "open/")),
	}
	readings = []scenario{
		reading("not started", vaulttest.NotStarted),
		reading("running", vaulttest.AtWork),
		reading("half complete", vaulttest.CompletionBroken(emulator.PutBlob, "plans/*-object.json")),
	}
)

// updateOf updates the first object of one type in a Running plan.
func updateOf[T any, O interface {
	*T
	workflow.Object
}](name string, do func(*azblob.Vault, context.Context, O) error) scenario {
	return scenario{name, func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
		plan := shape()
		for o := range workflow.Walk(plan) {
			o, ok := o.(O)
			if !ok {
				continue
			}
			v := w.Vault(t)
			before := vaulttest.Reread(t, v, vaulttest.CreatedRunning(t, v, plan))
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
func starts(of string, in vaulttest.State, versioned bool, want error) scenario {
	return scenario{fmt.Sprintf("UpdatePlan of a plan that is %s, with a version %t", of, versioned), func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
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

// making makes a plan that is not there.
func making(name string, plan func(vaulttest.Shape) *workflow.Plan, do func(*azblob.Vault, context.Context, *workflow.Plan) error) scenario {
	return scenario{name, func(_ *testing.T, _ vaulttest.World, shape vaulttest.Shape) func() *call {
		return func() *call {
			plan := plan(shape)
			return &call{
				do:   func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return do(v, ctx, plan) },
				plan: plan, after: plan, done: storage.ErrExists, blocked: storage.ErrConflict,
			}
		}
	}}
}

func deletion(of string, in vaulttest.State) scenario {
	return scenario{"Delete of a plan that is " + of, func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
		plan, shown := in(t, w, shape())
		do := func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.Delete(ctx, plan.ID) }
		return func() *call { return &call{do: do, plan: plan, before: shown, done: storage.ErrNotFound} }
	}}
}

func recovery(of string, in vaulttest.State) scenario {
	return scenario{"Recovery of " + of, func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
		plan, shown := in(t, w, shape())
		time.Sleep(vaulttest.PastGrace)
		return func() *call { return &call{do: recoverAll, plan: plan, before: shown, after: shown} }
	}}
}

func recoverAll(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return v.Recovery(ctx) }

// reading calls every method that reads.
func reading(of string, in vaulttest.State) scenario {
	return scenario{"reads of a plan that is " + of, func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
		plan, shown := in(t, w, shape())
		v := w.Vault(t)
		vaulttest.Must(t, vaulttest.ErrOf(v.Control().AddMember(t.Context(), storage.Member{ID: workflow.NewV7()})))
		before := vaulttest.Contents(w.Server)
		revisions, err := vaulttest.Offered[mirror.Reviser](v).Revisions(t.Context(), []uuid.UUID{plan.ID})
		vaulttest.Must(t, err)
		sound, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
		vaulttest.Must(t, err)
		do := func(ctx context.Context, t *testing.T, v *azblob.Vault) error {
			return readAll(ctx, t, v, shown, revisions[plan.ID], sound.Blobs)
		}
		return func() *call { return &call{do: do, plan: plan, before: shown, after: shown, untouched: before} }
	}}
}

// readAll reads a store of one plan in every way. Each read fails, or its result is right.
func readAll(ctx context.Context, t *testing.T, v *azblob.Vault, plan *workflow.Plan, revision string, blobs int) error {
	t.Helper()
	var errs []error
	check := func(what string, err error, right bool) {
		t.Helper()
		if errs = append(errs, err); err == nil && !right {
			t.Errorf("%s returns nil and something else", what)
		}
	}
	got, err := v.Read(ctx, plan.ID)
	check("Read", err, got != nil && plantest.Diff(plan, got) == "")
	exists, err := v.Exists(ctx, plan.ID)
	check("Exists", err, exists)
	all, err := storage.Collect(v.List(ctx, 0))
	check("List", err, len(all) == 1)
	for name, f := range map[string]storage.Filters{"Search by ID": {ByIDs: []uuid.UUID{plan.ID}}, "Search by status": {ByStatus: []workflow.Status{plan.State.Status}}} {
		found, err := storage.Collect(v.Search(ctx, f))
		check(name, err, len(found) == 1)
	}
	report, err := v.Admin().Check(ctx, azblob.CheckOptions{})
	check("Check", err, len(report.Problems) == 0 && report.Plans == 1 && report.Blobs == blobs)
	_, err = v.Admin().Repair(audited.Mark(ctx), azblob.RepairOptions{DryRun: true})
	check("Repair", err, true)
	revisions, err := vaulttest.Offered[mirror.Reviser](v).Revisions(ctx, []uuid.UUID{plan.ID})
	check("Revisions", err, revisions[plan.ID] == revision)
	return errors.Join(errs...)
}

// find returns the plan that readers find. It must be the plan before or after the call.
func (c *call) find(t *testing.T, v *azblob.Vault) *workflow.Plan {
	t.Helper()
	wanted := slices.DeleteFunc([]*workflow.Plan{c.before, c.after}, func(p *workflow.Plan) bool { return p == nil })
	if len(wanted) == 0 {
		wanted = []*workflow.Plan{{ID: c.plan.ID}} // which no plan is like
	}
	found := vaulttest.WholeOrGone(t, v, wanted...)
	if found == nil && c.before != nil && c.after != nil {
		t.Fatal("the plan is gone")
	}
	return found
}

// judge checks the store and the returned error. Nil means durable; an error means no effect, or it is
// ErrUnknown; and Recovery changes nothing that readers see. A new process reads the store.
func (c *call) judge(t *testing.T, w vaulttest.World, err error) {
	t.Helper()
	if c.untouched != nil {
		if !maps.Equal(c.untouched, vaulttest.Contents(w.Server)) {
			t.Error("the call changed what is stored")
		}
		return
	}
	v := w.Vault(t)
	early := c.find(t, v)
	switch {
	case err == nil && early != c.after:
		t.Error("the call returned nil and had no effect")
	case err != nil && !errors.Is(err, storage.ErrUnknown) && early != c.before:
		t.Errorf("the call had its effect, and returned %v", err)
	}
	// A restarted process may well call Recovery at once.
	vaulttest.Must(t, v.Recovery(t.Context()))
	if c.find(t, v) != early {
		t.Error("an early Recovery changed what readers find")
	}
	c.recovered(t, w, v, early)
}

// recovered checks the store after the grace period and a Recovery.
func (c *call) recovered(t *testing.T, w vaulttest.World, v *azblob.Vault, early *workflow.Plan) {
	t.Helper()
	report := vaulttest.Settled(t, v)
	late := c.find(t, v)
	if late != early {
		t.Error("Recovery changed what readers find")
	}
	if catalogues, _ := vaulttest.Catalogues(w.Server); late == nil && report.Blobs != catalogues {
		t.Errorf("%d blobs are left of a plan that is not there", report.Blobs-catalogues)
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
	vaulttest.World
	at       time.Time
	call     func() *call // nil where the shape can't have it
	number   int          // of the stage in its test; samples of different stages differ by it
	requests int          // of the call without any fault
	more     func() bool  // reports whether there is time for more runs
}

// on prepares a scenario, and makes its call once without a fault. That call must succeed.
func (s scenario) on(t *testing.T, newWorld func() vaulttest.World, shape vaulttest.Shape) (st stage) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		st.World = newWorld()
		vaulttest.Strict(t, st.Server)
		st.call = s.prepare(t, st.World, shape)
		if st.call == nil {
			return
		}
		st.at = time.Now().Round(0)
		w, c := st.Clone(), st.call()
		vaulttest.Strict(t, w.Server)
		all := emulator.On().Do(emulator.Before(func() {}))
		vaulttest.Must(t, c.do(t.Context(), t, w.Vault(t, vaulttest.Meets(w.Server, all))))
		st.requests = all.Fired()
		c.judge(t, w, nil)
	})
	return st
}

// run runs a test on a clone of the stage. Virtual time continues from the preparation.
func (st stage) run(t *testing.T, name string, test func(t *testing.T, w vaulttest.World, c *call)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		if !st.more() {
			t.Skip("there is no time left")
		}
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Until(st.at))
			w := st.Clone()
			vaulttest.Strict(t, w.Server)
			test(t, w, st.call())
		})
	})
}

// everywhere runs a test on each scenario for each shape that can have it. It logs how many runs the tests
// report.
func everywhere(t *testing.T, newWorld func() vaulttest.World, scenarios []scenario, shapes map[string]vaulttest.Shape, test func(t *testing.T, st stage) (runs int)) {
	t.Helper()
	var runs atomic.Int64
	t.Cleanup(func() { t.Logf("space: %d runs", runs.Load()) })
	number, more := 0, efforttest.More(t)
	for _, s := range scenarios {
		for _, name := range slices.Sorted(maps.Keys(shapes)) {
			number++
			nth := number
			t.Run(s.name+", "+name, func(t *testing.T) {
				t.Parallel()
				if st := s.on(t, newWorld, shapes[name]); st.call != nil {
					st.number, st.more = nth, more
					runs.Add(int64(test(t, st)))
				}
			})
		}
	}
}

// crashAt runs a test with a crash before and after each second request of the call. Where requests follow each
// other, these are all crashes: a crash after a request leaves what one before the next request leaves.
func crashAt(t *testing.T, st stage, test func(t *testing.T, w vaulttest.World, c *call, err error)) (runs int) {
	t.Helper()
	for _, crash := range vaulttest.Crashes {
		for _, n := range boundaries(st.requests) {
			if !vaulttest.Sampled(efforttest.Pick(3, 2, 1), st.number, n) {
				continue
			}
			runs++
			st.run(t, fmt.Sprintf("%v at %d", crash, n), func(t *testing.T, w vaulttest.World, c *call) {
				w.Pairs = c.pairs
				died, err := w.Dying(t, n, crash, c.do)
				if !died {
					t.Fatal("the process did not die")
				}
				test(t, w.Clone(), c, err)
			})
		}
	}
	if all := 2 * st.requests; runs < all {
		t.Logf("%d of %d crashes are tried", runs, all)
	}
	return runs
}

// crashEverywhere crashes the process before and after each request of each scenario.
func crashEverywhere(t *testing.T, newWorld func() vaulttest.World, scenarios []scenario, shapes map[string]vaulttest.Shape) {
	t.Helper()
	shapes = efforttest.Pick(smallOnly, shapes, shapes)
	everywhere(t, newWorld, scenarios, shapes, func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w vaulttest.World, c *call, err error) { c.judge(t, w, err) })
	})
}

// crashInSome is [crashEverywhere] for an even sample: one of n shapes with each scenario.
func crashInSome(t *testing.T, n int, scenarios []scenario) {
	t.Helper()
	names := slices.Sorted(maps.Keys(vaulttest.Shapes))
	for i := range scenarios {
		some := maps.Clone(vaulttest.Shapes)
		maps.DeleteFunc(some, func(name string, _ vaulttest.Shape) bool { return !vaulttest.Sampled(n, i, slices.Index(names, name)) })
		crashEverywhere(t, plainWorld, scenarios[i:i+1], some)
	}
}

func TestCrashInCreate(t *testing.T) { crashEverywhere(t, plainWorld, creations, vaulttest.Shapes) }
func TestCrashInUpdate(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	crashEverywhere(t, plainWorld, updates, vaulttest.Shapes)
	crashEverywhere(t, unversionedWorld, unversioned, smallOnly)
}

func TestCrashInCompletion(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	crashEverywhere(t, plainWorld, completions, vaulttest.Shapes)
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

// callAgain makes each call again after it died: at once, after the grace period, and after a Recovery, as long as its
// own remains are in its way.
func callAgain(t *testing.T, scenarios []scenario, shapes map[string]vaulttest.Shape) {
	t.Helper()
	efforttest.NotShort(t, efforttest.OneAtATime)
	everywhere(t, plainWorld, scenarios, shapes, func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w vaulttest.World, c *call, first error) {
			v := w.Vault(t)
			err := c.do(t.Context(), t, v)
			vaulttest.EqualListings(t, w.Server)
			for _, wait := range []func(){
				func() { time.Sleep(vaulttest.PastGrace) },
				func() { vaulttest.Settled(t, v) },
			} {
				if err != nil && c.blocked != nil && errors.Is(err, c.blocked) {
					wait()
					err = c.do(t.Context(), t, v)
				}
			}
			if err != nil && (c.done == nil || !errors.Is(err, c.done)) {
				t.Errorf("again: %v; the first one: %v", err, first)
			}
			if c.find(t, v) != c.after {
				t.Error("the call again had no effect")
			}
			if c.blocked == nil && c.after == nil && vaulttest.Stored(w.Server) > 0 {
				t.Errorf("%d blobs are left", vaulttest.Stored(w.Server))
			}
			vaulttest.Settled(t, v)
			vaulttest.Build(t, v)
			vaulttest.EqualListings(t, w.Server)
		})
	})
}

func TestDeleteAgain(t *testing.T) {
	callAgain(t, deletions, efforttest.Pick(smallOnly, map[string]vaulttest.Shape{"small": plantest.Small, "kinds": vaulttest.EachKind}, vaulttest.Shapes))
}

// TestCrashInThoroughRecovery crashes a Recovery that rewrites lost blobs: all sub-objects of a plan, or the entry of a
// plan in a closed day whose catalogue lacks it. The next Recovery finishes the work.
func TestCrashInThoroughRecovery(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	recovery := func(ctx context.Context, _ *testing.T, v *azblob.Vault) error {
		return vaulttest.ErrOf(v.Admin().Repair(audited.Mark(ctx), azblob.RepairOptions{Thorough: true}))
	}
	lost := func(name string, in vaulttest.State, lose func(t *testing.T, w vaulttest.World, plan *workflow.Plan)) scenario {
		return scenario{"thorough Repair of " + name, func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
			plan, _ := in(t, w, shape())
			lose(t, w, plan)
			return func() *call { return &call{do: recovery, plan: plan, before: plan, after: plan} }
		}}
	}
	scenarios := []scenario{
		lost("sub-objects", vaulttest.NotStarted, func(_ *testing.T, w vaulttest.World, plan *workflow.Plan) {
			d := vaulttest.Damaged{Server: w.Server, Container: vaulttest.ContainerOf(workflow.Time(plan.ID).UTC()), Plan: plan}
			d.Lose(d.Parts()...)
		}),
		lost("an entry in a closed day", vaulttest.Final, func(t *testing.T, w vaulttest.World, plan *workflow.Plan) {
			time.Sleep(vaulttest.UntilClosed)
			vaulttest.Behead(w.Server, plan)
			vaulttest.Build(t, w.Vault(t))
		}),
	}
	everywhere(t, plainWorld, scenarios, map[string]vaulttest.Shape{"small": plantest.Small, "kinds": vaulttest.EachKind}, func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w vaulttest.World, c *call, _ error) {
			vaulttest.EqualListings(t, w.Server)
			v := w.Vault(t)
			time.Sleep(vaulttest.PastGrace)
			vaulttest.Must(t, recovery(t.Context(), t, v))
			vaulttest.EqualListings(t, w.Server)
			c.judge(t, w, nil)
			vaulttest.Build(t, v)
			vaulttest.EqualListings(t, w.Server)
		})
	})
}

// TestCrashTwice crashes the process, and then crashes the Recovery of what that left at each of its
// requests.
func TestCrashTwice(t *testing.T) {
	efforttest.NotShort(t, "it takes a minute under the race detector")
	// A Delete is the same whatever the plan's status.
	scenarios, few := slices.Concat(creations, completions, deletions[1:2]), map[string]vaulttest.Shape{"empty": vaulttest.Shapes["empty"], "small": plantest.Small}
	if efforttest.Long() {
		scenarios, few = slices.Concat(creations, updates, completions, deletions), vaulttest.Shapes
	}
	everywhere(t, plainWorld, scenarios, few, func(t *testing.T, st stage) (runs int) {
		crashAt(t, st, func(t *testing.T, first vaulttest.World, c *call, _ error) {
			early := c.find(t, first.Vault(t))
			time.Sleep(vaulttest.PastGrace)
			for _, crash := range vaulttest.Crashes {
				for n := 1; ; n++ {
					if !vaulttest.Sampled(3, st.number, n) {
						continue
					}
					second := first.Clone()
					died, err := second.Dying(t, n, crash, recoverAll)
					if !died {
						break
					}
					runs++
					second = second.Clone()
					v := second.Vault(t)
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
		deletion("not started", vaulttest.NotStarted),
		recovery("a create without object", vaulttest.CreateBroken("plans/*-object.json", 1)),
		recovery("a delete without object", vaulttest.DeleteBroken(emulator.BatchDelete, "")),
	}
	if efforttest.Long() { // these send no batch
		scenarios = append(scenarios, creations[0], completions[0], reading("running", vaulttest.AtWork))
	}
	crashEverywhere(t, plainWorld, scenarios, map[string]vaulttest.Shape{"260 sub-objects": twoBatches})
}

// closedDays are the calls on a closed day. If the day has a catalogue, a change must remove it.
func closedDays() []scenario {
	type do = func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error
	type prepare = func(t *testing.T, v *azblob.Vault, plan *workflow.Plan)
	// of makes a call on a closed day with a final plan, after some others. Without before there is no plan then.
	of := func(name string, prepare prepare, before, after func(*workflow.Plan) *workflow.Plan, done error, do do) scenario {
		return scenario{name, func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
			plan, _ := vaulttest.Final(t, w, shape())
			time.Sleep(vaulttest.UntilClosed)
			prepare(t, w.Vault(t), plan)
			return func() *call {
				mine := *plan
				c := &call{plan: plan, before: before(plan), after: after(plan), done: done, blocked: storage.ErrConflict}
				c.do = func(ctx context.Context, _ *testing.T, v *azblob.Vault) error { return do(ctx, v, &mine) }
				return c
			}
		}}
	}
	nothing := func(*testing.T, *azblob.Vault, *workflow.Plan) {}
	catalogued := func(t *testing.T, v *azblob.Vault, _ *workflow.Plan) { vaulttest.Build(t, v) }
	emptied := func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		vaulttest.Build(t, v)
	}
	failed := func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		plan.State.Status = workflow.Failed
		vaulttest.Must(t, v.Restore(t.Context(), plan))
		time.Sleep(2 * 24 * time.Hour)
		vaulttest.Build(t, v) // so that the plans are listed for this alone
	}
	held := func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) {
		vaulttest.Build(t, v)
		vaulttest.Must(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(workflow.Time(plan.ID)), workflow.Attribution{}))
	}
	same := func(p *workflow.Plan) *workflow.Plan { return p }
	gone := func(*workflow.Plan) *workflow.Plan { return nil }
	later := func(p *workflow.Plan) *workflow.Plan {
		p2 := *p
		p2.State.End = p2.State.End.Add(time.Second)
		return &p2
	}
	catalogue := func(verify bool) do {
		return func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
			return vaulttest.ErrOf(v.Admin().Catalogue(ctx, azblob.CatalogueOptions{Verify: verify}))
		}
	}
	expire := func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
		report, err := v.Admin().Expire(audited.Mark(ctx), azblob.ExpireOptions{OlderThanDays: 1})
		if err == nil && report.Dropped() != 1 {
			err = errNoDay
		}
		return err
	}
	return []scenario{
		of("Catalogue", nothing, same, same, nil, catalogue(false)),
		of("Catalogue with Verify", catalogued, same, same, nil, catalogue(true)),
		of("Restore", emptied, gone, same, storage.ErrExists, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return v.Restore(ctx, p)
		}),
		of("update of a final plan", catalogued, same, later, storage.ErrConflict, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return v.UpdatePlan(ctx, later(p))
		}),
		of("Delete", catalogued, same, gone, storage.ErrNotFound, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error { return v.Delete(ctx, p.ID) }),
		of("Hold", catalogued, same, same, nil, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return v.Admin().Hold(audited.Mark(ctx), storage.DayOf(workflow.Time(p.ID)), workflow.Attribution{})
		}),
		of("Release", held, same, same, nil, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return v.Admin().Release(audited.Mark(ctx), storage.DayOf(workflow.Time(p.ID)), workflow.Attribution{})
		}),
		of("Expire", catalogued, same, gone, errNoDay, expire),
		of("Retire of a day with a plan to keep", failed, same, same, nil, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
			return vaulttest.ErrOf(vaulttest.Offered[retention.Vault](v).Retire(ctx, retention.Policy{KeepDays: 1, KeepFailedDays: 30}, storage.DayOf(workflow.Time(p.ID)), 0))
		}),
	}
}

// errNoDay says that an Expire had nothing to drop.
var errNoDay = errors.New("no day was dropped")

// TestCrashOnAClosedDay crashes each call on a closed day before and after each of its requests.
func TestCrashOnAClosedDay(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	everywhere(t, plainWorld, closedDays(), smallOnly, func(t *testing.T, st stage) int {
		return crashAt(t, st, func(t *testing.T, w vaulttest.World, c *call, err error) {
			vaulttest.EqualListings(t, w.Server)
			c.judge(t, w, err)
			v := w.Vault(t)
			vaulttest.Build(t, v)
			vaulttest.EqualListings(t, w.Server)
		})
	})
}

func TestCrashAgainOnAClosedDay(t *testing.T) { callAgain(t, closedDays(), smallOnly) }
