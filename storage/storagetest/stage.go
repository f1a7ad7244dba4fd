package storagetest

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/oracle"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// stage is the test of one case: a new store with a vault on it.
type stage struct {
	T
	Store
	// ctx is the context of the test. Cases add a deadline only if a call may otherwise never return.
	ctx   context.Context
	vault storage.Vault
}

// promise is one line of a table of cases: the name without the verb, and the function that tests it.
type promise struct {
	name string
	test func(s *stage)
}

// cases makes the cases of a verb. Each has a new store, which must be sound at the end.
func cases(verb string, promises []promise) []Case {
	var list []Case
	for _, p := range promises {
		name := verb + "/" + p.name
		list = append(list, Case{Name: name, Long: slices.Contains(long, name), Run: func(t T, h Harness) {
			t.Helper()
			s := &stage{T: t, Store: h.New(t), ctx: t.Context()}
			s.vault = s.open()
			p.test(s)
			s.sound()
		}})
	}
	return list
}

// open opens another vault on the store until the end of the case.
func (s *stage) open() storage.Vault {
	s.Helper()
	return s.closing(s.Open(s.T))
}

func (s *stage) closing(v storage.Vault) storage.Vault {
	ctx := context.WithoutCancel(s.ctx) // the test's context has ended when its cleanups run
	s.Cleanup(func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		if err := v.Close(ctx); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
	return v
}

// sound checks that nothing stored is broken, and that nothing is left of plans that are gone.
func (s *stage) sound() {
	s.Helper()
	if s.Check == nil || s.Failed() {
		return
	}
	for _, problem := range s.Check(s.T, s.vault) {
		s.Errorf("the store is not sound: %s", problem)
	}
}

// recoverAll lets the grace period pass and recovers.
func (s *stage) recoverAll() {
	s.Helper()
	s.passGrace()
	s.must(s.open().Recovery(s.ctx))
}

func (s *stage) passGrace() {
	s.Helper()
	if s.PassGrace != nil {
		s.PassGrace(s.T)
	}
}

// maxLag is how far the clock that a store tells may lag behind the times that it gives to what it stores.
const maxLag = 5 * time.Second

// past checks that a time that the store gave to something is not later than the clock that it tells.
func (s *stage) past(what string, at, now time.Time) {
	s.Helper()
	if at.IsZero() || at.Sub(now) > maxLag {
		s.Errorf("%s was at %v, and it is %v", what, at, now)
	}
}

// must ends the case if there is an error.
func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%v", err)
	}
}

// want checks that an error is of that kind, of that method, and about that plan.
func (s *stage) want(kind error, op string, plan uuid.UUID, err error) {
	s.Helper()
	var e *storage.Error
	switch {
	case !errors.Is(err, kind):
		s.Errorf("%s: got the error %v, want %q", op, err, kind)
	case !errors.As(err, &e):
		s.Errorf("%s: %v is a %T, not a *storage.Error", op, err, err)
	case e.Op != op:
		s.Errorf("the error of %s has the Op %q: %v", op, e.Op, err)
	case plan != uuid.Nil && e.Plan != plan:
		s.Errorf("the error of %s is about plan %s, not %s: %v", op, e.Plan, plan, err)
	}
}

// names checks that an error is ErrInvalid and names the field first.
func (s *stage) names(field, op string, plan uuid.UUID, err error) {
	s.Helper()
	s.want(storage.ErrInvalid, op, plan, err)
	if got, ok := errors.AsType[*workflow.FieldError](err); !ok || got.Field != field {
		s.Errorf("the error does not name %s first: %.300v", field, err)
	}
}

func (s *stage) create(plan *workflow.Plan) *workflow.Plan {
	s.Helper()
	s.must(s.vault.Create(s.ctx, plan))
	return plan
}

// started creates a plan and moves it to Running.
func (s *stage) started(plan *workflow.Plan) *workflow.Plan {
	s.Helper()
	s.must(start(s.ctx, s.vault, plan))
	return plan
}

// runs moves a plan to Running.
func (s *stage) runs(plan *workflow.Plan) {
	s.Helper()
	plan.State.Status = workflow.Running
	s.update(plan)
}

func (s *stage) update(o workflow.Object) {
	s.Helper()
	s.must(storage.Update(s.ctx, s.vault, o))
}

// updateEachKind updates one object of each kind. All of them must have valid versions.
func (s *stage) updateEachKind(plan *workflow.Plan) {
	s.Helper()
	for _, o := range eachKind(plan) {
		s.update(o)
	}
}

// refuses checks that an update of an object fails with that kind of error.
func (s *stage) refuses(kind error, v storage.Vault, o workflow.Object) {
	s.Helper()
	s.want(kind, methodOf(o), *o.Header().PlanID, storage.Update(s.ctx, v, o))
}

func (s *stage) read(v storage.Vault, id uuid.UUID) *workflow.Plan {
	s.Helper()
	plan, err := v.Read(s.ctx, id)
	s.must(err)
	return plan
}

// shows ends the case unless all readers of a vault show this plan.
func (s *stage) shows(v storage.Vault, want *workflow.Plan) {
	s.Helper()
	got := s.find(v, want.ID)
	if got == nil {
		s.Fatalf("there is no plan %s (%.40q)", want.ID, want.Name)
	}
	s.same(want, got)
}

func (s *stage) same(want, got *workflow.Plan) {
	s.Helper()
	if d := plantest.Diff(want, got); d != "" {
		s.Errorf("the plan is wrong: %s", d)
	}
}

// lacks fails the case if any reader of a vault shows a plan with this ID.
func (s *stage) lacks(v storage.Vault, id uuid.UUID) {
	s.Helper()
	if s.find(v, id) != nil {
		s.Errorf("there is a plan %s", id)
	}
}

// find asks all readers of a vault for a plan, and checks that they agree. It returns nil if there is no
// plan.
func (s *stage) find(v storage.Vault, id uuid.UUID) *workflow.Plan {
	s.Helper()
	plan, err := v.Read(s.ctx, id)
	if err != nil {
		s.want(storage.ErrNotFound, "Read", id, err)
		plan = nil
	}
	there, err := v.Exists(s.ctx, id)
	s.must(err)
	if there != (plan != nil) {
		s.Errorf("Exists returns %v, but Read finds the plan: %v", there, plan != nil)
	}
	listings := map[string][]storage.ListResult{
		"List":         s.list(v),
		"Search by ID": s.search(v, storage.Filters{ByIDs: []uuid.UUID{id}}),
	}
	for name, listed := range listings {
		n := 0
		for _, r := range listed {
			if r.ID != id {
				continue
			}
			n++
			if plan != nil {
				s.agrees(name, plan, r)
			}
		}
		switch {
		case plan == nil && n > 0:
			s.Errorf("%s shows a plan that Read does not find", name)
		case plan != nil && n != 1:
			s.Errorf("%s shows the plan %d times", name, n)
		}
	}
	return plan
}

// agrees checks that the result of a listing agrees with the plan.
func (s *stage) agrees(name string, p *workflow.Plan, r storage.ListResult) {
	s.Helper()
	if !oracle.Shows(r, p) {
		s.Errorf("%s returns %+.200v\nfor the plan %s of group %s, %.60q, %.60q, submitted %v, of owner %s in epoch %d, %+v",
			name, r, p.ID, p.GroupID, p.Name, p.Descr, p.SubmitTime, p.Owner, p.Epoch, p.State)
	}
}

func (s *stage) list(v storage.Vault) []storage.ListResult {
	s.Helper()
	return s.collect(v.List(s.ctx, 0))
}

func (s *stage) search(v storage.Vault, f storage.Filters) []storage.ListResult {
	s.Helper()
	return s.collect(v.Search(s.ctx, f))
}

// collect returns the results of a listing that must succeed.
func (s *stage) collect(seq iter.Seq[storage.Stream[storage.ListResult]], err error) []storage.ListResult {
	s.Helper()
	all, err := storage.Collect(seq, err)
	s.must(err)
	return all
}

// during calls look again and again while work goes on in another goroutine, and once after it.
func (s *stage) during(work func() error, look func(done bool)) {
	s.Helper()
	result := make(chan error, 1)
	go func() { result <- work() }()
	for done := false; !done; {
		select {
		case err := <-result:
			s.must(err)
			done = true
		default:
		}
		look(done)
	}
}

// oneWins makes n calls at once, of which one must succeed, and returns its number. refused checks the errors of the others.
func (s *stage) oneWins(n int, do func(i int) error, refused func(err error)) (won int) {
	s.Helper()
	errs := make([]error, n)
	_ = atOnce(n, func(i int) error {
		errs[i] = do(i)
		return nil
	})
	wins := 0
	for i, err := range errs {
		if err != nil {
			refused(err)
			continue
		}
		won = i
		wins++
	}
	if wins != 1 {
		s.Fatalf("%d calls succeeded, want 1: %v", wins, errs)
	}
	return won
}

// needs skips the case if the harness does not offer something.
func (s *stage) needs(offered bool, what string) {
	s.Helper()
	if !offered {
		s.Skipf("the harness offers no %s", what)
	}
}

// start creates a plan and moves it to Running.
func start(ctx context.Context, v storage.Vault, plan *workflow.Plan) error {
	if err := v.Create(ctx, plan); err != nil {
		return err
	}
	plan.State.Status, plan.State.Start = workflow.Running, moment
	return v.UpdatePlan(ctx, plan)
}

// moment is a time with nanoseconds and a zone, which are easily lost.
var moment = time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))

// node is an owner.
var node = uuid.MustParse("019b7ca9-8f2e-7000-8000-00000000f1ee")

// finishParts gives all sub-objects of a running plan their last states, and stores them concurrently.
func finishParts(ctx context.Context, v storage.Vault, plan *workflow.Plan) error {
	state := plan.State
	plantest.Finish(plan)
	plan.State = state
	parts := workflow.Parts(plan)
	return atOnce(len(parts), func(i int) error { return storage.Update(ctx, v, parts[i]) })
}

// complete moves a plan to a final status.
func complete(ctx context.Context, v storage.Vault, plan *workflow.Plan) error {
	plan.State.Status, plan.State.End = workflow.Completed, moment.Add(time.Minute)
	return v.UpdatePlan(ctx, plan)
}

// live takes a plan through its life.
func live(ctx context.Context, v storage.Vault, plan *workflow.Plan) error {
	if err := start(ctx, v, plan); err != nil {
		return err
	}
	if err := finishParts(ctx, v, plan); err != nil {
		return err
	}
	return complete(ctx, v, plan)
}

// atOnce calls do for 0 to n-1, up to 32 at a time, and joins all errors.
func atOnce(n int, do func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	free := make(chan struct{}, 32)
	for i := range n {
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			errs[i] = do(i)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// methodOf returns the name of the method that updates an object.
func methodOf(o workflow.Object) string {
	name := o.Kind().String()
	return "Update" + string(name[0]-'a'+'A') + name[1:]
}

// eachKind returns one object of each kind, the plan itself first.
func eachKind(plan *workflow.Plan) (list []workflow.Object) {
	seen := map[workflow.Kind]bool{}
	for o := range workflow.Walk(plan) {
		if !seen[o.Kind()] {
			seen[o.Kind()] = true
			list = append(list, o)
		}
	}
	return list
}

// allKinds returns the smallest plan that has an object of each kind.
func allKinds() *workflow.Plan {
	plan := plantest.Small()
	plan.PreChecks = &workflow.Checks{Actions: []*workflow.Action{{Name: "check", Plugin: plantest.PluginName}}}
	plan.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{
		Name: "batch", Actions: []*workflow.Action{{Name: "deferred", Plugin: plantest.PluginName}},
	}}}
	return plan
}

// bare returns a plan with nothing but a name, which is the cheapest to store.
func bare(name string) *workflow.Plan { return &workflow.Plan{Name: name} }

// bareAt returns a bare plan that was created at a time.
func bareAt(name string, at time.Time) *workflow.Plan {
	return &workflow.Plan{ID: workflow.NewV7At(at), Name: name}
}

// objectOf returns the object of a plan with this ID.
func objectOf(plan *workflow.Plan, id uuid.UUID) workflow.Object {
	for o := range workflow.Walk(plan) {
		if *o.Header().ID == id {
			return o
		}
	}
	return nil
}
