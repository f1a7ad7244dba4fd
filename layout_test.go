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

// TestLayout compares the references between the files of this package with the table in CONTRIBUTING.md. A file may
// name what lower floors define, and nothing else, so there is no circle.
func TestLayout(t *testing.T) {
	efforttest.NotShort(t, "it reads source files")
	text, err := os.ReadFile("CONTRIBUTING.md")
	must(t, err)
	floors := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| (\\d+) \\| `(\\w+\\.go)` \\| \\S").FindAllStringSubmatch(string(text), -1) {
		floors[row[2]], err = strconv.Atoi(row[1])
		must(t, err)
		if _, err := os.Stat(row[2]); err != nil {
			t.Errorf("the table has a file that does not exist: %v", err)
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
	told := map[string]bool{}
	for id, object := range info.Uses {
		if object.Pkg() != pkg {
			continue
		}
		from, to := fset.File(id.Pos()).Name(), fset.File(object.Pos()).Name()
		if key := from + to + object.Name(); from != to && floors[to] >= floors[from] && !told[key] {
			told[key] = true
			t.Errorf("%s (floor %d) names %s of %s (floor %d)", from, floors[from], object.Name(), to, floors[to])
		}
	}
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
