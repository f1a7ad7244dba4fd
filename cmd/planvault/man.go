package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand writes the pages of help as man pages.
func (a *app) manCommand() *cobra.Command {
	c := &cobra.Command{Use: "man DIR", Short: "Write the man pages of the tool to a folder", Args: cobra.ExactArgs(1)}
	c.RunE = func(c *cobra.Command, args []string) error { return a.man(c.Context(), c.Root(), args[0]) }
	return c
}

// manuals is what man wrote.
type manuals struct {
	Dir   string `json:"dir"`
	Pages int    `json:"pages"`
}

// man writes a page for each command and each topic.
func (a *app) man(ctx context.Context, root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write the man pages: %w", err)
	}
	written := manuals{Dir: dir}
	for c := range commandsBelow(root) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		name := manName(c) + ".1"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(a.manPage(c)), 0o644); err != nil {
			return fmt.Errorf("write the man page %s: %w", name, err)
		}
		written.Pages++
	}
	return a.print(written, func(w io.Writer) { fmt.Fprintf(w, "%s in %s\n", plural(written.Pages, "man page"), printable(dir, 0)) })
}

// commandsBelow yields a command, those below it, and its topics.
func commandsBelow(c *cobra.Command) func(yield func(*cobra.Command) bool) {
	return func(yield func(*cobra.Command) bool) {
		if !yield(c) {
			return
		}
		for _, below := range c.Commands() {
			if below.Name() == "help" || below.Name() == "completion" {
				continue // cobra's own
			}
			for c := range commandsBelow(below) {
				if !yield(c) {
					return
				}
			}
		}
	}
}

func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns the page of a command in the language of man(7).
func (a *app) manPage(c *cobra.Command) string {
	built := builtVersion(debug.ReadBuildInfo())
	var b strings.Builder
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	fmt.Fprintf(&b, ".TH %q 1 \"\" %q\n", strings.ToUpper(manName(c)), "planvault "+built.Version)
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(manName(c)), roff(c.Short))
	if c.Runnable() {
		section("SYNOPSIS")
		fmt.Fprintf(&b, "%s\n", roff(c.UseLine()))
	}
	section("DESCRIPTION")
	b.WriteString(roffText(c.Long))
	writeFlags := func(title string, flags *pflag.FlagSet) {
		if flags.HasAvailableFlags() {
			section(title)
			flags.VisitAll(func(f *pflag.Flag) { b.WriteString(roffFlag(f)) })
		}
	}
	if c.Runnable() {
		writeFlags("OPTIONS", c.NonInheritedFlags())
		writeFlags("OPTIONS OF ALL COMMANDS", c.InheritedFlags())
	}
	name := strings.TrimPrefix(c.CommandPath(), "planvault ")
	for _, o := range a.outputsOf(name) {
		section(strings.ToUpper(strings.TrimSuffix("output, "+o.when, ", ")))
		if len(o.columns) > 0 {
			fmt.Fprintf(&b, "Columns: %s.\n.PP\n", roff(o.tables()))
		}
		b.WriteString("Fields of JSON:\n")
		b.WriteString(preformatted(strings.Join(o.described(), "\n")))
	}
	if c.Example != "" {
		section("EXAMPLES")
		b.WriteString(preformatted(c.Example))
	}
	if c.HasParent() {
		section("SEE ALSO")
		fmt.Fprintf(&b, "%s(1)\n", roff(manName(c.Parent())))
	}
	return b.String()
}

// roffFlag returns the entry of a flag.
func roffFlag(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
		usage += " (default " + f.DefValue + ")"
	}
	return fmt.Sprintf(".TP\n\\fB%s\\fR \\fI%s\\fR\n%s\n", roff(name), roff(value), roff(usage))
}

// roffText returns a page of help: its paragraphs, and its indented lines as they are.
func roffText(text string) string {
	var b strings.Builder
	for i, paragraph := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(paragraph, " ") {
			b.WriteString(preformatted(paragraph))
			continue
		}
		before, after, listed := strings.Cut(paragraph, "\n ")
		b.WriteString(roff(before) + "\n")
		if listed {
			b.WriteString(preformatted(" " + after))
		}
	}
	return b.String()
}

// preformatted returns lines that keep their spaces.
func preformatted(text string) string { return ".nf\n" + roff(text) + "\n.fi\n" }

// roff escapes a text, so that none of its lines is a request, no hyphen is broken, and all of it is ASCII.
func roff(text string) string {
	var b strings.Builder
	begins := true
	for _, r := range text {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case begins && (r == '.' || r == '\''):
			b.WriteString(`\&` + string(r))
		case r > unicode.MaxASCII:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
		begins = r == '\n'
	}
	return b.String()
}
