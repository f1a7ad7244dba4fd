package main

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
)

// hears says when an engine of another kind, which places a plan, sees what was asked of the plan. It is empty for other plans.
func hears(ctx context.Context, v storage.Reader, p storage.ListResult) string {
	switch {
	case p.External == "":
		return ""
	case p.Owner != uuid.Nil:
		return fmt.Sprintf("%s, an engine of another kind, places the plan: it sees this within 10s while it works on the plan, and otherwise when it runs the plan next.", p.External)
	}
	text := fmt.Sprintf("%s, an engine of another kind, places the plan, and sees this when it runs the plan next.", p.External)
	if plan, err := v.Read(ctx, p.ID); err == nil && plan.External.Ask != "" {
		text += " Ask it: " + plan.External.Ask
	}
	return text
}
