package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// The kinds of messages of a node, beside created.
const (
	joined    = "joined"
	removed   = "removed" // the record of a dead member
	claimed   = "claimed"
	taken     = "taken"
	picked    = "picked up"
	called    = "called" // begin and end
	stored    = "stored" // the outcome of an action
	ended     = "ended"  // the outcome of a plan is stored
	left      = "left"
	stopAsked = "asked to stop" // begin and end
	problem   = "problem"

	// By the first process.
	died    = "died"
	limited = "limited" // begin and end
)

// command is what a node gets on standard input after its order.
type command struct {
	// Submit asks the node to create the plan of this seed.
	Submit uint64
	// Stop asks the node to request that a plan stops.
	Stop uuid.UUID
}

// The plugin of a fleet's plans. Its result is the number of the call.
const taskName = "task"

// task is what an action does.
type task struct {
	Takes time.Duration `json:"takes"`
	// Fails is how many attempts fail.
	Fails int `json:"fails,omitempty"`
	// Naps means that the first call of an attempt waits for a signal.
	Naps bool `json:"naps,omitempty"`
}

// register returns a registry of all plugins of this program. The one of tasks may run them or only name their types.
func register(tasks plugins.Plugin) *registry.Register {
	r := plantest.Register()
	if err := r.Register(tasks); err != nil {
		panic(err) // the name is free
	}
	return r
}

// planOf returns the plan of a seed. Its actions take up to pace each. It has some of the keys, if there are any.
func planOf(seed uint64, pace time.Duration, keys int) *workflow.Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	p := plantest.Sized(1+r.IntN(2), 1+r.IntN(2), 1+r.IntN(3))
	spare := func() []*workflow.Action { return plantest.Small().Blocks[0].Sequences[0].Actions }
	if r.IntN(4) == 0 {
		p.PreChecks = &workflow.Checks{Actions: spare()}
	}
	if r.IntN(6) == 0 {
		p.ContChecks = &workflow.Checks{Actions: spare(), Delay: pace}
	}
	if r.IntN(4) == 0 {
		p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{Actions: spare()}}}
	}
	for o := range workflow.Walk(p) {
		switch o := o.(type) {
		case *workflow.Block:
			o.Concurrency = 2
		case *workflow.Action:
			t := task{Takes: time.Duration(r.Int64N(int64(pace)))}
			switch r.IntN(40) {
			case 0:
				t.Fails = 2 // for good
			case 1, 2:
				t.Fails = 1
			}
			o.Plugin, o.Req, o.Retries = taskName, t, 1
		}
	}
	if keys > 0 {
		keyed(p, seed, keys)
	}
	driver.Complete(p)
	return p
}

const (
	// nodeCapacity is how many plans a node owns at once. It leaves room for the plans of dead nodes.
	nodeCapacity = 64
	// ttlOf is the TTL of a fleet in intervals.
	ttlOf = 3
)

// node is a process that works as a node of a fleet.
type node struct {
	*worker
	engine *engine.Engine
	calls  atomic.Int64

	mu   sync.Mutex
	held map[uuid.UUID]holding
}

// holding is a plan that the engine works on.
type holding struct {
	epoch   int64
	refused bool // an update of the plan met a version that the node does not know
}

// run works as a node until stdin ends. Then it leaves.
func (n *node) run(ctx context.Context, stdin *json.Decoder) error {
	trouble := func(doing string, err error) {
		n.report(message{What: problem, Error: doing + ": " + oneLine(err)})
	}
	e, err := engine.New(n.vault, engine.Options{
		RetryDelay: n.Interval / 10, ContDelay: n.Interval, Plans: nodeCapacity,
		Fleet: &fleet.Options{
			Name: fmt.Sprintf("%d.%d", n.Client, n.Life), Interval: n.Interval, TTL: ttlOf * n.Interval,
			Observer: fleet.Observer{
				Heartbeat: func(_ context.Context, e fleet.HeartbeatEvent) {
					if e.Err != nil {
						trouble("heartbeat", e.Err)
					}
				},
				Failure:  func(_ context.Context, e fleet.FailureEvent) { trouble(e.Doing, e.Err) },
				Removal:  func(_ context.Context, e fleet.RemovalEvent) { n.report(message{What: removed, Node: e.Member.ID}) },
				Claim:    func(_ context.Context, e fleet.ClaimEvent) { n.report(message{What: claimed, Plan: e.Plan}) },
				Takeover: func(_ context.Context, t fleet.TakeoverEvent) { n.report(message{What: taken, Plan: t.Plan}) },
			},
		},
		Observer: engine.Observer{
			Joined:   func(_ context.Context, e engine.JoinedEvent) { n.report(message{What: joined, Node: e.Node}) },
			PickedUp: n.pickedUp, Changed: n.changed, Left: n.left,
			Problem: func(_ context.Context, e engine.ProblemEvent) { trouble("engine", e.Err) },
		},
	})
	if err != nil {
		return err
	}
	n.engine = e
	var obeying sync.WaitGroup
	obeying.Go(func() {
		defer n.stop()
		for {
			var c command
			if stdin.Decode(&c) != nil {
				return // the chaos closed the pipe, or died
			}
			obeying.Go(func() { n.obey(c) })
		}
	})
	err = e.Run(ctx)
	obeying.Wait()
	return err
}

// obey carries out a command. It does not stop when the node leaves.
func (n *node) obey(c command) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if c.Stop != uuid.Nil {
		_ = n.call(ctx, message{What: stopAsked, Plan: c.Stop}, func(ctx context.Context) error { return n.engine.Stop(ctx, c.Stop, workflow.Attribution{By: "chaos"}) })
		return
	}
	p := planOf(c.Submit, n.Interval, n.Keys)
	_ = n.call(ctx, message{What: created, Plan: p.ID}, func(ctx context.Context) error {
		_, err := n.engine.Submit(ctx, p)
		return err
	})
}

// conflicted counts the refused updates of an owner. Only the first one counts: the later ones may be those of
// the take that follows it.
func (n *node) conflicted(_ context.Context, e azblob.ConflictEvent) {
	n.mu.Lock()
	defer n.mu.Unlock()
	h, held := n.held[e.Operation.Plan]
	if held && !h.refused && strings.HasPrefix(e.Operation.Name, "Update") {
		h.refused = true
		n.held[e.Operation.Plan] = h
		n.refused.Add(1)
	}
}

func (n *node) holds(plan uuid.UUID) holding {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.held[plan]
}

func (n *node) letGo(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.held, plan)
}

// pickedUp reports a plan that the engine begins to work on.
func (n *node) pickedUp(_ context.Context, e engine.PickedUpEvent) {
	p := e.Plan
	n.mu.Lock()
	n.held[p.ID] = holding{epoch: p.Epoch}
	n.mu.Unlock()
	n.report(message{What: picked, Plan: p.ID, Epoch: p.Epoch})
}

// changed reports the outcomes of actions and plans that are stored.
func (n *node) changed(_ context.Context, e engine.ChangedEvent) {
	o := e.Object
	h := o.Header()
	if !h.State.Status.Final() {
		return
	}
	m := message{Plan: *h.PlanID, Object: *h.ID, Status: h.State.Status}
	switch o := o.(type) {
	case *workflow.Plan:
		m.What, m.Epoch = ended, o.Epoch
		n.letGo(o.ID)
	case *workflow.Action:
		m.What, m.Epoch = stored, n.holds(o.PlanID).epoch
	default:
		return
	}
	n.report(m)
}

func (n *node) left(ctx context.Context, e engine.LeftEvent) {
	plan, err := e.Plan, e.Err
	m := message{What: left, Plan: plan, Told: told(ctx, err), Error: oneLine(err)}
	if m.Told == wrong && errors.Is(err, context.DeadlineExceeded) {
		m.Told = "deadline"
	}
	n.letGo(plan)
	n.report(m)
}

// longestNap is so long that a plan sleeps meanwhile.
const longestNap = 30 * time.Minute

// perform is the plugin.
func (n *node) perform(ctx context.Context, call engine.Call, t task) (int64, error) {
	m := message{What: called, Plan: call.Plan, Object: call.Action, Epoch: call.Epoch, Call: n.number(n.calls.Add(1)), Begin: true}
	n.report(m)
	var woken bool
	_, err := call.State(&woken)
	select {
	case <-time.After(t.Takes):
		if m.Waits = err == nil && t.Naps && !woken; m.Waits {
			err = engine.Later(longestNap, true)
		} else if call.Attempt <= t.Fails {
			err = errors.New("as it was told")
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	m.Begin = false
	n.report(m)
	return m.Call, err
}
