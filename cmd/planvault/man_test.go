package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra/doc"
)

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
