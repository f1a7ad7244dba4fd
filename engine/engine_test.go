package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// full is a plan with every kind of sub-object, which all succeed.
func full() *workflow.Plan {
	bypass := func(name string) *workflow.Checks { return checks(do(job{Name: name, Fails: -1})) }
	b := block("b1", sequence("s1", second("a1"), second("a2")), sequence("s2", second("a3")), sequence("s3", second("a4")))
	b.Concurrency, b.EntranceDelay, b.ExitDelay = 2, 10*time.Second, 20*time.Second
	b.BypassChecks, b.PreChecks, b.PostChecks, b.DeferredChecks = bypass("b-bypass"), checks(second("b-pre")), checks(second("b-post")), checks(second("b-deferred"))
	b.ContChecks = checks(do(job{Name: "b-cont"}))
	p := plan(b, block("b2", sequence("s4", second("a5"))))
	p.BypassChecks, p.PreChecks, p.PostChecks, p.DeferredChecks = bypass("bypass"), checks(second("pre"), second("pre")), checks(second("post")), checks(second("deferred"))
	p.PreChecks.Delay = 5 * time.Second
	p.ContChecks = checks(do(job{Name: "cont"}))
	p.ContChecks.Delay = 25 * time.Second
	p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
		batch("ok", workflow.OnSuccess, second("d1"), second("d2")), batch("no", workflow.OnFailure, second("d3")), batch("any", workflow.Always, second("d4")),
	}}
	return p
}

func TestOrder(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		got := s.play(full())
		want := []string{
			"0s bypass", "5s pre", "5s pre", // after the delay of the checks, both at once
			"6s cont", "16s b-bypass", // after the entrance delay of 10s
			"16s b-pre", "17s a1", "17s a3", "17s b-cont", // two sequences at once, and the checks beside them
			"18s a2", "18s a4", "19s b-post", "20s b-deferred",
			"31s cont",                                                         // 25s after the first
			"41s a5", "42s post", "43s deferred", "44s d1", "45s d2", "46s d4", // after the exit delay of 20s
		}
		slices.SortFunc(s.log, byTime)
		slices.SortFunc(want, byTime)
		if !slices.Equal(s.log, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(s.log, "\n"), strings.Join(want, "\n"))
		}
		for o := range workflow.Walk(got) {
			want := workflow.Completed
			switch nameOf(o) {
			case "bypass", "b-bypass":
				want = workflow.Failed
			case "no", "d3":
				want = workflow.NotStarted
			}
			if o == workflow.Object(got.BypassChecks) || o == workflow.Object(got.Blocks[0].BypassChecks) {
				want = workflow.Failed
			}
			h := o.Header()
			if h.State.Status != want {
				t.Errorf("%s %s is %s, want %s", o.Kind(), nameOf(o), h.State.Status, want)
			}
			if began := want != workflow.NotStarted; h.State.Start.IsZero() == began || h.State.End.IsZero() == began || h.State.End.Before(h.State.Start) {
				t.Errorf("%s %s is from %v to %v", o.Kind(), nameOf(o), h.State.Start, h.State.End)
			}
		}
		if a := got.Blocks[0].Sequences[0].Actions[0]; len(a.Attempts) != 1 || a.Attempts[0].Resp != "ok" || a.Attempts[0].End.Sub(a.Attempts[0].Start) != time.Second {
			t.Errorf("attempts %+v", a.Attempts)
		}
	})
}

func byTime(a, b string) int {
	var at [2]time.Duration
	for i, line := range []string{a, b} {
		text, _, _ := strings.Cut(line, " ")
		at[i], _ = time.ParseDuration(text)
	}
	if at[0] != at[1] {
		return int(at[0] - at[1])
	}
	return strings.Compare(a, b)
}

func TestConcurrency(t *testing.T) {
	for _, test := range []struct {
		concurrency, most int
		took              time.Duration
	}{{0, 1, 5 * time.Second}, {1, 1, 5 * time.Second}, {2, 2, 3 * time.Second}, {5, 5, time.Second}, {9, 5, time.Second}} {
		stageRun(t, fmt.Sprint(test.concurrency), func(t *testing.T, s *stage) {
			b := block("b")
			for i := range 5 {
				b.Sequences = append(b.Sequences, sequence("", second(fmt.Sprint(i))))
			}
			b.Concurrency = test.concurrency
			got := s.play(plan(b)).State
			if took := got.End.Sub(got.Start); s.most != test.most || took != test.took {
				t.Errorf("%d at once, in %v", s.most, took)
			}
		})
	}
}

// scenario is a plan and how it ends.
type scenario struct {
	name string
	plan *workflow.Plan
	stop time.Duration // when it is asked to stop; 0 is never, and 1 before anything has begun
	want string        // its status and reason, and the jobs that ran
}

// TestEnds runs each scenario with an engine that lives.
func TestEnds(t *testing.T) {
	for _, test := range slices.Concat(tolerances(), guards(), deferrals(), stops()) {
		stageRun(t, test.name, func(t *testing.T, s *stage) {
			p := s.create(test.plan)
			var e *engine.Engine
			e = s.engine(s.process(), engine.Options{Observer: engine.Observer{PickedUp: func(context.Context, engine.PickedUpEvent) {
				stop := func() { must(t, e.Stop(t.Context(), p.ID, asked)) }
				switch test.stop {
				case 0:
				case 1:
					stop()
				default:
					time.AfterFunc(test.stop, stop)
				}
			}}})
			must(t, e.Run(t.Context()))
			got := s.read(p.ID)
			slices.SortFunc(s.log, byTime)
			if end := fmt.Sprintf("%s, %s: %s", got.State.Status, got.Reason, strings.Join(s.names(), " ")); end != test.want {
				t.Errorf("it ends as\n%s\nwant\n%s\n%s", end, test.want, outline(got))
			}
			if d := got.DeferredActions; d != nil && (d.State.Status == workflow.Failed) != slices.ContainsFunc(d.Batches, func(b *workflow.DeferBatch) bool { return b.State.Status == workflow.Failed }) {
				t.Errorf("the deferred actions are %s", d.State.Status)
			}
		})
	}
}

// tolerances are blocks of sequences that are good, bad, or long and good.
func tolerances() (all []scenario) {
	for _, test := range []struct {
		tolerated, concurrency int
		kinds, want            string
	}{
		{0, 1, "ggg", "Completed, NoFailure: 0 1 2"},
		{0, 1, "bgg", "Failed, BlockFailed: 0"},
		{1, 1, "bgg", "Completed, NoFailure: 0 1 2"},
		{1, 1, "bbg", "Failed, BlockFailed: 0 1"},
		{2, 1, "bbg", "Completed, NoFailure: 0 1 2"},
		{-1, 1, "bbb", "Completed, NoFailure: 0 1 2"},
		{0, 2, "blgg", "Failed, BlockFailed: 0 1 1"}, // running sequences finish
	} {
		b := block("b")
		b.Concurrency, b.ToleratedFailures = test.concurrency, test.tolerated
		for i, kind := range test.kinds {
			name := fmt.Sprint(i)
			actions := map[rune][]*workflow.Action{'g': {second(name)}, 'b': {bad(name), second(name)}, 'l': {second(name), second(name)}}
			b.Sequences = append(b.Sequences, sequence(name, actions[kind]...))
		}
		all = append(all, scenario{fmt.Sprintf("%d of %s by %d", test.tolerated, test.kinds, test.concurrency), plan(b), 0, test.want})
	}
	return all
}

// guards have each group of checks succeed and fail, of a plan and of a block. Deferred checks run however the work
// ends.
func guards() (all []scenario) {
	const work = "check work more"
	for group, of := range []struct {
		passes, fails string // the jobs that run
		reason        workflow.FailureReason
	}{
		{"check", work, workflow.NoFailure}, // bypass
		{work, "check", workflow.PreCheckFailed},
		{work, "check work", workflow.ContCheckFailed},
		{"work more check", "work more check", workflow.PostCheckFailed},
		{"work more check", "work more check", workflow.DeferredCheckFailed},
	} {
		for _, fails := range []bool{false, true} {
			for _, ofBlock := range []bool{false, true} {
				p := plan(block("b", sequence("s", do(job{Name: "work", For: 3 * time.Second}), second("more"))))
				groups, check := workflow.ChecksOf(p), second("check")
				want, ran := "Completed, NoFailure: ", of.passes
				if ofBlock {
					groups = workflow.ChecksOf(p.Blocks[0])
				}
				if fails {
					check, ran = bad("check"), of.fails
					switch {
					case of.reason == workflow.NoFailure:
					case ofBlock:
						want = "Failed, BlockFailed: "
					default:
						want = fmt.Sprintf("Failed, %s: ", of.reason)
					}
				}
				*groups[group] = checks(check)
				if last := groups[4]; *last == nil {
					*last = checks(second("last"))
					ran += " last"
				}
				all = append(all, scenario{fmt.Sprintf("checks %d, fails %t, of a block %t", group, fails, ofBlock), p, 0, want + ran})
			}
		}
	}
	return all
}

// deferrals have deferred actions after a success and a failure, which succeed and fail.
func deferrals() (all []scenario) {
	for _, test := range []struct {
		name       string
		work       *workflow.Action
		batchFails string
		failPlan   bool
		want       string
	}{
		{"success", second("work"), "", false, "Completed, NoFailure: work ok any"},
		{"failure", bad("work"), "", false, "Failed, BlockFailed: work no any"},
		{"a batch fails", second("work"), "ok", false, "Completed, NoFailure: work ok any"},
		{"a batch fails the plan", second("work"), "ok", true, "Failed, DeferredActionFailed: work ok any"},
		{"the first failure counts", bad("work"), "any", true, "Failed, BlockFailed: work no any"},
	} {
		p := plan(block("b", sequence("s", test.work)), block("empty"))
		p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
			batch("ok", workflow.OnSuccess, second("ok")), batch("no", workflow.OnFailure, second("no")), batch("any", workflow.Always, second("any")),
		}}
		for _, b := range p.DeferredActions.Batches {
			if b.Name == test.batchFails {
				b.FailElement, b.Actions = test.failPlan, []*workflow.Action{bad(b.Name), second("never")}
			}
		}
		all = append(all, scenario{test.name, p, 0, test.want})
	}
	return all
}

// stops have an accepted stop, which makes the plan Stopped before the work and after it.
func stops() []scenario {
	p := func() *workflow.Plan { return deferring(block("b", sequence("s", second("a")))) }
	return []scenario{
		{"stopped early", p(), 1, "Stopped, StopRequested: deferred no"},
		{"stopped late", p(), 1500 * time.Millisecond, "Stopped, StopRequested: a deferred no"},
	}
}

func TestAttempts(t *testing.T) {
	hour := job{For: time.Hour}
	for _, test := range []struct {
		name     string
		job      job
		retries  int
		timeout  time.Duration
		want     workflow.Status
		attempts int
		took     time.Duration
		message  string // in the last attempt
	}{
		{"at once", job{}, 0, 0, workflow.Completed, 1, 0, ""},
		{"no retry", job{Fails: 1}, 0, 0, workflow.Failed, 1, 0, "no \uFFFD (code 1)"},
		{"the third time", job{Fails: 2}, 2, 0, workflow.Completed, 3, 3 * time.Second, ""},
		{"not the third time", job{Fails: -1}, 2, 0, workflow.Failed, 3, 3 * time.Second, "no \uFFFD (code 3)"},
		{"waits of a minute at most", job{Fails: 9}, 9, 0, workflow.Completed, 10, (1 + 2 + 4 + 8 + 16 + 32 + 60 + 60 + 60) * time.Second, ""},
		{"permanent", job{Fails: -1, Permanent: true}, 2, 0, workflow.Failed, 1, 0, "no \uFFFD (code 1)"},
		{"a panic", job{Panic: true}, 2, 0, workflow.Failed, 1, 0, "panic: oh\n\ngoroutine "},
		{"an end of its goroutine", job{Goexit: true}, 2, 0, workflow.Failed, 1, 0, "panic: runtime.Goexit\n\ngoroutine "},
		{"a large response", job{Size: 1001}, 2, 0, workflow.Failed, 1, 0, "the plugin's response can't be stored: it has 1003 bytes, more than the 1000 of Options.MaxResult"},
		{"an odd response", job{Odd: true}, 2, 0, workflow.Failed, 1, 0, "the plugin's response can't be stored: it is a int, not the string"},
		{"its timeout", hour, 1, time.Minute, workflow.Failed, 2, 2*time.Minute + time.Second, "timed out after 1m0s"},
		{"the default timeout", hour, 0, 0, workflow.Failed, 1, 5 * time.Minute, "timed out after 5m0s"},
	} {
		stageRun(t, test.name, func(t *testing.T, s *stage) {
			a := do(test.job)
			a.Retries, a.Timeout = test.retries, test.timeout
			p := s.play(plan(block("", sequence("", a))))
			got := p.Blocks[0].Sequences[0].Actions[0]
			if took := got.State.End.Sub(got.State.Start); got.State.Status != test.want || len(got.Attempts) != test.attempts || took != test.took {
				t.Errorf("%s with %d attempts in %v", got.State.Status, len(got.Attempts), took)
			}
			var message string
			if failure := got.Attempts[len(got.Attempts)-1].Err; failure != nil {
				message = failure.Error()
			}
			if !strings.HasPrefix(message, test.message) || (message == "") != (test.message == "") {
				t.Errorf("message %q", message)
			}
		})
	}
}

func TestContinuousChecks(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := plan(block("b", sequence("s", do(job{Name: "work", For: 95 * time.Second}), second("never"))))
		failing := do(job{Name: "check", FailsFrom: 15})
		failing.Retries = 2 // each round has its own
		p.ContChecks = checks(failing, do(job{Name: "fine"}))
		p.ContChecks.Delay = 5 * time.Second
		got := s.play(p)
		// Rounds at 0s, 5s, ... 65s; the 15th run fails at 70s, with retries at 71s and 73s.
		if s.ran["check"] != 17 || s.ran["fine"] != 15 || s.ran["never"] != 0 || s.done["work"] != 1 {
			t.Errorf("ran %v", s.ran)
		}
		want := `plan - Failed
checks - Failed
action check Failed
action fine Completed
block b Stopped
sequence s Stopped
action work Completed
action never NotStarted
ContCheckFailed
`
		if o := outline(got); o != want {
			t.Errorf("got\n%s\nwant\n%s", o, want)
		}
		if n := len(got.ContChecks.Actions[1].Attempts); n != 10 {
			t.Errorf("%d attempts are kept", n)
		}
		if at := s.log[len(s.log)-1]; at != "1m13s check" {
			t.Errorf("last of all, %s", at)
		}
	})
}

// TestRoundsHaveTheirOwnRetries checks that failures that a retry cures do not add up over the rounds.
func TestRoundsHaveTheirOwnRetries(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := plan(block("b", sequence("s", do(job{Name: "work", For: time.Minute}))))
		check := do(job{Name: "check", FailsEvery: 3})
		check.Retries = 1
		p.ContChecks = checks(check)
		p.ContChecks.Delay = time.Second
		if got := s.play(p); got.State.Status != workflow.Completed || s.ran["check"] < 30 {
			t.Errorf("%s after %d runs: %s", got.State.Status, s.ran["check"], got.Reason)
		}
	})
}

// deferring returns a plan with deferred checks and actions.
func deferring(blocks ...*workflow.Block) *workflow.Plan {
	p := plan(blocks...)
	p.DeferredChecks = checks(second("deferred"))
	p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{batch("ok", workflow.OnSuccess, second("ok")), batch("no", workflow.OnFailure, second("no"))}}
	return p
}

func TestStop(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := deferring(block("b1", sequence("s1", second("a"), second("b"), second("c")), sequence("s2", second("d"))), block("b2", sequence("s3", second("e"))))
		p.Blocks[0].PostChecks = checks(second("post"))
		s.create(p)
		e := s.engine(s.process(), engine.Options{})
		fails(t, e.Stop(t.Context(), p.ID, asked), errors.ErrUnsupported, "before")
		go func() { _ = e.Run(context.Background()) }()
		time.Sleep(1500 * time.Millisecond)
		must(t, e.Stop(t.Context(), p.ID, asked))
		must(t, e.Stop(t.Context(), p.ID, workflow.Attribution{By: "somebody who came later"}))
		if got := s.read(p.ID); !isAsked(got.Stopped) || got.Reason != workflow.StopRequested || got.State.Status != workflow.Running {
			t.Errorf("the request is not stored: %s, %s", got.State.Status, got.Reason)
		}
		time.Sleep(2 * time.Second) // the deferred actions have begun
		fails(t, e.Stop(t.Context(), p.ID, asked), fleet.ErrNotRunning, "at the end")
		time.Sleep(time.Minute)
		s.wantNames("a", "b", "deferred", "no")
		want := `plan - Stopped
checks - Completed
action deferred Completed
block b1 Stopped
checks - NotStarted
action post NotStarted
sequence s1 Stopped
action a Completed
action b Completed
action c NotStarted
sequence s2 NotStarted
action d NotStarted
block b2 NotStarted
sequence s3 NotStarted
action e NotStarted
deferredActions - Completed
deferBatch ok NotStarted
action ok NotStarted
deferBatch no Completed
action no Completed
StopRequested
`
		if o := outline(s.read(p.ID)); o != want {
			t.Errorf("got\n%s\nwant\n%s", o, want)
		}
	})
}

// TestStopEndsWaits checks that a stop cancels the wait for a retry and makes the action Stopped.
func TestStopEndsWaits(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		a := do(job{Name: "a", Fails: -1})
		a.Retries = 5
		p := s.create(plan(block("b", sequence("s", a))))
		e := s.engine(s.process(), engine.Options{RetryDelay: 50 * time.Second})
		go func() { _ = e.Run(context.Background()) }()
		time.Sleep(time.Second)
		must(t, e.Stop(t.Context(), p.ID, asked))
		time.Sleep(5 * time.Second)
		got := s.read(p.ID)
		if a := got.Blocks[0].Sequences[0].Actions[0]; got.State.Status != workflow.Stopped || a.State.Status != workflow.Stopped || len(a.Attempts) != 1 {
			t.Errorf("%s\n%+v", outline(got), a.Attempts)
		}
	})
}

func TestShutdown(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		p := s.create(full())
		for n := 0; s.read(p.ID).State.Status != workflow.Completed; n++ {
			delete(s.left, p.ID)
			s.runFor(1500*time.Millisecond, s.process())
			if status := s.read(p.ID).State.Status; !status.Final() && !errors.Is(s.left[p.ID], engine.ErrDraining) {
				t.Fatalf("the plan is %s, and left with %v", status, s.left[p.ID])
			}
			if n > 100 {
				t.Fatal("it does not come to an end")
			}
		}
		for name, n := range s.ran {
			want := 1
			if name == "pre" {
				want = 2
			}
			if !strings.Contains(name, "cont") && (n != want || n != s.done[name] && !strings.Contains(name, "bypass")) {
				t.Errorf("%s ran %d times", name, n)
			}
		}
	})
}

// TestContinuousChecksOutliveShutdowns checks that continuous checks end with the work and not with an
// engine.
func TestContinuousChecksOutliveShutdowns(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		work := sequence("s")
		for i := range 10 {
			work.Actions = append(work.Actions, second(fmt.Sprint(i)))
		}
		p := plan(block("b", work))
		p.ContChecks = checks(do(job{Name: "check", For: 2 * time.Second})) // its round ends after the work has halted
		s.create(p)
		for lives := 0; !s.read(p.ID).State.Status.Final(); lives++ {
			if s.runFor(500*time.Millisecond, s.process()); lives > 20 {
				t.Fatalf("it does not end in %d lives", lives)
			}
		}
		if got := s.read(p.ID); got.ContChecks.State.Status != workflow.Completed || got.ContChecks.State.End.Before(got.Blocks[0].State.End) {
			t.Errorf("the checks are %s at %v, and the block ended at %v", got.ContChecks.State.Status, got.ContChecks.State.End, got.Blocks[0].State.End)
		}
	})
}

func TestPlansComeLaterAndAtOnce(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		e, err := engine.New(s.process(), engine.Options{Plans: 2})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := start(ctx, e)
		time.Sleep(10500 * time.Millisecond) // between two searches for new plans
		second, cancelSecond := context.WithTimeout(ctx, time.Millisecond)
		defer cancelSecond()
		if err := e.Run(second); err == nil {
			t.Error("a second Run is no error")
		}
		var plans []*workflow.Plan
		for i := range 3 {
			p := plan(block("", sequence("", do(job{Name: fmt.Sprint(i), For: 10 * time.Second}))))
			submit(t, e, p)
			plans = append(plans, p)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Minute)
		for _, p := range plans {
			if got := s.read(p.ID); got.State.Status != workflow.Completed {
				t.Errorf("a plan is %s", got.State.Status)
			}
		}
		if names := s.names(); len(names) != 3 || names[2] != "2" {
			t.Errorf("ran %q, want the newest last", names)
		}
		if s.most != 2 {
			t.Errorf("%d plans at once", s.most)
		}
		cancel()
		must(t, <-ended)
	})
}

// TestRunningComesFirst checks that Running plans come before new plans.
func TestRunningComesFirst(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		var last *workflow.Plan
		for _, name := range []string{"old", "new", "begun"} {
			last = s.create(plan(block("b", sequence("s", second(name)))))
			time.Sleep(time.Second)
		}
		last.State.Status, last.Alone = workflow.Running, true
		must(t, s.process().UpdatePlan(t.Context(), last))
		refused := s.process()
		until := time.Now().Add(5 * time.Minute)
		refused.OnOp("Read", func(_ context.Context, c processtest.Call, do func() error) error {
			if time.Now().Before(until) {
				return &storage.Error{Op: c.Op, Err: storage.ErrDenied}
			}
			return do()
		})
		must(t, s.engine(refused, engine.Options{Plans: 1, Observer: engine.Observer{Problem: func(context.Context, engine.ProblemEvent) {}}}).Run(t.Context()))
		s.wantNames("begun", "old", "new")
	})
}

// TestOwnedPlansAreLeftAlone checks that an engine that is alone touches neither the plans of a fleet nor those that
// another engine begins between its search and its read.
func TestOwnedPlansAreLeftAlone(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		s.create(plan(block("b", sequence("s", do(job{Name: "mine", For: 5 * time.Second})))))
		early, late, begun := plan(block("b", sequence("s", second("early")))), plan(block("b", sequence("s", second("late")))), plan(block("b", sequence("s", second("begun"))))
		begin := func(id, owner uuid.UUID) {
			p := s.read(id)
			if p.State.Status, p.Owner = workflow.Running, owner; owner != uuid.Nil {
				p.Epoch = 1
			}
			must(t, s.open().UpdatePlan(t.Context(), p))
		}
		s.create(early)
		s.create(late)
		begin(early.ID, workflow.NewV7())
		v := s.process()
		v.On(func(_ context.Context, c processtest.Call, do func() error) error {
			switch {
			case c.Op == "Read" && c.Plan == late.ID:
				begin(late.ID, workflow.NewV7())
			case c.Op == "Read" && c.Plan == begun.ID:
				begin(begun.ID, uuid.Nil)
			}
			return do()
		})
		time.AfterFunc(2500*time.Millisecond, func() { s.create(begun) }) // from now on a Running plan is another's
		s.run(t.Context(), v)
		s.wantNames("mine")
		for _, p := range []*workflow.Plan{early, late, begun} {
			if got := s.read(p.ID); got.State.Status != workflow.Running {
				t.Errorf("%s", outline(got))
			}
		}
	})
}

func TestBadInput(t *testing.T) { onStage(t, badInput) }

func badInput(t *testing.T, s *stage) {
	must(t, s.reg.Register(mute{}))
	if _, err := engine.New(nil, engine.Options{}); err == nil {
		t.Error("no vault")
	}
	_, err := engine.New(s.process(), engine.Options{Drain: -1, Fleet: &fleet.Options{TTL: 1, Name: strings.Repeat("x", 1001)}})
	if text := fmt.Sprint(err); !errors.Is(err, storage.ErrInvalid) || !strings.Contains(text, "Options.Drain") || !strings.Contains(text, "Options.TTL") || !strings.Contains(text, "Member.Name") {
		t.Errorf("wrong options of a fleet: %v", err)
	}
	e := s.engine(s.process(), engine.Options{})
	for _, plugin := range []string{"nobody", "mute"} {
		p := plan(block("", sequence("", &workflow.Action{Name: "a", Plugin: plugin})))
		if _, err := e.Submit(t.Context(), p); err == nil || !strings.Contains(err.Error(), plugin) {
			t.Errorf("%s: %v", plugin, err)
		}
	}
	if _, err := e.Submit(t.Context(), plan(block("", sequence("", &workflow.Action{Plugin: "job", Retries: -1})))); !errors.Is(err, storage.ErrInvalid) {
		t.Error(err)
	}
}

// mute is a plugin without Run.
type mute struct{ plugins.Plugin }

func (mute) Name() string  { return "mute" }
func (mute) Request() any  { return nil }
func (mute) Response() any { return nil }
