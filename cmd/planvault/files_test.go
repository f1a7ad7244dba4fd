package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestWriteFile checks that a file is replaced whole or not at all, that nothing is left behind, and that the user alone
// may read it.
func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plan.html")
	broken := errors.New("broken")
	for _, test := range []struct {
		text string
		err  error
		want string
	}{{"first", nil, "first"}, {"half", broken, "first"}, {"second", nil, "second"}} {
		err := new(app).writeFile(path, func(w io.Writer) error {
			_, err := io.WriteString(w, test.text)
			return errors.Join(err, test.err)
		})
		if !errors.Is(err, test.err) {
			t.Errorf("%s: %v", test.text, err)
		}
		if text, err := os.ReadFile(path); err != nil || string(text) != test.want {
			t.Errorf("%s: the file has %q, %v", test.text, text, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
}
