package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestExplain has each condition of a plan, stuck and not, with the whole text.
func TestExplain(t *testing.T) {
	owner := uuid.MustParse("0193a5c0-0000-7000-8000-000000000001")
	ago := func(d time.Duration) time.Time { return epoch0.Add(-d) }
	plan := func(status workflow.Status, progress time.Duration, change ...func(*OpenPlan)) OpenPlan {
		p := OpenPlan{Progress: ago(progress), OwnerState: OwnerStateAlive}
		p.Plan.State.Status, p.Plan.Owner, p.Plan.Epoch = status, owner, 2
		for _, c := range change {
			c(&p)
		}
		return p
	}
	state := func(s OwnerState) func(*OpenPlan) { return func(p *OpenPlan) { p.OwnerState = s } }
	unclaimed := func(p *OpenPlan) { p.Plan.Owner, p.Plan.Epoch, p.OwnerState = uuid.Nil, 0, OwnerStateNone }
	ownerless := func(p *OpenPlan) { p.Plan.Owner, p.OwnerState = uuid.Nil, OwnerStateNone }
	notBefore := func(d time.Duration) func(*OpenPlan) {
		return func(p *OpenPlan) { p.Plan.WakeAt, p.Plan.Owner, p.Plan.Epoch = epoch0.Add(d), uuid.Nil, 0 }
	}
	asleep := func(d time.Duration) func(*OpenPlan) {
		return func(p *OpenPlan) {
			p.Plan.WakeAt, p.Plan.Owner, p.OwnerState = epoch0.Add(d), uuid.Nil, OwnerStateNone
		}
	}
	later := func(p *OpenPlan) {
		a := &workflow.Action{State: workflow.State{Status: workflow.Running}, Attempts: []workflow.Attempt{{Start: p.Progress, Later: &workflow.Later{At: epoch0.Add(40 * time.Minute)}}}}
		progress := p.Progress
		p.note(&workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{a}}}}}, State: workflow.State{Status: workflow.Running}, Owner: owner, Epoch: 2})
		p.Progress = progress
	}
	paused := func(p *OpenPlan) { p.PausedSince, p.PausedBy, p.PausedWhy = ago(18*time.Minute), "ana", "full" }
	outside := func(owned bool, ask string) func(*OpenPlan) {
		return func(p *OpenPlan) {
			p.Plan.External, p.Ask, p.Read, p.OwnerState = "queue", ask, ask != "", OwnerStateExternal
			if !owned {
				p.Plan.Owner, p.OwnerState = uuid.Nil, OwnerStateNone
			}
		}
	}
	stop := func(d time.Duration) func(*OpenPlan) { return func(p *OpenPlan) { p.StopRequested = ago(d) } }
	fails := func(err error) func(*OpenPlan) { return func(p *OpenPlan) { p.Err = err } }
	runs := func(n int) func(*OpenPlan) {
		return func(p *OpenPlan) {
			p.Read = true
			for range n {
				p.Running = append(p.Running, RunningAction{Path: "eu/one/restart", Since: ago(50 * time.Minute), Attempts: n, Timeout: time.Duration(n-1) * time.Hour})
			}
		}
	}
	// delay gives a block a delay that began a time ago, before or after its actions.
	delay := func(d, began time.Duration, of workflow.Status) func(*OpenPlan) {
		return func(p *OpenPlan) {
			b := &workflow.Block{EntranceDelay: d, ExitDelay: d, State: workflow.State{Status: of, Start: ago(began), End: ago(began)}}
			b.Sequences = []*workflow.Sequence{{Actions: []*workflow.Action{{}, {Idempotent: true}}}}
			progress := p.Progress
			p.note(&workflow.Plan{Blocks: []*workflow.Block{b}, State: workflow.State{Status: workflow.Running}, Owner: owner, Epoch: 2})
			p.Progress = progress
		}
	}
	const young, old = 3 * time.Minute, 20 * time.Minute
	const node = "node host-7 (0193a5c0-0000-7000-8000-000000000001)"
	const alive, gone = "Its owner, " + node + ", is alive (heartbeat 4s ago)", "Its owner, node 0193a5c0-0000-7000-8000-000000000001, has left the fleet or died"
	const queue = "queue, an engine of another kind, places it, and no node does."
	const silent = "Its owner, " + node + ", has been silent for 4s, longer than its TTL of 3s"
	for _, test := range []struct {
		name  string
		plan  OpenPlan
		alive int
		c     Condition
		stuck bool
		why   string
	}{
		{"works", plan(workflow.Running, young, runs(1)), 2, ConditionWorking, false, alive + ". Action eu/one/restart has been running for 50m."},
		{"works on an action without a start", plan(workflow.Running, young, func(p *OpenPlan) { p.Running = []RunningAction{{Path: "eu"}} }), 2, ConditionWorking, false, alive + ". Action eu is running."},
		{"works, not read", plan(workflow.Running, young), 2, ConditionWorking, false, alive + "."},
		{"works, between two actions", plan(workflow.Running, young, delay(0, young, workflow.Running)), 2, ConditionWorking, false, alive + "."},
		{"works, with a clock that is ahead", plan(workflow.Running, -5*time.Minute), 2, ConditionWorking, false, alive + ". Its engine's clock is 5m ahead of the store's, so ages are not exact."},
		{"works, with a clock that is a little ahead", plan(workflow.Running, -time.Second), 2, ConditionWorking, false, alive + "."},
		{"waits for its author's delay", plan(workflow.Running, old, delay(time.Hour, old, workflow.Running)), 2, ConditionWorking, false, alive + ". Nothing runs, and nothing has been stored for 20m, but its author gave it a delay, which ends in 40m."},
		{"waits for its next call", plan(workflow.Running, old, later), 2, ConditionWorking, false, alive + ". Nothing runs, and nothing has been stored for 20m, but its author gave it a delay, which ends in 40m."},
		{"sleeps", plan(workflow.Running, old, asleep(time.Hour)), 0, ConditionAsleep, false, "It sleeps until 2026-11-20T01:00:00Z, in 1h."},
		{"is due", plan(workflow.Running, old, asleep(-time.Minute)), 1, ConditionAsleep, false, "It slept until 2026-11-19T23:59:00Z, and is about to be woken: 1 node is alive."},
		{"is overdue", plan(workflow.Running, old, asleep(-old)), 1, ConditionAsleep, true, "It slept until 2026-11-19T23:40:00Z, and nobody has woken it, although 1 node is alive: a node may be full, or lack its plugins. Read the logs."},
		{"is overdue, without a node", plan(workflow.Running, old, asleep(-old)), 0, ConditionAsleep, true, "It slept until 2026-11-19T23:40:00Z, and no node is alive to wake it. Start an engine."},
		{"sleeps, asked to stop", plan(workflow.Running, old, asleep(time.Hour), stop(old)), 1, ConditionAsleep, true, "It sleeps until 2026-11-20T01:00:00Z, in 1h. It was asked to stop 20m ago, and stops as soon as a node wakes it."},
		{"waits for the delay after a block", plan(workflow.Running, old, delay(time.Hour, old, workflow.Completed)), 2, ConditionWorking, false, alive + ". Nothing runs, and nothing has been stored for 20m, but its author gave it a delay, which ends in 40m."},
		{
			"runs in a block that has a delay", plan(workflow.Running, old, delay(time.Hour, old, workflow.Running), runs(1)), 2, ConditionWorking, true,
			alive + ", but nothing has been stored for 20m. Action eu/one/restart has been running for 50m. Look at the plugin. If it hangs, restart the node, or evict it: the next owner runs the action again, or stops the plan if it was asked to.",
		},
		{
			"makes no progress", plan(workflow.Running, old, runs(3)), 2, ConditionWorking, true,
			alive + ", but nothing has been stored for 20m. Action eu/one/restart has been running for 50m, in its attempt 3, with a timeout of 2h, and 2 more. Look at the plugin. If it hangs, restart the node, or evict it: the next owner runs the action again, or stops the plan if it was asked to.",
		},
		{"runs nothing", plan(workflow.Running, old, runs(0)), 2, ConditionWorking, true, alive + ", but nothing has been stored for 20m. Nothing runs, so the node may hang: restart it, or evict it."},
		{"runs nothing that is stored, long after a delay", plan(workflow.Running, old, delay(time.Hour, 90*time.Minute, workflow.Running)), 2, ConditionWorking, true, alive + ", but nothing has been stored for 20m. An idempotent action may run, which is stored when it ends. If it or the node hangs, restart the node, or evict it."},
		{"stops", plan(workflow.Running, old, stop(young), runs(1)), 2, ConditionStopping, false, "It was asked to stop 3m ago, and its owner, " + node + ", is alive (heartbeat 4s ago). It stops when its running actions have ended."},
		{
			"does not stop", plan(workflow.Running, young, stop(old), runs(1)), 2, ConditionStopping, true,
			"It was asked to stop 20m ago, and its owner, " + node + ", is alive (heartbeat 4s ago), but it has not stopped. Action eu/one/restart has been running for 50m. Actions that are running are not cancelled. If the plugin hangs, restart the node, or evict it: the next owner stops the plan.",
		},
		{"waits to be claimed", plan(workflow.NotStarted, young), 2, ConditionWaiting, false, "It has not begun since it was created 3m ago, and 2 nodes are alive to claim it."},
		{
			"waits to be claimed for long", plan(workflow.NotStarted, old), 1, ConditionWaiting, true,
			"It has not begun since it was created 20m ago, although 1 node is alive: a node may be full, or lack its plugins. Read the logs, or start another node.",
		},
		{
			"waits for an engine", plan(workflow.NotStarted, young, stop(time.Second)), 0, ConditionWaiting, false,
			"It has not begun since it was created 3m ago, and no node is alive to claim it. Start an engine. It was asked to stop 1s ago, and stops as soon as a node claims it.",
		},
		{"waits for an engine for long", plan(workflow.NotStarted, old), 0, ConditionWaiting, true, "It has not begun since it was created 20m ago, and no node is alive to claim it. Start an engine."},
		{
			"may not begin yet", plan(workflow.NotStarted, old, notBefore(90*time.Minute)), 0, ConditionAsleep, false,
			"It waits until 2026-11-20T01:30:00Z, in 1h30m: its author does not want it to begin before.",
		},
		{
			"could have begun a while ago", plan(workflow.NotStarted, old, notBefore(-young)), 1, ConditionWaiting, false,
			"It has not begun since it was created 20m ago, and 1 node is alive to claim it.",
		},
		{"is paused", plan(workflow.Running, old, ownerless, paused), 2, ConditionPaused, false, "It was paused 18m ago by ana (full), and waits to be resumed."},
		{"is paused before it begins", plan(workflow.NotStarted, old, unclaimed, paused), 0, ConditionPaused, false, "It was paused 18m ago by ana (full), and waits to be resumed."},
		{
			"is being paused", plan(workflow.Running, young, paused, runs(1)), 2, ConditionPaused, false,
			"It was paused 18m ago by ana (full). It sleeps when its running actions have ended. Action eu/one/restart has been running for 50m.",
		},
		{
			"is paused and hangs", plan(workflow.Running, old, paused, runs(1)), 2, ConditionPaused, true,
			"It was paused 18m ago by ana (full), but nothing has been stored for 20m. Action eu/one/restart has been running for 50m. If the plugin hangs, restart the node, or evict it.",
		},
		{
			"is paused and is to stop", plan(workflow.Running, young, paused, stop(young)), 2, ConditionStopping, false,
			"It was asked to stop 3m ago, and its owner, " + node + ", is alive (heartbeat 4s ago). It stops when its running actions have ended.",
		},
		{"has no claim", plan(workflow.Running, young, unclaimed), 2, ConditionUnclaimed, false, "An engine without a fleet began it, so no heartbeat shows whether that engine is alive."},
		{
			"has no claim and makes no progress", plan(workflow.Running, old, unclaimed, runs(1)), 2, ConditionUnclaimed, true,
			"An engine without a fleet began it, so no heartbeat shows whether that engine is alive. Nothing has been stored for 20m. Action eu/one/restart has been running for 50m. If the engine has died, start it again.",
		},
		{
			"has no claim and is to stop", plan(workflow.Running, young, unclaimed, stop(young)), 2, ConditionUnclaimed, true,
			"An engine without a fleet began it, so no heartbeat shows whether that engine is alive. It was asked to stop 3m ago, but such an engine does not see stop requests. Stop it in that engine.",
		},
		{
			"another engine works on", plan(workflow.Running, young, outside(true, "queue show 7"), runs(1)), 0, ConditionExternal, false,
			queue + " Its last change was stored 3m ago. Action eu/one/restart has been running for 50m. Ask it: queue show 7",
		},
		{"another engine works on, not read", plan(workflow.Running, young, outside(true, "")), 0, ConditionExternal, false, queue + " The plan may say how to ask it."},
		{
			"another engine makes no progress with", plan(workflow.Running, old, outside(true, "queue show 7"), runs(1)), 2, ConditionExternal, true,
			queue + " Its last change was stored 20m ago. Action eu/one/restart has been running for 50m. If that engine is gone for ever, take the plan over as external. Ask it: queue show 7",
		},
		{
			"waits for its author's delay in another engine", plan(workflow.Running, old, outside(true, "queue show 7"), delay(time.Hour, old, workflow.Running), outside(true, "queue show 7")), 2, ConditionExternal, false,
			queue + " Its last change was stored 20m ago. Ask it: queue show 7",
		},
		{
			"another engine is to stop", plan(workflow.Running, old, outside(true, "queue show 7"), stop(young)), 2, ConditionExternal, false,
			queue + " Its last change was stored 20m ago. It was asked to stop 3m ago, which that engine sees within 10s while it works on the plan, and otherwise when it runs the plan next. Ask it: queue show 7",
		},
		{
			"another engine does not stop", plan(workflow.Running, young, outside(true, "queue show 7"), stop(old)), 2, ConditionExternal, true,
			queue + " Its last change was stored 3m ago. It was asked to stop 20m ago, which that engine sees within 10s while it works on the plan, and otherwise when it runs the plan next. If that engine is gone for ever, take the plan over as external. Ask it: queue show 7",
		},
		{
			"another engine is to pause", plan(workflow.Running, young, outside(true, "queue show 7"), paused), 2, ConditionExternal, false,
			queue + " Its last change was stored 3m ago. It was paused 18m ago, which that engine sees within 10s while it works on the plan, and otherwise when it runs the plan next. Ask it: queue show 7",
		},
		{
			"another engine has paused", plan(workflow.Running, old, outside(false, "queue show 7"), paused), 2, ConditionPaused, false,
			"It was paused 18m ago by ana (full), and waits to be resumed. " + queue + " Ask it: queue show 7",
		},
		{
			"another engine lets sleep", plan(workflow.Running, old, asleep(time.Hour), outside(false, "")), 0, ConditionExternal, false,
			queue + " It sleeps until 2026-11-20T01:00:00Z, in 1h. The plan may say how to ask it.",
		},
		{
			"another engine does not wake", plan(workflow.Running, old, asleep(-old), outside(false, "")), 2, ConditionExternal, true,
			queue + " It slept until 2026-11-19T23:40:00Z, and has not been woken. If that engine is gone for ever, take the plan over as external. The plan may say how to ask it.",
		},
		{
			"another engine is about to wake", plan(workflow.Running, old, asleep(-young), outside(false, "")), 2, ConditionExternal, false,
			queue + " It slept until 2026-11-19T23:57:00Z, and has not been woken. The plan may say how to ask it.",
		},
		{
			"another engine lets sleep, and does not stop", plan(workflow.Running, old, asleep(time.Hour), outside(false, ""), stop(old)), 2, ConditionExternal, true,
			queue + " It sleeps until 2026-11-20T01:00:00Z, in 1h. It was asked to stop 20m ago, which that engine sees within 10s while it works on the plan, and otherwise when it runs the plan next. If that engine is gone for ever, take the plan over as external. The plan may say how to ask it.",
		},
		{
			"another engine asks for a turn", plan(workflow.Running, old, asleep(-old), outside(false, ""), func(p *OpenPlan) { p.Turn = &TurnWait{Key: KeyState{Name: "a"}, Holder: owner, Before: 2} }),
			2, ConditionExternal, false,
			queue + ` It waits for a turn for key "a": plan 0193a5c0-0000-7000-8000-000000000001 has it. 2 plans wait before it. The plan may say how to ask it.`,
		},
		{"another engine is to begin", plan(workflow.NotStarted, young, outside(false, "")), 2, ConditionExternal, false, queue + " It has not begun since it was created 3m ago. The plan may say how to ask it."},
		{
			"another engine does not begin", plan(workflow.NotStarted, old, outside(false, "")), 2, ConditionExternal, true,
			queue + " It has not begun since it was created 20m ago. If that engine is gone for ever, take the plan over as external. The plan may say how to ask it.",
		},
		{
			"another engine must not begin yet", plan(workflow.NotStarted, old, notBefore(90*time.Minute), outside(false, "")), 2, ConditionExternal, false,
			queue + " It must not begin before 2026-11-20T01:30:00Z, in 1h30m. The plan may say how to ask it.",
		},
		{"of an owner that is gone", plan(workflow.Running, young, state(OwnerStateGone)), 3, ConditionOrphaned, false, gone + ". 3 nodes are alive, and it is usually taken within 45s."},
		{
			"of an owner that is gone, and nobody takes it", plan(workflow.Running, old, state(OwnerStateGone)), 3, ConditionOrphaned, true,
			gone + ", and nobody has taken it, although 3 nodes are alive: a node may be full, or lack its plugins. Read the logs. Take the plan over to make the nodes look again.",
		},
		{
			"of an owner that is gone, without nodes", plan(workflow.Running, young, state(OwnerStateGone), stop(young)), 0, ConditionOrphaned, true,
			gone + ", and no node is alive to take it. Start an engine: it takes the plan. It was asked to stop 3m ago, and stops as soon as a node takes it.",
		},
		{"of an owner that is silent", plan(workflow.Running, young, state(OwnerStateSilent)), 1, ConditionOrphaned, false, silent + ". 1 node is alive, and it is usually taken within 45s."},
		{"of an owner that is silent, without nodes", plan(workflow.Running, young, state(OwnerStateSilent)), 0, ConditionOrphaned, true, silent + ", and no node is alive to take it. Start an engine: it takes the plan."},
		{"of an epoch without an owner", plan(workflow.Running, young, ownerless), 1, ConditionOrphaned, false, "It has no owner. 1 node is alive, and it is usually taken within 45s."},
		{"is damaged", plan(workflow.Running, 0, fails(storage.ErrCorrupt)), 1, ConditionUnreadable, true, "It is damaged, so no engine runs it: corrupt. Check the plan, and repair it."},
		{"is newer", plan(workflow.Running, 0, fails(storage.ErrSchema)), 1, ConditionUnreadable, true, "It can't be read by this program, and perhaps by no engine: not understood. Update the programs."},
		{"can't be read now", plan(workflow.Running, old, fails(storage.ErrUnavailable)), 1, ConditionUnknown, false, "Nothing is known of it, because reading it failed: unavailable. Try again."},
	} {
		f := fleetFacts{now: epoch0, older: 15 * time.Minute, alive: test.alive, within: 45 * time.Second}
		m := &MemberState{Member: storage.Member{ID: owner, Name: "host-7", TTL: 3 * time.Second}, Silence: 4 * time.Second}
		if test.plan.OwnerState == OwnerStateGone || test.plan.OwnerState == OwnerStateNone {
			m = nil
		}
		c, stuck, why := f.explain(test.plan, m)
		why += test.plan.ask()
		test.plan.Condition, test.plan.Stuck = c, stuck
		if r := f.reason(test.plan); (r != "") != (stuck || c != ConditionWorking && c != ConditionStopping && c != ConditionUnclaimed) {
			t.Errorf("the reason of a plan that %s is %q", test.name, r)
		} else if (r != "") != (r.Remedy() != "") {
			t.Errorf("the remedy of %q is %q", r, r.Remedy())
		}
		if c != test.c || stuck != test.stuck || why != test.why {
			t.Errorf("a plan that %s is %s, stuck: %t\n%s\nwant %s, %t\n%s", test.name, c, stuck, why, test.c, test.stuck, test.why)
		}
		f.suspended = new(storage.Suspension)
		_, _, why = f.explain(test.plan, m)
		if starts := strings.Contains(test.why, "Start an engine"); strings.Contains(why, "resumes it") != starts || strings.Contains(why, "Start an engine") || starts != (f.reason(test.plan) == ReasonSuspended) {
			t.Errorf("in a suspended vault, a plan that %s: %s, %s", test.name, f.reason(test.plan), why)
		}
	}
}

func TestShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Microsecond: "2ms", 45*time.Second + 400*time.Millisecond: "45s", 90 * time.Second: "1m30s", 2 * time.Minute: "2m",
		20*time.Minute + 10*time.Second: "20m", 10 * time.Hour: "10h", 3*time.Hour + 20*time.Minute: "3h20m", 120 * time.Hour: "5d",
	} {
		if got := short(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

// TestIdle says which open plans need no node, so that a fleet scaled to zero comes back for the others.
func TestIdle(t *testing.T) {
	asleep := OpenPlan{Condition: ConditionAsleep, OwnerState: OwnerStateNone}
	asleep.Plan.WakeAt = epoch0.Add(time.Hour)
	due, asked, told := asleep, asleep, asleep
	due.Plan.WakeAt, asked.StopRequested, told.signalled = epoch0, epoch0, true
	for name, test := range map[string]struct {
		plan OpenPlan
		idle bool
	}{
		"asleep": {asleep, true}, "due": {due, false}, "asked to stop": {asked, false}, "signalled": {told, false},
		"paused":       {OpenPlan{Condition: ConditionPaused, OwnerState: OwnerStateNone}, true},
		"to be paused": {OpenPlan{Condition: ConditionPaused, OwnerState: OwnerStateAlive}, false},
		"turnless":     {OpenPlan{Condition: ConditionTurn, Turn: &TurnWait{sure: true}}, true},
		"in doubt":     {OpenPlan{Condition: ConditionTurn, Turn: new(TurnWait)}, false},
		"waiting":      {OpenPlan{Condition: ConditionWaiting}, false}, "working": {OpenPlan{Condition: ConditionWorking}, false},
		"another engine's": {OpenPlan{Plan: storage.ListResult{External: "queue"}, Condition: ConditionExternal, OwnerState: OwnerStateExternal}, true},
	} {
		i := Inspection{Now: epoch0, Plans: []OpenPlan{test.plan}}
		if got := i.Gauges().Asleep == 1; got != test.idle {
			t.Errorf("%s: idle %t", name, got)
		}
	}
}
