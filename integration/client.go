package main

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// client does random operations on a vault that it shares with other clients.
//
// Several clients may work on one plan, like engines that take over from each other. They follow the
// contract: each update states the version that was read, a final sub-object is not written again, and a plan
// ends after all its sub-objects.
type client struct {
	*worker
	rand   *rand.Rand
	stamps int64
	// mine is the plan that the client works on; nil if there is none.
	mine *workflow.Plan
}

func newClient(w *worker) *client {
	return &client{worker: w, rand: rand.New(rand.NewPCG(w.Seed, 0))}
}

// run does operations until stdin or the context ends. It reports errors of operations and otherwise ignores them.
func (c *client) run(ctx context.Context, stdin *json.Decoder) error {
	go func() {
		_ = stdin.Decode(new(message)) // nothing comes: it ends when the soak closes the pipe or dies
		c.stop()
	}()
	c.do(message{What: "recovery"}, c.recover)
	for ctx.Err() == nil {
		switch {
		case c.chance(0.02):
			c.do(message{What: "recovery"}, c.recover)
		case c.chance(0.05):
			c.do(message{What: "list"}, func(ctx context.Context) error {
				_, err := storage.Collect(c.vault.List(ctx, c.rand.IntN(20)))
				return err
			})
		case c.mine != nil:
			c.goOn()
		case c.chance(0.4):
			c.takeOver()
		default:
			c.tidy()
			c.create()
		}
	}
	return nil
}

func (c *client) recover(ctx context.Context) error { return c.vault.Recovery(ctx) }

// do makes a call within a time that is mostly enough for anything, and sometimes not.
func (c *client) do(m message, call func(ctx context.Context) error) error {
	limit := 10 * time.Second
	if c.chance(0.03) {
		limit = time.Duration(c.rand.IntN(30)) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return c.call(ctx, m, call)
}

func (c *client) chance(p float64) bool { return c.rand.Float64() < p }

func (c *client) create() {
	plan := c.shape()
	driver.Complete(plan)
	m := message{What: created, Plan: plan.ID, Objects: objectsOf(plan)}
	if c.do(m, func(ctx context.Context) error { return c.vault.Create(ctx, plan) }) == nil {
		c.mine = plan
	}
}

// objectsOf returns the IDs of a plan and its sub-objects.
func objectsOf(plan *workflow.Plan) (ids []uuid.UUID) {
	for o := range workflow.Walk(plan) {
		ids = append(ids, *o.Header().ID)
	}
	return ids
}

func (c *client) shape() *workflow.Plan {
	switch c.rand.IntN(6) {
	case 0:
		return &workflow.Plan{Name: "empty"}
	case 1:
		return plantest.Full()
	case 2:
		return plantest.Random(c.rand.Uint64())
	case 3:
		return plantest.Sized(1, 2, 3+c.rand.IntN(10))
	}
	return plantest.Small()
}

// goOn makes one update of the client's plan.
func (c *client) goOn() {
	plan := c.mine
	var open []workflow.Object
	for _, o := range workflow.Parts(plan) {
		if !o.Header().State.Status.Final() {
			open = append(open, o)
		}
	}
	switch status := plan.State.Status; {
	case status.Final(), c.chance(0.02):
		c.mine = nil // left to other clients
	case status == workflow.NotStarted || c.chance(0.05):
		c.update(plan, workflow.Running)
	case len(open) == 0:
		c.update(plan, workflow.Completed+workflow.Status(c.rand.IntN(3)))
	default:
		c.update(open[c.rand.IntN(len(open))], workflow.Running+workflow.Status(c.rand.IntN(3)))
	}
}

// update gives an object of the client's plan a new state. After a failure the plan is read again.
func (c *client) update(o workflow.Object, status workflow.Status) {
	c.stamps++
	h := o.Header()
	to := newStamp(c.number(c.stamps), status)
	m := message{What: updated, Plan: c.mine.ID, Object: *h.ID, From: stampOf(o), To: to}
	h.State.Status, h.State.Start = status, to.time()
	if action, ok := o.(*workflow.Action); ok {
		action.Attempts = append(action.Attempts, workflow.Attempt{Resp: &plantest.Response{Text: "soak"}, Start: h.State.Start})
	}
	if c.do(m, func(ctx context.Context) error { return storage.Update(ctx, c.vault, o) }) != nil {
		c.read(c.mine.ID)
	}
}

// read reads a plan and makes it the client's.
func (c *client) read(id uuid.UUID) {
	c.mine = nil
	_ = c.do(message{What: "read", Plan: id}, func(ctx context.Context) (err error) {
		c.mine, err = c.vault.Read(ctx, id)
		return err
	})
}

// takeOver reads an open plan of any client.
func (c *client) takeOver() {
	found := c.search(storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}, Limit: 20})
	if len(found) > 0 {
		c.read(found[c.rand.IntN(len(found))].ID)
	}
}

// age is how old a plan must be to be deleted. A duplicate of a request of its Create could otherwise arrive
// after the Delete and bring a blob back.
const age = 3 * time.Second

// tidy deletes some plans, mostly final ones, to limit their number.
func (c *client) tidy() {
	f := storage.Filters{ByStatus: []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped}, Before: time.Now().Add(-age), Limit: 30}
	if c.chance(0.2) {
		f.ByStatus = []workflow.Status{workflow.NotStarted, workflow.Running}
	}
	found := c.search(f)
	if len(found) == 0 {
		return
	}
	for range 1 + c.rand.IntN(3) {
		id := found[c.rand.IntN(len(found))].ID
		_ = c.do(message{What: deleted, Plan: id}, func(ctx context.Context) error { return c.vault.Delete(ctx, id) })
	}
}

func (c *client) search(f storage.Filters) (found []storage.ListResult) {
	_ = c.do(message{What: "search"}, func(ctx context.Context) (err error) {
		found, err = storage.Collect(c.vault.Search(ctx, f))
		return err
	})
	return found
}
