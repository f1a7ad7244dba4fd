package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"unicode"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/workflow"
)

// getCommand prints the JSON of a plan.
func (a *app) getCommand() *cobra.Command {
	var reveal bool
	return a.reveals(a.onPlan("get ID", "Print a plan as JSON",
		func(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
			p, err := a.readToShow(ctx, v, id, reveal)
			if err != nil {
				return err
			}
			if !reveal {
				p = p.Redacted()
			}
			return a.printJSON(p)
		}), &reveal)
}

// printJSON prints all of a plan.
func (a *app) printJSON(p *workflow.Plan) error {
	text, err := workflow.Marshal(p)
	var b bytes.Buffer
	if err == nil {
		err = json.Compact(&b, text) // requests keep their spaces
	}
	if err != nil {
		return fmt.Errorf("write plan %s as JSON: %w", p.ID, err)
	}
	text = b.Bytes()
	if a.stdoutIsTerm {
		text = escapeJSON(text)
	}
	return a.print(json.RawMessage(text), func(w io.Writer) {
		var b bytes.Buffer
		_ = json.Indent(&b, text, "", "  ") // it is JSON: Compact has read it
		b.WriteByte('\n')
		_, _ = b.WriteTo(w)
	})
}

// escapeJSON returns the same JSON without characters that could change a terminal. They can only be in strings.
func escapeJSON(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		switch {
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.Bytes()
}

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
