package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
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

// scope names packages of a module by patterns: those that random changes are made in, those whose tests run,
// and those whose coverage by each test is measured.
type scope struct{ mutated, tested, covered []string }

// vault is the scope of this module. Azurite is left out: what it notices, the emulator must notice too.
var vault = scope{
	mutated: []string{".", "./internal/blob", "./internal/listing", "./storage/driver"},
	tested:  []string{".", "./engine", "./fleet", "./internal/blob", "./internal/catalogue", "./internal/listing", "./storage/...", "./workflow"},
	covered: []string{".", "./engine", "./fleet", "./internal/blob", "./internal/catalogue", "./internal/listing", "./storage", "./storage/bundle", "./storage/driver", "./storage/mirror", "./workflow"},
}

const withoutAzurite = "/azurite$"

// suite is the tests of a module.
type suite struct {
	scope
	root     string                       // of the module
	dir      string                       // for what is built
	workers  int                          // how many test binaries run at the same time
	packages []string                     // the folders of packages with tests
	names    map[string][]string          // of the tests, by folder
	texts    map[string]map[string][]byte // of the files of tests, by folder and path
	// measure runs every test by itself. It takes minutes, so it is called only when the likely tests do not
	// kill a mutant.
	measure func() (coverage, error)
	// tried holds the outcomes of what is done once without any change, by package and test, as func() error.
	tried sync.Map
}

// coverage is what each test runs through.
type coverage struct {
	tests    []*test            // the quickest first
	packages []string           // folders, those with the quickest tests first
	code     map[string][]block // everything that can run, by file
}

// test is a top-level test of a package.
type test struct {
	pkg, name string
	took      time.Duration
	skipped   bool               // by -short, as a whole
	ran       map[string][]block // by file
}

// block is a stretch of code without a branch, as lines and columns.
type block struct{ from, to place }

type place struct{ line, column int }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.line, q.line), cmp.Compare(p.column, q.column))
}

// newSuite finds the tests of a module. The folder dir is for what is built.
func newSuite(ctx context.Context, what scope, root, dir string, workers int) (*suite, error) {
	s := &suite{scope: what, root: root, dir: dir, workers: workers, names: map[string][]string{}, texts: map[string]map[string][]byte{}}
	s.measure = sync.OnceValues(func() (coverage, error) { return s.runEach(ctx) })
	const files = "{{$dir := .Dir}}{{range .TestGoFiles}}{{$dir}}\t{{.}}\n{{end}}{{range .XTestGoFiles}}{{$dir}}\t{{.}}\n{{end}}"
	list, err := goCommand(ctx, root, append([]string{"list", "-f", files}, what.tested...)...)
	if err != nil {
		return nil, fmt.Errorf("list packages: %w: %s", err, list)
	}
	for line := range strings.Lines(list) {
		dir, file, found := strings.Cut(strings.TrimSpace(line), "\t")
		if !found {
			continue
		}
		if !slices.Contains(s.packages, dir) {
			s.packages = append(s.packages, dir)
			s.texts[dir] = map[string][]byte{}
		}
		path := filepath.Join(dir, file)
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s.texts[dir][path] = text
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			s.names[dir] = append(s.names[dir], string(m[1]))
		}
	}
	return s, nil
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// matching returns the folders of packages that have a test which a -run pattern matches. The folder of file
// comes first.
func (s *suite) matching(pattern, file string) []string {
	re, err := topLevel(pattern)
	if err != nil {
		return nil
	}
	own := filepath.Join(s.root, filepath.Dir(file))
	var list []string
	for _, dir := range s.packages {
		if slices.ContainsFunc(s.names[dir], re.MatchString) {
			if dir == own {
				list = slices.Insert(list, 0, dir)
			} else {
				list = append(list, dir)
			}
		}
	}
	return list
}

// topLevel returns what matches the tests of a -run pattern without their subtests.
func topLevel(pattern string) (*regexp.Regexp, error) {
	var tops []string
	for alternative := range strings.SplitSeq(pattern, "|") {
		top, _, _ := strings.Cut(alternative, "/")
		tops = append(tops, top)
	}
	return regexp.Compile(strings.Join(tops, "|"))
}

// runEach runs each test by itself, to learn what it runs through and how long it takes. All must pass.
func (s *suite) runEach(ctx context.Context) (coverage, error) {
	c := coverage{code: map[string][]block{}}
	module, err := goCommand(ctx, s.root, "list", "-m")
	if err != nil {
		return c, fmt.Errorf("find the module's name: %w", err)
	}
	for _, pkg := range s.packages {
		args := []string{"test", "-c", "-cover", "-coverpkg", strings.Join(s.covered, ","), "-o", s.binary(s.dir, pkg), pkg}
		if text, err := goCommand(ctx, s.root, args...); err != nil {
			return c, fmt.Errorf("build the tests of %s: %w: %s", pkg, err, text)
		}
		for _, name := range s.names[pkg] {
			if name != "TestMain" {
				c.tests = append(c.tests, &test{pkg: pkg, name: name})
			}
		}
	}
	var (
		g  errgroup.Group
		mu sync.Mutex // for c.code
	)
	g.SetLimit(s.workers)
	for i, t := range c.tests {
		g.Go(func() error {
			code, err := s.runOne(ctx, t, filepath.Join(s.dir, strconv.Itoa(i)+".cover"), strings.TrimSpace(module)+"/")
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(c.code, code)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return c, err
	}
	slices.SortFunc(c.tests, func(a, b *test) int { return cmp.Compare(a.took, b.took) })
	for _, t := range c.tests {
		if !slices.Contains(c.packages, t.pkg) {
			c.packages = append(c.packages, t.pkg)
		}
	}
	return c, nil
}

// runOne runs one test and fills in what is learned about it. It returns the blocks of all files.
func (s *suite) runOne(ctx context.Context, t *test, profile, module string) (code map[string][]block, err error) {
	defer os.Remove(profile)
	started := time.Now()
	args := []string{"-test.run", only(t), "-test.short", "-test.v", "-test.coverprofile", profile}
	text, err := s.run(ctx, s.binary(s.dir, t.pkg), t.pkg, 10*time.Minute, args...)
	if err != nil {
		return nil, fmt.Errorf("%s fails without any change: %w\n%s", t.name, err, text)
	}
	t.took = time.Since(started)
	t.skipped = strings.Contains(text, "\n--- SKIP: "+t.name+" ")
	code, t.ran, err = readProfile(profile, module)
	return code, err
}

// readProfile reads the blocks of each file, and those that a run went through.
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

// touches reports whether any of the blocks has code between two places.
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
	// from and to delimit the changed code, first and last the declaration around it.
	from, to, first, last place
	// likely is a -run pattern of tests to run before all others; empty if there are none.
	likely string
}

// newTrial replaces the text between two offsets of a file.
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
// The likely tests run first, in -short mode and then without. The other tests that run through the changed
// code follow in -short mode, quick tests before slow ones. Everything that runs through the changed function
// comes last, without -short. The waves without -short are left out if short is set.
func (s *suite) try(ctx context.Context, t trial, short bool) (killer string, err error) {
	dir, err := os.MkdirTemp(s.dir, "trial")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	killer, err = s.tryWaves(ctx, s.likelyWaves(t, short), dir, t)
	if err != nil || killer != "" {
		return killer, err
	}
	c, err := s.measure()
	if err != nil {
		return "", err
	}
	return s.tryWaves(ctx, c.waves(t, short), dir, t)
}

// tryWaves runs waves of tests until one fails.
func (s *suite) tryWaves(ctx context.Context, waves []wave, dir string, t trial) (killer string, err error) {
	for _, w := range waves {
		binary, err := s.build(ctx, w, dir, t)
		if err != nil {
			return "", err
		}
		args := []string{"-test.failfast", "-test.run", w.pattern}
		if w.short {
			args = append(args, "-test.short")
		}
		text, err := s.run(ctx, binary, w.pkg, w.limit(), args...)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if err != nil {
			killer := failure(text)
			return killer, s.passes(ctx, w, killer)
		}
	}
	return "", nil
}

// build builds the tests of a wave, unless an earlier wave has. Likely tests are built without the others, which
// fails if what they need can't be told by names.
func (s *suite) build(ctx context.Context, w wave, dir string, t trial) (binary string, err error) {
	texts := map[string][]byte{filepath.Join(s.root, t.file): t.text}
	if w.likely {
		if binary, err := s.buildLikely(ctx, w, filepath.Join(dir, "likely"), maps.Clone(texts)); err == nil {
			return binary, nil
		}
	}
	binary = s.binary(dir, w.pkg)
	return binary, s.buildOnce(ctx, w.pkg, binary, texts)
}

// buildLikely builds the tests of a wave alone.
func (s *suite) buildLikely(ctx context.Context, w wave, dir string, texts map[string][]byte) (binary string, err error) {
	re, err := topLevel(w.pattern)
	if err != nil {
		return "", err
	}
	pruned, err := prune(s.texts[w.pkg], re)
	if err != nil {
		return "", err
	}
	maps.Copy(texts, pruned)
	binary = s.binary(dir, w.pkg)
	return binary, s.buildOnce(ctx, w.pkg, binary, texts)
}

// buildOnce builds the tests of a package with the given texts of files, unless the binary exists.
func (s *suite) buildOnce(ctx context.Context, pkg, binary string, texts map[string][]byte) error {
	if _, err := os.Stat(binary); err == nil {
		return nil
	}
	dir, err := os.MkdirTemp(s.dir, "overlay")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	replace := map[string]string{}
	for path, text := range texts {
		replace[path] = filepath.Join(dir, fmt.Sprintf("%d-%s", len(replace), filepath.Base(path)))
		if err := os.WriteFile(replace[path], text, 0o600); err != nil {
			return err
		}
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		return err
	}
	if text, err := s.compile(ctx, pkg, binary, "-overlay", overlay); err != nil {
		return fmt.Errorf("does not build: %s", text)
	}
	return nil
}

// compile builds the tests of a package as cheaply as the tools can: a binary runs few tests, once.
func (s *suite) compile(ctx context.Context, pkg, binary string, args ...string) (string, error) {
	args = slices.Concat([]string{"test", "-c", "-vet=off", "-gcflags=-N -l -dwarf=false", "-ldflags=-s -w", "-o", binary}, args, []string{pkg})
	return goCommand(ctx, s.root, args...)
}

// passes returns an error if a test of a wave fails without any change. Each test is tried once.
func (s *suite) passes(ctx context.Context, w wave, name string) error {
	if !strings.HasPrefix(name, "Test") || strings.Contains(name, " ") {
		return nil // a time-out or a crash
	}
	once, _ := s.tried.LoadOrStore(fmt.Sprint(w.pkg, name, w.short), sync.OnceValue(func() error {
		binary, err := s.unchanged(ctx, w.pkg)
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(name, "/") // its subtests may need each other
		args := []string{"-test.run", "^" + top + "$", fmt.Sprintf("-test.short=%t", w.short)}
		if text, err := s.run(ctx, binary, w.pkg, 10*time.Minute, args...); err != nil {
			return fmt.Errorf("%s fails without any change: %w\n%s", name, err, text)
		}
		return nil
	}))
	return once.(func() error)()
}

// unchanged builds the tests of a package without any change, once.
func (s *suite) unchanged(ctx context.Context, pkg string) (binary string, err error) {
	binary = s.binary(filepath.Join(s.dir, "unchanged"), pkg)
	once, _ := s.tried.LoadOrStore(pkg, sync.OnceValue(func() error {
		if text, err := s.compile(ctx, pkg, binary); err != nil {
			return fmt.Errorf("build the tests of %s: %w: %s", pkg, err, text)
		}
		return nil
	}))
	return binary, once.(func() error)()
}

// wave is some tests of one package, which run together.
type wave struct {
	pkg     string
	pattern string // for -run
	short   bool
	likely  bool          // the pattern is the trial's
	took    time.Duration // by the tests without a change, in -short mode; 0 if it was not measured
}

// limit is how long a wave may take: a change may cause an endless loop.
func (w wave) limit() time.Duration {
	switch {
	case !w.short:
		return 10*w.took + 10*time.Minute
	case w.took == 0:
		return 2 * time.Minute
	}
	return 5*w.took + 20*time.Second
}

// likelyWaves returns the waves of the likely tests.
func (s *suite) likelyWaves(t trial, short bool) []wave {
	if t.likely == "" {
		return nil
	}
	var quick, slow []wave
	for _, dir := range s.matching(t.likely, t.file) {
		quick = append(quick, wave{pkg: dir, pattern: t.likely, likely: true, short: true})
		slow = append(slow, wave{pkg: dir, pattern: t.likely, likely: true})
	}
	if short {
		return quick
	}
	return append(quick, slow...)
}

// waves sorts the tests that may notice a change.
func (c coverage) waves(t trial, short bool) []wave {
	from, to := t.from, t.to
	if !touches(c.code[t.file], from, to) { // a constant, or an expression of a case
		from, to = t.first, t.last
	}
	var near, far []*test
	for _, test := range c.tests { // the quickest first
		touched := touches(test.ran[t.file], from, to)
		if touched {
			near = append(near, test)
		}
		if touched || test.skipped || touches(test.ran[t.file], t.first, t.last) {
			far = append(far, test)
		}
	}
	var waves []wave
	for _, atMost := range []time.Duration{200 * time.Millisecond, time.Second, time.Hour} {
		n, _ := slices.BinarySearchFunc(near, atMost, func(t *test, d time.Duration) int { return cmp.Compare(t.took, d) })
		waves = append(waves, c.byPackage(near[:n], true)...)
		near = near[n:]
	}
	if !short {
		waves = append(waves, c.byPackage(far, false)...)
	}
	return waves
}

// byPackage makes a wave of the tests of each package.
func (c coverage) byPackage(tests []*test, short bool) []wave {
	var waves []wave
	for _, pkg := range c.packages {
		w := wave{pkg: pkg, short: short}
		var own []*test
		for _, test := range tests {
			if test.pkg == pkg {
				own = append(own, test)
				w.took += test.took
			}
		}
		if len(own) > 0 {
			w.pattern = only(own...)
			waves = append(waves, w)
		}
	}
	return waves
}

// binary is the path of a package's test binary.
func (s *suite) binary(dir, pkg string) string {
	rel, _ := filepath.Rel(s.root, pkg) // pkg lies in the root
	return filepath.Join(dir, strings.ReplaceAll(filepath.ToSlash(filepath.Join("tests", rel)), "/", "-")+".test")
}

// maxMemory is how much address space the tests of a change may take, in KiB: an endless loop may allocate.
const maxMemory = 12 << 20

// run runs a test binary in the folder of its package.
func (s *suite) run(ctx context.Context, binary, pkg string, limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Second) // the binary ends itself if it can
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

// only returns a -run pattern for some tests.
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
	cmd.Env = append(os.Environ(), "GOGC=800") // for the compiler
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// failure returns the innermost test that failed, or the one that crashed.
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
