package costs_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
)

// TestCostOfManyKeys bounds what a look at all keys, a sweep of their turns and a look of a node at the roster cost beside the
// records of many keys, of which one in a hundred has a plan. docs/fleet.md has the figures.
func TestCostOfManyKeys(t *testing.T) {
	efforttest.NotShort(t, "it counts")
	n := efforttest.Pick(5_000, 5_000, 100_000)
	server := emulator.New(emulator.Options{})
	v, err := azblob.NewFromConnectionString(t.Context(), "keys", server.ConnectionString(), plantest.Register(), azblob.Options{ClientOptions: server.ClientOptions()})
	vaulttest.Must(t, err)
	node, err := fleet.Join(t.Context(), v, fleet.Options{Interval: time.Hour, NoGauges: true})
	vaulttest.Must(t, err)
	plan := plantest.Sized(1, 1, 1)
	vaulttest.Must(t, v.Create(t.Context(), plan))
	vaulttest.Must(t, node.Claim(t.Context(), plan))
	held := n / 100
	for i := range n {
		k := storage.KeyRecord{Name: fmt.Sprintf("key:cluster %06d", i), Searched: true}
		if i < held {
			k.Holders = []storage.Holder{{Plan: plan.ID, Limit: 1, Taken: true}}
		}
		_, err := v.Control().PutKey(t.Context(), k)
		vaulttest.Must(t, err)
	}
	pages := (n + 4999) / 5000
	for _, test := range []struct {
		what     string
		requests int
		do       func() error
	}{
		{"Keys", pages + 4, func() error {
			all, err := fleet.Keys(t.Context(), v)
			if len(all) != n {
				t.Errorf("Keys returns %d keys", len(all))
			}
			return err
		}},
		{"SweepTurns", pages + 3*held, func() error { return fleet.SweepTurns(t.Context(), v, time.Now()) }},
		{"Inspect", pages/5 + 8, func() error {
			_, err := fleet.Inspect(t.Context(), v, fleet.InspectOptions{})
			return err
		}},
		{"Roster", 1, func() error {
			_, err := v.Control().Roster(t.Context())
			return err
		}},
	} {
		server.ResetRequests()
		began, used := time.Now(), processorTime()
		vaulttest.Must(t, test.do())
		used, took := processorTime()-used, time.Since(began)
		requests, bytes := 0, int64(0)
		for _, r := range server.Requests() {
			requests++
			bytes += r.Out
		}
		t.Logf("%s beside %d keys: %d requests, %d kB, %v of processor time with the emulator's, in %v", test.what, n, requests, bytes/1000, used.Round(time.Millisecond), took.Round(time.Millisecond))
		if requests > test.requests {
			t.Errorf("%s made %d requests, at most %d are allowed", test.what, requests, test.requests)
		}
	}
	if k, err := v.Control().FindKey(t.Context(), "key:cluster 000000"); err != nil || len(k.Holders) != 1 || k.Holders[0].Plan != plan.ID {
		t.Errorf("after the sweep, the record is %+v: %v", k, err)
	}
	vaulttest.Must(t, node.Leave(t.Context()))
}
