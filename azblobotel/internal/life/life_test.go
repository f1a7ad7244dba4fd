package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// TestLife runs the program in virtual time, where only the wait before the second try is random.
func TestLife(t *testing.T) {
	var out bytes.Buffer
	svg := filepath.Join(t.TempDir(), "trace.svg")
	synctest.Test(t, func(t *testing.T) {
		if err := run(t.Context(), &out, svg); err != nil {
			t.Fatal(err)
		}
	})
	var got []string
	for line := range strings.Lines(out.String()) {
		line = strings.Join(strings.Fields(line), " ")
		if !strings.Contains(line, "<plan>/") { // parallel requests are in any order
			got = append(got, line)
		}
	}
	random := regexp.MustCompile(`^(the life of a plan|├─ Create) [0-9.]+ms`)
	for i, line := range got {
		got[i] = strings.Replace(random.ReplaceAllString(line, "$1 …"), "│ └", "│ ├", 1)
	}
	want := []string{
		"the life of a plan …",
		"├─ Create … ok, requests 8, round trips 6",
		"│ ├─ PUT create container 20.0ms 201",
		"│ ├─ PUT open/<plan> 20.0ms 201",
		"│ ├─ PUT plans/<plan>-entry.json 20.0ms 201",
		"│ ├─ azblob.retry · 503",
		"│ ├─ PUT plans/<plan>-object.json 20.0ms 201",
		"├─ Read 20.0ms ok, requests 2, round trips 1",
		"├─ UpdatePlan 20.0ms ok, requests 2, round trips 1",
		"│ ├─ PUT plans/<plan>-entry.json 20.0ms 201",
		"├─ UpdatePlan 40.0ms conflict, requests 3, round trips 2",
		"│ ├─ PUT plans/<plan>-entry.json 20.0ms 412",
		"│ ├─ HEAD plans/<plan>-entry.json 20.0ms 200",
		"│ ├─ azblob.conflict ·",
	}
	for _, what := range []string{"UpdateBlock", "UpdateSequence", "UpdateAction", "UpdateBlock", "UpdateSequence", "UpdateAction"} {
		want = append(want, "├─ "+what+" 20.0ms ok, requests 1, round trips 1")
	}
	want = append(
		want,
		"├─ UpdatePlan 60.0ms ok, requests 3, round trips 3",
		"│ ├─ PUT plans/<plan>-entry.json 20.0ms 201",
		"│ ├─ PUT plans/<plan>-object.json 20.0ms 201",
		"│ ├─ DELETE open/<plan> 20.0ms 202",
		"├─ Read 20.0ms ok, requests 2, round trips 1",
		"├─ Close 0.0ms ok, requests 0, round trips 0",
		"└─ Close 0.0ms ok, requests 0, round trips 0",
	)
	got = slices.DeleteFunc(got, func(line string) bool { // parallel, too
		return strings.Contains(line, "─ GET ") || strings.Contains(line, "─ HEAD plans/<plan>-object")
	})
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for line, n := range map[string]int{"! 503": 1, "PUT actions/<plan>/<id>.json": 4, "GET plans/<plan>-entry.json": 2} {
		if got := strings.Count(out.String(), line); got != n {
			t.Errorf("%q is there %d times, want %d", line, got, n)
		}
	}
	if lines, texts := bytes.Count(out.Bytes(), []byte("\n")), checkSVG(t, svg); texts < lines {
		t.Errorf("the drawing has %d texts for %d rows", texts, lines)
	}
}

// checkSVG checks that a file is well-formed, and returns the number of its texts.
func checkSVG(t *testing.T, file string) (texts int) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return texts
		} else if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "text" {
			texts++
		}
	}
}

func TestConnect(t *testing.T) {
	var rows []row
	for _, depth := range []int{0, 1, 2, 2, 1, 2, 3, 1} {
		rows = append(rows, row{depth: depth})
	}
	var got []string
	for _, r := range connect(rows) {
		got = append(got, r.branch)
	}
	if want := []string{"", "├─ ", "│  ├─ ", "│  └─ ", "├─ ", "│  └─ ", "│     └─ ", "└─ "}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
