package storage_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/planvault/azblob/storage"
)

func ExampleDayOf() {
	berlin := time.FixedZone("CET", 3600)
	christmas := time.Date(2026, time.December, 25, 0, 0, 0, 0, berlin)
	fmt.Println(storage.DayOf(christmas), "has the plans that were created then, in UTC")
	// Output: 2026-12-24 has the plans that were created then, in UTC
}

func TestDay(t *testing.T) {
	leap := storage.Day{Year: 2028, Month: time.February, Day: 29}
	for _, text := range []string{"", "2026-02-29", "2026-1-1", "25.12.2026", "2026-12-25T00:00:00Z", "-0001-01-01"} {
		if d, err := storage.ParseDay(text); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("ParseDay(%q) = %v, %v", text, d, err)
		}
	}
	if d, err := storage.ParseDay("2028-02-29"); d != leap || err != nil {
		t.Errorf("got %v, %v", d, err)
	}
	if next := leap.Add(1); next.String() != "2028-03-01" || !leap.Before(next) || !next.After(leap) || next.Add(-1) != leap {
		t.Errorf("the day after %v is %v", leap, next)
	}
	if d := storage.DayOf(leap.Start().Add(24*time.Hour - 1)); d != leap {
		t.Errorf("the last instant of %v is in %v", leap, d)
	}
	if (storage.Day{Year: 2026, Month: 13, Day: 1}).Valid() || (storage.Day{}).Valid() || !leap.Valid() {
		t.Error("a day is valid that the calendar does not have, or the other way round")
	}
	var zero storage.Day
	if zero != storage.DayOf(time.Time{}) || !zero.Start().IsZero() || zero.String() != "" {
		t.Errorf("no day: %v, %v", storage.DayOf(time.Time{}), zero.Start())
	}
	type row struct{ From, To storage.Day }
	want := row{From: leap}
	text, err := json.Marshal(want)
	var got row
	if err := errors.Join(err, json.Unmarshal(text, &got)); err != nil || got != want || string(text) != `{"From":"2028-02-29","To":""}` {
		t.Errorf("%s reads as %v: %v", text, got, err)
	}
}
