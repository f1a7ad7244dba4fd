package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
)

// exportCommand writes a bundle.
func (a *app) exportCommand() *cobra.Command {
	var s selection
	var file string
	c := &cobra.Command{
		Use:   "export -o FILE",
		Short: "Write plans to a bundle, as a backup",
		Long: `Export writes plans to a bundle: one compressed file with the plans as they are, their times,
attempts and results, and a checksum over all of it. planvault import restores them, in this
or another account. Without flags that select plans, it exports all of them.

    $ planvault export --created-before 2026-10-01 -o 2026-q3.bundle
    12,400 plans, 31.2 MB in 2026-q3.bundle

Export reads a plan with two requests, 16 plans at a time; a thousand plans cost $0.0009. It
changes nothing, and may run beside engines. It is not a snapshot: each plan is as it was at some
time meanwhile, and a plan that is deleted meanwhile may be missing.

The file appears under its name when it is complete, and then replaces an earlier one. An
export that is interrupted leaves nothing; run it again. With -o - the bundle is written to
the standard output: a reader notices if it was truncated.

A plan that can't be read is left out and reported, with exit code 1; the bundle has all the
others. Check a bundle with planvault import --verify-only.`,
		Example: `  planvault export -o everything.bundle
  planvault export --group 0198c0de-0000-7000-8000-000000000001 -o group.bundle
  planvault export -o - | ssh backup 'cat > everything.bundle'`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			f := s.filters(time.Now())
			return a.export(c.Context(), f, file)
		},
	}
	s.addFlags(c.Flags())
	c.Flags().StringVarP(&file, "out", "o", "", "write the bundle to `FILE`; - is the standard output")
	_ = c.MarkFlagRequired("out")
	return c
}

// exported is what an export wrote.
type exported struct {
	File       string `json:"file"`
	Plans      int64  `json:"plans"`
	Bytes      int64  `json:"bytes"`
	Unreadable int64  `json:"unreadable"`
}

func (a *app) export(ctx context.Context, f storage.Filters, file string) error {
	if file == "-" && a.stdoutIsTerm {
		return usageError("a bundle is not text for a terminal: redirect it, or give -o FILE")
	}
	where, err := a.resolve(a.connection)
	if err != nil {
		return err
	}
	v, err := a.vault(ctx)
	if err != nil {
		return err
	}
	var report bundle.ExportReport
	var unreadable error
	err = a.writeFile(file, func(w io.Writer) (err error) {
		if report, err = a.writeBundle(ctx, v, w, f, where.String()); report.Whole {
			unreadable, err = err, nil
		}
		return err
	})
	switch {
	case err != nil && a.meter.sent() == 0:
		return usageError("export: %w", err)
	case err != nil:
		return fmt.Errorf("export to %s: %w", printable(file, 0), err)
	case file == "-":
		return unreadable
	}
	e := exported{file, report.Plans, report.Bytes, report.Unreadable}
	return errors.Join(unreadable, a.print(e, func(w io.Writer) {
		fmt.Fprintf(w, "%s, %s in %s\n", plural(e.Plans, "plan"), byteSize(e.Bytes), e.File)
		if e.Unreadable > 0 {
			fmt.Fprintf(w, "missing from it: %s that can't be read\n", plural(e.Unreadable, "plan"))
		}
	}))
}

// writeBundle writes the plans that filters select.
func (a *app) writeBundle(ctx context.Context, v storage.Reader, w io.Writer, f storage.Filters, source string) (bundle.ExportReport, error) {
	const nothing = "no bundle was written: run the same command again"
	a.progress("count", "plan", 0).then(nothing)
	total, err := v.Count(ctx, f) // without it, if the plans can't be counted
	if ctx.Err() != nil {
		return bundle.ExportReport{}, err
	}
	p := a.progress("export", "plan", total).then(nothing)
	defer p.end()
	return bundle.Export(ctx, v, w, bundle.ExportOptions{Filters: f, Source: source, Progress: func(done bundle.Progress) { p.at(done.Plans) }})
}
