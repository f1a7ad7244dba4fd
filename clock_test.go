package azblob_test

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
)

// clockWorld returns worlds in which the service's clock differs from the vaults' clock, which is the
// bubble's. The vaults use tokens, because signatures with a wrong time are refused.
func clockWorld(clock func() time.Time, opts ...emulator.Option) func() world {
	return func() world {
		return worldOf(emulator.New(append(opts, emulator.WithoutLog(), emulator.WithClock(clock))...))
	}
}

func skewed(by time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(by) }
}

// backwards is a clock that runs backwards for ten seconds, again and again, and never leaves the hour.
func backwards() time.Time {
	now := time.Now()
	return now.Add(-2 * (time.Duration(now.UnixNano()) % (10 * time.Second)))
}

// atMidnight starts the call of a scenario shortly before midnight UTC, with its first request under way at
// midnight.
func atMidnight(s scenario, latency time.Duration) scenario {
	prepare := s.prepare
	s.prepare = func(t *testing.T, w world, shape shape) func() *call {
		begin := prepare(t, w, shape)
		day := time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour)
		time.Sleep(time.Until(day) - latency*3/4)
		return begin
	}
	return s
}

// representative returns the scenarios for the nth clock: a third of those listed here.
func representative(nth int) (chosen []scenario) {
	for i, s := range []scenario{
		creations[0], completions[0],
		updateOf("UpdateAction", (*azblob.Vault).UpdateAction),
		deletion("running", atWork),
		recovery("a create without object", createBroken("plans/*-object.json", 1)),
		recovery("a completion without object", completionBroken(emulator.PutBlob, "plans/*-object.json")),
		recovery("a delete without object", deleteBroken(emulator.BatchDelete, "")),
	} {
		if sampled(3, i, nth) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// TestClocks tries crashes and faults while the clocks of the service and the vaults disagree, and while the
// day changes. The outcome is the same as with equal clocks, because the protocol uses the service's clock
// alone.
func TestClocks(t *testing.T) {
	efforttest.NotShort(t, "these are crashes and faults once more, ten times over")
	effects := []emulator.Effect{emulator.LostAnswer(), emulator.Answer(503, "ServerBusy").RetryAfter(3 * time.Second)}
	try := func(name string, newWorld func() world, scenarios []scenario) {
		t.Run(name, func(t *testing.T) {
			crashEverywhere(t, newWorld, scenarios, smallOnly)
			everywhere(t, newWorld, scenarios, smallOnly, func(t *testing.T, st stage) int { return faultsAt(t, st, 8, effects) })
		})
	}
	for i, by := range []time.Duration{15 * time.Minute, -15 * time.Minute, 24 * time.Hour, -24 * time.Hour} {
		try(fmt.Sprintf("the service's is %v ahead", by), clockWorld(skewed(by)), representative(i))
	}
	for _, by := range []time.Duration{14 * time.Minute, -14 * time.Minute} {
		newWorld := clockWorld(skewed(by))
		try(fmt.Sprintf("the service's is %v ahead, with a key", by), func() world {
			w := newWorld()
			w.open = onEmulator // a signature may be as old as that
			return w
		}, creations)
	}
	// With latency, so that the clock moves between requests.
	try("the service's goes back", clockWorld(backwards, emulator.WithLatency(time.Second)), representative(1))

	const latency = 2 * time.Second
	for i, by := range []time.Duration{0, 15 * time.Minute} {
		midnight := representative(i + 2)
		for j, s := range midnight {
			midnight[j] = atMidnight(s, latency)
		}
		try(fmt.Sprintf("over midnight, the service's is %v ahead", by), clockWorld(skewed(by), emulator.WithLatency(latency)), midnight)
	}
}

// TestSkewRefused signs requests with a key while the clocks are too far apart. Each call fails with the
// reason and changes nothing.
func TestSkewRefused(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	newWorld := func() world {
		skew := &atomic.Int64{} // none while the scenario is prepared
		clock := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
		return world{emulator.New(emulator.WithoutLog(), emulator.WithClock(clock)), signing, skew, false}
	}
	everywhere(t, newWorld, everything(), smallOnly, func(t *testing.T, st stage) (runs int) {
		for _, by := range []time.Duration{16 * time.Minute, -16 * time.Minute} {
			runs++
			st.run(t, fmt.Sprintf("by %v", by), func(t *testing.T, w world, c *call) {
				before := contents(w.server)
				w.skew.Store(int64(by))
				err := c.do(t.Context(), t, w.vault(t))
				if !errors.Is(err, storage.ErrDenied) || errors.Is(err, storage.ErrUnknown) {
					t.Fatalf("got %v, want ErrDenied", err)
				}
				off := regexp.MustCompile(`this machine's clock is (-?)1[56]m\d+s off`).FindStringSubmatch(err.Error())
				if off == nil || (off[1] == "-") != (by > 0) {
					t.Errorf("the error does not say that the clock is off by %v: %v", -by, err)
				}
				if !maps.Equal(before, contents(w.server)) {
					t.Error("something was changed")
				}
			})
		}
		return runs
	})
}
