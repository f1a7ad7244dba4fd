package main

import (
	"path/filepath"
	"testing"
)

// root returns the module's folder.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestEquivalentChangesFit checks that each equivalent change has its place in the code and a reason.
func TestEquivalentChangesFit(t *testing.T) {
	loaded, err := load(t.Context(), root(t), mutated...)
	if err != nil {
		t.Fatal(err)
	}
	keys, times := map[string]bool{}, map[string]int{}
	for _, p := range loaded {
		for _, c := range p.changes() {
			if keys[c.key()] {
				t.Errorf("two changes have the key %q", c.key())
			}
			keys[c.key()] = true
			times[c.what()]++
		}
	}
	for what, reason := range equivalent {
		if times[what] != 1 || reason == "" {
			t.Errorf("%q fits %d changes, want 1, and has the reason %q", what, times[what], reason)
		}
	}
}
