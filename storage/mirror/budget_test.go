package mirror_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// slow is a copy whose Restore takes a second.
type slow struct{ *counted }

func (s slow) Restore(ctx context.Context, plan *workflow.Plan) error {
	time.Sleep(time.Second)
	return s.counted.Restore(ctx, plan)
}

// late is a source whose listing takes longer than the budget.
type late struct{ storage.Reader }

func (l late) List(ctx context.Context, limit int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	time.Sleep(2 * time.Second)
	return l.Reader.List(ctx, limit)
}

// TestBudget brings a copy up to date within several budgets. Each Run copies some plans, and none that it has begun is
// cut off.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil), memvault.New(nil)
		for range 20 {
			created(t, from, workflow.Completed)
		}
		copied := int64(0)
		for more := true; more; {
			r := run(t, late{from}, slow{count(to)}, mirror.Options{Concurrency: 4, Budget: time.Second})
			if r.Copied == 0 || r.Copied > 8 || r.Failed > 0 || r.CopiedParts != r.Copied*int64(len(workflow.Parts(plantest.Small()))) {
				t.Fatalf("%+v", r)
			}
			copied, more = copied+r.Copied, r.More
		}
		equal(t, from, to)
		if copied != 20 {
			t.Errorf("%d plans were copied", copied)
		}
		if r := run(t, from, to, mirror.Options{Budget: time.Nanosecond}); r.More || r.Unchanged != 20 {
			t.Errorf("a copy that is up to date: %+v", r)
		}
		if _, err := mirror.Run(t.Context(), from, to, mirror.Options{Budget: -1}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a negative budget: %v", err)
		}
	})
}
