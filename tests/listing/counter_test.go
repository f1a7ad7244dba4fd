package listing_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestCostOfFilters counts the requests of searches and counts in a vault of 20 days. Each day is one page.
func TestCostOfFilters(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	vaulttest.InBubble(t, "20 days", func(t *testing.T, server *emulator.Server) {
		time.Sleep(12 * time.Hour)
		const days = 20
		now := time.Now()
		_, open := vaulttest.Fill(t, server, 4*days, 2, (days-1)*24*time.Hour)
		v := vaulttest.OnEmulator(t, server)
		const aDay = 24 * time.Hour
		for _, c := range []struct {
			f storage.Filters
			// requests are those of Count and of Search, which is not asked if the filters are empty.
			requests int
		}{
			{f: storage.Filters{}, requests: 1 + days},
			{f: storage.Filters{After: now.Add(-5 * aDay)}, requests: 1 + 6},
			{f: storage.Filters{IDContains: open[0].String(), ByStatus: []workflow.Status{workflow.Running}}, requests: 1 + days + 1},
			{f: storage.Filters{ByGroupIDs: []uuid.UUID{uuid.New()}}, requests: 1 + days},
			{f: storage.Filters{NamePrefix: "one"}, requests: 1 + days},
			{f: storage.Filters{NameContains: "many"}, requests: 1 + days},
			{f: storage.Filters{ByStatus: []workflow.Status{workflow.Running, workflow.Failed}, NameContains: "x"}, requests: 1 + days},
			{f: storage.Filters{ByStatus: []workflow.Status{workflow.Running}, NameContains: "x"}, requests: 1 + days + len(open)},
			{f: storage.Filters{EndedAfter: now.Add(-5 * aDay)}, requests: 1 + days},
			{f: storage.Filters{EndedBefore: now.Add(-5 * aDay)}, requests: 1 + days - 4},
			{f: storage.Filters{EndedBefore: now.Add(-5 * aDay), After: now.Add(-8 * aDay)}, requests: 1 + 5},
			{f: storage.Filters{EndedBefore: now.Add(-5 * aDay), After: now.Add(-6 * aDay)}, requests: 3}, // by name; they are known
			{f: storage.Filters{EndedBefore: now.Add(-5 * aDay), After: now}, requests: 1},
		} {
			server.ResetRequests()
			if _, err := v.Count(t.Context(), c.f); err != nil {
				t.Fatal(err)
			}
			if n := len(server.Requests()); n != c.requests {
				t.Errorf("Count %+v: %d requests, want %d", c.f, n, c.requests)
			}
			if _, err := v.Search(t.Context(), c.f); err != nil {
				continue
			}
			server.ResetRequests()
			if vaulttest.Collect(t, v, c.f); len(server.Requests()) != c.requests {
				t.Errorf("Search %+v: %d requests, want %d", c.f, len(server.Requests()), c.requests)
			}
		}
	})
}

// TestCostOfLongNames counts the entries that searches read because metadata has only the beginning of a name,
// and the round trips that this takes.
func TestCostOfLongNames(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{Latency: time.Second}), func(t *testing.T, server *emulator.Server) {
		time.Sleep(time.Hour)
		now := time.Now()
		v := vaulttest.OnEmulator(t, server)
		const n = 40
		long := strings.Repeat("long ", 2000)
		for i := range n {
			vaulttest.Created(t, v, &workflow.Plan{ID: workflow.NewV7At(now.Add(-time.Duration(i) * time.Minute)), Name: fmt.Sprintf("%s number %d.", long, i)})
		}
		all := storage.Filters{After: now.Add(-time.Hour), Before: now.Add(time.Minute)} // one day, which the vault asks for by name
		vaulttest.Collect(t, v, all)
		for _, c := range []struct {
			what               string
			set                func(f *storage.Filters)
			count              bool
			found, gets, trips int
		}{
			{"no name", func(*storage.Filters) {}, false, n, n, 2},
			{"no name", func(*storage.Filters) {}, true, n, 0, 1},
			{"another prefix", func(f *storage.Filters) { f.NamePrefix = "lost" }, false, 0, 0, 1},
			{"the beginning", func(f *storage.Filters) { f.NamePrefix, f.NameContains = "long ", "g l" }, true, n, 0, 1},
			{"a longer prefix", func(f *storage.Filters) { f.NamePrefix = long + " number 1" }, true, 11, n, 2},
			{"another longer prefix", func(f *storage.Filters) { f.NamePrefix = "L" + long }, true, 0, 0, 1},
			{"the end", func(f *storage.Filters) { f.NameContains = "number 39." }, true, 1, n, 2},
			{"the newest", func(f *storage.Filters) { f.NameContains, f.Limit = "number 0.", 1 }, false, 1, 1, 2},
			{"the oldest", func(f *storage.Filters) { f.NameContains, f.Limit = "number 39.", 1 }, false, 1, n, 7}, // 1, 2, 4, 8, 16 and 9 at once
		} {
			f := all
			c.set(&f)
			server.ResetRequests()
			start := time.Now()
			var found int
			if c.count {
				counted, err := v.Count(t.Context(), f)
				vaulttest.Must(t, err)
				found = int(counted)
			} else {
				found = len(vaulttest.Collect(t, v, f))
			}
			gets := vaulttest.Sent(server, emulator.GetBlob, "")
			trips := int(time.Since(start) / time.Second)
			if found != c.found || gets != c.gets || trips != c.trips {
				t.Errorf("%s, count %t: %d plans by reading %d entries in %d round trips, want %d, %d, %d", c.what, c.count, found, gets, trips, c.found, c.gets, c.trips)
			}
		}
	})
}

// TestCountOfWhatCantBeRead counts the other plans beside one whose metadata is damaged, and beside one whose
// name can't be read to its end. A plan that was deleted after the listing does not count, and is no error.
func TestCountOfWhatCantBeRead(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "metadata", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		var bad *workflow.Plan
		for range 3 {
			bad = vaulttest.Created(t, v, plantest.Small())
		}
		container := "test-" + time.Now().UTC().Format(time.DateOnly)
		server.Put(container, "plans/"+bad.ID.String()+"-entry.json", nil, map[string]string{"schema": "1"})
		var e *storage.Error
		for _, f := range []storage.Filters{{}, {ByStatus: []workflow.Status{workflow.NotStarted, workflow.Failed}}} {
			n, err := v.Count(t.Context(), f)
			if n != 2 || !errors.As(err, &e) || e.Plan != bad.ID || e.Op != "Count" || !errors.Is(err, storage.ErrCorrupt) {
				t.Errorf("%+v: %d, %v", f, n, err)
			}
		}
	})
	vaulttest.InBubble(t, "the second page", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		vaulttest.Created(t, v, &workflow.Plan{ID: workflow.NewV7At(time.Now().Add(-24 * time.Hour))})
		vaulttest.Created(t, v, plantest.Small())
		v = vaulttest.Faulty(t, server, emulator.On(emulator.ListBlobs).Nth(2).Do(emulator.Answer(403, "AuthorizationFailure")))
		if n, err := v.Count(t.Context(), storage.Filters{}); n != 0 || !errors.Is(err, storage.ErrDenied) {
			t.Errorf("%d, %v", n, err)
		}
	})
	for _, c := range []struct {
		fault emulator.Effect
		want  error
	}{
		{emulator.Answer(403, "AuthorizationFailure"), storage.ErrDenied},
		{emulator.Answer(404, "BlobNotFound"), nil},
	} {
		vaulttest.InBubble(t, fmt.Sprint("entry, ", c.want), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			vaulttest.Created(t, v, &workflow.Plan{Name: "short end"})
			bad := vaulttest.Created(t, v, &workflow.Plan{Name: strings.Repeat("long ", 4000) + "end"})
			v = vaulttest.Faulty(t, server, emulator.On(emulator.GetBlob).Path("-entry").Do(c.fault))
			n, err := v.Count(t.Context(), storage.Filters{NameContains: "end"})
			var e *storage.Error
			if n != 1 || !errors.Is(err, c.want) || c.want != nil && (!errors.As(err, &e) || e.Plan != bad.ID) {
				t.Errorf("Count: %d, %v", n, err)
			}
			found, err := storage.Collect(v.List(t.Context(), 0))
			if len(found) != 1 || !errors.Is(err, c.want) {
				t.Errorf("List: %d, %v", len(found), err)
			}
		})
	}
}

// TestLimitBesideUnreadablePlans lists one plan of a time in which none can be read.
func TestLimitBesideUnreadablePlans(t *testing.T) {
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{}), func(t *testing.T, server *emulator.Server) {
		time.Sleep(time.Hour)
		now := time.Now()
		v := vaulttest.OnEmulator(t, server)
		for i := range 5 {
			p := vaulttest.Created(t, v, &workflow.Plan{ID: workflow.NewV7At(now.Add(-time.Duration(i) * time.Minute))})
			server.Put("test-"+now.UTC().Format(time.DateOnly), "plans/"+p.ID.String()+"-entry.json", nil, map[string]string{"schema": "1"})
		}
		server.ResetRequests()
		server.Inject(emulator.On().Nth(50).Do(emulator.Answer(403, "AuthorizationFailure"))) // ends an endless listing
		found, err := v.Search(t.Context(), storage.Filters{After: now.Add(-30 * time.Minute), Limit: 1})
		vaulttest.Must(t, err)
		errs := 0
		for r := range found {
			if errs++; !errors.Is(r.Err, storage.ErrCorrupt) {
				t.Errorf("got %+v", r)
			}
		}
		if n := len(server.Requests()); errs != 5 || n > 6 { // a scan that no longer wants a plan takes another one
			t.Errorf("%d errors by %d requests", errs, n)
		}
	})
}
