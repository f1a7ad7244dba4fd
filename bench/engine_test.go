package main

import (
	"io"
	"strings"
	"testing"
)

// TestEngineKeepsItsAllocations checks the rows of an engine, which allocates as much in each run. It judges no time.
func TestEngineKeepsItsAllocations(t *testing.T) {
	for _, r := range cpuOfEngine() {
		if err := r.compare(t.Context(), true, effort{rounds: 1}, io.Discard); err != nil {
			t.Errorf("%s: %v", r, err)
		}
	}
	out, _ := output(t, exitPass, nil, "-cpu", "-short", "-run", "^Engine, 60 S")
	r := cpuOfEngine()[0]
	r.allocs = 10
	if err := r.compare(t.Context(), true, effort{rounds: 1}, io.Discard); err == nil || !strings.Contains(out, "\nEngine, 60 S ") {
		t.Errorf("%v\n%s", err, out)
	}
}
