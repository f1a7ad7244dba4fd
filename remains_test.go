package azblob

import (
	"fmt"
	"slices"
	"testing"
)

var (
	sights = []sight{absent, unreadable, notStarted, running, final}
	yes    = []bool{true}
	no     = []bool{false}
)

// verdictRow is a row of the table of decisions. Nil stands for anything.
type verdictRow struct {
	entry, object                                                           []sight
	marker, deleteMarker, marked, young, youngDelete, thorough, parts, both []bool // both: entry and object are there
	want                                                                    finding
}

func (r verdictRow) matches(s signs) bool {
	type cell struct {
		want []bool
		is   bool
	}
	for _, c := range []cell{
		{r.marker, s.marker},
		{r.deleteMarker, s.deleteMarker},
		{r.marked, s.marked},
		{r.young, s.young},
		{r.youngDelete, s.youngDelete},
		{r.thorough, s.thorough},
		{r.parts, s.parts},
		{r.both, s.entry != absent && s.object != absent},
	} {
		if c.want != nil && !slices.Contains(c.want, c.is) {
			return false
		}
	}
	return (r.entry == nil || slices.Contains(r.entry, s.entry)) && (r.object == nil || slices.Contains(r.object, s.object))
}

// table is docs/protocol.md's, row by row: the first that matches counts.
var table = []verdictRow{
	{both: no, young: yes, want: tooYoung},
	{entry: []sight{absent, notStarted}, object: []sight{absent}, want: remains},
	{entry: []sight{running, final}, object: []sight{absent}, deleteMarker: yes, want: remains},
	{entry: []sight{running, final}, object: []sight{absent}, want: lostObject},
	{entry: []sight{unreadable}, object: []sight{absent}, want: unreadableState},
	{entry: []sight{absent}, object: []sight{final}, thorough: yes, deleteMarker: no, want: restorableEntry},
	{entry: []sight{absent}, object: []sight{notStarted, running}, thorough: yes, deleteMarker: no, marker: yes, want: restorableEntry},
	{entry: []sight{absent}, object: []sight{notStarted, running}, thorough: yes, deleteMarker: no, marked: no, parts: yes, want: restorableEntry},
	{entry: []sight{absent}, want: lostEntry},

	{deleteMarker: yes, youngDelete: yes, want: tooYoung},
	{deleteMarker: yes, want: leftDelete},
	{entry: []sight{unreadable}, want: unreadableState},
	{object: []sight{unreadable}, want: unreadableState},
	{entry: []sight{final}, object: []sight{final}, marker: yes, want: leftMarker},
	{entry: []sight{final}, object: []sight{final}, thorough: no, want: settledPlan},
	{entry: []sight{final}, object: []sight{final}, want: unverified},
	{entry: []sight{final}, want: unsettledPlan},
	{object: []sight{final}, want: setBack},
	{thorough: yes, marked: yes, marker: no, want: lostMarker},
	{entry: []sight{notStarted}, want: unverified},
	{thorough: yes, want: unverified},
	{want: openPlan},
}

// everySign yields each combination.
func everySign(yield func(signs) bool) {
	for _, entry := range sights {
		for _, object := range sights {
			for bits := range 1 << 7 {
				bit := func(n int) bool { return bits>>n&1 == 1 }
				if !yield(signs{entry, object, bit(0), bit(1), bit(2), bit(3), bit(4), bit(5), bit(6)}) {
					return
				}
			}
		}
	}
}

// TestDiagnose holds every combination of what can be seen of a plan against the table, and the table against what must never
// be: nothing is removed that may be a whole plan, or a writer's at work.
func TestDiagnose(t *testing.T) {
	used := make([]bool, len(table))
	n := 0
	for s := range everySign {
		n++
		got := diagnose(s)
		i := slices.IndexFunc(table, func(r verdictRow) bool { return r.matches(s) })
		used[i] = true
		if got != table[i].want {
			t.Errorf("%+v: found %d, want %d, row %d", s, got, table[i].want, i)
		}
		whole := s.entry != absent && s.object != absent
		crashed := s.entry == absent || s.entry == notStarted || s.deleteMarker
		switch {
		case got == remains && (s.object != absent || s.young || !crashed || s.entry == unreadable):
			t.Errorf("%+v is removed", s)
		case !whole && s.young && got != tooYoung:
			t.Errorf("%+v is not left alone: %d", s, got)
		case !s.thorough && slices.Contains([]finding{restorableEntry, lostMarker}, got):
			t.Errorf("%+v is restored though nobody asked for it", s)
		case whole && slices.Contains([]finding{remains, lostObject, lostEntry, restorableEntry}, got):
			t.Errorf("%+v is whole, and taken for half", s)
		}
	}
	if n != 5*5*128 {
		t.Errorf("%d combinations", n)
	}
	for i, u := range used {
		if !u {
			t.Errorf("no combination comes to row %d", i)
		}
	}
}

// TestFindingsSayWhatIsWrong wants words for each finding that is acted on or reported.
func TestFindingsSayWhatIsWrong(t *testing.T) {
	quiet := []finding{settledPlan, openPlan, tooYoung, unverified}
	seen := map[string]finding{}
	for f := settledPlan; f <= unverified; f++ {
		text := fmt.Sprint(condition{found: f})
		if (text == "") != slices.Contains(quiet, f) {
			t.Errorf("finding %d: %q", f, text)
		}
		if other, known := seen[text]; known && text != "" && other != lostEntry {
			t.Errorf("findings %d and %d are both %q", other, f, text)
		}
		seen[text] = f
	}
}
