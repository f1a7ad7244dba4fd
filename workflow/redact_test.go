package workflow_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

// withSecret returns a plan whose first action has secrets, in raw JSON or with types.
func withSecret(raw bool) (*workflow.Plan, *workflow.Action) {
	p := plantest.Small()
	a := p.Blocks[0].Sequences[0].Actions[0]
	a.Secrets = []string{"/req/Text", "/resp/OK", "/resp/Text"}
	a.Req = plantest.Request{Text: "hunter2", Number: 7}
	a.Attempts = []workflow.Attempt{
		{Err: &plugins.Error{Message: "no hunter2", Wrapped: &plugins.Error{Message: "not hunter3, but \"hunter2\""}}},
		{Resp: &plantest.Response{Text: "hunter3", OK: true}},
	}
	if raw {
		a.Req, a.Attempts[1].Resp = json.RawMessage(`{"text": "hunter2", "Number": 7}`), json.RawMessage(`{"Text":"hunter3","OK":true}`)
	}
	return p, a
}

func TestRedacted(t *testing.T) {
	for _, raw := range []bool{false, true} {
		p, a := withSecret(raw)
		before, err := workflow.Marshal(p)
		must(t, err)
		shown := p.Redacted()
		text, err := workflow.Marshal(shown)
		must(t, err)
		for _, want := range []string{`ext":"(secret)","Number":7`, `"resp":{"Text":"(secret)","OK":"(secret)"}`, `"message":"no (secret)"`, `"message":"not (secret), but \"(secret)\""`} {
			if !strings.Contains(string(text), want) {
				t.Errorf("raw %v: no %s in %s", raw, want, text)
			}
		}
		if after, err := workflow.Marshal(p); err != nil || !bytes.Equal(after, before) || !strings.Contains(string(after), "hunter2") {
			t.Errorf("raw %v: the plan has become %s, %v", raw, after, err)
		}
		if text := a.RedactText("hunter2 at 3"); text != "(secret) at 3" {
			t.Errorf("a text becomes %s", text)
		}
		if again, err := workflow.Marshal(shown.Redacted()); err != nil || !bytes.Equal(again, text) {
			t.Errorf("twice it is %s, %v", again, err)
		}
	}
	p := plantest.Small()
	if a := p.Blocks[0].Sequences[0].Actions[0]; p.Redacted() != p || a.Redacted() != a || a.RedactText("x") != "x" {
		t.Error("a plan without secrets is copied")
	}
	var none *workflow.Plan
	if none.Redacted() != nil {
		t.Error("no plan becomes one")
	}
}

// TestRedactedUnreadable has values that no JSON can be made of. Nothing of them is shown, nor of texts about them.
func TestRedactedUnreadable(t *testing.T) {
	for _, req := range []any{json.RawMessage(`{"Text"`), map[string]any{"Text": func() {}}} {
		a := &workflow.Action{Secrets: []string{"/req/Text"}, Req: req}
		if got := fmt.Sprintf("%s", a.Redacted().Req); got != `"(secret)"` {
			t.Errorf("%v is shown as %s", req, got)
		}
		if got := a.RedactText("anything"); got != "(secret)" {
			t.Errorf("a text about %v is %s", req, got)
		}
		if a.Secrets = []string{"/resp/x"}; a.RedactText("anything") != "anything" {
			t.Errorf("a request without secrets hides texts")
		}
	}
}

// TestSecretsInLogs prints and logs plans and actions.
func TestSecretsInLogs(t *testing.T) {
	p, a := withSecret(true)
	var b bytes.Buffer
	for _, h := range []slog.Handler{slog.NewJSONHandler(&b, nil), slog.NewTextHandler(&b, nil)} {
		slog.New(h).Info("done", "plan", p, "action", a, "none", (*workflow.Plan)(nil), "no action", (*workflow.Action)(nil))
	}
	for _, v := range []any{p, *p, a, *a, []*workflow.Action{a}, []workflow.Action{*a}, struct{ A workflow.Action }{*a}} {
		fmt.Fprintf(&b, "%v %+v\n", v, v)
	}
	hex := fmt.Sprint([]byte("hunter2"))
	if text := b.String(); strings.Contains(text, "hunter") || strings.Contains(text, strings.Trim(hex, "[]")) || strings.Count(text, `"status":"NotStarted"`) != 2 || !strings.Contains(text, "Plugin:"+a.Plugin) {
		t.Errorf("printed is %s", text)
	}
}
