package blob

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
)

// TestLease acquires, renews, meets and releases leases of a container, and deletes it.
func TestLease(t *testing.T) {
	inFilledWorld(t, func(t *testing.T, w *world) {
		mine, other := uuid.NewString(), uuid.NewString()
		leased := func(want Lease) {
			t.Helper()
			item, err := w.HeadContainer(t.Context(), "box")
			must(t, err)
			for page, err := range w.ListContainers(t.Context(), "box") {
				must(t, err)
				for _, got := range append(page, item) {
					if got.Name != "box" || got.Lease != want || !got.Seen.Equal(time.Now()) {
						t.Errorf("%+v, want lease %d", got, want)
					}
				}
			}
		}
		wantError(t, "of nothing", w.AcquireLease(t.Context(), "nothing", mine, Forever), AbsentContainer, false)
		leased(Unleased)
		must(t, w.AcquireLease(t.Context(), "box", mine, 15*time.Second))
		leased(LeasedForATime)
		wantError(t, "another", w.AcquireLease(t.Context(), "box", other, Forever), Leased, false)
		wantError(t, "another's", w.ReleaseLease(t.Context(), "box", other), Leased, false)
		wantError(t, "delete another's", w.DeleteContainer(t.Context(), "box", other), Leased, false)
		time.Sleep(15 * time.Second)
		leased(Unleased)
		wantError(t, "delete after the lease", w.DeleteContainer(t.Context(), "box", mine), Leased, false)
		must(t, w.AcquireLease(t.Context(), "box", other, Forever))
		leased(LeasedForever)
		must(t, w.AcquireLease(t.Context(), "box", other, Forever))
		must(t, w.ReleaseLease(t.Context(), "box", other))
		wantError(t, "released", w.ReleaseLease(t.Context(), "box", other), Leased, false)
		leased(Unleased)
		must(t, w.AcquireLease(t.Context(), "box", mine, time.Minute))
		must(t, w.DeleteContainer(t.Context(), "box", mine))
		wantError(t, "deleted", w.DeleteContainer(t.Context(), "box", mine), AbsentContainer, false)
	})
}

// TestLeaseLostAnswers loses the answer to each of the requests, and makes it again.
func TestLeaseLostAnswers(t *testing.T) {
	inFilledWorld(t, func(t *testing.T, w *world) {
		id := uuid.NewString()
		lost := emulator.LostAnswer()
		w.server.Inject(emulator.On(emulator.LeaseContainer).Nth(1).Do(lost))
		must(t, w.AcquireLease(t.Context(), "box", id, Forever))
		w.server.Inject(emulator.On(emulator.LeaseContainer).Nth(1).Do(lost))
		wantError(t, "release", w.ReleaseLease(t.Context(), "box", id), Leased, true)
		must(t, w.AcquireLease(t.Context(), "box", id, Forever))
		w.server.Inject(emulator.On(emulator.DeleteContainer).Nth(1).Do(lost))
		wantError(t, "delete", w.DeleteContainer(t.Context(), "box", id), AbsentContainer, true)
		w.server.Inject(emulator.On(emulator.DeleteContainer).Nth(1).Do(emulator.Answer(409, "ContainerBeingDeleted")))
		must(t, w.DeleteContainer(t.Context(), "box", id)) // beside another
	})
}

// TestStatesOfLeases checks how a lease appears to others.
func TestStatesOfLeases(t *testing.T) {
	for state, want := range map[[2]string]Lease{
		{"available"}: Unleased, {"expired"}: Unleased, {"broken"}: Unleased, {"breaking"}: LeasedForATime, {"leased", "fixed"}: LeasedForATime,
		{"leased", "infinite"}: LeasedForever, {"Leased", "Infinite"}: LeasedForever, {"leased"}: LeaseUnknown, {}: LeaseUnknown, {"strange", "infinite"}: LeaseUnknown,
	} {
		if got := leaseOf(state[0], state[1]); got != want {
			t.Errorf("%s: %d, want %d", state, got, want)
		}
	}
}
