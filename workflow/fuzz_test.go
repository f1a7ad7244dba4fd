package workflow_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
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

// FuzzReader compares what is read with what encoding/json reads, which has the same values where it accepts the text.
func FuzzReader(f *testing.F) {
	for _, text := range []string{
		`{}`, ` {"a" : [ ] } `, `{"name":"\ud83d\ude00\u00e9\/\b"}`, "{\"name\":\"\xff\xe2\x82\"}", `{"name":null,"blocks":[null]}`, `{"epoch":-0}`,
		`{"epoch":1e3}`, `{"a":-0.10E+7}`, `{"a":01}`, `{"a":"\u12g4"}`, `{"a":"\`, `{"a":1,}`, `[]`, `null`, ``, `{"name":"a","name":"b"}`,
		`{"\u006eame":"a"}`, "{\"a\":\"\n\"}", `{} {}`, `{"meta":"x","metaBase64":"eA=="}`, `{"a":{"b":{},"c":[[],{}]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p := new(workflow.Plan)
		if workflow.Unmarshal(data, p) != nil {
			return
		}
		// encoding/json does not tell names in another case from others.
		var exact map[string]json.RawMessage
		if err := json.Unmarshal(data, &exact); err != nil {
			t.Fatalf("encoding/json refuses what was read as %+v: %v", p, err)
		}
		var name string
		var epoch int64
		var meta *string
		for field, into := range map[string]any{"name": &name, "epoch": &epoch, "meta": &meta} {
			if text := exact[field]; text != nil {
				must(t, json.Unmarshal(text, into))
			}
		}
		if p.Name != name || p.Epoch != epoch || meta != nil && string(p.Meta) != *meta {
			t.Errorf("encoding/json reads %q, %d and %v, not %+v", name, epoch, meta, p)
		}
	})
}

// FuzzUnknownMembers checks that members of any name and value outlive being read and written.
func FuzzUnknownMembers(f *testing.F) {
	f.Add("new", `{"a":[1,{}],"b":"<\u2028>"}`)
	f.Add("Name", ` [ 1e400 , "\/" ] `)
	f.Add("\x00é\"", `null`)
	f.Fuzz(func(t *testing.T, name, value string) {
		key, _ := json.Marshal(name)
		whole := `{"name":"a","state":{"status":"Running",` + string(key) + `:` + value + `},` + string(key) + `:` + value + `}`
		s := new(workflow.Sequence)
		if err := workflow.Unmarshal([]byte(whole), s); err != nil {
			return
		}
		text, err := workflow.Marshal(s)
		must(t, err)
		if got, want := decodeTree(t, string(text)), decodeTree(t, whole); !reflect.DeepEqual(got, want) {
			t.Errorf("%s is written again as %s", whole, text)
		}
	})
}

// FuzzQuotes checks that texts are written as encoding/json writes them, or refused if they are not UTF-8.
func FuzzQuotes(f *testing.F) {
	for s := range plantest.Strange() {
		f.Add(s)
	}
	f.Add("\x00\x1f\x7f\b\f\n\r\t\"\\/<>&\u2028\u2029\ufffdé🚀")
	f.Fuzz(func(t *testing.T, s string) {
		text, err := workflow.Marshal(&workflow.Sequence{Descr: s})
		if (err == nil) != utf8.ValidString(s) {
			t.Fatalf("%q: %v", s, err)
		}
		want := encode(t, struct {
			Descr string `json:"descr,omitempty"`
		}{s})
		if err == nil && string(text) != want {
			t.Errorf("got %s, want %s", text, want)
		}
	})
}

func mustMarshal(t testing.TB, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	must(t, err)
	return text
}
