package azblob

import (
	"go/ast"
	"go/importer"
	"go/parser"
	gotoken "go/token"
	gotypes "go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// TestLayout compares the references between the files of this package with the table of groups in CONTRIBUTING.md. A
// file may name what lower groups define, and what other files of its own group define if that closes no circle.
func TestLayout(t *testing.T) {
	efforttest.NotShort(t, "it reads source files")
	text, err := os.ReadFile("CONTRIBUTING.md")
	must(t, err)
	floors, groups := map[string]int{}, map[string]string{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \| ([^|]+) \| (.+) \|$`).FindAllStringSubmatch(string(text), -1) {
		floor, err := strconv.Atoi(row[1])
		must(t, err)
		for _, file := range regexp.MustCompile("`(\\w+\\.go)`").FindAllStringSubmatch(row[3], -1) {
			floors[file[1]], groups[file[1]] = floor, row[2]
			if _, err := os.Stat(file[1]); err != nil {
				t.Errorf("the table has a file that does not exist: %v", err)
			}
			if prefix, named := strings.CutPrefix(row[2], "`"); named && !strings.HasPrefix(file[1], strings.TrimSuffix(prefix, "`")) {
				t.Errorf("%s does not have the name of its group, %s", file[1], row[2])
			}
		}
	}
	fset := gotoken.NewFileSet()
	files := productFiles(t, fset)
	for _, f := range files {
		if name := fset.File(f.Pos()).Name(); floors[name] == 0 {
			t.Errorf("the table lacks %s", name)
		}
	}
	if t.Failed() {
		return
	}
	list, err := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", ".").Output()
	must(t, err)
	exports := map[string]string{}
	for line := range strings.Lines(string(list)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	conf := gotypes.Config{Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	info := gotypes.Info{Uses: map[*ast.Ident]gotypes.Object{}}
	pkg, err := conf.Check("azblob", fset, files, &info)
	must(t, err)
	uses := map[string]map[string]string{} // the files that each file uses, with a name that it uses
	for id, object := range info.Uses {
		from := fset.File(id.Pos()).Name()
		if object.Pkg() != pkg || fset.File(object.Pos()).Name() == from {
			continue
		}
		if uses[from] == nil {
			uses[from] = map[string]string{}
		}
		uses[from][fset.File(object.Pos()).Name()] = object.Name()
	}
	for from, names := range uses {
		for to, name := range names {
			switch {
			case floors[to] > floors[from], floors[to] == floors[from] && groups[to] != groups[from]:
				t.Errorf("%s (floor %d) names %s of %s (floor %d)", from, floors[from], name, to, floors[to])
			case groups[to] == groups[from] && reaches(uses, to, from, map[string]bool{}):
				t.Errorf("%s names %s of %s, which leads back to it", from, name, to)
			}
		}
	}
}

// reaches reports whether the uses of a file lead to another one.
func reaches(uses map[string]map[string]string, from, to string, seen map[string]bool) bool {
	if from == to {
		return true
	}
	if seen[from] {
		return false
	}
	seen[from] = true
	for next := range uses[from] {
		if reaches(uses, next, to, seen) {
			return true
		}
	}
	return false
}

// productFiles parses the files of this package that are no tests.
func productFiles(t *testing.T, fset *gotoken.FileSet) (files []*ast.File) {
	names, err := filepath.Glob("*.go")
	must(t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			must(t, err)
			files = append(files, f)
		}
	}
	return files
}
