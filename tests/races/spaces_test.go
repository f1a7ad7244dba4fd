package races_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
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
			t.Parallel()
			spaces()[i].explore(t, more) // plans of its own: spaces share theirs
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
		got := vaulttest.Reread(t, vaulttest.OnEmulator(t, server, meets, azblob.Options{Concurrency: 1}), one)
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

// lonely is a store whose members are kept apart, so its node takes any plan that is not its own: what a takeover
// promises does not depend on who is a member.
type lonely struct {
	storage.Vault
	storage.Control
}

// ownership is what the actors of a takeover did in one run, by name.
type ownership struct {
	mu    sync.Mutex
	run   *run
	nodes map[string]uuid.UUID
	ended map[string]bool // whose update to a final status returned nil
}

// note remembers the node of an actor, and whether it ended the plan.
func (o *ownership) note(a *acting, node uuid.UUID, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.run != a.run {
		o.run, o.nodes, o.ended = a.run, map[string]uuid.UUID{}, map[string]bool{}
	}
	o.nodes[a.name], o.ended[a.name] = node, ended
}

// runs ends a plan: its block, then the plan itself.
func runs(ctx context.Context, v storage.Vault, plan *workflow.Plan) error {
	block := plan.Blocks[0]
	for block.State.Status != workflow.Completed {
		block.State.Status++
		if err := v.UpdateBlock(ctx, block); err != nil {
			return err
		}
	}
	plan.State.Status = workflow.Completed
	return v.UpdatePlan(ctx, plan)
}

// zombie is the owner from before all takes. It knows the plan as it was begun.
func zombie(o *ownership) actor {
	return actor{name: "zombie", do: func(ctx context.Context, a *acting, v *azblob.Vault) error {
		mine, block := *a.run.was, *a.run.was.Blocks[0]
		mine.Blocks = []*workflow.Block{&block}
		err := runs(ctx, v, &mine)
		o.note(a, mine.Owner, err == nil)
		return err
	}}
}

// taker takes the plan and ends it. Without a rival, nothing that the zombie writes gets in its way.
func taker(name string, o *ownership, rival bool) actor {
	return actor{name: name, do: func(ctx context.Context, a *acting, v *azblob.Vault) error {
		n, err := fleet.Join(ctx, lonely{v, memvault.New(nil, memvault.Options{}).Control()}, fleet.Options{Name: name})
		if err != nil {
			return err
		}
		defer n.Leave(context.WithoutCancel(ctx))
		for round := 0; ; round++ {
			plan, err := n.Take(ctx, target)
			if err != nil || plan.State.Status.Final() {
				return err
			}
			if round > 0 {
				a.run.Errorf("%s met a conflict after its fence, and the plan was still its own", name)
			}
			err = runs(ctx, v, plan)
			o.note(a, n.ID(), err == nil)
			if !errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrUnknown) {
				return err
			}
			if !rival {
				a.run.Errorf("%s met a conflict after its fence: %v", name, err)
			}
		}
	}}
}

// takeovers returns the spaces of takes beside the former owner and each other.
func takeovers() (list []space) {
	o := new(ownership)
	prepare := func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
		v := vaulttest.OnEmulator(t, server)
		begun := numbered(&workflow.Plan{Name: "taken", Blocks: []*workflow.Block{{Name: "only"}}}, 1)
		vaulttest.Created(t, v, begun)
		begun.Owner, begun.Epoch, begun.State.Status = uuid.MustParse(numberedPrefix+"ffffffffffff"), 1, workflow.Running
		vaulttest.Must(t, v.UpdatePlan(t.Context(), begun))
		return begun, nil
	}
	judge := func(r *run, v *azblob.Vault) {
		ended := ""
		for _, a := range r.actors {
			a.may = []error{storage.ErrConflict, fleet.ErrFenced}
			r.returned(a)
			if o.run != r || !o.ended[a.name] {
				continue
			}
			if ended != "" {
				r.Errorf("both %s and %s ended the plan", ended, a.name)
			}
			ended = a.name
		}
		r.server.DeliverLate()
		if err := taker("alone", new(ownership), false).do(r.Context(), &acting{run: r}, v); err != nil {
			r.Errorf("a node that is alone can't end the plan: %v", err)
		}
		plan, err := v.Read(r.Context(), target)
		switch {
		case err != nil:
			r.Error(err)
		case plan.State.Status != workflow.Completed || plan.Blocks[0].State.Status != workflow.Completed:
			r.Errorf("the plan is %s, its block %s", plan.State.Status, plan.Blocks[0].State.Status)
		case ended != "" && plan.Owner != o.nodes[ended]:
			r.Errorf("%s ended the plan, and its owner is %s", ended, plan.Owner)
		}
		vaulttest.Settled(r.T, v)
	}
	for _, s := range []space{
		{name: "a take and the former owner", actors: []actor{taker("first", o, false), zombie(o)}},
		{name: "two takes", actors: []actor{taker("first", o, true), taker("second", o, true)}},
		{name: "two takes and the former owner", actors: []actor{taker("first", o, true), taker("second", o, true), zombie(o)}},
	} {
		s.prepare, s.judge = prepare, judge
		list = append(list, s)
	}
	return list
}

// bubbleDay is the day of the plans with numbered IDs.
var bubbleDay = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// patienceOfHold is how long a Hold in a space waits for an expiry, or for a Delete, which may be dead.
const patienceOfHold = 10 * time.Second

// closedSpaces are the spaces of calls that meet in a closed day. In each state of each run, a catalogue that can
// be read equals a listing.
func closedSpaces() []space {
	// prepare stores two final plans, and waits until their day is closed.
	prepare := func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
		v := vaulttest.OnEmulator(t, server)
		for n := 2; n >= 1; n-- {
			_, was = vaulttest.Running(t, v, numbered(small("plan"), n))
			vaulttest.Must(t, v.UpdatePlan(t.Context(), was))
		}
		later := *was
		later.State.End = later.State.End.Add(time.Second)
		time.Sleep(vaulttest.UntilClosed)
		return was, &later
	}
	// and prepares more.
	and := func(prepare preparation, more func(t *testing.T, v *azblob.Vault)) preparation {
		return func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
			was, will = prepare(t, server)
			more(t, vaulttest.WithToken(t, server))
			return was, will
		}
	}
	catalogue := and(prepare, vaulttest.Build)
	held := and(catalogue, func(t *testing.T, v *azblob.Vault) {
		vaulttest.Must(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(bubbleDay), workflow.Attribution{}))
	})
	headless := func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
		was, will = prepare(t, server)
		vaulttest.Behead(server, was)
		return was, will
	}
	// without stores the second plan alone.
	without := func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
		prepare(t, server)
		vaulttest.Must(t, vaulttest.WithToken(t, server).Delete(t.Context(), target))
		return nil, nil
	}
	// keeper makes a call whose errors are not judged.
	keeper := func(name string, call func(ctx context.Context, v *azblob.Vault) error) actor {
		return actor{name: name, lax: true, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error { return call(ctx, v) }}
	}
	builder := func(name string) actor {
		return keeper(name, func(ctx context.Context, v *azblob.Vault) error {
			return vaulttest.ErrOf(v.Admin().Catalogue(ctx, azblob.CatalogueOptions{}))
		})
	}
	verifier := keeper("verifier", func(ctx context.Context, v *azblob.Vault) error {
		return vaulttest.ErrOf(v.Admin().Catalogue(ctx, azblob.CatalogueOptions{Verify: true}))
	})
	restorer := keeper("recoverer", func(ctx context.Context, v *azblob.Vault) error {
		return vaulttest.ErrOf(v.Admin().Repair(audited.Mark(ctx), azblob.RepairOptions{Thorough: true}))
	})
	recoverer := keeper("recoverer", func(ctx context.Context, v *azblob.Vault) error { return v.Recovery(ctx) })
	expirer := func(name string) actor {
		a := keeper(name, func(ctx context.Context, v *azblob.Vault) error {
			return vaulttest.ErrOf(v.Admin().Expire(audited.Mark(ctx), azblob.ExpireOptions{OlderThanDays: 1}))
		})
		a.removes = true
		return a
	}
	releaser := actor{name: "releaser", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
		return v.Admin().Release(audited.Mark(ctx), storage.DayOf(bubbleDay), workflow.Attribution{})
	}}.returns(storage.ErrNotFound)
	holder := actor{name: "holder", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
		ctx, cancel := context.WithTimeout(ctx, patienceOfHold)
		defer cancel()
		return v.Admin().Hold(audited.Mark(ctx), storage.DayOf(bubbleDay), workflow.Attribution{})
	}}.returns(storage.ErrNotFound, context.DeadlineExceeded)
	update := updater("updater").returns(storage.ErrNotFound)
	deleter := deleter("deleter").returns(storage.ErrNotFound, storage.ErrHeld, storage.ErrConflict, storage.ErrUnavailable)
	creator := creator("first", "plan").returns(storage.ErrUnavailable)
	spaces := []space{
		{name: "builders", prepare: prepare, actors: []actor{builder("one"), builder("two")}},
		{name: "a builder and a deletion", prepare: prepare, actors: []actor{builder("builder"), deleter}},
		{name: "a builder and the deletion of a catalogued plan", prepare: catalogue, actors: []actor{deleter, builder("builder")}},
		{name: "a builder and an update", prepare: prepare, actors: []actor{builder("builder"), update}},
		{name: "a builder and the update of a catalogued plan", prepare: catalogue, actors: []actor{update, builder("builder")}},
		{name: "Verify and the update of a catalogued plan", prepare: catalogue, actors: []actor{update, verifier}},
		{name: "Verify and the deletion of a catalogued plan", prepare: catalogue, actors: []actor{deleter, verifier}},
		{name: "a builder and a creation", prepare: without, actors: []actor{builder("builder"), creator}},
		{name: "a builder and Recovery", prepare: prepare, actors: []actor{builder("builder"), deleter, recoverer}, clock: []time.Duration{vaulttest.PastGrace}},
		{name: "a builder and a thorough Repair", prepare: headless, actors: []actor{builder("builder"), restorer}},
		{name: "a builder and the thorough Repair of a catalogued day", prepare: and(headless, vaulttest.Build), actors: []actor{restorer, builder("builder")}},
		{name: "a thorough Repair and an expiry", prepare: headless, actors: []actor{restorer, expirer("expirer")}},
		{name: "a builder and an expiry", prepare: prepare, actors: []actor{builder("builder"), expirer("expirer")}},
		{name: "two expiries", prepare: prepare, actors: []actor{expirer("one"), expirer("two")}},
		{name: "an expiry and a creation", prepare: without, actors: []actor{expirer("expirer"), creator}},
		{name: "an expiry and a deletion", prepare: prepare, actors: []actor{expirer("expirer"), deleter}},
		{name: "an expiry and Recovery", prepare: prepare, actors: []actor{expirer("expirer"), recoverer}, clock: []time.Duration{vaulttest.PastGrace}},
		{name: "a hold and a deletion", prepare: catalogue, actors: []actor{holder, deleter}},
		{name: "a hold and an expiry", prepare: prepare, actors: []actor{holder, expirer("expirer")}},
		{name: "a release and a deletion", prepare: held, actors: []actor{releaser, deleter}},
		{name: "a release and an expiry", prepare: held, actors: []actor{releaser, expirer("expirer")}},
		{name: "a release and a hold", prepare: held, actors: []actor{releaser, holder}},
		{name: "a lister beside a builder and an update", prepare: prepare, actors: []actor{builder("builder"), update, lister()}},
	}
	for i := range spaces {
		s := &spaces[i]
		holds := slices.ContainsFunc(s.actors, func(a actor) bool { return a.name == "holder" })
		releases := slices.ContainsFunc(s.actors, func(a actor) bool { return a.name == "releaser" })
		s.each = func(r *run) {
			vaulttest.EqualListings(r.T, r.server)
			if holds && !releases {
				r.keeps()
			}
		}
		s.judge = func(r *run, v *azblob.Vault) {
			if strings.Contains(s.name, "thorough") {
				time.Sleep(vaulttest.PastGrace)
				if _, err := v.Admin().Repair(audited.Mark(r.Context()), azblob.RepairOptions{Thorough: true}); err != nil {
					r.Error(err)
				}
			}
			r.promises(v)
			vaulttest.Build(r.T, v)
			vaulttest.EqualListings(r.T, r.server)
		}
	}
	return spaces
}

// keeps fails the run if the plan was there after the Hold, and is gone.
func (r *run) keeps() {
	r.Helper()
	holder := r.actor("holder")
	holder.mu.Lock()
	held := holder.ended && holder.err == nil
	holder.mu.Unlock()
	there := r.glance().whole
	if held && r.kept && !there {
		r.Error("a plan of the held day is gone")
	}
	r.kept = held && there
}

// TestClosedDayInterleavings holds rules K1 to K9 in the vault itself.
func TestClosedDayInterleavings(t *testing.T) { exploreAll(t, closedSpaces, 4, 1) }
