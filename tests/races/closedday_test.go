package races_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
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
	var plan, later *workflow.Plan
	// prepare stores two final plans, and waits until their day is closed.
	prepare := func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		for n := 1; n <= 2; n++ {
			_, after := vaulttest.Running(t, v, numbered(small("plan"), n))
			vaulttest.Must(t, v.UpdatePlan(t.Context(), after))
			if n == 1 {
				plan = after
			}
		}
		again := *plan
		again.State.End = again.State.End.Add(time.Second)
		later = &again
		time.Sleep(vaulttest.UntilClosed)
	}
	catalogue := func(t *testing.T, server *emulator.Server) {
		prepare(t, server)
		vaulttest.Build(t, vaulttest.WithToken(t, server))
	}
	// without stores the second plan alone.
	without := func(t *testing.T, server *emulator.Server) {
		prepare(t, server)
		vaulttest.Must(t, vaulttest.WithToken(t, server).Delete(t.Context(), target))
	}
	builder := func(name string) actor {
		return actor{name: name, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
			_, err := v.Catalogue(ctx, azblob.CatalogueOptions{})
			return err
		}}
	}
	verifier := actor{name: "verifier", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
		_, err := v.Catalogue(ctx, azblob.CatalogueOptions{Verify: true})
		return err
	}}
	update := updater("updater", &later, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.UpdatePlan(ctx, plan) })
	expirer := func(name string) actor {
		return actor{name: name, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
			_, err := v.Expire(ctx, azblob.ExpireOptions{OlderThan: time.Hour})
			return err
		}}
	}
	held := func(t *testing.T, server *emulator.Server) {
		catalogue(t, server)
		vaulttest.Must(t, vaulttest.WithToken(t, server).Hold(t.Context(), bubbleDay))
	}
	headless := func(t *testing.T, server *emulator.Server) {
		prepare(t, server)
		vaulttest.Behead(server, plan)
	}
	releaser := actor{name: "releaser", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error { return v.Release(ctx, bubbleDay) }}
	holder := actor{name: "holder", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
		ctx, cancel := context.WithTimeout(ctx, patienceOfHold)
		defer cancel()
		return v.Hold(ctx, bubbleDay)
	}}
	restorer := actor{name: "recoverer", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
		_, err := v.Repair(ctx, azblob.RepairOptions{Thorough: true})
		return err
	}}
	// ends checks the plan when all actors have ended, and builds the catalogue.
	ends := func(thorough bool, more func(r *run, v *azblob.Vault, there *workflow.Plan)) func(r *run, v *azblob.Vault) {
		return func(r *run, v *azblob.Vault) {
			if thorough {
				time.Sleep(vaulttest.PastGrace)
				if _, err := v.Repair(r.Context(), azblob.RepairOptions{Thorough: true}); err != nil {
					r.Error(err)
				}
			}
			there := r.atEnd(v, plan, later, small("plan"))
			if more != nil {
				more(r, v, there)
			}
			vaulttest.Build(r.T, v)
			vaulttest.EqualListings(r.T, r.server)
		}
	}
	spaces := []space{
		{name: "builders", prepare: prepare, actors: []actor{builder("one"), builder("two")}},
		{name: "a builder and a deletion", prepare: prepare, actors: []actor{builder("builder"), deleter("deleter")}},
		{name: "a builder and the deletion of a catalogued plan", prepare: catalogue, actors: []actor{deleter("deleter"), builder("builder")}},
		{name: "a builder and an update", prepare: prepare, actors: []actor{builder("builder"), update}},
		{name: "a builder and the update of a catalogued plan", prepare: catalogue, actors: []actor{update, builder("builder")}},
		{name: "Verify and the update of a catalogued plan", prepare: catalogue, actors: []actor{update, verifier}},
		{name: "Verify and the deletion of a catalogued plan", prepare: catalogue, actors: []actor{deleter("deleter"), verifier}},
		{name: "a builder and a creation", prepare: without, actors: []actor{builder("builder"), creator("first", "plan")}},
		{name: "a builder and Recovery", prepare: prepare, actors: []actor{builder("builder"), deleter("deleter"), recoverer("recoverer")}, clock: []time.Duration{vaulttest.PastGrace}},
		{name: "a builder and a thorough Recovery", prepare: headless, actors: []actor{builder("builder"), restorer}},
		{
			name: "a builder and the thorough Recovery of a catalogued day", actors: []actor{restorer, builder("builder")},
			prepare: func(t *testing.T, server *emulator.Server) {
				headless(t, server)
				vaulttest.Build(t, vaulttest.WithToken(t, server))
			},
		},
		{name: "a thorough Recovery and an expiry", prepare: headless, actors: []actor{restorer, expirer("expirer")}},
		{name: "a builder and an expiry", prepare: prepare, actors: []actor{builder("builder"), expirer("expirer")}},
		{name: "two expiries", prepare: prepare, actors: []actor{expirer("one"), expirer("two")}},
		{name: "an expiry and a creation", prepare: without, actors: []actor{expirer("expirer"), creator("first", "plan")}},
		{name: "an expiry and a deletion", prepare: prepare, actors: []actor{expirer("expirer"), deleter("deleter")}},
		{name: "an expiry and Recovery", prepare: prepare, actors: []actor{expirer("expirer"), recoverer("recoverer")}, clock: []time.Duration{vaulttest.PastGrace}},
		{name: "a hold and a deletion", prepare: catalogue, actors: []actor{holder, deleter("deleter")}},
		{name: "a hold and an expiry", prepare: prepare, actors: []actor{holder, expirer("expirer")}},
		{name: "a release and a deletion", prepare: held, actors: []actor{releaser, deleter("deleter")}},
		{name: "a release and an expiry", prepare: held, actors: []actor{releaser, expirer("expirer")}},
		{name: "a release and a hold", prepare: held, actors: []actor{releaser, holder}},
		{name: "a lister beside a builder and an update", prepare: prepare, actors: []actor{builder("builder"), update, lister()}},
	}
	for i := range spaces {
		s := &spaces[i]
		has := func(name string) bool {
			return slices.ContainsFunc(s.actors, func(a actor) bool { return a.name == name })
		}
		var keeps kept
		s.each = func(r *run) {
			vaulttest.EqualListings(r.T, r.server)
			if has("holder") && !has("releaser") {
				keeps.check(r)
			}
		}
		s.judge = ends(strings.Contains(s.name, "thorough"), func(r *run, v *azblob.Vault, there *workflow.Plan) {
			if has("holder") {
				r.returned("holder", storage.ErrNotFound, context.DeadlineExceeded)
			}
			if has("releaser") {
				r.returned("releaser", storage.ErrNotFound)
			}
			expired := has("expirer") || has("one") && strings.Contains(s.name, "expir")
			if has("deleter") && r.returned("deleter", storage.ErrNotFound, storage.ErrHeld, storage.ErrConflict, storage.ErrUnavailable) && there != nil {
				r.Error("the deleter returned nil, and the plan is there")
			}
			if has("updater") && r.returned("updater", storage.ErrNotFound) && there != later {
				r.Error("the updater returned nil, and its update is lost")
			}
			if has("first") && r.returned("first", storage.ErrConflict, storage.ErrUnavailable) && there == nil {
				r.Error("the creator returned nil, and there is no plan")
			}
			if there == nil && !expired && !has("deleter") && !has("first") {
				r.Error("the plan is gone")
			}
		})
	}
	return spaces
}

// kept watches the plan of a day that is held.
type kept struct {
	run *run
	was bool // when Hold had returned
}

// check fails the run if the plan that was there when Hold had returned is gone.
func (k *kept) check(r *run) {
	r.Helper()
	holder := r.actor("holder")
	holder.mu.Lock()
	held := holder.ended && holder.err == nil
	holder.mu.Unlock()
	if !held {
		return
	}
	there := false
	for c := range r.server.Containers() {
		_, ok := r.server.Blob(c, "plans/"+target.String()+"-object.json")
		there = there || ok
	}
	if k.run != r {
		k.run, k.was = r, there
	}
	if k.was && !there {
		r.Error("a plan of the held day is gone")
	}
}

// TestClosedDayInterleavings holds rules K1 to K9 in the vault itself.
func TestClosedDayInterleavings(t *testing.T) {
	efforttest.NotShort(t, "a scheduler lets one request go at a time")
	for i, s := range closedSpaces() {
		if !vaulttest.Sampled(4, i, 1) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			closedSpaces()[i].explore(t) // plans of its own: spaces share theirs
		})
	}
}
