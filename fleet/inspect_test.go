package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

func inspect(t testing.TB, store storage.Vault, o fleet.InspectOptions) fleet.Inspection {
	t.Helper()
	i, err := fleet.Inspect(t.Context(), store, o)
	must(t, err)
	return i
}

// TestInspect has a plan in each condition beside a fleet of a live, a silent and a departed node.
func TestInspect(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, silent := open(store), open(store)
		claimed := func(n *fleet.Node) *workflow.Plan {
			plan := create(t, p, 3)
			time.Sleep(time.Millisecond) // the order of the IDs
			must(t, n.Claim(t.Context(), plan))
			return plan
		}
		// The TTL keeps others from removing the record of the silent node before an hour has passed.
		mute, gone := join(t, silent, fleet.Options{Name: "mute", TTL: time.Hour}), join(t, p, fleet.Options{})
		silently, orphaned := claimed(mute), claimed(gone)
		silent.Kill()
		time.Sleep(15 * time.Second)
		leave(t, gone)
		time.Sleep(time.Hour)
		unclaimed := ownerless(t, p, 1)
		time.Sleep(time.Millisecond)
		waits := create(t, p, 1)
		time.Sleep(time.Minute)
		n := join(t, open(store), fleet.Options{Name: "host", TTL: 2 * time.Hour})
		works, stopping, final := claimed(n), claimed(n), claimed(n)
		must(t, finish(t.Context(), p, final))
		must(t, fleet.Stop(t.Context(), p, stopping.ID, workflow.Attribution{By: "ana", Why: "wrong cluster"}))
		must(t, p.AddStop(t.Context(), final.ID, ana))

		i := inspect(t, p, fleet.InspectOptions{})
		if !i.Now.Equal(time.Now()) || i.Alive() != 1 || len(i.Members) != 2 {
			t.Errorf("at %s: %+v", i.Now, i.Members)
		}
		for _, m := range i.Members {
			wantPlans, wantAlive, silence := 1, false, time.Hour+75*time.Second
			if m.Member.Name == "host" {
				wantPlans, wantAlive, silence = 2, true, 0
			}
			if m.Plans != wantPlans || m.Alive != wantAlive || m.Silence.Truncate(time.Second) != silence {
				t.Errorf("member %+v", m)
			}
		}
		type state struct {
			id    uuid.UUID
			owner fleet.OwnerState
			c     fleet.Condition
			stuck bool
		}
		got := []state{}
		for _, p := range i.Plans {
			got = append(got, state{p.Plan.ID, p.OwnerState, p.Condition, p.Stuck})
			if asked := p.Plan.ID == stopping.ID; asked != p.StopRequested.Equal(i.Now) || asked != strings.Contains(p.Why, "asked to stop 0s ago by ana (wrong cluster), and its owner") {
				t.Errorf("plan %s was asked to stop at %s", p.Plan.ID, p.StopRequested)
			}
		}
		want := []state{
			{silently.ID, fleet.OwnerStateSilent, fleet.ConditionOrphaned, true},
			{orphaned.ID, fleet.OwnerStateGone, fleet.ConditionOrphaned, true},
			{unclaimed.ID, fleet.OwnerStateNone, fleet.ConditionUnclaimed, false},
			{waits.ID, fleet.OwnerStateNone, fleet.ConditionWaiting, false},
			{works.ID, fleet.OwnerStateAlive, fleet.ConditionWorking, false},
			{stopping.ID, fleet.OwnerStateAlive, fleet.ConditionStopping, false},
		}
		if !slices.Equal(got, want) {
			t.Errorf("the plans are %v, want %v", got, want)
		}
		if some := inspect(t, p, fleet.InspectOptions{Plans: []uuid.UUID{final.ID, works.ID, workflow.NewV7()}}); len(some.Plans) != 1 || some.Plans[0].Plan.ID != works.ID {
			t.Errorf("the chosen plans are %v", some.Plans)
		}
		must(t, moves(t.Context(), p, actions(works)[0], workflow.Running))
		for all, want := range map[bool]string{false: "", true: "block 0/sequence 0/action 0"} {
			for _, got := range inspect(t, p, fleet.InspectOptions{ReadAll: all}).Plans {
				if got.Plan.ID == works.ID && (got.Doing() != want || got.Read != all) {
					t.Errorf("with ReadAll %t, plan %+v", all, got)
				}
			}
		}
		if young := inspect(t, p, fleet.InspectOptions{Older: 2 * time.Hour}); young.Plans[0].Stuck {
			t.Errorf("the first plan is stuck: %+v", young.Plans[0])
		}
		fails(t, second(fleet.Inspect(t.Context(), p, fleet.InspectOptions{Older: -1})), storage.ErrInvalid, "a negative age")
	})
}

// TestInspectProgress: progress is the latest time in the plan, except in continuous checks, which go on beside an
// action that hangs.
func TestInspectProgress(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		plan := plantest.Full()
		plan.Blocks[0].Name, plan.Blocks[0].Sequences[0].Name, plan.Blocks[0].Sequences[0].Actions[0].Name = "eu", "", strings.Repeat("x", 100_000)
		must(t, p.Create(t.Context(), plan))
		must(t, n.Claim(t.Context(), plan))
		a, check := plan.Blocks[0].Sequences[0].Actions[0], plan.Blocks[0].ContChecks.Actions[0]
		time.Sleep(5 * time.Minute)
		began := time.Now().UTC()
		a.State.Start, a.Attempts = began, []workflow.Attempt{{Start: began}}
		must(t, moves(t.Context(), p, a, workflow.Running))
		time.Sleep(16 * time.Minute)
		check.State.Start, check.Attempts = time.Now().UTC(), []workflow.Attempt{{Start: time.Now().UTC()}}
		must(t, moves(t.Context(), p, check, workflow.Running))

		i := inspect(t, p, fleet.InspectOptions{})
		got := i.Plans[0]
		if want := "eu/sequence 1/" + strings.Repeat("x", 120) + "…"; got.Doing() != want || len(got.Running) != 1 {
			t.Errorf("it is doing %q", got.Doing())
		}
		if r := got.Running[0]; !r.Since.Equal(began) || r.Attempts != 1 || r.Timeout != a.Timeout {
			t.Errorf("it runs %+v", r)
		}
		if !got.Progress.Equal(began) || !got.Stuck || !got.Read || got.Done != 0 {
			t.Errorf("the plan is %+v", got)
		}
		second := plan.Blocks[0].PreChecks.Actions[0]
		second.Attempts = []workflow.Attempt{{Start: began.Add(time.Minute), End: began.Add(2 * time.Minute)}}
		must(t, moves(t.Context(), p, second, workflow.Completed))
		plan.DeferredActions.Batches[0].Actions[0].State.Start = began.Add(time.Minute)
		must(t, moves(t.Context(), p, plan.DeferredActions.Batches[0].Actions[0], workflow.Running))
		got = inspect(t, p, fleet.InspectOptions{}).Plans[0]
		if got.Done != 1 || !strings.HasSuffix(got.Doing(), "… and 1 more") || !got.Progress.Equal(began.Add(2*time.Minute)) {
			t.Errorf("the plan is %+v", got)
		}
		count := len(actions(plan)) - len(plan.ContChecks.Actions)
		for _, b := range plan.Blocks {
			if b.ContChecks != nil {
				count -= len(b.ContChecks.Actions)
			}
		}
		if got.Actions != count {
			t.Errorf("%d actions of %d count", got.Actions, count)
		}
		if idle := (fleet.OpenPlan{}).Doing(); idle != "" {
			t.Errorf("a plan that was not read is doing %q", idle)
		}
	})
}

// TestInspectErrors: a plan that can't be read hides no other, plans that end meanwhile are left out, and a roster
// or a search that fails is an error.
func TestInspectErrors(t *testing.T) {
	for _, where := range []string{"Search", "Read"} {
		for err, stuck := range map[error]bool{storage.ErrCorrupt: true, storage.ErrSchema: true, storage.ErrUnavailable: false} {
			onStore(t, func(t *testing.T, store *memvault.Store) {
				p := open(store)
				before, damaged, after := orphan(t, p, plantest.Small()), orphan(t, p, plantest.Small()), orphan(t, p, plantest.Small())
				time.Sleep(time.Hour)
				damage(p, damaged.ID, where, err)
				i := inspect(t, p, fleet.InspectOptions{})
				if len(i.Plans) != 3 {
					t.Fatalf("%v in %s: %d plans", err, where, len(i.Plans))
				}
				for _, got := range i.Plans {
					bad := got.Plan.ID == damaged.ID
					if errors.Is(got.Err, err) != bad || got.Stuck != (!bad || stuck) || got.Why == "" || !bad && got.Plan.ID != before.ID && got.Plan.ID != after.ID {
						t.Errorf("%v in %s: %+v", err, where, got)
					}
				}
			})
		}
	}
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		ends, deleted, stays := orphan(t, p, plantest.Small()), orphan(t, p, plantest.Small()), orphan(t, p, plantest.Small())
		time.Sleep(time.Hour)
		var once sync.Once
		p.Before("Read", func() {
			once.Do(func() {
				must(t, moves(t.Context(), p.Store, ends, workflow.Completed))
				must(t, p.Store.Delete(t.Context(), deleted.ID))
			})
		})
		var read []storage.Progress
		if i := inspect(t, p, fleet.InspectOptions{Progress: func(p storage.Progress) { read = append(read, p) }}); len(i.Plans) != 1 || i.Plans[0].Plan.ID != stays.ID {
			t.Errorf("the plans are %+v", i.Plans)
		}
		if fmt.Sprint(read) != "[{1 3} {2 3} {3 3}]" {
			t.Errorf("the progress was %v", read)
		}
		p.On(nil)
		for _, op := range []string{"Roster", "Search"} {
			fails(t, second(fleet.Inspect(t.Context(), p.Fail(op, processtest.Unavailable), fleet.InspectOptions{})), storage.ErrUnavailable, "without a %s, Inspect", op)
		}
		ctx, cancel := context.WithCancel(t.Context())
		p.Before("Read", func() { cancel() })
		if i, err := fleet.Inspect(ctx, p, fleet.InspectOptions{}); !errors.Is(err, context.Canceled) || len(i.Plans) != 1 || i.Plans[0].Stuck {
			t.Errorf("a cancelled Inspect returned %v, %v", i, err)
		}
	})
}

// TestInspectBounded: a bounded look reads only what nothing else decides, longest unread first, and builds on the
// look before it. It does not call stuck what it leaves unread.
func TestInspectBounded(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		names, ids := map[uuid.UUID]string{}, map[string]uuid.UUID{}
		for _, name := range []string{"hangs", "ends", "lingers", "works", "damaged", "stops", "waits"} {
			time.Sleep(time.Second)
			plan := create(t, p, 1)
			names[plan.ID], ids[name] = name, plan.ID
			if name != "waits" {
				must(t, n.Claim(t.Context(), plan))
			}
		}
		must(t, fleet.Stop(t.Context(), p, ids["stops"], ana))
		time.Sleep(20 * time.Minute)
		works := actions(read(t, p, ids["works"]))[0]
		works.State.Start = time.Now().UTC()
		must(t, moves(t.Context(), p, works, workflow.Running))

		looker, before := open(store), (*fleet.Inspection)(nil)
		look := func(o fleet.InspectOptions, wantRead, wantStuck string, unread int) fleet.Inspection {
			t.Helper()
			time.Sleep(time.Minute)
			var mu sync.Mutex
			var asked []string
			looker.OnOp("Read", func(_ context.Context, c processtest.Call, do func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if asked = append(asked, names[c.Plan]); c.Plan == ids["damaged"] {
					return storage.ErrCorrupt
				}
				return do()
			})
			o.Before = before
			i := inspect(t, looker, o)
			slices.Sort(asked)
			var stuck []string
			for _, p := range i.Plans {
				if p.Stuck {
					stuck = append(stuck, names[p.Plan.ID]+": "+string(p.Reason))
				}
				if p.Actions > 1 || len(p.Running) > 1 {
					t.Errorf("%s has %d actions, and %d run", names[p.Plan.ID], p.Actions, len(p.Running))
				}
			}
			slices.Sort(stuck)
			if got := strings.Join(asked, ", "); got != wantRead {
				t.Errorf("it read %s, want %s", got, wantRead)
			}
			if got := strings.Join(stuck, ", "); got != wantStuck {
				t.Errorf("stuck are %s, want %s", got, wantStuck)
			}
			if i.Unread != unread {
				t.Errorf("%d plans are unread, want %d", i.Unread, unread)
			}
			before = &i
			return i
		}
		two := fleet.InspectOptions{MaxReads: 2}
		const known = "stops: stop-ignored, waits: not-picked-up"
		look(fleet.InspectOptions{NoReads: true}, "", known, 5)
		look(two, "ends, hangs", "ends: no-progress, hangs: no-progress, "+known, 3)
		i := look(two, "lingers, works", "ends: no-progress, hangs: no-progress, lingers: no-progress, "+known, 1)
		for _, p := range i.Plans {
			if name := names[p.Plan.ID]; (name == "hangs") != strings.HasSuffix(p.Why, "It was last read 1m ago.") && name != "ends" ||
				p.Unread != (name == "damaged") || p.Unread != strings.Contains(p.Why, "not read") || (p.Reason == "") != (name == "works") {
				t.Errorf("%s: %+v", name, p)
			}
		}
		must(t, finish(t.Context(), p, read(t, p, ids["ends"])))
		look(two, "damaged, hangs", "damaged: unreadable, hangs: no-progress, lingers: no-progress, "+known, 0)
		i = look(two, "damaged, lingers", "damaged: unreadable, hangs: no-progress, lingers: no-progress, "+known, 0)
		g := i.Gauges()
		if g.Open != 6 || g.Waiting != 1 || g.Stuck[fleet.ReasonNoProgress] != 2 || g.Alive != 1 || g.Dead != 0 || g.Members[0].Plans != 5 || g.OldestWait.Truncate(time.Minute) != 25*time.Minute {
			t.Errorf("the gauges are %+v", g)
		}

		more := fleet.InspectOptions{MaxReads: 4, ReadMore: true}
		look(more, "damaged, hangs, lingers, stops", "damaged: unreadable, hangs: no-progress, lingers: no-progress, "+known, 0)
		more.MaxReads = 2
		look(more, "damaged, lingers", "damaged: unreadable, hangs: no-progress, lingers: no-progress, "+known, 0)

		leave(t, n)
		look(two, "", "damaged: unreadable, hangs: no-node, lingers: no-node, stops: no-node, waits: no-node, works: no-node", 0)
		_, next := start(t, store, fleet.Options{}) // it runs no loop over Plans
		look(two, "hangs, stops", "damaged: unreadable, hangs: owner-gone, lingers: owner-gone, stops: owner-gone, waits: not-picked-up", 0)
		time.Sleep(15 * time.Minute)
		i = look(two, "", "damaged: unreadable, hangs: owner-gone, lingers: owner-gone, stops: owner-gone, waits: not-picked-up, works: owner-gone", 0)
		must(t, second(next.Take(t.Context(), ids["hangs"]))) // what was read before says nothing of the new owner
		look(fleet.InspectOptions{NoReads: true}, "", "damaged: unreadable, lingers: owner-gone, stops: owner-gone, waits: not-picked-up, works: owner-gone", 1)
		if i = look(fleet.InspectOptions{NoReads: true, MaxPlans: 2}, "", "stops: owner-gone, waits: not-picked-up", 0); !i.More || !i.Gauges().More || len(i.Plans) != 2 {
			t.Errorf("%d plans, more: %t", len(i.Plans), i.More)
		}
		fails(t, second(fleet.Inspect(t.Context(), p, fleet.InspectOptions{MaxReads: -1})), storage.ErrInvalid, "a negative MaxReads")
		fails(t, second(fleet.Inspect(t.Context(), p, fleet.InspectOptions{MaxPlans: -1})), storage.ErrInvalid, "a negative number of plans")
	})
}

// TestCostOfInspect counts the requests: they follow the open plans, and not the final ones.
func TestCostOfInspect(t *testing.T) {
	efforttest.NotShort(t, "TestInspect inspects under the race detector")
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		v, _ := azure(t, server)
		join(t, v, fleet.Options{})
		orphan(t, v, plantest.Sized(1, 1, 3))
		time.Sleep(time.Hour + 5*time.Second) // between two heartbeats, whose requests would count
		for range 3 {
			orphan(t, v, plantest.Sized(1, 1, 3))
		}
		cost := func() (requests int, writes int) {
			server.ResetRequests()
			if i := inspect(t, v, fleet.InspectOptions{}); len(i.Plans) != 4 {
				t.Errorf("%d plans", len(i.Plans))
			}
			for _, r := range server.Requests() {
				if requests++; r.Method != "GET" && r.Method != "HEAD" {
					writes++
				}
			}
			return requests, writes
		}
		before, writes := cost()
		for range 30 {
			must(t, finish(t.Context(), v, orphan(t, v, plantest.Small())))
		}
		after, _ := cost()
		// A roster, two listings of days and markers, a HEAD for each open plan, and a Read of the old one:
		// 2 and 5 sub-objects.
		if before != after || before > 1+2+2*4+2+5 || writes > 0 {
			t.Errorf("%d requests, %d of them writes; beside 30 final plans %d", before, writes, after)
		}
	})
}

// TestInspectLongTTL: a record that claims to be good for centuries does not turn times around.
func TestInspectLongTTL(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		must(t, second(p.AddMember(t.Context(), storage.Member{ID: workflow.NewV7(), Started: time.Now(), TTL: math.MaxInt64})))
		orphan(t, p, plantest.Small())
		if i := inspect(t, p, fleet.InspectOptions{}); strings.Contains(i.Plans[0].Why, "within -") {
			t.Error(i.Plans[0].Why)
		}
	})
}

// TestInspectExternal looks at plans that the queue places. No node is missing for them, and a look with few reads finds the same.
func TestInspectExternal(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		v := open(store)
		_, owned := placed(t, v)
		overdue, sleeps, waits := rests(t, v, time.Minute, 0), rests(t, v, 2*time.Hour, 0), authored(t, v, 0)
		time.Sleep(time.Hour)
		_, young := placed(t, v)
		want := map[uuid.UUID]string{
			owned.ID: "external true, queue show", overdue.ID: "none true, ", sleeps.ID: "none false, ", waits.ID: "none true, ", young.ID: "external false, ",
		}
		for _, o := range []fleet.InspectOptions{{}, {MaxReads: 1}} {
			i := inspect(t, v, o)
			for _, p := range i.Plans {
				if got := fmt.Sprintf("%s %t, %s", p.OwnerState, p.Stuck, p.Ask); got != want[p.Plan.ID] || p.Condition != fleet.ConditionExternal || p.Reason != fleet.ReasonExternal {
					t.Errorf("%+v: %s, %s, %s: %q, want %q", o, p.Plan.State.Status, p.Condition, p.Reason, got, want[p.Plan.ID])
				}
			}
			if g := i.Gauges(); g.Open != 5 || g.Asleep != 5 || g.Waiting != 0 || g.OldestWait != 0 || g.Stuck[fleet.ReasonExternal] != 3 || len(g.Stuck) != 1 || len(i.Gone()) != 0 {
				t.Errorf("%+v: %+v, %v", o, g, i.Gone())
			}
		}
		if p := fleet.Describe(read(t, v, owned.ID), time.Now()); p.Condition != fleet.ConditionExternal || p.OwnerState != fleet.OwnerStateExternal || !p.Stuck || !strings.HasSuffix(p.Why, "Ask it: queue show") {
			t.Errorf("described as %s of %s: %s", p.Condition, p.OwnerState, p.Why)
		}
		if i := inspect(t, v, fleet.InspectOptions{NoReads: true}); i.Unread != 1 {
			t.Errorf("without reads, %d are unread", i.Unread)
		}
		_, holder := place(t, placer(t, v), keyed(t, v, "holder", workflow.Key{Name: "a"}).ID, 0)
		keyedBy(t, v, queue, "waits", workflow.Key{Name: "a"})
		why := openPlan(t, inspect(t, v, fleet.InspectOptions{ReadAll: true}), holder.ID).Why
		if !strings.HasSuffix(why, `It has a turn for key "a", for which 1 plan waits. Ask it: queue show`) {
			t.Errorf("the holder: %s", why)
		}
	})
}
