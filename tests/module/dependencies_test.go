package module_test

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"testing"

	"github.com/planvault/azblob/tests/vaulttest"
)

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
