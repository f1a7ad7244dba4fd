package workflow_test

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

func TestNewV7(t *testing.T) {
	met := map[uuid.UUID]bool{workflow.NewV7(): true} // an ID of the real present, which must not affect IDs in the past of the bubble
	synctest.Test(t, func(t *testing.T) {
		var last uuid.UUID
		for i := range 5000 {
			id := workflow.NewV7()
			if !workflow.IsV7(id) {
				t.Fatalf("%s is not a UUIDv7", id)
			}
			if now := time.Now().Truncate(time.Millisecond); !workflow.Time(id).Equal(now) {
				t.Fatalf("the time of %s is %v, want %v", id, workflow.Time(id), now)
			}
			if bytes.Compare(last[:], id[:]) >= 0 || last.String() >= id.String() {
				t.Fatalf("%s was created before %s, but sorts after it", last, id)
			}
			if again := workflow.NewV7(); met[id] || met[again] || again == id {
				t.Fatalf("%s or %s was returned twice", id, again)
			} else {
				met[id], met[again] = true, true
			}
			last = id
			if i < 4500 { // steps of 1/4096 ms, the resolution of IDs, for more than a millisecond
				time.Sleep(245 * time.Nanosecond)
			} else {
				time.Sleep(1234567 * time.Nanosecond)
			}
		}
	})
}

func TestNewV7At(t *testing.T) {
	base := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	times := []time.Time{
		time.UnixMilli(0), time.UnixMilli(1), base, base.Add(250 * time.Nanosecond), base.Add(999_999 * time.Nanosecond),
		base.Add(time.Millisecond), base.AddDate(1000, 0, 0),
	}
	for i, at := range times {
		id, again := workflow.NewV7At(at), workflow.NewV7At(at)
		if id == again || !workflow.IsV7(id) {
			t.Errorf("the IDs at %v are %s and %s, want two UUIDv7s", at, id, again)
		}
		if got := workflow.Time(id); !got.Equal(at.Truncate(time.Millisecond)) {
			t.Errorf("the time of %s is %v, want %v", id, got, at)
		}
		if i > 0 && workflow.NewV7At(times[i-1]).String() >= id.String() {
			t.Errorf("an ID at %v does not sort before one at %v", times[i-1], at)
		}
	}
}

func TestTime(t *testing.T) {
	for _, test := range []struct {
		name, id, want string // want is empty if id is not a UUIDv7
	}{
		// Appendix A.6 of RFC 9562: Tuesday, February 22, 2022 2:22:22.00 PM GMT-05:00.
		{"the RFC's v7", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "2022-02-22T19:22:22Z"},
		{"milliseconds", "017F22E2-79B1-7CC3-98C4-DC0C0C07398F", "2022-02-22T19:22:22.001Z"},
		{"the other bits do not matter", "017F22E2-79B0-7fff-bfff-ffffffffffff", "2022-02-22T19:22:22Z"},
		{"the first", "00000000-0000-7000-8000-000000000000", "1970-01-01T00:00:00Z"},
		{"the last", "ffffffff-ffff-7fff-bfff-ffffffffffff", "10889-08-02T05:31:50.655Z"},
		{"another variant", "017F22E2-79B0-7CC3-58C4-DC0C0C07398F", ""},
		{"the RFC's v1", "C232AB00-9414-11EC-B3C8-9F6BDECED846", ""},
		{"the RFC's v4", "919108f7-52d1-4320-9bac-f847db4148a8", ""},
		{"nil", uuid.Nil.String(), ""},
		{"max", uuid.Max.String(), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			u := uuid.MustParse(test.id)
			if got := workflow.IsV7(u); got != (test.want != "") {
				t.Errorf("IsV7 is %v", got)
			}
			got := workflow.Time(u)
			if test.want == "" {
				if !got.IsZero() {
					t.Errorf("the time is %v, want the zero time", got)
				}
				return
			}
			if got.Location() != time.UTC || got.Format(time.RFC3339Nano) != test.want {
				t.Errorf("the time is %v, want %s", got, test.want)
			}
		})
	}
}

// TestNewV7From gives a key one ID at a time, and other keys and times others.
func TestNewV7From(t *testing.T) {
	at := time.Date(2026, 11, 20, 12, 0, 0, 123_400_000, time.UTC)
	id := workflow.NewV7From(at, "order 4711")
	if again := workflow.NewV7From(at.Add(500*time.Microsecond), "order 4711"); again != id {
		t.Errorf("%s and %s are of one key and millisecond", id, again)
	}
	if !workflow.IsV7(id) || !workflow.Time(id).Equal(at.Truncate(time.Millisecond)) || id.String() != "01a1f8d3-ea7b-77b8-9818-d0fa0d99bc90" {
		t.Errorf("%s is of %v", id, workflow.Time(id))
	}
	for _, other := range []uuid.UUID{workflow.NewV7From(at.Add(time.Millisecond), "order 4711"), workflow.NewV7From(at, "order 4712"), workflow.NewV7From(at, "")} {
		if other == id {
			t.Errorf("%s is the ID of another key or time, too", other)
		}
	}
}

// TestTimesWithoutID gives times that no ID can have the nearest ones.
func TestTimesWithoutID(t *testing.T) {
	first, last := time.UnixMilli(0).UTC(), time.UnixMilli(1<<48-1).UTC()
	for at, want := range map[time.Time]time.Time{
		{}: first, first.Add(-time.Nanosecond): first, first: first, last: last, last.AddDate(1, 0, 0): last,
	} {
		for _, id := range []uuid.UUID{workflow.NewV7At(at), workflow.NewV7From(at, "key")} {
			if got := workflow.Time(id); !got.Equal(want) {
				t.Errorf("the ID of %v has %v, want %v", at, got, want)
			}
		}
	}
}
