package report_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// TestOutlineOrder checks that children are in the order in which they run, with what they are.
func TestOutlineOrder(t *testing.T) {
	var roles []string
	root := report.NewOutline(plantest.Full(), began)
	for _, c := range root.Children {
		roles = append(roles, c.Title)
	}
	if got, want := strings.Join(roles, ", "), "bypass checks, pre checks, continuous checks, block 0, block 1, post checks, deferred checks, deferred actions"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	roles = nil
	for _, c := range root.Children[len(root.Children)-1].Children {
		roles = append(roles, c.Role)
	}
	if got, want := strings.Join(roles, ", "), "on success, on failure, always"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestOutlineCounts checks that failed bypass checks are no failures.
func TestOutlineCounts(t *testing.T) {
	root := report.NewOutline(rollout(t), began)
	if got, want := fmt.Sprint(root.Actions, root.NotApplied, " ", root.Progress()), "map[NotStarted:2 Completed:12 Failed:1] 1 14 of 16 actions"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if bypass := root.Children[0]; !bypass.DidNotApply() || bypass.Troubled() || !root.Troubled() {
		t.Error("the bypass checks are taken for a failure, or the failure is not found")
	}
}

// TestOutlineInfers: what is above an action that runs is running, whatever is stored.
func TestOutlineInfers(t *testing.T) {
	p := &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{{}}}}}}}
	p.State.Status = workflow.Running
	p.Blocks[0].Sequences[0].Actions[0].State = workflow.State{Status: workflow.Running, Start: began}
	if b := report.NewOutline(p, began.Add(time.Minute)).Children[0]; b.Status != workflow.Running || !b.Span.Open || !b.Span.Start.Equal(began) {
		t.Errorf("the block is %s, %+v", b.Status, b.Span)
	}
}

func TestAttemptOutcomes(t *testing.T) {
	start, end := began, began.Add(time.Second)
	failed := workflow.Attempt{Start: start, End: end, Err: &plugins.Error{Message: "no"}}
	cut := failed
	cut.Interrupted = true
	open, ended := workflow.Attempt{Start: start}, workflow.Attempt{Start: start, End: end}
	for _, test := range []struct {
		plan, action workflow.Status
		attempts     []workflow.Attempt
		want         string
	}{
		{workflow.Running, workflow.Running, []workflow.Attempt{open, failed, open}, "interrupted failed running"},
		{workflow.Running, workflow.Completed, []workflow.Attempt{open, ended}, "interrupted succeeded"},
		{workflow.Stopped, workflow.Running, []workflow.Attempt{failed, open}, "failed interrupted"},
		{workflow.Failed, workflow.Failed, []workflow.Attempt{open}, "interrupted"},
		{workflow.Stopped, workflow.Stopped, []workflow.Attempt{failed, cut}, "failed interrupted"},
	} {
		p := &workflow.Plan{
			State:     workflow.State{Status: test.plan},
			PreChecks: &workflow.Checks{Actions: []*workflow.Action{{State: workflow.State{Status: test.action}, Attempts: test.attempts}}},
		}
		var got []string
		for _, a := range report.NewOutline(p, began).Children[0].Children[0].Attempts {
			got = append(got, a.Outcome.Label().Word)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%v, %v: %v, want %s", test.plan, test.action, got, test.want)
		}
	}
}

// TestOutlineOfAFork checks that what a fork did not run itself is told apart, also after it has run.
func TestOutlineOfAFork(t *testing.T) {
	old := rollout(t)
	p, err := workflow.Fork(old, workflow.ForkOptions{AfterCompensation: true})
	if err != nil {
		t.Fatal(err)
	}
	p.SubmitTime = time.Now()
	for o, carried := range workflow.CarriedOver(p) {
		if !carried {
			*o.Header().State = workflow.State{Status: workflow.Completed, Start: p.SubmitTime, End: p.SubmitTime.Add(time.Second)}
		}
	}
	var ran []string
	for n := range report.NewOutline(p, time.Now()).All() {
		if len(n.Children) == 0 && !n.CarriedOver {
			ran = append(ran, n.Name)
		}
	}
	if want := []string{"released already?", "errors stay below 0.1%", "probe", "undrain", "tell everybody", "page the operator"}; !slices.Equal(ran, want) {
		t.Errorf("the fork ran %q, want %q", ran, want)
	}
}
