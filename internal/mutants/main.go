// Command mutants proves that the tests can fail: it takes away the vault's conditions, checks and orders one at a time, in a
// copy of the module, and runs the tests. A mutant that survives is a hole in the tests.
//
//	go run ./internal/mutants             all of them, some minutes
//	go run ./internal/mutants -run MD5    those whose names match
//	go run ./internal/mutants -list
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	pick := flag.String("run", "", "only the mutants whose names match this regular expression")
	list := flag.Bool("list", false, "name the mutants and stop")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *pick, *list, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		stop()
		os.Exit(1) //nolint:gocritic // stop has been called
	}
}

func run(ctx context.Context, pick string, list bool, out io.Writer) error {
	chosen, err := regexp.Compile(pick)
	if err != nil {
		return err
	}
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module: %w", err)
	}
	var errs []error
	total, survived := 0, 0
	for _, m := range mutants {
		if !chosen.MatchString(m.name) {
			continue
		}
		total++
		if list {
			fmt.Fprintln(out, m.name)
			continue
		}
		started := time.Now()
		killer, err := m.try(ctx, strings.TrimSpace(string(root)))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", m.name, err))
			fmt.Fprintf(out, "%-60s %v\n", m.name, err)
		case killer == "":
			survived++
			fmt.Fprintf(out, "%-60s SURVIVED\n", m.name)
		default:
			fmt.Fprintf(out, "%-60s killed by %s (%.0fs)\n", m.name, killer, time.Since(started).Seconds())
		}
	}
	if !list {
		fmt.Fprintf(out, "%d mutants, %d survived\n", total, survived)
	}
	if survived > 0 {
		errs = append(errs, fmt.Errorf("%d mutants survived", survived))
	}
	return errors.Join(errs...)
}

// mutant is one change of the code that a test must notice.
type mutant struct {
	name string
	file string
	// old stands exactly once in the file.
	old, new string
	// first are the tests to try first; all others of the module's root follow if they pass.
	first string
}

// try applies the mutant to a copy of the module and returns the test that failed; "" when none did.
func (m mutant) try(ctx context.Context, root string) (killer string, err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := copyModule(dir, root); err != nil {
		return "", err
	}
	path := filepath.Join(dir, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if n := bytes.Count(text, []byte(m.old)); n != 1 {
		return "", fmt.Errorf("the place to change is there %d times: the mutant is out of date", n)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte(m.old), []byte(m.new), 1), 0o644); err != nil { //nolint:gosec // source code
		return "", err
	}
	if text, err := command(ctx, dir, "build", "./..."); err != nil {
		return "", fmt.Errorf("does not build: %s", text)
	}
	for _, tests := range []string{m.first, "."} {
		text, err := command(ctx, dir, "test", "-short", "-failfast", "-timeout=10m", "-run", tests, ".", "./internal/blob", "./storage/...")
		if err != nil {
			return failure(text), nil
		}
	}
	return "", nil
}

func command(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// failure names the innermost test that failed.
func failure(text string) string {
	name := "a crash or a time-out"
	for _, m := range regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`).FindAllStringSubmatch(text, -1) {
		name = m[1]
	}
	return name
}

// copyModule copies the module's files without what is not source.
func copyModule(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o644) //nolint:gosec // source code
	})
}
