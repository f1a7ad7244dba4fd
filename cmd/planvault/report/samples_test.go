package report_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// began is when the plans of the tests start.
var began = time.Date(2026, 11, 20, 14, 3, 7, 0, time.UTC)

// rollout returns the plan of a release that has run on some hosts of each region. It is the same each time.
func rollout(regions, hosts int) *workflow.Plan {
	s := &story{now: began}
	p := &workflow.Plan{
		Name: "release checkout 4.12.0", Descr: "Build it, try it on a canary, roll it out to all regions.",
		Meta:       []byte(`{"ticket":"CHG-20931","requestedBy":"maria"}`),
		SubmitTime: began.Add(-1200 * time.Millisecond), Epoch: 2,
		BypassChecks: s.bypass("released already?"),
		PreChecks:    s.checks("no incident is open", "error budget is left"),
	}
	p.Blocks = append(p.Blocks, s.block("build", 1, s.sequence("binary",
		s.action("compile", "command", 41*time.Second), s.action("unit tests", "command", 73*time.Second), s.action("sign", "kms", 1300*time.Millisecond))))
	p.Blocks = append(p.Blocks, s.block("canary", 1, s.sequence("canary-1", s.action("install", "deploy", 9*time.Second),
		s.action("warm the cache", "command", 12*time.Second, "the cache is cold", "the cache is cold"), s.action("watch the errors", "metrics", 60*time.Second))))
	for r := range regions {
		s.region(p, []string{"eu-west", "us-east", "asia-south", "us-west", "eu-north", "brazil"}[r%6], hosts, r == regions-1)
	}
	p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
		{Name: "announce", When: workflow.OnSuccess, Actions: []*workflow.Action{{Name: "tell everybody", Plugin: "chat"}}},
		{Name: "roll back", When: workflow.OnFailure, FailElement: true, Actions: []*workflow.Action{s.action("page the operator", "pager", 700*time.Millisecond)}},
	}}
	for _, b := range p.DeferredActions.Batches[1:] {
		s.group(b)
	}
	s.group(p.DeferredActions)
	s.finish(p)
	return p
}

// story makes things happen one after the other.
type story struct {
	now time.Time
	n   uint64
}

func (s *story) id() uuid.UUID {
	s.n++
	id := workflow.NewV7At(began.Add(-2 * time.Second))
	binary.BigEndian.PutUint64(id[8:], 0x8000_0000_0000_0000|s.n)
	id[6], id[7] = 0x70, 0
	return id
}

func (s *story) action(name, plugin string, took time.Duration, failures ...string) *workflow.Action {
	a := &workflow.Action{
		Name: name, Plugin: plugin, Timeout: 5 * time.Minute, Retries: 3,
		Req:   json.RawMessage(fmt.Sprintf(`{"target":%q,"version":"4.12.0","options":{"force":false,"batch":[1,2,3]}}`, name)),
		State: workflow.State{Status: workflow.Completed, Start: s.now},
	}
	for _, f := range failures {
		start := s.now
		s.now = s.now.Add(took / 2)
		a.Attempts = append(a.Attempts, workflow.Attempt{Start: start, End: s.now, Err: &plugins.Error{
			Code: 503, Message: f, Wrapped: &plugins.Error{Message: "dial tcp 10.2.0.17:8443: connect: connection refused"},
		}})
		s.now = s.now.Add(2 * time.Second)
	}
	start := s.now
	s.now = s.now.Add(took)
	a.Attempts = append(a.Attempts, workflow.Attempt{Start: start, End: s.now, Resp: json.RawMessage(`{"ok":true,"tookMS":` + fmt.Sprint(took.Milliseconds()) + `}`)})
	a.State.End = s.now
	return a
}

// fail makes the last attempt of an action fail, and the action.
func fail(a *workflow.Action, message string) *workflow.Action {
	a.State.Status = workflow.Failed
	t := &a.Attempts[len(a.Attempts)-1]
	t.Resp, t.Err = nil, &plugins.Error{Code: 71, Message: message, Permanent: true}
	return a
}

func (s *story) checks(names ...string) *workflow.Checks {
	c := new(workflow.Checks)
	start, end := s.now, s.now
	for i, name := range names {
		s.now = start
		c.Actions = append(c.Actions, s.action(name, "http", time.Duration(300+200*i)*time.Millisecond))
		end = later(end, s.now)
	}
	s.now = end
	s.group(c)
	return c
}

func (s *story) bypass(name string) *workflow.Checks {
	c := s.checks(name)
	c.State.Status = workflow.Failed
	fail(c.Actions[0], "404 Not Found")
	return c
}

func (s *story) sequence(name string, actions ...*workflow.Action) *workflow.Sequence {
	q := &workflow.Sequence{Name: name, Actions: actions}
	s.group(q)
	return q
}

func (s *story) block(name string, concurrency int, sequences ...*workflow.Sequence) *workflow.Block {
	b := &workflow.Block{Name: name, Concurrency: concurrency, Sequences: sequences}
	s.group(b)
	s.now = s.now.Add(time.Second)
	return b
}

// region rolls out to the hosts of a region, four at a time. In the last region a host fails, and then the block.
func (s *story) region(p *workflow.Plan, name string, hosts int, last bool) {
	start := s.now
	ends := [4]time.Time{start, start, start, start}
	var sequences []*workflow.Sequence
	for h := range hosts {
		s.now = ends[h%4]
		pause := time.Duration(h*37%11) * time.Second
		q := s.sequence(fmt.Sprintf("%s-%02d", name, h+1), s.action("drain", "balancer", 5*time.Second+pause), s.action("install", "deploy", 14*time.Second))
		switch {
		case last && h == hosts-1:
			q.Actions = append(q.Actions, fail(s.action("probe", "http", 6*time.Second, "503 Service Unavailable", "503 Service Unavailable"),
				"the new version does not answer: 503 Service Unavailable\nbody: upstream connect error or disconnect/reset before headers"),
				&workflow.Action{Name: "undrain", Plugin: "balancer", Timeout: time.Minute})
		case h%7 == 3:
			q.Actions = append(q.Actions, s.action("probe", "http", 4*time.Second, "503 Service Unavailable"), s.action("undrain", "balancer", 2*time.Second))
			q.Actions[1].Attempts = append([]workflow.Attempt{{Start: q.Actions[1].State.Start}}, q.Actions[1].Attempts...)
			q.Actions[1].Attempts[1].Start = q.Actions[1].State.Start.Add(6 * time.Second)
		default:
			q.Actions = append(q.Actions, s.action("probe", "http", 3*time.Second), s.action("undrain", "balancer", 2*time.Second))
		}
		s.group(q)
		sequences = append(sequences, q)
		ends[h%4] = s.now
	}
	for _, e := range ends {
		s.now = later(s.now, e)
	}
	b := s.block("roll out to "+name, 4, sequences...)
	b.ContChecks = &workflow.Checks{Delay: 20 * time.Second, Actions: []*workflow.Action{s.rounds("errors stay below 0.1%", start, s.now)}}
	s.group(b.ContChecks)
	p.Blocks = append(p.Blocks, b)
}

// rounds returns the action of continuous checks, which has the last ten of its attempts.
func (s *story) rounds(name string, from, to time.Time) *workflow.Action {
	a := &workflow.Action{Name: name, Plugin: "metrics", State: workflow.State{Status: workflow.Completed, Start: from, End: to}}
	for t := from; t.Before(to); t = t.Add(20 * time.Second) {
		a.Attempts = append(a.Attempts, workflow.Attempt{Start: t, End: t.Add(400 * time.Millisecond), Resp: json.RawMessage(`{"rate":0.0004}`)})
	}
	a.Attempts = a.Attempts[max(0, len(a.Attempts)-10):]
	return a
}

// group gives an object the times of what is below it, and the status of the worst.
func (s *story) group(o workflow.Object) {
	state := o.Header().State
	*state = workflow.State{Status: workflow.Completed}
	var p workflow.Plan
	switch o := o.(type) {
	case *workflow.Block:
		p.Blocks = []*workflow.Block{o}
	case *workflow.Sequence:
		p.Blocks = []*workflow.Block{{Sequences: []*workflow.Sequence{o}}}
	case *workflow.Checks:
		p.PreChecks = o
	case *workflow.DeferBatch:
		p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{o}}
	case *workflow.DeferredActions:
		p.DeferredActions = o
	}
	for _, part := range workflow.Parts(&p) {
		if a, ok := part.(*workflow.Action); ok && !a.State.Start.IsZero() {
			if state.Start.IsZero() || a.State.Start.Before(state.Start) {
				state.Start = a.State.Start
			}
			state.End = later(state.End, a.State.End)
			if a.State.Status == workflow.Failed {
				state.Status = workflow.Failed
			}
		}
	}
}

// finish gives the plan its end, and everything its IDs.
func (s *story) finish(p *workflow.Plan) {
	p.Owner = uuid.MustParse("019a9f0c-7c1e-7d2a-9b44-3c5f0a6e1d20")
	for o := range workflow.Walk(p) {
		*o.Header().ID = s.id()
		*o.Header().PlanID = p.ID
	}
	p.State = workflow.State{Status: workflow.Failed, Start: began, End: s.now}
	p.Reason = workflow.BlockFailed
	p.RuntimeUpdate = s.now
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
