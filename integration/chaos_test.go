package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// chaosOf runs a fleet under chaos. Its nodes are processes of the test binary.
func chaosOf(ctx context.Context, t *testing.T, target *target, args ...string) (code int, f fleetFigures, out string) {
	t.Helper()
	code, s, out := played(ctx, t, target, (*stage).playChaos, append([]string{"-interval", "1s"}, args...)...)
	if s.chaosed != nil {
		f = *s.chaosed
	}
	return code, f, out
}

// TestChaos judges what a short chaos leaves, and no times: a slow machine makes it longer.
func TestChaos(t *testing.T) {
	t.Parallel()
	target, _ := inEmulator(t)
	code, f, out := chaosOf(t.Context(), t, target, "-fleet", "3", "-chaos", "4s", "-plans", "16", "-every", "500ms", "-faults")
	t.Log(out)
	if code != exitPass || lastLine(out) != "PASS" {
		t.Error("the chaos fails")
	}
	if f.Kills+f.Freezes+f.Leaves == 0 || f.Requests == 0 || f.Ended != f.Plans {
		t.Errorf("nothing happened: %v", f)
	}
}

// TestChaosFinds interrupts a chaos and does damage before the vault is checked.
func TestChaosFinds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		damage func(t *testing.T, target *target, server *emulator.Server)
		want   string // a kind of finding
	}{
		{"lost plans", func(_ *testing.T, _ *target, server *emulator.Server) {
			for container := range server.Containers() {
				for b := range server.Blobs(container) {
					server.Remove(container, b.Name)
				}
			}
		}, lost},
		{"the record of a dead node", func(t *testing.T, target *target, _ *emulator.Server) {
			v, err := target.dial(t.Context(), "mine")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = v.Close(t.Context()) }()
			if _, err := v.AddMember(t.Context(), storage.Member{ID: workflow.NewV7(), Started: time.Now(), TTL: time.Second}); err != nil {
				t.Error(err)
			}
		}, leftOver},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			target, server := inEmulator(t)
			wait := target.wait
			target.wait = func(ctx context.Context, d time.Duration) error {
				if d < tidyAfter { // the fleet has left
					test.damage(t, target, server)
				}
				return wait(ctx, d)
			}
			code, f, out := chaosOf(whenBusy(t, server, 2), t, target, "-prefix", "mine", "-fleet", "2", "-chaos", "1h", "-plans", "36000", "-every", "1h")
			if code != exitFail || !strings.HasPrefix(lastLine(out), "FAIL: chaos: ") || f.Violations[test.want] == 0 || len(f.Findings) == 0 {
				t.Errorf("exit code %d:\n%s", code, out)
			}
		})
	}
}

// TestChaosNodeFails checks that a node that ends by itself fails the chaos with its error.
func TestChaosNodeFails(t *testing.T) {
	t.Parallel()
	target, _ := inEmulator(t)
	target.reach = reachedBy(order{ConnectionString: "nonsense"})
	code, _, out := chaosOf(t.Context(), t, target, "-chaos", "1h", "-fleet", "2")
	if last := lastLine(out); code != exitFail || !strings.HasPrefix(last, "FAIL: node ") || !strings.Contains(last, "it ended by itself: exit status 1: soak client: ") {
		t.Errorf("exit code %d, last line %q", code, last)
	}
}
