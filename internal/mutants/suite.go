package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// scope names packages of a module, as patterns: those that are changed at random, those whose tests run, and those in which it
// is known what each test runs through.
type scope struct{ mutated, tested, covered []string }

// vault is what is tried here. Azurite is left out: what it notices the emulator must notice, too.
var vault = scope{
	mutated: []string{".", "./internal/blob"},
	tested:  []string{".", "./internal/blob", "./storage/...", "./workflow"},
	covered: []string{".", "./internal/blob", "./storage", "./storage/driver", "./workflow"},
}

const withoutAzurite = "/azurite$"

// suite is the module's tests, with what each runs through.
type suite struct {
	root  string // of the module
	dir   string // for what is built
	tests []*test
	code  map[string][]block // all that can be run, by file
}

// test is a top-level test of a package.
type test struct {
	pkg, name string
	took      time.Duration
	skipped   bool               // by -short, in whole
	ran       map[string][]block // by file
}

// block is a stretch of code without a branch, as lines and columns.
type block struct{ from, to place }

type place struct{ line, column int }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.line, q.line), cmp.Compare(p.column, q.column))
}

// measure builds the tests and runs each by itself, to learn what it runs through and how long it takes. All must pass.
func measure(ctx context.Context, what scope, root, dir string, workers int) (*suite, error) {
	s := &suite{root: root, dir: dir, code: map[string][]block{}}
	list, err := goCommand(ctx, root, append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}"}, what.tested...)...)
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	module, err := goCommand(ctx, root, "list", "-m")
	if err != nil {
		return nil, fmt.Errorf("find the module's name: %w", err)
	}
	for _, pkg := range strings.Fields(list) {
		binary := s.binary(dir, pkg)
		if text, err := goCommand(ctx, root, "test", "-c", "-cover", "-coverpkg", strings.Join(what.covered, ","), "-o", binary, pkg); err != nil {
			return nil, fmt.Errorf("build the tests of %s: %w: %s", pkg, err, text)
		}
		names, err := exec.CommandContext(ctx, binary, "-test.list", ".").Output()
		if err != nil {
			return nil, fmt.Errorf("list the tests of %s: %w", pkg, err)
		}
		for _, name := range strings.Fields(string(names)) {
			if !strings.HasPrefix(name, "Benchmark") {
				s.tests = append(s.tests, &test{pkg: pkg, name: name})
			}
		}
	}
	var (
		g  errgroup.Group
		mu sync.Mutex // for s.code
	)
	g.SetLimit(workers)
	for i, t := range s.tests {
		g.Go(func() error {
			profile := filepath.Join(dir, strconv.Itoa(i)+".cover")
			defer os.Remove(profile)
			started := time.Now()
			text, err := s.run(ctx, s.binary(dir, t.pkg), t.pkg, 10*time.Minute, "-test.run", only(t), "-test.short", "-test.v", "-test.coverprofile", profile)
			if err != nil {
				return fmt.Errorf("%s fails without any change: %w\n%s", t.name, err, text)
			}
			t.took = time.Since(started)
			t.skipped = strings.Contains(text, "\n--- SKIP: "+t.name+" ")
			code, ran, err := readProfile(profile, strings.TrimSpace(module)+"/")
			t.ran = ran
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(s.code, code)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(s.tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	return s, nil
}

// readProfile reads which blocks each file has, and through which of them a run went.
func readProfile(path, module string) (code, ran map[string][]block, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	code, ran = map[string][]block{}, map[string][]block{}
	line := regexp.MustCompile(`^(.+):(\d+)\.(\d+),(\d+)\.(\d+) \d+ (\d+)$`)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue // the first line
		}
		n := func(i int) int { v, _ := strconv.Atoi(m[i]); return v }
		file := strings.TrimPrefix(m[1], module)
		b := block{place{n(2), n(3)}, place{n(4), n(5)}}
		code[file] = append(code[file], b)
		if m[6] != "0" {
			ran[file] = append(ran[file], b)
		}
	}
	return code, ran, lines.Err()
}

// touches says whether any of the blocks has code between two places.
func touches(blocks []block, from, to place) bool {
	return slices.ContainsFunc(blocks, func(b block) bool {
		return b.from.compare(to) <= 0 && from.compare(b.to) < 0
	})
}

// trial is a changed file, and what is known about the tests that may notice.
type trial struct {
	name string
	file string // within the module
	text []byte
	diff string
	// from and to are the changed code, first and last the declaration that it is in.
	from, to, first, last place
	// likely matches the names of tests to run before all others; nil if none are likelier.
	likely *regexp.Regexp
}

// newTrial replaces what stands between two offsets of a file.
func newTrial(name, file string, text []byte, from, to int, replacement string) (trial, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, text, parser.SkipObjectResolution)
	if err != nil {
		return trial{}, err
	}
	at := func(pos token.Pos) place {
		p := fset.Position(pos)
		return place{p.Line, p.Column}
	}
	base := token.Pos(fset.File(f.Pos()).Base())
	t := trial{
		name: name, file: file, text: slices.Concat(text[:from], []byte(replacement), text[to:]),
		from: at(base + token.Pos(from)), to: at(base + token.Pos(to)),
	}
	t.first, t.last = place{1, 1}, at(f.End())
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && int(fn.Pos()-base) <= from && from < int(fn.End()-base) {
			t.first, t.last = at(fn.Pos()), at(fn.End())
		}
	}
	// The diff is of whole lines.
	begin := bytes.LastIndexByte(text[:from], '\n') + 1
	end := to
	if i := bytes.IndexByte(text[to:], '\n'); i >= 0 {
		end += i
	}
	lines := func(sign, text string) string { return sign + strings.ReplaceAll(text, "\n", "\n"+sign) + "\n" }
	t.diff = fmt.Sprintf("@@ %s:%d\n", file, t.from.line) + lines("-", string(text[begin:end])) +
		lines("+", string(text[begin:from])+replacement+string(text[to:end]))
	return t, nil
}

// try runs the tests on a trial until one fails, and returns its name; "" if none does.
//
// What runs through the changed code in -short mode runs first, quick tests before slow ones. Then everything that runs
// through its function runs without -short, unless short says not to.
func (s *suite) try(ctx context.Context, t trial, short bool) (killer string, err error) {
	dir, err := os.MkdirTemp(s.dir, "trial")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	overlay := filepath.Join(dir, "overlay.json")
	changed := filepath.Join(dir, filepath.Base(t.file))
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(s.root, t.file): changed}})
	if err != nil {
		return "", err
	}
	if err := errors.Join(os.WriteFile(changed, t.text, 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", err
	}
	for _, w := range s.waves(t, short) {
		binary := s.binary(dir, w.pkg)
		if _, err := os.Stat(binary); err != nil {
			if text, err := goCommand(ctx, s.root, "test", "-c", "-ldflags=-w", "-overlay", overlay, "-o", binary, w.pkg); err != nil {
				return "", fmt.Errorf("does not build: %s", text)
			}
		}
		args := []string{"-test.failfast", "-test.run", only(w.tests...)}
		if w.short {
			args = append(args, "-test.short")
		}
		text, err := s.run(ctx, binary, w.pkg, w.limit(), args...)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err != nil {
			return failure(text), nil
		}
	}
	return "", nil
}

// wave is some tests of one package, which run together.
type wave struct {
	pkg   string
	short bool
	tests []*test
}

// limit is how long a wave may take: a change may well let a loop go on for ever.
func (w wave) limit() time.Duration {
	var took time.Duration
	for _, t := range w.tests {
		took += t.took
	}
	if !w.short {
		return 10*took + 10*time.Minute
	}
	return 5*took + 20*time.Second
}

// waves sorts the tests that may notice a change.
func (s *suite) waves(t trial, short bool) []wave {
	from, to := t.from, t.to
	if !touches(s.code[t.file], from, to) { // a constant, or an expression of a case
		from, to = t.first, t.last
	}
	var likely, near, far []*test
	for _, test := range s.tests { // the quickest first
		touched := touches(test.ran[t.file], from, to)
		if t.likely != nil && t.likely.MatchString(test.name) {
			likely = append(likely, test)
		} else if touched {
			near = append(near, test)
		}
		if touched || test.skipped || touches(test.ran[t.file], t.first, t.last) {
			far = append(far, test)
		}
	}
	var waves []wave
	add := func(tests []*test, short bool) {
		for _, pkg := range s.packages() {
			w := wave{pkg: pkg, short: short}
			for _, test := range tests {
				if test.pkg == pkg {
					w.tests = append(w.tests, test)
				}
			}
			if len(w.tests) > 0 {
				waves = append(waves, w)
			}
		}
	}
	add(likely, true)
	for _, atMost := range []time.Duration{200 * time.Millisecond, time.Second, time.Hour} {
		n, _ := slices.BinarySearchFunc(near, atMost, func(t *test, d time.Duration) int { return cmp.Compare(t.took, d) })
		add(near[:n], true)
		near = near[n:]
	}
	if !short {
		add(far, false)
	}
	return waves
}

// packages are the folders of the tested packages, those with the quickest tests first.
func (s *suite) packages() []string {
	var list []string
	for _, t := range s.tests {
		if !slices.Contains(list, t.pkg) {
			list = append(list, t.pkg)
		}
	}
	return list
}

func (s *suite) binary(dir, pkg string) string {
	rel, _ := filepath.Rel(s.root, pkg) // pkg lies in the root
	return filepath.Join(dir, strings.ReplaceAll(filepath.ToSlash(filepath.Join("tests", rel)), "/", "-")+".test")
}

// maxMemory is how much address space the tests of a change may take, in KiB: a loop that goes on for ever may allocate.
const maxMemory = 12 << 20

// run runs a test binary in its package's folder.
func (s *suite) run(ctx context.Context, binary, pkg string, limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second) // the binary ends itself, if it can
	defer cancel()
	args = append([]string{binary, "-test.skip", withoutAzurite, "-test.timeout", limit.String()}, args...)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	if runtime.GOOS == "linux" {
		cmd = exec.CommandContext(ctx, "sh", append([]string{"-c", fmt.Sprintf("ulimit -v %d; exec \"$@\"", maxMemory), "sh"}, args...)...)
	}
	cmd.Dir = pkg
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// only is a regular expression for the names of some tests.
func only(tests ...*test) string {
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = regexp.QuoteMeta(t.name)
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

func goCommand(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// failure names the innermost test that failed, or one that a crash went through.
func failure(text string) string {
	if strings.Contains(text, "panic: test timed out") {
		return "a time-out"
	}
	if failed := regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindAllStringSubmatch(text, -1); len(failed) > 0 {
		return failed[len(failed)-1][1]
	}
	if test := regexp.MustCompile(`\.((?:Test|Fuzz|Example)\w*)[.(]`).FindStringSubmatch(text); test != nil {
		return test[1] + " (a crash)"
	}
	return "a crash"
}
