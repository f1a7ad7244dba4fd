package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/goldentest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// room is the response of a task.
type room struct{ Number int }

// TestTaskResult asks for results by name and by key, in an engine that has run the actions and in one that takes the plan
// over.
func TestTaskResult(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		key, lives := uuid.New(), 0
		book := engine.Task("book", func(_ context.Context, _ engine.Call, guest string) (room, error) { return room{len(guest)}, nil })
		unlike := engine.Task("unlike", func(context.Context, engine.Call, string) (string, error) { return "", nil })
		var told []string
		ask := engine.Task("ask", func(ctx context.Context, call engine.Call, _ string) (int, error) {
			tell := func(what string, got any, err error) {
				told = append(told, fmt.Sprint(what, ": ", got, " ", err, " ", errors.Is(err, engine.ErrNoResult)))
			}
			for _, name := range []string{"Ada", "Bob", "late", "nobody"} {
				got, err := book.Result(call, name)
				tell(name, got, err)
			}
			got, err := book.ResultByKey(call, key)
			tell("by key", got, err)
			_, err = unlike.Result(call, "Ada")
			tell("another type", "", err)
			if lives++; lives == 1 {
				<-ctx.Done()
			}
			return 0, ctx.Err()
		})
		s.reg = registry.Must(book, unlike, ask)
		ada := book.Action("Ada", "Ada")
		if ada.Name != "Ada" || ada.Plugin != "book" || ada.Req != "Ada" {
			t.Errorf("the action is %+v", ada)
		}
		ada.Key = key
		p := s.create(plan(block("b", sequence("s", ada, book.Action("Bob", "Bob"), book.Action("Bob", "Bob"), ask.Action("ask", ""), book.Action("late", "Zoe")))))
		p.Blocks[0].Sequences[0].Actions[3].Timeout = time.Hour
		s.stored = nil // these plugins don't say that they run
		s.runFor(time.Minute, s.process())
		s.run(t.Context(), s.process())
		want := []string{
			"Ada: {3} <nil> false",
			`Bob: {0} no result: 2 actions have the name "Bob" true`,
			`late: {0} no result: the action with the name "late" is not Completed true`,
			`nobody: {0} no result: no action has the name "nobody" true`,
			"by key: {3} <nil> false",
			`another type:  the result of the action with the name "Ada" is a engine_test.room, not a string false`,
		}
		if got := s.read(p.ID); lives != 2 || !slices.Equal(told, append(want, want...)) || got.State.Status != workflow.Completed {
			t.Errorf("the plan is %s after %d lives, and its results are\n%s", got.State.Status, lives, strings.Join(told, "\n"))
		}
		if _, err := book.Result(engine.Call{}, "Ada"); !errors.Is(err, engine.ErrNoResult) {
			t.Errorf("a call of no engine: %v", err)
		}
	})
}

// broken is an error whose methods panic if it is nil.
type broken struct{ text string }

func (b *broken) Error() string { return b.text }

const nilPointer = "the plugin's error can't be read: panic: runtime error: invalid memory address or nil pointer dereference"

// TestFailuresOfTasks runs tasks that fail for good, and one whose error has a cause: the text of a cause is stored, and the
// cause is not.
func TestFailuresOfTasks(t *testing.T) {
	full := errors.New("disk full")
	circle := &plugins.Error{Code: 9, Message: "circle"}
	circle.Wrapped = circle
	for name, test := range map[string]struct {
		err      error
		attempts int
		want     plugins.Error
	}{
		"an error":              {full, 3, plugins.Error{Message: "disk full"}},
		"permanent":             {plugins.Permanent(full), 1, plugins.Error{Message: "disk full", Permanent: true}},
		"permanent and wrapped": {fmt.Errorf("install: %w", plugins.Permanent(full)), 1, plugins.Error{Message: "install: disk full", Permanent: true}},
		"a nil *plugins.Error":  {(*plugins.Error)(nil), 3, plugins.Error{Message: "<nil>"}},
		"one that is wrapped":   {fmt.Errorf("no: %w", (*plugins.Error)(nil)), 3, plugins.Error{Message: "no: <nil>"}},
		"a nil pointer":         {(*broken)(nil), 1, plugins.Error{Message: nilPointer, Permanent: true}},
		"wraps itself":          {circle, 3, plugins.Error{Code: 9, Message: "circle"}},
		"a cause":               {&plugins.Error{Code: 7, Cause: full}, 3, plugins.Error{Code: 7, Message: "disk full"}},
		"a cause behind":        {&plugins.Error{Message: "no", Wrapped: &plugins.Error{Cause: full}}, 3, plugins.Error{Message: "no", Wrapped: &plugins.Error{Message: "disk full"}}},
		"a message and a cause": {&plugins.Error{Message: "no", Cause: full}, 3, plugins.Error{Message: "no"}},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			task := engine.Task("fails", func(context.Context, engine.Call, string) (string, error) { return "", test.err })
			s.reg, s.stored = registry.Must(task), nil
			a := task.Action("a", "")
			a.Retries = 2
			p := s.play(plan(block("b", sequence("s", a))))
			got := p.Blocks[0].Sequences[0].Actions[0].Attempts
			last := got[len(got)-1].Err
			if want := &test.want; len(got) != test.attempts || !strings.HasPrefix(last.Error(), want.Error()) || last.Permanent != want.Permanent || last.Code != want.Code || errors.Is(last, full) {
				t.Errorf("%s: %d attempts, the last with %+v", name, len(got), last)
			}
		})
	}
}

// logTo returns a logger that writes what is the same in each run.
func logTo(b *bytes.Buffer) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			return slog.Attr{}
		case "stack":
			return slog.Bool(a.Key, a.Value.String() != "")
		}
		return a
	}}))
}

// TestLogObserver logs each event as a golden file has it.
func TestLogObserver(t *testing.T) {
	var b bytes.Buffer
	o, ctx := engine.LogObserver(logTo(&b)), t.Context()
	ids := make([]uuid.UUID, 4)
	for i := range ids {
		ids[i] = uuid.UUID{15: byte(i)}
	}
	p := plan(block("b", sequence("s", do(job{Name: "a"}))))
	p.ID = ids[1]
	a := p.Blocks[0].Sequences[0].Actions[0]
	a.ID, a.PlanID, a.State.Status = ids[2], ids[1], workflow.Running
	o.Joined(ctx, engine.JoinedEvent{Node: ids[3]})
	o.PickedUp(ctx, engine.PickedUpEvent{Plan: p})
	o.Changed(ctx, engine.ChangedEvent{Object: a})
	for _, status := range []workflow.Status{workflow.Running, workflow.Completed} {
		p.State.Status = status
		o.Changed(ctx, engine.ChangedEvent{Object: p})
	}
	for _, err := range []error{engine.ErrDraining, engine.ErrFull, fleet.ErrFenced, fleet.ErrSuspended, storage.ErrCorrupt} {
		o.Left(ctx, engine.LeftEvent{Plan: p.ID, Err: err})
	}
	o.Problem(ctx, engine.ProblemEvent{Err: storage.ErrDenied})
	o.Hindered(ctx, engine.HinderedEvent{Plan: p.ID, Err: storage.ErrUnavailable})
	o.Hindered(ctx, engine.HinderedEvent{Plan: p.ID})
	o.Panicked(ctx, engine.PanickedEvent{Action: a, Panic: &plugins.Panic{Value: "oh", Stack: []byte("goroutine 1")}})
	o.Draining(ctx, engine.DrainingEvent{})
	goldentest.Equal(t, "testdata/log.txt", b.Bytes())
}

// TestDefaultLogger checks who hears of a plan that nobody can run, in two lives of an engine that looks for plans often.
func TestDefaultLogger(t *testing.T) {
	byDefault := slog.Default()
	defer slog.SetDefault(byDefault)
	var told []error
	problem := engine.Observer{Problem: func(_ context.Context, e engine.ProblemEvent) { told = append(told, e.Err) }}
	for name, test := range map[string]struct {
		opts           engine.Options
		standard, mine int // lines
		observer       bool
	}{
		"no options":            {standard: 1},
		"an observer":           {opts: engine.Options{Observer: problem}, observer: true},
		"a logger that is off":  {opts: engine.Options{Logger: slog.New(slog.DiscardHandler)}},
		"a logger":              {mine: 1},
		"a logger and observer": {opts: engine.Options{Observer: problem}, mine: 1, observer: true},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			var standard, mine bytes.Buffer
			slog.SetDefault(logTo(&standard))
			if told = nil; test.mine > 0 {
				test.opts.Logger = logTo(&mine)
			}
			v := memvault.New(registry.Must(plugins.Typed[string, string]("unable")), memvault.Options{})
			p := plan(block("b", sequence("s", &workflow.Action{Name: "a", Plugin: "unable"})))
			must(t, v.Create(t.Context(), p))
			test.opts.NoRetention = true
			e, err := engine.New(v, test.opts)
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			must(t, e.Run(ctx))
			const line = `level=WARN msg=problem err="pick up plan`
			if got, my := standard.String(), mine.String(); strings.Count(got, line) != test.standard || strings.Count(got, "\n") != test.standard ||
				strings.Count(my, line) != test.mine || strings.Count(my, "\n") != test.mine || (len(told) > 0) != test.observer {
				t.Errorf("%s: the standard logger has\n%sthat of the options\n%sand the observer %v", name, got, my, told)
			}
		})
	}
}

// TestRetriesOfTasks lets tasks fail until they are not tried again, in two lives of an engine: attempts begin as the plugin,
// the action or the error says, and a restart makes no wait shorter or longer.
func TestRetriesOfTasks(t *testing.T) {
	policy := engine.TaskOptions[string]{Retries: 2, Backoff: plugins.Backoff{First: 10 * time.Second, Factor: 1.5}}
	again := &plugins.Error{Code: 429, After: 30 * time.Second}
	for name, test := range map[string]struct {
		opts   engine.TaskOptions[string]
		action workflow.Action
		err    error
		want   []int // seconds
	}{
		"no policy":              {engine.TaskOptions[string]{}, workflow.Action{}, again, []int{0}},
		"the plugin's":           {policy, workflow.Action{}, errors.New("no"), []int{0, 10, 25}},
		"the action's":           {policy, workflow.Action{Retries: 1, Backoff: plugins.Backoff{First: 40 * time.Second}}, errors.New("no"), []int{0, 40}},
		"no retries":             {policy, workflow.Action{NoRetries: true}, errors.New("no"), []int{0}},
		"at most two":            {policy, workflow.Action{AtMost: 2}, errors.New("no"), []int{0, 10}},
		"the error's":            {policy, workflow.Action{}, again, []int{0, 30, 60}},
		"of an error that wraps": {policy, workflow.Action{}, fmt.Errorf("busy: %w", again), []int{0, 30, 60}},
		"in the past":            {policy, workflow.Action{}, &plugins.Error{After: -time.Hour}, []int{0, 10, 25}},
		"permanent":              {policy, workflow.Action{}, &plugins.Error{Permanent: true, After: time.Second}, []int{0}},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			task := engine.Task("fails", func(context.Context, engine.Call, string) (string, error) { return "", test.err })
			s.reg, s.stored = registry.Must(task.With(test.opts)), nil
			test.action.Plugin = "fails"
			p := s.create(plan(block("b", sequence("s", &test.action))))
			s.runFor(5*time.Second, s.process())
			s.run(t.Context(), s.process())
			var began []int
			for _, a := range s.read(p.ID).Blocks[0].Sequences[0].Actions[0].Attempts {
				began = append(began, int(a.Start.Sub(s.began)/time.Second))
			}
			if got := s.read(p.ID).State.Status; got != workflow.Failed || !slices.Equal(began, test.want) {
				t.Errorf("%s: the plan is %s, and its attempts began after %d seconds, want %d", name, got, began, test.want)
			}
		})
	}
}
