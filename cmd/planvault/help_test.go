package main

import (
	"bytes"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/planvault/azblob/emulator"
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

// manDir is where `make man` wants the man pages. They are written by a test, so the tool does not link what writes them.
var manDir = flag.String("man", "", "write the man pages to this `folder`")

// TestMan writes a man page for each command and each topic of the help.
func TestMan(t *testing.T) {
	dir := *manDir
	if dir == "" {
		dir = t.TempDir()
	}
	must(t, os.MkdirAll(dir, 0o755))
	root := helpRoot()
	pages := map[string]string{}
	for _, c := range append(commandsOf(root), root) {
		c.Long, c.DisableAutoGenTag = markdown(c.Long), true
		var page bytes.Buffer
		must(t, doc.GenMan(c, &doc.GenManHeader{Section: "1", Source: "planvault"}, &page))
		name := strings.ReplaceAll(c.CommandPath(), " ", "-") + ".1"
		must(t, os.WriteFile(filepath.Join(dir, name), page.Bytes(), 0o644))
		pages[name] = page.String()
	}
	for name, want := range map[string]string{
		"planvault-stuck.1": "\n  - its owner is alive", "planvault-connect.1": ".SH DESCRIPTION", "planvault-output-fields.1": "heartbeatSeconds?",
		"planvault-policy-set.1": `\fB--keep-failed\fP`,
	} {
		if !strings.Contains(pages[name], want) {
			t.Errorf("%q is missing in %s:\n%s", want, name, pages[name])
		}
	}
}

// markdown returns a page of help as cobra reads it: indented lines stay as they are.
func markdown(page string) string {
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, "  ") {
			lines[i] = "    " + line
		}
	}
	return strings.Join(lines, "\n")
}

// TestFieldsAreDocumented fails if a type of this package that is written as JSON is missing among the outputs, or one of
// its fields has no meaning there.
func TestFieldsAreDocumented(t *testing.T) {
	root := helpRoot()
	documented := map[string]bool{"connection": true} // a stored profile, which is no output
	for _, o := range newApp(process{}).outputs() {
		for name := range strings.SplitSeq(o.commands, ", ") {
			if c, rest, err := root.Find(strings.Fields(name)); err != nil || len(rest) > 0 || !c.HasParent() {
				t.Errorf("there is no command %q", name)
			}
		}
		for _, f := range fieldsOf(reflect.TypeOf(o.row)) {
			if f.meaning == "" {
				t.Errorf("%s: field %s of %T has no meaning", o.commands, f.name, o.row)
			}
		}
		note(documented, reflect.TypeOf(o.row))
	}
	for _, name := range slices.Sorted(maps.Keys(jsonTypes(t))) {
		if !documented[name] {
			t.Errorf("type %s has fields in JSON, and is missing in outputs", name)
		}
	}
}

// note notes the names of a struct and of those in it.
func note(names map[string]bool, t reflect.Type) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct || names[t.Name()] {
		return
	}
	names[t.Name()] = true
	for f := range t.Fields() {
		note(names, f.Type)
	}
}

// jsonTypes returns the structs of this package that have fields in JSON.
func jsonTypes(t *testing.T) map[string]bool {
	files, err := filepath.Glob("*.go")
	must(t, err)
	names := map[string]bool{}
	for _, path := range files {
		text, err := os.ReadFile(path)
		must(t, err)
		for _, m := range regexp.MustCompile(`(?ms)^type (\w+) struct \{(.*?)^\}`).FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[2], `json:"`) && !strings.HasSuffix(path, "_test.go") {
				names[m[1]] = true
			}
		}
	}
	if len(names) < 20 {
		t.Fatalf("only %d types were found", len(names))
	}
	return names
}

// TestCompletionWithoutVault checks that a shell is not kept waiting, and shows no error.
func TestCompletionWithoutVault(t *testing.T) {
	s := newStage(t)
	s.server.Inject(emulator.On().Do(emulator.Answer(403, "AuthorizationFailure")))
	if r := s.run(t.Context(), "__complete", "list", ""); r.code != exitDone || r.stdout != ":36\n" {
		t.Errorf("%+v", r)
	}
	s.env = map[string]string{"PLANVAULT_PROFILES": "none"}
	if r := s.run(t.Context(), "__complete", "list", ""); r.code != exitDone || r.stdout != ":4\n" {
		t.Errorf("%+v", r)
	}
}

func TestVersion(t *testing.T) {
	info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{
		{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.modified", Value: "true"},
	}}
	built := runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
	if got, want := builtVersion(info, true).String(), "planvault v1.2.3, commit 0123456789ab with changes, "+built; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	if got, want := builtVersion(nil, false).String(), "planvault unknown, "+built; got != want {
		t.Errorf("%q, not %q", got, want)
	}
	said := newStage(t).run(t.Context(), "version")
	if flag := newStage(t).run(t.Context(), "--version"); flag != said || flag.code != exitDone || !strings.HasPrefix(flag.stdout, "planvault ") {
		t.Errorf("--version: %+v, version: %+v", flag, said)
	}
	if r := newStage(t).run(t.Context(), "version", "--output", "json"); r.code != exitDone || r.stdout == "" {
		t.Errorf("%+v", r)
	}
}
