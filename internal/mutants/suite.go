package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// slow matches the folders whose tests are not run. Azurite is left out everywhere: what it notices, the emulator must
// notice too.
var slow = regexp.MustCompile(`^(bench|cmd|examples|integration|internal/(azurite|mutants))(/|$)`)

const withoutAzurite = "/azurite$"

// suite is the tests of a module.
type suite struct {
	root     string
	packages []testPackage
}

// testPackage is a package with tests.
type testPackage struct {
	path  string
	tests []string
	deps  map[string]bool // what the tests depend on, directly or not, and the package itself
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// newSuite finds the tests of the module at root. A package with fewer dependencies comes before one with more: its
// tests are quicker.
func newSuite(ctx context.Context, root string) (*suite, error) {
	list, err := goList(ctx, root, "-test", "./...")
	if err != nil {
		return nil, err
	}
	s := &suite{root: root}
	tests := map[string][]string{}
	for _, l := range list {
		if path, ok := strings.CutSuffix(l.ImportPath, ".test"); ok {
			p := testPackage{path: path, deps: map[string]bool{}}
			for _, dep := range l.Deps {
				dep, _, _ = strings.Cut(dep, " ") // "p [q.test]" is p, compiled for the tests of q
				p.deps[dep] = true
			}
			s.packages = append(s.packages, p)
			continue
		}
		if rel, err := filepath.Rel(root, l.Dir); err != nil || strings.Contains(l.ImportPath, " ") || slow.MatchString(rel) {
			continue
		}
		for _, name := range slices.Concat(l.TestGoFiles, l.XTestGoFiles) {
			text, err := os.ReadFile(filepath.Join(l.Dir, name))
			if err != nil {
				return nil, err
			}
			for _, m := range testFunc.FindAllSubmatch(text, -1) {
				tests[l.ImportPath] = append(tests[l.ImportPath], string(m[1]))
			}
		}
	}
	for i := range s.packages {
		s.packages[i].tests = tests[s.packages[i].path]
	}
	slices.SortStableFunc(s.packages, func(a, b testPackage) int { return cmp.Compare(len(a.deps), len(b.deps)) })
	return s, nil
}

// having returns the packages with tests that depend on a package, which comes first.
func (s *suite) having(path string) (paths []string) {
	for _, p := range s.packages {
		switch {
		case !p.deps[path] || len(p.tests) == 0:
		case p.path == path:
			paths = slices.Insert(paths, 0, path)
		default:
			paths = append(paths, p.path)
		}
	}
	return paths
}

// wave is some tests that run together.
type wave struct {
	pattern string // for -run
	short   bool
	limit   time.Duration // a change may cause an endless loop
}

// try runs the tests on a trial until one fails, and returns its name; "" if none does. They run in -short mode, and then
// without it, unless short is set.
func (s *suite) try(ctx context.Context, t trial, short bool) (killer string, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay, err := writeOverlay(dir, filepath.Join(s.root, t.file), t.text)
	if err != nil {
		return "", err
	}
	paths := s.having(t.path)
	if len(paths) == 0 {
		return "", fmt.Errorf("no tests depend on %s", t.path)
	}
	waves := []wave{{"", true, 5 * time.Minute}}
	if !short {
		waves = append(waves, wave{"", false, 30 * time.Minute})
	}
	for _, w := range waves {
		text, err := s.run(ctx, w, append([]string{"-overlay", overlay}, paths...)...)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err == nil:
			continue
		case noBuild.MatchString(text):
			return "", fmt.Errorf("does not build: %s", text)
		}
		path, killer := failure(text)
		return killer, s.passes(ctx, w, path, killer)
	}
	return "", nil
}

// writeOverlay writes a file for -overlay that replaces one file by a text.
func writeOverlay(dir, path string, text []byte) (string, error) {
	changed, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	return overlay, cmp.Or(err, errors.Join(os.WriteFile(changed, text, 0o600), os.WriteFile(overlay, list, 0o600)))
}

// passes returns an error if the test that killed a mutant fails without it, too. The go command remembers that it passes.
func (s *suite) passes(ctx context.Context, w wave, path, killer string) error {
	if path == "" || strings.Contains(killer, " ") {
		return nil // a time-out or a crash
	}
	top, _, _ := strings.Cut(killer, "/") // subtests may need each other
	w.pattern = "^" + top + "$"
	if text, err := s.run(ctx, w, path); err != nil {
		return fmt.Errorf("%s fails without any change: %w\n%s", killer, err, text)
	}
	return nil
}

// maxMemory is how much address space the tests of a change may take, in KiB: an endless loop may allocate.
const maxMemory = 12 << 20

// run runs tests, package after package, until one fails.
func (s *suite) run(ctx context.Context, w wave, args ...string) (string, error) {
	args = append([]string{
		"go", "test", "-vet=off", "-failfast", "-p", "1", "-run", w.pattern, "-skip", withoutAzurite,
		"-timeout", w.limit.String(), fmt.Sprintf("-short=%t", w.short),
	}, args...)
	if runtime.GOOS == "linux" {
		args = append([]string{"sh", "-c", fmt.Sprintf("ulimit -v %d; exec \"$@\"", maxMemory), "sh"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = s.root
	cmd.Env = append(os.Environ(), "GOGC=800") // for the compiler
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	return string(text), err
}

var (
	noBuild       = regexp.MustCompile(`(?m)^FAIL\t\S+ \[(build|setup) failed\]$`)
	failedPackage = regexp.MustCompile(`(?m)^FAIL\t(\S+)\t`)
	failedTest    = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	crashedTest   = regexp.MustCompile(`\.((?:Test|Fuzz|Example)\w*)[.(]`)
)

// failure returns the innermost test that failed, or the one that crashed, and its package.
func failure(text string) (path, killer string) {
	if m := failedPackage.FindStringSubmatch(text); m != nil {
		path = m[1]
	}
	if strings.Contains(text, "panic: test timed out") {
		return path, "a time-out"
	}
	if all := failedTest.FindAllStringSubmatch(text, -1); len(all) > 0 {
		return path, all[len(all)-1][1]
	}
	if m := crashedTest.FindStringSubmatch(text); m != nil {
		return path, m[1] + " (a crash)"
	}
	return path, "a crash"
}
