package main

import (
	"io"
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
		if strings.Contains(c.UsageString(), "(default 0") {
			t.Errorf("%s has a default that is none:\n%s", name, c.UsageString())
		}
		for line := range strings.Lines(c.Long + "\n" + c.UsageString()) {
			if line = strings.TrimRight(line, "\n"); textWidth(line) > 105 {
				t.Errorf("%s: a line of %d columns: %s", name, textWidth(line), line)
			}
		}
	}
}
