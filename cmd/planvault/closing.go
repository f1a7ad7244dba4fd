package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/mirror"
)

// closed is the report of close.
type closed struct {
	By      string `json:"by"`
	Why     string `json:"why"`
	Evicted int    `json:"evicted"`
	// Unclaimed is the number of Running plans that engines without a fleet began.
	Unclaimed int `json:"unclaimed"`
}

// closeCommand closes a vault to engines.
func (a *app) closeCommand() *cobra.Command {
	c := a.onVault("close --reason TEXT", "Close the vault to engines, and wait until none works on it",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			if a.who.reason == "" {
				return usageError("close: say why, with --reason TEXT")
			}
			requests := price.Tally{azblob.ClassWrite: 1, azblob.ClassList: 30}
			if err := a.confirm(ctx, change{doing: "close", what: "the vault", requests: requests}); err != nil {
				return err
			}
			report, err := a.clear(ctx, v, storage.Closing{Why: a.who.reason})
			if err != nil {
				return err
			}
			return a.print(report, func(w io.Writer) {
				fmt.Fprintf(w, "The vault is closed by %s: %s\nNo node of a fleet works on it; %s evicted. planvault open opens it.\n", report.By, printable(report.Why, 0), plural(report.Evicted, "node"))
				if report.Unclaimed > 0 {
					fmt.Fprintf(w, "%s began in an engine without a fleet, which does not look: stop it.\n", plural(report.Unclaimed, "plan"))
				}
			})
		})
	return a.signed(c)
}

// clear closes a vault and waits until no node works on it.
func (a *app) clear(ctx context.Context, v *azblob.Vault, c storage.Closing) (report closed, err error) {
	c.At, c.By = time.Now().UTC(), a.attributionOf(ctx).By
	err = a.auditEntry(ctx, v, about("close"), func() (err error) {
		report, err = a.clearUnlogged(ctx, v, c)
		return err
	})
	return report, err
}

func (a *app) clearUnlogged(ctx context.Context, v *azblob.Vault, c storage.Closing) (closed, error) {
	reached := a.progress("close", "node", 0).then("the vault is closed; " + goOn)
	defer reached.end()
	was, err := fleet.Close(ctx, v, c)
	if err != nil {
		return closed{}, err
	}
	if was.Copy {
		return closed{}, usageError("the vault is a copy, and closed as long as it is: %s", was.Why)
	}
	unclaimed, err := fleet.Clear(ctx, v, fleet.ClearOptions{Doing: func(what string) { fmt.Fprintf(a.stderr, "%s.\n", printable(sentence(what), 0)) }})
	if err != nil {
		return closed{}, err
	}
	n, err := v.FindNote(ctx, storage.NoteClosed)
	if err == nil {
		was, err = storage.ReadNote[storage.Closing](n)
	}
	return closed{was.By, was.Why, len(was.Evicted), unclaimed}, err
}

// sentence makes the first letter of a text a capital.
func sentence(text string) string { return string(text[0]-'a'+'A') + text[1:] }

// openCommand opens a vault that was closed.
func (a *app) openCommand() *cobra.Command {
	var back bool
	var to connection
	c := a.onVault("open", "Open a vault to engines that was closed",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			open := func() error { return fleet.Open(ctx, v) }
			if back {
				copied, err := a.open(ctx, to)
				if err != nil {
					return err
				}
				open = func() error { return mirror.MoveBack(ctx, v, copied, a.places[0]) }
			}
			if err := a.confirm(ctx, change{doing: "open", what: "the vault", requests: price.Tally{azblob.ClassRead: 2, azblob.ClassDelete: 1}}); err != nil {
				return err
			}
			if err := a.auditEntry(ctx, v, about("open"), open); err != nil {
				return err
			}
			return a.print(struct {
				Open bool `json:"open"`
			}{true}, func(w io.Writer) { fmt.Fprintln(w, "The vault is open: start the engines.") })
		})
	to.addFlags(c.Flags(), "to-")
	c.Flags().BoolVar(&back, "moved-back", false, "the vault has moved to the copy that the flags with to- name, which is closed and given up")
	return a.signed(c)
}
