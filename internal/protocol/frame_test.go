package protocol

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// rule is a rule of one of the protocols, and says what happens without it. A situation can lack rules, which shows
// that they are needed and that the model notices.
type rule string

// rules are those that a situation lacks.
type rules []rule

func (s rules) has(r rule) bool { return slices.Contains(s, r) }

// within reports whether other has all rules of s.
func (s rules) within(other rules) bool {
	return !slices.ContainsFunc(s, func(r rule) bool { return !other.has(r) })
}

// name says what a situation is.
func name(in explorable) string {
	if s, ok := in.(fmt.Stringer); ok {
		return s.String()
	}
	return describe[role](reflect.ValueOf(in).Elem().Interface(), noPlan)
}

// describe describes a situation: who takes part, and the fields that are set.
func describe[R fmt.Stringer](situation any, plan fmt.Stringer, roles ...R) string {
	var parts []string
	for _, r := range roles {
		parts = append(parts, r.String())
	}
	if len(roles) > 0 {
		parts = append(parts, plan.String())
	}
	v := reflect.ValueOf(situation)
	for i := range v.NumField() {
		switch f, name := v.Field(i), v.Type().Field(i).Name; {
		case f.IsZero(), name == "roles", name == "plan", name == "search":
		case f.Kind() == reflect.Bool:
			parts = append(parts, name)
		case name == "mutant":
			parts = append(parts, fmt.Sprint(f.Field(0)))
		default:
			parts = append(parts, fmt.Sprint(name, " ", f))
		}
	}
	return strings.Join(parts, ", ")
}

// mutant is what a situation lacks.
type mutant struct {
	lacking rules
	only    breach // the only promise that is judged; 0 means all
}

func (m *mutant) lacks(r rule) bool { return m.lacking.has(r) }

// remove takes a rule away and judges only one promise.
func (m *mutant) remove(r rule, only breach) { m.lacking, m.only = rules{r}, only }

// judges reports whether a promise is judged.
func (m *mutant) judges(b breach) bool { return m.only == 0 || m.only == b }

// breaks notes the first promise that a step breaks.
func (m *mutant) breaks(o *outcome, b breach, broken bool) {
	if broken && o.broken == 0 && m.judges(b) {
		o.broken = b
	}
}

// nowhere is the place of an actor that is not a node.
const nowhere = -1

// move is a step of a node.
type move struct {
	node  int // or nowhere
	part  int // the sub-object, or -1
	what  string
	helps bool // it leads to what is promised, and is taken sooner or later
}

func (m move) String() string {
	text := m.what
	if m.node >= 0 {
		text = fmt.Sprintf("node %d: %s", m.node+1, m.what)
	}
	if m.part >= 0 {
		text += fmt.Sprintf(" (sub-object %d)", m.part+1)
	}
	return text
}

// explorable is a situation of one of the models.
type explorable interface {
	explore(explorable) report // the situation itself
	remove(rule, breach)
}

// want fails the test unless the search found this broken promise; 0 means none.
func (r report) want(t *testing.T, promise breach) {
	t.Helper()
	t.Logf("%d states, %d steps: %s", r.states, r.steps, r.violation)
	if promise == anyBreach && r.violation == "" || promise != anyBreach && r.violation != promise.String() {
		t.Errorf("found %q, want %q\n  %s", r.violation, promise, strings.Join(r.path, "\n  "))
	}
}

// holds explores each situation to its end. Every promise must hold.
func holds[S explorable](t *testing.T, situations []S) {
	states, steps, more := 0, 0, efforttest.More(t)
	for _, s := range situations {
		t.Run(name(s), func(t *testing.T) {
			if !more() {
				t.Skip("there is no time left")
			}
			r := s.explore(s)
			r.want(t, 0)
			states, steps = states+r.states, steps+r.steps
		})
	}
	t.Logf("%d situations, %d states, %d steps", len(situations), states, steps)
}

// breach is a broken promise, by its number.
type breach uint8

// breaches are what is broken, in words. The first is none.
var breaches = []string{""}

// breaking adds a promise, and says what is the case if it is broken.
func breaking(what string) breach {
	breaches = append(breaches, what)
	return breach(len(breaches) - 1)
}

func (b breach) String() string { return breaches[b] }

// anyBreach stands for every promise.
var anyBreach = breaking("any promise is broken")

// needs are situations, and the promise that is broken in each without one of the rules. Without a spare rule, nothing goes
// wrong; the comment on it says what it is good for.
type needs []need

type need struct {
	in      explorable
	promise breach // 0 if the rules are spare
	without rules
}

// explore explores a copy of the situation that lacks a rule.
func (n need) explore(t *testing.T, r rule, want breach) {
	t.Helper()
	same := reflect.New(reflect.TypeOf(n.in).Elem())
	same.Elem().Set(reflect.ValueOf(n.in).Elem())
	in := same.Interface().(explorable)
	in.remove(r, n.promise)
	in.explore(in).want(t, want)
}

// models are the models, each with what says for each rule in which situation which promise is broken without it.
var models = map[string]needs{
	"a plan": planNeeds, "a closed day": dayNeeds, "a fleet": fleetNeeds, "who is dead": watchNeeds, "discovery": findNeeds,
	"turns": turnNeeds, "the order of turns": orderNeeds, "waiting for turns": waitNeeds, "an engine": runNeeds, "excuses": excuseNeeds, "signals": signalNeeds,
	"a copy": copyNeeds, "a switch": switchNeeds, "a policy": policyNeeds,
}

// TestRules removes the rules of each model one at a time. Only the promise in the table is judged, which shows that the
// model can find each promise broken, and not only the ones that break first. With PLANVAULT_LONG, spare rules are removed,
// too, and the promise must hold with all rules.
func TestRules(t *testing.T) {
	for model, table := range models {
		for _, n := range table {
			if s, plan := n.in.(*situation); plan && len(s.roles) > 2 && testing.Short() {
				continue
			}
			for _, r := range n.without {
				t.Run(model+"/"+string(r), func(t *testing.T) {
					if n.promise == 0 && !efforttest.Long() {
						t.Skip("the rule is spare")
					}
					t.Parallel()
					n.explore(t, r, n.promise)
					if efforttest.Long() {
						n.explore(t, "", 0)
					}
				})
			}
		}
	}
}

// TestTables checks that each rule is in one table, and that some rule is needed for each promise.
func TestTables(t *testing.T) {
	known, promises := map[rule]bool{}, map[breach]bool{}
	for _, n := range slices.Concat(slices.Collect(maps.Values(models))...) {
		promises[n.promise] = true
		for _, r := range n.without {
			if known[r] {
				t.Errorf("%s: the rule is in two tables", r)
			}
			known[r] = true
		}
	}
	for b := range breaches[1:] {
		if b := breach(b + 1); !promises[b] {
			t.Errorf("no rule is needed for the promise that is broken if %s", b)
		}
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	declared := 0
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		declared += bytes.Count(text, []byte(" rule = \""))
	}
	if declared != len(known) {
		t.Errorf("%d rules are declared, and %d are in a table", declared, len(known))
	}
}
