package workflow_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// TestInferRunning infers from states that are written as the first letter of the status and the start in minutes. The
// plan has pre checks, and a block with two sequences.
func TestInferRunning(t *testing.T) {
	for _, test := range []struct {
		name, stored, want string // plan, checks, check, block, sequence, two actions, sequence, action
		fork               bool
	}{
		{"nothing has begun", "R2 N N N N N N N N", "R2 N N N N N N N N", false},
		{"an action runs", "R2 C3 C3 N N R5 N N N", "R2 C3 C3 R5 R5 R5 N N N", false},
		{"between two actions", "R2 N N N N C4 N N N", "R2 N N R4 R4 C4 N N N", false},
		{"the earliest start counts", "R2 N R3 N N C7 R8 N F5", "R2 R3 R3 R5 R7 C7 R8 R5 F5", false},
		{"a stored start stays", "R2 N N R3 N R6 N N N", "R2 N N R3 R6 R6 N N N", false},
		{"what was carried over has not begun", "R2 C1 C1 N N C1 N N N", "R2 C1 C1 N N C1 N N N", true},
		{"beside what was carried over", "R2 N C1 N N C1 R5 N N", "R2 N C1 R5 R5 C1 R5 N N", true},
		{"by clocks that differ", "R2 N N N N C1 N N N", "R2 N N R1 R1 C1 N N N", false},
		{"a plan that is final", "F2 N N N N C4 N N N", "F2 N N N N C4 N N N", false},
		{"a plan that has not begun", "N N N N N C4 N N N", "N N N N N C4 N N N", false},
	} {
		p := &workflow.Plan{
			PreChecks: &workflow.Checks{Actions: []*workflow.Action{{}}},
			Blocks:    []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{{}, {}}}, {Actions: []*workflow.Action{{}}}}}},
		}
		if test.fork {
			p.ForkedFrom = uuid.New()
		}
		words := strings.Fields(test.stored)
		for o := range workflow.Walk(p) {
			s := o.Header().State
			for s.Status.String()[:1] != words[0][:1] {
				s.Status++
			}
			if s.Status != workflow.NotStarted {
				s.Start = time.Date(2026, 1, 2, 3, int(words[0][1]-'0'), 0, 0, time.UTC)
			}
			words = words[1:]
		}
		before := plantest.Clone(p)
		var got []string
		for o := range workflow.Walk(workflow.InferRunning(p)) {
			s := o.Header().State
			word := s.Status.String()[:1]
			if s.Status != workflow.NotStarted {
				word += fmt.Sprint(s.Start.Minute())
			}
			got = append(got, word)
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s: %s becomes %s, want %s", test.name, test.stored, got, test.want)
		}
		if changed := test.stored != test.want; (workflow.InferRunning(p) != p) != changed {
			t.Errorf("%s: the result is a copy: %t", test.name, !changed)
		}
		if d := plantest.Diff(before, p); d != "" {
			t.Errorf("%s: the plan has changed: %s", test.name, d)
		}
	}
	if workflow.InferRunning(nil) != nil {
		t.Error("no plan becomes one")
	}
}
