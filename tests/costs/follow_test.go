package costs_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// TestFollowBudget follows a vault of 1,000 open plans of which ten change each minute. docs/operating.md has what an hour
// of that costs.
func TestFollowBudget(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		const open, changing = 1000, 10
		v := vaulttest.OnEmulator(t, server)
		var ids []uuid.UUID
		for range open {
			p := vaulttest.Created(t, v, plantest.Sized(1, 2, 2))
			p.State.Status = workflow.Running
			vaulttest.Must(t, v.UpdatePlan(t.Context(), p))
			ids = append(ids, p.ID)
			time.Sleep(43 * time.Second)
		}
		second := emulator.New(emulator.Options{})
		to := vaulttest.OnEmulator(t, second)

		ctx, stop := context.WithCancel(t.Context())
		rounds, lists, others := 0, 0, 0
		err := mirror.Follow(ctx, mirror.Pair{Source: v, Copy: to}, mirror.FollowOptions{By: workflow.Attribution{By: "operator"}, Name: "b", Round: func(r mirror.Round) {
			if r.Err != nil {
				t.Error(r.Err)
			}
			if rounds++; rounds > 2 { // the second one learns the revisions
				requests := append(server.Requests(), second.Requests()...)
				for _, q := range requests {
					if q.Op == emulator.ListBlobs || q.Op == emulator.ListContainers {
						lists++
					} else {
						others++
					}
				}
				if r.Report.Updated != changing || r.Report.Unchanged != open-changing {
					t.Errorf("round %d: %+v", rounds, r)
				}
			}
			if rounds == 12 {
				stop()
			}
			for i := range changing {
				p, err := v.Read(t.Context(), ids[(rounds*37+i*91)%open])
				if err == nil {
					a := p.Blocks[0].Sequences[i%2].Actions[0]
					a.State.Status, a.State.Start = workflow.Running, time.Now()
					err = v.UpdateAction(t.Context(), a)
				}
				if err != nil {
					t.Error(err)
				}
			}
			server.ResetRequests()
			second.ResetRequests()
		}})
		if ctx.Err() == nil {
			t.Fatal(err)
		}
		t.Logf("%d lists and %d other requests in 10 rounds", lists, others)
		if lists > 10*22 || others > 10*210 {
			t.Errorf("%d lists and %d other requests in 10 rounds", lists, others)
		}
	})
}
