package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// engineRow is a row of -cpu in which an engine runs plans, one after the other, on a vault that takes no time.
type engineRow struct {
	size  size
	plans int
	fleet *fleet.Options
	// ratio is the budget of processor time, as that of other rows, and allocs that of allocations for each action.
	ratio, allocs float64
}

// String returns the row's name.
func (r engineRow) String() string {
	name := fmt.Sprintf("Engine, %d %s", r.plans, r.size.name)
	if r.fleet != nil {
		name += ", in a fleet"
	}
	return name
}

func cpuOfEngine() []engineRow {
	small, mid, large := sizes()[0], size{"M", unbypassed}, sizes()[2]
	return []engineRow{
		{size: small, plans: 60, ratio: 78, allocs: 220},
		{size: mid, plans: 10, ratio: 60, allocs: 90},
		{size: large, plans: 1, ratio: 52, allocs: 84},
		{size: mid, plans: 10, fleet: &fleet.Options{Interval: time.Hour}, ratio: 64, allocs: 91},
	}
}

// compare measures the row and prints it.
func (r engineRow) compare(ctx context.Context, short bool, e effort, stdout io.Writer) error {
	op, floor, writes, err := r.measure(ctx, e)
	if err != nil {
		return err
	}
	n := float64(r.plans * len(actionsOf(r.size.plan())))
	allocs := float64(op.objects) / n
	err = verdict(stdout, short, r, writes, op, floor, r.ratio, fmt.Sprintf("  an action: %.1f µs, %.0f bytes, %.1f/%.0f allocs",
		float64(op.median().Nanoseconds())/1000/n, float64(op.bytes)/n, allocs, r.allocs))
	if allocs > r.allocs {
		err = errors.Join(err, fmt.Errorf("over budget: %.1f allocations for each action of %.0f", allocs, r.allocs))
	}
	return err
}

// measure starts an engine and measures how it runs the plans. The floor calls their plugins, one after the other and each
// with its timeout, and the vault as often as the engine does.
func (r engineRow) measure(ctx context.Context, e effort) (op, floor *side, writes int, err error) {
	echo := engine.Task(plantest.PluginName, func(context.Context, engine.Call, plantest.Request) (*plantest.Response, error) {
		return &plantest.Response{}, nil
	})
	reg := registry.Must(echo)
	v := &nullVault{Vault: memvault.New(reg), searched: make(chan struct{}, 1)}
	ended := make(chan struct{})
	worker, err := engine.New(v, engine.Options{Fleet: r.fleet, Poll: time.Hour, Observer: engine.Observer{
		Changed: func(_ context.Context, e engine.ChangedEvent) {
			if e.Object.Kind() == workflow.KindPlan && e.Object.Header().State.Status.Final() {
				ended <- struct{}{}
			}
		},
	}})
	if err != nil {
		return nil, nil, 0, err
	}
	running, leave := context.WithCancel(ctx)
	var work errgroup.Group
	work.Go(func() error { return worker.Run(running) })
	defer func() {
		leave()
		err = errors.Join(err, work.Wait())
	}()
	<-v.searched // it takes what is submitted

	plan := r.size.plan()
	actions := actionsOf(plan)
	op = r.side(plan, func() error {
		err := worker.Submit(ctx, plan)
		if err == nil {
			<-ended
		}
		return err
	})
	if err := op.once(ctx); err != nil {
		return nil, nil, 0, err
	}
	writes = int(v.writes.Load())
	floor = r.side(plan, func() error {
		err := v.Create(ctx, plan)
		for range writes/r.plans - 1 {
			err = errors.Join(err, v.UpdatePlan(ctx, plan))
		}
		for _, a := range actions {
			timed, cancel := context.WithTimeout(ctx, a.Timeout)
			_, failed := echo.Run(timed, engine.Call{Action: a.ID, Plan: plan.ID, Attempt: 1}, a.Req)
			cancel()
			err = errors.Join(err, failed)
		}
		return err
	})
	return op, floor, writes, weigh(ctx, e, op, floor)
}

// side returns the side that does this with each of the row's plans, which are one plan with new IDs.
func (r engineRow) side(plan *workflow.Plan, do func() error) *side {
	return &side{do: func(context.Context) error {
		for range r.plans {
			plan.ID = workflow.NewV7()
			if err := do(); err != nil {
				return err
			}
		}
		return nil
	}}
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
