package goldentest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recorder is a test that keeps the errors reported to it.
type recorder struct {
	testing.TB
	errors []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

func TestEqual(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "file.txt")
	*update = true
	Equal(t, path, []byte("a\nb\n"))
	*update = false
	for got, want := range map[string]string{
		"a\nb\n":    "",
		"a\nx\n":    ":2 differs",
		"a\nb":      ":2 differs",
		"a\nb\n\n":  ":3 differs",
		"a\nb\nc\n": ":3 differs",
		"":          ":1 differs",
	} {
		r := &recorder{TB: t}
		Equal(r, path, []byte(got))
		if errors := strings.Join(r.errors, "\n"); !strings.Contains(errors, want) || (want == "") != (errors == "") {
			t.Errorf("%q: the errors are %q, want %q", got, errors, want)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "a\nb\n" {
		t.Errorf("the file holds %q (%v) after comparisons", text, err)
	}
}
