package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
)

// recoverCommand repairs what crashed processes left.
func (a *app) recoverCommand() *cobra.Command {
	dryRun := false
	thorough, catalogue := false, false
	c := a.onVault("recover", "Finish or remove what crashed processes left",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			if catalogue {
				return a.catalogue(ctx, v, azblob.CatalogueOptions{DryRun: dryRun, Verify: thorough})
			}
			return a.recover(ctx, v, azblob.RepairOptions{DryRun: dryRun, Thorough: thorough})
		})
	addDryRun(c.Flags(), &dryRun)
	c.Flags().BoolVar(&thorough, "thorough", false, "also repair what no crash leaves; lists everything")
	c.Flags().BoolVar(&catalogue, "catalogue", false, "build the catalogues of past days instead, which make listings cheap")
	return a.signed(c)
}

// recoverReport is what planvault recover prints.
type recoverReport struct {
	DryRun  bool           `json:"dryRun" help:"nothing was changed"`
	Days    int            `json:"days" help:"how many days were looked at"`
	Open    int            `json:"open" help:"how many plans are open"`
	Recent  int            `json:"recent" help:"how many plans are too young to judge"`
	Foreign int            `json:"foreign,omitzero" help:"how many plans another program wrote"`
	Plans   []recoveredRow `json:"plans" help:"what was repaired, or would be"`
	// Catalogues are the days whose catalogue was damaged or differed from the day.
	Catalogues []string `json:"catalogues,omitempty" help:"the days whose catalogue was wrong"`
	Strays     []string `json:"strays,omitempty" help:"blobs that belong to no plan"`
}

// recoveredRow is a plan that was repaired, would be, or could not be.
type recoveredRow struct {
	ID    uuid.UUID `json:"id" help:"the plan's ID"`
	Found string    `json:"found" help:"what was wrong"`
	Did   string    `json:"did,omitempty" help:"what was done"`
	Error string    `json:"error,omitempty" help:"why it can't be repaired"`
}

func recoverReportOf(r azblob.RepairReport, dry bool) recoverReport {
	report := recoverReport{dry, r.Days, r.Open, r.Recent, r.Foreign, []recoveredRow{}, nil, slices.Sorted(slices.Values(r.Strays))}
	for _, day := range r.Catalogues {
		report.Catalogues = append(report.Catalogues, day.String())
	}
	for _, p := range r.Plans {
		row := recoveredRow{ID: p.ID, Found: p.Found, Did: p.Did}
		if p.Err != nil {
			row.Error = storage.Detail(p.Err)
		}
		report.Plans = append(report.Plans, row)
	}
	return report
}

// write writes the report as text.
func (r recoverReport) write(w io.Writer) {
	would, failed := 0, 0
	for _, p := range r.Plans {
		fmt.Fprintf(w, "%s: %s\n", p.ID, printable(p.Found, 0))
		switch {
		case p.Error != "":
			failed++
			fmt.Fprintf(w, "    can't be repaired: %s\n", printable(p.Error, 0))
		case p.Did != "":
			fmt.Fprintf(w, "    %s\n", printable(p.Did, 0))
		default:
			would++
		}
	}
	for _, day := range r.Catalogues {
		fmt.Fprintf(w, "catalogue of %s: damaged, or differs from the day\n", day)
		if !r.DryRun {
			fmt.Fprintln(w, "    removed or built again")
		}
	}
	for _, name := range r.Strays {
		fmt.Fprintf(w, "stray: %s\n", printable(name, 0))
	}
	done, verb := len(r.Plans)-failed-would, "repaired"
	if r.DryRun {
		done, verb = would, "to repair"
	}
	fmt.Fprintf(w, "%s; %s %s, %s that can't be repaired, %s open", plural(r.Days, "day"), plural(done, "plan"), verb, count(failed), plural(r.Open, "plan"))
	if r.Recent > 0 {
		fmt.Fprintf(w, "; %s too recent to judge: run it again after the grace period", plural(r.Recent, "plan"))
	}
	if r.Foreign > 0 {
		fmt.Fprintf(w, "; %s written by another program, left alone", plural(r.Foreign, "plan"))
	}
	fmt.Fprintln(w)
}

// recover looks what there is to repair, and repairs it if it may.
func (a *app) recover(ctx context.Context, v *azblob.Vault, o azblob.RepairOptions) error {
	look := o
	look.DryRun = true
	found, err := a.runRecover(ctx, v, look, "look", untouched)
	repairable := len(found.Catalogues) > 0 || slices.ContainsFunc(found.Plans, func(p azblob.RepairedPlan) bool { return p.Err == nil })
	if o.DryRun || ctx.Err() != nil || otherErrors(found, err) != nil || !repairable {
		return a.recovered(ctx, found, err, o.DryRun)
	}
	if !a.yes {
		if err := a.printRecovery(found, true); err != nil {
			return err
		}
	}
	n, catalogues := len(found.Plans), len(found.Catalogues)
	return carryOut(ctx, a, false, due[azblob.RepairReport]{
		change: change{
			doing: "recover", what: plural(n, "plan"), requests: estimate(a.meter.traffic().requests, step{recoverPlan, n}, step{buildCatalogue, catalogues}),
		},
		n: n + catalogues, journal: v, entry: about("recover"),
		do: func(ctx context.Context) (azblob.RepairReport, error) {
			return a.runRecover(ctx, v, o, "recover", goOn)
		},
		done: func(r azblob.RepairReport, err error) (bool, error) { return false, a.recovered(ctx, r, err, false) },
	})
}

// printRecovery prints a report.
func (a *app) printRecovery(r azblob.RepairReport, dry bool) error {
	report := recoverReportOf(r, dry)
	return a.print(report, report.write)
}

// runRecover recovers with a progress line.
func (a *app) runRecover(ctx context.Context, v *azblob.Vault, o azblob.RepairOptions, doing, next string) (azblob.RepairReport, error) {
	p := a.progress(doing, "plan", 0).then(next)
	defer p.end()
	if o.Progress = p.reach; !o.DryRun {
		o.By = a.attributionOf(ctx)
	}
	return v.Admin().Repair(ctx, o)
}

// otherErrors returns those of the errors that are joined in err that the report does not have, such as that of a day
// that can't be listed.
func otherErrors(r azblob.RepairReport, err error) error {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return err
	}
	all := joined.Unwrap()
	others := slices.DeleteFunc(slices.Clone(all), func(e error) bool {
		of, ok := errors.AsType[*storage.Error](e)
		return ok && slices.ContainsFunc(r.Plans, func(p azblob.RepairedPlan) bool { return p.Err != nil && p.ID == of.Plan })
	})
	if len(others) == len(all) {
		return err
	}
	return errors.Join(others...)
}

// recovered prints a report, and returns what the run ends with.
func (a *app) recovered(ctx context.Context, r azblob.RepairReport, err error, dry bool) error {
	if err != nil && r.Days == 0 {
		return err
	}
	if printErr := a.printRecovery(r, dry); printErr != nil {
		return errors.Join(err, printErr)
	}
	failed := slices.ContainsFunc(r.Plans, func(p azblob.RepairedPlan) bool { return p.Err != nil })
	switch others := otherErrors(r, err); {
	case ctx.Err() != nil:
		return fmt.Errorf("the report is not complete; run it again: %w", ctx.Err())
	case others != nil:
		return fmt.Errorf("the report is not complete; run it again: %w", others)
	case failed, dry && len(r.Plans)+len(r.Catalogues) > 0:
		return errFound
	}
	return nil
}

// cataloguedRow is a past day without a catalogue, and what became of it.
type cataloguedRow struct {
	Day    string `json:"day" help:"the day"`
	Result string `json:"result" help:"due, built or skipped"` // due, built or skipped
	Plans  int    `json:"plans,omitzero" help:"how many plans the catalogue has"`
	Bytes  int64  `json:"bytes,omitzero" help:"its size"`
	Reason string `json:"reason,omitempty" help:"a code for why it was skipped"`
	Why    string `json:"why,omitempty" help:"why it was skipped"`
}

// catalogue says which catalogues are due, and builds them if it may.
func (a *app) catalogue(ctx context.Context, v *azblob.Vault, o azblob.CatalogueOptions) error {
	look := o
	look.DryRun = true
	a.progress("look", "day", 0).then(untouched)
	found, err := v.Admin().Catalogue(ctx, look)
	if err != nil {
		return err
	}
	n := len(found.Built)
	return carryOut(ctx, a, o.DryRun, due[azblob.CatalogueReport]{
		change: change{doing: "catalogue", what: plural(n, "day"), requests: estimate(a.meter.traffic().requests, step{buildCatalogue, n})},
		n:      n, found: found, journal: v, entry: about("catalogue"),
		wouldDo: func(p planned) error {
			had := fmt.Sprintf("%s of %s had one", count(found.Present), plural(found.Past, "past day"))
			return cmp.Or(a.printCatalogued(found, "due"), a.print(p, p.after("would build "+plural(n, "catalogue")+", "+had)))
		},
		do: func(ctx context.Context) (azblob.CatalogueReport, error) {
			p := a.progress("catalogue", "day", n).then(goOn)
			defer p.end()
			o.Progress = p.reach
			return v.Admin().Catalogue(ctx, o)
		},
		done: func(r azblob.CatalogueReport, _ error) (bool, error) {
			built, past := plural(len(r.Built), "catalogue"), plural(r.Past, "past day")
			summary := fmt.Sprintf("%s built, %s of %s had one", built, count(r.Present), past)
			return false, cmp.Or(a.printCatalogued(r, "built"), a.summarize(summary))
		},
	})
}

// printCatalogued prints the days, newest first.
func (a *app) printCatalogued(r azblob.CatalogueReport, result string) error {
	return printTable(a, cataloguedRows(r, result), func(r cataloguedRow) []string {
		plans, size := "-", "-"
		if r.Bytes > 0 {
			plans, size = count(r.Plans), byteSize(r.Bytes)
		}
		return []string{r.Day, r.Result, plans, size, printable(r.Why, 160)}
	}, "DAY", "RESULT", ">PLANS", ">SIZE", "WHY")
}

// cataloguedRows returns what was built and what was skipped, newest first.
func cataloguedRows(r azblob.CatalogueReport, result string) (rows []cataloguedRow) {
	for _, d := range r.Built {
		rows = append(rows, cataloguedRow{Day: d.Day.String(), Result: result, Plans: d.Plans, Bytes: d.Bytes})
	}
	for _, d := range r.Skipped {
		rows = append(rows, cataloguedRow{Day: d.Day.String(), Result: "skipped", Reason: string(d.Reason), Why: d.Detail})
	}
	slices.SortFunc(rows, func(a, b cataloguedRow) int { return strings.Compare(b.Day, a.Day) })
	return rows
}
