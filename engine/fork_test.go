package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// fork stores a fork of a plan in which no action fails but those of the bypass checks.
func (s *stage) fork(p *workflow.Plan) *workflow.Plan {
	s.t.Helper()
	f, err := workflow.Fork(p, workflow.ForkOptions{AfterCompensation: true})
	must(s.t, err)
	for o := range workflow.Walk(f) {
		if a, ok := o.(*workflow.Action); ok && a.State.Status == workflow.NotStarted && !strings.Contains(a.Name, "bypass") {
			j := a.Req.(job)
			a.Req = job{Name: j.Name, For: j.For}
		}
	}
	return f
}

// TestFork checks which jobs run in the fork of a plan that failed.
func TestFork(t *testing.T) {
	efforttest.NotShort(t, "TestForksRunWhatIsLeft runs forks under the race detector")
	const end = " cont d1 d2 d4 deferred"
	for _, test := range []struct {
		name string
		fail func(p *workflow.Plan) []*workflow.Action
		want string
	}{
		{"the last action", func(p *workflow.Plan) []*workflow.Action { return p.Blocks[1].Sequences[0].Actions }, "a5 bypass" + end + " post"},
		{"a sequence beside another", func(p *workflow.Plan) []*workflow.Action { return p.Blocks[0].Sequences[1].Actions }, "a3 a4 a5 b-bypass b-cont b-deferred b-post bypass" + end + " post"},
		{"pre checks", func(p *workflow.Plan) []*workflow.Action { return p.PreChecks.Actions[1:] }, "a1 a2 a3 a4 a5 b-bypass b-cont b-deferred b-post b-pre bypass" + end + " post pre"},
		{"pre checks of a block", func(p *workflow.Plan) []*workflow.Action { return p.Blocks[0].PreChecks.Actions }, "a1 a2 a3 a4 a5 b-bypass b-cont b-deferred b-post b-pre bypass" + end + " post"},
		{"post checks of a block", func(p *workflow.Plan) []*workflow.Action { return p.Blocks[0].PostChecks.Actions }, "a5 b-bypass b-cont b-deferred b-post bypass" + end + " post"},
		{"post checks", func(p *workflow.Plan) []*workflow.Action { return p.PostChecks.Actions }, "bypass" + end + " post"},
		{"deferred checks", func(p *workflow.Plan) []*workflow.Action { return p.DeferredChecks.Actions }, "bypass" + end},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			p := full()
			for _, a := range test.fail(p) {
				a.Req = job{Name: a.Name, For: time.Second, Fails: -1}
			}
			p = s.play(p)
			if p.State.Status != workflow.Failed {
				t.Errorf("%s: the plan is %s", test.name, p.State.Status)
			}
			before := len(s.names())
			p = s.play(s.fork(p))
			ran := s.names()[before:]
			slices.Sort(ran)
			if got := strings.Join(slices.Compact(ran), " "); got != test.want || p.State.Status != workflow.Completed {
				t.Errorf("%s: the fork is %s, and ran\n%s\nwant\n%s", test.name, p.State.Status, got, test.want)
			}
		})
	}
}

// TestForksRunWhatIsLeft forks random plans that fail or are stopped, and the forks that fail again, until one
// is Completed. No fork runs what it carried over, and each action of a sequence succeeds once in all.
func TestForksRunWhatIsLeft(t *testing.T) {
	forks, kept := 0, 0
	for seed := range efforttest.Seeds(t, 10, 50, 5000) {
		onStage(t, func(t *testing.T, s *stage) {
			r := rand.New(rand.NewPCG(seed, 7))
			p := randomPlan(r)
			for generation := 0; p.State.Status != workflow.Completed; generation++ {
				if generation > 0 {
					p = s.fork(p)
					forks++
				}
				if generation < 3 {
					fail(r, p)
				}
				before := map[string]int{}
				for o, carried := range workflow.CarriedOver(p) {
					if a, ok := o.(*workflow.Action); ok && carried {
						before[a.Name] = s.ran[a.Name]
						kept++
					}
				}
				p = s.live(r, p)
				for name, n := range before {
					if name != "bypass" && s.ran[name] != n {
						t.Errorf("seed %d: %s was carried over, and has run again:\n%s", seed, name, outline(p))
					}
				}
				s.held(seed, p)
				if generation > 10 {
					t.Fatalf("seed %d: the plan does not complete:\n%s", seed, outline(p))
				}
			}
			for o, parent := range workflow.Walk(p) {
				a, ok := o.(*workflow.Action)
				if ok && parent.Kind() == workflow.KindSequence && a.State.Status == workflow.Completed && s.done[a.Name] != 1 {
					t.Errorf("seed %d: %s has succeeded %d times", seed, a.Name, s.done[a.Name])
				}
			}
		})
	}
	if t.Logf("%d forks, which carried %d actions over", forks, kept); forks < 10 || kept < forks {
		t.Error("the plans fail too rarely to test anything")
	}
}

// fail makes some actions of a new plan fail.
func fail(r *rand.Rand, p *workflow.Plan) {
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok && a.State.Status == workflow.NotStarted && r.IntN(10) == 0 {
			j := a.Req.(job)
			j.Fails = -1
			a.Req = j
		}
	}
}

// live runs a new plan with an engine that may be asked to stop it.
func (s *stage) live(r *rand.Rand, p *workflow.Plan) *workflow.Plan {
	s.t.Helper()
	s.create(p)
	e := s.engine(s.process(), engine.Options{})
	if r.IntN(3) == 0 {
		stop := time.AfterFunc(time.Duration(r.IntN(8000))*time.Millisecond, func() { _ = e.Stop(s.t.Context(), p.ID, asked) })
		defer stop.Stop()
	}
	must(s.t, e.Run(s.t.Context()))
	return s.read(p.ID)
}

// TestForkWithoutAnAction skips an action that failed, with several results, in a vault that knows no types. A later action
// asks for the result.
func TestForkWithoutAnAction(t *testing.T) {
	for _, test := range []struct {
		name   string
		stated any
		want   string // what the later action gets
	}{
		{"a result", json.RawMessage(`{"Number": 7}`), "{7} <nil>"},
		{"no result", nil, `{0} no result: the action with the name "book" was skipped by ana, who stated no result`},
		{"a result of another type", json.RawMessage(`"seven"`), `{0} the result of the action with the name "book" can't be read as a engine_test.room: json: cannot unmarshal string into Go value of type engine_test.room`},
	} {
		onStage(t, func(t *testing.T, s *stage) {
			told := ""
			book := engine.Task("book", func(context.Context, engine.Call, string) (room, error) { return room{}, errors.New("no room") })
			tell := engine.Task("tell", func(_ context.Context, call engine.Call, _ string) (string, error) {
				got, err := book.Result(call, "book")
				told = fmt.Sprint(got, " ", err)
				return "", err
			})
			s.reg = registry.Must(book, tell)
			p := s.create(plan(block("b", sequence("s", book.Action("book", ""), tell.Action("tell", "")))))
			s.stored = nil // these plugins don't say that they run
			s.run(t.Context(), s.process())
			p = s.read(p.ID)
			f, err := workflow.Fork(p, workflow.ForkOptions{
				By: workflow.Attribution{By: "ana"}, Skip: map[uuid.UUID]any{p.Blocks[0].Sequences[0].Actions[0].ID: test.stated},
			})
			must(t, err)
			if err := s.process().Create(t.Context(), plantest.Clone(f)); (err != nil) != strings.Contains(test.name, "another type") {
				t.Errorf("%s: a vault with a registry returns %v", test.name, err)
			}
			reg := s.reg
			s.reg = nil
			if err := s.process().Create(t.Context(), f); err != nil && !errors.Is(err, storage.ErrExists) {
				t.Error(err)
			}
			s.reg = reg
			s.run(t.Context(), s.process())
			status := workflow.Completed
			if !strings.HasSuffix(test.want, "<nil>") {
				status = workflow.Failed
			}
			if f = s.read(f.ID); told != test.want || f.State.Status != status {
				t.Errorf("%s: the fork is %s, and the later action gets\n%s\nwant\n%s", test.name, f.State.Status, told, test.want)
			}
		})
	}
}
