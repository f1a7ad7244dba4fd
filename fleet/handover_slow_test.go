package fleet_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// TestHandOverBesideASlowNode: a node that looks at the members each hour does not make an operator wait for hours.
// HandOver leaves its record, so that the node notices it whenever it looks.
func TestHandOverBesideASlowNode(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		found := plans(t.Context(), t, join(t, p, fleet.Options{Interval: 8 * time.Hour, TTL: 24 * time.Hour}))
		time.Sleep(time.Minute + time.Second/2) // after the node's search of all days, and between two others
		plan := orphan(t, p, plantest.Small())
		began := time.Now()
		h, err := fleet.HandOver(t.Context(), p, plan.ID, fleet.HandOverOptions{Name: "operator"})
		must(t, err)
		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("it took %v", took)
		}
		if h.Epoch != 2 {
			t.Errorf("%+v", h)
		}
		refused(t, p, plan)
		time.Sleep(time.Minute)
		i := inspect(t, p, fleet.InspectOptions{})
		if i.Alive() != 1 || i.Plans[0].OwnerState != fleet.OwnerSilent {
			t.Errorf("%d members are alive, and the owner is %s", i.Alive(), i.Plans[0].OwnerState)
		}
		if taken := within(t, found, 48*time.Hour); taken.Epoch != 3 {
			t.Errorf("plan %s has epoch %d of %s", taken.ID, taken.Epoch, taken.Owner)
		}
	})
}

// TestInspectLongTTL: a record that claims to be good for centuries does not turn times around.
func TestInspectLongTTL(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		must(t, second(p.AddMember(t.Context(), storage.Member{ID: workflow.NewV7(), Started: time.Now(), TTL: math.MaxInt64})))
		orphan(t, p, plantest.Small())
		if i := inspect(t, p, fleet.InspectOptions{}); strings.Contains(i.Plans[0].Why, "within -") {
			t.Error(i.Plans[0].Why)
		}
	})
}
