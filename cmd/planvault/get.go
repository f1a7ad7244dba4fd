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

	"github.com/planvault/azblob/workflow"
)

// getCommand prints the JSON of a plan.
func (a *app) getCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "get ID",
		Short: "Print a plan as JSON",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			id, err := parseID("plan", args[0])
			if err != nil {
				return err
			}
			return a.get(c.Context(), id)
		},
	}
}

// get prints a plan.
func (a *app) get(ctx context.Context, id uuid.UUID) error {
	v, err := a.vault(ctx)
	if err != nil {
		return err
	}
	p, err := v.Read(ctx, id)
	if err != nil {
		return err
	}
	text, err := workflow.Marshal(p)
	var b bytes.Buffer
	if err == nil {
		err = json.Compact(&b, text) // requests keep their spaces
	}
	if err != nil {
		return fmt.Errorf("write plan %s as JSON: %w", id, err)
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
