package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
)

// This file holds what several commands ask of the fleet.

// inspect inspects the vault, with progress.
func (a *app) inspect(ctx context.Context, v storage.Vault, o fleet.InspectOptions) (fleet.Inspection, error) {
	p := a.progress("look", "plan", 0).then(untouched)
	defer p.end()
	o.Progress = p.reach
	i, err := fleet.Inspect(ctx, v, o)
	if i.Suspended != nil {
		fmt.Fprintln(a.stderr, "planvault:", suspendedText(*i.Suspended))
	}
	return i, err
}

// suspendedText says that a vault is suspended, so that its plans do not go on, and what resumes it or where its plans run.
func suspendedText(c storage.Suspension) string {
	text := "the vault is suspended"
	if !c.At.IsZero() {
		text += " since " + stamp(c.At)
	}
	text += signed(c.By, c.Why) + ": no plan goes on here; "
	return text + human.Resumes(c.Copy, c.MovedTo)
}

// readNone is an age that no plan has: an inspection reads none.
const readNone = time.Duration(math.MaxInt64)

// alive says how many nodes are alive.
func alive(i fleet.Inspection) string {
	if n := i.Alive(); n != 1 {
		return count(n) + " nodes are alive"
	}
	return "1 node is alive"
}

// memberOf returns a member of the fleet, or nil.
func memberOf(i fleet.Inspection, id uuid.UUID) *fleet.MemberState {
	for n := range i.Members {
		if i.Members[n].Member.ID == id {
			return &i.Members[n]
		}
	}
	return nil
}

// hears says when an engine of another kind, which places a plan, sees what was asked of the plan. It is empty for other plans.
func hears(ctx context.Context, v storage.Reader, p storage.ListResult) string {
	switch {
	case p.External == "":
		return ""
	case p.Owner != uuid.Nil:
		return fmt.Sprintf("%s, an engine of another kind, places the plan: it sees this within 10s while it works on the plan, and otherwise when it runs the plan next.", p.External)
	}
	text := fmt.Sprintf("%s, an engine of another kind, places the plan, and sees this when it runs the plan next.", p.External)
	if plan, err := v.Read(ctx, p.ID); err == nil && plan.External.Ask != "" {
		text += " Ask it: " + plan.External.Ask
	}
	return text
}
