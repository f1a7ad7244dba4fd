package listing_test

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// TestCostOfOpenPlans counts the requests and the round trips of searches for open plans, and of Recovery, in vaults
// whose open plans are close together or far apart.
func TestCostOfOpenPlans(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	const latency, day = time.Second, 24 * time.Hour
	type budget struct{ lists, heads, trips int }
	among := func(plans, open int, span time.Duration) func(*testing.T, *emulator.Server) []uuid.UUID {
		return func(t *testing.T, server *emulator.Server) []uuid.UUID {
			_, ids := vaulttest.Fill(t, server, plans, open, span)
			return ids
		}
	}
	type vault struct {
		name             string
		open             func(*testing.T, *emulator.Server) []uuid.UUID // fills a vault and returns its open plans
		running, recover budget                                         // lists include that of the containers
	}
	vaults := []vault{
		{"all are open, on 14 days", among(1_000, 1_000, 14*day), budget{1 + 2*15, 20, 5}, budget{1 + 2*15, 40, 5}},
		{"one of five, on 14 days", among(5_000, 1_000, 14*day), budget{1 + 2*15, 20, 5}, budget{1 + 2*15, 40, 5}},
		{"one of ten, on 14 days", among(10_000, 1_000, 14*day), budget{1 + 2*15, 30, 5}, budget{1 + 2*15, 40, 5}},
		{"one of forty, on 14 days", among(40_000, 1_000, 14*day), budget{1 + 15 + 5, 1_000, 8}, budget{1 + 15 + 10, 2_000, 11}},
		{"all are open, on 14 days, and few on a busy one", func(t *testing.T, server *emulator.Server) []uuid.UUID {
			busy := among(20_000, 30, 20*time.Hour)(t, server)
			time.Sleep(15 * day)
			return append(busy, among(1_000, 1_000, 14*day)(t, server)...)
		}, budget{1 + 2*16, 50, 6}, budget{1 + 2*16, 80, 6}},
		{"all are open, on one day", among(2_500, 2_500, 20*time.Hour), budget{1 + 1 + 4, 0, 3}, budget{1 + 1 + 8, 0, 4}},
		{"one of four", among(4_000, 1_000, 20*time.Hour), budget{1 + 1 + 2, 0, 3}, budget{1 + 1 + 4, 0, 3}},
		{"one of ten", among(10_000, 1_000, 20*time.Hour), budget{1 + 1 + 4, 0, 4}, budget{1 + 1 + 4, 0, 3}},
		{"one of fifty", among(5_000, 100, 20*time.Hour), budget{1 + 1 + 1, 100, 2 + 1 + 2}, budget{1 + 1 + 1, 200, 2 + 1 + 4}},
		{"few", among(1_000, 20, 20*time.Hour), budget{1 + 1, 20, 3}, budget{1 + 1 + 1, 40, 4}},
	}
	if efforttest.Long() {
		vaults = append(vaults, vault{"the newest of a year", func(t *testing.T, server *emulator.Server) []uuid.UUID {
			vaulttest.Fill(t, server, 365, 0, 365*day)
			return among(1_000, 1_000, 90*time.Second)(t, server)
		}, budget{1 + 366 + 2 + 4, 0, 14}, budget{1 + 366 + 2 + 6, 0, 14}},
			vault{"few on each day of a year", among(1_000, 1_000, 365*day), budget{1 + 366, 1_000, 25}, budget{1 + 366, 2_000, 41}})
	}
	for _, c := range vaults {
		vaulttest.InBubbleOf(t, emulator.New(emulator.Options{Latency: latency}), func(t *testing.T, server *emulator.Server) {
			time.Sleep(366*day + 22*time.Hour)
			open := c.open(t, server)
			slices.Reverse(open)
			v := vaulttest.OnEmulator(t, server)
			check := func(what string, want budget, do func()) {
				server.ResetRequests()
				started := time.Now()
				do()
				heads := vaulttest.Sent(server, emulator.HeadBlob, "")
				got := budget{len(server.Requests()) - heads, heads, int(time.Since(started) / latency)}
				t.Logf("%s, %s: %+v", c.name, what, got)
				if got.lists > want.lists || got.heads > want.heads || got.trips > want.trips {
					t.Errorf("%s, %s: %+v, the budget is %+v", c.name, what, got, want)
				}
			}
			check("a search", c.running, func() {
				found := vaulttest.Collect(t, v, storage.Filters{ByStatus: []workflow.Status{workflow.Running}})
				if !slices.EqualFunc(found, open, func(r storage.ListResult, id uuid.UUID) bool { return r.ID == id }) {
					t.Errorf("%s: %d plans, want %d", c.name, len(found), len(open))
				}
			})
			check("Recovery", c.recover, func() {
				report, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
				if err != nil || report.Open != len(open) || len(report.Plans) > 0 {
					t.Errorf("%s: %+v, %v", c.name, report, err)
				}
			})
		})
	}
}

// crowd creates n open plans, and returns their IDs and statuses.
func crowd(t *testing.T, server *emulator.Server, n int) map[uuid.UUID]workflow.Status {
	t.Helper()
	v := vaulttest.OnEmulator(t, server)
	open := map[uuid.UUID]workflow.Status{}
	for i := range n {
		p := vaulttest.Created(t, v, plantest.Small())
		if i%2 == 0 {
			p.State.Status = workflow.Running
			vaulttest.Must(t, v.UpdatePlan(t.Context(), p))
		}
		open[p.ID] = p.State.Status
	}
	return open
}

// TestCrowd searches and recovers plans in all states that a crash can leave, alone and among many that are open, where
// the listing of the plans is whole, misses blobs, is refused, or begins elsewhere than asked. The results are the same,
// and so are those of a search where no container promises markers, and there are none.
func TestCrowd(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	plansOf := func(server *emulator.Server) *emulator.Rule {
		return emulator.On(emulator.ListBlobs).Where(func(r emulator.Request) bool { return strings.HasPrefix(r.Prefix, "plans/0") || r.Prefix == "plans/" })
	}
	services := map[string]func(*emulator.Server) []azblob.Options{
		"whole":    func(*emulator.Server) []azblob.Options { return nil },
		"no crowd": func(*emulator.Server) []azblob.Options { return nil },
		"one request at a time": func(*emulator.Server) []azblob.Options {
			return []azblob.Options{{Concurrency: 1}}
		},
		"a listing that misses entries": func(server *emulator.Server) []azblob.Options {
			return []azblob.Options{settings.Over(&vaulttest.ShortLister{Transport: server.Transport(), Name: "plans/[^<]*[02468ace]-entry", Times: -1})}
		},
		"a listing that misses objects": func(server *emulator.Server) []azblob.Options {
			return []azblob.Options{settings.Over(&vaulttest.ShortLister{Transport: server.Transport(), Name: "plans/[^<]*[02468ace]-object", Times: -1})}
		},
		"a listing that is refused": func(server *emulator.Server) []azblob.Options {
			return []azblob.Options{vaulttest.Meets(server, plansOf(server).Nth(1).Do(emulator.Answer(403, "AuthorizationFailure")))}
		},
	}
	for name, options := range services {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			n := 40 // enough that listing them is cheaper than looking at each
			if name == "no crowd" {
				n = 0
			}
			open := crowd(t, server, n)
			found, whole := vaulttest.Wreck(t, server)
			for _, p := range whole {
				if !p.State.Status.Final() {
					open[p.ID] = p.State.Status
				}
			}
			for _, statuses := range [][]workflow.Status{{workflow.NotStarted, workflow.Running}, {workflow.NotStarted}, {workflow.Running}} {
				got := vaulttest.Statuses(vaulttest.Collect(t, vaulttest.OnEmulator(t, server, options(server)...), storage.Filters{ByStatus: statuses}))
				want := maps.Clone(open)
				maps.DeleteFunc(want, func(_ uuid.UUID, s workflow.Status) bool { return !slices.Contains(statuses, s) })
				if !maps.Equal(got, want) {
					t.Errorf("%v: %d plans, want %d", statuses, len(got), len(want))
				}
			}
			time.Sleep(vaulttest.PastGrace)
			report, err := vaulttest.OnEmulator(t, server, options(server)...).Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
			if err != nil || len(report.Plans) != len(found) || report.Open != len(open) {
				t.Errorf("%d repairs, want %d, and %d open plans, want %d: %v", len(report.Plans), len(found), report.Open, len(open), err)
			}
			for _, p := range report.Plans {
				if !strings.HasPrefix(p.Found, found[p.ID]) || p.Did == "" {
					t.Errorf("%+v, want %q", p, found[p.ID])
				}
			}
			vaulttest.Sound(t, vaulttest.OnEmulator(t, server))
			for _, p := range whole {
				vaulttest.Same(t, vaulttest.OnEmulator(t, server), p)
			}
			for c := range server.Containers() {
				server.PutContainer(c, nil)
				for b := range server.Blobs(c) {
					if strings.HasPrefix(b.Name, "open/") {
						server.Remove(c, b.Name)
					}
				}
			}
			unmarked := vaulttest.Collect(t, vaulttest.OnEmulator(t, server), storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}})
			if !maps.Equal(vaulttest.Statuses(unmarked), open) {
				t.Errorf("without markers: %d plans, want %d", len(unmarked), len(open))
			}
		})
	}
}

// TestCrowdWithoutStartFrom looks at each plan if the service does not know where a listing begins, and wastes one
// page, whatever the number of days.
func TestCrowdWithoutStartFrom(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{}), func(t *testing.T, server *emulator.Server) {
		var open []uuid.UUID
		for range 2 {
			time.Sleep(23 * time.Hour)
			vaulttest.Fill(t, server, 3_000, 0, 20*time.Hour)
			_, ids := vaulttest.Fill(t, server, 100, 100, time.Minute)
			open = append(open, ids...)
		}
		v := vaulttest.WithToken(t, server, settings.Over(vaulttest.Startless(server.Transport())))
		server.ResetRequests()
		found, requests := vaulttest.Collect(t, v, storage.Filters{ByStatus: []workflow.Status{workflow.Running}}), vaulttest.Requests(server)
		want := map[emulator.Op]int{emulator.ListContainers: 1, emulator.ListBlobs: 2 + 1, emulator.HeadBlob: 200}
		if len(found) != len(open) || !maps.Equal(requests, want) {
			t.Errorf("%d plans with %v, want %v", len(found), requests, want)
		}
	})
}

// TestCrowdOfTheNewest finds the newest plans of a busy day with a listing although some old ones are open, too.
func TestCrowdOfTheNewest(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{}), func(t *testing.T, server *emulator.Server) {
		time.Sleep(22 * time.Hour)
		_, old := vaulttest.Fill(t, server, 5_000, 10, 20*time.Hour)
		_, open := vaulttest.Fill(t, server, 400, 400, time.Minute)
		server.ResetRequests()
		found := vaulttest.Collect(t, vaulttest.OnEmulator(t, server), storage.Filters{ByStatus: []workflow.Status{workflow.Running}})
		if n := len(server.Requests()); len(found) != len(old)+len(open) || n > 1+1+1+10 {
			t.Errorf("%d plans with %d requests", len(found), n)
		}
	})
}

// newPlans are the filters of a search for new plans, which a fleet repeats every few seconds.
func newPlans() storage.Filters {
	today := time.Now().UTC().Truncate(24 * time.Hour)
	return storage.Filters{
		ByStatus: []workflow.Status{workflow.NotStarted},
		After:    today.AddDate(0, 0, -1).Add(-time.Millisecond), Before: today.AddDate(0, 0, 1),
	}
}

// poll searches for new plans, and returns their IDs and the requests by operation.
func poll(t *testing.T, server *emulator.Server, v *azblob.Vault) (ids []uuid.UUID, requests map[emulator.Op]int) {
	t.Helper()
	server.ResetRequests()
	return vaulttest.IDs(vaulttest.Collect(t, v, newPlans())), vaulttest.Requests(server)
}

// TestPoll follows a vault that searches for new plans again and again.
func TestPoll(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		other, v := vaulttest.OnEmulator(t, server), vaulttest.OnEmulator(t, server)
		expect := func(what string, ids []uuid.UUID, requests map[emulator.Op]int) {
			t.Helper()
			got, sent := poll(t, server, v)
			if !slices.Equal(got, ids) || !maps.Equal(sent, requests) {
				t.Errorf("%s: found %v with %v, want %v with %v", what, got, sent, ids, requests)
			}
		}
		idle := map[emulator.Op]int{emulator.ListBlobs: 2}
		expect("no days", nil, map[emulator.Op]int{emulator.GetContainerProperties: 4}) // each is asked for twice
		plan := vaulttest.Created(t, other, plantest.Small())
		time.Sleep(24 * time.Hour)
		vaulttest.Created(t, other, plantest.Small())
		fresh := vaulttest.Created(t, other, plantest.Small())
		vaulttest.Must(t, other.Delete(t.Context(), fresh.ID))
		final, running := vaulttest.Created(t, other, plantest.Small()), vaulttest.Created(t, other, plantest.Small())
		for plan, status := range map[*workflow.Plan]workflow.Status{final: workflow.Completed, running: workflow.Running} {
			plan.State.Status = status
			vaulttest.Must(t, other.UpdatePlan(t.Context(), plan))
		}
		all := vaulttest.Collect(t, other, newPlans())
		two := []uuid.UUID{all[0].ID, all[1].ID}
		expect("two new plans, two other ones", two, map[emulator.Op]int{emulator.GetContainerProperties: 2, emulator.ListBlobs: 2, emulator.HeadBlob: 2*2 + 1})
		expect("again", two, map[emulator.Op]int{emulator.ListBlobs: 2, emulator.HeadBlob: 2 * 2})
		for _, id := range two {
			p, err := other.Read(t.Context(), id)
			vaulttest.Must(t, err)
			p.State.Status = workflow.Running
			vaulttest.Must(t, other.UpdatePlan(t.Context(), p))
		}
		expect("they have started", nil, map[emulator.Op]int{emulator.ListBlobs: 2, emulator.HeadBlob: 2})
		expect("idle", nil, idle)
		both := newPlans()
		both.ByStatus = append(both.ByStatus, workflow.Running)
		if found := vaulttest.Collect(t, v, both); len(found) != 3 {
			t.Errorf("%d open plans, want 3", len(found))
		}
		expect("after a search for open plans", nil, idle)

		// The same ID again is another plan, and has another marker.
		vaulttest.Must(t, other.Delete(t.Context(), plan.ID))
		again := &workflow.Plan{ID: plan.ID, Name: "again"}
		vaulttest.Created(t, other, again)
		expect("created again", []uuid.UUID{plan.ID}, map[emulator.Op]int{emulator.ListBlobs: 2, emulator.HeadBlob: 2})

		// A day that was dropped, and made anew by others without its layout, may have plans without markers.
		day := "test-" + workflow.Time(running.ID).UTC().Format(time.DateOnly)
		server.RemoveContainer(day)
		expect("a day was dropped", []uuid.UUID{plan.ID}, map[emulator.Op]int{emulator.GetContainerProperties: 1, emulator.ListContainers: 1, emulator.ListBlobs: 2, emulator.HeadBlob: 2})
		time.Sleep(time.Minute) // the name is free again
		server.PutContainer(day, nil)
		last := vaulttest.Created(t, other, plantest.Small())
		server.Remove(day, "open/"+last.ID.String())
		expect("a day without markers", []uuid.UUID{last.ID, plan.ID}, map[emulator.Op]int{emulator.GetContainerProperties: 1, emulator.ListBlobs: 2, emulator.HeadBlob: 2})

		time.Sleep(3 * 24 * time.Hour)
		expect("other days", nil, map[emulator.Op]int{emulator.GetContainerProperties: 4})
	})
}

// TestCostOfAPoll counts the requests of a search for new plans beside thousands of running ones.
func TestCostOfAPoll(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	n := efforttest.Pick(500, 1_000, 10_000)
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{}), func(t *testing.T, server *emulator.Server) {
		time.Sleep(24 * time.Hour)
		vaulttest.Fill(t, server, 1, 0, 12*time.Hour) // a final plan of yesterday
		time.Sleep(20 * time.Hour)
		_, open := vaulttest.Fill(t, server, n, n, 12*time.Hour)
		v := vaulttest.OnEmulator(t, server)
		for round, want := range []map[emulator.Op]int{
			{emulator.GetContainerProperties: 2},
			{},
		} {
			ids, requests := poll(t, server, v)
			lists := requests[emulator.ListBlobs]
			delete(requests, emulator.ListBlobs)
			t.Logf("round %d, %d running: %v and %d listings", round, len(open), requests, lists)
			if len(ids) > 0 || !maps.Equal(requests, want) || lists > 2+vaulttest.Ceil(n, 5000)+1+(1-round)*(1+vaulttest.Ceil(16*n, 5000)) {
				t.Errorf("round %d, %d running: found %d with %v and %d listings", round, len(open), len(ids), requests, lists)
			}
		}
	})
}

// TestNearDays searches near days where the identity may not list containers, and where it has no rights to
// some of them.
func TestNearDays(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		deny := func(op emulator.Op) *emulator.Rule {
			return emulator.On(op).Do(vaulttest.Denied)
		}
		if ids, _ := poll(t, server, vaulttest.Faulty(t, server, deny(emulator.ListContainers))); len(ids) != 1 || ids[0] != plan.ID {
			t.Errorf("without the right to list containers: %v", ids)
		}
		yesterday := deny(emulator.GetContainerProperties).Path("test-" + time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly))
		for _, test := range []struct {
			rule    *emulator.Rule
			probing int
			found   int
			want    error
		}{
			{yesterday, 0, 0, storage.ErrDenied},
			{yesterday, 1, 1, nil},
			{deny(emulator.GetContainerProperties), 1, 0, storage.ErrDenied},
			{emulator.On(emulator.GetContainerProperties).Do(emulator.Answer(400, "InvalidHeaderValue")), 1, 0, storage.ErrDenied},
		} {
			v := vaulttest.OnEmulator(t, server, vaulttest.Meets(server, test.rule), azblob.Options{DayProbing: test.probing})
			found, err := storage.Collect(v.Search(t.Context(), newPlans()))
			if len(found) != test.found || !errors.Is(err, test.want) {
				t.Errorf("%v, probing %d: %v, %v", test.rule, test.probing, found, err)
			}
		}
	})
}

// TestNearDaysAreThoseOfTheFilters compares searches of near days with a listing of all.
func TestNearDaysAreThoseOfTheFilters(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		midnight := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, 1)
		time.Sleep(20 * time.Hour)
		for _, at := range []time.Duration{-24*time.Hour - time.Millisecond, -24 * time.Hour, -time.Millisecond, 0, time.Millisecond, 3 * time.Hour} {
			vaulttest.Created(t, v, &workflow.Plan{ID: workflow.NewV7At(midnight.Add(at))})
		}
		bounds := []time.Duration{-25 * time.Hour, -24*time.Hour - 1, -24 * time.Hour, -24*time.Hour + 1, -time.Millisecond, -1, 0, 1, time.Millisecond, 2 * time.Hour, 4 * time.Hour, 96 * time.Hour}
		all := vaulttest.Collect(t, v, storage.Filters{Limit: 100})
		for i, after := range bounds {
			for _, before := range bounds[i+1:] {
				f := storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}, After: midnight.Add(after), Before: midnight.Add(before)}
				var want []uuid.UUID
				for _, r := range all {
					if at := workflow.Time(r.ID); at.After(f.After) && at.Before(f.Before) {
						want = append(want, r.ID)
					}
				}
				if got := vaulttest.IDs(vaulttest.Collect(t, v, f)); !slices.Equal(got, want) {
					t.Errorf("from %v to %v: %d plans, want %d", after, before, len(got), len(want))
				}
			}
		}
	})
}

// TestOpenPlansAtRandom searches random vaults for open plans, page after page, on services that cut pages short, know no
// start or leave plans out. It finds what was put there. If the service is plain, the requests for the plans cost at most
// half as much again as a HEAD of each.
func TestOpenPlansAtRandom(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for seed := range efforttest.Seeds(t, 0, 50, 100_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		one := func(of ...int) int { return of[r.IntN(len(of))] }
		options, plain := []emulator.Options{{PageLimit: one(5000, 5000, 700, 90)}}, false
		switch r.IntN(3) {
		case 0:
			options = []emulator.Options{{RealAnswers: seed}}
		case 1:
			options, plain = nil, true
		}
		vaulttest.InBubbleOf(t, emulator.New(merge.Fields(options...)), func(t *testing.T, server *emulator.Server) {
			time.Sleep(10*24*time.Hour + time.Duration(r.Int64N(int64(24*time.Hour))))
			var times []time.Time
			isOpen := map[time.Time]bool{}
			for range 1 + r.IntN(5) {
				began, span := time.Duration(r.Int64N(int64(5*24*time.Hour))), one(1e8, 1e11, 1e12, 1e14)
				for n, most := r.IntN(one(10, 100, 800)), one(1, 3, 10, 40, 400); n >= 0; n-- {
					at := time.Now().Add(-began - time.Duration(r.IntN(span)))
					times, isOpen[at] = append(times, at), r.IntN(most) == 0
				}
			}
			slices.SortFunc(times, time.Time.Compare)
			var want []uuid.UUID
			for i, id := range vaulttest.Put(t, server, plantest.Small(), times, func(i int) bool { return isOpen[times[i]] }) {
				if isOpen[times[i]] {
					want = append(want, id)
				}
			}
			slices.SortFunc(want, driver.NewestFirst)
			opts := []azblob.Options{{Concurrency: one(1, 3, 256)}}
			switch r.IntN(4) {
			case 0:
				plain, opts = false, append(opts, settings.Over(vaulttest.Startless(server.Transport())))
			case 1:
				plain, opts = false, append(opts, settings.Over(&vaulttest.ShortLister{Transport: server.Transport(), Name: "plans/[^<]*[02468ace]-entry", Times: -1}))
			}
			v := vaulttest.OnEmulator(t, server, opts...)
			f := storage.Filters{ByStatus: []workflow.Status{workflow.Running}, Limit: one(0, 0, 30, 200)}
			var got []uuid.UUID
			for {
				server.ResetRequests()
				page := vaulttest.IDs(vaulttest.Collect(t, v, f))
				sent := vaulttest.Requests(server)
				lists := len(slices.DeleteFunc(server.Requests(), func(r emulator.Request) bool { return r.Op != emulator.ListBlobs || r.Prefix == "open/" }))
				if plain && f.Limit == 0 && 2*(25*lists/2+sent[emulator.HeadBlob]) > 3*len(want) {
					t.Errorf("seed %d: %d plans by %d listings and %d HEADs", seed, len(want), lists, sent[emulator.HeadBlob])
				}
				if got = append(got, page...); f.Limit == 0 || len(page) < f.Limit {
					break
				}
				f.BeforeID = page[len(page)-1]
			}
			if !slices.Equal(got, want) {
				t.Errorf("seed %d: %d plans, want %d", seed, len(got), len(want))
			}
		})
	}
}
