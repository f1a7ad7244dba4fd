package listing_test

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

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
	for _, r := range vaulttest.Collect(t, v, newPlans()) {
		ids = append(ids, r.ID)
	}
	requests = map[emulator.Op]int{}
	for _, r := range server.Requests() {
		requests[r.Op]++
	}
	return ids, requests
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
	vaulttest.InBubbleOf(t, emulator.New(), func(t *testing.T, server *emulator.Server) {
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
			transport := server.Transport()
			transport.Inject(test.rule)
			v := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport), azblob.WithDayProbing(test.probing))
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
				var got []uuid.UUID
				for _, r := range vaulttest.Collect(t, v, f) {
					got = append(got, r.ID)
				}
				if !slices.Equal(got, want) {
					t.Errorf("from %v to %v: %d plans, want %d", after, before, len(got), len(want))
				}
			}
		}
	})
}
