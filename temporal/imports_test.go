package temporal

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestImports checks that users of the package link the SDK and not the server, and users of the vault neither.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	must(t, err)
	deps := strings.Fields(string(out))
	sdk := false
	for _, dep := range deps {
		sdk = sdk || dep == "go.temporal.io/sdk/worker"
		if strings.HasPrefix(dep, "go.temporal.io/server") {
			t.Errorf("the package depends on %s", dep)
		}
	}
	if !sdk {
		t.Error("the package does not depend on the SDK, so this test looks for the wrong paths")
	}
	main, err := os.ReadFile("../go.mod")
	must(t, err)
	if strings.Contains(string(main), "go.temporal.io") {
		t.Error("the main module requires Temporal")
	}
}
