package fleet_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// TestNewKeysShareSearches has a node claim 50 plans at once, each with a key that is new: they need few searches, and each is found
// by those that begin later.
func TestNewKeysShareSearches(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		searches := 0
		var mu sync.Mutex
		p.OnOp("Search", func(_ context.Context, c processtest.Call, do func() error) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			searches++
			return do()
		})
		n := join(t, p, fleet.Options{})
		var claims sync.WaitGroup
		for i := range 50 {
			plan := plantest.Sized(1, 1, 1)
			plan.Keys = []workflow.Key{{Name: fmt.Sprint("new ", i)}}
			must(t, p.Create(t.Context(), plan))
			claims.Go(func() { must(t, n.Claim(t.Context(), plan)) })
		}
		claims.Wait()
		if searches > 4 {
			t.Errorf("%d searches", searches)
		}
		control, _ := storage.As[storage.Control](p)
		for i := range 50 {
			if k, err := control.FindKey(t.Context(), fmt.Sprint("key:new ", i)); err != nil || len(k.Holders) != 1 || !k.Holders[0].Taken {
				t.Errorf("%+v, %v", k, err)
			}
		}
	})
}
