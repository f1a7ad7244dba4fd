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
	cmd, err := tracer(ctx)
	if err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s in %s: %w", strings.Join(cmd.Args, " "), cmd.Dir, err)
	}
	return nil
}

// tracer returns the command that runs the program.
func tracer(ctx context.Context) (*exec.Cmd, error) {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("find the module, whose folder must be the working directory or a parent of it: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "run", "./internal/life")
	cmd.Dir = filepath.Join(strings.TrimSpace(string(root)), "azblobotel")
	return cmd, nil
}
