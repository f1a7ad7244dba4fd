package storage_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
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

// stocked is a vault with plans of several days, groups and statuses. Its Delete takes a second.
type stocked struct {
	storage.Vault
	// fails returns the error of a Delete, and searched changes what a Search returns. Both may be nil.
	fails    func(id uuid.UUID) error
	searched func(hooked.Listing) hooked.Listing

	mu                   sync.Mutex
	deletes, now, atOnce int
}

func (v *stocked) call(c *hooked.Call) error {
	switch c.Op {
	case "Delete":
		return v.delete(c)
	case "Search":
		err := c.Do()
		if err == nil && v.searched != nil {
			c.Listing = v.searched(c.Listing)
		}
		return err
	}
	return c.Do()
}

func (v *stocked) delete(c *hooked.Call) error {
	v.mu.Lock()
	v.deletes++
	v.now++
	v.atOnce = max(v.atOnce, v.now)
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.now--
	}()
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

var group = uuid.MustParse("6ba7b810-9dad-41d1-80b4-00c04fd430c8")

// stock returns a vault with the plans of three days: on each, 10 of each status, half of them of the group.
func stock(t *testing.T) *stocked {
	v := new(stocked)
	v.Vault = hooked.Wrap(memvault.New(nil), v.call)
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
	left, err := storage.Collect(v.List(t.Context(), 0))
	if err != nil {
		t.Fatal(err)
	}
	return len(left)
}

func TestPurge(t *testing.T) {
	for _, test := range []struct {
		name string
		opts storage.PurgeOptions
		want int64
	}{
		{"by age", storage.PurgeOptions{Select: storage.Filters{Before: purged.Add(-time.Hour)}}, 60},
		{"by status", storage.PurgeOptions{Select: storage.Filters{ByStatus: []workflow.Status{workflow.Failed}}}, 30},
		{"by group", storage.PurgeOptions{Select: storage.Filters{ByGroupIDs: []uuid.UUID{group}}}, 45},
		{"open plans", storage.PurgeOptions{Select: storage.Filters{ByGroupIDs: []uuid.UUID{group}}, IncludeOpen: true}, 75},
		{"one open status", storage.PurgeOptions{Select: storage.Filters{ByStatus: []workflow.Status{workflow.Running}}, IncludeOpen: true}, 30},
		{"a number", storage.PurgeOptions{Select: storage.Filters{Limit: 7}}, 7},
		{"with little at once", storage.PurgeOptions{Select: storage.Filters{Limit: 7}, Concurrency: 2}, 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := stock(t)
			dry := test.opts
			dry.DryRun = true
			if report, err := storage.Purge(t.Context(), v, dry); err != nil || report.Deleted != test.want || v.deletes > 0 {
				t.Errorf("%s: the dry run returned %+v, %v, and deleted %d", test.name, report, err, v.deletes)
			}
			var last storage.Progress
			test.opts.Progress = func(p storage.Progress) {
				if p.Done != last.Done+1 {
					t.Errorf("%s: progress from %+v to %+v", test.name, last, p)
				}
				last = p
			}
			report, err := storage.Purge(t.Context(), v, test.opts)
			if want := (storage.PurgeReport{Deleted: test.want}); err != nil || !reflect.DeepEqual(report, want) || last.Done != test.want {
				t.Errorf("%s: got %+v, %v, and progress to %+v, want %+v", test.name, report, err, last, want)
			}
			limit := test.opts.Concurrency
			if limit == 0 {
				limit = 16
			}
			if left := v.left(t); left != 150-int(test.want) || v.atOnce > limit || v.atOnce < min(limit, int(test.want)) {
				t.Errorf("%s: %d plans are left, and up to %d were removed at once", test.name, left, v.atOnce)
			}
		})
	}
}

// TestPurgeBudget checks that a budget ends a purge between two removals, and that the next one goes on.
func TestPurgeBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := stock(t)
		opts := storage.PurgeOptions{Select: storage.Filters{Before: purged.Add(time.Hour)}, Budget: 3500 * time.Millisecond, Concurrency: 10}
		for _, want := range []storage.PurgeReport{{Deleted: 40, More: true}, {Deleted: 40, More: true}, {Deleted: 10}, {}} {
			began := time.Now()
			report, err := storage.Purge(t.Context(), v, opts)
			if took := time.Since(began); err != nil || !reflect.DeepEqual(report, want) || took > 4*time.Second {
				t.Errorf("got %+v, %v after %v, want %+v", report, err, took, want)
			}
		}
	})
}

// TestPurgeHeldDays checks that a held day is skipped after the first answer that says so.
func TestPurgeHeldDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := stock(t)
		held := purged.AddDate(0, 0, -1).Truncate(24 * time.Hour)
		v.fails = func(id uuid.UUID) error {
			if workflow.Time(id).Truncate(24 * time.Hour).Equal(held) {
				return storage.ErrHeld
			}
			return nil
		}
		report, err := storage.Purge(t.Context(), v, storage.PurgeOptions{Select: storage.Filters{Before: purged.Add(time.Hour)}, Concurrency: 4})
		if want := (storage.PurgeReport{Deleted: 60, Held: 30, HeldDays: []time.Time{held}}); err != nil || !reflect.DeepEqual(report, want) || v.deletes > 64 {
			t.Errorf("got %+v, %v after %d deletes, want %+v", report, err, v.deletes, want)
		}
	})
}

// holder is a vault that knows which days are held.
type holder struct {
	*stocked
	held []time.Time
	err  error
}

func (h holder) Holds(context.Context) ([]time.Time, error) { return h.held, h.err }

// TestPurgeDryRunOfHeldDays checks that a dry run leaves out what is held.
func TestPurgeDryRunOfHeldDays(t *testing.T) {
	v := holder{stock(t), []time.Time{purged.AddDate(0, 0, -1).Truncate(24 * time.Hour)}, nil}
	opts := storage.PurgeOptions{Select: storage.Filters{Before: purged.Add(time.Hour)}, DryRun: true}
	report, err := storage.Purge(t.Context(), v, opts)
	if want := (storage.PurgeReport{Deleted: 60, Held: 30, HeldDays: v.held}); err != nil || !reflect.DeepEqual(report, want) {
		t.Errorf("got %+v, %v, want %+v", report, err, want)
	}
	v.err = storage.ErrDenied
	if _, err := storage.Purge(t.Context(), v, opts); !errors.Is(err, storage.ErrDenied) {
		t.Errorf("without the right to see holds: %v", err)
	}
}

// TestPurgeFailures checks which failures end a purge, and which only end up in its error.
func TestPurgeFailures(t *testing.T) {
	all := storage.PurgeOptions{Select: storage.Filters{Before: purged.Add(time.Hour)}, Concurrency: 1}
	for _, test := range []struct {
		name  string
		err   error // of every ninth Delete
		want  storage.PurgeReport
		lines int // of the error
	}{
		{"unavailable", storage.ErrUnavailable, storage.PurgeReport{Deleted: 80, Failed: 10}, 10},
		{"removed by others", storage.ErrNotFound, storage.PurgeReport{Deleted: 80, Gone: 10}, 0},
		{"denied", storage.ErrDenied, storage.PurgeReport{Deleted: 8, Failed: 1, More: true}, 1},
		{"closed", storage.ErrClosed, storage.PurgeReport{Deleted: 8, Failed: 1, More: true}, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := stock(t)
			v.fails = func(uuid.UUID) error {
				if v.deletes%9 == 0 {
					return test.err
				}
				return nil
			}
			report, err := storage.Purge(t.Context(), v, all)
			if !reflect.DeepEqual(report, test.want) || (err != nil) != (test.lines > 0) || test.lines > 0 && !errors.Is(err, test.err) {
				t.Errorf("%s: got %+v, %v, want %+v", test.name, report, err, test.want)
			}
			if err != nil && (strings.Count(err.Error(), "Delete plan ") != test.lines || !strings.HasPrefix(err.Error(), "Purge: ")) {
				t.Errorf("%s: the error is %v", test.name, err)
			}
		})
	}
	for _, test := range []struct {
		name string
		err  error
		want storage.PurgeReport
	}{
		{"an unreadable plan", &storage.Error{Op: "Search", Plan: workflow.NewV7(), Err: storage.ErrCorrupt}, storage.PurgeReport{Deleted: 90, Failed: 1}},
		{"the search fails", &storage.Error{Op: "Search", Err: storage.ErrUnavailable}, storage.PurgeReport{Deleted: 90, More: true}},
	} {
		synctest.Test(t, func(t *testing.T) {
			v := stock(t)
			v.searched = func(found hooked.Listing) hooked.Listing {
				return func(yield func(storage.Stream[storage.ListResult]) bool) {
					for f := range found {
						if !yield(f) {
							return
						}
					}
					yield(storage.Stream[storage.ListResult]{Err: test.err})
				}
			}
			if report, err := storage.Purge(t.Context(), v, all); !reflect.DeepEqual(report, test.want) || !errors.Is(err, test.err) {
				t.Errorf("%s: got %+v, %v, want %+v", test.name, report, err, test.want)
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
			opts := storage.PurgeOptions{Select: storage.Filters{Before: purged.Add(time.Hour)}, Concurrency: 10}
			ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
			defer cancel()
			report, err := storage.Purge(of(ctx), v, opts)
			if want := (storage.PurgeReport{Deleted: 20, Failed: 10, More: true}); !errors.Is(err, context.DeadlineExceeded) || !reflect.DeepEqual(report, want) {
				t.Errorf("%s: got %+v, %v, want %+v", name, report, err, want)
			}
			if report, err := storage.Purge(of(ctx), v, opts); !errors.Is(err, context.DeadlineExceeded) || report.Deleted > 0 {
				t.Errorf("%s: after the end: %+v, %v", name, report, err)
			}
			if report, err := storage.Purge(t.Context(), v, opts); err != nil || report.Deleted != 70 || report.More || v.left(t) != 60 {
				t.Errorf("%s: again: %+v, %v; %d plans are left", name, report, err, v.left(t))
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
	old := storage.Filters{Before: purged}
	for field, opts := range map[string]storage.PurgeOptions{
		"Select":             {},
		"Select.ByStatus":    {Select: storage.Filters{ByStatus: []workflow.Status{workflow.Failed, workflow.Running}}},
		"Budget":             {Select: old, Budget: -1},
		"Concurrency":        {Select: old, Concurrency: -1},
		"Filters.Limit":      {Select: storage.Filters{Limit: -1}},
		"Filters.ByGroupIDs": {Select: storage.Filters{ByGroupIDs: make([]uuid.UUID, 1)}},
	} {
		report, err := storage.Purge(t.Context(), v, opts)
		wrong, ok := errors.AsType[*workflow.FieldError](err)
		if !errors.Is(err, storage.ErrInvalid) || !ok || !strings.HasPrefix(wrong.Field, field) || !reflect.DeepEqual(report, storage.PurgeReport{}) {
			t.Errorf("%s: %+v, %v", field, report, err)
		}
	}
	if _, err := storage.Purge(t.Context(), v, storage.PurgeOptions{IncludeOpen: true}); !errors.Is(err, storage.ErrInvalid) || v.deletes > 0 {
		t.Errorf("all plans: %v", err)
	}
}

func ExamplePurge() {
	ctx := context.Background()
	vault := memvault.New(nil)
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
	report, err := storage.Purge(ctx, vault, storage.PurgeOptions{
		Select: storage.Filters{Before: time.Now().AddDate(0, 0, -30)},
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
