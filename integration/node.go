package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// fleetOrder tells a process to work as a node of a fleet.
type fleetOrder struct {
	Interval time.Duration `json:"interval"`
	TTL      time.Duration `json:"ttl"`
	Capacity int           `json:"capacity"`
}

// command is what a node gets on standard input after its order.
type command struct {
	// Submit asks the node to create the plan of this seed. Its actions take up to Pace each.
	Submit uint64        `json:"submit,omitempty"`
	Pace   time.Duration `json:"pace,omitempty"`
	// Stop asks the node to request that a plan stops.
	Stop uuid.UUID `json:"stop,omitzero"`
}

// The plugin of a fleet's plans. Its result says who made the call.
const taskName = "task"

// task is what an action does.
type task struct {
	Takes time.Duration `json:"takes"`
	// Fails is how many attempts fail.
	Fails int `json:"fails,omitempty"`
}

// result is the response to one call of the plugin.
type result struct {
	Call  int64     `json:"call"` // unique
	Node  uuid.UUID `json:"node"`
	Epoch int64     `json:"epoch"`
}

// register returns a registry of all plugins of this program.
func register() *registry.Register {
	r := plantest.Register()
	if err := r.Register(plugins.Typed[task, result](taskName)); err != nil {
		panic(err) // the name is free
	}
	return r
}

// planOf returns the plan of a seed.
func planOf(seed uint64, pace time.Duration) *workflow.Plan {
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
	driver.Complete(p)
	return p
}

// node is a process that works as a node of a fleet. It reports each call of its plugin before the call
// begins, and before the result is stored: a process that dies can't lose what it has written to a pipe.
type node struct {
	order
	requests *atomic.Int64
	refused  atomic.Int64
	faults   func() int
	engine   *engine.Engine
	calls    atomic.Int64
	fail     context.CancelFunc // ends the node when nobody reads its reports

	mu   sync.Mutex
	out  *json.Encoder
	held map[uuid.UUID]holding
}

// holding is a plan that the engine works on.
type holding struct {
	owner   uuid.UUID
	epoch   int64
	refused bool // an update of the plan met a version that the node does not know
}

// runNode works as a node until its standard input ends. Then it leaves.
func runNode(o order, stdin *json.Decoder, stdout io.Writer) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	n := &node{order: o, fail: stop, out: json.NewEncoder(stdout), held: map[uuid.UUID]holding{}}
	v, faulty, requests, err := o.open(azblob.Observer{Conflict: n.conflicted})
	if err != nil {
		return err
	}
	n.requests, n.faults = requests, faulty.Faults
	reg := registry.New()
	if err := reg.Register(engine.Func(taskName, n.perform)); err != nil {
		return err
	}
	n.engine, err = engine.New(v, reg, engine.Options{
		RetryDelay: o.Fleet.Interval / 10, ContDelay: o.Fleet.Interval, Plans: o.Fleet.Capacity,
		Fleet: &fleet.Options{
			Name: fmt.Sprintf("%d.%d", o.Client, o.Life), Interval: o.Fleet.Interval, TTL: o.Fleet.TTL,
			Observer: fleet.Observer{
				Heartbeat: func(_ context.Context, e fleet.HeartbeatEvent) {
					if e.Err == nil {
						n.report(notice{What: beat})
					} else {
						n.report(notice{What: problem, Error: "heartbeat: " + oneLine(e.Err)})
					}
				},
				Failure: func(_ context.Context, e fleet.FailureEvent) {
					n.report(notice{What: problem, Error: e.Doing + ": " + oneLine(e.Err)})
				},
				Removal: func(_ context.Context, e fleet.RemovalEvent) { n.report(notice{What: removed, Node: e.Member.ID}) },
				Claim:   func(_ context.Context, e fleet.ClaimEvent) { n.report(notice{What: claimed, Plan: e.Plan}) },
				Takeover: func(_ context.Context, t fleet.TakeoverEvent) {
					n.report(notice{What: taken, Plan: t.Plan, From: t.From, Epoch: t.Epoch, Rounds: t.Rounds})
				},
			},
		},
		Observer: engine.Observer{
			Joined: func(_ context.Context, id uuid.UUID) { n.report(notice{What: joined, Node: id}) }, PickedUp: n.pickedUp, Changed: n.changed,
			Left: n.left, Problem: func(_ context.Context, err error) { n.report(notice{What: problem, Error: oneLine(err)}) },
		},
	})
	if err != nil {
		return err
	}
	var obeying sync.WaitGroup
	obeying.Go(func() {
		defer stop()
		for {
			var c command
			if stdin.Decode(&c) != nil {
				return // the chaos closed the pipe, or died
			}
			obeying.Go(func() { n.obey(c) })
		}
	})
	err = n.engine.Run(ctx)
	obeying.Wait()
	faulty.Wait()
	return errors.Join(err, v.Close(context.Background()))
}

// obey carries out a command. It does not stop when the node leaves.
func (n *node) obey(c command) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	said := notice{What: stopAsked, Plan: c.Stop}
	do := func() error { return n.engine.Stop(ctx, c.Stop) }
	if c.Stop == uuid.Nil {
		p := planOf(c.Submit, c.Pace)
		said = notice{What: created, Plan: p.ID}
		do = func() error { return n.engine.Submit(ctx, p) }
	}
	n.report(said)
	said.End = true
	switch err := do(); {
	case err == nil:
	case errors.Is(err, engine.ErrNotRunning):
		said.Told = "not running"
	case ctx.Err() != nil:
		said.Told = "unknown"
	default:
		said.Told, said.Error = kind(err), oneLine(err)
	}
	n.report(said)
}

// report writes a notice.
func (n *node) report(said notice) {
	said.Requests, said.Faults, said.Refused = int(n.requests.Load()), n.faults(), int(n.refused.Load())
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.out.Encode(said); err != nil {
		n.fail()
	}
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

// pickedUp reports a plan that the engine begins to work on, as it was read before it was claimed or fenced.
func (n *node) pickedUp(_ context.Context, p *workflow.Plan) {
	n.mu.Lock()
	n.held[p.ID] = holding{owner: p.Owner, epoch: p.Epoch}
	n.mu.Unlock()
	n.report(notice{What: picked, Plan: p.ID, Node: p.Owner, Epoch: p.Epoch, Picture: new(pictureOf(p))})
}

// changed reports the outcomes of actions and plans that are stored.
func (n *node) changed(_ context.Context, o workflow.Object) {
	h := o.Header()
	if !h.State.Status.Final() {
		return
	}
	said := notice{Plan: *h.PlanID, Object: *h.ID, Status: h.State.Status}
	switch o := o.(type) {
	case *workflow.Plan:
		said.What, said.Epoch = ended, o.Epoch
		n.letGo(o.ID)
	case *workflow.Action:
		said.What, said.Epoch, said.Results = stored, n.holds(o.PlanID).epoch, resultsOf(o)
	default:
		return
	}
	n.report(said)
}

func (n *node) left(_ context.Context, plan uuid.UUID, err error) {
	said := notice{What: left, Plan: plan, Error: oneLine(err)}
	switch {
	case errors.Is(err, fleet.ErrFenced):
		said.Told = "fenced"
	case errors.Is(err, engine.ErrDraining), errors.Is(err, fleet.ErrLeft):
		said.Told = "draining"
	case errors.Is(err, context.DeadlineExceeded):
		said.Told = "deadline"
	default:
		said.Told = kind(err)
	}
	n.letGo(plan)
	n.report(said)
}

// perform is the plugin.
func (n *node) perform(ctx context.Context, call engine.Call, t task) (result, error) {
	r := result{int64(n.Client)<<40 | int64(n.Life)<<24 | n.calls.Add(1), n.holds(call.Plan).owner, call.Epoch}
	said := notice{What: called, Plan: call.Plan, Object: call.Action, Node: r.Node, Epoch: r.Epoch, Call: r.Call}
	n.report(said)
	var err error
	select {
	case <-time.After(t.Takes):
		if call.Attempt <= t.Fails {
			err = errors.New("as it was told")
		}
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	said.End = true
	n.report(said)
	return r, err
}
