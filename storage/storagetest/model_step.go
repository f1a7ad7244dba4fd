package storagetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// modelKind says what a step does.
type modelKind int

const (
	modelCreate modelKind = iota
	modelUpdate
	modelDelete
	modelAgain
	modelRead
	modelExists
	modelList
	modelSearch
	modelRecover
	modelReopen
	modelGrace
	modelSettle
	modelKinds
)

// modelWeights say how often each kind comes.
var modelWeights = [modelKinds]int{
	modelCreate: 14, modelUpdate: 40, modelDelete: 5, modelAgain: 4, modelRead: 15, modelExists: 4, modelList: 5, modelSearch: 8,
	modelRecover: 3, modelReopen: 2, modelGrace: 1, modelSettle: 1,
}

// modelStep is one operation. What it does exactly follows from it and from the state that it meets, so that any steps can be
// left out of a sequence, and the rest still makes sense.
type modelStep struct {
	kind         modelKind
	client, plan int
	// seed chooses everything else.
	seed uint64
	// faulty sends it through the vault that meets faults.
	faulty bool
	// dies is the request at which the process dies, 0 for none; after says whether the request still took effect.
	dies  int
	after bool
	// limit ends its context early, 0 for not.
	limit time.Duration
}

// steps draws the operations.
func (m Model) steps() []modelStep {
	r := rand.New(rand.NewPCG(m.Seed, 1))
	total := 0
	for _, w := range modelWeights {
		total += w
	}
	steps := make([]modelStep, m.Ops)
	for i := range steps {
		s := modelStep{client: r.IntN(m.Clients), plan: r.IntN(m.Plans), seed: r.Uint64()}
		for n := r.IntN(total); n >= modelWeights[s.kind]; s.kind++ {
			n -= modelWeights[s.kind]
		}
		switch n := r.IntN(100); {
		case n < 40:
			s.faulty = m.Faults
		case n < 52 && m.Deaths:
			s.dies, s.after = 1+r.IntN(1+r.IntN(12)), r.IntN(2) == 0 // most calls are of few requests
		case n < 60 && m.Deadlines:
			s.limit = time.Duration(1 + r.IntN(40_000_000))
		}
		steps[i] = s
	}
	return steps
}

// simpler returns what may be tried instead of a step, simplest first.
func (s modelStep) simpler() []modelStep {
	plain := modelStep{kind: s.kind, client: s.client, plan: s.plan, seed: s.seed}
	if plain == s {
		return nil
	}
	return []modelStep{plain}
}

// cut says whether the step may be broken off.
func (s modelStep) cut() bool { return s.dies > 0 || s.limit > 0 }

// cutAfter is how long a call goes on after its process died. It is long for one that lives.
const cutAfter = 2 * time.Second

// modelRun is a run under way.
type modelRun struct {
	Figures
	t     T
	m     Model
	store Store
	base  time.Time // plans are of the days before

	nodes []storage.Vault
	// unversioned takes updates without a version; nil where the store offers no such vault.
	unversioned storage.Vault

	// worlds has the possibilities for each plan, known what each client holds of it.
	worlds [][]world
	known  []map[int]*workflow.Plan
	// cutCalls are calls that were broken off and can be repeated: until something else is written to their plans.
	cutCalls map[int]*modelCall
	// used are the IDs that were given to a Create.
	used map[int]bool

	done   int
	ending bool // all operations are done
	clock  int  // makes each write's content unlike all others
	trace  []string
	// rand and now are the present step's; blind says that its update has no version.
	rand  *rand.Rand
	now   modelStep
	blind bool
}

func newModelRun(t T, m Model, store Store) *modelRun {
	switch {
	case m.Faults && store.Faulty == nil:
		t.Skipf("the harness offers no faults")
	case m.Deaths && store.Dying == nil:
		t.Skipf("the harness offers no processes that die")
	}
	r := &modelRun{
		t: t, m: m, store: store, base: time.Now().UTC().Truncate(time.Millisecond),
		worlds: make([][]world, m.Plans), known: make([]map[int]*workflow.Plan, m.Clients),
		cutCalls: map[int]*modelCall{}, used: map[int]bool{},
	}
	for i := range r.worlds {
		r.worlds[i] = []world{{}}
	}
	for i := range r.known {
		r.known[i] = map[int]*workflow.Plan{}
	}
	r.nodes = []storage.Vault{store.Open(t), store.Open(t)}
	if store.Unversioned != nil {
		r.unversioned = store.Unversioned(t)
	}
	t.Cleanup(func() {
		if r.unversioned != nil {
			_ = r.unversioned.Close(context.WithoutCancel(t.Context()))
		}
		for _, v := range r.nodes {
			_ = v.Close(context.WithoutCancel(t.Context()))
		}
	})
	return r
}

// id is the ID of a plan: of one of three days, and of a time of its own.
func (r *modelRun) id(plan int) uuid.UUID {
	return modelID(r.base.AddDate(0, 0, -(plan%3)).Add(-time.Duration(plan)*time.Second), r.m.Seed+uint64(plan))
}

// modelID makes a UUIDv7 of a time, the rest of which depends on a seed.
func modelID(at time.Time, seed uint64) (id uuid.UUID) {
	r := rand.New(rand.NewPCG(seed, 2))
	binary.BigEndian.PutUint64(id[:8], uint64(at.UnixMilli())<<16)
	binary.BigEndian.PutUint64(id[8:], r.Uint64())
	id[6], id[8] = 0x70, id[8]&0x3f|0x80
	return id
}

// do does one step and holds its result against the model.
func (r *modelRun) do(s modelStep) {
	r.done++
	r.now, r.rand = s, rand.New(rand.NewPCG(s.seed, 3))
	switch s.kind {
	case modelCreate:
		r.create()
	case modelUpdate:
		r.update()
	case modelDelete:
		_ = r.write(&modelCall{kind: modelDelete}, fmt.Sprintf("Delete plan %d", s.plan))
	case modelAgain:
		r.again()
	case modelRead:
		r.read()
	case modelExists:
		r.exists()
	case modelList:
		r.list()
	case modelSearch:
		r.search()
	case modelRecover:
		r.recover()
	case modelReopen:
		r.reopen()
	case modelGrace:
		r.grace()
	case modelSettle:
		r.settle()
	}
}

// note adds a line to the trace.
func (r *modelRun) note(format string, args ...any) {
	line := fmt.Sprintf("%5d  client %d", r.done, r.now.client)
	switch s := r.now; {
	case r.ending:
		line = "  end"
	case s.faulty:
		line += ", under faults"
	case s.dies > 0 && s.after:
		line += fmt.Sprintf(", dying after request %d", s.dies)
	case s.dies > 0:
		line += fmt.Sprintf(", dying at request %d", s.dies)
	case s.limit > 0:
		line += fmt.Sprintf(", for %v", s.limit)
	}
	r.trace = append(r.trace, line+": "+fmt.Sprintf(format, args...))
}

// fail ends the run.
func (r *modelRun) fail(format string, args ...any) {
	r.t.Fatalf(format, args...)
}

// describe says what the model knows of a plan.
func (r *modelRun) describe(plan int) string {
	var s []string
	for _, w := range r.worlds[plan] {
		s = append(s, w.String())
	}
	slices.Sort(s)
	return "what the model knows of plan " + fmt.Sprint(plan) + ": " + strings.Join(slices.Compact(s), "; or ")
}

// outcome puts an error into a word or two.
func outcome(err error) string {
	if err == nil {
		return "nil"
	}
	var s []string
	for _, class := range append(slices.Clone(modelClasses), context.DeadlineExceeded, context.Canceled) {
		if errors.Is(err, class) {
			s = append(s, class.Error())
		}
	}
	if len(s) == 0 {
		return err.Error()
	}
	return strings.Join(s, ", ")
}

// with calls a vault: the client's own node, the one that meets faults, or one whose process dies.
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
		// One of its own, so that which faults come does not depend on the steps before.
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

// write does a write and keeps the possibilities that agree with its result.
func (r *modelRun) write(c *modelCall, what string) error {
	plan := r.now.plan
	c.id, c.cut, c.faulty = r.id(plan), r.now.cut(), r.now.faulty
	if c.kind == modelDelete || c.kind == modelCreate && r.used[plan] {
		r.quiet()
	}
	if c.object != nil {
		c.version = c.object.Header().State.ETag
	}
	err := r.with(func(ctx context.Context, v storage.Vault) error {
		switch c.kind {
		case modelCreate:
			r.used[plan] = true
			return v.Create(ctx, c.object.(*workflow.Plan))
		case modelDelete:
			return v.Delete(ctx, c.id)
		}
		return storage.Update(ctx, v, c.object)
	})
	r.note("%s: %s", what, outcome(err))
	before := r.describe(plan)
	r.keep(plan, func(w world) []world { return w.after(c, err) })
	if len(r.worlds[plan]) == 0 {
		r.fail("%s: got %v; %s", what, err, before)
	}
	delete(r.cutCalls, plan)
	if c.cut && errors.Is(err, storage.ErrUnknown) {
		r.Unknown++
		r.cutCalls[plan] = c
	}
	return err
}

// keep replaces the possibilities for a plan by those that follow from them.
func (r *modelRun) keep(plan int, next func(world) []world) {
	var all []world
	for _, w := range r.worlds[plan] {
		for _, n := range next(w) {
			if !slices.Contains(all, n) { // plans are compared by their addresses: they are never changed
				all = append(all, n)
			}
		}
	}
	r.worlds[plan] = all
}

// quiet sends a few requests that change nothing, so that late copies of earlier requests arrive now. One that arrives after
// its plan was deleted, or in the next life of its ID, is more than a store without transactions can tell from a new one.
func (r *modelRun) quiet() {
	if !r.m.Faults {
		return
	}
	for range 8 {
		if _, err := r.nodes[0].Exists(r.t.Context(), r.id(r.m.Plans)); err != nil {
			r.fail("Exists: %v", err)
		}
	}
}

// create creates a plan, whether the ID is taken or not; sometimes one that has begun already, which must be refused.
func (r *modelRun) create() {
	plan := r.draw()
	c := &modelCall{kind: modelCreate, object: plan}
	what := fmt.Sprintf("Create plan %d", r.now.plan)
	if r.rand.IntN(20) == 0 {
		plan.State.Status, c.bad = workflow.Running, true
		what += " that is Running"
	}
	if r.write(c, what) == nil {
		for o := range workflow.Walk(plan) {
			if o.Header().State.ETag == "" {
				r.fail("Create left %s %s without a version", o.Kind(), *o.Header().ID)
			}
		}
		r.known[r.now.client][r.now.plan] = plan
	}
}

// draw makes a plan, of one of a few groups.
func (r *modelRun) draw() *workflow.Plan {
	var p *workflow.Plan
	switch r.rand.IntN(5) {
	case 0:
		p = plantest.Random(r.rand.Uint64())
	case 1:
		p = modelEachKind()
	default:
		p = plantest.Small()
	}
	p.ID, p.GroupID = r.id(r.now.plan), r.group(r.rand.IntN(4))
	return p
}

// group is a GroupID; the first is none.
func (r *modelRun) group(n int) uuid.UUID {
	if n == 0 {
		return uuid.Nil
	}
	return modelID(r.base, uint64(n))
}

// modelEachKind is the smallest plan that has an object of each kind.
func modelEachKind() *workflow.Plan {
	more := func() []*workflow.Action {
		return []*workflow.Action{{Name: "more", Plugin: plantest.PluginName}}
	}
	p := plantest.Small()
	p.PreChecks = &workflow.Checks{Actions: more()}
	p.Blocks[0].PostChecks = &workflow.Checks{}
	p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{Name: "batch", Actions: more()}}}
	return p
}

// update updates a plan or, while it runs, a part of it: from what the client holds, which may be stale, from what it has
// just read, or whatever is there, where the store offers a vault for that. Now and then the input is one that must be refused.
func (r *modelRun) update() {
	plan, held := r.now.plan, r.known[r.now.client]
	mode := r.rand.IntN(10) // 0, 1: whatever is there; 2 to 5: just read; else what the client holds
	if mode < 6 || held[plan] == nil || !r.certain(plan) {
		r.look()
	}
	basis, stored := held[plan], r.worlds[plan][0].plan
	if basis == nil {
		basis = r.draw() // of a plan that is not there
		modelFill(basis)
	}
	overwrite := mode < 2 && r.unversioned != nil && !r.now.faulty && !r.now.cut()
	o := r.target(basis, stored)
	if stored != nil && modelFind(stored, o) != nil && overwrite {
		o = modelClone(modelFind(stored, o))
	} else {
		o = modelClone(o)
	}
	c := &modelCall{kind: modelUpdate, object: o}
	s := o.Header().State
	from := s.Status
	current := stored != nil && modelFind(stored, o) != nil && modelFind(stored, o).Header().State.ETag == s.ETag
	s.Status = r.next(from, o.Kind() == workflow.KindPlan)
	how := "as read"
	switch {
	case overwrite:
		s.ETag, how = "", "whatever is there"
	case r.rand.IntN(12) == 0 && held[plan] != nil:
		how, c.bad = r.spoil(o, from), true
	case !current:
		how = "stale"
	}
	r.change(o)
	if p, ok := o.(*workflow.Plan); ok && s.Status.Final() && stored != nil && !c.bad && workflow.Fingerprint(p) == workflow.Fingerprint(stored) {
		// A final status settles the whole plan as it is given, so its parts are the last ones. (Not those of a later life.)
		whole := modelClone(stored)
		modelAdopt(whole, p)
		c.object = whole
	}
	what := fmt.Sprintf("Update %s of plan %d from %s to %s, version %s", modelPlace(basis, o), plan, from, s.Status, how)
	r.blind = overwrite
	err := r.write(c, what)
	r.blind = false
	switch {
	case err == nil && c.object.Header().State.ETag == c.version:
		r.checkUnchanged(c, what)
	case err == nil && c.object.Header().State.ETag == "":
		r.fail("%s: it returned nil and no version", what)
	case err == nil:
		if mine := modelFind(basis, c.object); mine != nil {
			modelAdopt(mine, modelClone(c.object))
		}
	case errors.Is(err, storage.ErrConflict), errors.Is(err, storage.ErrNotFound):
		delete(held, plan) // the client reads again
	}
}

// modelPlace names an object by its kind and its place in the plan.
func modelPlace(plan *workflow.Plan, like workflow.Object) string {
	n := 0
	for o := range workflow.Walk(plan) {
		if *o.Header().ID == *like.Header().ID {
			break
		}
		n++
	}
	return fmt.Sprintf("%s (object %d)", like.Kind(), n)
}

// checkUnchanged fails after an update that returned nil and the version that it was given, unless there is no plan.
func (r *modelRun) checkUnchanged(c *modelCall, what string) {
	if r.worlds[r.now.plan][0].plan != nil {
		r.fail("%s: it returned nil and left the version %s", what, c.version)
	}
}

// certain says whether the model knows what a plan is. (There may be remains of one.)
func (r *modelRun) certain(plan int) bool {
	for _, w := range r.worlds[plan] {
		if w.plan != r.worlds[plan][0].plan {
			return false
		}
	}
	return true
}

// look reads the plan on the client's own node, which settles what is not known.
func (r *modelRun) look() {
	now := r.now
	r.now.faulty, r.now.dies, r.now.limit = false, 0, 0
	r.read()
	r.now = now
}

// target chooses what to update. Parts are updated while the plan is Running and at no other time, or of a plan that is not
// there.
func (r *modelRun) target(basis, stored *workflow.Plan) workflow.Object {
	var parts []workflow.Object
	for o, parent := range workflow.Walk(basis) {
		if parent != nil {
			parts = append(parts, o)
		}
	}
	running := stored == nil || stored.State.Status == workflow.Running
	if len(parts) == 0 || !running || r.rand.IntN(4) == 0 {
		return basis
	}
	return parts[r.rand.IntN(len(parts))]
}

// next is a status that may follow. Plans seldom become final, so that there is something to do; parts may go anywhere.
func (r *modelRun) next(from workflow.Status, isPlan bool) workflow.Status {
	switch n := r.rand.IntN(12); {
	case !isPlan && n == 0:
		return workflow.Status(r.rand.IntN(int(workflow.Stopped) + 1))
	case from.Final() || n < 2:
		return from
	case from == workflow.NotStarted && (n < 11 || !isPlan):
		return workflow.Running
	case isPlan && n < 7:
		return workflow.Running
	}
	return workflow.Completed + workflow.Status(r.rand.IntN(3))
}

// spoil makes an update of an object one that must be refused, and says how.
func (r *modelRun) spoil(o workflow.Object, from workflow.Status) string {
	h := o.Header()
	switch n := r.rand.IntN(3); {
	case n == 0 && o.Kind() == workflow.KindPlan && from != workflow.NotStarted:
		h.State.Status = (from + 1 + workflow.Status(r.rand.IntN(4))) % 5 // any but from
		if !from.Final() {
			h.State.Status = workflow.NotStarted
		}
		return "as read, backwards"
	case n == 1 && modelAddChild(o):
		return "as read, with a child more"
	}
	h.State.ETag = ""
	return "lost"
}

// modelAddChild gives an object a child more; false for one that has none.
func modelAddChild(o workflow.Object) bool {
	id, plan := workflow.NewV7(), *o.Header().PlanID
	action := &workflow.Action{ID: id, PlanID: plan, Plugin: plantest.PluginName}
	switch o := o.(type) {
	case *workflow.Plan:
		o.Blocks = append(o.Blocks, &workflow.Block{ID: id, PlanID: plan})
	case *workflow.Block:
		o.PreChecks = &workflow.Checks{ID: id, PlanID: plan}
	case *workflow.Sequence:
		o.Actions = append(o.Actions, action)
	case *workflow.Checks:
		o.Actions = append(o.Actions, action)
	case *workflow.DeferredActions:
		o.Batches = append(o.Batches, &workflow.DeferBatch{ID: id, PlanID: plan})
	case *workflow.DeferBatch:
		o.Actions = append(o.Actions, action)
	default:
		return false
	}
	return true
}

// change gives an object's own fields values that no other write gives them.
func (r *modelRun) change(o workflow.Object) {
	r.clock++
	at := r.base.Add(time.Duration(r.clock) * time.Microsecond)
	s := o.Header().State
	s.Start = at
	if s.Status.Final() {
		s.End = at.Add(time.Second)
	}
	switch o := o.(type) {
	case *workflow.Plan:
		if s.Status == workflow.Failed {
			o.Reason = workflow.BlockFailed
		}
		o.Meta = fmt.Appendf(nil, "meta %d", r.clock)
	case *workflow.Action:
		attempt := workflow.Attempt{Start: at, End: at.Add(time.Second)}
		if r.rand.IntN(3) == 0 {
			attempt.Err = &plugins.Error{Code: 7, Message: fmt.Sprintf("not yet <%d>", r.clock)}
		} else {
			attempt.Resp = &plantest.Response{Text: fmt.Sprint(r.clock), OK: true}
		}
		o.Attempts = append(o.Attempts, attempt)
		if len(o.Attempts) > 3 {
			o.Attempts = o.Attempts[len(o.Attempts)-3:]
		}
	}
}

// modelFill gives a plan that was never created what Create would, with versions that are none.
func modelFill(p *workflow.Plan) {
	for o := range workflow.Walk(p) {
		h := o.Header()
		if *h.ID == uuid.Nil {
			*h.ID = workflow.NewV7()
		}
		*h.PlanID = p.ID
	}
	for o := range workflow.Walk(p) {
		o.Header().State.ETag = driver.Version("never stored", o) // which tells the IDs of all below
	}
}

// again repeats a call that was broken off, with the same input.
func (r *modelRun) again() {
	c := r.cutCalls[r.now.plan]
	if c == nil {
		r.read()
		return
	}
	// The first call's process may be the one that died: a version that it set is then known, though the model can't be sure.
	next := &modelCall{kind: c.kind, object: c.object, bad: c.bad, again: true}
	what := fmt.Sprintf("the call that was broken off, of plan %d, again", r.now.plan)
	if next.object != nil && next.kind == modelUpdate {
		next.object.Header().State.ETag = c.version
	}
	_ = r.write(next, what)
	delete(r.known[r.now.client], r.now.plan)
}

func (r *modelRun) recover() {
	err := r.with(func(ctx context.Context, v storage.Vault) error { return v.Recovery(ctx) })
	r.note("Recovery: %s", outcome(err))
	c := &modelCall{kind: modelRecover, cut: r.now.cut()}
	if err != nil && !c.cut {
		r.fail("Recovery: %v", err)
	}
	for plan := range r.worlds {
		r.keep(plan, func(w world) []world { return w.after(c, err) })
	}
}

// reopen closes a node, finds it closed, and starts it again.
func (r *modelRun) reopen() {
	node := r.now.client % len(r.nodes)
	v := r.nodes[node]
	if err := v.Close(r.t.Context()); err != nil {
		r.fail("Close: %v", err)
	}
	if _, err := v.Exists(r.t.Context(), r.id(0)); !modelIs(err, storage.ErrClosed) {
		r.fail("Exists on a vault that was closed: got %v, want ErrClosed", err)
	}
	r.nodes[node] = r.store.Open(r.t)
	r.note("node %d closed and opened", node)
}

// grace lets the grace period pass.
func (r *modelRun) grace() {
	r.quiet() // or a late copy would make old remains young
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

// finish recovers, looks at everything once more, and removes it: nothing may be left.
func (r *modelRun) finish() {
	r.now, r.ending = modelStep{}, true
	r.settle()
	everything := func() {
		r.listing("List 0", storage.Filters{}, func(ctx context.Context, v storage.Vault) (modelListing, error) { return v.List(ctx, 0) })
	}
	everything()
	for plan := range r.worlds {
		r.now.plan = plan
		if r.read(); r.worlds[plan][0].plan != nil {
			_ = r.write(&modelCall{kind: modelDelete}, fmt.Sprintf("Delete plan %d", plan))
		}
	}
	everything()
	r.check("after all was deleted")
}

// settle lets the grace period pass and recovers: nothing may be wrong after that.
func (r *modelRun) settle() {
	r.now.faulty, r.now.dies, r.now.limit = false, 0, 0
	r.grace()
	r.recover()
	r.check("after the grace period and Recovery")
}

// check fails the run if anything is wrong with what is stored.
func (r *modelRun) check(when string) {
	if r.store.Check == nil {
		return
	}
	problems := r.store.Check(r.t, r.nodes[0])
	r.note("Check: %d problems", len(problems))
	if len(problems) > 0 {
		r.fail("Check %s:\n%s", when, strings.Join(problems, "\n"))
	}
}
