package main

import (
	"context"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/workflow"
)

// reveals adds --reveal to a command that shows requests and responses.
func (a *app) reveals(c *cobra.Command, reveal *bool) *cobra.Command {
	c.Flags().BoolVar(reveal, "reveal", false, "show secrets, and have that in the log")
	return a.signed(c)
}

// readToShow reads a plan, secrets and all. If they are to be shown, the log has who asked.
func (a *app) readToShow(ctx context.Context, v *azblob.Vault, id uuid.UUID, reveal bool) (p *workflow.Plan, err error) {
	if !reveal {
		return v.Read(ctx, id)
	}
	err = a.auditEntry(ctx, v, about("reveal", id), func(ctx context.Context) (err error) {
		p, err = v.Read(ctx, id)
		return err
	})
	return p, err
}
