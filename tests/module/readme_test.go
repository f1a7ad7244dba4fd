package module_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"

	"github.com/planvault/azblob/tests/vaulttest"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")

// readmeBlocks returns the Go blocks of README.md.
func readmeBlocks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	vaulttest.Must(t, err)
	var blocks []string
	for _, m := range goBlock.FindAllSubmatch(text, -1) {
		blocks = append(blocks, string(m[1]))
	}
	return blocks
}

// TestErrorsAreListed looks for every error of a vault in the pages that list them.
func TestErrorsAreListed(t *testing.T) {
	code, err := os.ReadFile("storage/errors.go")
	vaulttest.Must(t, err)
	found := regexp.MustCompile(`(?m)^\t(Err\w+) += `).FindAllSubmatch(code, -1)
	if len(found) < 11 {
		t.Fatalf("found only %d errors", len(found))
	}
	for _, page := range []string{"README.md", "docs/embedding.md"} {
		text, err := os.ReadFile(page)
		vaulttest.Must(t, err)
		for _, name := range found {
			if !bytes.Contains(text, name[1]) {
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
	vault := store.Open(nil)
	action := &workflow.Action{Name: "a", Plugin: "p"}
	plan := &workflow.Plan{Name: "found", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}}}
	vaulttest.Must(t, vault.Create(ctx, plan))
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
	for i, block := range readmeBlocks(t) {
		if strings.HasPrefix(block, "package main\n") {
			_, want, _ := strings.Cut(block, "// Output: ")
			want, _, _ = strings.Cut(want, "\n")
			files["main.go"] = block
			files["program_test.go"] = "package main\n\nfunc Example() {\n\tmain()\n\t// Output: " + want + "\n}\n"
			continue
		}
		files[fmt.Sprintf("block%d_test.go", i)] = withImports("package main_test\n\n" + block)
	}
	// The package's directory exists only in the overlay, so the test is compiled there and run elsewhere.
	tests := filepath.Join(t.TempDir(), "readme.test")
	goCommand(t, files, "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", tests)
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

// goCommand runs a go command on a package of this module whose files exist only in an overlay.
func goCommand(t *testing.T, files map[string]string, command ...string) string {
	t.Helper()
	root, err := filepath.Abs(".")
	vaulttest.Must(t, err)
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	dir := t.TempDir()
	for name, text := range files {
		file := filepath.Join(dir, name)
		vaulttest.Must(t, os.WriteFile(file, []byte(text), 0o600))
		overlay.Replace[filepath.Join(root, "readme", name)] = file
	}
	text, err := json.Marshal(overlay)
	vaulttest.Must(t, err)
	file := filepath.Join(dir, "overlay.json")
	vaulttest.Must(t, os.WriteFile(file, text, 0o600))
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", append(command, "-overlay", file, "./readme")...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("go %s: %v\n%s%s", command[0], err, out.String(), errs.String())
	}
	return out.String()
}
