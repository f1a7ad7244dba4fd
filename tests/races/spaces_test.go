package races_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

func TestInterleavings(t *testing.T) { exploreAll(t, spaces, 1, 0) }

// exploreAll explores an even sample of spaces: one of n.
func exploreAll(t *testing.T, spaces func() []space, n, row int) {
	t.Helper()
	efforttest.NotShort(t, "a scheduler lets one request go at a time")
	more := efforttest.More(t)
	for i, s := range spaces() {
		if !vaulttest.Sampled(n, row, i) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if !more() {
				t.Skip("there is no time left")
			}
			t.Parallel()
			spaces()[i].explore(t) // plans of its own: spaces share theirs
		})
	}
}

// The stores with which spaces begin.

func notStarted(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
	was = small("plan")
	vaulttest.Must(t, vaulttest.OnEmulator(t, server).Create(t.Context(), was))
	started := *was
	started.State.Status = workflow.Running
	return was, &started
}

func running(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
	return vaulttest.Running(t, vaulttest.OnEmulator(t, server), small("plan"))
}

// inPart is running with another state of an action.
func inPart(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
	was, _ = running(t, server)
	return was, withAction(was)
}

func final(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
	was, _ = vaulttest.Final(t, vaulttest.WorldOf(server), small("plan"))
	return was, nil
}

// brokenOff prepares the remains of a call on the target, which dies at its nth request, after the grace period.
func brokenOff(prepare preparation, n int, call func(ctx context.Context, v *azblob.Vault, target workflow.Plan) error) preparation {
	return func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
		was, _ = prepare(t, server)
		vaulttest.Dies(t, server, emulator.On().Nth(n), func(v *azblob.Vault) { _ = call(t.Context(), v, *was) })
		exists, err := vaulttest.OnEmulator(t, server).Exists(t.Context(), target)
		vaulttest.Must(t, err)
		time.Sleep(vaulttest.PastGrace)
		if !exists {
			return nil, nil
		}
		return was, nil
	}
}

// withAction returns a copy of a plan whose action has another state.
func withAction(plan *workflow.Plan) *workflow.Plan {
	copied := *plan
	block := *plan.Blocks[0]
	sequence := *block.Sequences[0]
	action := *sequence.Actions[0]
	action.State.End = action.State.End.Add(time.Hour)
	sequence.Actions = []*workflow.Action{&action}
	block.Sequences = []*workflow.Sequence{&sequence}
	copied.Blocks = []*workflow.Block{&block}
	return &copied
}

// partUpdater updates an action.
func partUpdater() actor {
	will := func(r *run) *workflow.Plan { return r.will }
	return updaterOf("updater", will, func(v *azblob.Vault, ctx context.Context, plan *workflow.Plan) error {
		action := *plan.Blocks[0].Sequences[0].Actions[0]
		return v.UpdateAction(ctx, &action)
	})
}

func spaces() (list []space) {
	first, second := creator("first", "first"), creator("second", "second")
	list = append(list,
		space{name: "two creators of one ID", actors: []actor{first, second}},
		space{name: "two creators of one ID with sub-objects of their own", actors: []actor{first, creatorOf("second", otherParts, (*azblob.Vault).Create)}},
		space{name: "two creators of one ID with two requests at a time", actors: []actor{first.wide(), second.wide()}},
	)
	for _, w := range []space{ // of writers without rivals, each beside each observer
		{name: "a creation", actors: []actor{first}},
		{name: "an update to Running", prepare: notStarted, actors: []actor{updater("updater")}},
		{name: "an update of a sub-object", prepare: inPart, actors: []actor{partUpdater()}},
		{name: "a completion", prepare: running, actors: []actor{updater("completer")}},
		{name: "a deletion", prepare: running, actors: []actor{deleter("deleter")}},
		{name: "a completion and a recovery", prepare: running, actors: []actor{updater("completer"), recoverer("recovery")}},
		{name: "a deletion and then a creation of the same ID", prepare: notStarted, actors: []actor{deleter("deleter"), second.then("deleter")}, replaced: true},
	} {
		for _, observer := range []actor{reader(), prober(), searcher(), lister()} {
			s := w
			s.name += " and a " + observer.name
			s.actors = append(slices.Clone(w.actors), observer)
			if observer.name == "lister" {
				s.pages = 1
				s.prepare = func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
					vaulttest.Created(t, vaulttest.OnEmulator(t, server), numbered(plantest.Small(), 2))
					if w.prepare == nil {
						return nil, nil
					}
					return w.prepare(t, server)
				}
			}
			list = append(list, s)
		}
	}
	return slices.Concat(list, recoverySpaces(), rivalSpaces(), takeovers())
}

// grace is time in pieces: to the end of the grace period, past it, and past the margin. No sum of them is a
// multiple of the time limit of a try, so no try ends while a request is chosen.
var grace = []time.Duration{9*time.Minute + 55*time.Second, 10 * time.Second, 5*time.Minute + 5*time.Second}

// long is time beyond grace period and margin, chosen in the same way.
var long = []time.Duration{15*time.Minute + 10*time.Second}

// frozen are the faults of actors that time freezes.
var frozen = []emulator.Effect{emulator.LostAnswer(), emulator.Crash(), emulator.Crash().Applied()}

// recoverySpaces returns the spaces of Recovery: beside other calls, and on their remains.
func recoverySpaces() []space {
	first, second, recovery := creator("first", "first"), creator("second", "second"), recoverer("recovery")
	slowFirst, slowSecond := first.returns(storage.ErrUnknown, storage.ErrUnavailable), second.returns(storage.ErrUnknown, storage.ErrUnavailable)
	slowDeleter := deleter("deleter").returns(storage.ErrNotFound, storage.ErrUnknown, storage.ErrUnavailable)
	soon := []time.Duration{20 * time.Second}
	list := []space{
		{name: "a creation and a recovery", actors: []actor{first, recovery}, effects: []emulator.Effect{emulator.Crash(), emulator.Crash().Applied(), inFlight}},
		{name: "a frozen creation and a recovery", actors: []actor{slowFirst, recovery}, clock: grace, effects: frozen},
		{name: "two creators of one ID and a recovery", actors: []actor{slowFirst, slowSecond, recovery}, clock: long},
		{name: "a frozen deletion and a recovery", prepare: final, actors: []actor{slowDeleter, recovery}, clock: long, effects: frozen},
		{name: "a frozen deletion that may be killed and a recovery", prepare: final, actors: []actor{slowDeleter, recovery}, clock: long, mortal: true},
		{name: "a creation and a recovery of a shorter grace period", actors: []actor{first, recovery.within(time.Second)}, clock: soon},
		{
			name:   "two creators of one ID with grace periods that differ and a recovery of the shorter one",
			actors: []actor{slowFirst, slowSecond.within(time.Second), recovery.within(time.Second)}, clock: soon,
		},
		{
			name: "a frozen completion and a recovery", prepare: running,
			actors: []actor{updater("completer").returns(storage.ErrUnknown), recovery}, clock: long, effects: frozen,
		},
	}
	creation := func(n int) preparation {
		unborn := func(*testing.T, *emulator.Server) (was, will *workflow.Plan) { return small("first"), nil }
		return brokenOff(unborn, n, func(ctx context.Context, v *azblob.Vault, plan workflow.Plan) error { return v.Create(ctx, &plan) })
	}
	deletion := func(n int) preparation {
		return brokenOff(running, n, func(ctx context.Context, v *azblob.Vault, plan workflow.Plan) error { return v.Delete(ctx, plan.ID) })
	}
	completion := func(n int) preparation {
		completed := func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
			_, was = running(t, server)
			return was, nil
		}
		return brokenOff(completed, n, func(ctx context.Context, v *azblob.Vault, plan workflow.Plan) error { return v.UpdatePlan(ctx, &plan) })
	}
	list = append(list, space{
		name: "a recovery of a creation broken off and then a creation of the same ID and a reader", prepare: creation(7),
		actors: []actor{recovery, second.then("recovery"), reader()}, replaced: true,
	})
	for _, n := range []int{3, 7} {
		name := fmt.Sprintf("two creators that clear a creation broken off at %d", n)
		list = append(list,
			space{name: name, prepare: creation(n), actors: []actor{first, second}},
			space{name: name + " and a recovery", prepare: creation(n), actors: []actor{first, second, recovery}})
	}
	for _, left := range []struct {
		name      string
		from, to  int
		brokenOff func(n int) preparation
		thereTo   int // the request before which the plan is still there
	}{
		{"creation", 3, 7, creation, 0},
		{"deletion", 3, 6, deletion, 3},
		{"completion", 2, 3, completion, 3},
	} {
		for n := left.from; n <= left.to; n++ {
			name, prepare := fmt.Sprintf("a %s broken off at %d", left.name, n), left.brokenOff(n)
			list = append(list, space{name: "two recoveries of " + name, prepare: prepare, actors: []actor{recovery, recoverer("other")}})
			if n <= left.thereTo {
				list = append(list, space{name: "a recovery of " + name + " and a reader", prepare: prepare, actors: []actor{recovery, reader()}})
			} else {
				list = append(list, space{name: "a recovery of " + name + " and a creation of the same ID", prepare: prepare, actors: []actor{recovery, second}})
			}
		}
	}
	return list
}

// rivalSpaces returns spaces of writers of the same plan that do not know of each other.
func rivalSpaces() (list []space) {
	deleter, other := deleter("deleter").returns(storage.ErrNotFound), deleter("other").returns(storage.ErrNotFound)
	for _, u := range []space{
		{name: "an update to Running", prepare: notStarted, actors: []actor{updater("updater")}},
		{name: "an update of a sub-object", prepare: inPart, actors: []actor{partUpdater()}},
		{name: "a completion", prepare: running, actors: []actor{updater("updater")}},
	} {
		update := u.actors[0].returns(storage.ErrNotFound)
		name := u.name + " and a deletion"
		list = append(list,
			space{name: name, prepare: u.prepare, actors: []actor{update, deleter}},
			space{name: name + " and a reader", prepare: u.prepare, actors: []actor{update, deleter, reader()}},
			space{name: name + " and a recovery", prepare: u.prepare, actors: []actor{update, deleter, recoverer("recovery")}},
		)
	}
	var failed *workflow.Plan
	twoEnds := func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
		was, will = running(t, server)
		copied := *will
		copied.State.Status, copied.Reason = workflow.Failed, workflow.BlockFailed
		failed = &copied
		return was, will
	}
	failing := updaterOf("second", func(*run) *workflow.Plan { return failed }, (*azblob.Vault).UpdatePlan)
	return append(list,
		space{name: "two completions", prepare: twoEnds, actors: []actor{updater("first").returns(storage.ErrConflict), failing.returns(storage.ErrConflict)}},
		space{name: "two deletions", prepare: running, actors: []actor{deleter, other}},
		space{
			name:   "a creation and then a deletion and a reader",
			actors: []actor{creator("first", "first").returns(storage.ErrUnknown), deleter.then("first"), reader()},
		},
	)
}

// TestReadBesideAnotherCreation deletes a plan and creates another one with the same ID between the two
// requests of a Read, which must return one of the two.
func TestReadBesideAnotherCreation(t *testing.T) {
	vaulttest.InBubble(t, "after a deletion", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		one, other := small("one"), small("another")
		vaulttest.Must(t, v.Create(t.Context(), one))
		meets := vaulttest.Meets(server, emulator.On().Nth(2).Do(emulator.Before(func() {
			vaulttest.Should(t, errors.Join(v.Delete(t.Context(), target), v.Create(t.Context(), other)))
		})))
		got := vaulttest.Reread(t, vaulttest.OnEmulator(t, server, meets, azblob.WithConcurrency(1)), one)
		if d := plantest.Diff(other, got); d != "" && plantest.Diff(one, got) != "" {
			t.Error(d)
		}
	})
}

// otherParts returns a plan with the target's ID whose sub-objects have other IDs.
func otherParts() *workflow.Plan {
	plan := numbered(plantest.Small(), 3)
	plan.ID, plan.Name, plan.Blocks[0].Name = target, "second", "second"
	driver.Complete(plan)
	return plan
}

// restorer restores the plan with a name and a status.
func restorer(name, plan string, status workflow.Status) actor {
	return creatorOf(name, func() *workflow.Plan { return inUse(small(plan), status) }, (*azblob.Vault).Restore)
}

// inUse gives a plan a status. It is the same in each run.
func inUse(plan *workflow.Plan, status workflow.Status) *workflow.Plan {
	for o := range workflow.Walk(plan) {
		o.Header().State.Status = workflow.Completed
	}
	plan.State.Status = status
	return plan
}

// openSearcher searches for open plans, as engines do.
func openSearcher() actor {
	return observer("open searcher", func(ctx context.Context, v *azblob.Vault, _ *run) (bool, workflow.Status, error) {
		found, err := storage.Collect(v.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}))
		for _, r := range found {
			if r.ID == target {
				return true, r.State.Status, err
			}
		}
		return false, unsaid, err
	})
}

// TestRestoreInterleavings explores a Restore beside readers, Creates, Deletes and Recovery.
func TestRestoreInterleavings(t *testing.T) { exploreAll(t, restoreSpaces, 3, 0) }

func restoreSpaces() (spaces []space) {
	second := creator("second", "second").returns(storage.ErrUnknown, storage.ErrUnavailable)
	recovery := recoverer("recovery")
	for _, status := range []workflow.Status{workflow.Running, workflow.Failed} {
		first := restorer("first", "one", status).returns(storage.ErrUnknown, storage.ErrUnavailable)
		observers := []actor{reader(), prober(), searcher()}
		if !status.Final() {
			observers = append(observers, openSearcher())
		}
		for _, o := range observers {
			spaces = append(spaces, space{name: fmt.Sprintf("a restore of %s and a %s", status, o.name), actors: []actor{first, o}})
		}
		spaces = append(
			spaces,
			space{name: fmt.Sprintf("a restore of %s and a creator", status), actors: []actor{first, second}},
			space{name: fmt.Sprintf("a restore of %s and a recovery", status), actors: []actor{first, recovery}},
			space{name: fmt.Sprintf("a frozen restore of %s and a recovery", status), actors: []actor{first, recovery}, clock: grace, effects: frozen},
			space{name: fmt.Sprintf("a restore of %s, a creator and a recovery", status), actors: []actor{first, second, recovery}, clock: long},
		)
	}
	return spaces
}
