package costs_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// operation is a row of the table of costs in docs/protocol.md.
type operation struct {
	name string
	// prepare makes what the operation works on; do is what is counted.
	prepare func(t testing.TB, v *azblob.Vault, plan *workflow.Plan) *workflow.Plan
	do      func(t testing.TB, v *azblob.Vault, plan *workflow.Plan) error
	// requests and trips say what it may spend on a plan of n sub-objects, c requests at a time.
	requests, trips func(n, c int) int
}

func is(k int) func(int, int) int { return func(int, int) int { return k } }

var operations = []operation{
	{
		"Create", anew, func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error { return v.Create(t.Context(), p) },
		func(n, _ int) int { return n + 3 },
		func(n, c int) int { return 3 + vaulttest.Ceil(n, c) },
	},
	{
		"UpdateAction", stored1(workflow.Running), func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error {
			return v.UpdateAction(t.Context(), p.Blocks[0].Sequences[0].Actions[0])
		}, is(1), is(1),
	},
	{"UpdatePlan, running", stored1(workflow.Running), func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error { return v.UpdatePlan(t.Context(), p) }, is(2), is(2)},
	{"UpdatePlan, final", stored1(workflow.Running), func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error {
		p.State.Status = workflow.Completed
		return v.UpdatePlan(t.Context(), p)
	}, is(3), is(3)},
	{"Exists", stored1(workflow.Running), func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error {
		_, err := v.Exists(t.Context(), p.ID)
		return err
	}, is(1), is(1)},
	{"Read, NotStarted", stored1(workflow.NotStarted), readOne, is(2), is(1)},
	{"Read, final", stored1(workflow.Completed), readOne, is(2), is(1)},
	{"Read, running", stored1(workflow.Running), readOne, func(n, _ int) int {
		if n < parseMetadata {
			return n + 2
		}
		return 2 + 3 // blocks, sequences, actions
	}, func(n, c int) int {
		if n < parseMetadata {
			return 1 + vaulttest.Ceil(n, c)
		}
		return 2
	}},
	{"Read, running, 5 changed", changed(5), readOne, func(n, _ int) int {
		if n < parseMetadata {
			return n + 2
		}
		return 2 + 3 + 5
	}, func(n, c int) int {
		if n < parseMetadata {
			return 1 + vaulttest.Ceil(n, c)
		}
		return 2 + vaulttest.Ceil(5, c)
	}},
	{"Delete", stored1(workflow.Running), func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error { return v.Delete(t.Context(), p.ID) }, func(n, _ int) int { return 5 + vaulttest.Ceil(n, 256) }, is(6)},
	{"Search by ID", stored1(workflow.Running), func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error {
		found, err := v.Search(t.Context(), storage.Filters{ByIDs: []uuid.UUID{p.ID}})
		for r := range found {
			err = r.Err
		}
		return err
	}, is(2), is(1)},
	{"AddMember", control, func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error {
		_, err := v.AddMember(t.Context(), storage.Member{ID: p.ID})
		return err
	}, is(1), is(1)},
	{"RenewMember", member, func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error {
		_, err := v.RenewMember(t.Context(), storage.Member{ID: p.ID, Version: p.State.ETag})
		return err
	}, is(1), is(1)},
	{"FindMember", member, func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error {
		_, err := v.FindMember(t.Context(), p.ID)
		return err
	}, is(1), is(1)},
	{"Roster", member, func(t testing.TB, v *azblob.Vault, _ *workflow.Plan) error {
		_, err := v.Roster(t.Context())
		return err
	}, is(1), is(1)},
	{"RemoveMember", member, func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error {
		return v.RemoveMember(t.Context(), p.ID, p.State.ETag)
	}, is(1), is(1)},
	{"RequestStop", control, func(t testing.TB, v *azblob.Vault, p *workflow.Plan) error {
		return v.RequestStop(t.Context(), p.ID)
	}, is(1), is(1)},
}

// control prepares the control container.
func control(t testing.TB, v *azblob.Vault, p *workflow.Plan) *workflow.Plan {
	vaulttest.Must(t, v.RequestStop(t.Context(), workflow.NewV7()))
	p.ID = workflow.NewV7()
	return p
}

// member prepares a member with the ID and the version of the plan.
func member(t testing.TB, v *azblob.Vault, p *workflow.Plan) *workflow.Plan {
	p.ID = workflow.NewV7()
	var err error
	if p.State.ETag, err = v.AddMember(t.Context(), storage.Member{ID: p.ID}); err != nil {
		t.Fatal(err)
	}
	return p
}

func anew(_ testing.TB, _ *azblob.Vault, p *workflow.Plan) *workflow.Plan { return p }

func readOne(t testing.TB, v *azblob.Vault, p *workflow.Plan) error {
	_, err := v.Read(t.Context(), p.ID)
	return err
}

// listed is the number of sub-objects of three kinds from which listing them is cheaper than reading them.
const parseMetadata = 2 * 3 * 125 / 10

// changed prepares a running plan of which up to n actions were updated after its creation.
func changed(n int) func(testing.TB, *azblob.Vault, *workflow.Plan) *workflow.Plan {
	return func(t testing.TB, v *azblob.Vault, p *workflow.Plan) *workflow.Plan {
		p = stored1(workflow.Running)(t, v, p)
		actions := vaulttest.ActionsOf(p)
		for _, a := range actions[:min(n, len(actions))] {
			a.State.Status = workflow.Running
			vaulttest.Must(t, v.UpdateAction(t.Context(), a))
		}
		return p
	}
}

// stored1 prepares a plan with a status.
func stored1(status workflow.Status) func(testing.TB, *azblob.Vault, *workflow.Plan) *workflow.Plan {
	return func(t testing.TB, v *azblob.Vault, p *workflow.Plan) *workflow.Plan {
		vaulttest.Must(t, v.Create(t.Context(), p))
		if p.State.Status = status; status != workflow.NotStarted {
			vaulttest.Must(t, v.UpdatePlan(t.Context(), p))
		}
		return p
	}
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
		n := len(vaulttest.SubObjects(plan()))
		for _, c := range []int{256, 8} {
			for _, op := range operations {
				t.Run(fmt.Sprintf("%s of %d sub-objects, %d at a time", op.name, n, c), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						server := emulator.New(emulator.WithLatency(latency))
						v := vaulttest.OnEmulator(t, server, azblob.WithConcurrency(c))
						vaulttest.Must(t, v.Create(t.Context(), plantest.Small())) // the day is there
						p := op.prepare(t, v, plan())
						server.ResetRequests()
						started := time.Now()
						vaulttest.Must(t, op.do(t, v, p))
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

// BenchmarkOperations reports and checks the requests of each operation, beside its time and memory.
func BenchmarkOperations(b *testing.B) {
	for _, op := range operations {
		b.Run(op.name, func(b *testing.B) {
			server := emulator.New()
			v, err := azblob.NewFromConnectionString(b.Context(), "bench", server.ConnectionString(), plantest.Register(), azblob.WithTransport(server.Transport()))
			vaulttest.Must(b, err)
			vaulttest.Must(b, v.Create(b.Context(), plantest.Small()))
			n := len(vaulttest.SubObjects(plantest.Sized(4, 4, 4)))
			requests := 0
			for b.Loop() {
				b.StopTimer()
				p := op.prepare(b, v, plantest.Sized(4, 4, 4))
				server.ResetRequests()
				b.StartTimer()
				vaulttest.Must(b, op.do(b, v, p))
				requests += len(server.Requests())
			}
			per := float64(requests) / float64(b.N)
			b.ReportMetric(per, "requests/op")
			b.ReportAllocs()
			if want := op.requests(n, 256); per > float64(want) {
				b.Errorf("%.1f requests, %d are the budget", per, want)
			}
		})
	}
}

// TestCostOfListings counts the requests of listings and recovery as the vault grows.
func TestCostOfListings(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "14 days", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		now := time.Now()
		for i := range 140 {
			p := &workflow.Plan{ID: vaulttest.IDAt(now.Add(-time.Duration(i) * 2 * time.Hour))}
			vaulttest.Must(t, v.Create(t.Context(), p))
			if p.State.Status = workflow.Completed; i%14 == 0 {
				p.State.Status = workflow.Running
			}
			vaulttest.Must(t, v.UpdatePlan(t.Context(), p))
		}
		days := 0
		for range server.Containers() {
			days++
		}
		for name, c := range map[string]struct {
			do   func() error
			want int
		}{
			"List(10)": {func() error { vaulttest.Collect(t, v, storage.Filters{Limit: 10}); return nil }, 5}, // it is midnight: minutes and plans of two days
			"Search Running": {func() error {
				vaulttest.Collect(t, v, storage.Filters{ByStatus: []workflow.Status{workflow.Running}})
				return nil
			}, 1 + days + 10},
			"Recovery":        {func() error { return v.Recovery(t.Context()) }, 1 + days + 2*10},
			"Search of a day": {func() error { vaulttest.Collect(t, v, storage.Filters{After: now.Add(-2 * time.Hour)}); return nil }, 3},
		} {
			server.ResetRequests()
			vaulttest.Must(t, c.do())
			if n := len(server.Requests()); n > c.want {
				t.Errorf("%s: %d requests, %d are the budget", name, n, c.want)
			}
		}
	})
}

// TestCostOfManyPlans counts the requests of listings and recovery in a vault of many plans, on one day and
// on fourteen. They need few requests and few round trips, whatever the number of plans.
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
			server.ResetRequests()
			started := time.Now()
			vaulttest.Must(t, v.Recovery(t.Context()))
			if requests, trips := len(server.Requests()), int(time.Since(started)/latency); requests > 1+days+2*10 || trips > 3 {
				t.Errorf("Recovery, %v: %d requests, %d round trips", span, requests, trips)
			}
		})
	}
}
