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

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/trial"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/workflow"
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
	// besideCreate, besideDelete and besideUpdate mean that such a call on the plan was in progress at the same
	// time, or had an unknown outcome before.
	besideCreate, besideDelete, besideUpdate bool
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
	return o.Header().State.Status.String() + " " + *descr(o)
}

func descr(o workflow.Object) *string {
	if a, ok := o.(*workflow.Action); ok {
		return &a.Descr
	}
	return &o.(*workflow.Plan).Descr
}

func registerValues(p *workflow.Plan) (values []string) {
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

	mu     sync.Mutex
	events []event
	deaths int
}

// Run runs the history and fails the test if no order explains it. It skips the test if the store lacks what
// the run needs.
func (h History) Run(t storagetest.T, harness storagetest.Harness) Figures {
	t.Helper()
	h.Clients, h.Ops, h.Plans = cmp.Or(h.Clients, 4), cmp.Or(h.Ops, 12), cmp.Or(h.Plans, 2)
	var r *historyRun
	p := trial.Run(t.Context(), t.Name(), func(p storagetest.T) {
		r = &historyRun{h: h, t: p, store: harness.New(p), base: time.Now().UTC().Truncate(time.Millisecond)}
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
	f := Figures{Operations: len(r.events), Deaths: r.deaths}
	for _, e := range r.events {
		if e.faulty {
			f.Faulty++
		}
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
	// died reports whether the client's process died; it is nil if the process can't die.
	died   func() bool
	known  map[int]*workflow.Plan
	writes int
}

// run lets the clients work, then recovers what they left, and reads all plans.
func (r *historyRun) run() {
	offers(r.t, r.store, r.h.Faults, r.h.Deaths)
	nodes := []storage.Vault{closing(r.t, r.store.Open(r.t)), closing(r.t, r.store.Open(r.t))}
	clients := make([]*historyClient, r.h.Clients)
	for i := range clients {
		clients[i] = r.client(i, nodes[i%len(nodes)])
		clients[i].risk()
	}
	observer := r.client(r.h.Clients, nodes[0]) // works while the others do not
	if rand.New(rand.NewPCG(r.h.Seed, 4)).IntN(2) == 0 {
		r.phase(clients, beginning)
		r.phase(clients, ending)
	} else {
		// All sub-objects must be written before a plan becomes final.
		observer.prepare()
		r.phase(clients, working)
		for _, c := range clients {
			clear(c.known) // a final plan needs the last states of its sub-objects
		}
		r.phase(clients, finishing)
	}
	observer.readAll()
	r.recoverAll(nodes[1])
	observer.readAll()
	for _, c := range clients {
		if c.died != nil && c.died() {
			r.deaths++
		}
	}
}

// client makes a client on a node.
func (r *historyRun) client(n int, node storage.Vault) *historyClient {
	return &historyClient{
		historyRun: r, n: n, vault: node, known: map[int]*workflow.Plan{},
		rand: rand.New(rand.NewPCG(r.h.Seed, 100+uint64(n))),
	}
}

// risk gives some clients vaults of their own: with faults, in a process that is going to die, or for updates without
// versions.
func (c *historyClient) risk() {
	switch {
	case c.h.Faults && c.n%2 == 1:
		c.vault, c.faulty = closing(c.t, c.store.Faulty(c.t, c.h.Seed+uint64(c.n))), true
	case c.h.Deaths && c.n%3 == 2:
		c.vault, c.died = c.store.Dying(c.t, 5+c.rand.IntN(60), c.rand.IntN(2) == 0)
		closing(c.t, c.vault)
	case c.store.Unversioned != nil:
		c.unversioned = closing(c.t, c.store.Unversioned(c.t))
	}
}

// phase lets all clients make calls of a mix, concurrently.
func (r *historyRun) phase(clients []*historyClient, m mix) {
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for range r.h.Ops {
				if c.died != nil && c.died() {
					break
				}
				time.Sleep(time.Duration(c.rand.IntN(4_000_000)))
				m.do(c)
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
	check(r.t, r.store, v, "after the grace period and Recovery")
}

// mix is the behaviour of clients: how often, in a hundred calls, they make which. What is left are updates.
type mix struct{ create, delete, exists, read, recover, blind, finish int }

var (
	beginning = mix{create: 25, exists: 10, read: 20}
	working   = mix{read: 30, exists: 5, blind: 15} // blind updates have no version
	ending    = mix{delete: 20, exists: 10, read: 30, recover: 5}
	finishing = mix{delete: 5, read: 50, recover: 5, finish: 40}
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
		{m.finish, func() { c.finish(plan) }},
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

// finish moves a plan to a final status.
func (c *historyClient) finish(plan int) {
	known := c.known[plan]
	if known == nil {
		c.read(plan)
		return
	}
	status := known.State.Status
	if !status.Final() {
		status = workflow.Running + workflow.Status(c.rand.IntN(4))
	}
	c.put(plan, known, status, false)
}

// note makes a call and records it as an event, with what the call adds. Nobody knows what the call of a dead process
// would have returned.
func (c *historyClient) note(e event, do func(ctx context.Context, e *event) error) error {
	limit := 10 * time.Minute
	if c.died != nil {
		limit = cutAfter
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	e.client, e.faulty, e.call = c.n, c.faulty, c.clock.Add(1)
	e.err = do(ctx, &e)
	e.ret = c.clock.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events = append(c.events, e)
	return e.err
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
	err := c.note(event{kind: opCreate, plan: plan, content: registerValues(p)}, func(ctx context.Context, _ *event) error {
		return c.vault.Create(ctx, p)
	})
	if err == nil {
		c.known[plan] = p
	}
}

func (c *historyClient) id(plan int) uuid.UUID {
	return idFrom(c.base.Add(-time.Duration(plan)*time.Second), c.h.Seed+uint64(plan)<<16+1)
}

func (c *historyClient) read(plan int) {
	var got *workflow.Plan
	err := c.note(event{kind: opRead, plan: plan}, func(ctx context.Context, e *event) (err error) {
		if got, err = c.vault.Read(ctx, c.id(plan)); err == nil {
			e.content = registerValues(got)
		}
		return err
	})
	if delete(c.known, plan); err == nil {
		c.known[plan] = got
	}
}

func (c *historyClient) readAll() {
	for plan := range c.h.Plans {
		c.read(plan)
	}
}

func (c *historyClient) exists(plan int) {
	_ = c.note(event{kind: opExists, plan: plan}, func(ctx context.Context, e *event) (err error) {
		e.found, err = c.vault.Exists(ctx, c.id(plan))
		return err
	})
}

func (c *historyClient) delete(plan int) {
	_ = c.note(event{kind: opDelete, plan: plan}, func(ctx context.Context, _ *event) error { return c.vault.Delete(ctx, c.id(plan)) })
}

// recover calls Recovery while the others work, as a node does when it starts.
func (c *historyClient) recover() {
	err := c.note(event{kind: opRecover, plan: -1}, func(ctx context.Context, _ *event) error { return c.vault.Recovery(ctx) })
	if err != nil && c.died == nil {
		c.t.Errorf("Recovery: %v", err)
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
	*descr(o) = c.token()
	e.value = registerValue(o)
	e.object = slices.IndexFunc(registers(c.known[plan]), func(r workflow.Object) bool { return *r.Header().ID == *o.Header().ID })
	err := c.note(e, func(ctx context.Context, _ *event) error { return storage.Update(ctx, v, o) })
	if err != nil {
		delete(c.known, plan)
		return
	}
	copyOwnFields(find(c.known[plan], o), o)
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
	what := fmt.Sprint(e.kind)
	switch e.kind {
	case opCreate, opRead:
		what += fmt.Sprintf(" %q", e.content)
	case opUpdate:
		what += fmt.Sprintf(" of object %d from %q to %q", e.object, e.base, e.value)
	case opExists:
		what += fmt.Sprintf(" %t", e.found)
	}
	return fmt.Sprintf("%5d to %5d  client %d, plan %d: %s: %v", e.call, e.ret, e.client, e.plan, what, e.err)
}
