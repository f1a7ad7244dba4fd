package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// A short ID is the last digits of an ID. The first ones are time, so those of neighbors are the same.

// shortDigits is how many digits tables show of an ID, and the fewest that name one.
const shortDigits = 8

// shortID returns the last digits of an ID.
func shortID(id uuid.UUID) string {
	text := id.String()
	return text[len(text)-shortDigits:]
}

// Short IDs are looked for among all open plans, whose search takes a request for each day of the vault, and among the
// newest plans of the last days: that bounds the requests of a vault with millions of plans.
const (
	newestPlans = 5000
	newestDays  = 7
)

// parseIDOrEnd parses an argument that names a plan or a node: its ID, or the last digits of it.
func parseIDOrEnd(of, text string) (id uuid.UUID, end string, err error) {
	end = strings.ToLower(strings.ReplaceAll(text, "-", ""))
	digits := strings.Trim(end, "0123456789abcdef") == ""
	switch whole := 2 * len(id); {
	case !digits || len(end) >= whole:
		id, err = parseID(of, text)
		return id, "", err
	case len(end) < shortDigits:
		return uuid.Nil, "", usageError("%q is not the ID of a %s: give all of it, or its last %d digits or more", text, of, shortDigits)
	}
	return uuid.Nil, end, nil
}

// endsIn reports whether an ID ends in digits.
func endsIn(id uuid.UUID, end string) bool {
	return strings.HasSuffix(strings.ReplaceAll(id.String(), "-", ""), end)
}

// planIDs returns the IDs of the plans that arguments name.
func (a *app) planIDs(ctx context.Context, v storage.Reader, args []string) (ids []uuid.UUID, err error) {
	for _, text := range args {
		if _, _, err := parseIDOrEnd("plan", text); err != nil {
			return nil, err // before any request
		}
	}
	for _, text := range args {
		id, _, err := a.findPlan(ctx, v, text)
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// findPlan returns the ID of the plan that an argument names. A whole ID takes no request, and the plan need not exist. If
// it had to be looked for, found says which plan that is.
func (a *app) findPlan(ctx context.Context, v storage.Reader, text string) (id uuid.UUID, found string, err error) {
	id, end, err := parseIDOrEnd("plan", text)
	if err != nil || end == "" {
		return id, "", err
	}
	p := a.progress("look for "+end, "plan", 0).then(untouched)
	defer p.end()
	names := map[uuid.UUID]string{}
	var seen int
	var oldest uuid.UUID
	for _, f := range []storage.Filters{
		{IDContains: end, ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}},
		{After: time.Now().AddDate(0, 0, -newestDays), Limit: newestPlans},
	} {
		seen = 0
		for r := range search(ctx, v, f) {
			id := r.Result.ID
			if r.Err != nil { // of a plan that can't be read, the command says why
				if id = planOfError(r.Err); id == uuid.Nil {
					return uuid.Nil, "", fmt.Errorf("look for the plan that ends in %s: %w", end, r.Err)
				}
			}
			if endsIn(id, end) {
				names[id] = r.Result.Name
			}
			seen, oldest = seen+1, id
			p.at(seen)
		}
	}
	back := fmt.Sprintf("those of the last %d days", newestDays)
	if seen == newestPlans {
		back = fmt.Sprintf("the newest %s, back to %s", count(seen), stamp(workflow.Time(oldest)))
	}
	id, err = onlyOne("plan", end, "the open plans and "+back, names)
	a.reached.Store(nil) // the look has ended: an interrupt of what follows is another story
	return id, fmt.Sprintf("plan %s  %s", id, printable(names[id], 60)), err
}

// findNode returns the ID of the node that an argument names. It looks for the last digits of an ID among the members of
// the fleet.
func (a *app) findNode(ctx context.Context, v storage.Control, text string) (uuid.UUID, error) {
	id, end, err := parseIDOrEnd("node", text)
	if err != nil || end == "" {
		return id, err
	}
	r, err := v.Roster(ctx)
	if err != nil {
		return uuid.Nil, fmt.Errorf("look for the node that ends in %s: %w", end, err)
	}
	found := map[uuid.UUID]string{}
	for _, m := range r.Members {
		if endsIn(m.ID, end) {
			found[m.ID] = m.Name
		}
	}
	return onlyOne("node", end, "the members of the fleet", found)
}

// mostCandidates is how many IDs an error names that end in the same digits.
const mostCandidates = 10

// onlyOne returns the ID that was found among others, with names, or says which there are.
func onlyOne(of, end, among string, found map[uuid.UUID]string) (uuid.UUID, error) {
	ids := slices.SortedFunc(maps.Keys(found), func(a, b uuid.UUID) int { return bytes.Compare(b[:], a[:]) })
	switch len(ids) {
	case 0:
		return uuid.Nil, &exitError{exitFound, fmt.Errorf("no %s ends in %s among %s; the whole ID, which --wide shows, always works", of, end, among)}
	case 1:
		return ids[0], nil
	}
	errs := []error{fmt.Errorf("%s end in %s: give more digits, or the whole ID", plural(len(ids), of), end)}
	for _, id := range ids[:min(len(ids), mostCandidates)] {
		errs = append(errs, fmt.Errorf("%s  %s", id, printable(found[id], 60)))
	}
	return uuid.Nil, &exitError{exitUsage, errors.Join(errs...)}
}

// onPlan is onVault for a command whose argument is the ID of a plan, or the last digits of one.
func (a *app) onPlan(use, short string, act func(ctx context.Context, v *azblob.Vault, id uuid.UUID) error) *cobra.Command {
	return a.onFoundPlan(use, short, func(ctx context.Context, v *azblob.Vault, id uuid.UUID, _ string, _ []string) error {
		return act(ctx, v, id)
	})
}

// changesPlan is onPlan for a command that changes the plan, and may have more arguments. If the plan was named by its last
// digits, the command first says which one that is.
func (a *app) changesPlan(use, short string, act func(ctx context.Context, v *azblob.Vault, id uuid.UUID, more []string) error) *cobra.Command {
	return a.onFoundPlan(use, short, func(ctx context.Context, v *azblob.Vault, id uuid.UUID, found string, more []string) error {
		if found != "" {
			fmt.Fprintln(a.stderr, found)
		}
		return act(ctx, v, id, more)
	})
}

// onFoundPlan is onVault for a command with the ID of a plan, what findPlan has found, and the arguments behind the ID.
func (a *app) onFoundPlan(use, short string, act func(ctx context.Context, v *azblob.Vault, id uuid.UUID, found string, more []string) error) *cobra.Command {
	c := a.onVault(use, short, func(ctx context.Context, v *azblob.Vault, args []string) error {
		id, found, err := a.findPlan(ctx, v, args[0])
		if err != nil {
			return err
		}
		return act(ctx, v, id, found, args[1:])
	})
	c.Args = cobra.ExactArgs(1)
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if _, _, err := parseIDOrEnd("plan", args[0]); err != nil {
			return err // before the vault is opened
		}
		return run(c, args)
	}
	return c
}
