package fleet_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// TestDescribe: waits are sorted by their ends, and a plan that is Failed names the action that failed first, without secrets.
func TestDescribe(t *testing.T) {
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	action := func(name string, status workflow.Status, end time.Duration, why string) *workflow.Action {
		a := &workflow.Action{Name: name, State: workflow.State{Status: status, Start: now.Add(-time.Hour), End: now.Add(end)}}
		a.Req, a.Secrets = json.RawMessage(`{"pin":"hunter2"}`), []string{"/req/pin"}
		a.Attempts = []workflow.Attempt{{Start: now.Add(-time.Hour), End: now.Add(end), Err: &plugins.Error{Message: why}}}
		return a
	}
	blocks := func(status workflow.Status, wait time.Duration, actions ...*workflow.Action) (list []*workflow.Block) {
		for _, a := range actions {
			list = append(list, &workflow.Block{
				Name: a.Name, EntranceDelay: wait, State: workflow.State{Status: status, Start: now},
				Sequences: []*workflow.Sequence{{Name: "s", State: workflow.State{Status: status}, Actions: []*workflow.Action{a}}},
			})
			wait /= 2
		}
		return list
	}
	bypass := blocks(workflow.Failed, 0, action("b", workflow.Failed, -time.Minute, "no\nmoney: hunter2"), action("a", workflow.Failed, 0, "late"))
	bypass[1].BypassChecks = &workflow.Checks{Actions: []*workflow.Action{action("c", workflow.Failed, -time.Hour, "does not apply")}}
	long := blocks(workflow.Failed, 0, action("b", workflow.Failed, 0, strings.Repeat("hunter2", 50)))
	untold := blocks(workflow.Failed, 0, &workflow.Action{Name: "b", State: workflow.State{Status: workflow.Failed}})
	for name, c := range map[string]struct {
		status workflow.Status
		blocks []*workflow.Block
		want   string
	}{
		"waits": {
			workflow.Running, blocks(workflow.Running, time.Hour, action("b", workflow.Running, 0, ""), action("a", workflow.Running, 0, "")),
			"a entrance delay, b entrance delay, b/s/b retry, a/s/a retry; ",
		},
		"failed":  {workflow.Failed, bypass, "; b/s/b: no"},
		"a text":  {workflow.Failed, long, "; b/s/b: " + strings.Repeat("(secret)", 15) + "…"},
		"nothing": {workflow.Failed, untold, "; b/s/b"},
		"stopped": {workflow.Stopped, bypass, "; "},
	} {
		p := fleet.Describe(&workflow.Plan{State: workflow.State{Status: c.status}, Blocks: c.blocks}, now)
		var waits []string
		for _, w := range p.Waiting {
			waits = append(waits, w.Path+" "+w.For)
		}
		if got := fmt.Sprint(strings.Join(waits, ", "), "; ", p.Failure); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
