package costs_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// TestManyProcesses counts what many processes cost whose plans only run: as nodes of a fleet, while plans of other processes
// come, and as workers whose plans something else places. docs/placing.md computes with the figures.
func TestManyProcesses(t *testing.T) {
	efforttest.NotShort(t, "it counts, and tests/week runs fleets")
	n := 10
	if *largest {
		n = 100
	}
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		wait := engine.Task("wait", func(ctx context.Context, _ engine.Call, _ string) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		})
		open := func(prefix string) *azblob.Vault {
			v, err := azblob.NewFromConnectionString(t.Context(), prefix, server.ConnectionString(), registry.Must(wait), azblob.Options{ClientOptions: server.ClientOptions()})
			vaulttest.Must(t, err)
			return v
		}
		create := func(vault *azblob.Vault) *workflow.Plan {
			a := wait.Action("wait", "")
			a.Timeout = 24 * time.Hour
			p := &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{a}}}}}}
			vaulttest.Must(t, vault.Create(t.Context(), p))
			return p
		}
		// during returns the requests, the HEADs of entries, and the bytes of answers in ten minutes.
		const long = 10 * time.Minute
		during := func(what string, do func()) (requests, heads, bytes float64) {
			server.ResetRequests()
			began := time.Now()
			do()
			time.Sleep(long - time.Since(began))
			for _, r := range server.Requests() {
				requests++
				bytes += float64(r.Out)
				if r.Op == emulator.HeadBlob {
					heads++
				}
			}
			t.Logf("%d %s: %.2f requests and %.0f B a second for each", n, what, requests/float64(n)/long.Seconds(), bytes/float64(n)/long.Seconds())
			return requests, heads, bytes
		}
		about := func(what string, got, want float64) {
			t.Helper()
			if got < want*0.85 || got > want*1.15 {
				t.Errorf("%s: %.2f, and docs/placing.md says %.2f", what, got, want)
			}
		}
		each, seconds := float64(n), long.Seconds()
		ctx, end := context.WithCancel(t.Context())
		var work sync.WaitGroup
		vault := open("fleet")
		create(vault)
		for range n {
			e, err := engine.New(open("fleet"), engine.Options{Fleet: &fleet.Options{}, NoRetention: true})
			vaulttest.Must(t, err)
			work.Go(func() { vaulttest.Must(t, e.Run(ctx)) })
			time.Sleep(10 * time.Second / time.Duration(n))
		}
		time.Sleep(5 * time.Minute)
		idle, _, bytes := during("nodes", func() {})
		about("requests of a node, a second", idle/each/seconds, 0.4)
		about("bytes of a node for each node, a second", bytes/each/each/seconds, 90)
		const plans = 60
		_, heads, _ := during("nodes that get plans", func() {
			for range plans {
				create(vault)
				time.Sleep(9 * time.Second)
			}
		})
		about("HEADs of a node for a plan", heads/plans/each, 2.2)
		end()
		work.Wait()

		ctx, end = context.WithCancel(t.Context())
		vault = open("placed")
		for range n {
			e, err := engine.New(open("placed"), engine.Options{})
			vaulttest.Must(t, err)
			plan := create(vault)
			work.Go(func() {
				_, _ = e.RunPlan(ctx, plan.ID, engine.RunOptions{External: workflow.External{Name: "queue"}})
			})
		}
		time.Sleep(time.Minute)
		placed, _, bytes := during("workers", func() {})
		about("requests of a worker, a second", placed/each/seconds, 0.1)
		about("bytes of a worker, a second", bytes/each/seconds, 12)
		end()
		work.Wait()
	})
}
