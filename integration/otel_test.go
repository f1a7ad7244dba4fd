package main

import (
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// TestOTel runs the program of the other module. Its own tests look at the trace.
func TestOTel(t *testing.T) {
	efforttest.NotShort(t, "it compiles a program")
	t.Parallel()
	var out strings.Builder
	code := run(t.Context(), []string{"-otel"}, &out, t.Output())
	if code != exitPass || !strings.Contains(out.String(), "azblob.retry") || lastLine(out.String()) != "PASS" {
		t.Errorf("exit code %d:\n%s", code, out.String())
	}
}
