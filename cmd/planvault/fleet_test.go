package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// join joins a node to the fleet of a stage. It leaves when the test ends.
func (s *stage) join(t *testing.T, name string) *fleet.Node {
	t.Helper()
	n, err := fleet.Join(t.Context(), s.vault, fleet.Options{Name: name})
	must(t, err)
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
		must(t, err)
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
	must(t, n.Leave(t.Context()))
	return p
}

// TestClocksOfKeys pauses a key on a machine whose clock is off by most of what the service allows. The service's clock decides.
func TestClocksOfKeys(t *testing.T) {
	for _, off := range []time.Duration{-14 * time.Minute, 14 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, emulator.Options{Clock: func() time.Time { return time.Now().Add(off) }})
			s.store(t, workflow.NewV7(), workflow.Completed, "of a vault")
			for _, verb := range []string{"set", "repair"} {
				want := "paused until " + stamp(time.Now().Add(off+10*time.Minute))
				s.says(t, exitDone, want, "key", verb, "west", "--pause-until", "10m")
				s.says(t, exitDone, want, "keys", "west")
				time.Sleep(11 * time.Minute)
				s.says(t, exitDone, "no limit but those of the plans, last set by", "keys", "west")
			}
		})
	}
}

// TestFleetRemarks: at a terminal, commands say on stderr what a pipe does not need.
func TestFleetRemarks(t *testing.T) {
	s := newStage(t)
	s.server.PutContainer(prefix+"-control", nil)
	for command, want := range map[string]string{"stuck": "Nothing is stuck: 0 open plans, 0 nodes are alive.\n", "nodes": "0 nodes are alive, 0 open plans.\n"} {
		if r := s.runAs(t.Context(), func(p *process) { p.stderrIsTerm = true }, command); r != (result{stderr: want}) {
			t.Errorf("%s: %+v", command, r)
		}
	}
}

// TestForkAfterCompensation forks a plan whose deferred actions for a failure have run, only if that is asked for.
func TestForkAfterCompensation(t *testing.T) {
	s := newStage(t)
	p := plantest.Full()
	must(t, s.vault.Create(t.Context(), p))
	plantest.Finish(p)
	p.State.Status, p.Reason = workflow.Failed, workflow.PostCheckFailed
	must(t, s.vault.UpdatePlan(t.Context(), p))
	for flags, want := range map[string]int{"--dry-run": exitFailed, "--dry-run --after-compensation": exitDone} {
		got := s.run(t.Context(), append([]string{"fork", p.ID.String(), "--from-failure"}, strings.Fields(flags)...)...)
		if got.code != want || (want == exitFailed) != strings.Contains(got.stderr, "may have undone") {
			t.Errorf("%s: %+v", flags, got)
		}
	}
}

// TestManyStuck bounds what stuck prints of 500 plans. JSON has all.
func TestManyStuck(t *testing.T) {
	s := newStage(t)
	sceneMany(t, s)
	for args, want := range map[string][3]int{
		"stuck": {50, 2, 0}, "stuck --limit 0": {500, 2, 0}, "stuck --all --reads 0": {500, 0, 500}, "stuck --output json": {500, 0, 188 + mostReads},
	} {
		r := s.run(t.Context(), strings.Fields(args)...)
		got := [3]int{strings.Count(r.stdout, "release "), strings.Count(r.stdout, " plans: "), strings.Count(r.stdout, "although 1 node is alive")}
		if r.code != exitFound || got != want {
			t.Errorf("%s: exit code %d; plans, groups and stories are %v, not %v", args, r.code, got, want)
		}
		const note = "planvault: not read: 262 plans that may be stuck; --reads 0 reads all\n"
		if (r.stderr == note) == strings.Contains(args, "--reads") || strings.Contains(r.stdout, ": 262 of them.") != (got[1] > 0) {
			t.Errorf("%s: %s", args, r.stderr)
		}
	}
}

// TestStuckReads bounds the plans that a look reads. Looks of a watch read them in turn.
func TestStuckReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		n := s.join(t, "host-3")
		works := s.claimed(t, n, "works")
		s.claimed(t, n, "hangs")
		time.Sleep(20 * time.Minute)
		a := works.Blocks[0].Sequences[0].Actions[2]
		a.State.Status, a.State.Start = workflow.Running, time.Now().UTC()
		must(t, s.vault.UpdateAction(t.Context(), a))
		var sent []int
		for reads, want := range []struct {
			code int
			text string
		}{1: {exitMore, "hangs"}, 2: {exitFound, "has been stored for 20m"}} {
			before := len(s.server.Requests())
			if reads > 0 {
				s.says(t, want.code, want.text, "stuck", "--reads", fmt.Sprint(reads))
			}
			sent = append(sent, len(s.server.Requests())-before)
		}
		if sent[2]-sent[1] != 2+5 {
			t.Errorf("another plan to read takes %d requests, want 7", sent[2]-sent[1])
		}
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Second, stop)
		r := s.run(ctx, "stuck", "--reads", "1", "--watch", "--interval", "15s")
		if r.code != exitDone || strings.Count(r.stdout, "not read  ") != 1 || strings.Count(r.stdout, "has been stored for 20m") != 1 {
			t.Errorf("%+v", r)
		}
		s.says(t, exitUsage, "--reads must not be negative", "stuck", "--reads", "-1")
	})
}
