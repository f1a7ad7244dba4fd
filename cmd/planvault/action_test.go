package main

import (
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// TestNoName looks for an action without a name and a key: neither an empty argument nor an empty key names it.
func TestNoName(t *testing.T) {
	p := &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{{}}}}}}}
	for _, text := range []string{"", uuid.Nil.String()} {
		p.Blocks[0].Sequences[0].Actions[0].ID = workflow.NewV7()
		if a, err := findAction(p, text); err == nil {
			t.Errorf("%q names %v", text, a)
		}
	}
}
