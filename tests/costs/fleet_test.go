package costs_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestCostOfAFleet counts the requests of nodes that have nothing to do, beside plans that somebody else runs. The
// figures are those of docs/fleet.md.
func TestCostOfAFleet(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	const nodes, open, days = 2, 5, 2
	hours := efforttest.Pick(1, 1, 24)
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New()
		ctx, cancel := context.WithCancel(t.Context())
		v := vaulttest.OnEmulator(t, server)
		for i := range open {
			p := plantest.Small()
			p.ID = workflow.NewV7At(time.Now().Add(-time.Duration(i%days) * 24 * time.Hour))
			vaulttest.CreatedRunning(t, v, p)
		}
		var members []*fleet.Node
		for range nodes {
			n, err := fleet.Join(ctx, vaulttest.OnEmulator(t, server), fleet.Options{})
			vaulttest.Must(t, err)
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
			// After midnight the new day has no container, and each search makes sure of that.
			emulator.GetContainerProperties: nodes * 6 * (hours / 24),
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
			vaulttest.Must(t, n.Leave(t.Context()))
		}
	})
}

// TestCostOfATake counts the requests and round trips of a takeover, whose owner the node has to ask for.
func TestCostOfATake(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	const latency = 20 * time.Millisecond
	for _, c := range []int{1, 8, 256} {
		for _, actions := range efforttest.Pick([]int{1, 60}, []int{1, 60}, []int{1, 60, 1000}) {
			synctest.Test(t, func(t *testing.T) {
				server := emulator.New(emulator.WithLatency(latency))
				v := vaulttest.OnEmulator(t, server, azblob.WithConcurrency(c))
				p := vaulttest.CreatedRunning(t, v, plantest.Sized(1, actions, 1))
				p.Owner, p.Epoch = workflow.NewV7(), 1
				vaulttest.Must(t, v.UpdatePlan(t.Context(), p))
				node, err := fleet.Join(t.Context(), v, fleet.Options{})
				vaulttest.Must(t, err)
				server.ResetRequests()
				began := time.Now()
				taken, err := node.Take(t.Context(), p.ID)
				if err != nil || taken.Epoch != 2 {
					t.Fatal(taken, err)
				}
				n := len(workflow.Parts(p))
				requests, trips := len(server.Requests()), int(time.Since(began)/latency)
				t.Logf("%d sub-objects, %d at a time: %d requests, %d round trips", n, c, requests, trips)
				if most := 2*n + 5; requests > most {
					t.Errorf("%d sub-objects: %d requests, want at most %d", n, requests, most)
				}
				if most := 4 + 2*vaulttest.Ceil(n, c) + 1/c; trips > most {
					t.Errorf("%d sub-objects, %d at a time: %d round trips, want at most %d", n, c, trips, most)
				}
				vaulttest.Must(t, node.Leave(t.Context()))
			})
		}
	}
}
