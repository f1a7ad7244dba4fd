package azblob_test

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// A vault that has seen plans enough in the last hours asks for no other minutes of today, which take most of
// the bytes of a busy day. It finds the same plans, also when the last hours turn out to be quiet.
func TestListAgain(t *testing.T) {
	inBubble(t, "a plan a minute", func(t *testing.T, server *emulator.Server) {
		now := time.Date(2000, 6, 15, 15, 0, 0, 0, time.UTC)
		time.Sleep(time.Until(now))
		var plans []time.Time
		for i := range 800 {
			plans = append(plans, now.Add(-time.Duration(i)*time.Minute-time.Millisecond))
		}
		put(t, server, plans)
		var bytes atomic.Int64
		v := onEmulator(t, server, azblob.WithTransport(metered{delayed{server.Transport()}, &bytes}))
		list := func(name string, most, requests, trips int, before *storage.ListResult) (last storage.ListResult) {
			t.Helper()
			bytes.Store(0)
			server.ResetRequests()
			f := storage.Filters{Limit: 10}
			want := plans
			if before != nil {
				f.BeforeID = before.ID
				at := workflow.Time(before.ID)
				want = slices.DeleteFunc(slices.Clone(plans), func(p time.Time) bool { return !p.Before(at) })
			}
			started := time.Now()
			got := collect(t, v, f)
			took := int(time.Since(started) / time.Second)
			if !slices.EqualFunc(got, want[:10], func(r storage.ListResult, at time.Time) bool { return workflow.Time(r.ID).Equal(at) }) {
				t.Fatalf("%s: got %d plans, not the newest", name, len(got))
			}
			if n := len(server.Requests()); n > requests || took > trips || int(bytes.Load()) > most {
				t.Errorf("%s: %d requests, %d round trips, %d bytes; %d, %d, %d are the budget", name, n, took, bytes.Load(), requests, trips, most)
			}
			return got[9]
		}
		list("first", 80_000, 4, 3, nil)
		tenth := list("second", 50_000, 4, 3, nil)
		list("page", 80_000, 4, 3, &tenth)
		time.Sleep(5 * time.Hour)
		list("quiet hours", 90_000, 5, 4, nil)
		list("after quiet hours", 90_000, 4, 3, nil)
	})
}
