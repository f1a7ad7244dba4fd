package listing_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// TestRevisions updates sub-objects at random. The revisions of their plans change, and no others, also where the service
// ignores where a listing begins.
func TestRevisions(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		time.Sleep(20 * time.Hour) // half of the plans are of the next day
		v := vaulttest.OnEmulator(t, server)
		var plans []*workflow.Plan
		ids := map[*workflow.Plan]uuid.UUID{}
		for range 24 {
			p := plantest.Full()
			vaulttest.Must(t, v.Create(t.Context(), p))
			p.State.Status = workflow.Running
			vaulttest.Must(t, v.UpdatePlan(t.Context(), p))
			plans, ids[p] = append(plans, p), p.ID
			time.Sleep(20 * time.Minute)
		}
		startless := vaulttest.OnEmulator(t, server, settings.Over(vaulttest.Startless(server.Transport())))
		random := rand.New(rand.NewPCG(1, 2))
		was := map[uuid.UUID]string{}
		for n := range 30 {
			changed := map[uuid.UUID]bool{}
			for range random.IntN(4) {
				p := plans[random.IntN(len(plans))]
				parts := workflow.Parts(p)
				vaulttest.Must(t, storage.Update(t.Context(), v, parts[random.IntN(len(parts))]))
				changed[p.ID] = true
			}
			wanted := slices.Collect(maps.Values(ids))
			reader := v
			if n%2 == 1 {
				reader = startless
			}
			now, err := vaulttest.Offered[mirror.Reviser](reader).Revisions(t.Context(), wanted)
			if err != nil || len(now) != len(plans) {
				t.Fatalf("%d revisions, %v", len(now), err)
			}
			for id, r := range now {
				if n > 0 && changed[id] != (r != was[id]) {
					t.Errorf("plan %s: changed %t, revision %x after %x", id, changed[id], r, was[id])
				}
			}
			was = now
			some, err := vaulttest.Offered[mirror.Reviser](v).Revisions(t.Context(), wanted[:1+random.IntN(len(wanted))])
			for id, r := range some {
				if err != nil || r != now[id] {
					t.Errorf("plan %s alone: %v", id, err)
				}
			}
		}
		if _, err := vaulttest.Offered[mirror.Reviser](v).Revisions(t.Context(), []uuid.UUID{{}}); err == nil {
			t.Error("an ID that is none")
		}
	})
}
