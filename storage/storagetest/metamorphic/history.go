package metamorphic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/storage/storagetest/internal/trial"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// History lets several clients work on a few plans at the same time, and records when each call began and
// ended and what it returned. It then looks for an order of the calls, one after the other, that explains all
// results and is consistent with the times. The test fails if there is none.
//
// A Read of a plan while others update it is not a snapshot of all objects. History therefore looks for an
// order for each object by itself: for the plan's own fields and for each action, together with the existence
// of the plan.
type History struct {
	// Seed determines what the clients do, and in a bubble of testing/synctest also how their calls
	// interleave.
	Seed uint64
	// Clients is the number of clients; 0 means 4.
	Clients int
	// Ops is the least number of calls of each client in each phase; 0 means 12.
	Ops int
	// Plans is the number of plans that they share; 0 means 2.
	Plans int
	// Faults lets every second client meet temporary faults. The run is skipped if the store has no Faulty.
	Faults bool
	// Deaths lets the processes of some clients die. The run is skipped if the store has no Dying.
	Deaths bool
	// Recreate lets clients create a plan while others delete a plan with the same ID. It requires a vault
	// whose Delete is atomic. Without it, no client creates plans while others delete them.
	Recreate bool
}

// event is one call of a history.
type event struct {
	client    int
	kind      op
	plan      int
	call, ret int64
	err       error
	// found is the result of Exists.
	found bool
	// object is the index of the updated object among the plan's registers. base is the content of its
	// version before, or empty for an update without a version. value is its new content. final means that it
	// was the plan, with a final status.
	object      int
	base, value string
	final       bool
	// content has the values of all registers of the plan that was created or read.
	content []string
	// besideCreate and besideDelete mean that a Create or a Delete of the plan was in progress at the same
	// time, or had an unknown outcome before.
	besideCreate, besideDelete bool
	// faulty means that the call met temporary faults. late means that a faulty Delete of the plan was called
	// before.
	faulty, late bool
}

// registers returns the objects of a plan whose histories are checked: the plan itself and its actions.
func registers(p *workflow.Plan) []workflow.Object {
	var list []workflow.Object
	for o := range workflow.Walk(p) {
		if k := o.Kind(); k == workflow.KindPlan || k == workflow.KindAction {
			list = append(list, o)
		}
	}
	return list
}

// registerValue returns the content of an object. Every write has its own Descr.
func registerValue(o workflow.Object) string {
	switch o := o.(type) {
	case *workflow.Plan:
		return o.State.Status.String() + " " + o.Descr
	case *workflow.Action:
		return o.State.Status.String() + " " + o.Descr
	}
	return ""
}

func registerValues(p *workflow.Plan) []string {
	var values []string
	for _, o := range registers(p) {
		values = append(values, registerValue(o))
	}
	return values
}

// historyRun is a history in progress.
type historyRun struct {
	h     History
	t     storagetest.T
	store storagetest.Store
	base  time.Time
	clock atomic.Int64 // orders calls and returns; real clocks are too coarse, and in a bubble many calls have the same time

	mu      sync.Mutex
	events  []event
	deaths  int
	faulty  int
	problem string
	// versions has the content of each version of an object.
	versions map[string]string
}

// Run runs the history and fails the test if no order explains it. It skips the test if the store lacks what
// the run needs.
func (h History) Run(t storagetest.T, harness storagetest.Harness) Figures {
	t.Helper()
	h.Clients, h.Ops, h.Plans = cmp.Or(h.Clients, 4), cmp.Or(h.Ops, 12), cmp.Or(h.Plans, 2)
	var r *historyRun
	p := trial.Run(t, func(p storagetest.T) {
		r = &historyRun{h: h, t: p, store: harness.New(p), base: time.Now().UTC().Truncate(time.Millisecond), versions: map[string]string{}}
		r.run()
	})
	switch {
	case p.Skipped() != "":
		t.Skipf("%s", p.Skipped())
	case p.Failed():
		t.Fatalf("%s\n\nin the history %+v:\n%s", p.Failure(), h, r.list(r.events))
	}
	if problem := r.check(); problem != "" {
		t.Fatalf("the history %+v: %s", h, problem)
	}
	f := Figures{Operations: len(r.events), Faulty: r.faulty, Deaths: r.deaths}
	for _, e := range r.events {
		if errors.Is(e.err, storage.ErrUnknown) {
			f.Unknown++
		}
	}
	return f
}

// historyClient is one of the clients.
type historyClient struct {
	*historyRun
	n     int
	rand  *rand.Rand
	vault storage.Vault
	// unversioned is the vault for updates without a version, or nil.
	unversioned storage.Vault
	faulty      bool
	// died reports whether the client's process died; it is nil if the process can't die. counted means that
	// the death was counted.
	died    func() bool
	counted bool
	known   map[int]*workflow.Plan
	writes  int
}

// run lets the clients work, then recovers what they left, and reads all plans.
func (r *historyRun) run() {
	switch {
	case r.h.Faults && r.store.Faulty == nil:
		r.t.Skipf("the harness offers no faults")
	case r.h.Deaths && r.store.Dying == nil:
		r.t.Skipf("the harness offers no processes that die")
	}
	nodes := []storage.Vault{r.store.Open(r.t), r.store.Open(r.t)}
	clients := make([]*historyClient, r.h.Clients)
	for i := range clients {
		clients[i] = r.client(i, nodes[i%len(nodes)])
	}
	chance := rand.New(rand.NewPCG(r.h.Seed, 4))
	switch {
	case r.h.Recreate:
		r.phase(clients, anything.do)
	case chance.IntN(2) == 0:
		r.phase(clients, beginning.do)
		r.phase(clients, ending.do)
	default:
		// All sub-objects must be written before a plan becomes final.
		r.observer(nodes[0]).prepare()
		r.phase(clients, working.do)
		for _, c := range clients {
			clear(c.known) // a final plan needs the last states of its sub-objects
		}
		r.phase(clients, (*historyClient).finish)
	}
	last := r.observer(nodes[0])
	last.readAll()
	r.recoverAll(nodes[1])
	last.readAll()
	for _, c := range clients {
		nodes = append(nodes, c.vault)
		if c.unversioned != nil {
			nodes = append(nodes, c.unversioned)
		}
	}
	for _, v := range nodes {
		_ = v.Close(context.WithoutCancel(r.t.Context()))
	}
	if r.problem != "" {
		r.t.Fatalf("%s", r.problem)
	}
}

// client makes a client: on its node, with faults, or in a process that is going to die.
func (r *historyRun) client(n int, node storage.Vault) *historyClient {
	c := &historyClient{
		historyRun: r, n: n, vault: node, known: map[int]*workflow.Plan{},
		rand: rand.New(rand.NewPCG(r.h.Seed, 100+uint64(n))),
	}
	switch {
	case r.h.Faults && n%2 == 1:
		c.vault, c.faulty = r.store.Faulty(r.t, r.h.Seed+uint64(n)), true
	case r.h.Deaths && n%3 == 2:
		c.vault, c.died = r.store.Dying(r.t, 5+c.rand.IntN(60), c.rand.IntN(2) == 0)
	case r.store.Unversioned != nil:
		c.unversioned = r.store.Unversioned(r.t)
	}
	return c
}

// observer makes a client that works while the others do not.
func (r *historyRun) observer(v storage.Vault) *historyClient {
	return &historyClient{
		historyRun: r, n: r.h.Clients, vault: v, known: map[int]*workflow.Plan{},
		rand: rand.New(rand.NewPCG(r.h.Seed, 5)),
	}
}

// phase lets all clients do the same thing a number of times, concurrently.
func (r *historyRun) phase(clients []*historyClient, do func(c *historyClient)) {
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for range r.h.Ops {
				if c.died != nil && c.died() {
					break
				}
				time.Sleep(time.Duration(c.rand.IntN(4_000_000)))
				do(c)
			}
		})
	}
	all.Wait()
}

// recoverAll recovers what the clients left. Then Check must find nothing.
func (r *historyRun) recoverAll(v storage.Vault) {
	if r.store.PassGrace != nil {
		r.store.PassGrace(r.t)
	}
	if err := v.Recovery(r.t.Context()); err != nil {
		r.t.Fatalf("Recovery: %v", err)
	}
	if r.store.Check == nil {
		return
	}
	if problems := r.store.Check(r.t, v); len(problems) > 0 {
		r.t.Fatalf("Check after the grace period and Recovery:\n%s", strings.Join(problems, "\n"))
	}
}

// mix is the behaviour of clients: how often, in a hundred calls, they make which. What is left are updates.
type mix struct{ create, delete, exists, read, recover, blind int }

var (
	anything  = mix{create: 25, delete: 20, exists: 10, read: 20}
	beginning = mix{create: 25, exists: 10, read: 20}
	working   = mix{read: 30, exists: 5, blind: 15} // blind updates have no version
	ending    = mix{delete: 20, exists: 10, read: 30, recover: 5}
)

// do makes one call or two.
func (m mix) do(c *historyClient) {
	plan, n := c.rand.IntN(c.h.Plans), c.rand.IntN(100)
	for _, act := range []struct {
		often int
		do    func()
	}{
		{m.create, func() { c.create(plan) }},
		{m.delete, func() { c.delete(plan) }},
		{m.exists, func() { c.exists(plan) }},
		{m.read, func() { c.read(plan) }},
		{m.recover, c.recover},
		{m.blind, func() { c.update(plan, true) }},
		{100, func() { c.update(plan, false) }},
	} {
		if n -= act.often; n < 0 {
			act.do()
			return
		}
	}
}

// prepare creates all plans and moves them to Running.
func (c *historyClient) prepare() {
	for plan := range c.h.Plans {
		c.create(plan)
		c.put(plan, c.known[plan], workflow.Running, false)
	}
}

// finish moves plans to a final status.
func (c *historyClient) finish() {
	plan, n := c.rand.IntN(c.h.Plans), c.rand.IntN(100)
	if c.known[plan] == nil || n < 40 {
		c.read(plan)
	}
	switch known := c.known[plan]; {
	case n >= 50 && n < 55:
		c.delete(plan)
	case n >= 55 && n < 60:
		c.recover()
	case n >= 60 && known != nil:
		status := known.State.Status
		if !status.Final() {
			status = workflow.Running + workflow.Status(c.rand.IntN(4))
		}
		c.put(plan, known, status, false)
	}
}

// note makes a call and records it as an event. Nobody knows what the call of a dead process would have
// returned.
func (c *historyClient) note(e event, do func(ctx context.Context) error) error {
	limit := 10 * time.Minute
	if c.died != nil {
		limit = cutAfter
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	e.client, e.faulty, e.call = c.n, c.faulty, c.clock.Add(1)
	e.err = do(ctx)
	e.ret = c.clock.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.faulty {
		c.historyRun.faulty++
	}
	if c.died != nil && c.died() && !c.counted {
		c.counted = true
		c.deaths++
	}
	c.events = append(c.events, e)
	return e.err
}

// amend completes the last event of this client with the result of its call.
func (c *historyClient) amend(change func(e *event)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range slices.Backward(c.events) {
		if c.events[i].client == c.n {
			change(&c.events[i])
			return
		}
	}
}

// learn records the contents of the versions in a plan. A version has one content forever.
func (c *historyClient) learn(plan int, objects ...workflow.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range objects {
		key, value := fmt.Sprint(plan, *o.Header().ID, o.Header().State.ETag), registerValue(o)
		if o.Header().State.ETag == "" {
			c.problem = fmt.Sprintf("%s %s has no version", o.Kind(), *o.Header().ID)
		}
		if before, known := c.versions[key]; known && before != value {
			c.problem = fmt.Sprintf("the version %s of %s %s has the contents %q and %q", o.Header().State.ETag, o.Kind(), *o.Header().ID, before, value)
		}
		c.versions[key] = value
	}
}

// token returns a text that is used once.
func (c *historyClient) token() string {
	c.writes++
	return fmt.Sprintf("by %d, %d", c.n, c.writes)
}

func (c *historyClient) create(plan int) {
	p := plantest.Sized(1, 1, 2)
	p.Descr = c.token()
	seed := c.h.Seed + uint64(plan)<<16
	for o := range workflow.Walk(p) {
		seed++
		*o.Header().ID = idFrom(c.base.Add(-time.Duration(plan)*time.Second), seed)
		if a, ok := o.(*workflow.Action); ok {
			a.Descr = p.Descr
		}
	}
	err := c.note(event{kind: opCreate, plan: plan, content: registerValues(p)}, func(ctx context.Context) error { return c.vault.Create(ctx, p) })
	if err == nil {
		c.learn(plan, registers(p)...)
		c.known[plan] = p
	}
}

func (c *historyClient) id(plan int) uuid.UUID {
	return idFrom(c.base.Add(-time.Duration(plan)*time.Second), c.h.Seed+uint64(plan)<<16+1)
}

func (c *historyClient) read(plan int) {
	var got *workflow.Plan
	err := c.note(event{kind: opRead, plan: plan}, func(ctx context.Context) (err error) {
		got, err = c.vault.Read(ctx, c.id(plan))
		return err
	})
	if delete(c.known, plan); err == nil {
		c.known[plan] = got
		c.learn(plan, registers(got)...)
		c.amend(func(e *event) { e.content = registerValues(got) })
	}
}

func (c *historyClient) readAll() {
	for plan := range c.h.Plans {
		c.read(plan)
	}
}

func (c *historyClient) exists(plan int) {
	var found bool
	_ = c.note(event{kind: opExists, plan: plan}, func(ctx context.Context) (err error) {
		found, err = c.vault.Exists(ctx, c.id(plan))
		return err
	})
	c.amend(func(e *event) { e.found = found })
}

func (c *historyClient) delete(plan int) {
	_ = c.note(event{kind: opDelete, plan: plan}, func(ctx context.Context) error { return c.vault.Delete(ctx, c.id(plan)) })
}

// recover calls Recovery while the others work, as a node does when it starts.
func (c *historyClient) recover() {
	err := c.note(event{kind: opRecover, plan: -1}, func(ctx context.Context) error { return c.vault.Recovery(ctx) })
	if err != nil && c.died == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.problem = fmt.Sprintf("Recovery: %v", err)
	}
}

// update updates the plan or one of its actions, from what the client knows. blind means without a version.
func (c *historyClient) update(plan int, blind bool) {
	known := c.known[plan]
	if known == nil || c.rand.IntN(4) == 0 {
		c.read(plan)
		known = c.known[plan]
	}
	if known == nil {
		return
	}
	if time.Sleep(time.Duration(c.rand.IntN(2_000_000))); known.State.Status == workflow.NotStarted || c.rand.IntN(3) == 0 {
		c.put(plan, known, workflow.Running, blind)
		return
	}
	if known.State.Status != workflow.Running {
		return
	}
	o := registers(known)[1+c.rand.IntN(2)]
	status := o.Header().State.Status
	if status == workflow.NotStarted {
		status = workflow.Running
	}
	c.put(plan, o, status, blind)
}

// put updates one object that the client knows, with a status and a content of its own.
func (c *historyClient) put(plan int, known workflow.Object, status workflow.Status, blind bool) {
	if known == nil {
		return
	}
	o := plantest.Clone(known)
	s := o.Header().State
	s.Status = status
	// Clients with faults have no unversioned vault: a blind update whose answer was lost is sent again, and
	// would overwrite later updates.
	v := c.vault
	if blind = blind && c.unversioned != nil; blind {
		v, s.ETag = c.unversioned, ""
	}
	e := event{kind: opUpdate, plan: plan, base: s.ETag, final: o.Kind() == workflow.KindPlan && status.Final()}
	if !blind {
		e.base = registerValue(known)
	}
	switch o := o.(type) {
	case *workflow.Plan:
		o.Descr = c.token()
	case *workflow.Action:
		o.Descr = c.token()
	}
	e.value = registerValue(o)
	e.object = slices.IndexFunc(registers(c.known[plan]), func(r workflow.Object) bool { return *r.Header().ID == *o.Header().ID })
	err := c.note(e, func(ctx context.Context) error { return storage.Update(ctx, v, o) })
	switch {
	case err == nil:
		copyOwnFields(find(c.known[plan], o), o)
		c.learn(plan, o)
	default:
		delete(c.known, plan)
	}
}

// list returns the events as lines, in the order in which they began.
func (r *historyRun) list(events []event) string {
	events = slices.Clone(events)
	slices.SortFunc(events, func(a, b event) int { return int(a.call - b.call) })
	var lines []string
	for _, e := range events {
		lines = append(lines, e.String())
	}
	return strings.Join(lines, "\n")
}

func (e event) String() string {
	what := ""
	switch e.kind {
	case opCreate:
		what = fmt.Sprintf("Create %q", e.content)
	case opUpdate:
		what = fmt.Sprintf("Update object %d from %q to %q", e.object, e.base, e.value)
	case opDelete:
		what = "Delete"
	case opRead:
		what = fmt.Sprintf("Read: %q", e.content)
	case opExists:
		what = fmt.Sprintf("Exists: %v", e.found)
	case opRecover:
		what = "Recovery"
	}
	return fmt.Sprintf("%5d to %5d  client %d, plan %d: %s: %s", e.call, e.ret, e.client, e.plan, what, outcome(e.err))
}
