package web

import (
	"context"
	"iter"
	"slices"
	"strings"

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

// command returns a command of the tool for a shell. It has the flags that lead to the vault.
func (s *Server) command(when string, args ...string) report.Command {
	words := []string{"planvault"}
	for _, word := range slices.Concat(args, s.o.Flags) {
		words = append(words, quote(word))
	}
	return report.Command{When: when, Line: strings.Join(words, " ")}
}

// quote returns a word as POSIX shells read it.
func quote(word string) string {
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@+"
	if word != "" && strings.Trim(word, plain) == "" {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// remedyFor returns the command that may help a plan that is stuck, if there is one.
func (s *Server) remedyFor(p fleet.OpenPlan) []report.Command {
	id := p.Plan.ID.String()
	switch {
	case !p.Stuck:
	case p.Reason == fleet.ReasonNoProgress || p.Reason == fleet.ReasonStopIgnored:
		return []report.Command{s.command("If its node hangs and you can't restart it, evict it:", "takeover", id, "--evict", p.Plan.Owner.String())}
	case p.Reason == fleet.ReasonOwnerGone || p.Reason == fleet.ReasonOwnerSilent:
		return []report.Command{s.command("To make the live nodes look again, take it over:", "takeover", id)}
	case p.Reason == fleet.ReasonUnclaimed:
		return []report.Command{s.command("If its engine has died and a fleet is to go on with it:", "takeover", id, "--unclaimed")}
	case p.Reason == fleet.ReasonExternal:
		return []report.Command{s.command("If its engine is gone for ever and the fleet is to go on with it:", "takeover", id, "--external")}
	case p.Reason == fleet.ReasonUnreadable:
		return []report.Command{s.command("To see what is damaged:", "check")}
	}
	return nil
}

// commandsFor returns what an operator may want to run about an open plan.
func (s *Server) commandsFor(p fleet.OpenPlan) []report.Command {
	list := s.remedyFor(p)
	if !p.PausedSince.IsZero() && p.StopRequested.IsZero() {
		list = append(list, s.command("To let it go on, resume it:", "resume", p.Plan.ID.String()))
	}
	if p.Err == nil && p.StopRequested.IsZero() && p.Reason != fleet.ReasonUnclaimed {
		list = append(list, s.command("If it should not go on, stop it:", "stop", p.Plan.ID.String()))
	}
	return list
}

// commandsAfter returns what an operator may want to run about a plan that did not succeed.
func (s *Server) commandsAfter(p *workflow.Plan) []report.Command {
	if p.State.Status != workflow.Failed && p.State.Status != workflow.Stopped {
		return nil
	}
	return []report.Command{s.command("When the cause is repaired, run what is left in a fork:", "fork", p.ID.String(), "--from-failure")}
}
