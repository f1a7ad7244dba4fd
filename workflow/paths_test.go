package workflow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/workflow"
)

func TestPaths(t *testing.T) {
	action := func(name string) []*workflow.Action { return []*workflow.Action{{Name: name}, {}} }
	p := &workflow.Plan{
		Name:      "ignored",
		PreChecks: &workflow.Checks{Actions: action("ready")},
		Blocks: []*workflow.Block{
			{Name: "eu", ContChecks: &workflow.Checks{Actions: action("healthy")}, Sequences: []*workflow.Sequence{{Actions: action("a")}, nil, {Name: "x/y"}}},
			{Sequences: []*workflow.Sequence{{Name: strings.Repeat("é", 121)}, {Name: strings.Repeat("é", 120)}}},
		},
		DeferredActions: &workflow.DeferredActions{Batches: []*workflow.DeferBatch{{Actions: action("undo")}, {Name: "b"}}},
	}
	var got []string
	for _, path := range workflow.Paths(p) {
		got = append(got, path)
	}
	want := []string{
		"", "pre checks", "pre checks/ready", "pre checks/action 2",
		"eu", "eu/continuous checks", "eu/continuous checks/healthy", "eu/continuous checks/action 2",
		"eu/sequence 1", "eu/sequence 1/a", "eu/sequence 1/action 2", "eu/x/y",
		"block 2", "block 2/" + strings.Repeat("é", 120) + "…", "block 2/" + strings.Repeat("é", 120),
		"deferred actions", "deferred actions/batch 1", "deferred actions/batch 1/undo", "deferred actions/batch 1/action 2", "deferred actions/b",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the paths are %q, want %q", got, want)
	}
	for o, path := range workflow.Paths(p) { // the caller may break out of the loop
		if o != workflow.Object(p) || path != "" {
			t.Errorf("the first path is %q", path)
		}
		break
	}
}

func ExamplePaths() {
	for o, path := range workflow.Paths(deploy()) {
		if a, ok := o.(*workflow.Action); ok {
			fmt.Println(path, "runs plugin", a.Plugin)
		}
	}
	// Output:
	// pre checks/healthy runs plugin probe
	// west/host 1/drain runs plugin drain
	// west/host 1/install runs plugin install
}
