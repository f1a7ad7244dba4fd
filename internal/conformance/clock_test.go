package conformance

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestClockOfAnswers advances the clock of a service whose Date lags by two seconds. The next answer is later by the
// whole advance, and so is what is written next, but not what was written before.
func TestClockOfAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		written := func() (date, modified time.Time) {
			resp, err := c.on(lagging{}).Do(&http.Request{Method: http.MethodPut})
			if err != nil {
				t.Fatal(err)
			}
			date, _ = http.ParseTime(resp.Header.Get("Date"))
			modified, _ = http.ParseTime(resp.Header.Get("Last-Modified"))
			return date, modified
		}
		before := time.Now()
		written()
		if err := c.pass(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if got := c.moved(before.UTC().Format(http.TimeFormat), c.changed); got != before.UTC().Format(http.TimeFormat) {
			t.Errorf("what was written before moved to %v", got)
		}
		date, modified := written()
		if want := time.Now().Add(time.Hour); !modified.Equal(want) || !date.Equal(want.Add(-2*time.Second)) {
			t.Errorf("an answer at %v has the Date %v and the Last-Modified %v", want, date, modified)
		}
	})
}

// lagging answers with a Date two seconds before Last-Modified.
type lagging struct{}

func (lagging) Do(*http.Request) (*http.Response, error) {
	return &http.Response{Header: http.Header{
		"Date":          {time.Now().UTC().Add(-2 * time.Second).Format(http.TimeFormat)},
		"Last-Modified": {time.Now().UTC().Format(http.TimeFormat)},
	}}, nil
}

// TestClockOfLists moves the times of a listing.
func TestClockOfLists(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := &clock{jumps: []jump{{began, time.Hour}}}
	text := func(before, at time.Time) string {
		return "<a><Last-Modified>" + before.Format(http.TimeFormat) + "</Last-Modified><Last-Modified>" + at.Format(http.TimeFormat) + "</Last-Modified></a><Last-Modified></Last-Modified>"
	}
	before := began.Add(-time.Second)
	if got, want := string(c.movedList([]byte(text(before, began)))), text(before, began.Add(time.Hour)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
