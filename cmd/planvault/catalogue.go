package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/planvault/azblob"
)

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
