package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
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

// importFlags are the flags of import.
type importFlags struct {
	bulk
	verifyOnly, list bool
	plans            []uuid.UUID // nil is all
}

// importCommand restores the plans of a bundle.
func (a *app) importCommand() *cobra.Command {
	var o importFlags
	c := &cobra.Command{
		Use:   "import FILE [ID...]",
		Short: "Restore the plans of a bundle, all or some",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) (err error) {
			if o.plans, err = parsePlanIDs(args[1:]); err != nil {
				return err
			}
			slices.SortFunc(o.plans, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
			o.plans = slices.Compact(o.plans)
			return a.importFile(c.Context(), args[0], o)
		},
	}
	o.addFlags(c.Flags())
	c.Flags().BoolVar(&o.verifyOnly, "verify-only", false, "only verify the file; this needs no vault")
	c.Flags().BoolVar(&o.list, "list", false, "print what became of each plan")
	return a.signed(c)
}

// verified is what is in a bundle.
type verified struct {
	Plans      int       `json:"plans" help:"how many plans the bundle has"`
	Parts      int       `json:"subObjects" help:"how many blocks, sequences, checks and actions they have"`
	Bytes      int64     `json:"bytes" help:"the size of the bundle"`
	Unreadable int       `json:"unreadable" help:"how many plans could not be read for it"`
	Created    time.Time `json:"created" help:"when it was written"`
	Source     string    `json:"source,omitempty" help:"the vault that it is from"`
	Cut        bool      `json:"cut,omitzero" help:"whether it lacks its end, because the command that kept plans in it was killed"`
}

// imported is what an import did, or would do.
type imported struct {
	planned
	Restored int  `json:"restored" help:"how many plans were restored"`
	Present  int  `json:"present" help:"how many were there already"`
	Failed   int  `json:"failed" help:"how many could not be restored"`
	More     bool `json:"more" help:"whether the budget ended it early"`
}

// importedRow is a plan of a bundle, and what became of it.
type importedRow struct {
	ID     uuid.UUID           `json:"id" help:"the plan's ID"`
	Result bundle.ImportResult `json:"result" help:"restored, present or failed"`
}

func (a *app) importFile(ctx context.Context, path string, o importFlags) error {
	file, err := os.Open(path)
	if err != nil {
		return usageError("import: %w", err)
	}
	defer func() { _ = file.Close() }()
	if !o.verifyOnly {
		if _, err := a.resolve(a.connection); err != nil {
			return err // before the work of verifying
		}
	}
	found, err := a.verifyFile(ctx, file, path, o.plans)
	if err != nil || o.verifyOnly {
		return a.reportVerified(found, path, err, o.verifyOnly)
	}
	if found.Cut {
		a.remark("%s has no end, because its command was killed: it has what was complete by then", printable(path, 0))
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("import: read %s again: %w", path, err)
	}
	v, err := a.openNew(ctx, a.connection)
	if err != nil {
		return err
	}
	if !o.dryRun && found.Plans > 0 {
		what := fmt.Sprintf("%s and %s", plural(found.Plans, "plan"), plural(found.Parts, "sub-object"))
		if err := a.confirm(ctx, change{doing: "import", what: what, requests: importTakes(found.Plans, found.Parts)}); err != nil {
			return err
		}
	}
	return a.restoreBundle(ctx, v, file, found, o)
}

// importTakes returns the requests of an import of plans that the vault lacks.
func importTakes(plans, parts int) price.Tally {
	return estimate(nil, step{restorePlan, plans}, step{restorePart, parts})
}

// verifyFile reads a bundle to its end.
func (a *app) verifyFile(ctx context.Context, file *os.File, path string, plans []uuid.UUID) (r bundle.VerifyReport, err error) {
	p := a.progress("verify "+printable(path, 50), "plan", 0).then("nothing was restored")
	defer p.end()
	r, err = bundle.Verify(ctx, file, bundle.ImportOptions{Progress: p.reach, Plans: plans})
	if n := len(plans); err == nil && r.Plans < n {
		err = &exitError{exitFound, fmt.Errorf("it has %s of these %s", count(r.Plans), plural(n, "plan"))}
	}
	return r, err
}

// reportVerified says what is in a bundle, or why it is no use.
func (a *app) reportVerified(r bundle.VerifyReport, path string, err error, only bool) error {
	if err != nil {
		damaged := errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrSchema)
		err = fmt.Errorf("%s: %w; nothing was restored", path, err)
		if only && damaged {
			return &exitError{exitFound, err}
		}
		return err
	}
	found := verified{r.Plans, r.Parts, r.Bytes, r.Unreadable, r.Manifest.Created, r.Manifest.Source, r.Cut}
	return a.print(found, func(w io.Writer) {
		state := "whole"
		if found.Cut {
			state = "without its end"
		}
		fmt.Fprintf(w, "%s: %s, %s, %s\n", printable(path, 0), plural(found.Plans, "plan"), plural(found.Parts, "sub-object"), state)
		fmt.Fprintf(w, "exported %s from %s\n", a.stamp(found.Created), printable(found.Source, 200))
		if found.Unreadable > 0 {
			fmt.Fprintf(w, "missing from it: %s that could not be read\n", plural(found.Unreadable, "plan"))
		}
	})
}

// restoreBundle restores the plans of a bundle that was verified.
func (a *app) restoreBundle(ctx context.Context, v *azblob.Vault, file *os.File, found bundle.VerifyReport, o importFlags) error {
	p := a.progress("import", "plan", found.Plans).then(goOn)
	t := newTable(a, func(r importedRow) []string { return []string{r.ID.String(), string(r.Result)} }, "PLAN", "RESULT")
	var printErr, err error
	entry := about("import")
	entry.Detail = fmt.Sprintf("%s of %s", plural(found.Plans, "plan"), found.Manifest.Source)
	verifiedFile := struct{ io.Reader }{file} // without Seek, so it is not verified again
	each := func(id uuid.UUID, result bundle.ImportResult) {
		if o.list && printErr == nil {
			printErr = t.add(importedRow{id, result})
		}
	}
	var report bundle.ImportReport
	do := func(ctx context.Context) (err error) {
		report, err = bundle.Import(ctx, v, verifiedFile, bundle.ImportOptions{By: a.attributionOf(ctx), DryRun: o.dryRun, Plans: o.plans, Budget: o.timeLeft(), Each: each, Progress: p.reach})
		return err
	}
	if !o.dryRun && found.Plans > 0 {
		err = a.auditEntry(ctx, v, entry, do)
	} else {
		err = do(ctx)
	}
	p.end()
	done := imported{Restored: report.Restored, Present: report.Present, Failed: report.Failed, More: report.More}
	if o.dryRun {
		parts := found.Parts * report.Restored / max(1, found.Plans)
		done.planned = plannedOf(importTakes(report.Restored, parts))
	}
	if err := errors.Join(printErr, t.end()); err != nil {
		return err
	}
	if !o.list || a.output != outputJSON {
		if err := a.print(done, func(w io.Writer) { done.text(w, found) }); err != nil {
			return err
		}
	}
	return leftOver(err, report.More)
}

func (d imported) text(w io.Writer, found bundle.VerifyReport) {
	if d.DryRun {
		fmt.Fprintf(w, "would restore %s of %s: %s\n", count(d.Restored), plural(found.Plans, "plan"), d.planned)
		fmt.Fprintf(w, "%s there already, %s differ or can't be compared\n", plural(d.Present, "plan"), count(d.Failed))
		return
	}
	fmt.Fprintf(w, "%s restored, %s there already, %s failed%s\n", plural(d.Restored, "plan"), count(d.Present), count(d.Failed), ifMore(d.More))
}
