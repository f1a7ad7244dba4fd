package fleet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// azure opens a vault of its own on an emulator, over a transport of its own.
func azure(t testing.TB, server *emulator.Server, opts ...azblob.Option) (*azblob.Vault, *emulator.Transport) {
	t.Helper()
	transport := server.Transport()
	v, err := azblob.NewFromConnectionString(t.Context(), "fleet", server.ConnectionString(), plantest.Register(),
		append(opts, azblob.WithTransport(transport))...)
	must(t, err)
	t.Cleanup(func() { _ = v.Close(context.WithoutCancel(t.Context())) })
	return v, transport
}

// TestTakeTrips counts the round trips of the take of a large plan, most of which has changed or nothing of which
// has, with c requests in flight: at most 4 + 2⌈N/c⌉.
func TestTakeTrips(t *testing.T) {
	const latency = 10 * time.Millisecond
	for _, test := range []struct {
		plan    *workflow.Plan
		c       int
		changed bool
	}{
		{plantest.Sized(2, 5, 10), 16, true},
		{efforttest.Pick(plantest.Sized(2, 5, 10), plantest.Sized(3, 8, 10), plantest.Sized(10, 10, 10)), 64, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(emulator.WithLatency(latency))
			author, _ := azure(t, server)
			worker, _ := azure(t, server, azblob.WithConcurrency(test.c))
			parts := workflow.Parts(orphan(t, author, test.plan))
			for _, o := range parts {
				if test.changed {
					must(t, moves(t.Context(), author, o, workflow.Running))
				}
			}
			n := join(t, worker, fleet.Options{})
			server.ResetRequests()
			began := time.Now()
			must(t, second(n.Take(t.Context(), test.plan.ID)))
			trips, requests := int(time.Since(began)/latency), len(server.Requests())
			most := 4 + 2*((len(parts)+test.c-1)/test.c)
			t.Logf("%d sub-objects, %d in flight: %d requests, %d round trips of %d", len(parts), test.c, requests, trips, most)
			if trips > most || requests > 2*len(parts)+8 {
				t.Errorf("%d sub-objects, %d in flight: %d requests, %d round trips, want at most %d", len(parts), test.c, requests, trips, most)
			}
		})
	}
}

// TestTakeAtEachRequest lets a taker meet a fault at each request of its take: it crashes before or after the
// request takes effect, or the answer is lost. A crash leaves a plan that the next taker finishes, alone; a lost
// answer is nobody's loss.
func TestTakeAtEachRequest(t *testing.T) {
	effects := []emulator.Effect{
		emulator.Crash().Applied(), emulator.LostAnswer(), emulator.Crash(), emulator.LostRequest(),
		emulator.Answer(503, "ServerBusy"), emulator.Answer(500, "InternalError").Applied(),
	}
	for _, effect := range effects[:efforttest.Pick(1, 2, 6)] {
		for nth, more := 1, true; more; nth += efforttest.Pick(2, 1, 1) {
			synctest.Test(t, func(t *testing.T) { more = takeWith(t, effect, nth) })
		}
	}
}

// takeWith takes a plan while the nth request meets a fault. It reports whether there was such a request.
func takeWith(t *testing.T, effect emulator.Effect, nth int) bool {
	server := emulator.New()
	author, _ := azure(t, server)
	plan := orphan(t, author, plantest.Small())
	v, transport := azure(t, server)
	a := join(t, v, fleet.Options{})
	transport.Inject(emulator.On().Nth(nth).Do(effect))
	server.ResetRequests()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	taken, err := a.Take(ctx, plan.ID)
	met := slices.ContainsFunc(server.Requests(), func(r emulator.Request) bool { return r.Fault != "" }) || transport.Crashed()
	if !transport.Crashed() {
		transport.ClearFaults()
		if err != nil {
			t.Fatalf("%v at request %d: Take returned %v", effect, nth, err)
		}
		if taken.Epoch != 2 {
			t.Errorf("%v at request %d: the epoch is %d: the take did not recognise its own write", effect, nth, taken.Epoch)
		}
		must(t, finish(t.Context(), v, taken))
		checked(t, author)
		return met
	}
	next, _ := azure(t, server)
	b := join(t, next, fleet.Options{Capacity: 1})
	taken = within(t, plans(t.Context(), t, b), time.Minute)
	if err := storage.Update(t.Context(), author, actions(plan)[0]); !errors.Is(err, storage.ErrConflict) {
		t.Errorf("%v at request %d: the first owner's update returned %v", effect, nth, err)
	}
	must(t, finish(t.Context(), next, taken))
	checked(t, author)
	if p := read(t, author, plan.ID); p.State.Status != workflow.Completed || p.Owner != b.ID() {
		t.Errorf("%v at request %d: the plan is %s of %s", effect, nth, p.State.Status, p.Owner)
	}
	return met
}

// checked fails the test if the vault's check finds something.
func checked(t testing.TB, v *azblob.Vault) {
	t.Helper()
	report, err := v.Check(t.Context(), azblob.CheckOptions{})
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
				server := emulator.New()
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

// TestHeartbeatAnswersAreLost: a node whose heartbeats take effect without an answer does not take them for
// somebody else's.
func TestHeartbeatAnswersAreLost(t *testing.T) {
	for _, effect := range []emulator.Effect{emulator.LostAnswer(), emulator.Silence().Applied(), emulator.Answer(500, "InternalError").Applied()} {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New()
			v, _ := azure(t, server)
			n := join(t, v, fleet.Options{})
			server.Inject(emulator.On(emulator.PutBlob).Path("nodes/*").Every(2).Do(effect))
			time.Sleep(10 * time.Minute)
			if err := context.Cause(n.Context()); err != nil {
				t.Errorf("%v: %v", effect, err)
			}
			leave(t, n)
		})
	}
}

// TestHeartbeatsDoNotWait: a node renews its record in time, however many requests its takeovers have waiting.
func TestHeartbeatsDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.WithLatency(500*time.Millisecond), emulator.WithoutLog())
		author, _ := azure(t, server)
		worker, _ := azure(t, server, azblob.WithConcurrency(2))
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
