package module_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"

	"github.com/planvault/azblob/internal/vaulttest"
)

const module = "github.com/planvault/azblob"

// pkg is the output of `go list` for a package.
type pkg struct {
	ImportPath, Name, Dir string
	GoFiles, CgoFiles     []string
	IgnoredGoFiles        []string
	Imports, Deps         []string
}

// rel is the package's path within the module; "." is the root.
func (p pkg) rel() string {
	if p.ImportPath == module {
		return "."
	}
	return strings.TrimPrefix(p.ImportPath, module+"/")
}

// packages lists the module's packages that have production files.
func packages(t *testing.T) []pkg {
	t.Helper()
	efforttest.NotShort(t, "it reads source files")
	list, err := goList()
	vaulttest.Must(t, err)
	return list
}

var goList = sync.OnceValues(func() ([]pkg, error) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Dir,GoFiles,CgoFiles,IgnoredGoFiles,Imports,Deps", "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var list []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, err
		}
		if len(p.GoFiles)+len(p.CgoFiles) > 0 {
			list = append(list, p)
		}
	}
})

// within returns the imports that lie in the module, as paths within it.
func within(imports []string) []string {
	var list []string
	for _, i := range imports {
		if i == module || strings.HasPrefix(i, module+"/") {
			list = append(list, pkg{ImportPath: i}.rel())
		}
	}
	return list
}

// TestImportsRunOneWay lists the imports that each package may have within the module.
func TestImportsRunOneWay(t *testing.T) {
	may := map[string][]string{
		"plugins":             {},
		"plugins/registry":    {"internal/secrets", "plugins"},
		"internal/secrets":    {"plugins"},
		"workflow":            {"internal/secrets", "plugins"},
		"internal/plantest":   {"plugins", "plugins/registry", "workflow"},
		"internal/audited":    {},
		"internal/merge":      {},
		"storage":             {"internal/audited", "workflow"},
		"internal/values":     {"plugins", "workflow"},
		"storage/driver":      {"internal/secrets", "internal/values", "plugins", "plugins/registry", "storage", "workflow"},
		"internal/same":       {"internal/values", "storage", "workflow"},
		"internal/copies":     {"storage", "storage/driver"},
		"internal/plannote":   {},
		"storage/retention":   {"storage", "workflow"},
		"internal/sleep":      {},
		"internal/tee":        {},
		"internal/blob":       {"internal/sleep"},
		"internal/catalogue":  {"storage", "workflow"},
		"internal/listing":    {},
		"internal/selfsigned": {},
		"emulator":            {"internal/selfsigned"},
		"emulator/schedule":   {"emulator"},
		".":                   {"internal/audited", "internal/blob", "internal/catalogue", "internal/copies", "internal/listing", "internal/same", "internal/sleep", "internal/tee", "plugins", "plugins/registry", "storage", "storage/driver", "storage/retention", "workflow"},
		"storage/bundle":      {"internal/same", "storage", "storage/driver", "workflow"},
		"storage/mirror":      {"internal/plannote", "internal/same", "internal/sleep", "storage", "storage/driver", "workflow"},
		// A fleet and an engine depend on the contract, not on this vault.
		"fleet":              {"internal/plannote", "internal/sleep", "internal/tee", "storage", "storage/driver", "workflow"},
		"engine/approve":     {"engine", "fleet", "plugins", "storage", "storage/driver", "workflow"},
		"engine":             {"fleet", "internal/secrets", "internal/sleep", "internal/tee", "internal/values", "plugins", "plugins/registry", "storage", "storage/driver", "storage/retention", "workflow"},
		"internal/price":     {"."},
		"internal/firsthour": {"internal/blob", "internal/sleep"},
		"internal/fill":      {".", "emulator", "workflow", "internal/plantest"},
		// The tool does what an embedding program could do.
		"cmd/planvault": {
			".", "cmd/planvault/internal/human", "cmd/planvault/internal/report", "cmd/planvault/internal/sample", "cmd/planvault/internal/web", "emulator", "engine", "engine/approve", "fleet",
			"internal/firsthour", "internal/merge", "internal/price", "internal/secrets", "internal/sleep", "plugins/registry", "storage", "storage/bundle", "storage/driver", "storage/mirror", "storage/retention", "workflow",
		},
		"cmd/planvault/internal/human":  {},
		"cmd/planvault/internal/report": {"cmd/planvault/internal/human", "plugins", "storage", "storage/driver", "workflow"},
		"cmd/planvault/internal/sample": {"plugins", "storage", "workflow"},
		"cmd/planvault/internal/web":    {".", "cmd/planvault/internal/human", "cmd/planvault/internal/report", "fleet", "storage", "storage/driver", "workflow"},
	}
	// These packages may import more, and nothing below imports them.
	above := []string{"tests", "storage/storagetest", "storage/memvault", "emulator", "internal/azurite", "internal/conformance", "internal/fill", "internal/oracle", "internal/settings", "internal/trial", "internal/vaulttest", "integration", "examples", "cmd"}
	isAbove := func(rel string) bool {
		return slices.ContainsFunc(above, func(a string) bool { return rel == a || strings.HasPrefix(rel, a+"/") })
	}
	seen := map[string]bool{}
	for _, p := range packages(t) {
		rel := p.rel()
		seen[rel] = true
		allowed, known := may[rel]
		for _, i := range within(p.Imports) {
			switch {
			case known && !slices.Contains(allowed, i):
				t.Errorf("%s imports %s", rel, i)
			case !known && !isAbove(rel) && isAbove(i):
				t.Errorf("%s imports %s, which stands above it", rel, i)
			}
		}
		// Indirect imports of the root and of the conformance suite count too.
		suite := strings.HasPrefix(rel, "storage/storagetest") || rel == "storage/memvault"
		for _, i := range within(p.Deps) {
			if rel == "." && isAbove(i) || suite && (i == "." || i == "internal/blob" || strings.HasPrefix(i, "emulator")) {
				t.Errorf("%s depends on %s", rel, i)
			}
		}
		if rel == "." && slices.Contains(p.Deps, "testing") {
			t.Error("the root depends on testing")
		}
		// Only internal/blob uses the SDK to store. Tools and tests may use it to clean up.
		usesSDK := slices.ContainsFunc(p.Imports, func(i string) bool { return strings.HasPrefix(i, "github.com/Azure/azure-sdk-for-go/sdk/storage/") })
		if top, _, _ := strings.Cut(rel, "/"); usesSDK != (rel == "internal/blob") && rel != "internal/vaulttest" && !slices.Contains([]string{"integration", "cmd", "tests"}, top) {
			t.Errorf("%s imports the SDK's storage packages: %t", rel, usesSDK)
		}
	}
	for rel := range may {
		if !seen[rel] {
			t.Errorf("there is no package %s", rel)
		}
	}
}

func TestProductionDoesNotImportTesting(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasSuffix(path.Base(p.ImportPath), "test") {
			continue
		}
		// Files for other systems, too.
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles, p.IgnoredGoFiles) {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			for _, i := range parse(t, p, name, parser.ImportsOnly).Imports {
				if what := strings.Trim(i.Path.Value, `"`); what == "testing" || strings.HasPrefix(what, "testing/") {
					t.Errorf("%s/%s imports %s", p.rel(), name, what)
				}
			}
		}
	}
}

func parse(t *testing.T, p pkg, name string, mode parser.Mode) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(gotoken.NewFileSet(), filepath.Join(p.Dir, name), nil, mode)
	vaulttest.Must(t, err)
	return f
}

// TestExportedNamesAreExplained requires a comment on each exported name of the public packages. Names in a
// group may share one.
func TestExportedNamesAreExplained(t *testing.T) {
	for _, p := range packages(t) {
		rel := p.rel()
		if p.Name == "main" || strings.HasPrefix(rel, "internal/") || strings.HasPrefix(rel, "tests/") {
			continue // nobody reads their documentation
		}
		explained := false
		for _, name := range p.GoFiles {
			f := parse(t, p, name, parser.ParseComments|parser.SkipObjectResolution)
			explained = explained || f.Doc.Text() != ""
			for _, missing := range unexplained(f) {
				t.Errorf("%s/%s: %s has no comment", rel, name, missing)
			}
		}
		if !explained {
			t.Errorf("package %s has no comment", rel)
		}
	}
}

// unexplained returns the exported names of a file that have no comment.
func unexplained(f *ast.File) (names []string) {
	note := func(name string, docs ...*ast.CommentGroup) {
		if !slices.ContainsFunc(docs, func(d *ast.CommentGroup) bool { return strings.TrimSpace(d.Text()) != "" }) {
			names = append(names, name)
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*"))) {
				note(d.Name.Name, d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						note(spec.Name.Name, spec.Doc, d.Doc)
					}
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						if name.IsExported() {
							note(name.Name, spec.Doc, spec.Comment, d.Doc)
						}
					}
				}
			}
		}
	}
	return names
}

// TestPagesNameTestsThatExist checks that the tests named in the docs exist.
func TestPagesNameTestsThatExist(t *testing.T) {
	efforttest.NotShort(t, "it reads source files")
	var tests strings.Builder
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.Name() == "node_modules":
			return filepath.SkipDir
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			tests.Write(text)
			return err
		}
		return nil
	})
	vaulttest.Must(t, err)
	for file, atLeast := range map[string]int{"docs/protocol.md": 27, "docs/fleet.md": 12, "docs/testing.md": 20, "docs/deploy.md": 6, "docs/embedding.md": 10, "docs/placing.md": 4} {
		named := regexp.MustCompile(`\b(Test|Fuzz|Example)[A-Z_]\w+`).FindAllString(read(t, file), -1)
		if len(named) < atLeast {
			t.Errorf("%s names only %d tests", file, len(named))
		}
		for _, name := range named {
			if !strings.Contains(tests.String(), "func "+name) {
				t.Errorf("%s: no test has a name like %s", file, name) // -run takes the beginning of names
			}
		}
	}
}
