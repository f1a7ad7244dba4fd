package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// keyCommand changes what holds for a key.
func (a *app) keyCommand() *cobra.Command {
	c := &cobra.Command{Use: "key", Short: "Limit and pause the turns of a key"}
	c.AddCommand(a.keySetCommand(), a.keyRepairCommand())
	return c
}

func (a *app) keySetCommand() *cobra.Command {
	var f keyFlags
	c := a.onKey("set NAME [--limit N] [--pause-until TIME]", "Say how many plans work at once for a key, or pause it",
		func(ctx context.Context, v *azblob.Vault, name string) error {
			if f.limit == nil && f.pause == nil {
				return usageError("key set: give --limit, --pause-until, or both")
			}
			now := keyChanged{Name: name, Result: "set"}
			return a.changeKey(ctx, v, &now, &f, "set", func(ctx context.Context, by workflow.Attribution) error {
				return fleet.SetKey(ctx, v, name, by, func(k fleet.KeySettings) fleet.KeySettings {
					k = f.over(k)
					now.Limit, now.PausedUntil = k.Limit, utc(k.PausedUntil)
					return k
				})
			})
		})
	f.addFlags(c)
	return c
}

func (a *app) keyRepairCommand() *cobra.Command {
	var f keyFlags
	unique := false
	c := a.onKey("repair NAME [--limit N] [--pause-until TIME] [--unique]", "Write the record of a key anew",
		func(ctx context.Context, v *azblob.Vault, name string) error {
			if unique && (f.limit != nil || f.pause != nil) {
				return usageError("key repair: a Unique has neither --limit nor --pause-until")
			}
			now := keyChanged{Name: name, Unique: unique, Result: "repaired"}
			err := a.changeKey(ctx, v, &now, &f, "repair", func(ctx context.Context, by workflow.Attribution) error {
				if unique {
					return fleet.RepairUnique(ctx, v, name, by)
				}
				k := f.over(fleet.KeySettings{})
				now.Limit, now.PausedUntil = k.Limit, utc(k.PausedUntil)
				return fleet.RepairKey(ctx, v, name, by, k)
			})
			if errors.Is(err, storage.ErrNotFound) {
				return fmt.Errorf("%w; planvault keys shows the names", err)
			}
			return err
		})
	f.addFlags(c)
	c.Flags().BoolVar(&unique, "unique", false, uniqueHelp)
	return c
}

// onKey returns a command that changes a key.
func (a *app) onKey(use, short string, act func(ctx context.Context, v *azblob.Vault, name string) error) *cobra.Command {
	c := a.onVault(use, short, func(ctx context.Context, v *azblob.Vault, args []string) error { return act(ctx, v, args[0]) })
	c.Args = cobra.ExactArgs(1)
	return a.signed(c)
}

// keyFlags are the flags that say what holds for a key. Those that are not given are nil.
type keyFlags struct {
	limit *int
	pause *time.Time
	lasts time.Duration // of the pause from now on, if it has no time yet
}

func (f *keyFlags) addFlags(c *cobra.Command) {
	c.Flags().Func("limit", "let this `NUMBER` of plans work at once at most; 0 is what the plans say", func(text string) error {
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > workflow.MaxKeyLimit {
			return fmt.Errorf("give a number from 0 to %d", workflow.MaxKeyLimit)
		}
		f.limit = &n
		return nil
	})
	c.Flags().Func("pause-until", "give nobody a turn before `TIME`: 2026-11-21T03:00Z, or a time from now such as 30m; 0 ends a pause", func(text string) error {
		at, ok := human.ParseTime(text)
		if f.pause, f.lasts = &at, 0; ok || text == "0" {
			return nil
		}
		var err error
		if f.lasts, err = parseAge(text); err != nil {
			return fmt.Errorf("%q is not a time: give 2026-11-21T03:00:00Z (UTC), a time from now such as 30m or 2d, or 0", text)
		}
		return nil
	})
}

// fromNow gives a pause from now on its time, by the store's clock, and refuses a time that has passed. It costs a request.
func (f *keyFlags) fromNow(ctx context.Context, v *azblob.Vault) error {
	if f.pause == nil || f.lasts == 0 && f.pause.IsZero() {
		return nil
	}
	roster, err := v.Control().Roster(ctx)
	if err != nil {
		return err
	}
	if f.lasts > 0 {
		*f.pause = roster.Now.Add(f.lasts).Truncate(time.Second)
	}
	if !f.pause.After(roster.Now) {
		return usageError("--pause-until: %s has passed by the clock of the store; 0 ends a pause", stamp(*f.pause))
	}
	return nil
}

// over returns settings with what the flags say.
func (f keyFlags) over(k fleet.KeySettings) fleet.KeySettings {
	if f.limit != nil {
		k.Limit = *f.limit
	}
	if f.pause != nil {
		k.PausedUntil = f.pause.UTC()
	}
	return k
}

// keyChanged is the report of key set and key repair.
type keyChanged struct {
	Name        string    `json:"name" help:"the key, or the Unique of a plan"`
	Unique      bool      `json:"unique,omitempty" help:"whether it is a Unique"`
	Result      string    `json:"result" help:"set or repaired"`
	Limit       int       `json:"limit" help:"how many plans may work at once; 0 is what the plans say"`
	PausedUntil time.Time `json:"pausedUntil,omitzero" help:"until when nobody gets a turn"`
}

// changeKey changes a key, and says what holds now. The log has the change with its flags.
func (a *app) changeKey(ctx context.Context, v *azblob.Vault, now *keyChanged, f *keyFlags, verb string, change func(context.Context, workflow.Attribution) error) error {
	reached := a.progress("change", "key", 0).then("run it again, which is safe")
	defer reached.end()
	if err := workflow.CheckKey(workflow.Key{Name: now.Name}); err != nil {
		return usageError("the key's %w", err)
	}
	err := a.expectVault(ctx, v)
	if err == nil {
		err = f.fromNow(ctx, v)
	}
	if err == nil {
		err = a.auditEntry(ctx, v, storage.AuditEntry{What: "key", Detail: verb + " " + now.Name}, func(ctx context.Context) error {
			return change(ctx, a.attributionOf(ctx))
		})
	}
	if err != nil {
		return err
	}
	return a.print(*now, func(w io.Writer) {
		holds := ": " + settingsText(fleet.KeySettings{Limit: now.Limit, PausedUntil: now.PausedUntil}, stamp)
		if now.Unique {
			holds = ""
		}
		fmt.Fprintf(w, "%s %s is %s%s\n", fleet.KeyState{Unique: now.Unique}.Kind(), quoted(now.Name), now.Result, holds)
	})
}

// settingsText says what holds for a key.
func settingsText(k fleet.KeySettings, stamp func(time.Time) string) string {
	text := "no limit but those of the plans"
	if k.Limit > 0 {
		text = plural(k.Limit, "plan") + " at once at most"
		if k.Limit > 1 {
			text += ", or fewer if plans say so"
		}
	}
	if !k.PausedUntil.IsZero() {
		text += ", paused until " + stamp(k.PausedUntil)
	}
	return text
}

// quoted returns a name that anybody may have chosen, for a sentence.
func quoted(name string) string { return printable(strconv.Quote(name), 0) }
