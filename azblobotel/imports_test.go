package azblobotel_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestImports checks that the package needs the API of OpenTelemetry and not its SDK, and that the main module
// does not need OpenTelemetry at all.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	must(t, err)
	deps := strings.Fields(string(out))
	api := false
	for _, dep := range deps {
		api = api || dep == "go.opentelemetry.io/otel/trace"
		if strings.HasPrefix(dep, "go.opentelemetry.io/otel/sdk") || strings.HasPrefix(dep, "go.opentelemetry.io/otel/exporters") || dep == "testing" {
			t.Errorf("the package depends on %s", dep)
		}
	}
	if !api {
		t.Error("the package does not depend on the API, so this test looks for the wrong paths")
	}
	main, err := os.ReadFile("../go.mod")
	must(t, err)
	if strings.Contains(string(main), "opentelemetry") {
		t.Error("the main module requires OpenTelemetry")
	}
}
