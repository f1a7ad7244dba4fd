package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// root is the module's folder, seen from this package's.
const root = "../.."

// TestMutantsFit sees that each mutant still has its place in the code, and compiles. Whether the tests kill it takes the
// command.
func TestMutantsFit(t *testing.T) {
	names := map[string]bool{}
	programs := programs(t, vault.covered)
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		if n := bytes.Count(text, []byte(m.old)); n != 1 {
			t.Errorf("%s: the place to change is %d times in %s, want once", m.name, n, m.file)
			continue
		}
		from := bytes.Index(text, []byte(m.old))
		if p := programs[m.file]; p == nil || !p.compiles(change{file: m.file, from: from, to: from + len(m.old), text: m.new}) {
			t.Errorf("%s does not compile", m.name)
		}
		if m.old == m.new || m.first == "" {
			t.Errorf("%s changes nothing, or names no test", m.name)
		}
		if names[m.name] {
			t.Errorf("there are two mutants %q", m.name)
		}
		names[m.name] = true
	}
}

// programs loads packages of the module, by the names of their files.
func programs(t *testing.T, patterns []string) map[string]*program {
	t.Helper()
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*program{}
	for _, pattern := range patterns {
		p, err := load(dir, pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range p.names {
			all[name] = p
		}
	}
	return all
}

// TestMutantsAreListed holds docs/testing.md against the list.
func TestMutantsAreListed(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "testing.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		if !strings.Contains(string(page), "\n- "+m.name+"\n") {
			t.Errorf("docs/testing.md does not list the mutant %q", m.name)
		}
	}
}
