package engine_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// shared is a request and a response with what plugins could share, and what is not stored.
type shared struct {
	Texts  map[string]string
	Any    any
	inside int
}

// String shows all of a value, with the type of Any.
func (s *shared) String() string { return fmt.Sprintf("%v %T %d", s.Texts, s.Any, s.inside) }

// TestStoredValues has plugins that change all that they are given and keep what they return, beside each other. Each
// sees what is stored, in the first attempt as in the next one and in those of another engine.
func TestStoredValues(t *testing.T) {
	const want = "map[a:1] float64 0"
	onStages(t, []*fleet.Options{nil, {Interval: time.Second}}, func(t *testing.T, s *stage, members *fleet.Options) {
		key := uuid.New()
		var kept *shared // what a plugin has returned
		vandal := func(_ context.Context, call engine.Call, req *shared) (*shared, error) {
			check := func(what string, v *shared) {
				if v.String() != want {
					t.Errorf("attempt %d is given the %s %v, want %v", call.Attempt, what, v, want)
				}
				for i := range 1000 {
					v.Texts[fmt.Sprint(i)] = ""
				}
			}
			check("request", req)
			if kept == nil {
				kept = &shared{map[string]string{"a": "1"}, 7, 7}
				return kept, nil
			}
			result, err := engine.Result[*shared](call, key)
			must(t, err)
			check("result", result)
			if call.Attempt == 1 {
				return nil, fmt.Errorf("again")
			}
			return nil, nil
		}
		s.reg = registry.Must(s, engine.Task("vandal", vandal))
		request := &shared{map[string]string{"a": "1"}, 7, 7}
		asks := func() *workflow.Action { return &workflow.Action{Plugin: "vandal", Req: request, Retries: 1} }
		first := asks()
		first.Key = key
		p := plan(block("b", sequence("s", first)), block("c", sequence("t", asks()), sequence("u", asks())))
		p.Blocks[1].Concurrency = 2
		e, err := engine.New(s.process(), engine.Options{Fleet: members, Observer: engine.Observer{Changed: func(_ context.Context, e engine.ChangedEvent) {
			if nameOf(e.Object) == "s" {
				clear(kept.Texts)
			}
		}}})
		must(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := start(ctx, e)
		time.Sleep(time.Minute)
		submit(t, e, p)
		request.Texts["late"] = "" // the caller may change its plan once Submit has returned
		time.Sleep(time.Hour)
		cancel()
		must(t, <-ended)
		got := s.read(p.ID)
		for o := range workflow.Walk(got) {
			a, ok := o.(*workflow.Action)
			if !ok {
				continue
			}
			if v := a.Req.(*shared); v.String() != want || a.Key == key && !maps.Equal(a.Attempts[0].Resp.(*shared).Texts, v.Texts) {
				t.Errorf("stored are the request %v and the attempts %+v, want %v", v, a.Attempts, want)
			}
		}
		if got.State.Status != workflow.Completed {
			t.Error(outline(got))
		}
	})
}

// TestActionByKey has compensation that asks about each action of a plan that failed, before a shutdown and after it, by key
// and by name.
func TestActionByKey(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		keys := map[string]uuid.UUID{"ok": uuid.New(), "failed": uuid.New(), "later": uuid.New(), "twice": uuid.New(), "none": uuid.New()}
		names, ids := map[string]string{"ok": "a", "failed": "b", "later": "c", "twice": "t", "none": "none"}, map[uuid.UUID]string{}
		var told []string
		undo := func(ctx context.Context, call engine.Call, _ string) (string, error) {
			for _, name := range slices.Sorted(maps.Keys(keys)) {
				a, err := call.ActionByKey(keys[name])
				if named, again := call.ActionByName(names[name]); !reflect.DeepEqual(named, a) || errors.Is(again, engine.ErrNoResult) != errors.Is(err, engine.ErrNoResult) {
					t.Errorf("%s: by name %+v, %v; by key %+v, %v", name, named, again, a, err)
				}
				line := fmt.Sprint(call.Attempt, " ", name, ": ", ids[a.ID], " ", a.State.Status, " ", len(a.Attempts), errors.Is(err, engine.ErrNoResult))
				for i := range a.Attempts {
					if f := a.Attempts[i].Err; f != nil {
						line += fmt.Sprint(" code ", f.Code)
						f.Code = 0 // it is the caller's
					}
				}
				if err == nil && (a.Key != keys[name] || a.Req != nil || a.State.ETag != "") {
					t.Errorf("%s: %+v", name, a)
				}
				told = append(told, line)
			}
			if call.Attempt == 1 {
				<-ctx.Done()
				return "", ctx.Err()
			}
			return "", nil
		}
		s.reg = registry.Must(s, engine.Task("undo", undo))
		keyed := func(name string, a *workflow.Action) *workflow.Action {
			a.Key, a.Retries = keys[name], 1
			return a
		}
		p := plan(block("b", sequence("s", keyed("twice", second("t")), keyed("twice", second("t")), keyed("ok", second("a")),
			keyed("failed", bad("b")), keyed("later", second("c")))))
		p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
			batch("undo", workflow.OnFailure, &workflow.Action{Plugin: "undo", Req: "", Timeout: time.Hour}),
		}}
		s.create(p)
		for _, a := range p.Blocks[0].Sequences[0].Actions {
			ids[a.ID] = a.Name
		}
		s.runFor(time.Minute, s.process())
		s.run(t.Context(), s.process())
		var want []string
		for _, attempt := range []string{"1 ", "2 "} {
			for _, line := range []string{
				"failed: b Failed 2 false code 1 code 2", "later: c NotStarted 0 false", "none:  NotStarted 0 true", "ok: a Completed 1 false", "twice:  NotStarted 0 true",
			} {
				want = append(want, attempt+line)
			}
		}
		if !slices.Equal(told, want) {
			t.Errorf("told\n%q, want\n%q", told, want)
		}
	})
}
