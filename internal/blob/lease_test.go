package blob

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
)

// TestLease acquires, renews, meets and releases leases of a container, and deletes it.
func TestLease(t *testing.T) {
	inFilledWorld(t, testLease)
}

func testLease(t *testing.T, w *world) {
	mine, other := uuid.NewString(), uuid.NewString()
	leased := func(want Lease) {
		t.Helper()
		item, err := w.HeadContainer(t.Context(), "box")
		if err != nil || item.Lease != want || !item.Seen.Equal(time.Now().Truncate(time.Second)) {
			t.Errorf("HEAD: %+v, %v, want lease %d", item, err, want)
		}
		for page, err := range w.ListContainers(t.Context(), "box") {
			if err != nil || len(page) != 1 || page[0].Lease != want || !page[0].Seen.Equal(time.Now().Truncate(time.Second)) {
				t.Errorf("list: %+v, %v, want lease %d", page, err, want)
			}
		}
	}
	done := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	wantError(t, "of nothing", w.AcquireLease(t.Context(), "nothing", mine, Forever), AbsentContainer, false)
	leased(Unleased)
	done(w.AcquireLease(t.Context(), "box", mine, 15*time.Second))
	leased(LeasedForATime)
	wantError(t, "another", w.AcquireLease(t.Context(), "box", other, Forever), Leased, false)
	wantError(t, "another's", w.ReleaseLease(t.Context(), "box", other), Leased, false)
	wantError(t, "delete another's", w.DeleteContainer(t.Context(), "box", other), Leased, false)
	time.Sleep(15 * time.Second)
	leased(Unleased)
	wantError(t, "delete after the lease", w.DeleteContainer(t.Context(), "box", mine), Leased, false)
	done(w.AcquireLease(t.Context(), "box", other, Forever))
	leased(LeasedForever)
	done(w.AcquireLease(t.Context(), "box", other, Forever))
	done(w.ReleaseLease(t.Context(), "box", other))
	wantError(t, "released", w.ReleaseLease(t.Context(), "box", other), Leased, false)
	leased(Unleased)
	done(w.AcquireLease(t.Context(), "box", mine, time.Minute))
	done(w.DeleteContainer(t.Context(), "box", mine))
	wantError(t, "deleted", w.DeleteContainer(t.Context(), "box", mine), AbsentContainer, false)
}

// TestLeaseLostAnswers loses the answer to each of the requests, and makes it again.
func TestLeaseLostAnswers(t *testing.T) {
	inFilledWorld(t, func(t *testing.T, w *world) {
		id := uuid.NewString()
		lost := func(op emulator.Op) {
			w.server.Inject(emulator.On(op).Nth(1).Do(emulator.LostAnswer()))
		}
		lost(emulator.LeaseContainer)
		if err := w.AcquireLease(t.Context(), "box", id, Forever); err != nil {
			t.Errorf("acquire: %v", err)
		}
		lost(emulator.LeaseContainer)
		wantError(t, "release", w.ReleaseLease(t.Context(), "box", id), Leased, true)
		if err := w.AcquireLease(t.Context(), "box", id, Forever); err != nil {
			t.Error(err)
		}
		lost(emulator.DeleteContainer)
		wantError(t, "delete", w.DeleteContainer(t.Context(), "box", id), AbsentContainer, true)
		w.server.Inject(emulator.On(emulator.DeleteContainer).Nth(1).Do(emulator.Answer(409, "ContainerBeingDeleted")))
		if err := w.DeleteContainer(t.Context(), "box", id); err != nil {
			t.Errorf("delete beside another: %v", err)
		}
	})
}

// TestStatesOfLeases checks how a lease appears to others.
func TestStatesOfLeases(t *testing.T) {
	for _, test := range []struct {
		state, duration string
		want            Lease
	}{
		{"available", "", Unleased},
		{"expired", "", Unleased},
		{"broken", "", Unleased},
		{"breaking", "", LeasedForATime},
		{"leased", "fixed", LeasedForATime},
		{"leased", "infinite", LeasedForever},
		{"Leased", "Infinite", LeasedForever},
		{"leased", "", LeaseUnknown},
		{"", "", LeaseUnknown},
		{"strange", "infinite", LeaseUnknown},
	} {
		if got := leaseOf(test.state, test.duration); got != test.want {
			t.Errorf("%s, %s: %d, want %d", test.state, test.duration, got, test.want)
		}
	}
}
