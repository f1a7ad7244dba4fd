package days_test

import (
	"testing"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

// TestLeaseOfAnotherProgram: neither Hold nor Release returns nil for a day whose lease is another's.
func TestLeaseOfAnotherProgram(t *testing.T) {
	vaulttest.InBubble(t, "infinite", func(t *testing.T, server *emulator.Server) {
		day := vaulttest.DaysAgo(5)
		ended(t, vaulttest.OnEmulator(t, server), day, workflow.Completed)
		vaulttest.Must(t, vaulttest.OnEmulator(t, server).Admin().Hold(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}))
		v := vaulttest.Faulty(t, server, emulator.On(emulator.LeaseContainer).Do(emulator.Answer(409, "LeaseIdMismatchWithLeaseOperation")))
		vaulttest.Fails(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}), storage.ErrConflict)
		vaulttest.Fails(t, v.Admin().Release(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}), storage.ErrConflict)
	})
}

// TestRefusedRoster: without a roster nobody knows whether there is a policy.
func TestRefusedRoster(t *testing.T) {
	vaulttest.InBubble(t, "denied", func(t *testing.T, server *emulator.Server) {
		vaulttest.Must(t, vaulttest.ErrOf(retention.Set(t.Context(), vaulttest.OnEmulator(t, server), retention.Policy{KeepDays: 7}, retention.Change{By: workflow.Attribution{By: "operator"}, AtOnce: true})))
		v := vaulttest.Faulty(t, server, emulator.On(emulator.ListBlobs).Do(vaulttest.Denied))
		policy, report, err := retention.NewEnforcer(vaulttest.Offered[retention.Vault](v), "a").Look(t.Context())
		if vaulttest.Fails(t, err, storage.ErrDenied); policy != nil || report != nil {
			t.Errorf("%+v, %+v", policy, report)
		}
	})
}
