package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// join joins a node to the fleet of a stage. It leaves when the test ends.
func (s *stage) join(t *testing.T, name string) *fleet.Node {
	t.Helper()
	n, err := fleet.Join(t.Context(), s.vault, fleet.Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Leave(context.WithoutCancel(t.Context())) })
	return n
}

// claimed returns a plan that a node owns. Its second action is Running.
func (s *stage) claimed(t *testing.T, n *fleet.Node, name string) *workflow.Plan {
	t.Helper()
	time.Sleep(time.Second) // plans have an order
	p := plantest.Sized(1, 1, 3)
	p.Name, p.Blocks[0].Name, p.Blocks[0].Sequences[0].Name = name, "europe", "canary"
	actions := p.Blocks[0].Sequences[0].Actions
	actions[0].Name, actions[1].Name, actions[2].Name = "drain", "restart", "verify"
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(s.vault.Create(t.Context(), p))
	if n == nil {
		p.State.Status, p.State.Start = workflow.Running, time.Now().UTC()
		ok(s.vault.UpdatePlan(t.Context(), p))
	} else {
		ok(n.Claim(t.Context(), p))
	}
	for i, status := range []workflow.Status{workflow.Completed, workflow.Running} {
		a := actions[i]
		a.State.Status, a.State.Start, a.Attempts = status, time.Now().UTC(), []workflow.Attempt{{Start: time.Now().UTC()}}
		if status.Final() {
			a.State.End, a.Attempts[0].End, a.Attempts[0].Resp = a.State.Start, a.State.Start, &plantest.Response{Text: "drained"}
		}
		ok(s.vault.UpdateAction(t.Context(), a))
	}
	return p
}

// orphaned returns a plan whose owner has left. It was in the fleet long enough for others to see it.
func (s *stage) orphaned(t *testing.T, name string) *workflow.Plan {
	t.Helper()
	n := s.join(t, "gone")
	p := s.claimed(t, n, name)
	time.Sleep(11 * time.Second)
	if err := n.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// plans returns what a node gets.
func plans(t *testing.T, n *fleet.Node) <-chan *workflow.Plan {
	found := make(chan *workflow.Plan, 100)
	go func() {
		for plan, err := range n.Plans(t.Context()) {
			if err != nil {
				t.Error(err)
				continue
			}
			found <- plan
		}
	}()
	return found
}

// TestTakeoverIsInterrupted interrupts a takeover in its wait. A live node takes the plan later.
func TestTakeoverIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		n := s.join(t, "host")
		found := plans(t, n)
		time.Sleep(time.Minute)
		plan := plantest.Small()
		if err := s.vault.Create(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		plan = <-found
		plan.Owner = workflow.NewV7() // a node that the others have never seen
		if err := s.vault.UpdatePlan(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		_, done := n.Work(plan.ID)
		done()
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(5*time.Second, interrupt)
		began := time.Now()
		got := s.run(ctx, "takeover", plan.ID.String())
		if got.code != exitInterrupted || time.Since(began) != 5*time.Second || !strings.Contains(got.stderr, "if the plan is fenced already, a live node takes it when its TTL has passed") {
			t.Errorf("after %v: %+v", time.Since(began), got)
		}
		if p := <-found; p.ID != plan.ID || p.Epoch != 3 {
			t.Errorf("plan %s has epoch %d", p.ID, p.Epoch)
		}
	})
}

// TestFleetRemarks: at a terminal, commands say on stderr what a pipe does not need.
func TestFleetRemarks(t *testing.T) {
	s := newStage(t)
	for command, want := range map[string]string{"stuck": "Nothing is stuck: 0 open plans, 0 nodes are alive.\n", "nodes": "0 nodes are alive, 0 open plans.\n"} {
		if r := s.runAs(t.Context(), func(p *process) { p.stderrIsTerm = true }, command); r != (result{stderr: want}) {
			t.Errorf("%s: %+v", command, r)
		}
	}
}
