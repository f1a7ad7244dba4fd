package engine_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// job is a request of the test plugin: what an attempt does.
type job struct {
	Name string
	For  time.Duration
	// Fails is how many attempts fail, of all that are made; -1 is all. FailsFrom is the first one to fail,
	// and each that is a multiple of FailsEvery does; 0 is none.
	Fails, FailsFrom, FailsEvery int
	Permanent, Panic, Goexit     bool
	// Odd makes the plugin return a response that the vault refuses, and Size one of so many letters.
	Odd  bool
	Size int
	// Hangs makes the plugin go on after the end of its context, before it looks.
	Hangs bool
}

// stage is a store and the plugin that runs jobs. It outlives its engines.
type stage struct {
	t     *testing.T
	open  func() storage.Vault // the store as another process sees it
	reg   *registry.Register
	began time.Time

	mu sync.Mutex
	// log holds the start of each job.
	log       []string
	ran, done map[string]int
	now, most int // running jobs
	// stored holds the status of each object in the vault, above its parent, and shown whether it is stored as Running
	// before what is below it runs. If stored is nil, nobody compares.
	stored map[uuid.UUID]workflow.Status
	above  map[uuid.UUID]uuid.UUID
	shown  map[uuid.UUID]bool
	// left holds the plans that engines left, and why.
	left map[uuid.UUID]error
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fails fails the test unless err is the wanted one. The text says what returned it.
func fails(t testing.TB, err, want error, what string, args ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", fmt.Sprintf(what, args...), err, want)
	}
}

func submit(t testing.TB, e *engine.Engine, p *workflow.Plan) *engine.Handle {
	t.Helper()
	handle, err := e.Submit(t.Context(), p)
	must(t, err)
	return handle
}

// onStage calls play in virtual time, with a store in memory.
func onStage(t *testing.T, play func(t *testing.T, s *stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { play(t, inMemory(t)) })
}

// onStages does so for each of a list.
func onStages[T any](t *testing.T, list []T, play func(t *testing.T, s *stage, of T)) {
	t.Helper()
	for _, of := range list {
		onStage(t, func(t *testing.T, s *stage) { play(t, s, of) })
	}
}

// stageRun is a subtest on a stage.
func stageRun(t *testing.T, name string, play func(t *testing.T, s *stage)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { onStage(t, play) })
}

// inMemory returns a stage with a store in memory.
func inMemory(t *testing.T) *stage {
	s := newStage(t)
	store := memvault.NewStore()
	s.open = func() storage.Vault { return store.Open(s.reg, memvault.Options{}) }
	return s
}

// newStage returns a stage without a store.
func newStage(t *testing.T) *stage {
	s := &stage{
		t: t, began: time.Now(), ran: map[string]int{}, done: map[string]int{},
		stored: map[uuid.UUID]workflow.Status{}, above: map[uuid.UUID]uuid.UUID{}, shown: map[uuid.UUID]bool{}, left: map[uuid.UUID]error{},
	}
	s.reg = registry.Must(s)
	return s
}

func (s *stage) Name() string  { return "job" }
func (s *stage) Request() any  { return job{} }
func (s *stage) Response() any { return "" }

// Run runs a job. It checks what the vault shows of the action and of what is above it.
func (s *stage) Run(ctx context.Context, call engine.Call, req any) (any, error) {
	j := req.(job)
	s.mu.Lock()
	s.ran[j.Name]++
	n := s.ran[j.Name]
	s.log = append(s.log, fmt.Sprint(time.Since(s.began), " ", j.Name))
	s.now++
	s.most = max(s.most, s.now)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}()
	s.isRunning(call.Action, j.Name)

	if j.Hangs {
		time.Sleep(j.For)
	}
	timer := time.NewTimer(j.For)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		err := fmt.Errorf("cut off: %w", ctx.Err())
		if j.Permanent {
			err = &plugins.Error{Message: err.Error(), Permanent: true}
		}
		return nil, err
	}
	switch {
	case j.Panic:
		panic("oh")
	case j.Goexit:
		runtime.Goexit()
	case j.Size > 0:
		var err error
		if j.Fails < 0 {
			err = errors.New("beside a response")
		}
		return strings.Repeat("x", j.Size), err
	case j.Odd:
		return 7, nil
	case j.Fails < 0 || n <= j.Fails || j.FailsFrom > 0 && n >= j.FailsFrom, j.FailsEvery > 0 && n%j.FailsEvery == 0:
		return nil, &plugins.Error{Code: n, Message: "no \xff", Permanent: j.Permanent}
	}
	s.mu.Lock()
	s.done[j.Name]++
	s.mu.Unlock()
	return "ok", nil
}

// isRunning checks that the vault shows an action and what is above it as Running if that is promised, and nothing as final.
func (s *stage) isRunning(action uuid.UUID, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, ok := action, s.stored != nil; ok; id, ok = s.above[id] {
		if status := s.stored[id]; status.Final() || s.shown[id] && status != workflow.Running {
			s.t.Errorf("%s runs, and the vault has it, or what it is part of, as %s", name, status)
		}
	}
}

// process returns a process on the stage's store, whose updates the stage notes.
func (s *stage) process() *processtest.Process {
	noting := processtest.New(s.open())
	noting.On(func(_ context.Context, c processtest.Call, do func() error) error {
		err := do()
		if err == nil && c.Object != nil {
			s.note(c.Object)
		}
		return err
	})
	return processtest.New(noting)
}

// note notes the status of an object that was stored. A plan is a new one, or has no new parts.
func (s *stage) note(o workflow.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored == nil {
		return
	}
	p, isPlan := o.(*workflow.Plan)
	isNew := isPlan && p.State.Status == workflow.NotStarted
	if _, begun := s.stored[*o.Header().ID]; !isNew || !begun { // an engine may begin a plan before its Create is noted
		s.stored[*o.Header().ID] = o.Header().State.Status
	}
	if isNew {
		for o, parent := range workflow.Walk(p) {
			id := *o.Header().ID
			if parent != nil {
				s.above[id] = *parent.Header().ID
			}
			switch o := o.(type) {
			case *workflow.Plan, *workflow.DeferredActions:
				s.shown[id] = true
			case *workflow.Block:
				s.shown[id] = o.EntranceDelay > 0 || o.DeferredChecks != nil
			case *workflow.Checks:
				s.shown[id] = o.Delay > 0 && *workflow.ChecksOf(parent)[2] != o
			case *workflow.Action:
				s.shown[id] = !o.Idempotent
			}
		}
	}
}

// updating returns a process whose updates pass a hook.
func (s *stage) updating(hook func(o workflow.Object, update func() error) error) *processtest.Process {
	p := s.process()
	p.On(updates(hook))
	return p
}

func updates(hook func(o workflow.Object, update func() error) error) processtest.Hook {
	return func(_ context.Context, c processtest.Call, do func() error) error {
		if c.Object == nil || c.Op == "Create" {
			return do()
		}
		return hook(c.Object, do)
	}
}

// diesAt returns a process that dies at an update for which at returns true.
func (s *stage) diesAt(at func(o workflow.Object) bool) *processtest.Process {
	return s.updating(func(o workflow.Object, update func() error) error {
		if at(o) {
			return errKilled
		}
		return update()
	})
}

// engine returns a new engine on the stage. Its Run returns when no plan is left.
func (s *stage) engine(v storage.Vault, opts engine.Options) *engine.Engine {
	s.t.Helper()
	opts.UntilIdle, opts.MaxResult = true, 1000
	if opts.Observer.Problem == nil {
		opts.Observer.Problem = func(_ context.Context, e engine.ProblemEvent) { s.t.Error(e.Err) }
	}
	opts.Observer = engine.Tee(opts.Observer, engine.Observer{Left: func(_ context.Context, e engine.LeftEvent) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left[e.Plan] = e.Err
	}})
	opts.NoRetention = true // the vaults of the stage enforce none
	e, err := engine.New(v, opts)
	must(s.t, err)
	return e
}

// start runs an engine beside the test. The channel yields what Run returns.
func start(ctx context.Context, e *engine.Engine) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	return ended
}

// run runs an engine until no plan is left, or ctx ends.
func (s *stage) run(ctx context.Context, v storage.Vault) {
	s.t.Helper()
	must(s.t, s.engine(v, engine.Options{}).Run(ctx))
}

// runFor shuts the engine down after some time.
func (s *stage) runFor(d time.Duration, v storage.Vault) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), d)
	defer cancel()
	s.run(ctx, v)
}

// create stores a plan, as a process does that is gone when the plan runs.
func (s *stage) create(p *workflow.Plan) *workflow.Plan {
	s.t.Helper()
	must(s.t, s.process().Create(s.t.Context(), p))
	return p
}

// play runs a new plan to its end and reads it.
func (s *stage) play(p *workflow.Plan) *workflow.Plan {
	s.t.Helper()
	s.create(p)
	s.run(s.t.Context(), s.process())
	must(s.t, s.left[p.ID])
	return s.read(p.ID)
}

func (s *stage) read(id uuid.UUID) *workflow.Plan {
	s.t.Helper()
	p, err := s.open().Read(s.t.Context(), id)
	must(s.t, err)
	return p
}

// names returns the jobs that began, in order.
func (s *stage) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, line := range s.log {
		_, name, _ := strings.Cut(line, " ")
		all = append(all, name)
	}
	return all
}

func (s *stage) wantNames(want ...string) {
	s.t.Helper()
	if got := s.names(); !slices.Equal(got, want) {
		s.t.Errorf("ran %q, want %q", got, want)
	}
}

// outline returns the state of each object, one on a line.
func outline(p *workflow.Plan) string {
	var b strings.Builder
	for o := range workflow.Walk(p) {
		fmt.Fprintf(&b, "%s %s %s\n", o.Kind(), nameOf(o), o.Header().State.Status)
	}
	fmt.Fprintln(&b, p.Reason)
	return b.String()
}

func nameOf(o workflow.Object) string {
	switch o := o.(type) {
	case *workflow.Block:
		return o.Name
	case *workflow.Sequence:
		return o.Name
	case *workflow.DeferBatch:
		return o.Name
	case *workflow.Action:
		return o.Name
	}
	return "-"
}

// Functions that build plans.

func do(j job) *workflow.Action {
	return &workflow.Action{Name: j.Name, Plugin: "job", Req: j}
}

// second returns a job that takes a second.
func second(name string) *workflow.Action { return do(job{Name: name, For: time.Second}) }

func bad(name string) *workflow.Action {
	return do(job{Name: name, For: time.Second, Fails: -1})
}

func checks(actions ...*workflow.Action) *workflow.Checks { return &workflow.Checks{Actions: actions} }

func sequence(name string, actions ...*workflow.Action) *workflow.Sequence {
	return &workflow.Sequence{Name: name, Actions: actions}
}

func block(name string, sequences ...*workflow.Sequence) *workflow.Block {
	return &workflow.Block{Name: name, Sequences: sequences}
}

func batch(name string, when workflow.When, actions ...*workflow.Action) *workflow.DeferBatch {
	return &workflow.DeferBatch{Name: name, When: when, Actions: actions}
}

func plan(blocks ...*workflow.Block) *workflow.Plan {
	return &workflow.Plan{Name: "plan", Blocks: blocks}
}

var errKilled = errors.New("the process was killed")
