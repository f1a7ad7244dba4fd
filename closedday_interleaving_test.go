package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// bubbleDay is the day of the plans with numbered IDs.
var bubbleDay = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// untilClosed is how long after a bubble begins its first day is closed.
const untilClosed = 60 * time.Hour

// catalogued reports whether a store has a catalogue that can be read, and not just a placeholder.
func catalogued(server *emulator.Server) bool {
	for c := range server.Containers() {
		if b, ok := server.Blob(c, "catalogue"); ok && len(b.Body) > 0 {
			return true
		}
	}
	return false
}

// equalListings checks that the catalogues of a store show what its listings show.
func equalListings(t *testing.T, server *emulator.Server) {
	t.Helper()
	if !catalogued(server) {
		return
	}
	plain := server.Clone()
	for c := range plain.Containers() {
		plain.Remove(c, "catalogue")
	}
	for _, f := range []storage.Filters{{}, {ByStatus: []workflow.Status{workflow.Completed}}, {ByIDs: []uuid.UUID{target}}} {
		want, got := shownBy(t, plain, f), shownBy(t, server.Clone(), f)
		if !slices.Equal(want, got) {
			t.Errorf("with %+v a catalogue shows\n%v\nand a listing\n%v", f, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// shownBy returns the results of a listing as text.
func shownBy(t *testing.T, server *emulator.Server, f storage.Filters) (lines []string) {
	t.Helper()
	v := withToken(t, server)
	list, err := v.List(t.Context(), 0)
	if f.ByIDs != nil || f.ByStatus != nil {
		list, err = v.Search(t.Context(), f)
	}
	results, err := storage.Collect(list, err)
	if err != nil {
		t.Error(err)
	}
	for _, r := range results {
		lines = append(lines, fmt.Sprintf("%+v", r))
	}
	return lines
}

// closedSpaces are the spaces of calls that meet in a closed day. In each state of each run, a catalogue that can
// be read equals a listing.
func closedSpaces() []space {
	var plan, later *workflow.Plan
	// prepare stores two final plans, and waits until their day is closed.
	prepare := func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		for n := 1; n <= 2; n++ {
			_, after := running(t, v, numbered(small("plan"), n))
			if err := v.UpdatePlan(t.Context(), after); err != nil {
				t.Fatal(err)
			}
			if n == 1 {
				plan = after
			}
		}
		again := *plan
		again.State.End = again.State.End.Add(time.Second)
		later = &again
		time.Sleep(untilClosed)
	}
	catalogue := func(t *testing.T, server *emulator.Server) {
		prepare(t, server)
		build(t, withToken(t, server))
	}
	// without stores the second plan alone.
	without := func(t *testing.T, server *emulator.Server) {
		prepare(t, server)
		if err := withToken(t, server).Delete(t.Context(), target); err != nil {
			t.Fatal(err)
		}
	}
	builder := func(name string) actor {
		return actor{name: name, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
			_, err := v.Catalogue(ctx, azblob.CatalogueOptions{})
			return err
		}}
	}
	update := updater("updater", &later, func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error { return v.UpdatePlan(ctx, plan) })
	expirer := func(name string) actor {
		return actor{name: name, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
			_, err := v.Expire(ctx, azblob.ExpireOptions{OlderThan: time.Hour})
			return err
		}}
	}
	holder := actor{name: "holder", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error { return v.Hold(ctx, bubbleDay) }}
	restorer := actor{name: "recoverer", do: func(ctx context.Context, _ *acting, v *azblob.Vault) error {
		_, err := v.Recover(ctx, azblob.RecoverOptions{Thorough: true})
		return err
	}}
	// ends checks the plan when all actors have ended, and builds the catalogue.
	ends := func(thorough bool, more func(r *run, v *azblob.Vault, there *workflow.Plan)) func(r *run, v *azblob.Vault) {
		return func(r *run, v *azblob.Vault) {
			if thorough {
				time.Sleep(pastGrace)
				if _, err := v.Recover(r.Context(), azblob.RecoverOptions{Thorough: true}); err != nil {
					r.Error(err)
				}
			}
			there := r.atEnd(v, plan, later, small("plan"))
			if more != nil {
				more(r, v, there)
			}
			build(r.T, v)
			equalListings(r.T, r.server)
		}
	}
	spaces := []space{
		{name: "builders", prepare: prepare, actors: []actor{builder("one"), builder("two")}},
		{name: "a builder and a deletion", prepare: prepare, actors: []actor{builder("builder"), deleter("deleter")}},
		{name: "a builder and the deletion of a catalogued plan", prepare: catalogue, actors: []actor{deleter("deleter"), builder("builder")}},
		{name: "a builder and an update", prepare: prepare, actors: []actor{builder("builder"), update}},
		{name: "a builder and the update of a catalogued plan", prepare: catalogue, actors: []actor{update, builder("builder")}},
		{name: "a builder and a creation", prepare: without, actors: []actor{builder("builder"), creator("first", "plan")}},
		{name: "a builder and Recovery", prepare: prepare, actors: []actor{builder("builder"), deleter("deleter"), recoverer("recoverer")}, clock: []time.Duration{pastGrace}},
		{
			name: "a builder and a thorough Recovery", actors: []actor{builder("builder"), restorer},
			prepare: func(t *testing.T, server *emulator.Server) {
				prepare(t, server)
				for c := range server.Containers() {
					server.Remove(c, "plans/"+target.String()+"-entry.json")
				}
			},
		},
		{name: "a builder and an expiry", prepare: prepare, actors: []actor{builder("builder"), expirer("expirer")}},
		{name: "two expiries", prepare: prepare, actors: []actor{expirer("one"), expirer("two")}},
		{name: "an expiry and a creation", prepare: without, actors: []actor{expirer("expirer"), creator("first", "plan")}},
		{name: "an expiry and a deletion", prepare: prepare, actors: []actor{expirer("expirer"), deleter("deleter")}},
		{name: "an expiry and Recovery", prepare: prepare, actors: []actor{expirer("expirer"), recoverer("recoverer")}, clock: []time.Duration{pastGrace}},
		{name: "a hold and a deletion", prepare: catalogue, actors: []actor{holder, deleter("deleter")}},
		{name: "a hold and an expiry", prepare: prepare, actors: []actor{holder, expirer("expirer")}},
		{name: "a lister beside a builder and an update", prepare: prepare, actors: []actor{builder("builder"), update, lister()}},
	}
	for i := range spaces {
		s := &spaces[i]
		has := func(name string) bool {
			return slices.ContainsFunc(s.actors, func(a actor) bool { return a.name == name })
		}
		s.each = func(r *run) { equalListings(r.T, r.server) }
		s.judge = ends(strings.Contains(s.name, "thorough"), func(r *run, v *azblob.Vault, there *workflow.Plan) {
			held := false
			if has("holder") {
				held = r.returned("holder", storage.ErrNotFound)
			}
			expired := has("expirer") || has("one") && strings.Contains(s.name, "expir")
			if has("deleter") && r.returned("deleter", storage.ErrNotFound, storage.ErrHeld, storage.ErrConflict) && there != nil {
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
			if deleted := has("deleter") && !errors.Is(r.actor("deleter").err, storage.ErrHeld); held && there == nil && !deleted {
				r.Error("the plan of a held day is gone")
			}
		})
	}
	return spaces
}

// build builds the catalogues that are due.
func build(t *testing.T, v *azblob.Vault) {
	t.Helper()
	report, err := v.Catalogue(t.Context(), azblob.CatalogueOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range report.Skipped {
		if !strings.Contains(s.Reason, "open") {
			t.Errorf("%v is skipped: %s", s.Day, s.Reason)
		}
	}
}

// TestClosedDayInterleavings holds rules K1 to K9 in the vault itself.
func TestClosedDayInterleavings(t *testing.T) {
	for i, s := range closedSpaces() {
		if !sampled(4, i, 0) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			closedSpaces()[i].explore(t) // plans of its own: spaces share theirs
		})
	}
}
