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
