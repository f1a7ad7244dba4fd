package view

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// sample is a running plan.
func sample() *workflow.Plan {
	action := func(name string, s workflow.Status, attempts ...workflow.Attempt) *workflow.Action {
		return &workflow.Action{Name: name, Plugin: "p", Attempts: attempts, State: state(s)}
	}
	failed := workflow.Attempt{Err: &plugins.Error{Message: "it\x1b[31m is\ncold"}}
	p := &workflow.Plan{
		Name: "re\x1blease", State: state(workflow.Running),
		BypassChecks: &workflow.Checks{State: state(workflow.Failed), Actions: []*workflow.Action{action("released?", workflow.Failed, failed)}},
		ContChecks:   &workflow.Checks{State: state(workflow.Running), Actions: []*workflow.Action{action("healthy", workflow.Running)}},
		PostChecks:   &workflow.Checks{Actions: []*workflow.Action{action("there", workflow.NotStarted)}},
		Blocks: []*workflow.Block{
			{Name: "build", State: state(workflow.Completed), Sequences: []*workflow.Sequence{
				{Name: "binary", State: state(workflow.Completed), Actions: []*workflow.Action{action("compile", workflow.Completed)}},
			}},
			{Name: "roll out", State: state(workflow.Running), Sequences: []*workflow.Sequence{
				{Name: "eu", State: state(workflow.Running), Actions: []*workflow.Action{
					action("drain", workflow.Completed), action("install", workflow.Running, failed, workflow.Attempt{}), action("probe", workflow.NotStarted),
				}},
			}},
		},
	}
	driver.Complete(p)
	return p
}

func state(s workflow.Status) workflow.State {
	st := workflow.State{Status: s}
	if s != workflow.NotStarted {
		st.Start = noon.Add(-12 * time.Second)
	}
	if s.Final() {
		st.End = noon.Add(-10 * time.Second)
	}
	return st
}

var colours = regexp.MustCompile("\x1b\\[[0-9;?]*[A-Za-z]")

func TestRender(t *testing.T) {
	for _, test := range []struct {
		width, height int
		want          string
	}{
		{100, 40, `▶ re lease  Running  12s  ████████████░░░░░░░░░░░░  3 of 6 actions
  – bypass checks  2.0s  no, so it goes on
    – released?  2.0s
  ▶ continuous checks  12s
    ▶ healthy  12s
  ✓ build  2.0s
    ✓ binary  2.0s
      ✓ compile  2.0s
  ▶ roll out  12s
    ▶ eu  12s
      ✓ drain  2.0s
      ▶ install  12s  2 attempts  it [31m is cold
      · probe
  · post checks
    · there
`},
		{100, 13, `▶ re lease  Running  12s  ████████████░░░░░░░░░░░░  3 of 6 actions
  – bypass checks  2.0s  no, so it goes on  (1 of 1)
  ▶ continuous checks  12s
    ▶ healthy  12s
  ✓ build  2.0s  (1 of 1)
  ▶ roll out  12s
    ▶ eu  12s
      ✓ drain  2.0s
      ▶ install  12s  2 attempts  it [31m is cold
      · probe
  · post checks
    · there
`},
		{100, 9, `▶ re lease  Running  12s  ████████████░░░░░░░░░░░░  3 of 6 actions
  – bypass checks  2.0s  no, so it goes on  (1 of 1)
  ▶ continuous checks  12s  healthy
  ✓ build  2.0s  (1 of 1)
  ▶ roll out  12s
    ▶ eu  12s  install  (1 of 3)
  · post checks  (0 of 1)
`},
		{30, 5, `▶ re lease  Running  12s  ██…
  – bypass checks  2.0s  no,…
  ▶ continuous checks  12s  …
  3 more lines do not fit
`},
	} {
		t.Run(fmt.Sprintf("%d by %d", test.width, test.height), func(t *testing.T) {
			lines := render([]*tree{newTree(sample())}, nil, test.width, test.height, noon)
			got := colours.ReplaceAllString(strings.Join(lines, "\n")+"\n", "")
			if got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// TestRenderFits checks that the picture fits terminals of any size.
func TestRenderFits(t *testing.T) {
	trees := []*tree{newTree(sample()), newTree(sample())}
	for width := 0; width < 120; width += 7 {
		for height := range 40 {
			lines := render(trees, nil, width, height, noon)
			if len(lines) > max(1, height-1) {
				t.Errorf("%d lines in %d by %d", len(lines), width, height)
			}
			for _, l := range lines {
				if n := utf8.RuneCountInString(colours.ReplaceAllString(l, "")); width > 20 && n > width {
					t.Errorf("%d characters in %d by %d: %q", n, width, height, l)
				}
			}
		}
	}
}

func TestLines(t *testing.T) {
	var out bytes.Buffer
	v := New(&out, nil)
	v.now = func() time.Time { return noon }
	o := v.Observer()
	p := sample()
	v.Start()
	o.PickedUp(t.Context(), p)
	a := p.Blocks[1].Sequences[0].Actions[1]
	a.Attempts = append(a.Attempts, workflow.Attempt{})
	o.Changed(t.Context(), a)
	a.State.Status = workflow.Completed
	o.Changed(t.Context(), a)
	o.Changed(t.Context(), p.ContChecks.Actions[0]) // another round is not shown
	p.State.Status, p.Reason, p.State.End = workflow.Failed, workflow.BlockFailed, noon
	o.Changed(t.Context(), p)
	o.Problem(t.Context(), errors.New("two\nlines"))
	if v.End() {
		t.Error("a plan that failed is no success")
	}
	want := `picked up plan re lease: 3 of 6 actions done, 1 was running and runs again
12:00:00 re lease: roll out / eu / install: Running, attempt 3
12:00:00 re lease: roll out / eu / install: Completed
12:00:00 re lease: Failed
problem: two lines
re lease is Failed after 12s, BlockFailed
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// TestFleet checks what the view says of a fleet: its members, plans that are claimed or taken over, with their
// epochs, and those of other nodes.
func TestFleet(t *testing.T) {
	var out bytes.Buffer
	v := New(&out, nil)
	v.now = func() time.Time { return noon }
	a, b, gone := workflow.NewV7(), workflow.NewV7(), workflow.NewV7()
	v.Observer().Joined(t.Context(), b)
	members := []storage.Member{{ID: b, Name: "b"}, {ID: a, Name: "a\n"}}
	v.Fleet(members, nil)
	v.Fleet(members, nil) // the same is not said again
	taken := sample()
	taken.Epoch = 2
	v.FleetObserver().Takeover(t.Context(), fleet.TakeoverEvent{Plan: taken.ID, From: a})
	v.Observer().PickedUp(t.Context(), taken)
	claimed := sample()
	claimed.Epoch = 1
	for o := range workflow.Walk(claimed) {
		if o.Kind() != workflow.KindPlan {
			*o.Header().State = workflow.State{}
		}
	}
	v.Observer().PickedUp(t.Context(), claimed)
	v.Observer().PickedUp(t.Context(), taken) // again, after a conflict
	v.Fleet(members[:1], []storage.ListResult{
		{Name: "mine", Owner: b, Epoch: 1},
		{Name: "its", Owner: gone, Epoch: 3, State: workflow.State{Status: workflow.Running}},
		{Name: "alone", State: workflow.State{Status: workflow.Running}},
	})
	want := `members of the fleet: a , b (this node)
picked up plan re lease from a  (epoch 2): 3 of 6 actions done, 1 was running and runs again
new plan re lease: 6 actions
picked up plan re lease from a  (epoch 2): 3 of 6 actions done, 1 was running and runs again
members of the fleet: b (this node)
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
	lines := render(v.trees, v.fleet.lines(), 100, 7, noon)
	got := colours.ReplaceAllString(strings.Join(lines, "\n")+"\n", "")
	want = `▶ re lease  Running  12s  ████████████░░░░░░░░░░░░  3 of 6 actions  epoch 2
  – bypass checks  2.0s  no, so it goes on  (1 of 1)
  ▶ continuous checks  12s  healthy
  ✓ build  2.0s  (1 of 1)
  ▶ roll out  12s  install  (1 of 3)
  9 more lines do not fit
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	lines = render(v.trees, v.fleet.lines(), 100, 40, noon)
	got = colours.ReplaceAllString(strings.Join(lines[len(lines)-2:], "\n")+"\n", "")
	want = "▶ its  on node " + gone.String() + ", epoch 3\n▶ alone  on an engine without a fleet\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	v.Observer().Left(t.Context(), taken.ID, fleet.ErrFenced)
	if !strings.HasSuffix(out.String(), "another node goes on with it\n") {
		t.Errorf("%s", out.String())
	}
}

func TestLeftIsNoSuccess(t *testing.T) {
	var out bytes.Buffer
	v := New(&out, nil)
	p := sample()
	v.Observer().PickedUp(t.Context(), p)
	v.Observer().Left(t.Context(), p.ID, errors.New("why"))
	if !strings.Contains(out.String(), "left as it stands (why)") {
		t.Errorf("nothing tells of it before the end: %s", out.String())
	}
	out.Reset()
	if v.End() || !strings.Contains(out.String(), "left as it stands (why)") {
		t.Errorf("%s", out.String())
	}
}

// TestProblemIsNoSuccess checks that a plan that could not be picked up makes End report a failure.
func TestProblemIsNoSuccess(t *testing.T) {
	for _, err := range []error{nil, errors.New("why")} {
		v := New(&bytes.Buffer{}, nil)
		if err != nil {
			v.Observer().Problem(t.Context(), err)
		}
		if got := v.End(); got != (err == nil) {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// TestPictures checks that each picture replaces the one before, and that lines said stay above.
func TestPictures(t *testing.T) {
	var out bytes.Buffer
	v := New(&out, func() (int, int) { return 80, 24 })
	v.now = func() time.Time { return noon }
	p := sample()
	v.Observer().PickedUp(t.Context(), p)
	n := v.drawn
	out.Reset()
	v.Say("hello")
	if want := fmt.Sprintf("\x1b[%dA\r\x1b[Jhello\n", n); n == 0 || !strings.HasPrefix(out.String(), want) || v.drawn != n {
		t.Errorf("%q, want a beginning %q", out.String(), want)
	}
	if lines := strings.Count(out.String(), "\n"); lines != n+1 {
		t.Errorf("%d lines, want %d and one", lines, n)
	}
}

// TestPlain checks that Plain leaves out colours only.
func TestPlain(t *testing.T) {
	picture := func(plain bool) string {
		var out bytes.Buffer
		v := New(&out, func() (int, int) { return 80, 24 })
		v.now = func() time.Time { return noon }
		v.Plain = plain
		v.Observer().PickedUp(t.Context(), sample())
		v.Say("hello")
		return out.String()
	}
	with, without := picture(false), picture(true)
	if !styles.MatchString(with) || styles.MatchString(without) || styles.ReplaceAllString(with, "") != without {
		t.Errorf("with colours %q, without %q", with, without)
	}
}

// TestDraining checks that an interrupt says which actions it waits for.
func TestDraining(t *testing.T) {
	var out bytes.Buffer
	v := New(&out, nil)
	v.Observer().Draining(t.Context())
	v.Observer().PickedUp(t.Context(), sample())
	v.Observer().Draining(t.Context())
	for _, want := range []string{
		"interrupted: no action is running\n",
		"interrupted: waiting for what is running to end: continuous checks / healthy, roll out / eu / install\n",
		"a second interrupt ends the process now",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q lacks %q", out.String(), want)
		}
	}
}
