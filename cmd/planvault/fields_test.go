package main

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
		unused := maps.Clone(o.fields)
		for _, f := range fieldsOf(reflect.TypeOf(o.row)) {
			meaning, noted := o.meaning(f.name)
			if meaning == "" {
				t.Errorf("%s: field %s of %T has no meaning", o.commands, f.name, o.row)
			}
			delete(unused, noted)
		}
		for name := range unused {
			t.Errorf("%s: %T has no field %q", o.commands, o.row, name)
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

// TestMan writes the man pages: one for each command and topic, of which no line is a request by accident.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	r := newStage(t).run(t.Context(), "man", dir)
	for c := range commandsBelow(helpRoot()) {
		text, err := os.ReadFile(filepath.Join(dir, manName(c)+".1"))
		if err != nil {
			t.Fatalf("%v; %+v", err, r)
		}
		for line := range strings.Lines(string(text)) {
			request := strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'")
			if request && !slices.Contains([]string{".TH", ".SH", ".PP", ".TP", ".nf", ".fi"}, strings.Fields(line)[0]) {
				t.Errorf("%s: %s", manName(c), line)
			}
		}
	}
	stuck, err := os.ReadFile(filepath.Join(dir, "planvault-stuck.1"))
	for _, want := range []string{".TH \"PLANVAULT-STUCK\" 1", `\fB\-\-older\fR \fIAGE\fR`, "heartbeatSeconds?", "Columns: PLAN, CONDITION"} {
		if !strings.Contains(string(stuck), want) {
			t.Errorf("%v: %q is missing in\n%s", err, want, stuck)
		}
	}
	if got := roff(".x\n'y\na-b\\c…"); got != "\\&.x\n\\&'y\na\\-b\\ec\\[u2026]" {
		t.Errorf("%q", got)
	}
}
