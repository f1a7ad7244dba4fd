// Command mutants shows that the tests can fail. It changes the code in one place at a time and runs the
// tests. A mutant that survives is a hole in the tests.
//
//	go run ./internal/mutants                      the list: each mutant takes one rule of the protocol away
//	go run ./internal/mutants -random 100          100 random changes, always the same
//	go run ./internal/mutants -random 100 -seed 0  100 new random changes; the seed is printed
//	go run ./internal/mutants -run MD5             the mutants whose names match
//	go run ./internal/mutants -list                the names only
//
// Each mutant of the list names the tests that should kill it, and those run first, compiled without the other
// tests. Only if they pass does the command measure what every test runs through, which takes minutes, and runs
// the rest.
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
	"path/filepath"
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
	random := flag.Int("random", 0, "try `n` random changes instead of the list")
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
	var trials []trial
	if random > 0 {
		for seed == 0 {
			seed = rand.Uint64N(1_000_000)
		}
		fmt.Fprintf(out, "seed %d\n", seed)
		trials, err = randomTrials(vault, root, random, seed)
	} else {
		trials, err = listedTrials(root)
	}
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
	return tryAll(ctx, vault, root, trials, short, workers, out)
}

// tryAll tries the mutants and prints one line for each, and a summary. It fails if a mutant survives.
func tryAll(ctx context.Context, what scope, root string, trials []trial, short bool, workers int, out io.Writer) error {
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	started := time.Now()
	s, err := newSuite(ctx, what, root, dir, workers)
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
			started := time.Now()
			killer, err := s.try(ctx, t, short)
			took := time.Since(started).Round(100 * time.Millisecond)
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
	fmt.Fprintf(out, "%d mutants, %d survived, in %v\n", len(trials), len(survivors), time.Since(started).Round(time.Second))
	if len(survivors) > 0 {
		problems = append(problems, fmt.Errorf("%d mutants survived: %s", len(survivors), strings.Join(survivors, "; ")))
	}
	return errors.Join(problems...)
}

// mutant is a change of the code that was chosen by hand.
type mutant struct {
	name string
	file string
	// old occurs exactly once in the file.
	old, new string
	// first is a -run pattern of the tests to try first.
	first string
}

// listedTrials returns the mutants of the list.
func listedTrials(root string) ([]trial, error) {
	var trials []trial
	for _, m := range mutants {
		text, err := os.ReadFile(filepath.Join(root, m.file))
		if err != nil {
			return nil, err
		}
		if n := bytes.Count(text, []byte(m.old)); n != 1 {
			return nil, fmt.Errorf("%s: the text to change occurs %d times in %s: the mutant is out of date", m.name, n, m.file)
		}
		from := bytes.Index(text, []byte(m.old))
		t, err := newTrial(m.name, m.file, text, from, from+len(m.old), m.new)
		if err != nil {
			return nil, err
		}
		t.likely = m.first
		trials = append(trials, t)
	}
	return trials, nil
}

// randomTrials chooses n changes that compile and are not known to be equivalent.
func randomTrials(what scope, root string, n int, seed uint64) ([]trial, error) {
	programs, err := load(root, what.mutated...)
	if err != nil {
		return nil, err
	}
	var changes []change
	for name, p := range programs {
		if name == p.names[0] {
			changes = append(changes, p.changes()...)
		}
	}
	var trials []trial
	for _, c := range sample(changes, seed) {
		if len(trials) == n {
			break
		}
		p := programs[c.file]
		if equivalent[c.key()] != "" || !p.compiles(c) {
			continue
		}
		t, err := newTrial(fmt.Sprintf("%03d %s", len(trials)+1, c.key()), c.file, p.texts[c.file], c.from, c.to, c.text)
		if err != nil {
			return nil, err
		}
		trials = append(trials, t)
	}
	return trials, nil
}
