package races_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/tests/vaulttest"
)

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
	held := and(catalogue, func(t *testing.T, v *azblob.Vault) { vaulttest.Must(t, v.Hold(t.Context(), bubbleDay)) })
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
			return vaulttest.ErrOf(v.Catalogue(ctx, azblob.CatalogueOptions{}))
		})
	}
	verifier := keeper("verifier", func(ctx context.Context, v *azblob.Vault) error {
		return vaulttest.ErrOf(v.Catalogue(ctx, azblob.CatalogueOptions{Verify: true}))
	})
	restorer := keeper("recoverer", func(ctx context.Context, v *azblob.Vault) error {
		return vaulttest.ErrOf(v.Repair(ctx, azblob.RepairOptions{Thorough: true}))
	})
	recoverer := keeper("recoverer", func(ctx context.Context, v *azblob.Vault) error { return v.Recovery(ctx) })
	expirer := func(name string) actor {
		a := keeper(name, func(ctx context.Context, v *azblob.Vault) error {
			return vaulttest.ErrOf(v.Expire(ctx, azblob.ExpireOptions{OlderThan: time.Hour}))
		})
		a.removes = true
		return a
	}
	releaser := actor{name: "releaser", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error { return v.Release(ctx, bubbleDay) }}.returns(storage.ErrNotFound)
	holder := actor{name: "holder", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
		ctx, cancel := context.WithTimeout(ctx, patienceOfHold)
		defer cancel()
		return v.Hold(ctx, bubbleDay)
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
		{name: "a builder and a thorough Recovery", prepare: headless, actors: []actor{builder("builder"), restorer}},
		{name: "a builder and the thorough Recovery of a catalogued day", prepare: and(headless, vaulttest.Build), actors: []actor{restorer, builder("builder")}},
		{name: "a thorough Recovery and an expiry", prepare: headless, actors: []actor{restorer, expirer("expirer")}},
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
				if _, err := v.Repair(r.Context(), azblob.RepairOptions{Thorough: true}); err != nil {
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
