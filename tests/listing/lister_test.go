package listing_test

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// TestListingsBelieveNoFalse404 answers each request of each kind of listing with a false 404: all plans are found, or the
// listing ends with an error.
func TestListingsBelieveNoFalse404(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		time.Sleep(20 * 24 * time.Hour)
		now := time.Now()
		v := vaulttest.OnEmulator(t, server)
		var ids []uuid.UUID
		for i := range 5 {
			p := &workflow.Plan{ID: workflow.NewV7At(now.Add(-time.Duration(i) * 20 * time.Hour)), Name: strings.Repeat("long ", 4000)}
			vaulttest.Must(t, v.Create(t.Context(), p))
			ids = append(ids, p.ID)
		}
		for name, c := range map[string]struct {
			filters storage.Filters
			want    int
			probing bool
		}{
			"List":                    {storage.Filters{Limit: 100}, 5, false},
			"the newest":              {storage.Filters{Limit: 3}, 3, false},
			"of days that are probed": {storage.Filters{Limit: 100}, 5, true},
			"by ID":                   {storage.Filters{ByIDs: ids}, 5, false},
			"open plans":              {storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}}, 5, false},
			"of near days":            {storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}, After: now.Add(-24 * time.Hour), Before: now.Add(time.Hour)}, 2, false},
		} {
			for _, effect := range vaulttest.Absences {
				for nth, fired := 1, true; fired; nth++ {
					transport := server.Transport()
					rule := emulator.On(emulator.ListBlobs, emulator.HeadBlob, emulator.GetBlob, emulator.GetContainerProperties).Nth(nth).Do(effect)
					transport.Inject(rule)
					opts := []azblob.Options{settings.Over(transport)}
					if c.probing {
						transport.Inject(emulator.On(emulator.ListContainers).Do(vaulttest.Denied))
						opts = append(opts, azblob.Options{DayProbing: 10})
					}
					found, err := storage.Collect(vaulttest.OnEmulator(t, server, opts...).Search(t.Context(), c.filters))
					if err == nil && len(found) != c.want {
						t.Errorf("%s, %v at request %d: %d plans, want %d", name, effect, nth, len(found), c.want)
					}
					n, err := vaulttest.OnEmulator(t, server, opts...).Count(t.Context(), c.filters)
					if err == nil && c.filters.Limit == 0 && int(n) != c.want {
						t.Errorf("Count, %s, %v at request %d: %d plans, want %d", name, effect, nth, n, c.want)
					}
					fired = rule.Fired() > 0
				}
			}
		}
	})
}

// TestPageInTheFirstMinuteOfADay lists a window that begins with its day and lies within a minute.
func TestPageInTheFirstMinuteOfADay(t *testing.T) {
	vaulttest.InBubble(t, "a limit of one", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		older := vaulttest.Created(t, v, &workflow.Plan{})
		time.Sleep(time.Second)
		newer := vaulttest.Created(t, v, &workflow.Plan{})
		got := vaulttest.Collect(t, v, storage.Filters{BeforeID: newer.ID, Limit: 1})
		if len(got) != 1 || got[0].ID != older.ID {
			t.Errorf("got %v, want %s", got, older.ID)
		}
	})
}

// TestUnreadablePlans shows an error in place of a plan that can't be read, and the other plans.
func TestUnreadablePlans(t *testing.T) {
	refused := emulator.Answer(403, "AuthorizationFailure")
	open := storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}}
	for name, c := range map[string]struct {
		rule    *emulator.Rule // nil damages the metadata of the entry
		filters storage.Filters
		want    error
	}{
		"metadata":                             {nil, storage.Filters{Limit: 10}, storage.ErrCorrupt},
		"object":                               {emulator.On(emulator.HeadBlob).Path("-object"), open, storage.ErrDenied},
		"the end of its name":                  {emulator.On(emulator.GetBlob).Path("-entry"), storage.Filters{Limit: 10}, storage.ErrDenied},
		"the end of its name, of an open plan": {emulator.On(emulator.GetBlob).Path("-entry"), open, storage.ErrDenied},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			var ids []uuid.UUID // oldest first
			for _, name := range []string{"short", strings.Repeat("long ", 4000), "short, too"} {
				ids = append(ids, vaulttest.Created(t, v, &workflow.Plan{Name: name}).ID)
				time.Sleep(time.Second)
			}
			if c.rule != nil {
				c.rule.Where(func(r emulator.Request) bool { return strings.Contains(r.Blob, ids[1].String()) }).Do(refused)
				v = vaulttest.Faulty(t, server, c.rule)
			} else {
				d := vaulttest.DamagedOf(server, &workflow.Plan{ID: ids[1]})
				d.Put(d.Container, d.Name("entry"), nil, map[string]string{"schema": "1"})
			}
			found, err := v.Search(t.Context(), c.filters)
			vaulttest.Must(t, err)
			all := slices.Collect(found)
			var e *storage.Error
			if len(all) != 3 || all[0].Result.ID != ids[2] || !errors.As(all[1].Err, &e) || e.Plan != ids[1] || e.Op != "Search" || !errors.Is(e, c.want) || all[2].Result.ID != ids[0] {
				t.Errorf("got %.200v", all)
			}
		})
	}
}

// TestDayProbing lists where the identity may not list containers.
func TestDayProbing(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	deny := func() *emulator.Rule {
		return emulator.On(emulator.ListContainers).Do(vaulttest.Denied)
	}
	probing := func(t *testing.T, server *emulator.Server, days int, rules ...*emulator.Rule) *azblob.Vault {
		return vaulttest.OnEmulator(t, server, vaulttest.Meets(server, append(rules, deny())...), azblob.Options{DayProbing: days})
	}
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		time.Sleep(30*24*time.Hour + 10*time.Hour)
		var ids []uuid.UUID // of tomorrow, today, and so on
		for i := range 6 {
			p := &workflow.Plan{ID: workflow.NewV7At(time.Now().Add(20*time.Hour - time.Duration(i)*24*time.Hour))}
			vaulttest.Must(t, v.Create(t.Context(), p))
			ids = append(ids, p.ID)
		}
		for _, days := range []int{1, 3} {
			v := probing(t, server, days)
			server.ResetRequests()
			got := vaulttest.IDs(vaulttest.Collect(t, v, storage.Filters{Limit: 100}))
			if want := ids[:days+2]; !slices.Equal(got, want) {
				t.Errorf("%d days: got %v, want %v", days, got, want)
			}
			// The refused listing, each day by name, each day's plans, and the minutes of today and tomorrow.
			if n, want := len(server.Requests()), 1+2*(days+2)+2; n != want {
				t.Errorf("%d days: %d requests, want %d", days, n, want)
			}
			report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
			if err != nil || report.Days != days+2 || report.Open != days+2 {
				t.Errorf("%d days: %+v, %v", days, report, err)
			}
			open := vaulttest.Collect(t, v, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}})
			if len(open) != days+2 {
				t.Errorf("%d days: %d are open", days, len(open))
			}
		}
		ended := func(v *azblob.Vault, want error, text string) {
			t.Helper()
			list, err := v.List(t.Context(), 0)
			vaulttest.Must(t, err)
			all := slices.Collect(list)
			if len(all) != 1 || !errors.Is(all[0].Err, want) || !strings.Contains(all[0].Err.Error(), text) {
				t.Errorf("got %v, want %v, %q", all, want, text)
			}
		}
		ended(probing(t, server, 0), storage.ErrDenied, "use Options.DayProbing")
		// Without rights to any container it is denied; with rights to some these are shown.
		denied := emulator.On(emulator.GetContainerProperties).Do(emulator.Answer(403, "AuthorizationFailure"))
		ended(probing(t, server, 3, denied), storage.ErrDenied, "list containers")
		denied = emulator.On(emulator.GetContainerProperties).Nth(2).Do(emulator.Answer(403, "AuthorizationFailure"))
		if n := len(vaulttest.Collect(t, probing(t, server, 3, denied), storage.Filters{Limit: 100})); n != 4 {
			t.Errorf("%d plans in the containers that there are rights to", n)
		}
		// What is not a matter of rights is an error.
		ended(probing(t, server, 3, emulator.On(emulator.GetContainerProperties).Do(emulator.Answer(403, "AuthenticationFailed"))), storage.ErrDenied, "look for container")
		// An empty vault is an empty vault. A day that has come since is there, also after one false 404.
		fresh := emulator.New(emulator.Options{})
		lie := emulator.On(emulator.GetContainerProperties).Path("test-" + time.Now().UTC().Format(time.DateOnly)).Nth(4)
		v = probing(t, fresh, 3, lie.Do(emulator.Answer(404, "ContainerNotFound")))
		for i, want := range []int{0, 1, 1} {
			if n := len(vaulttest.Collect(t, v, storage.Filters{Limit: 100})); n != want {
				t.Errorf("listing %d: %d plans, want %d", i, n, want)
			}
			if i == 0 {
				vaulttest.Created(t, vaulttest.OnEmulator(t, fresh), &workflow.Plan{})
			}
		}
		if lie.Fired() == 0 {
			t.Error("no false 404")
		}
	})
}

// TestServiceWithoutStartFrom lists a day of many pages, and its open plans, from a service that does not know where to begin.
func TestServiceWithoutStartFrom(t *testing.T) {
	efforttest.NotShort(t, "it takes a minute under the race detector, which sees listings of fewer plans")
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{}), func(t *testing.T, server *emulator.Server) {
		time.Sleep(20 * time.Hour)
		const n, k = 8000, 1300 // more markers than a page has
		ids, open := vaulttest.Fill(t, server, n, k, 12*time.Hour)
		slices.Reverse(ids)
		slices.Reverse(open)
		v := vaulttest.WithToken(t, server, settings.Over(vaulttest.Startless(server.Transport())))
		for _, c := range []struct {
			filters  storage.Filters
			want     []uuid.UUID
			requests int
		}{
			{storage.Filters{Limit: n + 1}, ids, 18},              // each window is read from the beginning of the day
			{storage.Filters{Limit: 10}, ids[:10], 1 + 2 + 1 + 4}, // minutes and milliseconds, a window in vain, the day
			{storage.Filters{Limit: 10, BeforeID: ids[n/2]}, ids[n/2+1 : n/2+11], 1 + 6},
			{storage.Filters{After: workflow.Time(ids[10])}, ids[:10], 1 + 1 + 4},
			{storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}, open, 1 + 4 + k},
		} {
			server.ResetRequests()
			got := vaulttest.Collect(t, v, c.filters)
			if !slices.EqualFunc(got, c.want, func(r storage.ListResult, id uuid.UUID) bool { return r.ID == id }) {
				t.Errorf("%+v: %d plans, want %d", c.filters, len(got), len(c.want))
			}
			if requests := len(server.Requests()); requests > c.requests {
				t.Errorf("%+v: %d requests, want %d", c.filters, requests, c.requests)
			}
		}
	})
}

// TestLimitsSaveRequests looks at no more plans at once than are wanted.
func TestLimitsSaveRequests(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "of IDs", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		var ids []uuid.UUID
		for range 10 {
			ids = append(ids, vaulttest.Created(t, v, plantest.Small()).ID)
		}
		for _, limit := range []int{1, 2, 5, 10} {
			server.ResetRequests()
			got := vaulttest.Collect(t, v, storage.Filters{ByIDs: ids, Limit: limit})
			if requests := len(server.Requests()); len(got) != limit || requests != 2*limit {
				t.Errorf("limit %d: %d plans by %d requests", limit, len(got), requests)
			}
		}
	})
}

// TestListCosts lists the ten newest plans, or all, of vaults whose plans lie in time in every way, and holds requests,
// round trips and the bytes of the answers against budgets.
func TestListCosts(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	const minute = 1 << 16 * time.Millisecond // what the first digits of an ID tell
	now := time.Date(2000, 6, 15, 15, 0, 0, 0, time.UTC)
	midnight := now.Truncate(24 * time.Hour)
	every := func(before time.Time, d time.Duration, n int) (times []time.Time) {
		for i := range n {
			times = append(times, before.Add(-time.Duration(i)*d-time.Millisecond))
		}
		return times
	}
	random := func(from time.Time, span time.Duration, n int) (times []time.Time) {
		r := rand.New(rand.NewPCG(1, uint64(n)))
		for range n {
			times = append(times, from.Add(time.Duration(r.Int64N(int64(span)))))
		}
		return times
	}
	bursts := func(n int) (times []time.Time) {
		for _, at := range every(now, 67*time.Minute, 24) {
			times = append(times, random(at.Add(-10*time.Second), 10*time.Second, n)...)
		}
		return times
	}
	burst := now.Add(-time.Hour).Truncate(minute)
	for _, c := range []struct {
		name                   string
		now                    time.Time
		plans                  []time.Time
		limit                  int
		requests, trips, bytes int
	}{
		{"no plans", now, nil, 10, 2, 1, 500},
		{"3 plans", now, every(now, time.Hour, 3), 10, 3, 2, 10_000},
		{"10 a day for 20 days", now, every(now, 144*time.Minute, 200), 10, 4, 2, 60_000},
		{"1 a day for 20 days", now, every(now, 24*time.Hour, 20), 10, 12, 3, 40_000},
		{"1,000 a day", now, random(midnight, 15*time.Hour, 625), 10, 3, 2, 60_000},
		{"one a minute", now, every(now, time.Minute, 900), 10, 4, 3, 90_000},
		{"20,000 a day", now, random(midnight, 15*time.Hour, 12_500), 10, 3, 2, 130_000},
		{"a million a day", now, slices.Concat(every(now.Add(-6*minute), minute, 800), random(now.Add(-6*minute), 6*minute, 4560)), 10, 4, 3, 190_000},
		{"19 of 20 in the newest minute", now, slices.Concat(random(midnight, 14*time.Hour, 100), random(burst, minute/2, 1900)), 10, 5, 4, 270_000},
		{"19 of 20 in one minute before", now, slices.Concat(random(midnight, 15*time.Hour, 1000), random(burst, minute, 1900)), 10, 3, 2, 80_000},
		{"in the morning only", now.Add(8 * time.Hour), random(midnight.Add(8*time.Hour), 4*time.Hour, 1000), 10, 5, 4, 170_000},
		{"midnight just passed", midnight.Add(5 * time.Minute), random(midnight.Add(-24*time.Hour), 24*time.Hour+5*time.Minute, 1000), 10, 5, 3, 90_000},
		{"nothing today", midnight.Add(15 * time.Hour), random(midnight.Add(-24*time.Hour), 24*time.Hour, 1000), 10, 4, 3, 80_000},
		{"30 at once, every hour", now, bursts(30), 10, 4, 3, 200_000},
		{"2,000 in one millisecond", now, slices.Repeat([]time.Time{now.Add(-time.Hour)}, 2000), 10, 5, 4, 5_000_000},
		{"a year of days, 50 a day", now, random(now.AddDate(-1, 0, 0), 365*24*time.Hour, 365*50), 10, 4, 3, 180_000},
		{"all of 5,000 at even times", now, every(now, 10*time.Second, 5000), 0, 5, 4, 12_000_000},
		{"all of 5,000 a day", now, random(midnight, 15*time.Hour, 5000), 0, 5, 4, 12_000_000},
		{"all of 20,000 a day", now, random(midnight, 15*time.Hour, 20_000), 0, 11, 5, 49_000_000},
	} {
		vaulttest.InBubble(t, c.name, func(t *testing.T, server *emulator.Server) {
			time.Sleep(time.Until(c.now))
			like := &workflow.Plan{Name: "nightly report", Descr: "all regions, one after the other", GroupID: uuid.Max}
			vaulttest.Put(t, server, like, c.plans, func(int) bool { return false })
			var size atomic.Int64
			v := vaulttest.OnEmulator(t, server, settings.Over(vaulttest.Send(func(req *http.Request) (*http.Response, error) {
				time.Sleep(time.Second)
				resp, err := server.Transport().Do(req)
				if err == nil {
					var body []byte
					body, err = io.ReadAll(resp.Body)
					size.Add(int64(len(body)))
					resp.Body = io.NopCloser(bytes.NewReader(body))
				}
				return resp, err
			})))
			server.ResetRequests()
			started := time.Now()
			got, err := storage.Collect(v.List(t.Context(), c.limit))
			vaulttest.Must(t, err)
			requests, trips := len(server.Requests()), int(time.Since(started)/time.Second)
			want := slices.SortedFunc(slices.Values(c.plans), func(a, b time.Time) int { return b.Compare(a) })
			want = want[:min(cmp.Or(c.limit, len(want)), len(want))]
			if !slices.EqualFunc(got, want, func(r storage.ListResult, at time.Time) bool {
				return workflow.Time(r.ID).Equal(at.Truncate(time.Millisecond))
			}) {
				t.Errorf("got %d plans, not the newest %d", len(got), len(want))
			}
			t.Logf("%d requests, %d round trips, %d bytes", requests, trips, size.Load())
			if requests > c.requests || trips > c.trips || int(size.Load()) > c.bytes {
				t.Errorf("%d requests, %d round trips, %d bytes; %d, %d, %d are the budget", requests, trips, size.Load(), c.requests, c.trips, c.bytes)
			}
		})
	}
}

// TestRevisions updates sub-objects at random. The revisions of their plans change, and no others, also where the service
// ignores where a listing begins.
func TestRevisions(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		time.Sleep(20 * time.Hour) // half of the plans are of the next day
		v := vaulttest.OnEmulator(t, server)
		var plans []*workflow.Plan
		ids := map[*workflow.Plan]uuid.UUID{}
		for range 24 {
			p := plantest.Full()
			vaulttest.Must(t, v.Create(t.Context(), p))
			p.State.Status = workflow.Running
			vaulttest.Must(t, v.UpdatePlan(t.Context(), p))
			plans, ids[p] = append(plans, p), p.ID
			time.Sleep(20 * time.Minute)
		}
		startless := vaulttest.OnEmulator(t, server, settings.Over(vaulttest.Startless(server.Transport())))
		random := rand.New(rand.NewPCG(1, 2))
		was := map[uuid.UUID]string{}
		for n := range 30 {
			changed := map[uuid.UUID]bool{}
			for range random.IntN(4) {
				p := plans[random.IntN(len(plans))]
				parts := workflow.Parts(p)
				vaulttest.Must(t, storage.Update(t.Context(), v, parts[random.IntN(len(parts))]))
				changed[p.ID] = true
			}
			wanted := slices.Collect(maps.Values(ids))
			reader := v
			if n%2 == 1 {
				reader = startless
			}
			now, err := vaulttest.Offered[mirror.Reviser](reader).Revisions(t.Context(), wanted)
			if err != nil || len(now) != len(plans) {
				t.Fatalf("%d revisions, %v", len(now), err)
			}
			for id, r := range now {
				if n > 0 && changed[id] != (r != was[id]) {
					t.Errorf("plan %s: changed %t, revision %x after %x", id, changed[id], r, was[id])
				}
			}
			was = now
			some, err := vaulttest.Offered[mirror.Reviser](v).Revisions(t.Context(), wanted[:1+random.IntN(len(wanted))])
			for id, r := range some {
				if err != nil || r != now[id] {
					t.Errorf("plan %s alone: %v", id, err)
				}
			}
		}
		if _, err := vaulttest.Offered[mirror.Reviser](v).Revisions(t.Context(), []uuid.UUID{{}}); err == nil {
			t.Error("an ID that is none")
		}
	})
}
