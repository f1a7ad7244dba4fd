package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// progress prints a line for each transition of a plan and of an action. It is safe for concurrent use.
type progress struct {
	mu    sync.Mutex
	names map[uuid.UUID]string // of the plans that were picked up, and of their actions
	last  map[uuid.UUID]string // what was printed of each
	open  map[uuid.UUID]bool   // plans that are not Completed

	joined chan uuid.UUID // receives the ID of the first node
}

func newProgress() *progress {
	return &progress{names: map[uuid.UUID]string{}, last: map[uuid.UUID]string{}, open: map[uuid.UUID]bool{}, joined: make(chan uuid.UUID, 1)}
}

func (p *progress) observer() engine.Observer {
	return engine.Observer{
		Joined: func(_ context.Context, e engine.JoinedEvent) {
			select {
			case p.joined <- e.Node:
			default: // the process was fenced and has joined again
			}
		},
		PickedUp: p.pickedUp,
		Changed:  p.changed,
		Left: func(_ context.Context, e engine.LeftEvent) {
			p.mu.Lock()
			defer p.mu.Unlock()
			say("%s is left as it is stored: %v", p.names[e.Plan], e.Err)
			if errors.Is(e.Err, fleet.ErrFenced) {
				delete(p.open, e.Plan) // another node has it
			}
		},
		Problem: func(_ context.Context, e engine.ProblemEvent) { say("problem: %v", e.Err) },
		Draining: func(context.Context, engine.DrainingEvent) {
			if p.busy() {
				say("interrupted: waiting for running actions; a second interrupt ends the process now")
			}
		},
	}
}

// say prints a line with the time.
func say(format string, args ...any) {
	fmt.Printf(time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

func (p *progress) pickedUp(_ context.Context, e engine.PickedUpEvent) {
	plan := e.Plan
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[plan.ID], p.names[plan.ID] = true, plan.Name
	var all, done, running int
	for o, path := range workflow.Paths(plan) {
		a, ok := o.(*workflow.Action)
		if !ok {
			continue
		}
		all++
		p.names[a.ID] = plan.Name + ": " + path
		switch {
		case a.State.Status.Final():
			done++
		case a.State.Status == workflow.Running:
			running++
		}
	}
	say("picked up %s, epoch %d: %d of %d actions are done, %d were running and run again", plan.Name, plan.Epoch, done, all, running)
}

func (p *progress) changed(_ context.Context, e engine.ChangedEvent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	id, status := *e.Object.Header().ID, e.Object.Header().State.Status
	text := status.String()
	switch o := e.Object.(type) {
	case *workflow.Action:
		if n := len(o.Attempts); n > 0 && o.Attempts[n-1].Err != nil {
			text += ", " + o.Attempts[n-1].Err.Error()
		}
	case *workflow.Plan:
		p.open[id] = status != workflow.Completed
	}
	if name := p.names[id]; name != "" && p.last[id] != text { // another round of a continuous check says nothing new
		p.last[id] = text
		say("%s: %s", name, text)
	}
}

// waitsFor says, when it changes, for which plans this process waits and has no work itself.
func (p *progress) waitsFor(plans []storage.ListResult, nodes []storage.Member) {
	if p.busy() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, plan := range plans {
		who := "which no node runs yet"
		if i := slices.IndexFunc(nodes, func(m storage.Member) bool { return m.ID == plan.Owner }); i >= 0 {
			who = "which node " + nodes[i].Name + " runs"
		} else if plan.Owner != uuid.Nil {
			who = "whose node is gone"
		}
		if p.last[plan.ID] != who {
			p.last[plan.ID] = who
			say("waiting for %s, %s", plan.Name, who)
		}
	}
}

// busy reports whether this process has a plan that is not Completed.
func (p *progress) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, open := range p.open {
		if open {
			return true
		}
	}
	return false
}

// err returns an error if a plan is not Completed.
func (p *progress) err() error {
	if p.busy() {
		return errors.New("not all plans are Completed")
	}
	return nil
}
