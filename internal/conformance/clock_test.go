package conformance

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestClockOfLists moves the times of a listing that has several, none, or one that is cut off.
func TestClockOfLists(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	text := func(at time.Time) string { return at.Format(http.TimeFormat) }
	c := &clock{jumps: []jump{{began, time.Hour}}}
	for list, want := range map[string]string{
		"":                "",
		"<a>x</a>":        "<a>x</a>",
		"<Last-Modified>": "<Last-Modified>",
		"<a><Last-Modified>BEFORE</Last-Modified><Last-Modified>AT</Last-Modified></a>": "<a><Last-Modified>BEFORE</Last-Modified><Last-Modified>LATER</Last-Modified></a>",
		"<Last-Modified></Last-Modified><Last-Modified>AT":                              "<Last-Modified></Last-Modified><Last-Modified>AT",
	} {
		times := strings.NewReplacer("BEFORE", text(began.Add(-time.Second)), "AT", text(began), "LATER", text(began.Add(time.Hour)))
		if got := string(c.movedList([]byte(times.Replace(list)))); got != times.Replace(want) {
			t.Errorf("%q: got %q, want %q", list, got, times.Replace(want))
		}
	}
}
