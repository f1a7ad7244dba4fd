package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
)

// checkCommand reads everything and reports what is broken.
func (a *app) checkCommand() *cobra.Command {
	var p period
	c := a.onVault("check", "Read everything that is stored, and say what is broken",
		func(ctx context.Context, v *azblob.Vault, _ []string) error {
			from, to, err := p.days(time.Now())
			if err != nil {
				return err
			}
			return a.check(ctx, v, azblob.CheckOptions{From: from, To: to})
		})
	p.addFlags(c.Flags(), "created", "days that have any time")
	return c
}

// checkReport is what planvault check prints.
type checkReport struct {
	Days       int          `json:"days" help:"how many days were checked"`
	Plans      int          `json:"plans" help:"how many plans were found"`
	Blobs      int          `json:"blobs" help:"how many blobs were listed"`
	Bytes      int64        `json:"bytes" help:"the size of these"`
	InProgress int          `json:"inProgress" help:"how many plans are being written or removed"`
	Foreign    int          `json:"foreign,omitzero" help:"how many plans another program wrote"`
	Wait       float64      `json:"waitSeconds,omitzero" help:"the time until all of these can be judged"`
	Problems   []problemRow `json:"problems" help:"what is wrong"`
	Complete   bool         `json:"complete" help:"whether everything was checked"`
}

// problemRow is a problem of a check.
type problemRow struct {
	Kind   azblob.ProblemKind `json:"kind" help:"the kind of the problem"`
	Plan   *uuid.UUID         `json:"plan,omitempty" help:"the plan that has it"`
	Blob   string             `json:"blob" help:"the blob that shows it"`
	Detail string             `json:"detail" help:"what is wrong with it"`
	Repair string             `json:"repair" help:"what to do"`
	Wait   float64            `json:"waitSeconds,omitzero" help:"the time until Recovery repairs it"`
}

func checkReportOf(r azblob.CheckReport, complete bool) checkReport {
	report := checkReport{r.Days, r.Plans, r.Blobs, r.Bytes, r.InProgress, r.Foreign, r.Wait.Seconds(), []problemRow{}, complete}
	for _, p := range r.Problems {
		report.Problems = append(report.Problems, problemRow{p.Kind, known(p.Plan), p.Blob, p.Detail, p.Repair(), p.Wait.Seconds()})
	}
	return report
}

// write writes the report as text.
func (r checkReport) write(w io.Writer) {
	for _, p := range r.Problems {
		fmt.Fprintf(w, "%s", p.Kind)
		if p.Plan != nil {
			fmt.Fprintf(w, ", plan %s", p.Plan)
		}
		fmt.Fprintf(w, "\n    %s\n    %s\n    → %s%s\n", printable(p.Blob, 0), printable(p.Detail, 0), p.Repair, in(p.Wait, ", in "))
	}
	fmt.Fprintf(w, "%s in %s, %s, %s, %s", plural(len(r.Problems), "problem"), plural(r.Days, "day"), plural(r.Plans, "plan"), plural(r.Blobs, "blob"), byteSize(r.Bytes))
	if r.InProgress > 0 {
		fmt.Fprintf(w, "; %s in progress%s", plural(r.InProgress, "plan"), in(r.Wait, ", which can be judged in "))
	}
	if r.Foreign > 0 {
		fmt.Fprintf(w, "; %s written by another program, which no vault changes", plural(r.Foreign, "plan"))
	}
	if !r.Complete {
		fmt.Fprint(w, "; the check did not finish")
	}
	fmt.Fprintln(w)
}

// in says how long something takes, if it takes any time.
func in(wait float64, text string) string {
	if wait == 0 {
		return ""
	}
	return text + seconds(wait)
}

// check prints the report of a check, also of one that did not finish.
func (a *app) check(ctx context.Context, v *azblob.Vault, o azblob.CheckOptions) error {
	p := a.progress("check", "day", 0).then("--created-before goes on with the days before")
	var days storage.Progress
	o.Progress = func(s storage.Progress) {
		days = s
		p.reach(s)
	}
	report, err := v.Admin().Check(ctx, o)
	p.end()
	if err != nil && report.Days == 0 {
		return err
	}
	if printErr := a.print(checkReportOf(report, err == nil), checkReportOf(report, err == nil).write); printErr != nil {
		return errors.Join(err, printErr)
	}
	switch {
	case err != nil:
		return fmt.Errorf("checked %d of %s, newest first: %w", days.Done, plural(days.Total, "day"), err)
	case len(report.Problems) > 0:
		return errFound
	}
	return nil
}
