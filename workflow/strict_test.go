package workflow_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

type wish struct {
	Text  string         `json:"text"`
	Count int            `json:"count,omitempty"`
	Any   map[string]any `json:"any"`
}

// wishes knows a few plugins.
func wishes(plugin string) (any, error) {
	switch plugin {
	case "wish":
		return wish{}, nil
	case "pointer":
		return new(wish), nil
	case "anything":
		return nil, nil
	case "secret":
		return struct {
			Until time.Time `vault:"secret"`
		}{}, nil
	}
	return nil, fmt.Errorf("no plugin %q; known are wish", plugin)
}

// withActions returns the text of a plan with some actions, which begin in line 2.
func withActions(actions string) string {
	return `{"blocks":[{"sequences":[{"actions":[` + "\n" + actions + "\n]}]}]}"
}

func TestParsePlan(t *testing.T) {
	known := func(plugin string) (any, error) {
		if plugin == plantest.PluginName {
			return plantest.Request{}, nil
		}
		return wishes(plugin)
	}
	for _, text := range []string{
		encode(t, plantest.Full()),
		withActions(`{"plugin":"wish","req":{"text":"a","count":2,"any":{"b":{"c":[1,null]}}}}`),
		withActions(`{"req":{"text":"a"},"plugin":"pointer","timeout":"1m30s","retries":3,"key":"ffffffff-ffff-ffff-ffff-ffffffffffff"}`),
		withActions(`{"plugin":"anything","req":[1,"x",{"y":null}]}, {"plugin":"wish"}`),
		`{"id":"018f0000-0000-7000-8000-000000000001","name":"n","descr":"d","meta":"m","notBefore":"2026-01-02T03:04:05Z","deadline":"2026-01-02T04:04:05+01:00","contChecks":{"delay":"1s","actions":[{"plugin":"wish"}]},
		"preChecks":null,"blocks":[{"entranceDelay":"1s","exitDelay":"2s","concurrency":2,"toleratedFailures":-1,"sequences":[{"name":"s","actions":[{"plugin":"wish"}]}]}],
		"deferredActions":{"batches":[{"name":"b","when":"Always","failElement":true,"actions":[{"plugin":"wish"}]}]}}`,
	} {
		got, err := workflow.ParsePlan([]byte(text), known)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if d := plantest.Diff(decodePlan(t, text), got); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}

// faults returns the text of each joined error.
func faults(err error) []string {
	var list []string
	if err != nil {
		for _, err := range err.(interface{ Unwrap() []error }).Unwrap() {
			list = append(list, err.Error())
		}
	}
	return list
}

func TestParsePlanRefuses(t *testing.T) {
	const good = `{"plugin":"wish"}`
	for _, test := range []struct {
		text string
		want []string // how each problem begins
	}{
		{``, []string{"line 1, column 1: unexpected end"}},
		{"{\n\n  \"name\": é}", []string{"line 3, column 11: invalid character"}},
		{withActions(good) + "\n{}", []string{"line 4, column 1: invalid character '{' after"}},
		{strings.Repeat("[", 20_000), []string{"line 1, column 10001: invalid character '[' exceeded max depth"}},
		{`null`, []string{"line 1, column 1: is null"}},
		{`7`, []string{"line 1, column 1: is of the wrong type: number, want an object"}},
		{`[]`, []string{"line 1, column 1: is of the wrong type: array, want an object"}},

		{`{}`, []string{`line 1, column 1: there is no "blocks"`}},
		{`{"blocks":null}`, []string{`line 1, column 11: blocks: is null`}},
		{`{"blocks":[]}`, []string{`line 1, column 11: blocks: is empty`}},
		{`{"blocks":[null]}`, []string{`line 1, column 12: blocks[0]: is null`}},
		{`{"blocks":[{}]}`, []string{`line 1, column 12: blocks[0]: there is no "sequences"`}},
		{`{"blocks":[{"sequences":[{"name":"s"}]}]}`, []string{`line 1, column 26: blocks[0].sequences[0]: there is no "actions"`}},
		{withActions(``), []string{`line 1, column 37: blocks[0].sequences[0].actions: is empty`}},
		{`{"plan":` + withActions(good) + `}`, []string{`line 1, column 1: there is no "blocks"`, `line 1, column 2: plan: there is no such field; known are `}},
		{`{"preChecks":{},"deferredActions":{"batches":[{}]},` + withActions(good)[1:], []string{
			`line 1, column 14: preChecks: there is no "actions"`, `line 1, column 47: deferredActions.batches[0]: there is no "actions"`,
		}},

		{withActions(`{"name":"a"}`), []string{`line 2, column 1: blocks[0].sequences[0].actions[0]: there is no "plugin"`}},
		{withActions(`{"name":"a",` + "\n" + `  "plugin":"wisch","req":{"txet":1}}`), []string{
			`line 3, column 12: blocks[0].sequences[0].actions[0].plugin: no plugin "wisch"; known are wish`,
		}},
		{withActions(`{"plugin":7}`), []string{`line 2, column 11: blocks[0].sequences[0].actions[0].plugin: is of the wrong type: number, want a string`}},
		{withActions(`{"plugin":"wish","req":{"txet":"a"}}`), []string{`line 2, column 25: blocks[0].sequences[0].actions[0].req.txet: there is no such field; known are any, count, text`}},
		{withActions(`{"plugin":"pointer","req":{"Text":"a"}}`), []string{`line 2, column 28: blocks[0].sequences[0].actions[0].req.Text: there is no such field`}},
		{withActions(`{"req":{"count":"3"},"plugin":"wish"}`), []string{`line 2, column 17: blocks[0].sequences[0].actions[0].req.count: is of the wrong type: string, want a whole number`}},
		{withActions(`{"plugin":"wish","req":null}`), []string{`line 2, column 24: blocks[0].sequences[0].actions[0].req: is null, want an object`}},
		{withActions(`{"plugin":"wish","req":7}`), []string{`line 2, column 24: blocks[0].sequences[0].actions[0].req: is of the wrong type: number, want an object`}},

		{withActions(`{"plugin":"secret","req":{"Until":"hunter2"}}`), []string{`line 2, column 35: blocks[0].sequences[0].actions[0].req.Until: parsing time "(secret)" as "2006-01-02T15:04:05Z07:00": cannot parse "(secret)" as "2006"`}},

		{withActions(`{"plugin":"wish","plugin":"wish"}`), []string{`line 2, column 18: blocks[0].sequences[0].actions[0].plugin: is given twice`}},
		{withActions(`{"plugin":"wish","req":{"any":{"b":[{"c":1,"c":2}]}}}`), []string{`line 2, column 44: blocks[0].sequences[0].actions[0].req.any.b[0].c: is given twice`}},
		{`{"blocks":[{"sequences":[{"actions":[` + good + `]}]}],"blocks":[]}`, []string{`line 1, column 61: blocks: is given twice`}},

		{withActions(`{"plugin":"wish","timeout":5}`), []string{`line 2, column 28: blocks[0].sequences[0].actions[0].timeout: is of the wrong type: number, want a duration such as "1m30s"`}},
		{withActions(`{"plugin":"wish","timeout":"5"}`), []string{`line 2, column 28: blocks[0].sequences[0].actions[0].timeout: time: missing unit`}},
		{withActions(`{"plugin":"wish","timeout":"-5s"}`), []string{`line 2, column 28: blocks[0].sequences[0].actions[0].timeout: -5s is negative`}},
		{withActions(`{"plugin":"wish","retries":1.5}`), []string{`line 2, column 28: blocks[0].sequences[0].actions[0].retries: is of the wrong type: number 1.5, want a whole number`}},
		{withActions(`{"plugin":"wish","retries":-1}`), []string{`line 2, column 28: blocks[0].sequences[0].actions[0].retries: -1 is negative`}},
		{withActions(`{"plugin":"wish","key":"x"}`), []string{`line 2, column 24: blocks[0].sequences[0].actions[0].key: invalid UUID`}},
		{`{"id":"` + "00000000-0000-4000-8000-000000000001" + `",` + withActions(good)[1:], []string{`line 1, column 7: id: 00000000-0000-4000-8000-000000000001 is not a UUIDv7`}},
		{`{"deferredActions":{"batches":[{"when":"Never","failElement":1,"actions":[` + good + `]}]},` + withActions(good)[1:], []string{
			`line 1, column 40: deferredActions.batches[0].when: there is no when "Never"`, `line 1, column 62: deferredActions.batches[0].failElement: is of the wrong type: number, want true or false`,
		}},
	} {
		_, err := workflow.ParsePlan([]byte(test.text), wishes)
		got := faults(err)
		if len(got) != len(test.want) {
			t.Errorf("%.200s:\ngot  %q\nwant %q", test.text, got, test.want)
			continue
		}
		for i, want := range test.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%.200s:\ngot  %s\nwant %s", test.text, got[i], want)
			}
		}
		if where, ok := errors.AsType[*workflow.ParseError](err); !ok || where.Line == 0 || where.Column == 0 {
			t.Errorf("%.200s: no *ParseError: %v", test.text, err)
		}
	}
}

// TestParsePlanLooksEverywhere puts a misspelt field, and fields that only the vault or the engine sets, into
// every object of a plan.
func TestParsePlanLooksEverywhere(t *testing.T) {
	whole := decodeTree(t, encode(t, plantest.Full()))
	objects := 0
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, item := range v {
				visit(item)
			}
		case map[string]any:
			objects++
			names := []string{"nmae", "state", "attempts", "planID", "reason", "submitTime", "submitted", "runtimeUpdate", "owner", "epoch", "wakeAt", "paused", "ending", "forkedFrom", "forked", "stopped"}
			for _, name := range names {
				v[name] = 1
			}
			_, refused := workflow.ParsePlan(mustMarshal(t, whole), func(string) (any, error) { return nil, nil })
			for _, name := range names {
				if refused == nil || !strings.Contains(refused.Error(), name+": there is no such field") {
					t.Errorf("%q in %v: %v", name, v, refused)
				}
				delete(v, name)
			}
			for name, below := range v {
				if name != "req" && name != "labels" {
					visit(below)
				}
			}
		}
	}
	visit(whole)
	want := 0
	for o := range workflow.Walk(plantest.Full()) {
		if want++; o.Kind() == workflow.KindAction { // with its backoff
			want++
		}
	}
	if objects != want {
		t.Errorf("the test covers %d objects, want %d", objects, want)
	}
}

// FuzzParsePlan parses arbitrary bytes. A plan that ParsePlan accepts must be the plan that encoding/json
// reads.
func FuzzParsePlan(f *testing.F) {
	f.Add([]byte(withActions(`{"plugin":"wish","req":{"text":"a","any":{"b":[{"c":1,"c":2}]}}}`)))
	f.Add([]byte(`{"name":"é","contChecks":{"delay":"1s","actions":[null]},"blocks":[]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := workflow.ParsePlan(text, wishes)
		if err != nil {
			return
		}
		if d := plantest.Diff(decodePlan(t, string(text)), got); d != "" || len(got.Blocks) == 0 {
			t.Errorf("%q: %s", text, d)
		}
	})
}
