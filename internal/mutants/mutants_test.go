package main

import (
	"bytes"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// root is the module's folder, relative to this package.
const root = "../.."

// TestMutantsFit checks that each mutant has its place in the code, compiles, and names a test that exists.
// The command tells whether the test kills it.
func TestMutantsFit(t *testing.T) {
	names := map[string]bool{}
	programs := programs(t)
	changes := map[*program][]change{}
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	tests, err := newSuite(t.Context(), vault, dir, t.TempDir(), 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		if n := bytes.Count(text, []byte(m.old)); n != 1 {
			t.Errorf("%s: the text to change occurs %d times in %s, want once", m.name, n, m.file)
			continue
		}
		from := bytes.Index(text, []byte(m.old))
		if p := programs[m.file]; p != nil {
			changes[p] = append(changes[p], change{fn: m.name, file: m.file, from: from, to: from + len(m.old), text: m.new})
		} else {
			t.Errorf("%s is in no package whose coverage is measured", m.name)
		}
		if m.old == m.new {
			t.Errorf("%s changes nothing", m.name)
		}
		if m.first == "" || len(tests.matching(m.first, m.file)) == 0 {
			t.Errorf("%s names no test that exists: %q", m.name, m.first)
		}
		if names[m.name] {
			t.Errorf("there are two mutants %q", m.name)
		}
		names[m.name] = true
	}
	for p, list := range changes {
		for _, c := range p.broken(list) {
			t.Errorf("%s does not compile", c.fn)
		}
	}
}

// loaded loads the packages whose coverage is measured, once.
var loaded = sync.OnceValues(func() (map[string]*program, error) {
	dir, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	return load(dir, vault.covered...)
})

// programs returns the packages whose coverage is measured by the names of their files.
func programs(t *testing.T) map[string]*program {
	t.Helper()
	all, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	return all
}
