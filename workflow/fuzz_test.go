package workflow_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// FuzzPlanJSON checks that reading never panics, and that a valid plan is the same after it was written and
// read again.
func FuzzPlanJSON(f *testing.F) {
	f.Add([]byte(`{}`))
	for _, p := range []*workflow.Plan{plantest.Small(), plantest.Random(1), plantest.Random(2)} {
		plantest.Finish(p)
		f.Add(mustMarshal(f, p))
	}
	for o := range workflow.Walk(stored()) {
		if a, ok := o.(*workflow.Action); ok {
			f.Add(mustMarshal(f, &workflow.Plan{PreChecks: &workflow.Checks{Actions: []*workflow.Action{a}}}))
			break
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := new(workflow.Plan)
		if json.Unmarshal(data, p) != nil {
			return
		}
		for range workflow.Walk(p) { // nil children and all
		}
		if workflow.Validate(p, workflow.Encodable) != nil {
			return
		}
		text, again := mustMarshal(t, p), new(workflow.Plan)
		if err := json.Unmarshal(text, again); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if second := mustMarshal(t, again); string(second) != string(text) {
			t.Errorf("the JSON changed when it was read and written again:\n%s\n%s", text, second)
		}
		if err := workflow.Validate(again); err != nil {
			t.Errorf("the plan is no longer valid: %v", err)
		}
		if d := plantest.Diff(p, again); d != "" {
			t.Error(d)
		}
	})
}

// FuzzReader checks that reading in one pass accepts the texts that encoding/json accepts, and reads the same
// values.
func FuzzReader(f *testing.F) {
	for _, text := range []string{
		`{}`, ` {"a" : [ ] } `, `{"name":"\ud83d\ude00\u00e9\/\b"}`, "{\"name\":\"\xff\xe2\x82\"}", `{"name":null,"blocks":[null]}`, `{"epoch":-0}`,
		`{"epoch":1e3}`, `{"a":-0.10E+7}`, `{"a":01}`, `{"a":1.}`, `{"a":"\x"}`, `{"a":"\u12g4"}`, `{"a":"\`, `{"a":tru}`, `{"a":[1,]}`, `{"a":1,}`, `{,}`, `{"a"1}`, `[]`, `null`, ``,
		`{"name":"a","name":"b"}`, `{"\u006eame":"a"}`, "{\"a\":\"\n\"}", `{} {}`, `{"meta":"x","metaBase64":"eA=="}`, `{"a":{"b":{},"c":[[],{}]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var want struct {
			Name  string  `json:"name"`
			Epoch int64   `json:"epoch"`
			Meta  *string `json:"meta"`
		}
		p := new(workflow.Plan)
		err := workflow.Unmarshal(slices.Clip(data), p) // a read beyond the end panics
		if err == nil && !json.Valid(data) {
			t.Fatalf("encoding/json refuses what was read as %+v", p)
		}
		if err != nil && json.Valid(data) && json.Unmarshal(data, new(workflow.Plan)) == nil {
			t.Fatalf("json.Unmarshal reads it: %v", err)
		}
		if err != nil || json.Unmarshal(data, &want) != nil {
			return
		}
		// encoding/json ignores the case of names.
		var exact map[string]json.RawMessage
		if json.Unmarshal(data, &exact) != nil {
			return
		}
		for name := range exact {
			if strings.ToLower(name) != name {
				return
			}
		}
		if p.Name != want.Name || p.Epoch != want.Epoch || want.Meta != nil && string(p.Meta) != *want.Meta {
			t.Errorf("encoding/json reads %+v, not %+v", want, p)
		}
	})
}

// FuzzQuotes checks that texts are written as encoding/json writes them.
func FuzzQuotes(f *testing.F) {
	for s := range plantest.Strange() {
		f.Add(s)
	}
	f.Add("\x00\x1f\x7f\b\f\n\r\t\"\\/<>&\u2028\u2029\ufffd\xff\xe2\x82é🚀")
	f.Fuzz(func(t *testing.T, s string) {
		text, err := workflow.Marshal(&workflow.Sequence{Descr: s})
		must(t, err)
		var b strings.Builder
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(struct {
			Descr string `json:"descr,omitempty"`
		}{s}); err != nil {
			t.Fatal(err)
		}
		if got, want := string(text)+"\n", b.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func mustMarshal(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return text
}
