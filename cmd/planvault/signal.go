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
)

// signalCommand tells a plan something.
func (a *app) signalCommand() *cobra.Command {
	var s fleet.Signal
	c := a.changesPlan("signal ID NAME", "Tell a plan something that one of its actions waits for",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID) error { return a.signal(ctx, v, id, s) })
	c.Args = cobra.ExactArgs(2)
	act := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		s.Name = args[1]
		return act(c, args)
	}
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
