package costs_test

import (
	"context"
	"iter"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// search returns a Search in a filled vault, or a List if it has the name of one. It must yield as many plans as match, and no more than the limit.
func search(name string, filters func(fill.Filling) storage.Filters, match func(fill.Filling, int) bool) operation {
	return operation{name, func(t testing.TB, s *scene) func() {
		f, want := filters(s.filling), 0
		for i := range s.filling.Plans {
			if match(s.filling, i) {
				want++
			}
		}
		if f.Limit > 0 {
			want = min(want, f.Limit)
		}
		return func() {
			ask := func(ctx context.Context) (iter.Seq[storage.Stream[storage.ListResult]], error) {
				return s.vault.Search(ctx, f)
			}
			if strings.HasPrefix(name, "List") {
				ask = func(ctx context.Context) (iter.Seq[storage.Stream[storage.ListResult]], error) {
					return s.vault.List(ctx, f.Limit)
				}
			}
			found, err := storage.Collect(ask(t.Context()))
			vaulttest.Must(t, err)
			if len(found) != want {
				t.Fatalf("found %d plans, want %d", len(found), want)
			}
		}
	}}
}

func inVaults() []operation {
	limit := func(n int) func(fill.Filling) storage.Filters {
		return func(fill.Filling) storage.Filters { return storage.Filters{Limit: n} }
	}
	every := func(fill.Filling, int) bool { return true }
	middle := func(f fill.Filling) int { return f.Plans / 2 }
	before := func(f fill.Filling, i int) bool { return i < middle(f) }
	running := func(limit int) func(fill.Filling) storage.Filters {
		return func(fill.Filling) storage.Filters {
			return storage.Filters{ByStatus: []workflow.Status{workflow.Running}, Limit: limit}
		}
	}
	return []operation{
		search("List(1)", limit(1), every),
		search("List(10)", limit(10), every),
		search("List(1000)", limit(1000), every),
		search("BeforeID, page of 10", func(f fill.Filling) storage.Filters {
			return storage.Filters{BeforeID: f.ID(middle(f)), Limit: 10}
		}, before),
		search("After, page of 10", func(f fill.Filling) storage.Filters {
			return storage.Filters{After: f.Created(middle(f)), Limit: 10}
		}, func(f fill.Filling, i int) bool { return i > middle(f) }),
		search("an hour", func(f fill.Filling) storage.Filters {
			return storage.Filters{BeforeID: f.ID(middle(f)), After: f.Created(middle(f)).Add(-time.Hour)}
		}, func(f fill.Filling, i int) bool {
			return before(f, i) && !f.Created(i).Before(f.Created(middle(f)).Add(-time.Hour))
		}),
		search("Search by ID", func(f fill.Filling) storage.Filters {
			return storage.Filters{ByIDs: []uuid.UUID{f.ID(middle(f))}}
		}, func(f fill.Filling, i int) bool { return i == middle(f) }),
		search("Search Running", running(0), fill.Filling.Running),
		search("Search Running, 3", running(3), fill.Filling.Running),
		search("Search Running before a plan", func(f fill.Filling) storage.Filters {
			r := running(0)(f)
			r.BeforeID = f.ID(middle(f))
			return r
		}, func(f fill.Filling, i int) bool { return before(f, i) && f.Running(i) }),
		recovery,
		search("Search by group", func(f fill.Filling) storage.Filters {
			return storage.Filters{ByGroupIDs: []uuid.UUID{f.Group(middle(f))}}
		}, func(f fill.Filling, i int) bool { return f.Group(i) == f.Group(middle(f)) }),
		search("List(all)", limit(0), every),
	}
}

var recovery = operation{"Recovery", func(t testing.TB, s *scene) func() {
	return func() { vaulttest.Must(t, s.vault.Recovery(t.Context())) }
}}

// amongOpen is what looks at each open plan of a vault.
var amongOpen = []operation{
	search("Search Running", func(fill.Filling) storage.Filters {
		return storage.Filters{ByStatus: []workflow.Status{workflow.Running}}
	}, fill.Filling.Running),
	recovery,
}

// TestFilledVaultIsSound checks that a vault that was filled directly is one that the vault could have written.
func TestFilledVaultIsSound(t *testing.T) {
	server := emulator.New(emulator.Options{NoLog: true})
	f := shape{plans: 500, days: 3}.until(time.Date(2026, 1, 15, 18, 0, 0, 0, time.UTC))
	vaulttest.Must(t, f.FillServer(t.Context(), server, vaultName))
	v, err := fill.Open(t.Context(), server, vaultName)
	vaulttest.Must(t, err)
	report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
	if err != nil || len(report.Problems) > 0 || report.Plans != f.Plans || report.Days != f.Days {
		t.Fatalf("%+v: %v", report, err)
	}
	for i := range f.Plans {
		p, err := v.Read(t.Context(), f.ID(i))
		vaulttest.Must(t, err)
		if p.GroupID != f.Group(i) || !p.SubmitTime.Equal(f.Created(i)) || !workflow.Time(p.ID).Equal(f.Created(i)) || (p.State.Status == workflow.Running) != f.Running(i) {
			t.Errorf("plan %d: %+v", i, p)
		}
	}
}
