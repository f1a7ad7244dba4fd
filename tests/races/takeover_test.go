package races_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/tests/vaulttest"
)

// lonely is a store whose members are kept apart, so its node takes any plan that is not its own: what a takeover
// promises does not depend on who is a member.
type lonely struct {
	storage.Vault
	storage.Members
}

// ownership is what the actors of a takeover did in one run, by name.
type ownership struct {
	mu    sync.Mutex
	run   *run
	nodes map[string]uuid.UUID
	ended map[string]bool // whose update to a final status returned nil
}

// note remembers the node of an actor, and whether it ended the plan.
func (o *ownership) note(a *acting, node uuid.UUID, ended bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.run != a.run {
		o.run, o.nodes, o.ended = a.run, map[string]uuid.UUID{}, map[string]bool{}
	}
	o.nodes[a.name], o.ended[a.name] = node, ended
}

// runs ends a plan: its block, then the plan itself.
func runs(ctx context.Context, v storage.Vault, plan *workflow.Plan) error {
	block := plan.Blocks[0]
	for block.State.Status != workflow.Completed {
		block.State.Status++
		if err := v.UpdateBlock(ctx, block); err != nil {
			return err
		}
	}
	plan.State.Status = workflow.Completed
	return v.UpdatePlan(ctx, plan)
}

// zombie is the owner from before all takes. It knows the plan as it was begun.
func zombie(o *ownership) actor {
	return actor{name: "zombie", do: func(ctx context.Context, a *acting, v *azblob.Vault) error {
		mine, block := *a.run.was, *a.run.was.Blocks[0]
		mine.Blocks = []*workflow.Block{&block}
		err := runs(ctx, v, &mine)
		o.note(a, mine.Owner, err == nil)
		return err
	}}
}

// taker takes the plan and ends it. Without a rival, nothing that the zombie writes gets in its way.
func taker(name string, o *ownership, rival bool) actor {
	return actor{name: name, do: func(ctx context.Context, a *acting, v *azblob.Vault) error {
		n, err := fleet.Join(ctx, lonely{v, memvault.New(nil)}, fleet.Options{Name: name})
		if err != nil {
			return err
		}
		defer n.Leave(context.WithoutCancel(ctx))
		for round := 0; ; round++ {
			plan, err := n.Take(ctx, target)
			if err != nil || plan.State.Status.Final() {
				return err
			}
			if round > 0 {
				a.run.Errorf("%s met a conflict after its fence, and the plan was still its own", name)
			}
			err = runs(ctx, v, plan)
			o.note(a, n.ID(), err == nil)
			if !errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrUnknown) {
				return err
			}
			if !rival {
				a.run.Errorf("%s met a conflict after its fence: %v", name, err)
			}
		}
	}}
}

// takeovers returns the spaces of takes beside the former owner and each other.
func takeovers() (list []space) {
	o := new(ownership)
	prepare := func(t *testing.T, server *emulator.Server) (was, will *workflow.Plan) {
		v := vaulttest.OnEmulator(t, server)
		begun := numbered(&workflow.Plan{Name: "taken", Blocks: []*workflow.Block{{Name: "only"}}}, 1)
		vaulttest.Created(t, v, begun)
		begun.Owner, begun.Epoch, begun.State.Status = uuid.MustParse(numberedPrefix+"ffffffffffff"), 1, workflow.Running
		vaulttest.Must(t, v.UpdatePlan(t.Context(), begun))
		return begun, nil
	}
	judge := func(r *run, v *azblob.Vault) {
		ended := ""
		for _, a := range r.actors {
			a.may = []error{storage.ErrConflict, fleet.ErrFenced}
			r.returned(a)
			if o.run != r || !o.ended[a.name] {
				continue
			}
			if ended != "" {
				r.Errorf("both %s and %s ended the plan", ended, a.name)
			}
			ended = a.name
		}
		r.server.DeliverLate()
		if err := taker("alone", new(ownership), false).do(r.Context(), &acting{run: r}, v); err != nil {
			r.Errorf("a node that is alone can't end the plan: %v", err)
		}
		plan, err := v.Read(r.Context(), target)
		switch {
		case err != nil:
			r.Error(err)
		case plan.State.Status != workflow.Completed || plan.Blocks[0].State.Status != workflow.Completed:
			r.Errorf("the plan is %s, its block %s", plan.State.Status, plan.Blocks[0].State.Status)
		case ended != "" && plan.Owner != o.nodes[ended]:
			r.Errorf("%s ended the plan, and its owner is %s", ended, plan.Owner)
		}
		vaulttest.Settled(r.T, v)
	}
	for _, s := range []space{
		{name: "a take and the former owner", actors: []actor{taker("first", o, false), zombie(o)}},
		{name: "two takes", actors: []actor{taker("first", o, true), taker("second", o, true)}},
		{name: "two takes and the former owner", actors: []actor{taker("first", o, true), taker("second", o, true), zombie(o)}},
	} {
		s.prepare, s.judge = prepare, judge
		list = append(list, s)
	}
	return list
}
