package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// TestOTel checks that the program of the other module is where -otel looks for it, and runs it with
// PLANVAULT_LONG=1. Its own tests look at the trace.
func TestOTel(t *testing.T) {
	t.Parallel()
	if !efforttest.Long() {
		cmd, err := tracer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if found, err := filepath.Glob(filepath.Join(cmd.Dir, cmd.Args[2], "main.go")); err != nil || len(found) != 1 {
			t.Errorf("%q in %s: %q, %v", cmd.Args, cmd.Dir, found, err)
		}
		return
	}
	var out strings.Builder
	code := run(t.Context(), []string{"-otel"}, &out, t.Output())
	if code != exitPass || !strings.Contains(out.String(), "azblob.retry") || lastLine(out.String()) != "PASS" {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
