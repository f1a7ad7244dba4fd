package protocol

import (
	"bytes"
	"fmt"
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

// describe describes a situation: who takes part, and the fields that are set.
func describe[R fmt.Stringer](roles []R, plan fmt.Stringer, situation any) string {
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

func helps(m move) bool { return m.helps }

// explorable is a situation of one of the models.
type explorable interface {
	fmt.Stringer
	explore() report
	remove(rule, breach)
}

// want fails the test unless the search found this broken promise; 0 means none.
func (r report) want(t *testing.T, promise breach) {
	t.Helper()
	t.Logf("%d states, %d steps: %s", r.states, r.steps, r.violation)
	if r.violation != promise.String() && (promise != anyBreach || r.violation == "") {
		t.Errorf("found %q, want %q\n  %s", r.violation, promise, strings.Join(r.path, "\n  "))
	}
}

// holds explores each situation to its end. Every promise must hold.
func holds[S explorable](t *testing.T, situations []S) {
	states, steps, more := 0, 0, efforttest.More(t)
	for _, s := range situations {
		t.Run(s.String(), func(t *testing.T) {
			if !more() {
				t.Skip("there is no time left")
			}
			r := s.explore()
			r.want(t, 0)
			states, steps = states+r.states, steps+r.steps
		})
	}
	t.Logf("%d situations, %d states, %d steps", len(situations), states, steps)
}

// breach is a broken promise.
type breach uint8

const (
	_ breach = iota
	anyBreach

	// Of a closed day.
	dayUnequal
	dayHeldDeleted
	dayHeldDropped
	dayOpenDropped
	dayUnmarked
	dayNoPlan
	dayDebris
	dayNeverBuilt
	dayNotDropped

	// Of a fleet.
	formerOwner
	lostUpdate
	wrongResult
	actionRerun
	finalChanged
	openParts
	earlyObject
	twoOwners
	comesBack
	orphan
	robbed
	unfound
	removedAlive

	// Of a switch to a copy.
	worksInBoth
	oldStart
	movesBack
	neverOpens
	overwritten
	staysBehind
	// Of a policy.
	policyEarly
	policyTwice
	policyFormer
	policyBack
	policyNever
	// Of what an engine stores.
	runUnseen
	runWaitsAgain
	runUncleaned
	runBothOutcomes
	runTooLate
	runForgets
	runEndless
	runTwiceFenced
	runBlamed

	breaches
)

func (b breach) String() string {
	return [breaches]string{
		dayUnequal:      "a catalogue differs from a listing",
		dayHeldDeleted:  "a plan of a held day is deleted",
		dayHeldDropped:  "a held day is dropped",
		dayOpenDropped:  "a day with an open plan is dropped",
		dayUnmarked:     "an open plan has no marker",
		dayNoPlan:       "Create returns nil, but there is no plan",
		dayDebris:       "after Recovery something is left that no plan has",
		dayNeverBuilt:   "after Recovery the catalogue can't be built",
		dayNotDropped:   "Expire says that it dropped a day that is there",
		formerOwner:     "a write of a former owner takes effect after the fence",
		lostUpdate:      "a write replaces a version that its writer has not seen",
		wrongResult:     "the final object holds a result that a former owner stored after the fence",
		actionRerun:     "a later owner runs an action that an earlier one had completed",
		finalChanged:    "a plan changes after its final entry",
		openParts:       "an entry is final beside open sub-objects",
		earlyObject:     "an object is final beside an open entry",
		twoOwners:       "two nodes own the plan in one epoch",
		comesBack:       "a deleted plan exists",
		orphan:          "a node can't bring the plan to its end",
		robbed:          "a node takes the plan from an owner that works on it",
		unfound:         "nobody works on the plan, and a node that can does not find it",
		removedAlive:    "a record is removed that must stay",
		worksInBoth:     "a node begins an action in the source after one works on the copy",
		oldStart:        "the copy begins from an older state than the source's",
		movesBack:       "a follower moves the copy back, or writes to an opened one",
		neverOpens:      "the switch does not lead to an open copy",
		overwritten:     "a mirror changes or removes what somebody else has stored",
		staysBehind:     "a mirror can't bring the copy up to date",
		policyEarly:     "a day is removed less than a day after its policy was set",
		policyTwice:     "two processes do a step at once",
		policyFormer:    "two days are removed by a policy that was changed before",
		policyBack:      "a policy comes back that was changed",
		policyNever:     "no step of a policy can begin any more",
		runUnseen:       "an action that is not idempotent runs, and is stored as NotStarted",
		runWaitsAgain:   "a death prolongs a delay",
		runUncleaned:    "deferred checks of what has begun never run",
		runBothOutcomes: "deferred actions of two outcomes begin",
		runTooLate:      "an owner begins an action after deferred actions have begun",
		runForgets:      "a plan ends with a container that is NotStarted above an action that is not",
		runEndless:      "an action ends more processes than Options.Crashes allows",
		runTwiceFenced:  "an engine begins more than one action after it has lost the plan",
		runBlamed:       "an action fails although no more owners crashed or froze in it than Options.Crashes allows",
	}[b]
}

// needs are situations, and the promise that is broken in each without one of the rules. Without a spare rule, nothing goes
// wrong; the comment on it says what it is good for.
type needs []need

type need struct {
	in      explorable
	promise breach // 0 if the rules are spare
	without rules
}

// removeRules removes the rules of a table one at a time. Only the promise in the table is judged, which shows that the
// model can find each promise broken, and not only the ones that break first. Spare rules are removed with
// PLANVAULT_LONG only.
func removeRules(t *testing.T, table needs) {
	for _, n := range table {
		for _, r := range n.without {
			t.Run(string(r), func(t *testing.T) {
				if n.promise == 0 && !efforttest.Long() {
					t.Skip("the rule is spare")
				}
				t.Parallel()
				same := reflect.New(reflect.TypeOf(n.in).Elem())
				same.Elem().Set(reflect.ValueOf(n.in).Elem())
				in := same.Interface().(explorable)
				in.remove(r, n.promise)
				in.explore().want(t, n.promise)
			})
		}
	}
}

// TestTables checks that each rule is in one table, and that some rule is needed for each promise.
func TestTables(t *testing.T) {
	known, promises := map[rule]bool{}, map[breach]bool{}
	for _, n := range slices.Concat(planNeeds, dayNeeds, fleetNeeds, watchNeeds, findNeeds, switchNeeds, copyNeeds, policyNeeds, runNeeds, excuseNeeds) {
		promises[n.promise] = true
		for _, r := range n.without {
			if known[r] {
				t.Errorf("%s: the rule is in two tables", r)
			}
			known[r] = true
		}
	}
	for b := anyBreach; b < breaches; b++ {
		if !promises[b] {
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
