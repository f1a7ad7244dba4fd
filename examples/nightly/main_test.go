package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
	"github.com/planvault/azblob/workflow"
)

// TestNightly runs the job on a vault with old plans, one of them in a held day, and young ones. The copies bring back what
// was removed.
func TestNightly(t *testing.T) {
	vaulttest.InBubble(t, "night", func(t *testing.T, server *emulator.Server) {
		vault, by := vaulttest.OnEmulator(t, server), workflow.Attribution{By: "ana"}
		for _, ago := range []int{95, 94, 93, 30} {
			plan := vaulttest.Copied(vaulttest.PlanOf(vaulttest.DaysAgo(ago)), workflow.Completed)
			plan.State.End = vaulttest.DaysAgo(ago).Add(2 * time.Hour)
			vaulttest.Must(t, vault.Restore(t.Context(), plan))
		}
		vaulttest.Must(t, vault.Create(t.Context(), vaulttest.PlanOf(time.Now())))
		vaulttest.Must(t, vault.Admin().Hold(t.Context(), storage.DayOf(vaulttest.DaysAgo(94)), by))
		left := func() int {
			n, err := vault.Count(t.Context(), storage.Filters{})
			vaulttest.Must(t, err)
			return int(n)
		}

		var file, out bytes.Buffer
		vaulttest.Must(t, nightly(t.Context(), vault, &file, &out))
		if want := "4 catalogues built, 0 days left alone\n2 plans removed, 1 kept in days that are held, 0 failed\n"; out.String() != want || left() != 3 {
			t.Errorf("%s; %d plans are left", &out, left())
		}
		if report, err := bundle.Import(t.Context(), vault, bytes.NewReader(file.Bytes()), bundle.ImportOptions{By: by}); err != nil || report.Restored != 2 || left() != 5 {
			t.Errorf("%+v, %v; %d plans are there", report, err, left())
		}
	})
}
