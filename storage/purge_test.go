package storage_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

var purged = time.Date(1999, 12, 10, 12, 0, 0, 0, time.UTC)

// ended selects all plans of the stock that have ended.
var ended = storage.Filters{Before: purged.Add(time.Hour)}

var operator = workflow.Attribution{By: "operator", Why: "a test"}

// stocked is a vault with plans of several days, groups and statuses. Its Delete takes a second.
type stocked struct {
	storage.Vault
	fails func(id uuid.UUID) error // the error of a Delete; may be nil
	last  error                    // what a Search yields at its end; may be nil

	mu                   sync.Mutex
	deletes, now, atOnce int
}

func (v *stocked) call(c *hooked.Call) error {
	if c.Op == "Delete" {
		return v.delete(c)
	}
	err := c.Do()
	if c.Op == "Search" && v.last != nil {
		c.Listing = slices.Values(append(slices.Collect(c.Listing), storage.Stream[storage.ListResult]{Err: v.last}))
	}
	return err
}

func (v *stocked) delete(c *hooked.Call) error {
	v.count(1)
	defer v.count(-1)
	select {
	case <-time.After(time.Second):
	case <-c.Ctx.Done():
		return c.Ctx.Err()
	}
	if v.fails != nil {
		if err := v.fails(c.ID); err != nil {
			return &storage.Error{Op: "Delete", Plan: c.ID, Err: err}
		}
	}
	return c.Do()
}

func (v *stocked) count(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deletes += max(n, 0)
	v.now += n
	v.atOnce = max(v.atOnce, v.now)
}

var group = uuid.MustParse("6ba7b810-9dad-41d1-80b4-00c04fd430c8")

// stock returns a vault with the plans of three days: on each, 10 of each status, half of them of the group.
func stock(t *testing.T) *stocked {
	v := new(stocked)
	v.Vault = hooked.Wrap(memvault.New(nil, memvault.Options{}), v.call)
	for day := range 3 {
		for i := range 50 {
			p := &workflow.Plan{ID: workflow.NewV7At(purged.AddDate(0, 0, -day).Add(time.Duration(i) * time.Minute))}
			if i%2 == 0 {
				p.GroupID = group
			}
			if err := v.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			for _, status := range []workflow.Status{workflow.Running, workflow.Status(i / 10)} {
				if p.State.Status = status; i < 10 {
					break
				}
				if err := v.UpdatePlan(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return v
}

func (v *stocked) left(t *testing.T) int {
	t.Helper()
	n, err := v.Count(t.Context(), storage.Filters{})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// purges runs a purge, and checks its report and its error, which may be nil.
func purges(ctx context.Context, t *testing.T, what string, v storage.Vault, f storage.Filters, opts storage.PurgeOptions, want storage.PurgeReport, wantErr error) error {
	t.Helper()
	opts.By = operator
	report, err := storage.Purge(ctx, v, storage.SelectWhere(f), opts)
	if !reflect.DeepEqual(report, want) || !errors.Is(err, wantErr) {
		t.Errorf("%s: got %+v, %v, want %+v, %v", what, report, err, want, wantErr)
	}
	return err
}

func TestPurge(t *testing.T) {
	for _, test := range []struct {
		name   string
		filter storage.Filters
		opts   storage.PurgeOptions
		want   int
	}{
		{"by age", storage.Filters{Before: purged.Add(-time.Hour)}, storage.PurgeOptions{}, 60},
		{"by status", storage.Filters{ByStatus: []workflow.Status{workflow.Failed}}, storage.PurgeOptions{}, 30},
		{"by group", storage.Filters{ByGroupIDs: []uuid.UUID{group}}, storage.PurgeOptions{}, 45},
		{"open plans", storage.Filters{ByGroupIDs: []uuid.UUID{group}}, storage.PurgeOptions{IncludeOpen: true}, 75},
		{"one open status", storage.Filters{ByStatus: []workflow.Status{workflow.Running}}, storage.PurgeOptions{IncludeOpen: true}, 30},
		{"a number, with little at once", storage.Filters{Limit: 7, Before: purged.AddDate(1, 0, 0)}, storage.PurgeOptions{Concurrency: 2}, 7},
		{"no group", storage.Filters{ByGroupIDs: []uuid.UUID{}, Before: purged.AddDate(1, 0, 0)}, storage.PurgeOptions{}, 0},
		{"no status", storage.Filters{ByStatus: []workflow.Status{}, Before: purged.AddDate(1, 0, 0)}, storage.PurgeOptions{}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			v, want := stock(t), storage.PurgeReport{Deleted: test.want}
			dry := test.opts
			dry.DryRun = true
			purges(t.Context(), t, "dry run "+test.name, v, test.filter, dry, want, nil)
			if v.deletes > 0 {
				t.Errorf("%s: the dry run deleted %d", test.name, v.deletes)
			}
			var last storage.Progress
			test.opts.Progress = func(p storage.Progress) {
				if p.Done != last.Done+1 {
					t.Errorf("%s: progress from %+v to %+v", test.name, last, p)
				}
				last = p
			}
			purges(t.Context(), t, test.name, v, test.filter, test.opts, want, nil)
			limit := cmp.Or(test.opts.Concurrency, 16)
			if left := v.left(t); left != 150-test.want || v.atOnce != min(limit, int(test.want)) || last.Done != test.want {
				t.Errorf("%s: %d plans are left, up to %d were removed at once, and progress was to %+v", test.name, left, v.atOnce, last)
			}
		})
	}
}

// TestPurgeBudget checks that a budget ends a purge between two removals, and that the next one goes on.
func TestPurgeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := stock(t)
		opts := storage.PurgeOptions{Budget: 3500 * time.Millisecond, Concurrency: 10}
		for _, want := range []storage.PurgeReport{{Deleted: 40, More: true}, {Deleted: 40, More: true}, {Deleted: 10}, {}} {
			began := time.Now()
			purges(t.Context(), t, "with a budget", v, ended, opts, want, nil)
			if took := time.Since(began); took > 4*time.Second {
				t.Errorf("it took %v", took)
			}
		}
	})
}

// holder is a vault that knows which days are held.
type holder struct {
	*stocked
	err error
}

var held = storage.DayOf(purged).Add(-1)

func (h holder) Holds(context.Context) ([]storage.Day, error) { return []storage.Day{held}, h.err }

var beside = storage.PurgeReport{Deleted: 60, Held: 30, HeldDays: []storage.Day{held}}

// TestPurgeHeldDays checks that a held day is skipped after the first answer that says so.
func TestPurgeHeldDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := stock(t)
		v.fails = func(id uuid.UUID) error {
			if storage.DayOf(workflow.Time(id)) == held {
				return storage.ErrHeld
			}
			return nil
		}
		purges(t.Context(), t, "beside a held day", v, ended, storage.PurgeOptions{Concurrency: 4}, beside, nil)
		if v.deletes > 64 {
			t.Errorf("%d deletes", v.deletes)
		}
	})
}

// TestPurgeDryRunOfHeldDays checks that a dry run leaves out what is held.
func TestPurgeDryRunOfHeldDays(t *testing.T) {
	opts := storage.PurgeOptions{DryRun: true}
	v := stock(t)
	purges(t.Context(), t, "a dry run", holder{v, nil}, ended, opts, beside, nil)
	purges(t.Context(), t, "without the right to see holds", holder{v, storage.ErrDenied}, ended, opts, storage.PurgeReport{}, storage.ErrDenied)
}

// TestPurgeFailures checks which failures end a purge, and which only end up in its error.
func TestPurgeFailures(t *testing.T) {
	for _, test := range []struct {
		name    string
		deletes error // of every ninth Delete
		search  error // at its end
		want    storage.PurgeReport
		lines   int // of the error that are about a Delete
	}{
		{"unavailable", storage.ErrUnavailable, nil, storage.PurgeReport{Deleted: 80, Failed: 10}, 10},
		{"removed by others", storage.ErrNotFound, nil, storage.PurgeReport{Deleted: 80, Gone: 10}, 0},
		{"denied", storage.ErrDenied, nil, storage.PurgeReport{Deleted: 8, Failed: 1, More: true}, 1},
		{"closed", storage.ErrClosed, nil, storage.PurgeReport{Deleted: 8, Failed: 1, More: true}, 1},
		{"an unreadable plan", nil, &storage.Error{Op: "Search", Plan: workflow.NewV7(), Err: storage.ErrCorrupt}, storage.PurgeReport{Deleted: 90, Failed: 1}, 0},
		{"the search fails", nil, &storage.Error{Op: "Search", Err: storage.ErrUnavailable}, storage.PurgeReport{Deleted: 90, More: true}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := stock(t)
			v.last = test.search
			v.fails = func(uuid.UUID) error {
				if v.deletes%9 == 0 {
					return test.deletes
				}
				return nil
			}
			wantErr := cmp.Or(test.search, test.deletes)
			if test.want.Gone > 0 {
				wantErr = nil
			}
			err := purges(t.Context(), t, test.name, v, ended, storage.PurgeOptions{Concurrency: 1}, test.want, wantErr)
			if err != nil && (strings.Count(err.Error(), "Delete plan ") != test.lines || !strings.HasPrefix(err.Error(), "Purge: ")) {
				t.Errorf("%s: the error is %v", test.name, err)
			}
		})
	}
}

// TestPurgeContext ends the context of a purge, and calls it again.
func TestPurgeContext(t *testing.T) {
	for name, of := range map[string]func(context.Context) context.Context{
		"at once":               func(ctx context.Context) context.Context { return ctx },
		"children end later on": func(ctx context.Context) context.Context { return tardy{ctx} },
	} {
		synctest.Test(t, func(t *testing.T) {
			v := stock(t)
			opts := storage.PurgeOptions{Concurrency: 10}
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			defer cancel()
			purges(of(ctx), t, name, v, ended, opts, storage.PurgeReport{Deleted: 20, Failed: 10, More: true}, context.DeadlineExceeded)
			if report, err := storage.Purge(of(ctx), v, storage.SelectWhere(ended), storage.PurgeOptions{By: operator, Concurrency: 10}); !errors.Is(err, context.DeadlineExceeded) || report.Deleted > 0 {
				t.Errorf("%s: after the end: %+v, %v", name, report, err)
			}
			purges(t.Context(), t, name+", again", v, ended, opts, storage.PurgeReport{Deleted: 70}, nil)
			if left := v.left(t); left != 60 {
				t.Errorf("%s: %d plans are left", name, left)
			}
		})
	}
}

// tardy is a context whose children end a second after it. Those of other contexts also end after them, if only by a
// moment.
type tardy struct{ context.Context }

func (t tardy) AfterFunc(f func()) func() bool {
	return context.AfterFunc(t.Context, func() {
		time.Sleep(time.Second)
		f()
	})
}

// Value hides the context within, whose children would end with it.
func (tardy) Value(any) any { return nil }

func TestPurgeRefuses(t *testing.T) {
	v := stock(t)
	old, by := storage.Filters{Before: purged}, storage.PurgeOptions{By: operator}
	for _, test := range []struct {
		field  string
		chosen storage.Selection
		opts   storage.PurgeOptions
	}{
		{"Selection", storage.Selection{}, by},
		{"Selection", storage.SelectWhere(storage.Filters{}), storage.PurgeOptions{By: operator, IncludeOpen: true}},
		{"Selection.ByStatus", storage.SelectWhere(storage.Filters{ByStatus: []workflow.Status{workflow.Failed, workflow.Running}}), by},
		{"Selection.Limit", storage.SelectWhere(storage.Filters{Limit: 2}), storage.PurgeOptions{By: operator, IncludeOpen: true}},
		{"Budget", storage.SelectWhere(old), storage.PurgeOptions{By: operator, Budget: -1}},
		{"Concurrency", storage.SelectWhere(old), storage.PurgeOptions{By: operator, Concurrency: -1}},
		{"By", storage.SelectWhere(old), storage.PurgeOptions{}},
		{"Why", storage.SelectWhere(old), storage.PurgeOptions{By: workflow.Attribution{By: "eve", Why: "\x00"}}},
		{"Filters.Limit", storage.SelectWhere(storage.Filters{Before: purged, Limit: -1}), by},
		{"Filters.ByGroupIDs", storage.SelectWhere(storage.Filters{ByGroupIDs: make([]uuid.UUID, 1)}), by},
	} {
		report, err := storage.Purge(t.Context(), v, test.chosen, test.opts)
		wrong, ok := errors.AsType[*workflow.FieldError](err)
		if !errors.Is(err, storage.ErrInvalid) || !ok || !strings.HasPrefix(wrong.Field, test.field) || !reflect.DeepEqual(report, storage.PurgeReport{}) || v.deletes > 0 {
			t.Errorf("%s: %+v, %v", test.field, report, err)
		}
	}
	purges(t.Context(), t, "no IDs", v, storage.Filters{ByIDs: []uuid.UUID{}}, storage.PurgeOptions{IncludeOpen: true}, storage.PurgeReport{}, nil)
}

func ExamplePurge() {
	ctx := context.Background()
	vault := memvault.New(nil, memvault.Options{})
	for _, status := range []workflow.Status{workflow.Running, workflow.Completed, workflow.Failed} {
		plan := &workflow.Plan{ID: workflow.NewV7At(time.Now().AddDate(0, 0, -40)), Name: status.String()}
		if err := vault.Create(ctx, plan); err != nil {
			fmt.Println(err)
		}
		for _, plan.State.Status = range []workflow.Status{workflow.Running, status} {
			if err := vault.UpdatePlan(ctx, plan); err != nil {
				fmt.Println(err)
			}
		}
	}

	// What was created more than 30 days ago and has ended, for at most a minute.
	old := storage.SelectWhere(storage.Filters{Before: time.Now().AddDate(0, 0, -30)})
	report, err := storage.Purge(ctx, vault, old, storage.PurgeOptions{
		By:     workflow.Attribution{By: "nightly job", Why: "older than 30 days"},
		Budget: time.Minute,
	})
	if err != nil {
		fmt.Println(err)
	}
	fmt.Printf("removed %d plans; more are left: %t\n", report.Deleted, report.More)
	left, err := storage.Collect(vault.List(ctx, 0))
	fmt.Println(len(left), "plan is left:", left[0].Name, err)
	// Output:
	// removed 2 plans; more are left: false
	// 1 plan is left: Running <nil>
}
