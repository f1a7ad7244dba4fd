package engine

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// TestRetryPolicy checks who decides how an action is retried, and how long it waits after its first three failures.
func TestRetryPolicy(t *testing.T) {
	type B = plugins.Backoff
	const s, m = time.Second, time.Minute
	for name, test := range map[string]struct {
		action  workflow.Action
		plugin  TaskOptions[string]
		first   time.Duration // of the options
		retries int
		waits   [3]time.Duration
	}{
		"nobody says anything":           {workflow.Action{}, TaskOptions[string]{}, s, 0, [3]time.Duration{s, 2 * s, 4 * s}},
		"the options wait a minute":      {workflow.Action{}, TaskOptions[string]{}, 40 * s, 0, [3]time.Duration{40 * s, m, m}},
		"or less, whatever they say":     {workflow.Action{}, TaskOptions[string]{}, time.Hour, 0, [3]time.Duration{m, m, m}},
		"the plugin":                     {workflow.Action{}, TaskOptions[string]{Retries: 3, Backoff: B{First: 10 * s, Factor: 1.5, Most: 12 * s}}, s, 3, [3]time.Duration{10 * s, 12 * s, 12 * s}},
		"the plugin, in part":            {workflow.Action{}, TaskOptions[string]{Backoff: B{Factor: 3}}, s, 0, [3]time.Duration{s, 3 * s, 9 * s}},
		"the plugin waits for long":      {workflow.Action{}, TaskOptions[string]{Backoff: B{First: time.Hour}}, s, 0, [3]time.Duration{time.Hour, time.Hour, time.Hour}},
		"the action":                     {workflow.Action{Retries: 1, Backoff: B{First: 2 * s}}, TaskOptions[string]{Retries: 3, Backoff: B{First: 10 * s, Factor: 3, Most: 12 * s}}, s, 1, [3]time.Duration{2 * s, 4 * s, 8 * s}},
		"the action wants no retries":    {workflow.Action{NoRetries: true}, TaskOptions[string]{Retries: 3}, s, 0, [3]time.Duration{s, 2 * s, 4 * s}},
		"always the same":                {workflow.Action{Backoff: B{Factor: 1}}, TaskOptions[string]{}, s, 0, [3]time.Duration{s, s, s}},
		"a wait that is out of any time": {workflow.Action{Backoff: B{First: 100 * time.Hour, Factor: 100, Most: 1 << 62}}, TaskOptions[string]{}, s, 0, [3]time.Duration{100 * time.Hour, 10000 * time.Hour, 1000000 * time.Hour}},
		"never":                          {workflow.Action{Backoff: B{First: 1<<63 - 1}}, TaskOptions[string]{}, s, 0, [3]time.Duration{longestWait, longestWait, longestWait}},
	} {
		plugin := Task("p", func(context.Context, Call, string) (string, error) { return "", nil }).With(test.plugin)
		if _, err := registry.Must(plugin), workflow.Validate(&workflow.Action{Plugin: "p", Backoff: test.action.Backoff}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		p := policyOf(&test.action, plugin, test.first)
		var waits [3]time.Duration
		for i := range waits {
			waits[i] = p.wait(uuid.Nil, i+1, &plugins.Error{After: -1})
		}
		if p.retries != test.retries || waits != test.waits {
			t.Errorf("%s: %d retries after %v, want %d after %v", name, p.retries, waits, test.retries, test.waits)
		}
		if got := [2]time.Duration{p.wait(uuid.Nil, 3, &plugins.Error{After: 1}), p.wait(uuid.Nil, 1, &plugins.Error{After: 1 << 62})}; got != [2]time.Duration{1, 7 * 24 * time.Hour} {
			t.Errorf("%s: errors that say when wait %v", name, got)
		}
		if p.wait(uuid.Nil, 2000, &plugins.Error{}) != min(p.backoff.Most, longestWait) && p.backoff.Factor > 1 {
			t.Errorf("%s: after 2000 failures: %v", name, p.wait(uuid.Nil, 2000, &plugins.Error{}))
		}
	}
}

// TestJitter checks that waits are spread over the part that they may be shortened by, and that each is always the same.
func TestJitter(t *testing.T) {
	p := policyOf(&workflow.Action{Backoff: plugins.Backoff{First: 100 * time.Second, Most: 100 * time.Second, Jitter: 0.2}}, nil, 1)
	tenths := map[time.Duration]int{}
	for n := range 1000 {
		id := uuid.UUID{15: byte(n % 10)}
		wait := p.wait(id, n/10+1, &plugins.Error{})
		if wait <= 80*time.Second || wait > 100*time.Second || wait != p.wait(id, n/10+1, &plugins.Error{}) {
			t.Fatalf("wait %v", wait)
		}
		tenths[(wait-80*time.Second)/(2*time.Second)]++
	}
	for tenth, n := range tenths {
		if n < 60 || n > 140 || len(tenths) > 11 {
			t.Errorf("%d of 1000 waits are in tenth %d", n, tenth)
		}
	}
}
