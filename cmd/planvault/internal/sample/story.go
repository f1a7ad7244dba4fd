package sample

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"slices"
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

// idAt returns the nth ID of a time. Its last digits differ from those of other times, as random ones do.
func idAt(at time.Time, n uint32) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:], uint64(at.UnixMilli())<<16)
	binary.BigEndian.PutUint32(id[12:], crc32.ChecksumIEEE(id[:6])+n)
	id[6], id[8] = 0x70, 0x80 // version and variant of RFC 9562
	return id
}

// play returns the plan of a story that was submitted at a time, as it was at the time until: nothing has happened after
// it. A plan without an owner that is not final would be one of an engine without a fleet.
func (s story) play(at, until time.Time, owner uuid.UUID) *workflow.Plan {
	plan := &workflow.Plan{Name: s.name, Descr: s.descr, SubmitTime: at, Owner: owner}
	if s.group != "" {
		plan.GroupID = uuid.NewSHA1(uuid.NameSpaceURL, []byte(s.group))
	}
	if owner != uuid.Nil {
		plan.Epoch = 1
	}
	start := at.Add(time.Second)
	now, ok := start, true
	for n, b := range s.blocks {
		if s.stop && n == 1 {
			until = now.Add(10 * time.Second)
		}
		out := &workflow.Block{Name: b.name, Concurrency: len(b.sequences), State: ended(now, now, true)}
		for _, q := range b.sequences {
			sequence := q.play(now, ok)
			out.Sequences = append(out.Sequences, sequence)
			if sequence.State.Status == workflow.Failed {
				out.State.Status, plan.Reason = workflow.Failed, workflow.BlockFailed
			}
			if sequence.State.End.After(out.State.End) {
				out.State.End = sequence.State.End
			}
		}
		if plan.Blocks = append(plan.Blocks, out); ok {
			now, ok = out.State.End, out.State.Status == workflow.Completed
		} else {
			out.State = workflow.State{}
		}
	}
	plan.State = ended(start, now, ok)
	s.cut(plan, until)
	plan.RuntimeUpdate = plan.State.Start
	return plan
}

func ended(start, end time.Time, ok bool) workflow.State {
	if ok {
		return workflow.State{Status: workflow.Completed, Start: start, End: end}
	}
	return workflow.State{Status: workflow.Failed, Start: start, End: end}
}

// play returns a sequence that begins at a time, unless something before it failed.
func (q sequence) play(at time.Time, begins bool) *workflow.Sequence {
	out := &workflow.Sequence{Name: q.name}
	now, ok := at, begins
	for _, a := range q.acts {
		action := &workflow.Action{
			Name: a.name, Plugin: a.plugin, Timeout: time.Hour, Retries: 2,
			Req: json.RawMessage(fmt.Sprintf(`{"target":%q,"step":%q}`, q.name, a.name)),
		}
		if out.Actions = append(out.Actions, action); !ok {
			continue
		}
		start := now
		attempt := func(t workflow.Attempt) {
			t.Start, t.End = now, now.Add(a.takes)
			now, action.Attempts = t.End, append(action.Attempts, t)
		}
		for _, message := range a.failures {
			attempt(workflow.Attempt{Err: &plugins.Error{Code: 503, Message: message}})
		}
		if ok = !a.broken; ok {
			attempt(workflow.Attempt{Resp: json.RawMessage(`{"ok":true}`)})
		}
		action.State = ended(start, now, ok)
	}
	if begins {
		out.State = ended(at, now, ok)
	}
	return out
}

// cut takes back what happens in a plan after a time, and gives all objects their IDs. A story that is stopped ends there.
func (s story) cut(plan *workflow.Plan, until time.Time) {
	n := uint32(0)
	for o := range workflow.Walk(plan) {
		h := o.Header()
		*h.ID, *h.PlanID = idAt(plan.SubmitTime, n), idAt(plan.SubmitTime, 0)
		n++
		switch state := h.State; {
		case state.Start.IsZero(), state.Start.After(until):
			*state = workflow.State{}
		case state.End.After(until) && s.stop:
			state.Status, state.End = workflow.Stopped, until
		case state.End.After(until):
			state.Status, state.End = workflow.Running, time.Time{}
		}
		if a, ok := o.(*workflow.Action); ok {
			a.Attempts = slices.DeleteFunc(a.Attempts, func(t workflow.Attempt) bool { return t.End.After(until) })
		}
	}
}
