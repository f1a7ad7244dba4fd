package driver

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/planvault/azblob/internal/secrets"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// MarkSecrets adds the paths of the secrets in the request and the responses of an action to its Secrets, or to those of all
// actions of a plan: the fields that are tagged vault:"secret" in the types of the values, and, if reg is not nil, in those of
// the plugin. [Accept] calls it. Call it before an updated action is written, after [CheckUpdate]. Actions without such fields
// stay as they are.
func MarkSecrets(o workflow.Object, reg *registry.Register) {
	plugin := types{reg: reg}
	mark := func(o workflow.Object) {
		if a, ok := o.(*workflow.Action); ok {
			a.Secrets, _ = plugin.secrets(a)
		}
	}
	mark(o)
	if p, ok := o.(*workflow.Plan); ok {
		for o := range workflow.Walk(p) {
			mark(o)
		}
	}
}

// secrets returns an action's Secrets with those that its types and values add.
func (t *types) secrets(a *workflow.Action) (paths []string, err error) {
	var request, response any
	if t.reg != nil && t.is(a.Plugin) {
		request, response = t.request, t.response
	}
	paths = a.Secrets
	add := func(root string, v, empty any) {
		found, wrong := secrets.Find(root, v, empty)
		paths, err = secrets.Merge(paths, found), errors.Join(err, wrong)
	}
	add("/req", a.Req, request)
	for i := range max(1, len(a.Attempts)) {
		var resp any
		if i < len(a.Attempts) {
			resp = a.Attempts[i].Resp
		}
		add("/resp", resp, response)
	}
	return paths, err
}

// discreet returns a rule that does not tell the secrets of actions, nor why something is wrong if that quotes one.
func discreet(reg *registry.Register, rule workflow.Rule) workflow.Rule {
	plugin := types{reg: reg}
	return func(o workflow.Object, bad workflow.Report) {
		a, ok := o.(*workflow.Action)
		if !ok {
			return
		}
		rule(o, func(field, problem string, why ...error) {
			marked := *a
			marked.Secrets, _ = plugin.secrets(a)
			told, about := marked.RedactText(problem), marked.RedactText(field)
			if about == secrets.Shown { // the secrets can't be told from the rest
				about = field[:strings.IndexAny(field+".", ".[")]
			}
			if told != problem || about != field {
				why = nil // it quotes a secret
			}
			if len(marked.Secrets) > 0 && strings.HasPrefix(field, "Req") {
				field, _, _ = strings.Cut(about, "[") // a key of a map may be secret
			}
			bad(field, told, why...)
		})
	}
}

// tagged is a rule: the tags of the types are right, and a request has secrets and not what is shown in their place.
func tagged(reg *registry.Register) workflow.Rule {
	plugin := types{reg: reg}
	return func(o workflow.Object, bad workflow.Report) {
		a, ok := o.(*workflow.Action)
		if !ok {
			return
		}
		paths, err := plugin.secrets(a)
		if err != nil {
			bad("Plugin", fmt.Sprintf("%s: %v", a.Plugin, err))
		}
		if len(paths) == 0 || a.Req == nil || plugins.Blocks(reflect.TypeOf(a.Req)) {
			return
		}
		if text, err := workflow.MarshalValue(a.Req); err == nil { // another rule reports the error
			if _, values, _ := secrets.Hide("/req", text, paths); slices.Contains(values, secrets.Shown) {
				bad("Req", "has "+secrets.Shown+" in the place of a secret: it was redacted, give the secret itself")
			}
		}
	}
}

// redact returns an error about an action without its secrets.
func (t *types) redact(a *workflow.Action, err error) error {
	marked := *a
	marked.Secrets, _ = t.secrets(a)
	if text := marked.RedactText(err.Error()); text != err.Error() {
		return errors.New(text)
	}
	return err
}
