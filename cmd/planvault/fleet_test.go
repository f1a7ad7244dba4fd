package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
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

// names replaces IDs by names of the same length.
func names(ids map[string]uuid.UUID) *strings.Replacer {
	var pairs []string
	for name, id := range ids {
		pairs = append(pairs, id.String(), name+strings.Repeat(".", 36-len(name)))
	}
	return strings.NewReplacer(pairs...)
}

// expect runs the tool and compares its exit code, its results, and a part of its errors.
func (s *stage) expect(t *testing.T, code int, stdout, stderr string, r *strings.Replacer, args ...string) {
	t.Helper()
	got := s.run(t.Context(), args...)
	if got.code != code {
		t.Errorf("%v: exit code %d, want %d", args, got.code, code)
	}
	if out := r.Replace(got.stdout); out != strings.TrimPrefix(stdout, "\n") {
		t.Errorf("%v printed\n%s\nwant\n%s", args, out, stdout)
	}
	if out := r.Replace(got.stderr); !strings.Contains(out, stderr) || stderr == "" && out != "" {
		t.Errorf("%v printed on stderr\n%s\nwant\n%s", args, out, stderr)
	}
}

func TestStuckAndNodes(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		none := strings.NewReplacer()
		s.expect(t, 0, "", "", none, "stuck")
		s.expect(t, 0, "", "", none, "nodes")
		n := s.join(t, "host-7\x1b[2J")
		hangs := s.claimed(t, n, "rollout 2.4")
		orphan := s.orphaned(t, "rollout \u202e2.5")
		time.Sleep(20 * time.Minute)
		works := s.claimed(t, n, "rollout 2.6")
		waits := plantest.Small()
		if err := s.vault.Create(t.Context(), waits); err != nil {
			t.Fatal(err)
		}
		r := names(map[string]uuid.UUID{"HANGS": hangs.ID, "ORPHAN": orphan.ID, "WORKS": works.ID, "WAITS": waits.ID, "NODE": n.ID(), "GONE": orphan.Owner})
		s.expect(t, 4, `
PLAN                                  OWNER                                 HEARTBEAT  PROGRESS  DOING                  NAME
HANGS...............................  host-7\x1b[2J                                4s    20m13s  europe/canary/restart  rollout 2.4
ORPHAN..............................  GONE................................       gone    20m12s  europe/canary/restart  rollout \u202e2.5

HANGS...............................: Its owner, node host-7\x1b[2J (NODE................................), is alive (heartbeat 4s ago), but nothing has been stored for 20m. Action europe/canary/restart has been running for 20m, with a timeout of 30s. Look at the plugin. If it hangs, restart the node, or evict it: the next owner runs the action again, or stops the plan if it was asked to.

ORPHAN..............................: Its owner, node GONE................................, has left the fleet or died, and nobody has taken it, although 1 node is alive. They may be full, or lack its plugins: read their logs. Take the plan over to make them look again.
`, "", r, "stuck")
		s.expect(t, 0, "", "", r, "stuck", "--older", "2h")
		s.expect(t, 2, "", "is not an age", r, "stuck", "--older", "never")
		s.expect(t, 2, "", "unknown command", r, "stuck", "plan")
		all := s.run(t.Context(), "stuck", "--all")
		for _, id := range []uuid.UUID{hangs.ID, orphan.ID, works.ID, waits.ID} {
			if strings.Count(all.stdout, "\n"+id.String()) != 2 {
				t.Errorf("plan %s is not shown: %s", id, all.stdout)
			}
		}
		s.expect(t, 0, `
NODE                                  NAME           STATE  HEARTBEAT  TTL  STARTED               PLANS
NODE................................  host-7\x1b[2J  alive         4s  30s  2000-01-01 00:00:00Z      2
GONE................................  -              gone           -    -  -                         1
`, "", r, "nodes")

		var rows []openRow
		for line := range strings.Lines(s.run(t.Context(), "stuck", "--output", "json").stdout) {
			var row openRow
			if err := json.Unmarshal([]byte(line), &row); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, row)
		}
		if len(rows) != 2 || rows[0].ID != hangs.ID || !rows[0].Stuck || rows[0].OwnerName != "host-7\x1b[2J" || *rows[0].HeartbeatSeconds != 4 ||
			rows[0].Running[0].Path != "europe/canary/restart" || rows[0].Running[0].Attempts != 1 || rows[0].Done != 1 || rows[0].Actions != 3 ||
			rows[0].IdleSeconds != 1213 || rows[1].OwnerState != "gone" || rows[1].HeartbeatSeconds != nil || rows[1].Status != "Running" {
			t.Errorf("%+v", rows)
		}
	})
}

// TestStuckErrors: a plan that is damaged is shown, a request that fails is an error, and neither hides the others.
func TestStuckErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		damaged, orphan := s.orphaned(t, "damaged"), s.orphaned(t, "whole")
		time.Sleep(time.Hour)
		for _, c := range slices.Collect(s.server.Containers()) {
			for _, b := range slices.Collect(s.server.Blobs(c)) {
				if strings.Contains(b.Name, damaged.Blocks[0].ID.String()) {
					s.server.Corrupt(c, b.Name, func([]byte) []byte { return []byte("{") })
				}
			}
		}
		got := s.run(t.Context(), "stuck")
		if got.code != 4 || strings.Count(got.stdout, orphan.ID.String()) != 2 || !strings.Contains(got.stdout, damaged.ID.String()+": It is damaged, so no engine runs it") {
			t.Errorf("exit code %d\n%s%s", got.code, got.stdout, got.stderr)
		}
	})
}

// TestStuckFollowsOpenPlans counts the requests of stuck with ten open plans beside many final ones.
func TestStuckFollowsOpenPlans(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		n := s.join(t, "host")
		for range 10 {
			s.claimed(t, n, "open")
		}
		time.Sleep(20 * time.Minute)
		requests := func() int {
			s.server.ResetRequests()
			if got := s.run(t.Context(), "stuck"); strings.Count(got.stdout, "\n") < 20 {
				t.Errorf("%s%s", got.stdout, got.stderr)
			}
			return len(s.server.Requests())
		}
		before := requests()
		for i := range 40 { // more than any command reads at a time
			id := workflow.NewV7At(time.Now().Add(-time.Duration(i) * time.Second))
			if _, err := s.store(t.Context(), id, workflow.Completed, "final"); err != nil {
				t.Fatal(err)
			}
		}
		// A roster, a search of two listings, and a read of two requests and five sub-objects for each open plan.
		if after := requests(); after > before || before > 1+2+10*(2+2+5) {
			t.Errorf("%d requests, and %d beside 40 final plans", before, after)
		}
	})
}

func TestStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		unclaimed, orphan := s.claimed(t, nil, "alone"), s.orphaned(t, "orphan")
		time.Sleep(time.Minute)
		r := names(map[string]uuid.UUID{"ALONE": unclaimed.ID, "GONE": orphan.Owner})
		s.expect(t, 4, "Its owner, node GONE................................, has left the fleet or died, and no node is alive to take it. Start an engine: it takes the plan. It was asked to stop 0s ago, and stops as soon as a node takes it.\n", "", r, "stop", orphan.ID.String())
		n := s.join(t, "host")
		plan := s.claimed(t, n, "plan")
		r = names(map[string]uuid.UUID{"PLAN": plan.ID, "NODE": n.ID(), "ALONE": unclaimed.ID})
		s.expect(t, 0, "It was asked to stop 0s ago, and its owner, node host (NODE................................), is alive (heartbeat 1s ago). It stops when its running actions have ended.\n", "", r, "stop", plan.ID.String())
		s.expect(t, 4, "An engine without a fleet began it, so no heartbeat shows whether that engine is alive. It was asked to stop 0s ago, but such an engine does not see stop requests. Stop it in that engine.\n", "", r, "stop", unclaimed.ID.String())
		go func() {
			work, done := n.Work(plan.ID)
			defer done()
			<-work.Done()
			plan.State.Status = workflow.Stopped
			if err := s.vault.UpdatePlan(t.Context(), plan); err != nil {
				t.Error(err)
			}
		}()
		s.expect(t, 0, "The plan is Stopped.\n", "", r, "stop", plan.ID.String(), "--wait")
		s.expect(t, 0, "The plan is Stopped already. Nothing was changed.\n", "", r, "stop", plan.ID.String())
		s.expect(t, 0, `{"id":"PLAN................................","status":"Stopped","requested":false,"obeyed":true,"message":"The plan is Stopped already. Nothing was changed."}`+"\n", "", r, "stop", plan.ID.String(), "--output", "json")
		s.expect(t, 4, "", "not found", r, "stop", workflow.NewV7().String())
		s.expect(t, 2, "", "is not the ID of a plan", r, "stop", "rollout")
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, interrupt)
		if got := s.run(ctx, "stop", unclaimed.ID.String(), "--wait"); got.code != exitInterrupted || !strings.Contains(got.stderr, "stop: 1 request; the request is stored, and stays") {
			t.Errorf("%+v", got)
		}
	})
}

func TestFork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		failed := s.claimed(t, nil, "failed")
		id := failed.ID.String()
		none := strings.NewReplacer()
		s.expect(t, 1, "", "fork plan "+id+": State.Status: is Running: only", none, "fork", id, "--from-failure")
		failed.Blocks[0].Sequences[0].Actions[1].State.Status = workflow.Failed
		failed.State.Status = workflow.Failed
		if err := s.vault.UpdatePlan(t.Context(), failed); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"fork", id}, {"fork", id, "--from-start", "--from-failure"}, {"fork", "--from-start"}} {
			if got := s.run(t.Context(), args...); got.code != 2 || got.stdout != "" {
				t.Errorf("%v: %+v", args, got)
			}
		}
		s.expect(t, 0, "2 of 3 actions run again:\neurope/canary/restart\neurope/canary/verify\n", "", none, "fork", id, "--from-failure", "--dry-run")
		s.expect(t, 0, "3 of 3 actions run again:\neurope/canary/drain\neurope/canary/restart\neurope/canary/verify\n", "", none, "fork", id, "--from-start", "--dry-run")
		for flag, make := range map[string]func(*workflow.Plan) (*workflow.Plan, error){"--from-failure": workflow.Fork, "--from-start": workflow.ForkFromStart} {
			got := s.run(t.Context(), "fork", id, flag)
			fork, err := s.vault.Read(t.Context(), uuid.MustParse(strings.TrimSpace(got.stdout)))
			if err != nil || got.code != 0 || got.stderr != "" {
				t.Fatalf("%+v: %v", got, err)
			}
			want, err := make(failed)
			if err != nil {
				t.Fatal(err)
			}
			forked := append(workflow.Parts(fork), fork)
			for i, o := range append(workflow.Parts(want), want) {
				*o.Header().ID, *o.Header().PlanID = *forked[i].Header().ID, fork.ID
			}
			want.SubmitTime = fork.SubmitTime
			if diff := plantest.Diff(want, fork); diff != "" {
				t.Errorf("%s: %s", flag, diff)
			}
		}
		got := s.run(t.Context(), "fork", id, "--from-failure", "--output", "json")
		if !strings.Contains(got.stdout, `"forkedFrom":"`+id+`","carriedOverActions":1,"actions":3}`) {
			t.Errorf("%+v", got)
		}
		s.expect(t, 4, "", "not found", none, "fork", workflow.NewV7().String(), "--from-start")
	})
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

func TestTakeover(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		orphan, unclaimed := s.orphaned(t, "orphan"), s.claimed(t, nil, "alone")
		r := names(map[string]uuid.UUID{"ORPHAN": orphan.ID, "GONE": orphan.Owner})
		s.expect(t, 4, "Plan ORPHAN.............................. is fenced from node GONE................................, in epoch 2. No node is alive: the plan waits for the next engine that joins the fleet.\n", "", r, "takeover", orphan.ID.String())
		if err := s.vault.UpdatePlan(t.Context(), orphan); err == nil {
			t.Error("an update of the former owner took effect")
		}
		s.expect(t, 1, "", "give --unclaimed", r, "takeover", unclaimed.ID.String())
		s.expect(t, 1, "", "no node is alive to take it", r, "takeover", unclaimed.ID.String(), "--unclaimed")

		n := s.join(t, "host")
		found := plans(t, n)
		if p := <-found; p.ID != orphan.ID || p.Epoch != 3 {
			t.Errorf("plan %s has epoch %d", p.ID, p.Epoch)
		}
		hung := s.join(t, "hung")
		first, other := s.claimed(t, hung, "first"), s.claimed(t, hung, "other")
		r = names(map[string]uuid.UUID{"FIRST": first.ID, "OTHER": other.ID, "HUNG": hung.ID(), "NODE": n.ID(), "ALONE": unclaimed.ID})
		s.expect(t, 1, "", "node hung (HUNG................................), whose last heartbeat was 2s ago; if it hangs, restart it, or give --evict HUNG................................\n", r, "takeover", first.ID.String())
		s.expect(t, 2, "", "owns plan FIRST...............................  first\nnode hung (HUNG................................) owns plan OTHER...............................  other\nevict node hung (HUNG................................): 2 plans, about 2 requests, ", r, "takeover", first.ID.String(), "--evict", hung.ID().String())
		if hung.Context().Err() != nil {
			t.Error("the node was evicted without --yes")
		}
		time.Sleep(time.Minute)
		got := s.run(t.Context(), "takeover", first.ID.String(), "--evict", hung.ID().String(), "--yes", "--wait", "--output", "json")
		var report takenOver
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != 0 || !report.Evicted || report.Owner == nil || *report.Owner != n.ID() || *report.From != hung.ID() {
			t.Errorf("%+v, %v", got, err)
		}
		time.Sleep(time.Minute)
		var took []uuid.UUID
		for len(found) > 0 {
			took = append(took, (<-found).ID)
		}
		if len(took) != 2 || !slices.Contains(took, first.ID) || !slices.Contains(took, other.ID) || hung.Context().Err() == nil {
			t.Errorf("the live node took %v", took)
		}
		s.expect(t, 0, "Plan ALONE............................... is fenced from an engine without a fleet, in epoch 1. 1 node is alive. It takes the plan soon.\n", "", r, "takeover", unclaimed.ID.String(), "--unclaimed")
		if p := <-found; p.ID != unclaimed.ID || p.Epoch != 2 {
			t.Errorf("plan %s has epoch %d", p.ID, p.Epoch)
		}
		// The same command again leaves the new owner alone.
		r = names(map[string]uuid.UUID{"FIRST": first.ID, "NODE": n.ID()})
		s.expect(t, 0, "Node NODE................................ has taken plan FIRST..............................., in epoch 3. The plan is Running.\n", "", r, "takeover", first.ID.String(), "--evict", hung.ID().String(), "--yes")
		if n.Context().Err() != nil {
			t.Error("the new owner was evicted")
		}
		s.expect(t, 2, "", "is not the ID of a node", r, "takeover", first.ID.String(), "--evict", "host")
		s.expect(t, 4, "", "not found", r, "takeover", workflow.NewV7().String())
		final, err := s.store(t.Context(), workflow.NewV7(), workflow.Completed, "final")
		if err != nil {
			t.Fatal(err)
		}
		s.expect(t, 1, "", "is Completed: only a Running plan has an owner", r, "takeover", final.ID.String())
	})
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

// TestFleetCommandsEndWhenInterrupted interrupts each command at each of its requests, which gets no answer. The
// command ends at once, says what to do, and a second run does what is left.
func TestFleetCommandsEndWhenInterrupted(t *testing.T) {
	for command, flags := range map[string][]string{
		"stuck": nil, "nodes": nil, "stop": {"--wait"}, "fork": {"--from-failure"}, "takeover": {"--yes", "--wait"},
	} {
		t.Run(command, func(t *testing.T) {
			for nth, more := 1, true; more; nth += efforttest.Pick(11, 4, 1) {
				synctest.Test(t, func(t *testing.T) { more = interrupt(t, command, flags, nth) })
			}
		})
	}
}

// interrupt interrupts a command while its nth request waits for an answer. It reports whether there was such a
// request.
func interrupt(t *testing.T, command string, flags []string, nth int) bool {
	s := newStage(t)
	hung, n := s.join(t, "hung"), s.join(t, "host")
	plan, failed := s.claimed(t, hung, "plan"), s.claimed(t, nil, "failed")
	failed.State.Status = workflow.Failed
	if err := s.vault.UpdatePlan(t.Context(), failed); err != nil {
		t.Fatal(err)
	}
	found := plans(t, n)
	time.Sleep(time.Minute)
	args := append([]string{command}, flags...)
	switch command {
	case "fork":
		args = append(args, failed.ID.String())
	case "stop":
		args = append(args, plan.ID.String())
	case "takeover":
		args = append(args, plan.ID.String(), "--evict", hung.ID().String())
	}
	transport := s.server.Transport()
	transport.Inject(emulator.On().Nth(nth).Do(emulator.Silence().Applied()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	met := func() bool {
		return slices.ContainsFunc(s.server.Requests(), func(r emulator.Request) bool { return r.Fault != "" })
	}
	s.server.ResetRequests()
	ended := make(chan result, 1)
	var stdout, stderr bytes.Buffer
	p := s.process(&stdout, &stderr)
	p.options = []azblob.Option{azblob.WithTransport(transport)}
	go func() { ended <- result{code: run(ctx, p, args)} }()
	for range 20 { // a takeover takes some time
		if time.Sleep(time.Second); met() {
			break
		}
	}
	if !met() && command != "stop" {
		return false
	}
	cancel()
	began := time.Now()
	code := (<-ended).code
	if _, last, said := strings.Cut(stderr.String(), "planvault: interrupted: "); code != exitInterrupted || !said || !strings.Contains(last, "; ") || strings.Count(last, "\n") != 1 || time.Since(began) > interruptGrace {
		t.Errorf("request %d: exit code %d after %v: %s", nth, code, time.Since(began), &stderr)
	}
	if command == "takeover" {
		if again := s.run(t.Context(), args...); again.code != exitDone || n.Context().Err() != nil {
			t.Errorf("request %d: a second run: %+v", nth, again)
		}
		select {
		case p := <-found:
			if p.ID != plan.ID {
				t.Errorf("request %d: the live node took plan %s", nth, p.ID)
			}
		case <-time.After(2 * time.Minute):
			t.Errorf("request %d: no node took the plan", nth)
		}
	}
	return met()
}

// TestFleetRemarks: at a terminal, commands say on stderr what a pipe does not need.
func TestFleetRemarks(t *testing.T) {
	s := newStage(t)
	for command, want := range map[string]string{"stuck": "Nothing is stuck: 0 open plans, 0 nodes are alive.\n", "nodes": "0 nodes are alive, 0 open plans.\n"} {
		var stdout, stderr bytes.Buffer
		p := s.process(&stdout, &stderr)
		p.stderrIsTerm = true
		if code := run(t.Context(), p, []string{command}); code != 0 || stdout.Len() > 0 || stderr.String() != want {
			t.Errorf("%s: %d, %s, %s", command, code, &stdout, &stderr)
		}
	}
}
