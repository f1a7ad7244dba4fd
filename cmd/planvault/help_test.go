package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// commandsOf returns the commands of the tool, without those that cobra adds.
func commandsOf(root *cobra.Command) (list []*cobra.Command) {
	for _, c := range root.Commands() {
		if c.Name() != "help" && c.Name() != "completion" {
			list = append(append(list, c), commandsOf(c)...)
		}
	}
	return list
}

func helpRoot() *cobra.Command {
	return newApp(process{stdout: io.Discard, stderr: io.Discard, getenv: func(string) string { return "" }}).rootCommand()
}

// TestHelp checks that each command explains itself, within the width of a terminal.
func TestHelp(t *testing.T) {
	root := helpRoot()
	for _, c := range append(commandsOf(root), root) {
		topic := !c.Runnable() && !c.HasSubCommands()
		name := c.CommandPath()
		switch {
		case c.Short == "" || strings.HasSuffix(c.Short, ".") || len(c.Short) > 80:
			t.Errorf("%s: Short is %q", name, c.Short)
		case c.Long == "":
			t.Errorf("%s has no Long", name)
		case !topic && c.Example == "":
			t.Errorf("%s has no Example", name)
		case !topic && c.HasParent() && c.Parent() == root && c.GroupID == "":
			t.Errorf("%s has no group", name)
		}
		for line := range strings.Lines(c.Long + "\n" + c.UsageString()) {
			if line = strings.TrimRight(line, "\n"); textWidth(line) > 105 {
				t.Errorf("%s: a line of %d columns: %s", name, textWidth(line), line)
			}
		}
	}
}

// TestExitCodesAreExplained checks the topic of the exit codes.
func TestExitCodesAreExplained(t *testing.T) {
	r := newStage(t).run(t.Context(), "help", "exit-codes")
	for _, code := range []string{"0", "1", "2", "3", "4", "130"} {
		if !slices.ContainsFunc(strings.Split(r.stdout, "\n"), func(line string) bool {
			words := strings.Fields(line)
			return len(words) > 1 && words[0] == code
		}) {
			t.Errorf("exit code %s is not explained", code)
		}
	}
}

// TestWrongCommands checks that mistakes are mistakes.
func TestWrongCommands(t *testing.T) {
	s := newStage(t)
	for _, args := range []string{"nosuch", "lits", "--nosuch", "list --nosuch", "help nosuch"} {
		if r := s.run(t.Context(), strings.Fields(args)...); r.code != exitUsage || r.stderr == "" || r.stdout != "" {
			t.Errorf("%s: %+v", args, r)
		}
	}
}
