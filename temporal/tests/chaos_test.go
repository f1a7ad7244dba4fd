//go:build unix

package tests

import (
	"fmt"
	"math/rand/v2"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/workflow"
)

// TestChaos kills workers at random while they run 200 plans, and freezes some for longer than the heartbeat timeout. All plans
// are completed. No action runs again after its outcome was stored, and none runs twice unless its worker was killed or frozen.
func TestChaos(t *testing.T) {
	const plans, workers = 200, 3
	s := newStage(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	c := &chaos{stage: s, disturbed: map[string]time.Time{}}
	for range workers {
		c.seats = append(c.seats, c.next())
	}
	var runs []client.WorkflowRun
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r := rand.New(rand.NewPCG(seed, 1))
		for range plans {
			takes := time.Duration(200+r.IntN(1000)) * time.Millisecond
			runs = append(runs, s.place(planOf(1+r.IntN(2), 2, 1+r.IntN(4), step{Takes: takes})))
		}
		for _, run := range runs {
			s.completed(run)
		}
	}()
	for begun := time.Now(); ; {
		select {
		case <-ended:
			t.Logf("%d plans in %v, %d kills, %d freezes", plans, time.Since(begun).Round(time.Second), c.kills, c.freezes)
			c.conclude(runs)
			return
		case <-time.After(time.Duration(200+r.IntN(800)) * time.Millisecond):
			c.disturb(r.IntN(workers), r.IntN(8) == 0)
		}
	}
}

// chaos are the workers of a run.
type chaos struct {
	*stage
	seats          []seat
	kills, freezes int
	disturbed      map[string]time.Time // when a worker was killed or frozen for the first time
}

type seat struct {
	name string
	p    *exec.Cmd
}

// next starts another worker.
func (c *chaos) next() seat {
	c.Helper()
	o := c.named(fmt.Sprint("worker ", len(c.seats)+c.kills))
	o.AtOnce = 8
	return seat{o.Name, c.process(o)}
}

// disturb kills a worker, for which another one begins, or freezes it.
func (c *chaos) disturb(i int, freeze bool) {
	c.Helper()
	was := c.seats[i]
	if c.disturbed[was.name].IsZero() {
		c.disturbed[was.name] = time.Now()
	}
	if !freeze {
		c.signal(was.p, syscall.SIGKILL)
		c.kills++
		c.seats[i] = c.next()
		return
	}
	c.freezes++
	c.signal(was.p, syscall.SIGSTOP)
	time.Sleep(2 * settings.HeartbeatTimeout)
	c.signal(was.p, syscall.SIGCONT)
}

// conclude reads the ledger and the vault.
func (c *chaos) conclude(runs []client.WorkflowRun) {
	c.Helper()
	last, stored := map[uuid.UUID]line{}, map[uuid.UUID]bool{}
	calls, again := 0, 0
	for _, l := range c.ledger() {
		switch l.What {
		case "stored":
			stored[l.Action] = true
		case "begin":
			calls++
			if stored[l.Action] {
				c.Errorf("action %s runs again on %s after its outcome was stored", l.Action, l.Who)
			}
			if was, twice := last[l.Action]; twice {
				again++
				if at := c.disturbed[was.Who]; at.IsZero() || at.After(l.At) {
					c.Errorf("action %s runs on %s, and again on %s, and nobody has disturbed the first", l.Action, was.Who, l.Who)
				}
				if was.Epoch >= l.Epoch {
					c.Errorf("action %s runs in epoch %d, and again in %d", l.Action, was.Epoch, l.Epoch)
				}
			}
			last[l.Action] = l
		}
	}
	if c.kills == 0 || again == 0 {
		c.Errorf("%d kills, after which %d actions ran again", c.kills, again)
	}
	actions, most := 0, 0
	for _, run := range runs {
		plan, err := c.vault.Read(c.Context(), uuid.MustParse(run.GetID()))
		must(c.T, err)
		for o := range workflow.Walk(plan) {
			if a, ok := o.(*workflow.Action); ok {
				if actions++; a.State.Status != workflow.Completed || last[a.ID].At.IsZero() {
					c.Errorf("action %s is %s, last run by %q", a.ID, a.State.Status, last[a.ID].Who)
				}
			}
		}
		most = max(most, c.events(run))
	}
	report, err := c.vault.Admin().Check(c.Context(), azblob.CheckOptions{})
	must(c.T, err)
	if len(report.Problems) > 0 {
		c.Errorf("%+v", report)
	}
	if most > 11+3*c.kills { // a workflow task that a dead worker had, or was to have, is three events more
		c.Errorf("a history has %d events", most)
	}
	c.Logf("%d actions, %d calls, %d of them again; at most %d events", actions, calls, again, most)
}
