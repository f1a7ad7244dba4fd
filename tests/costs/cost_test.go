package costs_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// operation is a row of the table of costs in docs/protocol.md.
type operation struct {
	name    string
	prepare func(t *testing.T, v *azblob.Vault, plan *workflow.Plan)
	do      func(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error // is counted
	// requests and trips say what it may spend on a plan of n sub-objects, c requests at a time.
	requests, trips func(n, c int) int
}

var operations = []operation{
	{"Create", nothing, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error { return v.Create(ctx, p) }, all(3), atOnce(3)},
	{"Restore, running", finished(workflow.Running), restore, all(3), atOnce(3)},
	{"Restore, final", finished(workflow.Completed), restore, all(4), atOnce(4)}, // it removes its marker
	{"UpdateAction", created(workflow.Running), func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		return v.UpdateAction(ctx, p.Blocks[0].Sequences[0].Actions[0])
	}, is(1), is(1)},
	{"UpdatePlan, running", created(workflow.Running), func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error { return v.UpdatePlan(ctx, p) }, is(2), is(2)},
	{"UpdatePlan, final", created(workflow.Running), func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		p.State.Status = workflow.Completed
		return v.UpdatePlan(ctx, p)
	}, is(3), is(3)},
	{"Exists", created(workflow.Running), func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		return vaulttest.ErrOf(v.Exists(ctx, p.ID))
	}, is(1), is(1)},
	{"Read, NotStarted", created(workflow.NotStarted), read, is(2), is(1)},
	{"Read, final", created(workflow.Completed), read, is(2), is(1)},
	{"Read, running", created(workflow.Running), read, reads(0), readTrips(0)},
	{"Read, running, 5 changed", changed, read, reads(5), readTrips(5)},
	{"Delete", created(workflow.Running), remove, func(n, _ int) int { return 7 + vaulttest.Ceil(n, 256) }, is(6)},
	{"Delete, 5 changed", changed, remove, func(n, _ int) int { return 8 + vaulttest.Ceil(n, 256) + min(5, n-2) }, is(8)},
	{"Search by ID", created(workflow.Running), func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		return vaulttest.ErrOf(storage.Collect(v.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{p.ID}})))
	}, is(2), is(1)},
	{"AddMember", member, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
		return vaulttest.ErrOf(v.AddMember(ctx, storage.Member{ID: workflow.NewV7()}))
	}, is(1), is(1)},
	{"RenewMember", member, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		return vaulttest.ErrOf(v.RenewMember(ctx, storage.Member{ID: p.ID, Version: p.State.ETag}))
	}, is(1), is(1)},
	{"FindMember", member, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		return vaulttest.ErrOf(v.FindMember(ctx, p.ID))
	}, is(1), is(1)},
	{"Roster", member, func(ctx context.Context, v *azblob.Vault, _ *workflow.Plan) error {
		return vaulttest.ErrOf(v.Roster(ctx))
	}, is(1), is(1)},
	{"RemoveMember", member, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		return v.RemoveMember(ctx, p.ID, p.State.ETag)
	}, is(1), is(1)},
	{"RequestStop", member, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		return v.RequestStop(ctx, p.ID, workflow.Attribution{})
	}, is(1), is(1)},
}

func is(k int) func(int, int) int { return func(int, int) int { return k } }

// all is a request for each sub-object, and k more. atOnce is the same in round trips.
func all(k int) func(n, _ int) int { return func(n, _ int) int { return n + k } }

func atOnce(k int) func(n, c int) int { return func(n, c int) int { return k + vaulttest.Ceil(n, c) } }

// listed is the number of sub-objects of three kinds from which listing them is cheaper than reading them.
const listed = 2 * 3 * 125 / 10

// reads is the requests of a Read of a running plan whose sub-objects have three kinds, of which some have changed.
func reads(changed int) func(n, _ int) int {
	return func(n, _ int) int {
		if n < listed {
			return 2 + n
		}
		return 2 + 3 + changed
	}
}

func readTrips(changed int) func(n, c int) int {
	return func(n, c int) int {
		if n < listed {
			return 1 + vaulttest.Ceil(n, c)
		}
		return 2 + vaulttest.Ceil(changed, c)
	}
}

func read(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
	return vaulttest.ErrOf(v.Read(ctx, p.ID))
}

func restore(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error { return v.Restore(ctx, p) }

func remove(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error { return v.Delete(ctx, p.ID) }

func nothing(*testing.T, *azblob.Vault, *workflow.Plan) {}

// finished prepares a plan with a status that another store has.
func finished(status workflow.Status) func(*testing.T, *azblob.Vault, *workflow.Plan) {
	return func(_ *testing.T, _ *azblob.Vault, p *workflow.Plan) {
		vaulttest.Copied(p, status)
	}
}

// created stores the plan with a status.
func created(status workflow.Status) func(*testing.T, *azblob.Vault, *workflow.Plan) {
	return func(t *testing.T, v *azblob.Vault, p *workflow.Plan) {
		vaulttest.Must(t, v.Create(t.Context(), p))
		if p.State.Status = status; status != workflow.NotStarted {
			vaulttest.Must(t, v.UpdatePlan(t.Context(), p))
		}
	}
}

// changed stores the plan as running, and updates up to five actions.
func changed(t *testing.T, v *azblob.Vault, p *workflow.Plan) {
	created(workflow.Running)(t, v, p)
	actions := vaulttest.ActionsOf(p)
	for _, a := range actions[:min(5, len(actions))] {
		a.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdateAction(t.Context(), a))
	}
}

// member stores a record of a member with the ID and the version of the plan.
func member(t *testing.T, v *azblob.Vault, p *workflow.Plan) {
	p.ID = workflow.NewV7()
	var err error
	p.State.ETag, err = v.AddMember(t.Context(), storage.Member{ID: p.ID})
	vaulttest.Must(t, err)
}

// sizes are the plans on which costs are counted.
var sizes = []func() *workflow.Plan{
	plantest.Small,
	func() *workflow.Plan { return plantest.Sized(4, 4, 4) },
	func() *workflow.Plan { return plantest.Sized(2, 10, 13) },
}

// TestCost compares the requests of each operation, and its round trips in virtual time, with the table.
func TestCost(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	const latency = time.Second
	for _, plan := range sizes {
		n := len(workflow.Parts(plan()))
		for _, c := range []int{256, 8} {
			for _, op := range operations {
				t.Run(fmt.Sprintf("%s of %d sub-objects, %d at a time", op.name, n, c), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						server := emulator.New(emulator.WithLatency(latency))
						v := vaulttest.OnEmulator(t, server, azblob.Options{Concurrency: c})
						vaulttest.Must(t, v.Create(t.Context(), plantest.Small())) // the day is there
						p := plan()
						op.prepare(t, v, p)
						server.ResetRequests()
						started := time.Now()
						vaulttest.Must(t, op.do(t.Context(), v, p))
						requests, trips := len(server.Requests()), int(time.Since(started)/latency)
						if want := op.requests(n, c); requests > want {
							t.Errorf("%d requests, %d are the budget", requests, want)
						}
						if want := op.trips(n, c); trips > want {
							t.Errorf("%d round trips, %d are the budget", trips, want)
						}
					})
				})
			}
		}
	}
}

// TestCostOfManyPlans counts the requests and round trips of listings in a vault of many plans, on one day
// and on fourteen. They don't depend on the number of plans.
func TestCostOfManyPlans(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector, and filling the days takes a minute")
	const n, latency = 10_000, time.Second
	for _, span := range []time.Duration{12 * time.Hour, 14 * 24 * time.Hour} {
		vaulttest.InBubbleOf(t, emulator.New(emulator.WithLatency(latency)), func(t *testing.T, server *emulator.Server) {
			time.Sleep(20 * time.Hour)
			ids, open := vaulttest.Fill(t, server, n, 10, span)
			time.Sleep(2 * time.Hour) // the newest plan is not new
			slices.Reverse(ids)
			slices.Reverse(open)
			days := len(slices.Collect(server.Containers()))
			v := vaulttest.OnEmulator(t, server)
			pages := vaulttest.Ceil(2*n, 5000)
			for _, c := range []struct {
				name            string
				filters         storage.Filters
				want            []uuid.UUID
				requests, trips int
			}{
				{"List(10)", storage.Filters{Limit: 10}, ids[:10], 4, 4},
				{"List(1)", storage.Filters{Limit: 1}, ids[:1], 4, 4},
				{"List(1000)", storage.Filters{Limit: 1000}, ids[:1000], 4, 4},
				{"a page in the middle", storage.Filters{Limit: 10, BeforeID: ids[n/2]}, ids[n/2+1 : n/2+11], 4, 4},
				{"a page after a time", storage.Filters{Limit: 10, After: workflow.Time(ids[n/2])}, ids[:10], 4, 4},
				{"an hour", storage.Filters{After: workflow.Time(ids[n/2]).Add(-time.Hour), BeforeID: ids[n/2]}, ids[n/2+1 : n/2+1+int(n*time.Hour/span)], 4, 4},
				{"all", storage.Filters{Before: time.Now()}, ids, 1 + max(2*pages, days), 1 + vaulttest.Ceil(max(2*pages, days), 4) + 5},
				{"Running", storage.Filters{ByStatus: []workflow.Status{workflow.Running}}, open, 1 + days + 10, 3},
				{"Running, 3", storage.Filters{ByStatus: []workflow.Status{workflow.Running}, Limit: 3}, open[:3], 1 + days + 3, 6},
				{"Running before", storage.Filters{ByStatus: []workflow.Status{workflow.Running}, BeforeID: open[8]}, open[9:], 4 + 1, 3},
			} {
				server.ResetRequests()
				started := time.Now()
				got := vaulttest.Collect(t, v, c.filters)
				requests, trips := len(server.Requests()), int(time.Since(started)/latency)
				if !slices.EqualFunc(got, c.want, func(r storage.ListResult, id uuid.UUID) bool { return r.ID == id }) {
					t.Errorf("%s: %d plans, want %d", c.name, len(got), len(c.want))
				}
				if requests > c.requests {
					t.Errorf("%s, %v: %d requests, %d are the budget", c.name, span, requests, c.requests)
				}
				if trips > c.trips {
					t.Errorf("%s, %v: %d round trips, %d are the budget", c.name, span, trips, c.trips)
				}
			}
		})
	}
}

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
		got := vaulttest.Requests(server)
		intervals := hours * 360
		want := map[emulator.Op]int{
			emulator.PutBlob:        nodes * intervals,
			emulator.ListBlobs:      nodes * (3*intervals + days*hours),
			emulator.ListContainers: nodes * hours,
			emulator.HeadBlob:       nodes * open * hours,
			// From a quarter of an hour before midnight, the new day has no container, and each search makes sure of that.
			emulator.GetContainerProperties: nodes * (90 + 6) * (hours / 24),
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
				v := vaulttest.OnEmulator(t, server, azblob.Options{Concurrency: c})
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
