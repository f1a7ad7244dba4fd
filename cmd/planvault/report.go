package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/workflow"
)

// reportCommand writes the page of a plan.
func (a *app) reportCommand() *cobra.Command {
	var path string
	var reveal bool
	c := a.onPlan("report ID", "Write a plan as a web page: tree, timeline, errors",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
			p, err := a.readToShow(ctx, v, id, reveal)
			if err != nil {
				return err
			}
			return a.report(p, reveal, cmp.Or(path, id.String()+".html"))
		})
	c.Flags().StringVarP(&path, "out", "o", "", "write to the `FILE`; - is stdout (default ID.html)")
	return a.reveals(c, &reveal)
}

// reported is what report wrote.
type reported struct {
	ID   uuid.UUID `json:"id" help:"the plan's ID"`
	File string    `json:"file" help:"the file that was written"`
}

// report writes the page of a plan to a file, and says which.
func (a *app) report(p *workflow.Plan, reveal bool, path string) error {
	err := a.writeFile(path, func(w io.Writer) error { return report.Write(w, p, report.Options{Now: time.Now(), Reveal: reveal}) })
	switch {
	case err != nil:
		return fmt.Errorf("write the report: %w", err)
	case path == "-":
		return nil
	}
	return a.print(reported{p.ID, path}, func(w io.Writer) { fmt.Fprintf(w, "wrote %s\n", printable(path, 0)) })
}
