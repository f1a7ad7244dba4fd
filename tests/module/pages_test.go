package module_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"

	"github.com/planvault/azblob/internal/vaulttest"
)

// TestErrorsAreListed looks for every error of a vault in the pages that list them.
func TestErrorsAreListed(t *testing.T) {
	found := regexp.MustCompile(`(?m)^\t(Err\w+) += `).FindAllStringSubmatch(read(t, "storage/errors.go"), -1)
	if len(found) < 11 {
		t.Fatalf("found only %d errors", len(found))
	}
	for _, page := range []string{"README.md", "docs/embedding.md"} {
		text := read(t, page)
		for _, name := range found {
			if !strings.Contains(text, name[1]) {
				t.Errorf("%s lacks %s", page, name[1])
			}
		}
	}
}

// readmeMain calls the functions of README.md.
const readmeMain = `package main_test

func TestFunctions(t *testing.T) {
	ctx := t.Context()
	store := memvault.NewStore()
	vault := store.Open(nil, memvault.Options{})
	action := &workflow.Action{Name: "a", Plugin: "p"}
	plan := &workflow.Plan{Name: "found", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}}}
	if err := vault.Create(ctx, plan); err != nil {
		t.Fatal(err)
	}
	resumed := make(chan string)
	go func() {
		if err := start(ctx, vault, func(p *workflow.Plan) { resumed <- p.Name }); err != nil {
			t.Error(err)
		}
	}()
	if got := <-resumed; got != "found" {
		t.Errorf("resumed %q", got)
	}
	if _, err := open(ctx, "http://no-token-without-tls.example", registry.New()); err == nil {
		t.Error("a token would be sent in clear")
	}
}
`

// TestReadme runs the program in README.md and compares its output with the comment in it, and runs the functions and the
// test of the other blocks. The program and these are two packages of one binary.
func TestReadme(t *testing.T) {
	efforttest.NotShort(t, "it compiles programs")
	t.Parallel()
	files := map[string]string{"main_test.go": withImports(readmeMain)}
	for i, m := range regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(read(t, "README.md"), -1) {
		block := m[1]
		if strings.HasPrefix(block, "package main\n") {
			_, want, _ := strings.Cut(block, "// Output:")
			files["main.go"] = block
			files["program_test.go"] = "package main\n\nfunc Example() {\n\tmain()\n// Output:" + want + "}\n"
			continue
		}
		files[fmt.Sprintf("block%d_test.go", i)] = withImports("package main_test\n\n" + block)
	}
	// The package's directory exists only in the overlay, so the test is compiled there and run elsewhere.
	tests := filepath.Join(t.TempDir(), "readme.test")
	compile(t, files, tests)
	cmd := exec.CommandContext(t.Context(), tests, "-test.v")
	cmd.Dir = t.TempDir() // the program writes a file
	out, err := cmd.CombinedOutput()
	for _, name := range []string{"Example", "TestFunctions", "TestLostAnswer"} {
		if err != nil || !strings.Contains(string(out), "--- PASS: "+name) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

// withImports adds the imports that a file needs.
func withImports(source string) string {
	var imports []string
	for _, path := range []string{
		"context", "errors", "fmt", "log", "testing", "testing/synctest",
		"github.com/Azure/azure-sdk-for-go/sdk/azidentity",
		module, module + "/emulator", module + "/plugins/registry", module + "/storage", module + "/storage/memvault", module + "/workflow",
	} {
		name := path[strings.LastIndexByte(path, '/')+1:]
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(source) {
			imports = append(imports, fmt.Sprintf("%q", path))
		}
	}
	return strings.Replace(source, "package main_test\n", "package main_test\n\nimport (\n"+strings.Join(imports, "\n")+"\n)\n", 1)
}

// compile makes the tests of a package of this module whose files exist only in an overlay.
func compile(t *testing.T, files map[string]string, binary string) {
	t.Helper()
	root, err := filepath.Abs("readme")
	vaulttest.Must(t, err)
	replaced := map[string]string{}
	dir := t.TempDir()
	for name, text := range files {
		replaced[filepath.Join(root, name)] = filepath.Join(dir, name)
		vaulttest.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	vaulttest.Must(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	vaulttest.Must(t, os.WriteFile(overlay, text, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary, "-overlay", overlay, "./readme")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestDependenciesAreDocumented compares the table of docs/dependencies.md with the direct dependencies of go.mod.
func TestDependenciesAreDocumented(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	vaulttest.Must(t, err)
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
	}
	vaulttest.Must(t, json.Unmarshal(out, &mod))
	var want, got []string
	for _, r := range mod.Require {
		if !r.Indirect {
			want = append(want, r.Path)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| [^|]+ \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(read(t, "docs/dependencies.md"), -1) {
		got = append(got, row[1])
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("docs/dependencies.md has\n%q\ngo.mod requires\n%q", got, want)
	}
}

// TestMain runs the tests in the module's root.
func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// read returns the text of a file of the module.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	vaulttest.Must(t, err)
	return string(text)
}
