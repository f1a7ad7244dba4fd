package metamorphic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/workflow"
)

// cutAfter is how long a call continues after its process died. It is long for a call of a living process.
const cutAfter = 2 * time.Second

// modelRun is a run in progress.
type modelRun struct {
	Figures
	t     storagetest.T
	m     Model
	store storagetest.Store
	base  time.Time // the plans are from the days before

	nodes []storage.Vault
	// unversioned accepts updates without a version. It is nil if the store has no such vault.
	unversioned storage.Vault

	// worlds has the possible worlds of each plan, known the plans that each client has read or written.
	worlds [][]world
	known  []map[int]*workflow.Plan
	// cutCalls are interrupted calls that can be repeated, until another call writes to their plans.
	cutCalls map[int]*writeCall
	// used are the plans that a Create was called for.
	used map[int]bool

	done   int
	ending bool // all steps are done
	clock  int  // makes the content of each write unique
	trace  []string
	// rand and now belong to the current step. blind means that its update has no version.
	rand  *rand.Rand
	now   step
	blind bool
}

func newModelRun(t storagetest.T, m Model, store storagetest.Store) *modelRun {
	offers(t, store, m.Faults, m.Deaths)
	r := &modelRun{
		t: t, m: m, store: store, base: time.Now().UTC().Truncate(time.Millisecond),
		worlds: make([][]world, m.Plans), known: make([]map[int]*workflow.Plan, m.Clients),
		cutCalls: map[int]*writeCall{}, used: map[int]bool{},
	}
	for i := range r.worlds {
		r.worlds[i] = []world{{}}
	}
	for i := range r.known {
		r.known[i] = map[int]*workflow.Plan{}
	}
	r.nodes = []storage.Vault{closing(t, store.Open(t)), closing(t, store.Open(t))}
	if store.Unversioned != nil {
		r.unversioned = closing(t, store.Unversioned(t))
	}
	return r
}

// id returns the ID of a plan. The IDs are from three days, each of a different time.
func (r *modelRun) id(plan int) uuid.UUID {
	return idFrom(r.base.AddDate(0, 0, -(plan%3)).Add(-time.Duration(plan)*time.Second), r.m.Seed+uint64(plan))
}

// idFrom returns a UUIDv7 of a time. Its other bits depend on the seed.
func idFrom(at time.Time, seed uint64) (id uuid.UUID) {
	r := rand.New(rand.NewPCG(seed, 2))
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16)
	binary.BigEndian.PutUint64(id[8:], r.Uint64())
	id[6], id[8] = 0x70, id[8]&0x3f|0x80
	return id
}

// do runs one step and compares its result with the model.
func (r *modelRun) do(s step) {
	r.done++
	r.now, r.rand = s, rand.New(rand.NewPCG(s.seed, 3))
	acts[s.kind].do(r)
}

// note adds a line to the trace.
func (r *modelRun) note(format string, args ...any) {
	line := fmt.Sprintf("%5d  client %d", r.done, r.now.client)
	switch s := r.now; {
	case r.ending:
		line = "  end"
	case s.faulty:
		line += ", with faults"
	case s.dies > 0 && s.after:
		line += fmt.Sprintf(", dying after request %d", s.dies)
	case s.dies > 0:
		line += fmt.Sprintf(", dying at request %d", s.dies)
	case s.limit > 0:
		line += fmt.Sprintf(", for %v", s.limit)
	}
	r.trace = append(r.trace, line+": "+fmt.Sprintf(format, args...))
}

// describe says what the model knows about a plan.
func (r *modelRun) describe(plan int) string {
	var s []string
	for _, w := range r.worlds[plan] {
		s = append(s, w.String())
	}
	slices.Sort(s)
	return "what the model knows of plan " + fmt.Sprint(plan) + ": " + strings.Join(slices.Compact(s), "; or ")
}

// with calls a vault: that of the client's node, one that meets faults, or one whose process dies.
func (r *modelRun) with(do func(ctx context.Context, v storage.Vault) error) error {
	r.Operations++
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Minute)
	defer cancel()
	v := r.nodes[r.now.client%len(r.nodes)]
	switch {
	case r.blind:
		return do(ctx, r.unversioned)
	case r.now.faulty:
		r.Faulty++
		// A new vault for each step, so that the faults do not depend on the steps before.
		faulty := r.store.Faulty(r.t, r.now.seed)
		defer func() { _ = faulty.Close(ctx) }()
		return do(ctx, faulty)
	case r.now.limit > 0:
		ctx, cancel := context.WithTimeout(ctx, r.now.limit)
		defer cancel()
		return do(ctx, v)
	case r.now.dies == 0:
		return do(ctx, v)
	}
	dying, died := r.store.Dying(r.t, r.now.dies, r.now.after)
	defer func() {
		if died() {
			r.Deaths++
		}
		_ = dying.Close(ctx)
	}()
	short, cancel := context.WithTimeout(ctx, cutAfter)
	defer cancel()
	return do(short, dying)
}

// write makes a call and removes the worlds that disagree with its result.
func (r *modelRun) write(c *writeCall, what string) error {
	plan := r.now.plan
	c.id, c.cut, c.faulty = r.id(plan), r.now.cut(), r.now.faulty
	if c.kind == opDelete || c.kind == opCreate && r.used[plan] {
		r.quiet()
	}
	if c.object != nil {
		c.version = c.object.Header().State.ETag
	}
	err := r.with(func(ctx context.Context, v storage.Vault) error {
		switch c.kind {
		case opCreate:
			r.used[plan] = true
			return v.Create(ctx, c.object.(*workflow.Plan))
		case opDelete:
			return v.Delete(ctx, c.id)
		}
		return storage.Update(ctx, v, c.object)
	})
	r.note("%s: %v", what, err)
	before := r.describe(plan)
	r.keep(plan, func(w world) []world { return w.after(c, err) })
	if len(r.worlds[plan]) == 0 {
		r.t.Fatalf("%s: got %v; %s", what, err, before)
	}
	delete(r.cutCalls, plan)
	if c.cut && errors.Is(err, storage.ErrUnknown) {
		r.Unknown++
		r.cutCalls[plan] = c
	}
	return err
}

// keep replaces the possible worlds of a plan by those that follow from them.
func (r *modelRun) keep(plan int, next func(world) []world) {
	var all []world
	for _, w := range r.worlds[plan] {
		for _, n := range next(w) {
			if !slices.Contains(all, n) { // this compares the addresses of plans, which are never changed
				all = append(all, n)
			}
		}
	}
	r.worlds[plan] = all
}

// quiet sends a few requests that change nothing, so that late copies of earlier requests arrive now. A store
// without transactions can't distinguish a copy that arrives after its plan was deleted, or created again,
// from a new request.
func (r *modelRun) quiet() {
	if !r.m.Faults {
		return
	}
	for range 8 {
		if _, err := r.nodes[0].Exists(r.t.Context(), r.id(r.m.Plans)); err != nil {
			r.t.Fatalf("Exists: %v", err)
		}
	}
}

func (r *modelRun) delete() {
	_ = r.write(&writeCall{kind: opDelete}, fmt.Sprintf("Delete plan %d", r.now.plan))
}

// create creates a plan, whether its ID is taken or not. Some of the plans are Running, which the vault must
// refuse.
func (r *modelRun) create() {
	plan := r.draw()
	c := &writeCall{kind: opCreate, object: plan}
	what := fmt.Sprintf("Create plan %d", r.now.plan)
	if r.rand.IntN(20) == 0 {
		plan.State.Status, c.bad = workflow.Running, true
		what += " that is Running"
	}
	if r.write(c, what) == nil {
		for o := range workflow.Walk(plan) {
			if o.Header().State.ETag == "" {
				r.t.Fatalf("Create left %s %s without a version", o.Kind(), *o.Header().ID)
			}
		}
		r.known[r.now.client][r.now.plan] = plan
	}
}

// draw returns a new plan in one of a few groups.
func (r *modelRun) draw() *workflow.Plan {
	var p *workflow.Plan
	switch r.rand.IntN(5) {
	case 0:
		p = plantest.Random(r.rand.Uint64())
	case 1:
		p = everyKind()
	default:
		p = plantest.Small()
	}
	p.ID, p.GroupID = r.id(r.now.plan), r.group(r.rand.IntN(4))
	p.Labels = map[string]string{"plan": strconv.Itoa(r.now.plan), "env": []string{"", "test", "prod"}[r.rand.IntN(3)]}
	p.Keys = [][]workflow.Key{nil, {{Name: "west"}}, {{Name: "west"}, {Name: "план"}}}[r.now.plan%3]
	p.Submitted.By = []string{"", "ops", "план"}[r.now.plan%3]
	return p
}

// group returns a GroupID. The first is nil.
func (r *modelRun) group(n int) uuid.UUID {
	if n == 0 {
		return uuid.Nil
	}
	return idFrom(r.base, uint64(n))
}

// everyKind returns the smallest plan that has an object of each kind.
func everyKind() *workflow.Plan {
	more := func() []*workflow.Action {
		return []*workflow.Action{{Name: "more", Plugin: plantest.PluginName}}
	}
	p := plantest.Small()
	p.PreChecks = &workflow.Checks{Actions: more()}
	p.Blocks[0].PostChecks = &workflow.Checks{}
	p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{Name: "batch", Actions: more()}}}
	return p
}

// again repeats an interrupted call with the same input.
func (r *modelRun) again() {
	c := r.cutCalls[r.now.plan]
	if c == nil {
		r.read()
		return
	}
	next := &writeCall{kind: c.kind, object: c.object, bad: c.bad, again: true}
	what := fmt.Sprintf("the interrupted call of plan %d again", r.now.plan)
	if next.object != nil && next.kind == opUpdate {
		next.object.Header().State.ETag = c.version
	}
	_ = r.write(next, what)
	delete(r.known[r.now.client], r.now.plan)
}

func (r *modelRun) recover() {
	err := r.with(func(ctx context.Context, v storage.Vault) error { return v.Recovery(ctx) })
	r.note("Recovery: %v", err)
	c := &writeCall{kind: opRecover, cut: r.now.cut()}
	if err != nil && !c.cut {
		r.t.Fatalf("Recovery: %v", err)
	}
	for plan := range r.worlds {
		r.keep(plan, func(w world) []world { return w.after(c, err) })
	}
}

// reopen closes a node, checks that it is closed, and opens it again.
func (r *modelRun) reopen() {
	node := r.now.client % len(r.nodes)
	v := r.nodes[node]
	if err := v.Close(r.t.Context()); err != nil {
		r.t.Fatalf("Close: %v", err)
	}
	if _, err := v.Exists(r.t.Context(), r.id(0)); !isOnly(err, storage.ErrClosed) {
		r.t.Fatalf("Exists on a closed vault: got %v, want ErrClosed", err)
	}
	r.nodes[node] = closing(r.t, r.store.Open(r.t))
	r.note("node %d is closed and opened again", node)
}

// grace lets the grace period pass.
func (r *modelRun) grace() {
	r.quiet() // a late copy would make old remains recent
	if r.store.PassGrace != nil {
		r.store.PassGrace(r.t)
	}
	r.note("the grace period passes")
	for plan := range r.worlds {
		r.keep(plan, func(w world) []world {
			w.old = true
			return []world{w}
		})
	}
}

// finish recovers, reads everything once more, and deletes it. Nothing may be left.
func (r *modelRun) finish() {
	r.now, r.ending = step{}, true
	r.recoverAll()
	everything := func() {
		r.listing("List 0", storage.Filters{}, func(ctx context.Context, v storage.Vault) (listing, error) { return v.List(ctx, 0) })
	}
	everything()
	for plan := range r.worlds {
		r.now.plan = plan
		if r.read(); r.worlds[plan][0].plan != nil {
			r.delete()
		}
	}
	everything()
	check(r.t, r.store, r.nodes[0], "after all deletes")
}

// recoverAll lets the grace period pass and recovers. Then Check must find nothing.
func (r *modelRun) recoverAll() {
	r.now.faulty, r.now.dies, r.now.limit = false, 0, 0
	r.grace()
	r.recover()
	check(r.t, r.store, r.nodes[0], "after the grace period and Recovery")
}
