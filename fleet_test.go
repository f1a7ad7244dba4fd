package azblob_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// TestCostOfAFleet counts the requests of nodes that have nothing to do, beside plans that somebody else runs. The
// figures are those of docs/fleet.md.
func TestCostOfAFleet(t *testing.T) {
	const nodes, open, days = 2, 5, 2
	hours := efforttest.Pick(1, 1, 24)
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New()
		ctx, cancel := context.WithCancel(t.Context())
		v := onEmulator(t, server)
		for i := range open {
			p := plantest.Small()
			p.ID = workflow.NewV7At(time.Now().Add(-time.Duration(i%days) * 24 * time.Hour))
			if err := v.Create(ctx, p); err != nil {
				t.Fatal(err)
			}
			p.State.Status, p.State.Start = workflow.Running, time.Now().UTC()
			if err := v.UpdatePlan(ctx, p); err != nil {
				t.Fatal(err)
			}
		}
		var members []*fleet.Node
		for range nodes {
			n, err := fleet.Join(ctx, onEmulator(t, server), fleet.Options{})
			if err != nil {
				t.Fatal(err)
			}
			members = append(members, n)
			go func() {
				for plan, err := range n.Plans(ctx) {
					t.Errorf("node %s got %v, %v", n.ID(), plan, err)
				}
			}()
		}
		time.Sleep(55 * time.Second) // beyond the search at the start
		server.ResetRequests()
		time.Sleep(time.Duration(hours) * time.Hour)
		got := map[emulator.Op]int{}
		for _, r := range server.Requests() {
			got[r.Op]++
		}
		intervals := hours * 360
		want := map[emulator.Op]int{
			emulator.PutBlob:        nodes * intervals,
			emulator.ListBlobs:      nodes * (3*intervals + days*hours),
			emulator.ListContainers: nodes * hours,
			emulator.HeadBlob:       nodes * open * hours,
		}
		for op := range got {
			if got[op] > want[op] {
				t.Errorf("%d requests %v in %d hours, want %d", got[op], op, hours, want[op])
			}
		}
		t.Logf("%v in %d hours; a node and day: %d", got, hours, len(server.Requests())*24/hours/nodes)
		cancel()
		synctest.Wait()
		for _, n := range members {
			if err := n.Leave(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}
