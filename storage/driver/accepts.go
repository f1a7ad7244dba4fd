package driver

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"

	"github.com/planvault/azblob/internal/values"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// isCheck is a rule: if the registry knows which plugins are checks, Checks name no other.
func isCheck(reg *registry.Register) workflow.Rule {
	return func(o workflow.Object, bad workflow.Report) {
		c, ok := o.(*workflow.Checks)
		if !ok || reg == nil {
			return
		}
		for i, a := range c.Actions {
			if a == nil || reg.MayCheck(a.Plugin) {
				continue
			}
			if _, known := reg.Plugin(a.Plugin); known { // else another rule reports it
				bad(fmt.Sprintf("Actions[%d].Plugin", i), fmt.Sprintf("plugin %q does not say IsCheck: Checks accept only plugins of the registry that do", a.Plugin))
			}
		}
	}
}

// passes returns a rule: the plugin of an action that is to run accepts its request. What the plugin says is redacted before it
// is cut.
func passes(plan *workflow.Plan, reg *registry.Register, carried map[workflow.Object]bool) workflow.Rule {
	return oneLine(discreet(reg, accepts(plan, reg, carried)))
}

// accepts is passes in the words of the plugin.
func accepts(plan *workflow.Plan, reg *registry.Register, carried map[workflow.Object]bool) workflow.Rule {
	var paths map[workflow.Object]string
	blocked := map[string]bool{} // plugins whose Check did not return: the next calls would take as long
	return func(o workflow.Object, bad workflow.Report) {
		a, ok := o.(*workflow.Action)
		if !ok || reg == nil || carried[o] || blocked[a.Plugin] {
			return
		}
		plugin, _ := reg.Plugin(a.Plugin)
		checker, ok := plugin.(plugins.Checker)
		if !ok || plugins.Blocks(reflect.TypeOf(plugin.Request())) {
			return
		}
		if optional, ok := plugin.(interface{ HasCheck() bool }); ok && !optional.HasCheck() {
			return // nor is its request decoded
		}
		req, _, err := values.Fresh(a.Req, plugin.Request())
		if err != nil {
			return // another rule reports it
		}
		found, stuck := refusals(checker, req)
		blocked[a.Plugin] = stuck
		for _, f := range found {
			if paths == nil {
				paths = maps.Collect(workflow.Paths(plan))
			}
			bad(f.Field, fmt.Sprintf("plugin %q refuses action %s: %s", a.Plugin, paths[o], f.Problem), f.Err)
		}
	}
}

// refusals returns what a plugin finds wrong with a request, by the fields of the action, and whether its Check is stuck.
func refusals(c plugins.Checker, req any) (found []workflow.FieldError, stuck bool) {
	err := plugins.GuardCheck(c, req)
	if err == nil {
		return nil, false
	}
	if p, ok := err.(*plugins.Panic); ok {
		problem := p.Error()
		if !p.Blocked() {
			problem = "Check: " + problem
		}
		return []workflow.FieldError{{Field: "Req", Problem: problem}}, p.Blocked()
	}
	// The methods of the error may panic, such as those of a nil pointer.
	if unreadable := plugins.Guard(func() error { found = fieldErrors(err, 0); return nil }); unreadable != nil {
		found = []workflow.FieldError{{Field: "Req", Problem: "the error of Check can't be read: " + unreadable.Error()}}
	}
	return found, false
}

// mostJoined is how deeply errors may be joined in each other. An error may even join itself.
const mostJoined = 100

// fieldErrors returns the errors that are joined in one, each with the field of the action.
func fieldErrors(err error, depth int) (found []workflow.FieldError) {
	switch e := err.(type) {
	case *workflow.FieldError:
		field := "Req"
		if e.Field != "" && e.Field[0] != '[' {
			field += "."
		}
		return []workflow.FieldError{{Field: field + e.Field, Problem: e.Problem, Err: err}}
	case interface{ Unwrap() []error }:
		if parts := e.Unwrap(); len(parts) > 0 && depth < mostJoined && err.Error() == errors.Join(parts...).Error() {
			for _, part := range parts {
				found = append(found, fieldErrors(part, depth+1)...)
			}
			return found
		}
	}
	return []workflow.FieldError{{Field: "Req", Problem: err.Error(), Err: err}}
}

// oneLine returns a rule whose problems are one line each, of a thousand characters of what others say at most.
func oneLine(rule workflow.Rule) workflow.Rule {
	return func(o workflow.Object, bad workflow.Report) {
		rule(o, func(field, problem string, why ...error) {
			bad(field, fmt.Sprintf("%.1000s", strings.Join(strings.FieldsFunc(problem, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")), why...)
		})
	}
}
