package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
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
	Permanent, Panic             bool
	// Odd makes the plugin return a response that the vault refuses.
	Odd bool
}

// stage is a vault in memory and the plugin that runs jobs. It outlives its engines.
type stage struct {
	t     *testing.T
	store *memvault.Store
	reg   *registry.Register
	began time.Time

	mu sync.Mutex
	// log holds the start of each job.
	log       []string
	ran, done map[string]int
	now, most int // running jobs
	// stored holds the status of each object in the vault, and above its parent.
	stored map[uuid.UUID]workflow.Status
	above  map[uuid.UUID]uuid.UUID
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, store: memvault.NewStore(), reg: registry.New(), began: time.Now(), ran: map[string]int{}, done: map[string]int{}, stored: map[uuid.UUID]workflow.Status{}, above: map[uuid.UUID]uuid.UUID{}}
	if err := s.reg.Register(s); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stage) Name() string  { return "job" }
func (s *stage) Request() any  { return job{} }
func (s *stage) Response() any { return "" }

// Run runs a job. It checks that the vault shows the action and its parents as Running.
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

	timer := time.NewTimer(j.For)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, fmt.Errorf("cut off: %w", ctx.Err())
	}
	switch {
	case j.Panic:
		panic("oh")
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

// isRunning checks that the vault shows an action and all its ancestors as Running.
func (s *stage) isRunning(action uuid.UUID, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, ok := action, true; ok; id, ok = s.above[id] {
		if status := s.stored[id]; status != workflow.Running {
			s.t.Errorf("%s runs, and the vault has it, or what it is part of, as %s", name, status)
		}
	}
}

// vault returns the vault of the stage. Each update passes the hook, which may call it. A nil hook calls
// every update.
func (s *stage) vault(hook func(o workflow.Object, update func() error) error) *hooked {
	return &hooked{Vault: s.store.Open(s.reg), stage: s, hook: hook}
}

// hooked is a vault whose updates may fail.
type hooked struct {
	storage.Vault
	stage *stage
	hook  func(o workflow.Object, update func() error) error

	create     func(ctx context.Context, create func() error) error
	beforeRead func(id uuid.UUID)
}

func (h *hooked) update(o workflow.Object, update func() error) error {
	noted := func() error {
		err := update()
		if err == nil {
			h.stage.mu.Lock()
			h.stage.stored[*o.Header().ID] = o.Header().State.Status
			h.stage.mu.Unlock()
		}
		return err
	}
	if h.hook == nil {
		return noted()
	}
	return h.hook(o, noted)
}

func (h *hooked) Create(ctx context.Context, p *workflow.Plan) error {
	if h.create != nil {
		return h.create(ctx, func() error { return h.Vault.Create(ctx, p) })
	}
	return h.Vault.Create(ctx, p)
}

func (h *hooked) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	if h.beforeRead != nil {
		h.beforeRead(id)
	}
	return h.Vault.Read(ctx, id)
}

func (h *hooked) UpdatePlan(ctx context.Context, o *workflow.Plan) error {
	return h.update(o, func() error { return h.Vault.UpdatePlan(ctx, o) })
}

func (h *hooked) UpdateChecks(ctx context.Context, o *workflow.Checks) error {
	return h.update(o, func() error { return h.Vault.UpdateChecks(ctx, o) })
}

func (h *hooked) UpdateBlock(ctx context.Context, o *workflow.Block) error {
	return h.update(o, func() error { return h.Vault.UpdateBlock(ctx, o) })
}

func (h *hooked) UpdateSequence(ctx context.Context, o *workflow.Sequence) error {
	return h.update(o, func() error { return h.Vault.UpdateSequence(ctx, o) })
}

func (h *hooked) UpdateAction(ctx context.Context, o *workflow.Action) error {
	return h.update(o, func() error { return h.Vault.UpdateAction(ctx, o) })
}

func (h *hooked) UpdateDeferredActions(ctx context.Context, o *workflow.DeferredActions) error {
	return h.update(o, func() error { return h.Vault.UpdateDeferredActions(ctx, o) })
}

func (h *hooked) UpdateDeferBatch(ctx context.Context, o *workflow.DeferBatch) error {
	return h.update(o, func() error { return h.Vault.UpdateDeferBatch(ctx, o) })
}

// engine returns a new engine on a vault of the stage. Its Run returns when no plan is left.
func (s *stage) engine(v storage.Vault, opts engine.Options) *engine.Engine {
	s.t.Helper()
	opts.UntilIdle = true
	if opts.Observer.Problem == nil {
		opts.Observer.Problem = func(_ context.Context, err error) { s.t.Error(err) }
	}
	e, err := engine.New(v, s.reg, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func (s *stage) create(p *workflow.Plan) {
	s.t.Helper()
	if err := s.store.Open(s.reg).Create(s.t.Context(), p); err != nil {
		s.t.Fatal(err)
	}
	s.noteTree(p)
}

func (s *stage) noteTree(p *workflow.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, parent := range workflow.Walk(p) {
		if parent != nil {
			s.above[*o.Header().ID] = *parent.Header().ID
		}
	}
}

// play runs a new plan to its end and reads it.
func (s *stage) play(p *workflow.Plan) *workflow.Plan {
	s.t.Helper()
	s.create(p)
	if err := s.engine(s.vault(nil), engine.Options{Observer: engine.Observer{Left: func(_ context.Context, _ uuid.UUID, err error) { s.t.Error(err) }}}).Run(s.t.Context()); err != nil {
		s.t.Error(err)
	}
	return s.read(p.ID)
}

func (s *stage) read(id uuid.UUID) *workflow.Plan {
	s.t.Helper()
	p, err := s.store.Open(s.reg).Read(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
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
