package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
)

// TestKeep removes plans and a day, which come back from the files that say so, one plan or all. No run writes over the file of
// another, and what can't be kept is not removed.
func TestKeep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, dir := newStage(t), t.TempDir()
		plans := s.fill(t, 3, 3)
		was := s.must(t, "list", "--output", "json").stdout
		one, two := filepath.Join(dir, "a.bundle"), filepath.Join(dir, "a-2.bundle")
		s.says(t, exitFailed, "nothing was changed", "purge", plans[0].String(), "--yes", "--keep", filepath.Join(dir, "no", "folder"))
		for i, file := range []string{one, two} {
			s.says(t, exitDone, "are in "+file+": planvault import", "purge", plans[i].String(), plans[2].String(), "--yes", "--keep", one)
		}
		s.must(t, "purge", plans[2].String(), "--yes", "--keep", one) // nothing
		s.must(t, "expire", "--older-than", "1d", "--yes", "--keep", one)
		files, _ := filepath.Glob(dir + "/*")
		if three := filepath.Join(dir, "a-3.bundle"); strings.Join(files, " ") != strings.Join([]string{two, three, one}, " ") {
			t.Fatalf("the files are %q", files)
		}
		text, err := os.ReadFile(one)
		must(t, err)
		must(t, os.WriteFile(one, text[:len(text)-1], 0o600)) // as a kill leaves it
		s.says(t, exitFound, "it has 0 of these 1 plan", "import", one, plans[1].String(), "--yes")
		s.says(t, exitDone, "1 plan restored, 0 there already", "import", one, plans[0].String(), plans[0].String(), "--yes")
		if r := s.must(t, "import", "--verify-only", one); !strings.Contains(r.stdout, "2 plans") || !strings.Contains(r.stdout, "without its end") {
			t.Errorf("%+v", r)
		}
		for _, file := range files {
			s.must(t, "import", file, "--yes")
		}
		if is := s.must(t, "list", "--output", "json").stdout; is != was {
			t.Errorf("the plans are\n%s, not\n%s", is, was)
		}
	})
}
