package protocol

import (
	"fmt"
	"strings"
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// ruler is a rule of one of the protocols. Its String describes what happens without the rule.
type ruler interface {
	~uint8
	fmt.Stringer
}

// set is a set of rules, one bit each.
type set[R ruler] [2]uint64

func setOf[R ruler](rs ...R) (s set[R]) {
	for _, r := range rs {
		s[r/64] |= 1 << (r % 64)
	}
	return s
}

func (s set[R]) has(r R) bool { return s[r/64]&(1<<(r%64)) != 0 }

// within reports whether other has all rules of s.
func (s set[R]) within(other set[R]) bool { return s[0]&^other[0] == 0 && s[1]&^other[1] == 0 }

// trait is something that a situation may have.
type trait struct {
	is   bool
	what string
}

// describe describes a situation: its traits and the rules below all that it lacks.
func describe[R ruler](first string, traits []trait, lacking set[R], all R) string {
	var b strings.Builder
	b.WriteString(first)
	for _, o := range traits {
		if o.is {
			b.WriteString(", " + o.what)
		}
	}
	for r := range all {
		if lacking.has(r) {
			fmt.Fprintf(&b, "; %s", r)
		}
	}
	return b.String()
}

// join returns the names of the calls of a situation.
func join[R fmt.Stringer](roles []R) string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = r.String()
	}
	return strings.Join(names, ", ")
}

// explorable is a situation of one of the models.
type explorable interface {
	fmt.Stringer
	explore() report
}

// want fails the test unless the search found this broken promise; "" means none.
func (r report) want(t *testing.T, promise string) {
	t.Helper()
	t.Logf("%d states, %d steps: %s", r.states, r.steps, r.violation)
	if r.violation != promise && (promise != someBreach || r.violation == "") {
		t.Errorf("found %q, want %q\n  %s", r.violation, promise, strings.Join(r.path, "\n  "))
	}
}

const someBreach = "any broken promise"

// holds explores each situation to its end. Every promise must hold.
func holds[S explorable](t *testing.T, situations []S) {
	states, steps := 0, 0
	for _, s := range situations {
		t.Run(s.String(), func(t *testing.T) {
			r := s.explore()
			r.want(t, "")
			states, steps = states+r.states, steps+r.steps
		})
	}
	t.Logf("%d situations, %d states, %d steps", len(situations), states, steps)
}

// need is a situation in which a promise is broken without a rule.
type need struct {
	explorable
	promise string
}

// removeRules removes the rules one at a time. needs has for each rule the situation that shows its need, and spare
// the situation in which nothing goes wrong without it. Spare rules are removed with PLANVAULT_LONG only.
func removeRules[R ruler](t *testing.T, all R, needs func(R) (n need, spare bool)) {
	for r := range all {
		n, spare := needs(r)
		if n.explorable == nil || spare && !efforttest.Long() {
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			t.Parallel()
			t.Log(n)
			n.explore().want(t, n.promise)
		})
	}
}

// eachIsNeeded fails the test unless each rule is in one of the two tables, and each promise has a rule.
func eachIsNeeded[R, B ruler, N, S any](t *testing.T, rules R, needs map[R]N, spare map[R]S, breaches B, breachOf func(N) B) {
	t.Helper()
	promises := map[B]bool{}
	for r := range rules {
		need, isNeeded := needs[r]
		if _, isSpare := spare[r]; isNeeded == isSpare {
			t.Errorf("%s: the rule must be either needed or spare", r)
		}
		if isNeeded {
			promises[breachOf(need)] = true
		}
	}
	for b := B(1); b < breaches; b++ {
		if !promises[b] {
			t.Errorf("no rule is needed for the promise that is broken if %s", b)
		}
	}
}
