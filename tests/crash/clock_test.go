package crash_test

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

	"github.com/planvault/azblob/tests/vaulttest"
)

// clockWorld returns worlds in which the service's clock differs from the vaults' clock, which is the
// bubble's. The vaults use tokens, because signatures with a wrong time are refused.
func clockWorld(clock func() time.Time, opts ...emulator.Option) func() vaulttest.World {
	return func() vaulttest.World {
		return vaulttest.WorldOf(emulator.New(append(opts, emulator.WithoutLog(), emulator.WithClock(clock))...))
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
	s.prepare = func(t *testing.T, w vaulttest.World, shape vaulttest.Shape) func() *call {
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
		deletion("running", vaulttest.AtWork),
		recovery("a create without object", vaulttest.CreateBroken("plans/*-object.json", 1)),
		recovery("a completion without object", vaulttest.CompletionBroken(emulator.PutBlob, "plans/*-object.json")),
		recovery("a delete without object", vaulttest.DeleteBroken(emulator.BatchDelete, "")),
	} {
		if vaulttest.Sampled(3, i, nth) {
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
	try := func(name string, newWorld func() vaulttest.World, scenarios []scenario) {
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
		try(fmt.Sprintf("the service's is %v ahead, with a key", by), func() vaulttest.World {
			w := newWorld()
			w.Open = vaulttest.OnEmulator // a signature may be as old as that
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
	newWorld := func() vaulttest.World {
		skew := &atomic.Int64{} // none while the scenario is prepared
		clock := func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
		return vaulttest.World{Server: emulator.New(emulator.WithoutLog(), emulator.WithClock(clock)), Open: vaulttest.Signing, Skew: skew}
	}
	everywhere(t, newWorld, everything(), smallOnly, func(t *testing.T, st stage) (runs int) {
		for _, by := range []time.Duration{16 * time.Minute, -16 * time.Minute} {
			runs++
			st.run(t, fmt.Sprintf("by %v", by), func(t *testing.T, w vaulttest.World, c *call) {
				before := vaulttest.Contents(w.Server)
				w.Skew.Store(int64(by))
				err := c.do(t.Context(), t, w.Vault(t))
				if !errors.Is(err, storage.ErrDenied) || errors.Is(err, storage.ErrUnknown) {
					t.Fatalf("got %v, want ErrDenied", err)
				}
				off := regexp.MustCompile(`this machine's clock is (-?)1[56]m\d+s off`).FindStringSubmatch(err.Error())
				if off == nil || (off[1] == "-") != (by > 0) {
					t.Errorf("the error does not say that the clock is off by %v: %v", -by, err)
				}
				if !maps.Equal(before, vaulttest.Contents(w.Server)) {
					t.Error("something was changed")
				}
			})
		}
		return runs
	})
}
