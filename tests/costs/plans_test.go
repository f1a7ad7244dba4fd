package costs_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

var onPlans = []operation{
	{"Create", create(false)},
	{"Create, first of a day", create(true)},
	{"Restore, running", restore(workflow.Running)},
	{"Restore, final", restore(workflow.Completed)}, // it removes its marker
	{"UpdateAction", onStored(workflow.Running, none, updateAction)},
	{"UpdatePlan, running", onStored(workflow.Running, none, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		return v.UpdatePlan(ctx, p)
	})},
	{"UpdatePlan, final", onStored(workflow.Running, none, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		p.State.Status = workflow.Completed
		return v.UpdatePlan(ctx, p)
	})},
	{"Exists", onStored(workflow.Running, none, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		return vaulttest.ErrOf(v.Exists(ctx, p.ID))
	})},
	{"Read, not started", onStored(workflow.NotStarted, none, read)},
	{"Read, running", onStored(workflow.Running, none, read)},
	{"Read, running, few changed", onStored(workflow.Running, few, read)},
	{"Read, running, all actions changed", onStored(workflow.Running, all, read)},
	{"Read, final", onStored(workflow.Completed, none, read)},
	{"Search by ID", onStored(workflow.Running, none, func(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
		return vaulttest.ErrOf(storage.Collect(v.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{p.ID}})))
	})},
	{"Delete", onStored(workflow.Running, none, remove)},
	{"Delete, few changed", onStored(workflow.Running, few, remove)},
}

// create measures the first Create of a day, or a later one.
func create(first bool) func(testing.TB, *scene) func() {
	return func(t testing.TB, s *scene) func() {
		if !first {
			vaulttest.Must(t, s.vault.Create(t.Context(), plantest.Small()))
		}
		p := s.plan()
		s.again = func() { p = s.plan() }
		return func() { vaulttest.Must(t, s.vault.Create(t.Context(), p)) }
	}
}

// restore measures the Restore of a plan with a status that another store has.
func restore(status workflow.Status) func(testing.TB, *scene) func() {
	return func(t testing.TB, s *scene) func() {
		vaulttest.Must(t, s.vault.Create(t.Context(), plantest.Small()))
		p := vaulttest.Copied(s.plan(), status)
		return func() { vaulttest.Must(t, s.vault.Restore(t.Context(), p)) }
	}
}

// onStored measures do on a stored plan of a status. Some of its actions were updated after Create; changed says how many.
func onStored(status workflow.Status, changed func(actions int) int, do func(context.Context, *azblob.Vault, *workflow.Plan) error) func(testing.TB, *scene) func() {
	return func(t testing.TB, s *scene) func() {
		p := s.plan()
		vaulttest.Must(t, s.vault.Create(t.Context(), p))
		if status != workflow.NotStarted {
			p.State.Status = workflow.Running
			if p.Owner = s.owner; s.owner != uuid.Nil {
				p.Epoch = 1
			}
			vaulttest.Must(t, s.vault.UpdatePlan(t.Context(), p))
		}
		actions := vaulttest.ActionsOf(p)
		for _, a := range actions[:changed(len(actions))] {
			a.State.Status = workflow.Running
			vaulttest.Must(t, s.vault.UpdateAction(t.Context(), a))
		}
		if status.Final() {
			p.State.Status = status
			vaulttest.Must(t, s.vault.UpdatePlan(t.Context(), p))
		}
		stored := p.State
		s.again = func() { p.State = stored }
		return func() { vaulttest.Must(t, do(t.Context(), s.vault, p)) }
	}
}

func none(int) int  { return 0 }
func few(n int) int { return vaulttest.Ceil(n, 100) }
func all(n int) int { return n }

func updateAction(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
	return v.UpdateAction(ctx, p.Blocks[0].Sequences[0].Actions[0])
}

func read(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error {
	return vaulttest.ErrOf(v.Read(ctx, p.ID))
}

func remove(ctx context.Context, v *azblob.Vault, p *workflow.Plan) error { return v.Delete(ctx, p.ID) }

var ofMembers = []operation{
	{"AddMember", onMember(func(ctx context.Context, v *azblob.Vault, _ storage.Member) error {
		return vaulttest.ErrOf(v.Control().AddMember(ctx, storage.Member{ID: workflow.NewV7()}))
	})},
	{"RenewMember", onMember(func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
		return vaulttest.ErrOf(v.Control().RenewMember(ctx, m))
	})},
	{"FindMember", onMember(func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
		return vaulttest.ErrOf(v.Control().FindMember(ctx, m.ID))
	})},
	{"Roster", onMember(func(ctx context.Context, v *azblob.Vault, _ storage.Member) error {
		return vaulttest.ErrOf(v.Control().Roster(ctx))
	})},
	{"RemoveMember", onMember(func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
		return v.Control().RemoveMember(ctx, m.ID, m.Version)
	})},
	{"AddStop", onMember(func(ctx context.Context, v *azblob.Vault, m storage.Member) error {
		return v.Control().AddStop(ctx, m.ID, workflow.Attribution{})
	})},
	{"fleet.Stop, logged", func(t testing.TB, s *scene) func() {
		stop := func(p *workflow.Plan) {
			vaulttest.Must(t, fleet.Stop(t.Context(), s.vault, p.ID, workflow.Attribution{By: "ana"}))
		}
		p, first := plantest.Small(), plantest.Small()
		vaulttest.Must(t, errors.Join(s.vault.Create(t.Context(), p), s.vault.Create(t.Context(), first)))
		stop(first) // the containers are there
		return func() { stop(p) }
	}},
}

// onMember measures do on a stored member.
func onMember(do func(context.Context, *azblob.Vault, storage.Member) error) func(testing.TB, *scene) func() {
	return func(t testing.TB, s *scene) func() {
		m := storage.Member{ID: workflow.NewV7()}
		var err error
		m.Version, err = s.vault.Control().AddMember(t.Context(), m)
		vaulttest.Must(t, err)
		return func() { vaulttest.Must(t, do(t.Context(), s.vault, m)) }
	}
}
