// Command mutants shows that the tests can fail. It changes the code in one place at a time and runs the
// tests. A mutant that survives is a hole in the tests.
//
//	go run ./internal/mutants          100 random changes, always the same
//	go run ./internal/mutants -seed 0  100 new random changes; the seed is printed
//	go run ./internal/mutants -run MD5 the mutants whose names match
//	go run ./internal/mutants -list    the names only
//
// All tests of the packages that depend on the changed one run: its own, then those with fewer dependencies before those
// with more. They run with -short and then, if the mutant is still alive, without.
//
// The names of random changes begin with their numbers, so -run '^0[3-9]' continues after the first 30.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	pick := flag.String("run", "", "try only the mutants whose names match this `regexp`")
	list := flag.Bool("list", false, "print the names of the mutants and stop")
	random := flag.Int("random", 100, "try `n` random changes")
	seed := flag.Uint64("seed", 1, "choose the random changes by this `seed`; 0 for a new one")
	short := flag.Bool("short", false, "run the tests with -short only: quicker, but more mutants may survive")
	workers := flag.Int("workers", runtime.NumCPU(), "try `n` mutants at the same time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *pick, *list, *random, *seed, *short, *workers, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1) // stop has been called
	}
}

func run(ctx context.Context, pick string, list bool, random int, seed uint64, short bool, workers int, out io.Writer) error {
	chosen, err := regexp.Compile(pick)
	if err != nil {
		return err
	}
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	root := strings.TrimSpace(string(dir))
	for seed == 0 {
		seed = rand.Uint64N(1_000_000)
	}
	fmt.Fprintf(out, "seed %d\n", seed)
	trials, err := randomTrials(ctx, root, mutated, random, seed)
	if err != nil {
		return err
	}
	trials = slices.DeleteFunc(trials, func(t trial) bool { return !chosen.MatchString(t.name) })
	if list {
		for _, t := range trials {
			fmt.Fprintln(out, t.name)
		}
		return nil
	}
	return tryAll(ctx, root, trials, short, workers, out)
}

// tryAll tries the mutants and prints one line for each, and a summary. It fails if a mutant survives.
func tryAll(ctx context.Context, root string, trials []trial, short bool, workers int, out io.Writer) error {
	began := time.Now()
	s, err := newSuite(ctx, root)
	if err != nil {
		return err
	}
	var (
		g         errgroup.Group
		mu        sync.Mutex // for what follows, and out
		survivors []string
		problems  []error
	)
	g.SetLimit(workers)
	for _, t := range trials {
		g.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			began := time.Now()
			killer, err := s.try(ctx, t, short)
			took := time.Since(began).Round(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				problems = append(problems, fmt.Errorf("%s: %w", t.name, err))
				fmt.Fprintf(out, "%s: %v\n", t.name, err)
			case killer == "":
				survivors = append(survivors, t.name)
				fmt.Fprintf(out, "%s: SURVIVED (%v)\n%s", t.name, took, t.diff)
			default:
				fmt.Fprintf(out, "%s: killed by %s (%v)\n", t.name, killer, took)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d mutants, %d survived, in %v\n", len(trials), len(survivors), time.Since(began).Round(time.Second))
	if len(survivors) > 0 {
		problems = append(problems, fmt.Errorf("%d mutants survived: %s", len(survivors), strings.Join(survivors, "; ")))
	}
	return errors.Join(problems...)
}

// trial is a changed file.
type trial struct {
	name string
	path string // of the package
	file string // within the module
	text []byte
	diff string
}

// newTrial replaces what is between two offsets of a file.
func newTrial(p *program, name, file string, from, to int, replacement string) trial {
	old := p.files[file].text
	begin, end := bytes.LastIndexByte(old[:from], '\n')+1, len(old)
	if i := bytes.IndexByte(old[to:], '\n'); i >= 0 {
		end = to + i
	}
	lines := func(sign, text string) string { return sign + strings.ReplaceAll(text, "\n", "\n"+sign) + "\n" }
	return trial{
		name: name, path: p.path, file: file, text: slices.Concat(old[:from], []byte(replacement), old[to:]),
		diff: fmt.Sprintf("@@ %s:%d\n", file, 1+bytes.Count(old[:from], []byte("\n"))) + lines("-", string(old[begin:end])) +
			lines("+", string(old[begin:from])+replacement+string(old[to:end])),
	}
}

// mutated are the packages in which random changes are made.
var mutated = []string{".", "./internal/blob", "./internal/listing", "./storage/driver"}

// randomTrials chooses n changes that compile and are not known to be equivalent.
func randomTrials(ctx context.Context, root string, packages []string, n int, seed uint64) ([]trial, error) {
	loaded, err := load(ctx, root, packages...)
	if err != nil {
		return nil, err
	}
	var all []change
	for _, p := range loaded {
		all = append(all, p.changes()...)
	}
	var trials []trial
	for _, c := range sample(all, seed) {
		if len(trials) == n {
			break
		}
		if t, ok := c.trial(); ok && equivalent[c.what()] == "" {
			t.name = fmt.Sprintf("%03d %s", len(trials)+1, t.name)
			trials = append(trials, t)
		}
	}
	return trials, nil
}
