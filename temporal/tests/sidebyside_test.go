//go:build unix

package tests

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/temporal"
	"github.com/planvault/azblob/workflow"
)

// sizes are plans of 1, 50 and 1,000 actions, as in tests/costs.
func sizes() map[string]*workflow.Plan {
	return map[string]*workflow.Plan{"S": planOf(1, 1, 1, step{}), "M": planOf(2, 5, 5, step{}), "L": planOf(4, 10, 25, step{})}
}

// TestSideBySide prints what it costs that Temporal, or the fleet, places plans: requests to the account, events, and how long a
// plan stands still after a death. It has the settings that users get by default.
func TestSideBySide(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		name := map[bool]string{false: "temporal", true: "fleet"}[fleet]
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.Fleet = fleet
			stop := s.worker(s.named("a"), s.client)
			for _, size := range []string{"S", "M", "L"} {
				s.requests(name, size)
			}
			if !fleet {
				s.looks()
			}
			stop()
			s.deaths(name)
		})
	}
}

// requests runs plans of a size, and counts what their way from Create to their end costs.
func (s *stage) requests(placer, size string) {
	s.Helper()
	const plans = 5
	var all []*workflow.Plan
	var runs []client.WorkflowRun
	for range plans {
		plan := sizes()[size]
		all, runs = append(all, plan), append(runs, s.submit(plan))
	}
	for _, plan := range all {
		s.final(plan)
	}
	total, create := 0, 0
	for _, r := range s.account.Requests() {
		switch creates := r.Condition == "If-None-Match:*"; {
		case !slices.ContainsFunc(all, func(p *workflow.Plan) bool { return strings.Contains(r.Path(), p.ID.String()) }):
		case creates && r.Op == emulator.PutBlob:
			create++
		default:
			total++
		}
	}
	events := 0
	if !s.Fleet {
		events = s.events(runs[0])
	}
	s.Logf("%s: %s: %d requests to create a plan, %d to run it; %d events", placer, size, create/plans, total/plans, events)
}

// looks counts the requests and the events of a look at a plan that waits.
func (s *stage) looks() {
	s.Helper()
	const looks = 10
	plan := planOf(1, 1, 1, step{})
	plan.NotBefore = time.Now().Add(time.Hour)
	run := s.submit(plan)
	waits := func(timers int) {
		s.until("the workflow to wait", func() bool {
			h := s.history(run)
			isTimer := func(e *history.HistoryEvent) bool { return e.GetEventType() == enums.EVENT_TYPE_TIMER_STARTED }
			return isTimer(h[len(h)-1]) && len(slices.DeleteFunc(h, func(e *history.HistoryEvent) bool { return !isTimer(e) })) == timers
		})
	}
	waits(1)
	before, events := len(s.account.Requests()), s.events(run)
	for n := range looks {
		must(s.T, s.client.SignalWorkflow(s.Context(), run.GetID(), "", temporal.LookName, nil))
		waits(n + 2)
	}
	s.Logf("temporal: a look after a signal costs %d requests and %d events", (len(s.account.Requests())-before)/looks, (s.events(run)-events)/looks)
}

// submit creates a plan, for Temporal or for the fleet.
func (s *stage) submit(plan *workflow.Plan) client.WorkflowRun {
	s.Helper()
	if s.Fleet {
		must(s.T, s.vault.Create(s.Context(), plan))
		return nil
	}
	plan.External = temporal.External(s.Namespace, plan.ID)
	must(s.T, s.vault.Create(s.Context(), plan))
	return s.start(plan, temporal.Settings{})
}

// final waits for the end of a plan, without requests before it.
func (s *stage) final(plan *workflow.Plan) {
	s.Helper()
	s.wait("the plan to end", func(l line) bool { return l.What == "stored" && l.Action == plan.ID })
}

// deaths kills a worker that has plans, and measures how long each stands still until another one calls its plugin again.
func (s *stage) deaths(name string) {
	s.Helper()
	const plans = 20
	a := s.process(s.named("victim"))
	var all []*workflow.Plan
	created := map[uuid.UUID]time.Time{}
	for range plans {
		plan := gated("end")
		all = append(all, plan)
		s.submit(plan)
		created[plan.ID] = time.Now()
		time.Sleep(500 * time.Millisecond) // their heartbeats are spread
	}
	s.until("all plans to run", func() bool { return s.calls("victim") == plans })
	s.process(s.named("heir"))
	time.Sleep(40 * time.Second) // a node that has watched for a TTL
	killed := time.Now()
	s.signal(a, syscall.SIGKILL)
	s.until("all plans to go on", func() bool { return s.calls("heir") == plans })
	var begins, goesOn []time.Duration
	for _, l := range s.ledger() {
		switch {
		case begun("victim")(l):
			begins = append(begins, l.At.Sub(created[l.Plan]))
		case begun("heir")(l):
			goesOn = append(goesOn, l.At.Sub(killed))
		}
	}
	for what, after := range map[string][]time.Duration{"its submission, a plan begins": begins, "a death, it goes on": goesOn} {
		slices.Sort(after)
		s.Logf("%s: after %s after %v to %v, median %v", name, what, after[0], after[plans-1], after[plans/2])
	}
	s.open("end")
	for _, plan := range all {
		s.final(plan)
	}
}

// calls returns how many calls of the plugin a worker has begun.
func (s *stage) calls(who string) (n int) {
	s.Helper()
	for _, l := range s.ledger() {
		if begun(who)(l) {
			n++
		}
	}
	return n
}
