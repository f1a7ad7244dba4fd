package web

import (
	"context"
	"iter"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// roster reads the roster for the pages of plans.
func (s *Server) roster(ctx context.Context, _ struct{}) (storage.Roster, error) {
	control, ok := storage.As[storage.Control](s.store)
	if !ok {
		return storage.Roster{}, nil
	}
	return control.Roster(ctx)
}

// judge adds to the page of a plan what the roster shows: the owner's name, and whether and why the plan is stuck.
func (s *Server) judge(ctx context.Context, p *workflow.Plan, roster storage.Roster, o *report.Options) {
	for _, m := range roster.Members {
		if m.ID == p.Owner {
			o.OwnerName = m.Name
		}
	}
	if p.State.Status.Final() {
		return
	}
	i, err := fleet.Inspect(ctx, onePlan{plan: p, roster: roster, vault: s.store}, fleet.InspectOptions{Older: s.o.Older, Plans: []uuid.UUID{p.ID}})
	if err != nil || len(i.Plans) != 1 {
		return
	}
	open := i.Plans[0]
	if o.Commands = s.commandsFor(open); open.Stuck {
		o.Stuck = open.Why
	} else if open.Condition == fleet.ConditionTurn {
		o.Turn = open.Why
	}
}

// onePlan is what an inspection needs to judge a plan that was read, at no further request but for the keys for which the plan
// may wait.
type onePlan struct {
	storage.Vault   // nil: an inspection only searches and reads
	storage.Control // nil: it looks at the roster and at notes
	plan            *workflow.Plan
	roster          storage.Roster
	vault           storage.Vault // has the keys
}

func (o onePlan) FindKey(ctx context.Context, name string) (storage.KeyRecord, error) {
	control, err := storage.Require[storage.Control](o.vault)
	if err != nil {
		return storage.KeyRecord{}, err
	}
	return control.FindKey(ctx, name)
}

func (o onePlan) Roster(context.Context) (storage.Roster, error) { return o.roster, nil }

func (o onePlan) FindNote(context.Context, string) (storage.Note, error) {
	return storage.Note{}, storage.ErrNotFound
}

func (o onePlan) Read(context.Context, uuid.UUID) (*workflow.Plan, error) { return o.plan, nil }

func (o onePlan) Search(context.Context, storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	return slices.Values([]storage.Stream[storage.ListResult]{{Result: driver.Listed(o.plan)}}), nil
}
