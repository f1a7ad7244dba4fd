package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// TestLife runs the program in virtual time, where only the wait before the second try is random.
func TestLife(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		if err := run(t.Context(), &out); err != nil {
			t.Fatal(err)
		}
	})
	var calls []string
	requests := map[string]int{} // some are sent at once, in any order
	for line := range strings.Lines(out.String()) {
		words := strings.Join(strings.Fields(line), " ")
		if strings.HasPrefix(line, "      ") {
			requests[words]++
		} else {
			calls = append(calls, words)
		}
	}
	want := []string{"Read 20.0ms ok, requests 2, round trips 1", "UpdatePlan 20.0ms ok, requests 2, round trips 1", "UpdatePlan 40.0ms conflict, requests 3, round trips 2"}
	for _, what := range []string{"UpdateBlock", "UpdateSequence", "UpdateAction", "UpdateBlock", "UpdateSequence", "UpdateAction"} {
		want = append(want, what+" 20.0ms ok, requests 1, round trips 1")
	}
	want = append(want, "UpdatePlan 60.0ms ok, requests 3, round trips 3", "Read 20.0ms ok, requests 2, round trips 1",
		"Close 0.0ms ok, requests 0, round trips 0", "Close 0.0ms ok, requests 0, round trips 0")
	if len(calls) < 2 || !strings.HasPrefix(calls[0], "the life of a plan ") || !strings.HasSuffix(calls[1], "ms ok, requests 8, round trips 6") || !slices.Equal(calls[2:], want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(calls, "\n"), strings.Join(want, "\n"))
	}
	for line, n := range map[string]int{
		"PUT actions/<id>/<id>.json 20.0ms ! 503": 1, "PUT actions/<id>/<id>.json 20.0ms 201": 3, "azblob.retry 503": 1, "azblob.conflict": 1,
		"PUT plans/<id>-entry.json 20.0ms 412": 1, "GET plans/<id>-entry.json 20.0ms 200": 2, "DELETE open/<id> 20.0ms 202": 1,
	} {
		if requests[line] != n {
			t.Errorf("%q is there %d times, want %d", line, requests[line], n)
		}
	}
}
