package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// small writes a module with the given files and returns its folder.
func small(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.com/small\n\ngo 1.26\n"
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const changesSource = `package small

import "errors"

const most = 3

type thing struct{}

func (thing) String() string { return errors.New("many").Error()[most-1:] }

func (*thing) conditions(a, b int, c bool) bool {
	if c && a < b {
		a++
	}
	for a == 0 {
		break
	}
	switch {
	case c:
		a = min(a, b)
	}
	return c
}

func failures(do func() error) (n int, err error) {
	defer do()
	if err := do(); err != nil {
		return 0, errors.Join(err)
	}
	n += 2
	return n, errors.New("always")
}
`

// wantedChanges are all changes of changesSource that compile. Nothing changes where only a text for people would.
const wantedChanges = `most: constant + 1: 3 -> (3 + 1)
most: constant - 1: 3 -> (3 - 1)
thing.conditions: negated: c && a < b -> !(c && a < b)
thing.conditions: and, or: c && a < b -> c || a < b
thing.conditions: left operand alone: c && a < b -> c
thing.conditions: right operand alone: c && a < b -> a < b
thing.conditions: comparison: a < b -> a >= b
thing.conditions: boundary: a < b -> a <= b
thing.conditions: removed: a++ -> 
thing.conditions: arithmetic: a++ -> a--
thing.conditions: comparison: a == 0 -> a != 0
thing.conditions: constant + 1: 0 -> (0 + 1)
thing.conditions: branch: break -> continue
thing.conditions: negated: c -> !(c)
thing.conditions: removed: a = min(a, b) -> 
thing.conditions: min into max: min -> max
thing.conditions: negated: c (2) -> !(c)
failures: removed: defer do() -> 
failures: emptied: return 0, errors.Join(err) -> 
failures: comparison: err != nil -> err == nil
failures: error dropped: return 0, errors.Join(err) -> _ = errors.Join(err); return 0, nil
failures: removed: n += 2 -> 
failures: arithmetic: n += 2 -> n -= 2
failures: constant + 1: 2 -> (2 + 1)
failures: constant - 1: 2 -> (2 - 1)
failures: error dropped: return n, errors.New("always") -> _ = errors.New("always"); return n, nil`

// TestChanges checks that each kind of change is found.
func TestChanges(t *testing.T) {
	loaded, err := load(t.Context(), small(t, map[string]string{"code.go": changesSource}), ".")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range loaded[0].changes() {
		if _, ok := c.trial(); ok {
			got = append(got, fmt.Sprintf("%s -> %s", strings.TrimPrefix(c.key(), "code.go "), c.text))
		}
	}
	if got := strings.Join(got, "\n"); got != wantedChanges {
		t.Errorf("got\n%s\nwant\n%s", got, wantedChanges)
	}
}

// TestTryAll tries changes of a module whose tests check one half of it.
func TestTryAll(t *testing.T) {
	dir := small(t, map[string]string{"code.go": `package small

func seen(n int) bool { return n > 10 }

func hidden(n int) bool { return n > 5 }

func rest(n int) string { return "ab"[n-1:] }
`, "code_test.go": `package small

import "testing"

func TestHalf(t *testing.T) {
	hidden(1)
	if seen(10) || !seen(11) || rest(2) != "b" {
		t.Error("not seen")
	}
}
`})
	trials, err := randomTrials(t.Context(), dir, []string{"."}, 1000, 1)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err = tryAll(t.Context(), dir, trials, true, 2, &out); err == nil || !strings.Contains(err.Error(), "survived") {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{
		" code.go seen: boundary: n > 10: killed by TestHalf (",
		" code.go rest: arithmetic: n-1: killed by TestHalf (",
		" code.go hidden: boundary: n > 5: SURVIVED (",
		"@@ code.go:5\n-func hidden(n int) bool { return n > 5 }\n+func hidden(n int) bool { return n >= 5 }\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}
