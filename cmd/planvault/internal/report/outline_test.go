package report_test

import (
	"errors"
	"fmt"
	"html"
	"io"
	"regexp"
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

// TestPieces shows a plan of 2,400 actions in pieces. The page has what failed, and leads to all actions, each of which is in
// one piece.
func TestPieces(t *testing.T) {
	p, now := plantest.Sized(2, 1, 1200), time.Now()
	for o := range workflow.Walk(p) {
		*o.Header().State = workflow.State{Status: workflow.Completed, Start: now, End: now.Add(time.Second)}
	}
	bad := p.Blocks[1].Sequences[0].Actions[777]
	bad.State.Status = workflow.Failed
	p.Blocks[1].State.Status, p.Blocks[1].Sequences[0].State.Status = workflow.Failed, workflow.Failed
	show := func(group string, from int) string {
		var b strings.Builder
		o := report.Options{Piece: group, From: from, PieceURL: func(group string, from int) string { return fmt.Sprintf("/piece?%s&%d", group, from) }}
		if err := report.Write(&b, p, o); err != nil {
			t.Fatalf("%s from %d: %v", group, from, err)
		}
		return b.String()
	}
	action := regexp.MustCompile(`<details class="node action[^>]*>\s*<summary>.*\s*<div class="body" id="(\w+)"`)
	link := regexp.MustCompile(`<a href="/piece\?(\w+)&amp;(\d+)">([^<]*)`)
	page := show("", 0)
	if n := len(action.FindAllString(page, -1)); n != 1 || len(page) > 30_000 || !strings.Contains(page, html.EscapeString(bad.Name)) {
		t.Errorf("the page has %d actions and %d bytes", n, len(page))
	}
	for _, part := range strings.Split(page, "<summary")[1:] {
		if summary, _, _ := strings.Cut(part, "</summary>"); strings.Contains(summary, "<a ") {
			t.Errorf("a summary has a link, so that a click may mean both: %s", summary)
		}
	}
	found := map[string]int{}
	for _, l := range link.FindAllStringSubmatch(page, -1) {
		for group, from := l[1], 0; group != ""; {
			piece := show(group, from)
			for _, a := range action.FindAllStringSubmatch(piece, -1) {
				found[a[1]]++
			}
			group = ""
			for _, next := range link.FindAllStringSubmatch(piece, -1) {
				if next[3] == "Later" {
					group = next[1]
					fmt.Sscan(next[2], &from)
				}
			}
		}
	}
	for anchor, n := range found {
		if n != 1 {
			t.Errorf("action %s is in %d pieces", anchor, n)
		}
	}
	if len(found) != 2400 || found[action.FindStringSubmatch(page)[1]] != 1 {
		t.Errorf("the pieces have %d actions", len(found))
	}
	for _, o := range []report.Options{{Piece: "n1"}, {Piece: "none"}, {Piece: "n2", From: 1200}} {
		o.PieceURL = func(string, int) string { return "" }
		if err := report.Write(io.Discard, p, o); !errors.Is(err, report.ErrNoPiece) {
			t.Errorf("%s from %d: %v", o.Piece, o.From, err)
		}
	}
}
