package main

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// picture is a plan at some time.
type picture struct {
	Status  workflow.Status
	Epoch   int64
	Actions map[uuid.UUID]actionView
}

type actionView struct {
	Status  workflow.Status
	Results []result
}

// is reports whether an action has this outcome.
func (v actionView) is(status workflow.Status, results []result) bool {
	return v.Status == status && slices.Equal(v.Results, results)
}

func pictureOf(p *workflow.Plan) picture {
	pic := picture{p.State.Status, p.Epoch, map[uuid.UUID]actionView{}}
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok {
			pic.Actions[a.ID] = actionView{a.State.Status, resultsOf(a)}
		}
	}
	return pic
}

// resultsOf returns the results of the attempts at an action. An interrupted attempt has none.
func resultsOf(a *workflow.Action) (all []result) {
	for _, t := range a.Attempts {
		if r, ok := t.Resp.(result); ok {
			all = append(all, r)
		}
	}
	return all
}

// calls is the ledger of a fleet: what its nodes reported.
type calls struct {
	mu    sync.Mutex
	plans map[uuid.UUID]*career
}

func newCalls() *calls { return &calls{plans: map[uuid.UUID]*career{}} }

// career is what was reported of a plan. No order of reports of different processes counts, because each has a
// pipe of its own; epochs order them.
type career struct {
	created bool // its Create returned nil
	known   bool // its Create was announced
	missed  bool // an owner did not find it

	owners  map[int64]uuid.UUID // by epoch
	usurped []int64             // epochs with two owners
	picked  []picture
	calls   map[int64]message // of the plugin; with Begin, until they end
	stored  []outcome         // of actions
	ended   []message         // outcomes of the plan
}

// outcome is that of an action. Its owner was told that it is stored.
type outcome struct {
	message
	after map[int64]message // the calls that were reported before
}

// note records a message.
func (l *calls) note(m message) {
	if m.Plan == uuid.Nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.plans[m.Plan]
	if c == nil {
		c = &career{owners: map[int64]uuid.UUID{}, calls: map[int64]message{}}
		l.plans[m.Plan] = c
	}
	switch m.What {
	case created:
		c.known = true
		c.created = c.created || m.fate() == done
	case picked:
		c.owned(m.Epoch, m.Node)
		c.picked = append(c.picked, *m.Picture)
	case called:
		if _, begun := c.calls[m.Call]; begun || m.Begin {
			c.owned(m.Epoch, m.Node)
			c.calls[m.Call] = m
		}
	case stored:
		c.stored = append(c.stored, outcome{m, maps.Clone(c.calls)})
	case left:
		c.missed = c.missed || m.Told == "not found"
	case ended:
		c.ended = append(c.ended, m)
	}
}

// owned notes who works on the plan in an epoch.
func (c *career) owned(epoch int64, node uuid.UUID) {
	if other, known := c.owners[epoch]; known && other != node {
		c.usurped = append(c.usurped, epoch)
	}
	c.owners[epoch] = node
}

// compare compares the plans of the vault with the reports. A plan is certainly stored if its Create returned nil or
// if it ended: a Create that took longer than the grace period takes its plan back, also when a node has begun it.
func (l *calls) compare(there map[uuid.UUID]*workflow.Plan) (found []finding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.SortedFunc(maps.Keys(l.plans), driver.NewestFirst) {
		c := l.plans[id]
		if _, is := there[id]; !is && (c.created || len(c.ended) > 0) {
			found = append(found, finding{lost, id, "its Create returned nil, or a node ended it, but it is not stored"})
		}
	}
	for _, id := range slices.SortedFunc(maps.Keys(there), driver.NewestFirst) {
		c := l.plans[id]
		switch p := there[id]; {
		case c == nil || !c.known:
			found = append(found, finding{leftOver, id, "it is stored, but no node created it"})
		case p != nil:
			c.judge(pictureOf(p), func(what, detail string, args ...any) {
				found = append(found, finding{what, id, fmt.Sprintf(detail, args...)})
			})
		}
	}
	return found
}

// judge reports how the plan as it was read at the end contradicts what was reported.
//
// An epoch begins with a fence, and what its owner picked up is what the fence stored. A result of an earlier
// epoch that appears later, and not in that picture, was therefore stored after the fence.
func (c *career) judge(end picture, report func(what, detail string, args ...any)) {
	if !end.Status.Final() {
		report(orphan, "it is %s in epoch %d", end.Status, end.Epoch)
	}
	if c.missed {
		report(half, "an owner did not find it")
	}
	for _, epoch := range c.usurped {
		report(forged, "epoch %d has two owners", epoch)
	}
	for epoch, node := range c.owners {
		if epoch > end.Epoch {
			report(lost, "node %s owned it in epoch %d, but it ended in epoch %d", node, epoch, end.Epoch)
		}
	}
	for _, e := range c.ended {
		if e.Status != end.Status {
			report(lost, "epoch %d ended it as %s, but it is %s", e.Epoch, e.Status, end.Status)
		}
	}
	for _, at := range c.picked {
		c.explain(at, false, report)
	}
	c.explain(end, true, report)
	for _, k := range c.calls {
		c.judgeCall(k, report)
	}
}

// explain reports what no report explains in a picture: results that no call returned, results of epochs that had not
// begun, and what can't have become of earlier pictures and outcomes. The last picture is that of the end.
func (c *career) explain(at picture, last bool, report func(what, detail string, args ...any)) {
	earlier := func(epoch int64) bool { return last || epoch < at.Epoch }
	for id, a := range at.Actions {
		for _, r := range a.Results {
			k, known := c.calls[r.Call]
			switch {
			case !known || k.Begin || k.Object != id || r != result{k.Call, k.Node, k.Epoch}:
				report(forged, "action %s has the result %+v, which no call returned", id, r)
			case r.Epoch > at.Epoch || r.Epoch == at.Epoch && !last:
				report(stale, "action %s had a result of epoch %d when epoch %d began", id, r.Epoch, at.Epoch)
			}
		}
		for _, p := range c.picked {
			if !earlier(p.Epoch) {
				continue
			}
			before := p.Actions[id]
			for _, r := range a.Results {
				if r.Epoch < p.Epoch && !slices.Contains(before.Results, r) {
					report(stale, "action %s has a result of epoch %d, which was stored after the fence of epoch %d", id, r.Epoch, p.Epoch)
				}
			}
			if before.Status.Final() && !a.is(before.Status, before.Results) {
				report(lost, "action %s was %s when epoch %d began, and is %s with other results in epoch %d", id, before.Status, p.Epoch, a.Status, at.Epoch)
			}
		}
	}
	for _, o := range c.stored {
		if a := at.Actions[o.Object]; earlier(o.Epoch) && !a.is(o.Status, o.Results) {
			report(lost, "action %s became %s in epoch %d, and is %s with other results in epoch %d", o.Object, o.Status, o.Epoch, a.Status, at.Epoch)
		}
	}
}

// judgeCall reports a call of an action whose outcome was stored. A call of an earlier epoch is allowed: its
// owner may have slept between the store that begins an attempt and the call, and no fence reaches a plugin.
func (c *career) judgeCall(k message, report func(what, detail string, args ...any)) {
	for _, p := range c.picked {
		if p.Actions[k.Object].Status.Final() && k.Epoch >= p.Epoch {
			report(rerun, "action %s was final when epoch %d began, and ran in epoch %d", k.Object, p.Epoch, k.Epoch)
		}
	}
	for _, o := range c.stored {
		_, before := o.after[k.Call]
		if o.Object == k.Object && (k.Epoch > o.Epoch || k.Epoch == o.Epoch && !before) {
			report(rerun, "action %s was stored as %s in epoch %d, and ran again in epoch %d", k.Object, o.Status, o.Epoch, k.Epoch)
		}
	}
}
