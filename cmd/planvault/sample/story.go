package sample

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// story is what happens in a plan, if nothing ends it.
type story struct {
	name, descr, group string
	blocks             []block
	stop               bool // somebody stops it in its second block
}

type block struct {
	name      string
	sequences []sequence // all at once
}

type sequence struct {
	name string
	acts acts // one after the other
}

type acts []act

// act is what happens in an action: the attempts that fail, each as long as the whole, and, unless it is broken, one
// that succeeds.
type act struct {
	name, plugin string
	takes        time.Duration
	failures     []string
	broken       bool
}

func (s story) block(name string, sequences ...sequence) story {
	s.blocks = append(s.blocks, block{name, sequences})
	return s
}

func (s story) stopped() story {
	s.stop = true
	return s
}

// idAt returns the nth ID of a time.
func idAt(at time.Time, n uint64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:], uint64(at.UnixMilli())<<16)
	binary.BigEndian.PutUint64(id[8:], n)
	id[6], id[8] = 0x70, 0x80 // version and variant of RFC 9562
	return id
}

// player makes a plan of a story, as it is at the time until.
type player struct {
	plan  *workflow.Plan
	until time.Time
	ids   uint64
}

// play returns the plan of a story that was submitted at a time, as it was at the time until: nothing has happened after
// it. A plan without an owner that is not final would be one of an engine without a fleet.
func (s story) play(at, until time.Time, owner uuid.UUID) *workflow.Plan {
	p := &player{plan: &workflow.Plan{Name: s.name, Descr: s.descr, SubmitTime: at, Owner: owner}, until: until}
	if s.group != "" {
		p.plan.GroupID = uuid.NewSHA1(uuid.NameSpaceURL, []byte(s.group))
	}
	if owner != uuid.Nil {
		p.plan.Epoch = 1
	}
	p.name(p.plan, at)
	now, status := at.Add(time.Second), workflow.Completed
	for n, b := range s.blocks {
		if s.stop && n == 1 {
			p.until, status = now.Add(10*time.Second), workflow.Stopped
		}
		var ok bool
		now, ok = p.block(b, now, status != workflow.Failed)
		if !ok && status == workflow.Completed {
			status, p.plan.Reason = workflow.Failed, workflow.BlockFailed
		}
	}
	p.plan.State = p.state(at.Add(time.Second), now, status)
	if s.stop {
		stopAll(p.plan, p.until)
	}
	p.plan.RuntimeUpdate = p.plan.State.Start
	return p.plan
}

// stopAll ends all that runs.
func stopAll(plan *workflow.Plan, at time.Time) {
	for o := range workflow.Walk(plan) {
		if state := o.Header().State; state.Status == workflow.Running {
			state.Status, state.End = workflow.Stopped, at
		}
	}
}

// name gives an object its IDs.
func (p *player) name(o workflow.Object, at time.Time) {
	h := o.Header()
	*h.ID = idAt(at, p.ids)
	*h.PlanID = p.plan.ID
	p.ids++
}

// state returns the state of what starts and ends at a time.
func (p *player) state(start, end time.Time, final workflow.Status) workflow.State {
	switch {
	case start.After(p.until):
		return workflow.State{Status: workflow.NotStarted}
	case end.After(p.until):
		return workflow.State{Status: workflow.Running, Start: start}
	}
	return workflow.State{Status: final, Start: start, End: end}
}

// never is later than all that happens.
func (p *player) never() time.Time { return p.until.Add(time.Hour) }

// block adds a block that begins at a time, unless an earlier one failed. It returns when it ends, and whether all went
// well.
func (p *player) block(b block, at time.Time, begins bool) (end time.Time, ok bool) {
	out := &workflow.Block{Name: b.name, Concurrency: len(b.sequences)}
	p.plan.Blocks = append(p.plan.Blocks, out)
	p.name(out, p.plan.SubmitTime)
	start := at
	if !begins {
		start = p.never()
	}
	end, ok = start, true
	for _, q := range b.sequences {
		sequence := &workflow.Sequence{Name: q.name}
		out.Sequences = append(out.Sequences, sequence)
		p.name(sequence, p.plan.SubmitTime)
		now, fine := start, true
		for _, a := range q.acts {
			now, fine = p.act(sequence, a, now, fine)
		}
		sequence.State = p.state(start, now, finalOf(fine))
		ok = ok && fine
		if now.After(end) {
			end = now
		}
	}
	out.State = p.state(start, end, finalOf(ok))
	if !begins {
		return at, true
	}
	return end, ok
}

func finalOf(ok bool) workflow.Status {
	if ok {
		return workflow.Completed
	}
	return workflow.Failed
}

// act adds an action. It returns when it ends, and whether it went well.
func (p *player) act(q *workflow.Sequence, a act, at time.Time, begins bool) (end time.Time, ok bool) {
	out := &workflow.Action{
		Name: a.name, Plugin: a.plugin, Timeout: time.Hour, Retries: 2,
		Req: json.RawMessage(fmt.Sprintf(`{"target":%q,"step":%q}`, q.Name, a.name)),
	}
	q.Actions = append(q.Actions, out)
	p.name(out, p.plan.SubmitTime)
	if !begins {
		return at, false
	}
	end = at
	attempt := func(t workflow.Attempt) {
		t.Start, t.End = end, end.Add(a.takes)
		if end = t.End; !end.After(p.until) {
			out.Attempts = append(out.Attempts, t)
		}
	}
	for _, message := range a.failures {
		attempt(workflow.Attempt{Err: &plugins.Error{Code: 503, Message: message}})
	}
	if !a.broken {
		attempt(workflow.Attempt{Resp: json.RawMessage(`{"ok":true}`)})
	}
	out.State = p.state(at, end, finalOf(!a.broken))
	return end, !a.broken
}
