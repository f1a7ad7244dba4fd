package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/planvault/azblob/workflow"
)

// findAction returns the action of a plan that an argument names: by its ID, its key, its name, or its path as show prints it.
func findAction(p *workflow.Plan, text string) (*workflow.Action, error) {
	found := map[string]*workflow.Action{} // by path and ID
	for o, path := range workflow.Paths(p) {
		a, ok := o.(*workflow.Action)
		switch {
		case !ok:
		case a.ID.String() == text:
			return a, nil
		case text == "": // is the name of many, and what a variable that was not set holds
		case text == a.Name, text == path, a.Key != uuid.Nil && text == a.Key.String():
			found[printable(path, 60)+"  "+a.ID.String()] = a
		}
	}
	switch names := slices.Sorted(maps.Keys(found)); len(names) {
	case 0:
		return nil, &exitError{exitFound, fmt.Errorf("plan %s has no action %q: give its ID, key, name, or path as planvault show prints it", p.ID, printable(text, 60))}
	case 1:
		return found[names[0]], nil
	default:
		errs := []error{fmt.Errorf("%s of plan %s are called %q: give the ID", plural(len(names), "action"), p.ID, printable(text, 60))}
		for _, name := range names[:min(len(names), mostCandidates)] {
			errs = append(errs, errors.New(name))
		}
		return nil, &exitError{exitUsage, errors.Join(errs...)}
	}
}

// repairs are the flags that change single actions of a fork.
type repairs struct {
	skips, requests []repair
}

// repair is an action as it was named, and the JSON that was given for it, or where that is.
type repair struct {
	action, from string
	given        bool
}

func (r *repairs) addFlags(flags *pflag.FlagSet) {
	flags.Func("skip", "count this `ACTION` as done; may be given several times", func(text string) error {
		r.skips = append(r.skips, repair{action: text})
		return nil
	})
	flags.Func("result", "the `JSON` that the skipped action before it has as its result; @FILE reads a file, - stdin", func(text string) error {
		if len(r.skips) == 0 || r.skips[len(r.skips)-1].given {
			return errors.New("it follows the --skip that it belongs to, once")
		}
		last := &r.skips[len(r.skips)-1]
		last.from, last.given = text, true
		return nil
	})
	flags.Func("request", "run an action with another request, `ACTION=JSON`; =@FILE reads a file, =- stdin", func(text string) error {
		action, from, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("give ACTION=JSON; an action whose name has a = goes by its ID")
		}
		r.requests = append(r.requests, repair{action, from, true})
		return nil
	})
}

// any reports whether something is to be repaired.
func (r *repairs) any() bool { return len(r.skips)+len(r.requests) > 0 }

// in adds the repairs of a plan to the options of its fork.
func (r *repairs) in(a *app, p *workflow.Plan, opts *workflow.ForkOptions) error {
	var err error
	if opts.Skip, err = a.repairsOf(p, "--skip", r.skips, responsesLike); err != nil {
		return err
	}
	opts.Requests, err = a.repairsOf(p, "--request", r.requests, requestsLike)
	return err
}

// repairsOf returns what was given for actions of a plan, by ID.
func (a *app) repairsOf(p *workflow.Plan, flag string, list []repair, like func(*workflow.Plan, *workflow.Action) []any) (map[uuid.UUID]any, error) {
	all := map[uuid.UUID]any{}
	for _, r := range list {
		action, err := findAction(p, r.action)
		if err != nil {
			return nil, err
		}
		if _, twice := all[action.ID]; twice {
			return nil, usageError("%s names the action %q twice", flag, printable(r.action, 60))
		}
		all[action.ID] = nil
		if !r.given {
			continue
		}
		value, err := a.readValue(r.from)
		if err == nil {
			err = a.checkShape(value, like(p, action), r.action)
		}
		if err != nil {
			return nil, usageError("%s %s: %w", flag, printable(r.action, 60), err)
		}
		all[action.ID] = value
	}
	return all, nil
}

// mostValue is how many bytes the JSON of a request or a result may have.
const mostValue = 4 << 20

// readValue returns the JSON that a flag has or names.
func (a *app) readValue(from string) (json.RawMessage, error) {
	text := []byte(from)
	var err error
	if name, ok := strings.CutPrefix(from, "@"); ok {
		text, err = readFile(name)
	} else if from == "-" {
		text, err = io.ReadAll(io.LimitReader(a.stdin, mostValue+1))
	}
	switch {
	case err != nil:
		return nil, err
	case len(text) == 0:
		return nil, errors.New("it is empty, or read already: stdin is for one flag")
	case len(text) > mostValue:
		return nil, fmt.Errorf("it has more than %s bytes", count(mostValue))
	}
	if text, err = workflow.MarshalValue(json.RawMessage(text)); err != nil {
		return nil, fmt.Errorf("it is not JSON that a vault can keep; a text needs quotes, '\"text\"': %w", err)
	}
	return text, nil
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, mostValue+1))
}

// requestsLike returns the requests of the actions with the same plugin, that of the action first.
func requestsLike(p *workflow.Plan, of *workflow.Action) []any {
	all := []any{of.Req}
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok && a != of && a.Plugin == of.Plugin {
			all = append(all, a.Req)
		}
	}
	return all
}

// responsesLike returns the responses of the actions with the same plugin.
func responsesLike(p *workflow.Plan, of *workflow.Action) (all []any) {
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok && a.Plugin == of.Plugin {
			for _, t := range a.Attempts {
				all = append(all, t.Resp)
			}
		}
	}
	return all
}

// checkShape compares a value with others of the same type, which the tool does not know: it refuses a value that is like
// none of them, and says which members none of them has.
func (a *app) checkShape(value json.RawMessage, others []any, action string) error {
	var is any
	if err := json.Unmarshal(value, &is); err != nil {
		return err
	}
	problem, news := "", []string(nil)
	for _, other := range slices.DeleteFunc(slices.Clone(others), func(v any) bool { return v == nil }) {
		var was any
		text, err := workflow.MarshalValue(other)
		if err != nil || json.Unmarshal(text, &was) != nil {
			continue
		}
		s := shape{}
		s.compare("", was, is)
		switch {
		case s.problem == "" && len(s.news) == 0:
			return nil
		case s.problem == "" && (news == nil || len(s.news) < len(news)):
			news = s.news
		case problem == "":
			problem = s.problem
		}
	}
	if news != nil {
		fmt.Fprintf(a.stderr, "%s: no value of before has the members %s\n", printable(action, 60), printable(strings.Join(news, ", "), 120))
		return nil
	}
	if problem != "" {
		return errors.New(problem)
	}
	return nil
}

// shape is what makes a value unlike another one.
type shape struct {
	problem string   // the first member of another kind
	news    []string // the members that the other one lacks
}

// compare compares two values. null is like anything, and so is an empty list.
func (s *shape) compare(at string, was, is any) {
	if was == nil || is == nil || s.problem != "" {
		return
	}
	if kindOf(was) != kindOf(is) {
		s.problem = fmt.Sprintf("it has %s at %s, where values of before have %s", kindOf(is), cmp.Or(at, "the top"), kindOf(was))
		return
	}
	switch is := is.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(is)) {
			if old, ok := was.(map[string]any)[name]; ok {
				s.compare(at+"."+printable(name, 40), old, is[name])
			} else {
				s.news = append(s.news, name)
			}
		}
	case []any:
		if old := was.([]any); len(old) > 0 {
			for _, item := range is {
				s.compare(at+"[]", old[0], item)
			}
		}
	}
}

// kindOf returns the kind of a JSON value.
func kindOf(v any) string {
	switch v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "a list"
	case string:
		return "a text"
	case bool:
		return "a truth value"
	}
	return "a number"
}
