package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
)

// exportCommand writes a bundle.
func (a *app) exportCommand() *cobra.Command {
	var s selection
	var file string
	c := a.onVault("export -o FILE", "Write plans to a bundle, as a backup",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			return a.export(ctx, v, s.filters(time.Now()), file)
		})
	s.addFlags(c.Flags())
	c.Flags().VarP((*given)(&file), "out", "o", "write the bundle to `FILE`; - is the standard output")
	_ = c.MarkFlagRequired("out")
	return c
}

// exported is what an export wrote.
type exported struct {
	File       string `json:"file" help:"the bundle that was written"`
	Plans      int    `json:"plans" help:"how many plans it has"`
	Bytes      int64  `json:"bytes" help:"its size"`
	Unreadable int    `json:"unreadable" help:"how many plans could not be read"`
	Foreign    int    `json:"foreign,omitzero" help:"how many plans of another program it left out"`
}

func (a *app) export(ctx context.Context, v storage.Vault, f storage.Filters, file string) error {
	if file == "-" && a.stdoutIsTerm {
		return usageError("a bundle is not text for a terminal: redirect it, or give -o FILE")
	}
	var report bundle.ExportReport
	var unreadable error
	err := a.writeFile(file, func(w io.Writer) (err error) {
		if report, err = a.writeBundle(ctx, v, w, f); report.Whole {
			unreadable, err = err, nil
		}
		return err
	})
	switch {
	case err != nil && a.meter.traffic().requests.Total() == 0:
		return usageError("export: %w", err)
	case err != nil:
		return fmt.Errorf("export to %s: %w", printable(file, 0), err)
	case file == "-":
		return unreadable
	}
	e := exported{file, report.Plans, report.Bytes, report.Unreadable, report.Foreign}
	a.noteForeign(e.Foreign)
	return errors.Join(unreadable, a.print(e, func(w io.Writer) {
		fmt.Fprintf(w, "%s, %s in %s\n", plural(e.Plans, "plan"), byteSize(e.Bytes), e.File)
		if e.Unreadable > 0 {
			fmt.Fprintf(w, "missing from it: %s that can't be read\n", plural(e.Unreadable, "plan"))
		}
	}))
}

// writeBundle writes the plans that filters select.
func (a *app) writeBundle(ctx context.Context, v storage.Vault, w io.Writer, f storage.Filters) (bundle.ExportReport, error) {
	const nothing = "no bundle was written: run the same command again"
	a.progress("count", "plan", 0).then(nothing)
	total, err := countOwn(ctx, v, f) // without it, if the plans can't be counted
	if ctx.Err() != nil {
		return bundle.ExportReport{}, err
	}
	p := a.progress("export", "plan", total).then(nothing)
	defer p.end()
	return bundle.Export(ctx, v, w, bundle.ExportOptions{
		Filters: f, Source: a.places[0], Progress: p.reach,
	})
}
