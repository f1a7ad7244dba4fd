package bundle_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// slow is a target whose Restore takes a second, also for plans that are there.
type slow struct{ bundle.Target }

func (s slow) Restore(ctx context.Context, plan *workflow.Plan) error {
	time.Sleep(time.Second)
	return s.Target.Restore(ctx, plan)
}

// TestImportBudget imports a bundle within several budgets. Each import skips what is there, however long that takes,
// and then restores some.
func TestImportBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := filled(t, 20), memvault.New(nil)
		text := exportOf(t, from, bundle.ExportOptions{})
		for done := int64(0); done < 20; {
			results := map[bundle.ImportResult]int64{}
			report, err := bundle.Import(t.Context(), slow{to}, bytes.NewReader(text), bundle.ImportOptions{
				Concurrency: 4, Budget: time.Second, Progress: func(p bundle.Progress) { results[p.Result]++ },
			})
			if err != nil || report.Present != done || report.Restored == 0 || report.Restored > 12 || report.More != (done+report.Restored < 20) ||
				results[bundle.PlanRestored] != report.Restored || results[bundle.PlanPresent] != report.Present {
				t.Fatalf("%+v, %v, progress %v; %d plans were there", report, err, results, done)
			}
			done += report.Restored
		}
		equal(t, from, to, false)
		if _, err := bundle.Import(t.Context(), to, bytes.NewReader(text), bundle.ImportOptions{Budget: -1}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a negative budget: %v", err)
		}
	})
}

// TestDryRunOfImport tells what an import would do, and does nothing.
func TestDryRunOfImport(t *testing.T) {
	from, to := filled(t, 20), memvault.New(nil)
	text := exportOf(t, from, bundle.ExportOptions{})
	newest, err := storage.Collect(from.List(t.Context(), 7))
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range newest {
		plan, err := from.Read(t.Context(), r.ID)
		if i == 0 {
			plan.Name += " of somebody else"
		}
		if err = errors.Join(err, to.Restore(t.Context(), plan)); err != nil {
			t.Fatal(err)
		}
	}
	results := map[bundle.ImportResult]int64{}
	report, err := bundle.Import(t.Context(), to, bytes.NewReader(text), bundle.ImportOptions{DryRun: true, Progress: func(p bundle.Progress) { results[p.Result]++ }})
	if !errors.Is(err, storage.ErrExists) || report.Restored != 13 || report.Present != 6 || report.Failed != 1 {
		t.Errorf("%+v, %v", report, err)
	}
	if results[bundle.PlanRestored] != 13 || results[bundle.PlanPresent] != 6 || results[bundle.PlanFailed] != 1 {
		t.Errorf("progress %v", results)
	}
	if n, _ := to.Count(t.Context(), storage.Filters{}); n != 7 {
		t.Errorf("%d plans after a dry run", n)
	}
}
