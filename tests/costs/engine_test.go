package costs_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// engineLoad is plans that an engine runs, one after the other, on a vault that takes no time.
type engineLoad struct {
	size  size
	plans int
	fleet *fleet.Options
	// ratio is the budget of processor time, in that of the floor, and allocs that of allocations for each action.
	ratio, allocs float64
}

func (l engineLoad) String() string {
	name := fmt.Sprintf("%d %s", l.plans, l.size.name)
	if l.fleet != nil {
		name += ", in a fleet"
	}
	return name
}

func engineLoads() []engineLoad {
	mid := size{"M", unbypassed}
	return []engineLoad{
		{size: sizes[0], plans: 60, ratio: 78, allocs: 240},
		{size: mid, plans: 10, ratio: 60, allocs: 90},
		{size: sizes[2], plans: 1, ratio: 52, allocs: 84},
		{size: mid, plans: 10, fleet: &fleet.Options{Interval: time.Hour}, ratio: 64, allocs: 91},
	}
}

// BenchmarkEngine runs the plans, and the floor.
func BenchmarkEngine(b *testing.B) {
	for _, l := range engineLoads() {
		b.Run(l.String(), func(b *testing.B) {
			op, floor := l.start(b)
			b.Run("engine", op.benchmark)
			b.Run("floor", floor.benchmark)
		})
	}
}

// TestEngineBudgets holds an engine's allocations against their budget, and with -args -ratios its processor time.
func TestEngineBudgets(t *testing.T) {
	efforttest.NotShort(t, "it counts allocations")
	for _, l := range engineLoads() {
		t.Run(l.String(), func(t *testing.T) {
			op, floor := l.start(t)
			n := testing.AllocsPerRun(1, op.do) / float64(l.plans*len(vaulttest.ActionsOf(l.size.plan())))
			if t.Logf("%.1f allocations for each action", n); n > l.allocs {
				t.Errorf("%.1f allocations for each action of %.0f", n, l.allocs)
			}
			if *ratios {
				judge(t, op, floor, l.ratio)
			}
		})
	}
}

// start starts an engine and returns how it runs the plans. The floor calls their plugins, one after the other and each with
// its timeout, and the vault as often as the engine does.
func (l engineLoad) start(t testing.TB) (op, floor side) {
	echo := engine.Task(plantest.PluginName, func(context.Context, engine.Call, plantest.Request) (*plantest.Response, error) {
		return &plantest.Response{}, nil
	})
	reg := registry.Must(echo)
	v := &nullVault{Vault: memvault.New(reg, memvault.Options{}), searched: make(chan struct{}, 1)}
	ended := make(chan struct{})
	worker, err := engine.New(v, engine.Options{Fleet: l.fleet, Poll: time.Hour, Observer: engine.Observer{
		Changed: func(_ context.Context, e engine.ChangedEvent) {
			if e.Object.Kind() == workflow.KindPlan && e.Object.Header().State.Status.Final() {
				ended <- struct{}{}
			}
		},
	}})
	vaulttest.Must(t, err)
	running, leave := context.WithCancel(t.Context())
	var work errgroup.Group
	work.Go(func() error { return worker.Run(running) })
	t.Cleanup(func() {
		leave()
		vaulttest.Must(t, work.Wait())
	})
	<-v.searched // it takes what is submitted

	plan := l.size.plan()
	each := func(do func()) side {
		return side{do: func() {
			for range l.plans {
				plan.ID = workflow.NewV7()
				do()
			}
		}}
	}
	op = each(func() {
		_, err := worker.Submit(running, plan)
		vaulttest.Must(t, err)
		<-ended
	})
	op.do()
	writes := int(v.writes.Load()) / l.plans
	floor = each(func() {
		_ = v.Create(running, plan)
		for range writes - 1 {
			_ = v.UpdatePlan(running, plan)
		}
		for _, a := range vaulttest.ActionsOf(plan) {
			timed, cancel := context.WithTimeout(running, a.Timeout)
			_, err := echo.Run(timed, engine.Call{Action: a.ID, Plan: plan.ID, Attempt: 1}, a.Req)
			cancel()
			if err != nil {
				t.Error(err)
			}
		}
	})
	return op, floor
}

// nullVault counts what is written of plans and stores none of it. It has the members of a fleet.
type nullVault struct {
	*memvault.Vault
	writes   atomic.Int64
	searched chan struct{} // has an element after a search
}

func (v *nullVault) Search(ctx context.Context, f storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	select {
	case v.searched <- struct{}{}:
	default:
	}
	return v.Vault.Search(ctx, f)
}

func (v *nullVault) Create(_ context.Context, plan *workflow.Plan) error {
	driver.Complete(plan)
	return v.wrote()
}

func (v *nullVault) wrote() error {
	v.writes.Add(1)
	return nil
}

func (v *nullVault) UpdatePlan(context.Context, *workflow.Plan) error         { return v.wrote() }
func (v *nullVault) UpdateChecks(context.Context, *workflow.Checks) error     { return v.wrote() }
func (v *nullVault) UpdateBlock(context.Context, *workflow.Block) error       { return v.wrote() }
func (v *nullVault) UpdateSequence(context.Context, *workflow.Sequence) error { return v.wrote() }
func (v *nullVault) UpdateAction(context.Context, *workflow.Action) error     { return v.wrote() }
