package main

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// stored returns a stage with a plan.
func stored(t *testing.T, status workflow.Status, name string) (*stage, *workflow.Plan) {
	t.Helper()
	s := newStage(t)
	return s, s.store(t, planID(0), status, name)
}

// TestGetCanBeRestored gives what get prints to another vault.
func TestGetCanBeRestored(t *testing.T) {
	s, p := stored(t, workflow.Failed, "nightly \u202e\x1b")
	for _, terminal := range []bool{false, true} {
		r := s.runAs(t.Context(), func(p *process) { p.stdoutIsTerm = terminal }, "get", planID(0).String())
		if r.code != exitDone || strings.Contains(r.stdout, "\u202e") == terminal {
			t.Errorf("on a terminal %t: %+v", terminal, r)
		}
		var got workflow.Plan
		must(t, workflow.Unmarshal([]byte(r.stdout), &got))
		if err := newStage(t).vault.Restore(t.Context(), &got); err != nil {
			t.Error(err)
		}
		if diff := plantest.Diff(p, &got); diff != "" {
			t.Error(diff)
		}
	}
}

// TestWatch follows a plan in a pipe, to its end.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := stored(t, workflow.Running, "nightly")
		b := p.Blocks[0]
		a := b.Sequences[0].Actions[0]
		go func() {
			time.Sleep(time.Hour + 30*time.Second) // between two looks
			a.Attempts = []workflow.Attempt{
				{Start: a.State.Start, End: a.State.Start.Add(time.Second), Err: &plugins.Error{Message: "no \x1b[31mroom"}},
				{Start: a.State.Start.Add(2 * time.Second)},
			}
			update(t, s, a)
			time.Sleep(time.Hour)
			a.Attempts[1].End = a.State.Start.Add(time.Minute)
			end(workflow.Completed, a)
			update(t, s, a)
			time.Sleep(time.Hour)
			end(workflow.Completed, b.Sequences[0].Actions[1], b.Sequences[0], b, p)
			update(t, s, p)
		}()
		r := s.run(t.Context(), "show", planID(0).String(), "--watch", "--interval", "1m", "--exit-status")
		_, changes, _ := strings.Cut(r.stdout, "▶ action 1  running\n")
		want := `2025-10-20 00:00:02Z  running      block 0/sequence 0/action 0  ✗ attempt 1 failed after 1s: no \x1b[31mroom
2025-10-20 00:01:01Z  completed    block 0/sequence 0/action 0  1m00s
2025-10-20 00:01:01Z  completed    block 0/sequence 0/action 1  1m00s
2025-10-20 00:01:01Z  completed    block 0/sequence 0  1m00s
2025-10-20 00:01:01Z  completed    block 0  1m00s
2025-10-20 00:01:01Z  completed    nightly  1m00s
`
		if r.code != exitDone || changes != want || r.stderr != "" {
			t.Errorf("exit code %d, %s\n%s\nwant\n%s", r.code, r.stderr, changes, want)
		}
	})
}

func end(status workflow.Status, objects ...workflow.Object) {
	for _, o := range objects {
		state := o.Header().State
		state.Status, state.End = status, state.Start.Add(time.Minute)
	}
}

func update(t *testing.T, s *stage, o workflow.Object) {
	t.Helper()
	if err := storage.Update(t.Context(), s.vault, o); err != nil {
		t.Error(err)
	}
}

// TestWatchOnATerminal checks that the tree is drawn on the second screen, also if an interrupt ends it.
func TestWatchOnATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := stored(t, workflow.Running, "nightly")
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(90*time.Second, interrupt)
		small := func(p *process) { p.stdoutIsTerm, p.terminalSize = true, func() (int, int) { return 60, 10 } }
		r := s.runAs(ctx, small, "show", planID(0).String()[28:], "--watch", "--interval", "1m")
		if r.code != exitInterrupted || !strings.Contains(r.stderr, "planvault show "+planID(0).String()+" --watch follows it again") {
			t.Errorf("exit code %d, %s", r.code, r.stderr)
		}
		out := r.stdout
		if !strings.HasPrefix(out, secondScreen) || !strings.HasSuffix(out, firstScreen) {
			t.Errorf("the screens are not changed: %q", out)
		}
		if n := strings.Count(out, topLeft); n != 2 {
			t.Errorf("the tree was drawn %d times", n)
		}
		for _, drawn := range strings.Split(out, topLeft)[1:] {
			if lines := strings.Count(drawn, "\n"); lines > 9 {
				t.Errorf("%d lines on a terminal of 10", lines)
			}
		}
	})
}

// TestWatchThroughAnOutage checks that show goes on when the store can be reached again, and that it says why it waits.
// On a terminal, the plan stays on the first screen in the end.
func TestWatchThroughAnOutage(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, p := stored(t, workflow.Running, "nightly")
			go func() {
				time.Sleep(90 * time.Second)
				s.server.Inject(emulator.On().Do(emulator.Answer(503, "ServerBusy")))
				time.Sleep(time.Hour)
				s.server.ClearFaults()
				end(workflow.Failed, p)
				update(t, s, p)
			}()
			r := s.runAs(t.Context(), func(p *process) { p.stdoutIsTerm, p.terminalSize = terminal, func() (int, int) { return 200, 50 } },
				"show", planID(0).String(), "--watch", "--interval", "1m", "--exit-status")
			_, last, restored := strings.Cut(r.stdout, firstScreen)
			if !terminal {
				last = r.stdout
			}
			if r.code != exitFound || restored != terminal || strings.Contains(last, firstScreen) ||
				!strings.Contains(r.stdout+r.stderr, "unavailable") || !strings.Contains(last, "failed") {
				t.Errorf("on a terminal %t: %+v", terminal, r)
			}
		})
	}
}

// TestShowOfALargePlan checks that what needs no look is folded, and that --all shows everything.
func TestShowOfALargePlan(t *testing.T) {
	p := plantest.Sized(3, 10, 10)
	plantest.Finish(p)
	for _, o := range []workflow.Object{p, p.Blocks[1], p.Blocks[1].Sequences[4], p.Blocks[1].Sequences[4].Actions[7]} {
		o.Header().State.Status = workflow.Failed
	}
	root := report.NewOutline(p, time.Now())
	a := &app{process: process{getenv: func(string) string { return "" }}}
	for all, want := range map[bool]int{false: 1 + 3 + 10 + 10 + 10, true: 1 + 3 + 30 + 300 + 300} { // an error for each action
		lines := a.newTree(root, all).lines(root)
		if len(lines) != want {
			t.Errorf("--all=%t: %d lines, want %d", all, len(lines), want)
		}
	}
}

// TestColors checks when results have colors.
func TestColors(t *testing.T) {
	for _, test := range []struct {
		terminal bool
		env      string
		want     bool
	}{{true, "", true}, {false, "", false}, {true, "NO_COLOR=1", false}, {true, "TERM=dumb", false}, {true, "TERM=xterm", true}} {
		a := &app{process: process{stdoutIsTerm: test.terminal, getenv: func(name string) string {
			value, _ := strings.CutPrefix(test.env, name+"=")
			return strings.Replace(value, test.env, "", 1)
		}}}
		if got := a.colors(); got != test.want {
			t.Errorf("%+v: %t", test, got)
		}
	}
}

func TestFit(t *testing.T) {
	var body []treeLine
	for i := range 20 {
		body = append(body, treeLine{text: fmt.Sprint(i), live: i == 12})
	}
	got := strings.Join(fit([]string{"head"}, body, 8), " ")
	if want := "head  9 10 11 12 13 More lines do not fit. Ctrl-C ends; --all shows all of the tree."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for height := -1; height < 30; height++ {
		if n := len(fit([]string{"head"}, body, height)); n > max(1, height) {
			t.Errorf("%d lines in a height of %d", n, height)
		}
	}
}

func TestCutStyled(t *testing.T) {
	for text, want := range map[string]string{"abc": "abc", "abcd": "abc\x1b[0m", "\x1b[31mабв\x1b[0m": "\x1b[31mабв\x1b[0m", "\x1b[31mабвг\x1b[0m": "\x1b[31mабв\x1b[0m", "日本": "日\x1b[0m"} {
		if got := cutStyled(text, 3); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestShowHasEveryField fails if a field of a plan is missing in what show prints, as text or as JSON, or in the report.
func TestShowHasEveryField(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	whole := plantest.Full()
	driver.Complete(whole)
	plantest.Finish(whole)
	whole.SubmitTime, whole.State = at, workflow.State{Status: workflow.Failed, Start: at, End: at.Add(time.Hour), ETag: "a"}
	whole.Reason, whole.RuntimeUpdate, whole.Owner, whole.Epoch, whole.WakeAt, whole.LastSignal, whole.ForkedFrom = workflow.BlockFailed, at, planID(1), 7, at, 1, planID(2)
	whole.Submitted = workflow.Actor{By: "submitter", From: "there"}
	whole.Forked = workflow.Attribution{By: "forker", Why: "again", At: at}
	whole.Paused, whole.NotBefore, whole.Deadline = workflow.Attribution{By: "pauser", Why: "full", At: at}, at, at.Add(time.Minute)
	whole.Stopped = workflow.Attribution{By: "stopper", Why: "wrong", At: at}
	whole.External, whole.Alone = workflow.External{Name: "queue", Ask: "ask the queue"}, true
	whole.Keys, whole.KeepTurn, whole.Unique, whole.WaitsFor = []workflow.Key{{Name: "west"}}, workflow.KeepWhileAwake, "customer 7", "west"
	whole.Ending = workflow.Ending{Reason: workflow.BlockFailed, At: at}
	outputs := map[string]func(p *workflow.Plan) string{
		"text": func(p *workflow.Plan) string {
			var out bytes.Buffer
			tree{all: true, stamp: stamp}.write(&out, report.NewOutline(p, at))
			return out.String()
		},
		"JSON": func(p *workflow.Plan) string {
			var out bytes.Buffer
			must(t, writeJSON(&out, summaryOf(report.NewOutline(p, at))))
			return out.String()
		},
		"report": func(p *workflow.Plan) string {
			var out bytes.Buffer
			must(t, report.Write(&out, p, report.Options{Now: at}))
			return out.String()
		},
	}
	// Meta is for programs, RuntimeUpdate and Alone for the engine, and LastSignal for the fleet. The report has the first two.
	unseen := map[string][]string{"text": {"Meta", "RuntimeUpdate", "LastSignal", "Alone"}, "JSON": {"Meta", "RuntimeUpdate", "LastSignal", "Alone"}, "report": {"LastSignal", "Alone"}}
	for output, of := range outputs {
		for f := range reflect.TypeFor[workflow.Plan]().Fields() {
			if !f.IsExported() {
				continue
			}
			part := plantest.Clone(whole)
			field := reflect.ValueOf(part).Elem().FieldByIndex(f.Index)
			if field.IsZero() {
				t.Fatalf("%s is not set", f.Name)
			}
			if field.SetZero(); (of(part) == of(whole)) != slices.Contains(unseen[output], f.Name) {
				t.Errorf("%s: %s is left out: %t", output, f.Name, of(part) == of(whole))
			}
		}
	}
}

// TestShowOfStrangePlans checks that nothing that a plan holds controls the terminal, takes lines of its own, or is no
// JSON.
func TestShowOfStrangePlans(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	far := time.Date(12345, 1, 1, 0, 0, 0, 0, time.UTC)
	state := workflow.State{Status: 77, Start: far, End: time.Time{}.Add(-time.Hour)}
	for strange := range plantest.Strange() {
		strange += "\x1b[2J\u202e\xff\r\n"
		a := &workflow.Action{Name: strange, Plugin: strange, State: state, Attempts: []workflow.Attempt{
			{Start: far, End: time.Time{}, Err: &plugins.Error{Message: strange, Wrapped: &plugins.Error{}}}, {Start: time.Time{}, End: far},
		}}
		p := &workflow.Plan{
			Name: strange, Descr: strange, State: state, Reason: -1, Epoch: -1, SubmitTime: far,
			Submitted: workflow.Actor{By: strange, From: strange}, Ending: workflow.Ending{Trouble: strange},
			Blocks: []*workflow.Block{nil, {Name: strange, Sequences: []*workflow.Sequence{{Name: strange, Actions: []*workflow.Action{a, nil}}}}},
		}
		root := report.NewOutline(p, far)
		lines := len(root.Children) // the tree has no more lines than objects and errors
		for range root.All() {
			lines++
		}
		for _, all := range []bool{false, true} {
			var out bytes.Buffer
			tree{all: all, stamp: stamp}.write(&out, root)
			if n := strings.Count(out.String(), "\n"); n > 14+lines+1 {
				t.Errorf("%.20q: %d lines for %d objects", strange, n, lines)
			}
			if strings.ContainsAny(out.String(), "\x1b\x00\r\u202e\u2028") || !utf8.ValidString(out.String()) {
				t.Errorf("%.20q: %q", strange, out.String())
			}
			if !all && out.Len() > 5000 {
				t.Errorf("%.20q: %d bytes", strange, out.Len())
			}
		}
		var out bytes.Buffer
		if err := writeJSON(&out, summaryOf(root)); err != nil || strings.Contains(out.String(), `\\u202e`) { // texts are as they are
			t.Errorf("%.20q: %v: %s", strange, err, out.String())
		}
		for _, c := range changes(report.NewOutline(new(workflow.Plan), far), root) {
			if line := (tree{stamp: stamp}).change(c); strings.ContainsAny(line, "\x1b\n\r\u202e") {
				t.Errorf("%.20q: %q", strange, line)
			}
		}
	}
}
