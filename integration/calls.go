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

// notice is what a node of a fleet reports.
type notice struct {
	What   string    `json:"what"`
	Plan   uuid.UUID `json:"plan,omitzero"`
	Object uuid.UUID `json:"object,omitzero"` // the action
	Node   uuid.UUID `json:"node,omitzero"`
	From   uuid.UUID `json:"from,omitzero"` // the former owner
	Epoch  int64     `json:"epoch,omitempty"`
	Rounds int       `json:"rounds,omitempty"`
	Call   int64     `json:"call,omitempty"`
	// Status and Results are those that were stored.
	Status  workflow.Status `json:"status,omitempty"`
	Results []result        `json:"results,omitempty"`
	// Picture is the plan that was picked up.
	Picture *picture `json:"picture,omitempty"`

	// End is set when what was announced has ended. Told is the kind of its error, "" for nil, and Error its
	// text.
	End   bool   `json:"end,omitempty"`
	Told  string `json:"told,omitempty"`
	Error string `json:"error,omitempty"`
	// Requests, Faults and Refused count those of the process so far. Refused counts the plans that the process
	// owned when one of its updates was refused.
	Requests int `json:"requests,omitempty"`
	Faults   int `json:"faults,omitempty"`
	Refused  int `json:"refused,omitempty"`
}

// The kinds of notices.
const (
	joined    = "joined"
	beat      = "beat"
	removed   = "removed" // the record of a dead member
	created   = "created" // begin and end
	claimed   = "claimed"
	taken     = "taken"
	picked    = "picked up"
	called    = "called" // begin and end
	stored    = "stored" // the outcome of an action
	ended     = "ended"  // the outcome of a plan is stored
	left      = "left"
	stopAsked = "asked to stop" // begin and end
	problem   = "problem"
)

// picture is a plan at some time.
type picture struct {
	Status  workflow.Status          `json:"status"`
	Epoch   int64                    `json:"epoch"`
	Actions map[uuid.UUID]actionView `json:"actions"`
}

type actionView struct {
	Status  workflow.Status `json:"status"`
	Results []result        `json:"results,omitempty"`
}

// is reports whether an action has this outcome.
func (v actionView) is(status workflow.Status, results []result) bool {
	return v.Status == status && slices.Equal(v.Results, results)
}

func (v actionView) has(call int64) bool {
	return slices.ContainsFunc(v.Results, func(r result) bool { return r.Call == call })
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
	created fate
	known   bool                // whether its Create was announced
	owners  map[int64]uuid.UUID // by epoch
	usurped []int64             // epochs with two owners
	picked  []picture
	calls   map[int64]*pluginCall
	stored  []settled
	ended   []ending
	missed  bool // an owner did not find it
}

// pluginCall is a call of the plugin.
type pluginCall struct {
	action uuid.UUID
	result
	ended bool
}

// settled is an outcome of an action that its owner was told is stored.
type settled struct {
	action uuid.UUID
	epoch  int64
	actionView
	// after holds the calls of the action that were reported before, in all epochs.
	after map[int64]bool
}

// ending is an outcome of the plan that was stored.
type ending struct {
	epoch  int64
	status workflow.Status
}

// note records a notice.
func (l *calls) note(n notice) {
	if n.Plan == uuid.Nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.plans[n.Plan]
	if c == nil {
		c = &career{owners: map[int64]uuid.UUID{}, calls: map[int64]*pluginCall{}}
		l.plans[n.Plan] = c
	}
	c.note(n)
}

func (c *career) note(n notice) {
	switch n.What {
	case created:
		c.known = true
		if n.End && n.Told == "" {
			c.created = done
		}
	case picked:
		c.owned(n.Epoch, n.Node)
		c.picked = append(c.picked, *n.Picture)
	case called:
		if n.End {
			if k := c.calls[n.Call]; k != nil {
				k.ended = true
			}
			return
		}
		c.owned(n.Epoch, n.Node)
		c.calls[n.Call] = &pluginCall{action: n.Object, result: result{n.Call, n.Node, n.Epoch}}
	case stored:
		o := settled{n.Object, n.Epoch, actionView{n.Status, n.Results}, map[int64]bool{}}
		for _, k := range c.calls {
			if k.action == n.Object {
				o.after[k.Call] = true
			}
		}
		c.stored = append(c.stored, o)
	case left:
		c.missed = c.missed || n.Told == "not found"
	case ended:
		c.ended = append(c.ended, ending{n.Epoch, n.Status})
	}
}

// owned notes who works on the plan in an epoch.
func (c *career) owned(epoch int64, node uuid.UUID) {
	if other, known := c.owners[epoch]; known && other != node {
		c.usurped = append(c.usurped, epoch)
	}
	c.owners[epoch] = node
}

// The kinds of findings in a fleet, beside lost, half and leftOver.
const (
	orphan = "orphan" // a plan that nobody ended
	stale  = "stale"  // a result that was stored after the fence of a later epoch
	rerun  = "rerun"  // an action that ran after its outcome was stored
	forged = "forged" // a result that no call of the plugin explains, or an epoch with two owners
)

// judge compares the plans of the vault with the reports. A plan that could not be read is nil.
func (l *calls) judge(there map[uuid.UUID]*workflow.Plan) (found []finding) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range slices.SortedFunc(maps.Keys(l.plans), driver.NewestFirst) {
		if _, is := there[id]; !is && l.plans[id].mustBe() {
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

// mustBe reports whether the plan is certainly stored. A Create that took longer than the grace period takes
// its plan back, also when a node has begun it.
func (c *career) mustBe() bool { return c.created == done || len(c.ended) > 0 }

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
		if e.status != end.Status {
			report(lost, "epoch %d ended it as %s, but it is %s", e.epoch, e.status, end.Status)
		}
	}
	pictures := append(slices.Clone(c.picked), end)
	for i, later := range pictures {
		last := i == len(pictures)-1
		for id, a := range later.Actions {
			for _, r := range a.Results {
				c.explain(id, r, later.Epoch, last, report)
			}
		}
		for j, earlier := range c.picked {
			if i != j && (last || earlier.Epoch < later.Epoch) {
				follows(earlier, later, report)
			}
		}
		for _, o := range c.stored {
			if !(last || o.epoch < later.Epoch) {
				continue
			}
			if a := later.Actions[o.action]; !a.is(o.Status, o.Results) {
				report(lost, "action %s became %s in epoch %d, and is %s with other results in epoch %d", o.action, o.Status, o.epoch, a.Status, later.Epoch)
			}
		}
	}
	c.judgeReruns(report)
}

// explain reports a stored result that no call explains.
func (c *career) explain(action uuid.UUID, r result, epoch int64, last bool, report func(what, detail string, args ...any)) {
	k := c.calls[r.Call]
	switch {
	case k == nil || !k.ended || k.action != action || k.result != r:
		report(forged, "action %s has the result %+v, which no call returned", action, r)
	case r.Epoch > epoch || r.Epoch == epoch && !last:
		report(stale, "action %s had a result of epoch %d when epoch %d began", action, r.Epoch, epoch)
	}
}

// follows reports what can't have become of a picture in a later one.
func follows(earlier, later picture, report func(what, detail string, args ...any)) {
	for id, a := range later.Actions {
		before := earlier.Actions[id]
		for _, r := range a.Results {
			if r.Epoch < earlier.Epoch && !before.has(r.Call) {
				report(stale, "action %s has a result of epoch %d, which was stored after the fence of epoch %d", id, r.Epoch, earlier.Epoch)
			}
		}
		if before.Status.Final() && !a.is(before.Status, before.Results) {
			report(lost, "action %s was %s when epoch %d began, and is %s with other results in epoch %d", id, before.Status, earlier.Epoch, a.Status, later.Epoch)
		}
	}
}

// judgeReruns reports calls of actions whose outcomes were stored. A call of an earlier epoch is none: its
// owner may have slept between the store that begins an attempt and the call, and no fence reaches a plugin.
func (c *career) judgeReruns(report func(what, detail string, args ...any)) {
	for _, k := range c.calls {
		for _, p := range c.picked {
			if p.Actions[k.action].Status.Final() && k.Epoch >= p.Epoch {
				report(rerun, "action %s was final when epoch %d began, and ran in epoch %d", k.action, p.Epoch, k.Epoch)
			}
		}
		for _, o := range c.stored {
			if o.action == k.action && (k.Epoch > o.epoch || k.Epoch == o.epoch && !o.after[k.Call]) {
				report(rerun, "action %s was stored as %s in epoch %d, and ran again in epoch %d", k.action, o.Status, o.epoch, k.Epoch)
			}
		}
	}
}

// count returns how many calls the plugin had, and how many of them were of actions that had run before.
func (l *calls) count() (all, again int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.plans {
		actions := map[uuid.UUID]bool{}
		for _, k := range c.calls {
			actions[k.action] = true
		}
		all, again = all+len(c.calls), again+len(c.calls)-len(actions)
	}
	return all, again
}
