package mirror_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// TestKeysOfACopy: a copy has what operators have set of keys, and no holders. What they set no longer is removed, unless a
// listing has missed it.
func TestKeysOfACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		put := func(k storage.KeyRecord) storage.KeyRecord {
			var err error
			k.Version, err = from.Control().PutKey(t.Context(), k)
			must(t, err)
			return k
		}
		holders := []storage.Holder{{Plan: workflow.NewV7(), Taken: true}}
		limited := put(storage.KeyRecord{Name: "limited", Limit: 3, By: workflow.Attribution{By: "ana", At: time.Now()}, Searched: true, Holders: holders})
		paused := put(storage.KeyRecord{Name: "paused", PausedUntil: time.Now().Add(time.Hour), Searched: true})
		put(storage.KeyRecord{Name: "held", Searched: true, Holders: holders})
		expect := func(want ...storage.KeyRecord) {
			t.Helper()
			keys, err := storage.Collect(to.Control().Keys(t.Context()))
			must(t, err)
			if len(keys) != len(want) {
				t.Fatalf("the copy has %+v", keys)
			}
			for _, k := range want {
				found, err := to.Control().FindKey(t.Context(), k.Name)
				must(t, err)
				if found.Limit != k.Limit || !found.PausedUntil.Equal(k.PausedUntil) || found.By.By != k.By.By || found.Searched || len(found.Holders) > 0 {
					t.Errorf("the copy has %+v of %+v", found, k)
				}
			}
		}
		for _, name := range []string{"limited", "held", "left"} { // of a time before the vault became a copy
			_, err := to.Control().PutKey(t.Context(), storage.KeyRecord{Name: name, Searched: true, Holders: holders})
			must(t, err)
		}
		run(t, from, to, mirror.Options{})
		expect(limited, paused)
		limited.Limit = 2
		limited = put(limited)
		copied := count(to)
		run(t, from, copied, mirror.Options{})
		if expect(limited, paused); copied.calls["PutKey"] != 1 {
			t.Errorf("the copy was written with %v", copied.calls)
		}
		blind := hooked.Wrap(from, hooked.On("Keys", func(c *hooked.Call) error {
			c.Keys = func(func(storage.Stream[storage.ListedKey]) bool) {}
			return nil
		}))
		run(t, blind, to, mirror.Options{})
		expect(limited, paused)
		paused.PausedUntil = time.Time{}
		put(paused)
		must(t, from.Control().RemoveKey(t.Context(), "limited", limited.Version))
		run(t, from, to, mirror.Options{})
		expect()
	})
}

// TestUniquesOfACopy: in a promoted copy, no second plan gets the Unique of an open one. Of two open ones, that which works has it.
// Promote may fail meanwhile, and is repeated.
func TestUniquesOfACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		unique := func(text string, status workflow.Status) *workflow.Plan {
			time.Sleep(time.Millisecond)
			p := plantest.Small()
			p.Unique = text
			must(t, from.Create(t.Context(), p))
			moveOn(t, from, p, status)
			return p
		}
		open := unique("open", workflow.NotStarted)
		unique("open", workflow.NotStarted)
		waits, works := unique("works", workflow.Running), unique("works", workflow.Running)
		waits.Epoch, waits.WakeAt, waits.WaitsFor = 1, time.Now(), "works"
		update(t, from, waits)
		unique("over", workflow.Completed)
		run(t, from, to, mirror.Options{})
		failing := true
		hook := hooked.Wrap(to, hooked.On("PutKey", func(c *hooked.Call) error {
			if failing && c.Key.Name == "unique:works" {
				return &storage.Error{Op: c.Op, Err: storage.ErrUnavailable}
			}
			return c.Do()
		}))
		if err := mirror.Promote(t.Context(), hook, by); !errors.Is(err, storage.ErrUnavailable) {
			t.Fatalf("it was promoted: %v", err)
		}
		if _, err := to.Control().FindNote(t.Context(), storage.NoteSuspended); err != nil {
			t.Errorf("it is open: %v", err)
		}
		failing = false
		must(t, mirror.Promote(t.Context(), hook, by))
		for text, want := range map[string]uuid.UUID{"open": open.ID, "works": works.ID, "over": uuid.Nil} {
			second := plantest.Small()
			second.ID, second.Unique = workflow.NewV7(), text
			holder, err := fleet.ReserveUnique(t.Context(), to, second)
			if holder != want || errors.Is(err, storage.ErrExists) != (want != uuid.Nil) {
				t.Errorf("plan %s has %q: %v", holder, text, err)
			}
		}
	})
}
