package mirror_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/hooked"
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
