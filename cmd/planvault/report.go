package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob/cmd/planvault/report"
)

// reportCommand writes the page of a plan.
func (a *app) reportCommand() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "report ID",
		Short: "Write a plan as a web page: tree, timeline, errors",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseID("plan", args[0])
			if err != nil {
				return err
			}
			if path == "" {
				path = id.String() + ".html"
			}
			return a.report(c.Context(), id, path)
		},
	}
	c.Flags().StringVarP(&path, "out", "o", "", "write to the `FILE`; - is stdout (default ID.html)")
	return c
}

// reported is what report wrote.
type reported struct {
	ID   uuid.UUID `json:"id"`
	File string    `json:"file"`
}

// report writes the page of a plan to a file, and says which.
func (a *app) report(ctx context.Context, id uuid.UUID, path string) error {
	v, err := a.vault(ctx)
	if err != nil {
		return err
	}
	p, err := v.Read(ctx, id)
	if err != nil {
		return err
	}
	err = a.writeFile(path, func(w io.Writer) error { return report.Write(w, p, report.Options{Now: time.Now()}) })
	switch {
	case err != nil:
		return fmt.Errorf("write the report: %w", err)
	case path == "-":
		return nil
	}
	return a.print(reported{id, path}, func(w io.Writer) { fmt.Fprintf(w, "wrote %s\n", printable(path, 0)) })
}
