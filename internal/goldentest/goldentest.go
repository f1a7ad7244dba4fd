// Package goldentest compares what tests produce with golden files, which are checked in beside the tests.
package goldentest

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// Updating reports whether golden files are being rewritten, for tests that compare them by other means.
func Updating() bool { return *update }

// Equal reports an error if got differs from the golden file at path, which is relative to the directory of
// the test. The message shows the first line that differs. With the flag -update, Equal writes the file
// instead.
func Equal(t testing.TB, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(got, want) {
		return
	}
	n, gotLine, wantLine := firstDifference(got, want)
	t.Errorf("%s:%d differs from the result (go test -update rewrites it):\nwant %s\n got %s\nThe whole result is:\n%s",
		path, n, wantLine, gotLine, got)
}

// firstDifference returns the number of the first line that differs, counted from 1, and both versions of it.
// A line that one side lacks is empty.
func firstDifference(got, want []byte) (n int, gotLine, wantLine []byte) {
	for n = 1; ; n++ {
		var moreGot, moreWant bool
		gotLine, got, moreGot = bytes.Cut(got, []byte("\n"))
		wantLine, want, moreWant = bytes.Cut(want, []byte("\n"))
		if !bytes.Equal(gotLine, wantLine) || moreGot != moreWant {
			return n, gotLine, wantLine
		}
	}
}
