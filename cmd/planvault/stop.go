package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
)

// stopCommand asks the owner of a plan to stop it.
func (a *app) stopCommand() *cobra.Command {
	wait := false
	c := a.changesPlan("stop ID", "Ask the owner of a plan to stop it",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
			return a.stop(ctx, v, id, wait)
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
	return a.printStopped(stoppedOf(id, i))
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
