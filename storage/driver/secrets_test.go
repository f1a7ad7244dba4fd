package driver_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

type vaulted struct {
	Number int8           `vault:"secret"`
	Any    any            `vault:"secret"`
	Map    map[string]any `vault:"secret"`
	Shout  shout          `vault:"secret"`
	Open   string
}

// shout is read only if it is in capitals, and quotes what is not.
type shout string

func (s *shout) UnmarshalText(text []byte) error {
	*s = shout(text)
	if string(text) != strings.ToUpper(string(text)) {
		return &plugins.Error{Message: "not in capitals: " + string(text)}
	}
	return nil
}

// mute can't be written, and quotes itself.
type mute string

func (m mute) MarshalJSON() ([]byte, error) { return nil, &plugins.Error{Message: string(m)} }

// TestSecretsInRefusals has requests that are refused, for reasons that quote what is wrong.
func TestSecretsInRefusals(t *testing.T) {
	reg := registry.Must(plugins.Typed[vaulted, vaulted]("p"))
	for _, req := range []any{
		json.RawMessage(`{"Number": 123456}`), json.RawMessage(`{"Shout": "hunter2"}`), json.RawMessage(`{"shout": "hunter2"}`),
		vaulted{Shout: "hunter2"},
		vaulted{Any: int64(1<<60 + 1)},
		vaulted{Map: map[string]any{"hunter2": uint64(1<<60 + 1)}},
		vaulted{Any: "hunter2", Open: "\xff"},
		vaulted{Any: mute("hunter2")},
	} {
		p := planOf(req)
		err := driver.CheckNew(p, reg)
		if err == nil {
			driver.Complete(p)
			driver.MarkSecrets(p, reg)
			_, err = workflow.Marshal(p)
			err = driver.Unencodable(p, true, err)
		}
		if err == nil || !strings.Contains(err.Error(), "Req") || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "123456") || strings.Contains(err.Error(), "1152921504606846976") {
			t.Errorf("%+v: %v", req, err)
		}
		if raw, ok := req.(json.RawMessage); ok {
			for _, p := range []*workflow.Plan{planOf(raw), planOf(nil)} {
				a := p.Blocks[0].Sequences[0].Actions[0]
				if a.Req == nil {
					a.Attempts = []workflow.Attempt{{Resp: raw}}
				}
				if err := driver.Bind(p, reg); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "123456") {
					t.Errorf("%s: %v", raw, err)
				}
			}
		}
	}
}

// quoting refuses all requests.
type quoting struct {
	plugins.Typed[vaulted, vaulted]
}

func (quoting) Check(req any) error { return fmt.Errorf("%v won't do", req) }

// TestSecretsInChecks has a plugin that quotes the request that it refuses.
func TestSecretsInChecks(t *testing.T) {
	err := driver.CheckNew(planOf(vaulted{Any: "hunter2"}), registry.Must(quoting{"p"}))
	if err == nil || !strings.Contains(err.Error(), "(secret)") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error is %v", err)
	}
}

// TestRedactedRequest refuses a request that was shown to a person, and would lose its secret.
func TestRedactedRequest(t *testing.T) {
	p := planOf(vaulted{Any: "hunter2"})
	driver.MarkSecrets(p, nil)
	err := driver.CheckNew(p.Redacted(), nil)
	if err == nil || !strings.Contains(err.Error(), "Req: has (secret)") {
		t.Errorf("the error is %v", err)
	}
	if err := driver.CheckNew(p, nil); err != nil {
		t.Error(err)
	}
}

// TestMarkSecrets marks actions whose types are known, by a registry or by their values.
func TestMarkSecrets(t *testing.T) {
	known := []string{"/req/Any", "/req/Map", "/req/Number", "/req/Shout", "/resp/Any", "/resp/Map", "/resp/Number", "/resp/Shout"}
	reg := registry.Must(plugins.Typed[vaulted, vaulted]("p"), plugins.Typed[string, string]("q"))
	for _, test := range []struct {
		plugin string
		reg    *registry.Register
		req    any
		resp   any
		has    []string
		want   []string
	}{
		{"p", reg, nil, nil, nil, known},
		{"p", reg, json.RawMessage(`{}`), nil, []string{"/req/Open"}, slices.Insert(slices.Clone(known), 3, "/req/Open")},
		{"p", nil, json.RawMessage(`{}`), nil, []string{"/req/x"}, []string{"/req/x"}},
		{"p", nil, vaulted{}, nil, nil, known[:4]},
		{"p", nil, nil, &vaulted{}, nil, known[4:]},
		{"q", reg, "a", "b", nil, nil},
	} {
		p := planOf(test.req)
		a := p.Blocks[0].Sequences[0].Actions[0]
		a.Plugin, a.Secrets, a.Attempts = test.plugin, test.has, []workflow.Attempt{{}, {Resp: test.resp}}
		b := *a
		driver.MarkSecrets(p, test.reg)
		driver.MarkSecrets(&b, test.reg)
		if slices.Sort(test.want); !slices.Equal(a.Secrets, test.want) || !slices.Equal(b.Secrets, test.want) {
			t.Errorf("%+v: %q and %q, want %q", test, a.Secrets, b.Secrets, test.want)
		}
	}
	if err := driver.CheckNew(planOf(struct {
		A string `vault:"secrt"`
	}{}), nil); err == nil || !strings.Contains(err.Error(), `vault:"secrt"`) {
		t.Errorf("a wrong tag: %v", err)
	}
}

func planOf(req any) *workflow.Plan {
	a := &workflow.Action{Plugin: "p", Req: req}
	return &workflow.Plan{Name: "secrets", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{a}}}}}}
}
