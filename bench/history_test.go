package main

import (
	"io"
	"testing"
)

// TestHistoryKeepsItsBudgets measures a year of small days, and a day that takes several reads.
func TestHistoryKeepsItsBudgets(t *testing.T) {
	h := history{days: 365, plans: 100, newest: 20_000}
	rows, err := h.measure(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	for _, over := range h.budget(rows) {
		t.Error(over)
	}
	for _, r := range rows {
		t.Logf("%+v", r)
	}
	b, err := history{newest: 5_000}.build(t.Context())
	if err != nil || b.Bytes == 0 || b.heap > 64<<20 {
		t.Errorf("%+v, %v", b, err)
	}
}
