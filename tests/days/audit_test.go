package days_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestAdminSaysWhoAsked makes each change twice. The log has it once: the second time there is nothing to do. A vault
// without the day gets no log.
func TestAdminSaysWhoAsked(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		elsewhere := emulator.New(emulator.Options{})
		wrong := vaulttest.OnEmulator(t, elsewhere)
		plan := finished(t, v, oldPlan())
		day := storage.DayOf(workflow.Time(plan.ID))
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), oldPlan()) })
		time.Sleep(vaulttest.PastGrace)
		var logged []string
		for _, change := range []struct {
			entry string
			do    func(ctx context.Context, a *azblob.Admin, by workflow.Attribution) error
		}{
			{"repair", func(ctx context.Context, a *azblob.Admin, by workflow.Attribution) error {
				return vaulttest.ErrOf(a.Repair(ctx, azblob.RepairOptions{By: by}))
			}},
			{"hold", func(ctx context.Context, a *azblob.Admin, by workflow.Attribution) error { return a.Hold(ctx, day, by) }},
			{"release", func(ctx context.Context, a *azblob.Admin, by workflow.Attribution) error {
				return a.Release(ctx, day, by)
			}},
			{"expire older than 1 day", func(ctx context.Context, a *azblob.Admin, by workflow.Attribution) error {
				return vaulttest.ErrOf(a.Expire(ctx, azblob.ExpireOptions{By: by, OlderThanDays: 1}))
			}},
		} {
			untouched := vaulttest.Untouched(t, server)
			vaulttest.Fails(t, change.do(t.Context(), v.Admin(), workflow.Attribution{}), storage.ErrInvalid)
			untouched()
			_ = change.do(t.Context(), wrong.Admin(), workflow.Attribution{By: "ana"})
			vaulttest.Empty(t, elsewhere)
			time.Sleep(time.Second)
			vaulttest.Must(t, change.do(t.Context(), v.Admin(), workflow.Attribution{By: "ana", Why: change.entry}))
			logged = append(logged, change.entry)
			_ = change.do(t.Context(), v.Admin(), workflow.Attribution{By: "bob"})
			entries, err := storage.Collect(v.Control().AuditEntries(t.Context(), storage.AuditFilters{}))
			vaulttest.Must(t, err)
			var got []string
			for _, e := range slices.Backward(entries) {
				if got = append(got, e.By.Why); e.By.By != "ana" || e.Result != "done" || e.By.Why != strings.TrimSpace(e.What+" "+e.Detail) {
					t.Errorf("the entry %+v", e)
				}
			}
			if !slices.Equal(got, logged) {
				t.Errorf("the log has %q, want %q", got, logged)
			}
		}
	})
}
