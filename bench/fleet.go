package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// fleetRows returns what a fleet costs: the operations on a plan, and a node with the default settings over
// some time.
func fleetRows() (rows []row) {
	for _, s := range sizes() {
		rows = append(rows, row{operation: operation{"fleet: claim", withQuietNode(workflow.NotStarted, claim), fixed(2, 1)}, size: s})
	}
	for _, s := range sizes() {
		rows = append(rows, row{operation: operation{"fleet: take", withQuietNode(workflow.Running, take), takeBudget}, size: s})
	}
	fortnight := shape{plans: smallestVault, days: 14}
	return append(rows,
		row{operation: operation{"fleet: an hour of an idle node", idleNode, fixed(35_000/24, 0)}, period: time.Hour},
		row{operation: operation{"fleet: a day of an idle node", idleNode, fixed(35_000, 0)}, period: 24 * time.Hour, long: true},
		row{operation: operation{"fleet: two minutes beside 1000 open plans", beside(1000), nodeBudget(0, 1000)}, period: 2 * time.Minute},
		row{operation: operation{"fleet: an hour beside 10000 open plans", beside(10_000), nodeBudget(1, 10_000)}, period: time.Hour, long: true},
		row{operation: operation{"fleet: five minutes", idleNode, nodeBudget(0, 0)}, vault: fortnight, period: 5 * time.Minute},
		row{operation: operation{"fleet: five minutes with a death", besideDying, nodeBudget(2, fill.RunningPlans)}, vault: fortnight, period: 5 * time.Minute},
	)
}

// withQuietNode prepares a node that sends no requests of its own, and a plan of this status whose owner is
// dead.
func withQuietNode(status workflow.Status, do func(context.Context, *fleet.Node, *workflow.Plan) error) prepare {
	return func(ctx context.Context, s *scene) (step, error) {
		node, err := fleet.Join(ctx, s.vault, fleet.Options{Interval: time.Hour})
		if err != nil {
			return nil, err
		}
		s.after = node.Leave
		stored := onStored(status, all, func(ctx context.Context, _ *azblob.Vault, p *workflow.Plan) error { return do(ctx, node, p) })
		if status != workflow.NotStarted {
			s.owner = workflow.NewV7()
		}
		return stored(ctx, s)
	}
}

func claim(ctx context.Context, node *fleet.Node, p *workflow.Plan) error { return node.Claim(ctx, p) }

func take(ctx context.Context, node *fleet.Node, p *workflow.Plan) error {
	_, err := node.Take(ctx, p.ID)
	return err
}

// takeBudget is a Read, a request for the owner's record, the claim with its look at the object, and the fence.
func takeBudget(s subject) budget {
	read := readRunning(all)(s)
	return budget{read.requests + 3 + s.n(), 4 + ceil(2*s.n(), concurrency)}
}

// idleNode joins and looks for plans.
func idleNode(ctx context.Context, s *scene) (step, error) {
	node, err := fleet.Join(ctx, s.vault, fleet.Options{})
	if err != nil {
		return nil, err
	}
	var failed error
	looking, stop := context.WithCancel(ctx)
	var loop sync.WaitGroup
	loop.Go(func() {
		for p, err := range node.Plans(looking) {
			if failed = err; err == nil {
				failed = fmt.Errorf("the node got plan %s", p.ID)
			}
			return
		}
	})
	s.after = func(ctx context.Context) error {
		stop()
		loop.Wait()
		return errors.Join(failed, node.Leave(ctx))
	}
	time.Sleep(settled) // the node has made its first searches
	return func(context.Context) error {
		time.Sleep(s.period)
		return nil
	}, nil
}

// settled is when a new node has made its first searches.
const settled = 15 * time.Second

// beside prepares an idle node beside open plans of another one.
func beside(plans int) prepare {
	return func(ctx context.Context, s *scene) (step, error) {
		other := storage.Member{ID: workflow.NewV7(), Name: "other", Started: time.Now(), TTL: 48 * time.Hour}
		if _, err := s.vault.AddMember(ctx, other); err != nil {
			return nil, err
		}
		for range plans {
			p := &workflow.Plan{Name: "open"}
			if err := s.vault.Create(ctx, p); err != nil {
				return nil, err
			}
			p.State.Status, p.Owner, p.Epoch = workflow.Running, other.ID, 1
			if err := s.vault.UpdatePlan(ctx, p); err != nil {
				return nil, err
			}
		}
		return idleNode(ctx, s)
	}
}

// besideDying prepares an idle node beside one that has just died.
func besideDying(ctx context.Context, s *scene) (step, error) {
	do, err := idleNode(ctx, s)
	if err != nil {
		return nil, err
	}
	_, err = s.vault.AddMember(ctx, storage.Member{ID: workflow.NewV7(), Name: "dying", Started: time.Now(), TTL: 30 * time.Second})
	return do, err
}

// nodeBudget is what a node costs over a period: a heartbeat, a look at the members and the lists of two days
// each 10 seconds, and some more. Beside open plans a list has more pages. A scan of all days, which a node
// makes each hour and twice after a death, is one list of the days, a list of each day and a request for each
// open plan.
func nodeBudget(scans, open int) func(subject) budget {
	return func(s subject) budget {
		ticks := int(s.period / (10 * time.Second))
		pages := max(1, ceil(open, pageSize))
		days := max(1, s.vault.days)
		return budget{ticks*(3+pages) + scans*(1+days*pages+open) + 10, 0}
	}
}
