package workflow

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"

	"github.com/planvault/azblob/internal/secrets"
	"github.com/planvault/azblob/plugins"
)

// Redacted returns the plan to show to people and to log: its actions are as [Action.Redacted] returns them. It is p itself
// if no action has Secrets, and otherwise a [Copy]. A plan that was stored in this form would have lost its secrets.
func (p *Plan) Redacted() *Plan {
	has := false
	for o := range Walk(p) {
		a, ok := o.(*Action)
		has = has || ok && len(a.Secrets) > 0
	}
	if !has {
		return p
	}
	p = Copy(p)
	for o := range Walk(p) {
		if a, ok := o.(*Action); ok {
			*a = *a.Redacted()
		}
	}
	return p
}

// Redacted returns the action to show to people and to log: the request and the responses are raw JSON with "(secret)" in the
// place of each value that Secrets names, except null, and [Action.RedactText] has been applied to the errors. It is a itself
// if that has no Secrets.
func (a *Action) Redacted() *Action {
	if a == nil || len(a.Secrets) == 0 {
		return a
	}
	hidden, values, known := a.hide()
	for i := range hidden.Attempts {
		hidden.Attempts[i].Err = redactError(hidden.Attempts[i].Err, values, known)
	}
	return hidden
}

// RedactText returns a text about the action, such as an error or a stack, with "(secret)" in the place of the secrets in its
// request and its responses: the strings and numbers of at least four bytes, also if they are quoted, escaped, or in base64 or
// hexadecimal. If the secrets can't be told, because the JSON can't be read or written, nothing of the text is left.
func (a *Action) RedactText(text string) string {
	if a == nil || len(a.Secrets) == 0 || text == "" {
		return text
	}
	_, values, known := a.hide()
	return redactText(text, values, known)
}

// hide returns a copy of the action without its secrets, and these. known is false if they are not all the secrets.
func (a *Action) hide() (hidden *Action, values []string, known bool) {
	hidden, known = new(*a), true
	hide := func(root string, v *any) {
		if *v == nil {
			return
		}
		text, raw := (*v).(json.RawMessage)
		if !raw && !plugins.Blocks(reflect.TypeOf(*v)) {
			text, _ = MarshalValue(*v)
		}
		shown, found, ok := secrets.Hide(root, text, a.Secrets)
		known = known && ok
		if values = append(values, found...); !ok || !bytes.Equal(shown, text) {
			*v = json.RawMessage(shown)
		}
	}
	hide("/req", &hidden.Req)
	hidden.Attempts = slices.Clone(a.Attempts)
	for i := range hidden.Attempts {
		hide("/resp", &hidden.Attempts[i].Resp)
	}
	return hidden, values, known
}

func redactText(text string, values []string, known bool) string {
	if !known {
		return secrets.Shown
	}
	return secrets.Scrub(text, values)
}

// redactError returns a copy of an error, as it is stored.
func redactError(e *plugins.Error, values []string, known bool) *plugins.Error {
	if e == nil {
		return nil
	}
	first := new(*e)
	for at, depth := first, 0; ; at, depth = at.Wrapped, depth+1 {
		at.Message = redactText(at.Message, values, known)
		if at.Cause = nil; at.Wrapped == nil || depth == maxWrapped {
			at.Wrapped = nil
			return first
		}
		at.Wrapped = new(*at.Wrapped)
	}
}

// LogValue is what package slog logs of the plan: its ID, name and status.
func (p *Plan) LogValue() slog.Value {
	if p == nil {
		return slog.AnyValue(nil)
	}
	return slog.GroupValue(slog.Any("id", p.ID), slog.String("name", p.Name), slog.String("status", p.State.Status.String()))
}

// LogValue is what package slog logs of the action: its IDs, name, plugin and status, and the number of its attempts.
func (a *Action) LogValue() slog.Value {
	if a == nil {
		return slog.AnyValue(nil)
	}
	return slog.GroupValue(slog.Any("id", a.ID), slog.Any("plan", a.PlanID), slog.String("name", a.Name), slog.String("plugin", a.Plugin),
		slog.String("status", a.State.Status.String()), slog.Int("attempts", len(a.Attempts)))
}

// Format prints the fields of the action, as package fmt does, without its secrets. An [Attempt] alone does not know which of
// its values are secret.
func (a Action) Format(f fmt.State, verb rune) {
	type fields Action
	fmt.Fprintf(f, fmt.FormatString(f, verb), fields(*a.Redacted()))
}
