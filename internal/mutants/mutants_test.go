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

// TestMutantsFit checks that each mutant has its place in the code, compiles, and names a test that exists.
// The command tells whether the test kills it.
func TestMutantsFit(t *testing.T) {
	trials, err := listedTrials(t.Context(), root(t))
	if err != nil {
		t.Error(err)
	}
	tests, err := newSuite(t.Context(), root(t))
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, trial := range trials {
		if paths, err := tests.having(trial.first, trial.path); err != nil || trial.first == "" || len(paths) == 0 {
			t.Errorf("%s names no test that exists: %q (%v)", trial.name, trial.first, err)
		}
		if names[trial.name] {
			t.Errorf("there are two mutants %q", trial.name)
		}
		names[trial.name] = true
	}
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
