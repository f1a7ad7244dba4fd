package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// idAt returns a new ID of a time.
func idAt(at time.Time) uuid.UUID {
	id := workflow.NewV7()
	ms := at.UnixMilli()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}

// collect gathers a listing, failing the test at any Err.
func collect(t *testing.T, v *azblob.Vault, f storage.Filters) []storage.ListResult {
	t.Helper()
	found, err := v.Search(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	var out []storage.ListResult
	for r := range found {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		out = append(out, r.Result)
	}
	return out
}

// TestSearch holds every filter against what it should choose, over several days.
func TestSearch(t *testing.T) {
	inBubble(t, "all filters", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		now := time.Now().UTC()
		groups := []uuid.UUID{uuid.Nil, uuid.New(), uuid.New()}
		statuses := []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed, workflow.Failed}
		var plans []*workflow.Plan // newest first
		for i := range 24 {
			p := plantest.Small()
			p.ID = idAt(now.Add(-time.Duration(i) * 5 * time.Hour))
			p.Name, p.GroupID = fmt.Sprint(i), groups[i%3]
			if err := v.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			if s := statuses[i%4]; s != workflow.NotStarted {
				p.State.Status = s
				if err := v.UpdatePlan(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
			plans = append(plans, p)
		}
		created := func(i int) time.Time { return workflow.Time(plans[i].ID) }
		for name, f := range map[string]struct {
			filters storage.Filters
			want    func(i int) bool
		}{
			"limit alone":        {storage.Filters{Limit: 3}, func(i int) bool { return i < 3 }},
			"one group":          {storage.Filters{ByGroupIDs: groups[1:2]}, func(i int) bool { return i%3 == 1 }},
			"two groups":         {storage.Filters{ByGroupIDs: groups[1:]}, func(i int) bool { return i%3 != 0 }},
			"one status":         {storage.Filters{ByStatus: statuses[1:2]}, func(i int) bool { return i%4 == 1 }},
			"open":               {storage.Filters{ByStatus: statuses[:2]}, func(i int) bool { return i%4 < 2 }},
			"none":               {storage.Filters{ByStatus: []workflow.Status{workflow.Stopped}}, func(int) bool { return false }},
			"group and status":   {storage.Filters{ByGroupIDs: groups[1:2], ByStatus: statuses[2:]}, func(i int) bool { return i%3 == 1 && i%4 >= 2 }},
			"after":              {storage.Filters{After: created(7)}, func(i int) bool { return i < 7 }},
			"before":             {storage.Filters{Before: created(7)}, func(i int) bool { return i > 7 }},
			"between":            {storage.Filters{After: created(20), Before: created(3)}, func(i int) bool { return i > 3 && i < 20 }},
			"before ID":          {storage.Filters{BeforeID: plans[5].ID}, func(i int) bool { return i > 5 }},
			"page":               {storage.Filters{BeforeID: plans[5].ID, Limit: 4}, func(i int) bool { return i > 5 && i < 10 }},
			"page of a group":    {storage.Filters{BeforeID: plans[5].ID, ByGroupIDs: groups[1:2], Limit: 2}, func(i int) bool { return i == 7 || i == 10 }},
			"IDs":                {storage.Filters{ByIDs: []uuid.UUID{plans[9].ID, plans[2].ID, idAt(now), plans[2].ID}}, func(i int) bool { return i == 2 || i == 9 }},
			"IDs and status":     {storage.Filters{ByIDs: []uuid.UUID{plans[9].ID, plans[2].ID}, ByStatus: statuses[2:3]}, func(i int) bool { return i == 2 }},
			"IDs and limit":      {storage.Filters{ByIDs: []uuid.UUID{plans[9].ID, plans[2].ID}, Limit: 1}, func(i int) bool { return i == 2 }},
			"IDs and before":     {storage.Filters{ByIDs: []uuid.UUID{plans[9].ID, plans[2].ID}, Before: created(2)}, func(i int) bool { return i == 9 }},
			"limit beyond plans": {storage.Filters{Limit: 100}, func(int) bool { return true }},
		} {
			var want, got []string
			for i, p := range plans {
				if f.want(i) {
					want = append(want, p.Name)
				}
			}
			for _, r := range collect(t, v, f.filters) {
				got = append(got, r.Name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", name, got, want)
			}
		}
		// Pages by key cover everything once.
		var paged []string
		f := storage.Filters{Limit: 5}
		for {
			page := collect(t, v, f)
			if len(page) == 0 {
				break
			}
			for _, r := range page {
				paged = append(paged, r.Name)
			}
			f.BeforeID = page[len(page)-1].ID
		}
		if len(paged) != len(plans) || !slices.IsSortedFunc(paged, func(a, b string) int { return len(a) - len(b) }) {
			t.Errorf("pages give %v", paged)
		}
	})
}

// TestStrangeTexts brings names and descriptions of every kind back unchanged.
func TestStrangeTexts(t *testing.T) {
	onServices(t, func(t *testing.T, open func(opts ...azblob.Option) *azblob.Vault) {
		v := open()
		texts := slices.Collect(plantest.Strange())
		texts = append(texts, fmt.Sprintf("%0100000d", 1), fmt.Sprintf("ж%0100000d", 1))
		plans := map[uuid.UUID]*workflow.Plan{}
		for i, text := range texts {
			plan := &workflow.Plan{Name: texts[len(texts)-1-i], Descr: text}
			if err := v.Create(t.Context(), plan); err != nil {
				t.Fatalf("%.40q: %v", text, err)
			}
			plans[plan.ID] = plan
			if d := plantest.Diff(plan, reread(t, v, plan)); d != "" {
				t.Errorf("%.40q: %s", text, d)
			}
			if i%2 == 0 {
				plan.State.Status = workflow.Running // the entry is written anew
				if err := v.UpdatePlan(t.Context(), plan); err != nil {
					t.Fatal(err)
				}
			}
		}
		ids := make([]uuid.UUID, 0, len(plans))
		for id := range plans {
			ids = append(ids, id)
		}
		for _, f := range []storage.Filters{{Limit: 1000}, {ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}, {ByIDs: ids}} {
			found := collect(t, v, f)
			if len(found) != len(plans) {
				t.Errorf("%d plans of %d", len(found), len(plans))
			}
			for _, r := range found {
				if p := plans[r.ID]; r.Name != p.Name || r.Descr != p.Descr || r.State.Status != p.State.Status {
					t.Errorf("got %.60q, %.60q, want %.60q, %.60q", r.Name, r.Descr, p.Name, p.Descr)
				}
			}
		}
		sound(t, v)
	})
}

// TestListPages pages through many plans with faults on every page: nothing twice, nothing missed.
func TestListPages(t *testing.T) {
	for _, effect := range []emulator.Effect{
		emulator.Answer(503, "ServerBusy"), emulator.Answer(500, "OperationTimedOut"), emulator.LostAnswer(), emulator.CutBody(300),
		emulator.EmptyPage(), emulator.Silence(),
	} {
		for n := 1; n <= 9; n++ {
			name := fmt.Sprintf("%v on page %d", effect, n)
			t.Run(name, func(t *testing.T) {
				inBubbleOf(t, emulator.New(emulator.WithPageLimit(3)), func(t *testing.T, server *emulator.Server) {
					v := onEmulator(t, server)
					var want []uuid.UUID
					for i := range 12 {
						p := &workflow.Plan{ID: idAt(time.Now().Add(-time.Duration(i) * time.Second))}
						if err := v.Create(t.Context(), p); err != nil {
							t.Fatal(err)
						}
						want = append(want, p.ID)
					}
					rule := emulator.On(emulator.ListBlobs).Nth(n).Do(effect)
					var got []uuid.UUID
					for _, r := range collect(t, faulty(t, server, rule), storage.Filters{Limit: 100}) {
						got = append(got, r.ID)
					}
					if !slices.Equal(got, want) {
						t.Errorf("got %v, want %v", got, want)
					}
				})
			})
		}
	}
}

// TestListingEnds says how a listing ends that does not come to its end by itself.
func TestListingEnds(t *testing.T) {
	fill := func(t *testing.T, v *azblob.Vault, n int) {
		for i := range n {
			if err := v.Create(t.Context(), &workflow.Plan{ID: idAt(time.Now().Add(-time.Duration(i) * 20 * time.Hour))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	inBubble(t, "the service fails: the last element is an Err", func(t *testing.T, server *emulator.Server) {
		fill(t, onEmulator(t, server), 5)
		for n := 1; n <= 3; n++ {
			v := faulty(t, server, emulator.On(emulator.ListBlobs, emulator.ListContainers).Nth(n).Do(emulator.Answer(403, "AuthorizationFailure")))
			list, err := v.List(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			all := slices.Collect(list)
			if len(all) == 0 || !errors.Is(all[len(all)-1].Err, storage.ErrDenied) {
				t.Errorf("at %d: %v", n, all)
			}
		}
	})
	inBubble(t, "the context ends: the last element is an Err", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		fill(t, v, 5)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		list, err := v.List(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		var last storage.Stream[storage.ListResult]
		n := 0
		for last = range list {
			n++
			cancel()
		}
		if !errors.Is(last.Err, context.Canceled) || n > 3 {
			t.Errorf("after %d elements: %v", n, last.Err)
		}
	})
	inBubble(t, "one plan can't be read: the rest comes", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		fill(t, v, 5)
		third := collect(t, v, storage.Filters{Limit: 5})[2].ID
		for c := range server.Containers() {
			if b, ok := server.Blob(c, "plans/"+third.String()+"-entry.json"); ok {
				b.Metadata["state"] = "{"
				server.Put(c, b.Name, b.Body, b.Metadata)
			}
		}
		list, err := v.List(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		bad := 0
		for r := range list {
			if r.Err == nil {
				continue
			}
			bad++
			var e *storage.Error
			if !errors.Is(r.Err, storage.ErrCorrupt) || !errors.As(r.Err, &e) || e.Plan != third || e.Op != "List" {
				t.Errorf("got %v", r.Err)
			}
		}
		if all := slices.Collect(list); bad != 1 || len(all) != 5 {
			t.Errorf("%d of %d can't be read", bad, len(all))
		}
	})
	inBubble(t, "broken off, and ranged over again", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		fill(t, v, 5)
		list, err := v.List(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for range list {
			break
		}
		if n := len(slices.Collect(list)); n != 5 {
			t.Errorf("%d plans at the second time", n)
		}
		if err := v.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if all := slices.Collect(list); len(all) != 1 || !errors.Is(all[0].Err, storage.ErrClosed) {
			t.Errorf("after Close: %v", all)
		}
	})
}
