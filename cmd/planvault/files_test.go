package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
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
	for name, age := range map[string]time.Duration{"0a1b2c3d.tmp": 2 * time.Hour, "ffffffff.tmp": 0, "mine.tmp": 2 * time.Hour} {
		at := time.Now().Add(-age)
		if err := errors.Join(os.WriteFile(path+"."+name, nil, 0o600), os.Chtimes(path+"."+name, at, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := new(app).writeFile(path, func(io.Writer) error { return nil }); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if files, err := os.ReadDir(filepath.Dir(path)); err != nil || len(files) != 3 { // what was killed long ago is gone
		t.Errorf("files %v, %v", files, err)
	}
}
