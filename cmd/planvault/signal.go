package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// signalCommand tells a plan something.
func (a *app) signalCommand() *cobra.Command {
	var s fleet.Signal
	c := a.changesPlan("signal ID NAME", "Tell a plan something that one of its actions waits for",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID, more []string) error {
			s.Name = more[0]
			return a.signal(ctx, v, id, s)
		})
	c.Args = cobra.ExactArgs(2)
	c.Flags().Func("json", "the payload, as `JSON`", func(text string) error {
		if s.Payload = json.RawMessage(text); !json.Valid(s.Payload) {
			return fmt.Errorf("it is not JSON; a text needs quotes: '\"text\"'")
		}
		return nil
	})
	addText(c.Flags(), "key", "`TEXT` that makes repeated signals of one name one signal", &s.Key, fleet.MaxSignalName)
	return a.signed(c)
}

// signalled is the report of signal.
type signalled struct {
	ID     uuid.UUID `json:"id" help:"the plan's ID"`
	Number int       `json:"number" help:"the signal's number among those of the plan"`
	Heard  string    `json:"heard,omitempty" help:"who sees it when, if an engine of another kind places the plan"`
}

// signal stores a signal for a plan.
func (a *app) signal(ctx context.Context, v *azblob.Vault, id uuid.UUID, s fleet.Signal) (err error) {
	reached := a.progress("signal", "signal", 0).then("the signal may be stored: send it again with the same --key if it must be there once")
	defer reached.end()
	if s.By, err = a.asks(ctx, v); err != nil {
		return err
	}
	number, err := fleet.Send(ctx, v, id, s)
	if err != nil {
		return err
	}
	p, _ := lookUp(ctx, v, id) // it may have gone since
	report := signalled{id, number, hears(ctx, v, p)}
	return a.print(report, func(w io.Writer) {
		fmt.Fprintf(w, "signal %d of plan %s\n", number, id)
		if report.Heard != "" {
			fmt.Fprintln(w, wrap(printable(report.Heard, 0), a.width()))
		}
	})
}

// decide is [approve.Approve] or [approve.Reject].
type decide func(ctx context.Context, vault storage.Vault, plan, action uuid.UUID, by workflow.Attribution) (int, error)

// decisionCommand approves or rejects an action that waits for an approval.
func (a *app) decisionCommand(verb, short string, send decide) *cobra.Command {
	c := a.changesPlan(verb+" ID ACTION", short, func(ctx context.Context, v *azblob.Vault, id uuid.UUID, more []string) error {
		return a.decide(ctx, v, id, more[0], verb, send)
	})
	c.Args = cobra.ExactArgs(2)
	return a.signed(c)
}

// decided is the report of approve and reject.
type decided struct {
	ID     uuid.UUID `json:"id" help:"the plan's ID"`
	Action uuid.UUID `json:"action" help:"the action's ID"`
	Number int       `json:"number" help:"the signal's number among those of the plan"`
	By     string    `json:"by" help:"who decided"`
}

// decide sends a decision about an action.
func (a *app) decide(ctx context.Context, v *azblob.Vault, id uuid.UUID, name, verb string, send decide) error {
	reached := a.progress(verb, verb, 0).then("the decision may be stored: send it again, it counts once")
	defer reached.end()
	plan, err := v.Read(ctx, id)
	if err != nil {
		return err
	}
	action, err := findAction(plan, name)
	if err != nil {
		return err
	}
	if s := action.State.Status; s.Final() {
		return &exitError{exitFound, fmt.Errorf("action %s of plan %s is %s: nobody waits for a decision", action.ID, id, s)}
	}
	by, err := a.asks(ctx, v)
	if err != nil {
		return err
	}
	number, err := send(ctx, v, id, action.ID, by)
	if err != nil {
		return err
	}
	return a.print(decided{id, action.ID, number, by.By}, func(w io.Writer) {
		fmt.Fprintf(w, "signal %d of plan %s: %s %ss action %s\n", number, id, printable(by.By, 60), verb, printable(action.Name, 60))
	})
}
