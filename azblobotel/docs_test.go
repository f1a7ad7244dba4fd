package azblobotel_test

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/azblobotel"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/workflow"
)

// instrument is a metric and the keys of its attributes.
type instrument struct {
	kind, unit string
	keys       []string
}

// emitted returns all metrics, by making the observers report one of each event.
func emitted(t *testing.T) map[string]instrument {
	t.Helper()
	r := newRig(t, "ns")
	ctx, failure := t.Context(), errors.New("broken")
	vault, err := azblobotel.New(r.opts)
	must(t, err)
	op := azblob.Operation{Name: "Read"}
	_, end := vault.OperationStart(ctx, op)
	end(azblob.OperationEnd{Operation: op, Outcome: azblob.OutcomeFailed, Err: failure})
	vault.Request(ctx, azblob.RequestEvent{Name: "get", Class: azblob.ClassRead, Status: 503, BytesReceived: 1})
	vault.Retry(ctx, azblob.RetryEvent{Name: "get", Err: failure})
	vault.Conflict(ctx, azblob.ConflictEvent{Operation: op})
	vault.Repair(ctx, azblob.RepairEvent{})
	vault.Damage(ctx, azblob.DamageEvent{Operation: op})
	node, err := azblobotel.NewFleet(r.opts)
	must(t, err)
	node.Heartbeat(ctx, fleet.HeartbeatEvent{Err: failure})
	node.Failure(ctx, fleet.FailureEvent{Err: failure})
	node.Claim(ctx, fleet.ClaimEvent{})
	node.Takeover(ctx, fleet.TakeoverEvent{})
	node.Removal(ctx, fleet.RemovalEvent{})
	node.Fenced(ctx, fleet.FencedEvent{})
	node.Gauges(ctx, fleet.GaugesEvent{Node: workflow.NewV7(), Gauges: fleet.Gauges{Members: make([]fleet.MemberState, 1), Copies: make([]fleet.CopyState, 1), Keys: make([]fleet.KeyState, 1)}})
	worker, err := azblobotel.NewEngine(r.opts)
	must(t, err)
	running, ended := &workflow.Plan{ID: workflow.NewV7()}, &workflow.Plan{ID: workflow.NewV7()}
	for _, p := range []*workflow.Plan{running, ended} {
		worker.PickedUp(ctx, engine.PickedUpEvent{Plan: p})
	}
	ended.State.Status = workflow.Completed
	worker.Changed(ctx, engine.ChangedEvent{Object: ended})
	worker.Left(ctx, engine.LeftEvent{Plan: running.ID, Err: failure})

	all := map[string]instrument{}
	for _, s := range r.series() {
		i := instrument{kind: s.kind, unit: s.unit}
		for _, a := range s.attrs.ToSlice() {
			i.keys = append(i.keys, string(a.Key))
		}
		all[s.name] = i
	}
	return all
}

// prometheus returns the names that Prometheus's exporter and its OTLP receiver give a metric.
func prometheus(name string, i instrument) []string {
	name = label(name)
	if suffix := map[string]string{"s": "_seconds", "By": "_bytes"}[i.unit]; suffix != "" {
		name += suffix
	}
	switch i.kind {
	case "counter":
		return []string{name + "_total"}
	case "histogram":
		return []string{name + "_bucket", name + "_count", name + "_sum"}
	}
	return []string{name}
}

// label returns the name that an attribute has in Prometheus.
func label(key string) string { return strings.ReplaceAll(key, ".", "_") }

// TestMetricsTable compares the table in docs/operating.md with the metrics.
func TestMetricsTable(t *testing.T) {
	page, err := os.ReadFile("../docs/operating.md")
	must(t, err)
	documented := map[string]instrument{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z.]+)` \\| (\\w+) \\| (\\S+) \\| (.*?) ?\\|").FindAllStringSubmatch(string(page), -1) {
		i := instrument{kind: row[2], unit: row[3], keys: []string{"db.namespace"}} // as the text says
		for _, key := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[4], -1) {
			i.keys = append(i.keys, key[1])
		}
		documented[row[1]] = i
	}
	all := emitted(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		want, got := all[name], documented[name]
		slices.Sort(got.keys)
		slices.Sort(want.keys)
		if got.kind != want.kind || got.unit != want.unit || !slices.Equal(got.keys, want.keys) {
			t.Errorf("%s is documented as %v, and is %v", name, got, want)
		}
		delete(documented, name)
	}
	if len(documented) > 0 {
		t.Errorf("there are no metrics %v", documented)
	}
}

// TestExpressions checks the names in the dashboard and in the alerts. Each metric is in the dashboard.
func TestExpressions(t *testing.T) {
	labels := map[string][]string{} // by the name of the metric in Prometheus
	for name, i := range emitted(t) {
		for _, p := range prometheus(name, i) {
			labels[p] = []string{"le", "instance"}
			for _, key := range i.keys {
				labels[p] = append(labels[p], label(key))
			}
		}
	}
	alerts, err := os.ReadFile("../docs/alerts.yml")
	must(t, err)
	used, problems := checkExpression(labels, string(alerts))
	if len(used) < 10 || len(problems) > 0 {
		t.Errorf("the alerts use the metrics %q: %q", used, problems)
	}
	text, err := os.ReadFile("../docs/dashboard.json")
	must(t, err)
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(text, &dashboard))
	drawn := map[string]bool{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			used, problems := checkExpression(labels, target.Expr)
			if len(used) == 0 || len(problems) > 0 {
				t.Errorf("%s: %s shows the metrics %q: %q", panel.Title, target.Expr, used, problems)
			}
			for _, name := range used {
				drawn[name] = true
			}
		}
	}
	for name, i := range emitted(t) {
		if !slices.ContainsFunc(prometheus(name, i), func(p string) bool { return drawn[p] }) {
			t.Errorf("%s is in no panel", name)
		}
	}
}

var (
	metricName = regexp.MustCompile(`\b(?:azblob|db_client)_\w+(?:\{([^}]*)\})?`)
	matcher    = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping   = regexp.MustCompile(`\bby\s*\(([^)]*)\)`)
)

// checkExpression checks the names of metrics and labels in a text with PromQL. It returns the metrics, and
// what is wrong.
func checkExpression(labels map[string][]string, text string) (used, problems []string) {
	known := map[string]bool{}
	for _, m := range metricName.FindAllStringSubmatch(text, -1) {
		name, _, _ := strings.Cut(m[0], "{")
		if slices.ContainsFunc(slices.Collect(maps.Values(labels)), func(l []string) bool { return slices.Contains(l, name) }) {
			continue // a label
		}
		if labels[name] == nil {
			problems = append(problems, "there is no metric "+name)
			continue
		}
		used = append(used, name)
		for _, l := range labels[name] {
			known[l] = true
		}
		for _, l := range matcher.FindAllStringSubmatch(m[1], -1) {
			if !slices.Contains(labels[name], l[1]) {
				problems = append(problems, name+" has no label "+l[1])
			}
		}
	}
	for _, by := range grouping.FindAllStringSubmatch(text, -1) {
		for l := range strings.SplitSeq(by[1], ",") {
			if !known[strings.TrimSpace(l)] {
				problems = append(problems, "none of the metrics has the label "+l)
			}
		}
	}
	return used, problems
}
