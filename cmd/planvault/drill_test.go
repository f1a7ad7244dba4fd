package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// everything returns the containers of the account, and what is in the vault.
func everything(s *stage) string {
	return strings.Join(slices.Sorted(s.server.Containers()), "\n") + "\n" + contents(s)
}

// TestDrill rehearses the loss of an account: what is lost fits the time between two rounds, and only the sandbox is
// touched and is gone.
func TestDrill(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, emulator.Options{Latency: 10 * time.Millisecond})
		s.fill(t, 1, 2)
		before := everything(s)
		for _, args := range [][]string{{"--every", "5s"}, {"--every", "2s", "--emulator"}} {
			r := s.must(t, slices.Concat([]string{"drill", "--yes", "--output", "json"}, args)...)
			var d drilled
			must(t, json.Unmarshal([]byte(r.stdout), &d))
			if d.Plans != 10 || d.Completed+d.LostPlans != 10 || d.Problems != 0 || d.Writes < 100 || d.LostWrites == 0 || d.LostWrites > 120 || d.RanAgain == 0 ||
				d.Cut.Sub(d.CaughtUp) > 8*time.Second || d.LostSince.Before(d.CaughtUp.Add(-time.Second)) || d.EndedSeconds > 60 {
				t.Errorf("%v: %s", args, r.stdout)
			}
			if left := everything(s); left != before {
				t.Errorf("%v: the account is not as before: %s", args, left)
			}
		}
	})
}

// TestInterruptedDrill ends drills at any time. Nothing is left behind.
func TestInterruptedDrill(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, emulator.Options{Latency: 10 * time.Millisecond})
		before := everything(s)
		for after := 20 * time.Millisecond; after < time.Minute; after = after*3 + 10*time.Millisecond {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			ctx, stop := context.WithCancel(ctx)
			time.AfterFunc(after, stop)
			r := s.run(ctx, "drill", "--yes")
			cancel()
			time.Sleep(time.Minute)
			if left := everything(s); left != before || r.code == exitInterrupted && !strings.Contains(r.stderr, "removed") {
				t.Errorf("after %v: %+v\n%s", after, r, left)
			}
		}
	})
}

// TestKilledDrill kills a drill. A drill of the next day removes its sandbox, and nothing that only looks like one.
func TestKilledDrill(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, emulator.Options{Latency: 10 * time.Millisecond})
		vault := s.open(t, "drill-01234567")
		_, err := vault.Control().PutNote(t.Context(), storage.Note{Name: "policy", Text: []byte("{}")})
		must(t, errors.Join(err, vault.Create(t.Context(), &workflow.Plan{Name: "of a vault"})))
		before := everything(s)
		network := &severed{Transporter: s.server.Transport()}
		time.AfterFunc(20*time.Second, func() { network.cut.Store(true) })
		if r := s.through(network).run(t.Context(), "drill", "--yes"); r.code == exitDone {
			t.Error(r)
		}
		sandbox := everything(s)
		for _, c := range []struct {
			after   time.Duration
			removed bool
			left    string
		}{{after: drillDead - time.Hour, left: sandbox}, {after: time.Hour, removed: true, left: before}} {
			time.Sleep(c.after)
			if c.removed {
				s.server.Inject(emulator.On(emulator.DeleteContainer).Nth(2).Do(emulator.Answer(403, "AuthorizationFailure")))
				s.says(t, exitFailed, "is left", "drill", "--yes") // the next one finishes this
			}
			r := s.must(t, "drill", "--yes", "--plans", "2", "--work", "5s")
			if strings.Count(r.stderr, "drill-01234567 is left alone") != 1 || strings.Contains(r.stderr, "of a drill that was killed") != c.removed || everything(s) != c.left {
				t.Errorf("after %v: %+v\n%s", c.after, r, everything(s))
			}
		}
		for _, wrong := range []string{"--work=7h", "--plans=0"} {
			s.says(t, exitUsage, "must be positive, and the times 6h together at most", "drill", "--yes", wrong)
		}
	})
}
