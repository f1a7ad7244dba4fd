package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

// printTrace prints the trace of a plan's life. A program of the module azblobotel makes it, because this
// module does not depend on OpenTelemetry.
func printTrace(ctx context.Context, stdout, stderr io.Writer) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the module, whose folder must be the working directory or a parent of it: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "run", "./internal/life")
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), "azblobotel")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go run ./internal/life in %s: %w", cmd.Dir, err)
	}
	return nil
}
