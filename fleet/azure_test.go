package fleet_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/settings"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// azure opens a vault of its own on an emulator, over a transport of its own.
func azure(t testing.TB, server *emulator.Server, opts ...azblob.Options) (*azblob.Vault, *emulator.Transport) {
	t.Helper()
	transport := server.Transport()
	v, err := azblob.NewFromConnectionString(t.Context(), "fleet", server.ConnectionString(), plantest.Register(),
		merge.Fields(append(opts, settings.Over(transport))...))
	must(t, err)
	t.Cleanup(func() { _ = v.Close(context.WithoutCancel(t.Context())) })
	return v, transport
}

// checked fails the test if the vault's check finds something.
func checked(t testing.TB, v *azblob.Vault) {
	t.Helper()
	report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
	must(t, err)
	for _, p := range report.Problems {
		t.Error(p)
	}
}

// TestTakeCompletesAnEnd: an owner dies while it ends a plan, at each of its requests. Take of the plan leaves it
// whole: final, without anything for Recovery.
func TestTakeCompletesAnEnd(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, effect := range []emulator.Effect{emulator.Crash(), emulator.Crash().Applied()} {
		for nth := 1; nth <= 3; nth++ {
			synctest.Test(t, func(t *testing.T) {
				server := emulator.New(emulator.Options{})
				dying, transport := azure(t, server)
				plan := orphan(t, dying, plantest.Small())
				transport.Inject(emulator.On().Nth(nth).Do(effect))
				if err := moves(t.Context(), dying, plan, workflow.Completed); err == nil {
					t.Fatal("the end was not interrupted")
				}
				v, _ := azure(t, server)
				n := join(t, v, fleet.Options{})
				taken, err := n.Take(t.Context(), plan.ID)
				must(t, err)
				if !taken.State.Status.Final() {
					must(t, finish(t.Context(), v, taken))
				}
				for _, r := range openMarkers(server) {
					t.Errorf("%v at request %d: there is still %s", effect, nth, r)
				}
				checked(t, v)
			})
		}
	}
}

// openMarkers returns the names of the markers that a server holds.
func openMarkers(server *emulator.Server) (names []string) {
	for container := range server.Containers() {
		for b := range server.Blobs(container) {
			if strings.HasPrefix(b.Name, "open/") {
				names = append(names, b.Name)
			}
		}
	}
	return names
}

// TestStrangeMembers: members whose records this program can't read or store again are marked as left when they are
// dead, and their records are removed.
func TestStrangeMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		v, _ := azure(t, server)
		join(t, v, fleet.Options{})
		for _, metadata := range []map[string]string{
			nil,
			{"schema": "1", "name": strings.Repeat("x", 5000), "started": "0000-01-01T00:00:00Z", "phase": "leaving"},
			{"schema": "2", "ttl": "40s", "phase": "napping", "letgo": strings.Repeat("x,", 1000)},
		} {
			server.Put("fleet-control", "nodes/"+workflow.NewV7().String(), nil, metadata)
		}
		time.Sleep(2 * time.Minute)
		if r, err := v.Control().Roster(t.Context()); err != nil || len(r.Members) != 1 {
			t.Errorf("the roster is %+v, %v", r, err)
		}
	})
}

// TestHeartbeatsDoNotWait: a node renews its record in time, however many requests its takeovers have waiting.
func TestHeartbeatsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{Latency: 500 * time.Millisecond, NoLog: true})
		author, _ := azure(t, server)
		worker, _ := azure(t, server, azblob.Options{Concurrency: 2})
		for range 4 {
			orphan(t, author, plantest.Sized(1, 5, 10))
		}
		began := time.Now()
		n := join(t, worker, fleet.Options{Observer: fleet.Observer{
			Heartbeat: func(_ context.Context, e fleet.HeartbeatEvent) {
				if e.Err != nil {
					t.Errorf("after %v: %v", time.Since(began), e.Err)
				}
			},
			Failure: func(_ context.Context, e fleet.FailureEvent) {
				if e.Doing == "look at the members" {
					t.Errorf("after %v: %v", time.Since(began), e.Err)
				}
			},
		}})
		found := plans(t.Context(), t, n)
		for range 4 {
			within(t, found, 10*time.Minute)
		}
		if took := time.Since(began); took < time.Minute {
			t.Errorf("the takeovers were over after %v, too soon to show anything", took)
		}
	})
}

// TestPlansOfAnotherProgram: a node neither takes nor reports plans that another program wrote, and Inspect counts them. A
// request to stop one is removed, because nobody ever obeys it.
func TestPlansOfAnotherProgram(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		v := vaulttest.OnEmulator(t, server)
		server.PutContainer(vaulttest.ContainerOf(vaulttest.DaysAgo(0)), nil) // without the marks of a vault
		others := vaulttest.PutForeign(server, vaulttest.DaysAgo(0), 1)
		must(t, v.Control().AddStop(t.Context(), others.Plan, ana)) // fleet.Stop would refuse it
		n := join(t, v, fleet.Options{TakeUnclaimed: true, Observer: fleet.Observer{
			Failure: func(_ context.Context, e fleet.FailureEvent) {
				if !errors.Is(e.Err, context.DeadlineExceeded) { // of a search at the moment when the loop below ends
					t.Errorf("%s: %v", e.Doing, e.Err)
				}
			},
		}})
		ctx, cancel := context.WithTimeout(t.Context(), 65*time.Minute) // two searches of all days
		defer cancel()
		for next := range n.Plans(ctx) {
			t.Errorf("the node got %+v", next)
		}
		i, err := fleet.Inspect(t.Context(), v, fleet.InspectOptions{})
		if roster, rosterErr := v.Control().Roster(t.Context()); err != nil || rosterErr != nil || i.Foreign != 1 || len(i.Plans) > 0 || len(roster.Stops) > 0 {
			t.Errorf("%+v, %+v, %v, %v", i, roster, err, rosterErr)
		}
		if changed := others.Changed(); len(changed) > 0 {
			t.Errorf("%v changed", changed)
		}
	})
}
