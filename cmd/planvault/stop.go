package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// stopCommand asks the owner of a plan to stop it.
func (a *app) stopCommand() *cobra.Command {
	wait := false
	var e each
	c := a.changesPlan("stop [ID]", "Ask the owner of a plan to stop it",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID, _ []string) error {
			if e.dryRun {
				return usageError("--dry-run is for the plans of a search")
			}
			return a.stop(ctx, v, id, wait)
		})
	a.orEach(c, &e, "a running", func(ctx context.Context, v *azblob.Vault, f storage.Filters) error {
		if wait {
			return usageError("--wait is for one plan")
		}
		return a.stopEach(ctx, v, f, &e)
	})
	c.Flags().BoolVar(&wait, "wait", false, "wait until the plan is final")
	return a.signed(c)
}

// stopped is the report of stop.
type stopped struct {
	ID        uuid.UUID  `json:"id" help:"the plan's ID"`
	Status    string     `json:"status" help:"its status"`
	Requested bool       `json:"requested" help:"whether a request to stop was stored"`
	Obeyed    bool       `json:"obeyed" help:"whether it is final, or somebody is there to obey"`
	Owner     *uuid.UUID `json:"owner,omitempty" help:"the node that owns it"`
	Message   string     `json:"message" help:"the same as a sentence"`
}

// stop asks for a plan to be stopped, and says who will obey.
func (a *app) stop(ctx context.Context, v *azblob.Vault, id uuid.UUID, wait bool) error {
	reached := a.progress("stop", "request", 0).then("run it again, which is safe")
	by, err := a.asks(ctx, v)
	if err == nil {
		err = fleet.Stop(ctx, v, id, by)
	}
	if errors.Is(err, fleet.ErrNotRunning) || errors.Is(err, storage.ErrNotFound) {
		return a.notStopped(ctx, v, id, err)
	}
	if err != nil {
		return err
	}
	reached.then("the request is stored, and stays").at(1)
	defer reached.end()
	if wait {
		a.remark("The request is stored. Waiting until the plan is final. An interrupt ends the wait, and the request stays.")
		p, err := a.await(ctx, v, id, func(p storage.ListResult) bool { return p.State.Status.Final() })
		if err != nil {
			return fmt.Errorf("the request to stop is stored, but the plan is not known to be final: %w", err)
		}
		return a.printStopped(stopped{ID: id, Status: p.State.Status.String(), Requested: true, Obeyed: true, Message: "The plan is " + p.State.Status.String() + "."})
	}
	i, err := fleet.Inspect(ctx, v, fleet.InspectOptions{Older: readNone, Plans: []uuid.UUID{id}})
	if err != nil {
		return fmt.Errorf("the request to stop is stored, but who obeys is not known: %w", err)
	}
	s := stoppedOf(id, i)
	if len(i.Plans) > 0 && i.Plans[0].Plan.External != "" {
		s.Obeyed, s.Message = s.Owner != nil, "The request to stop is stored. "+hears(ctx, v, i.Plans[0].Plan)
	}
	return a.printStopped(s)
}

// notStopped reports a plan that has ended before, or returns the error if it has not.
func (a *app) notStopped(ctx context.Context, v *azblob.Vault, id uuid.UUID, because error) error {
	p, err := lookUp(ctx, v, id)
	if err != nil {
		return err
	}
	if !p.State.Status.Final() {
		return because
	}
	return a.printStopped(stopped{ID: id, Status: p.State.Status.String(), Obeyed: true, Message: "The plan is " + p.State.Status.String() + " already. Nothing was changed."})
}

// stoppedOf returns the report about a plan that was asked to stop just before an inspection of it.
func stoppedOf(id uuid.UUID, i fleet.Inspection) stopped {
	if len(i.Plans) == 0 {
		return stopped{ID: id, Requested: true, Obeyed: true, Message: "The plan has just ended, or was deleted."}
	}
	p := i.Plans[0]
	return stopped{
		ID: id, Status: p.Plan.State.Status.String(), Requested: true, Owner: known(p.Plan.Owner), Message: p.Why,
		Obeyed: p.Condition != fleet.ConditionUnclaimed && i.Alive() > 0,
	}
}

func (a *app) printStopped(s stopped) error {
	err := a.print(s, func(w io.Writer) { fmt.Fprintln(w, wrap(printable(s.Message, 0), a.width())) })
	if err == nil && !s.Obeyed {
		return errFound
	}
	return err
}

// stoppedEach is the report of stop for all plans of a search.
type stoppedEach struct {
	planned
	Requested int  `json:"requested" help:"for how many plans a request to stop was stored, or would be"`
	Ended     int  `json:"ended" help:"how many had ended meanwhile"`
	Failed    int  `json:"failed" help:"how many could not be read, or asked to stop"`
	Nodes     int  `json:"nodes" help:"how many nodes are alive, which obey"`
	More      bool `json:"more" help:"whether the budget ended it early"`
}

// What becomes of a plan that is to be stopped, beside isDue.
const (
	wasAsked = "asked"
	hadEnded = "ended"
)

// stopEach asks for the plans to be stopped that filters select. Repeated requests are one.
func (a *app) stopEach(ctx context.Context, v *azblob.Vault, f storage.Filters, e *each) error {
	open := []workflow.Status{workflow.NotStarted, workflow.Running}
	if err := only(&f, open, open); err != nil {
		return err
	}
	by := a.attributionOf(ctx)
	ids, looked, err := a.look(ctx, v, f, func(ctx context.Context, r storage.ListResult) (string, error) {
		if e.plugin != "" {
			if p, err := v.Read(ctx, r.ID); err != nil {
				return "", err
			} else if !e.has(p, workflow.Running) {
				return notOfThese, nil
			}
		}
		return isDue, nil
	})
	if err != nil {
		return err
	}
	report := stoppedEach{Requested: len(ids), Failed: looked.failed}
	if len(ids) > 0 {
		i, err := fleet.Inspect(ctx, v, fleet.InspectOptions{Older: readNone, Plans: ids[:1]})
		if err != nil {
			return err
		}
		report.Nodes = i.Alive()
	}
	return carryOut(ctx, a, e.dryRun, due[swept]{
		change:  change{doing: "stop", what: plural(len(ids), "plan"), requests: estimate(nil, step{stopPlan, len(ids)})},
		journal: v, entry: about("stop"), n: len(ids), found: looked, err: looked.err(),
		wouldDo: func(p planned) error {
			report.planned = p
			return a.print(report, report.text)
		},
		do: func(ctx context.Context) (swept, error) {
			s, err := sweep(ctx, a.progress("stop", "plan", len(ids)).then(goOn), slices.Values(ids), e.timeLeft(), func(ctx context.Context, id uuid.UUID) (string, error) {
				err := fleet.Stop(ctx, v, id, by)
				if errors.Is(err, fleet.ErrNotRunning) || errors.Is(err, storage.ErrNotFound) {
					return hadEnded, nil
				}
				return wasAsked, err
			})
			return s, errors.Join(looked.err(), err)
		},
		done: func(s swept, _ error) (more bool, err error) {
			report.Requested, report.Ended, report.More = s.of[wasAsked], s.of[hadEnded], s.more
			if len(ids) > 0 {
				report.Failed += s.failed
			}
			err = a.print(report, report.text)
			if err == nil && report.Requested > 0 && report.Nodes == 0 && report.Failed == 0 && !s.more {
				err = errFound
			}
			return s.more, err
		},
	})
}

func (s stoppedEach) text(w io.Writer) {
	did := "asked to stop"
	if s.DryRun {
		did = "would be asked to stop"
	}
	fmt.Fprintf(w, "%s %s", plural(s.Requested, "plan"), did)
	if s.Ended > 0 {
		fmt.Fprintf(w, ", %s had ended", count(s.Ended))
	}
	if s.Failed > 0 {
		fmt.Fprintf(w, ", %s failed", count(s.Failed))
	}
	if s.Nodes == 0 && s.Requested > 0 {
		fmt.Fprint(w, "; no node is alive to obey")
	}
	if s.DryRun {
		fmt.Fprintf(w, ": %s", s.planned)
	}
	fmt.Fprintln(w, ifMore(s.More))
}
