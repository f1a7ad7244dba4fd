package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
)

// catalogueCommand builds catalogues.
func (a *app) catalogueCommand() *cobra.Command {
	var b bulk
	var verify bool
	c := a.onVault("catalogue", "Build the catalogues of closed days, which make listings cheap",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			return a.catalogue(ctx, v, azblob.CatalogueOptions{DryRun: b.dryRun, Verify: verify, Budget: b.timeLeft()})
		})
	c.Flags().BoolVar(&verify, "verify", false, "also read the catalogues that exist, and build damaged ones again")
	b.addFlags(c.Flags())
	return a.signed(c)
}

// cataloguedRow is a closed day without a catalogue, and what became of it.
type cataloguedRow struct {
	Day    string `json:"day"`
	Result string `json:"result"` // due, built or skipped
	Plans  int64  `json:"plans,omitzero"`
	Bytes  int64  `json:"bytes,omitzero"`
	Why    string `json:"why,omitempty"`
}

// catalogue says which catalogues are due, and builds them if it may.
func (a *app) catalogue(ctx context.Context, v *azblob.Vault, o azblob.CatalogueOptions) error {
	look := o
	look.DryRun, look.Budget = true, 0
	a.progress("look", "day", 0).then(untouched)
	found, err := v.Catalogue(ctx, look)
	if err != nil {
		return err
	}
	n := int64(len(found.Built))
	return carryOut(ctx, a, o.DryRun, due[azblob.CatalogueReport]{
		change: change{doing: "catalogue", what: plural(n, "day"), requests: estimate(a.meter.traffic().requests, step{buildCatalogue, n})},
		n:      n, found: found, journal: v, entry: about("catalogue"),
		wouldDo: func(p planned) error {
			had := fmt.Sprintf("%s of %s had one", count(found.Present), plural(found.Closed, "closed day"))
			return cmp.Or(a.printCatalogued(found, "due"), a.print(p, p.after("would build "+plural(n, "catalogue")+", "+had)))
		},
		do: func() (azblob.CatalogueReport, error) {
			p := a.progress("catalogue", "day", n).then(goOn)
			defer p.end()
			o.Progress = p.reach
			return v.Catalogue(ctx, o)
		},
		done: func(r azblob.CatalogueReport, err error) (more bool, _ error) {
			built, closed := plural(len(r.Built), "catalogue"), plural(r.Closed, "closed day")
			summary := fmt.Sprintf("%s built, %s of %s had one", built, count(r.Present), closed) + ifMore(err == nil && r.More)
			return r.More, cmp.Or(a.printCatalogued(r, "built"), a.summarize(summary))
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
		rows = append(rows, cataloguedRow{Day: date(d.Day), Result: result, Plans: d.Plans, Bytes: d.Bytes})
	}
	for _, d := range r.Skipped {
		rows = append(rows, cataloguedRow{Day: date(d.Day), Result: "skipped", Why: d.Reason})
	}
	slices.SortFunc(rows, func(a, b cataloguedRow) int { return strings.Compare(b.Day, a.Day) })
	return rows
}
