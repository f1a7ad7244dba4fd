package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
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
		s := newStage(t, emulator.WithLatency(10*time.Millisecond))
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
		s := newStage(t, emulator.WithLatency(10*time.Millisecond))
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
