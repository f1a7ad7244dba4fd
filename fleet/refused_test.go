package fleet_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// TestRefusedForHours refuses one kind of call of a node for two hours, while it has a dead member to remove, that member's
// plan to take over, a new plan to claim, and a stop request to drop. The node says so, and does all of it afterwards.
func TestRefusedForHours(t *testing.T) {
	type kind struct {
		op    string
		other bool // of another member's record
	}
	processtest.EachRefusal(t, func(t *testing.T, refuse func(k kind) error) int64 {
		store := memvault.NewStore()
		p, dead := start(t, store, fleet.Options{})
		orphan, ended := claimed(t, p, dead, 2), claimed(t, p, dead, 1)
		must(t, p.AddStop(t.Context(), ended.ID, workflow.Attribution{By: "ana"}))
		must(t, finish(t.Context(), p, ended))
		var failures atomic.Int64
		q, n := start(t, store, fleet.Options{Observer: fleet.Observer{
			Failure: func(context.Context, fleet.FailureEvent) { failures.Add(1) },
			Heartbeat: func(_ context.Context, e fleet.HeartbeatEvent) {
				if e.Err != nil {
					failures.Add(1)
				}
			},
		}})
		q.On(func(_ context.Context, c processtest.Call, do func() error) error {
			if err := refuse(kind{c.Op, c.Op == "RenewMember" && c.Plan != n.ID()}); err != nil {
				return err
			}
			return do()
		})
		p.Kill()
		fresh := create(t, open(store), 1)
		found, errs := results(t.Context(), n)
		time.Sleep(processtest.Outage + 15*time.Minute)
		got := []uuid.UUID{within(t, found, time.Second).ID, within(t, found, time.Second).ID}
		if !slices.Contains(got, orphan.ID) || !slices.Contains(got, fresh.ID) || len(found) > 0 {
			t.Errorf("it took %v, and %d more; want %s and %s", got, len(found), orphan.ID, fresh.ID)
		}
		if r, err := open(store).Roster(t.Context()); err != nil || len(r.Members) != 1 || r.Members[0].ID != n.ID() || len(r.Stops) > 0 {
			t.Errorf("left: %+v, %v", r, err)
		}
		return failures.Load() + int64(len(errs))
	})
}
