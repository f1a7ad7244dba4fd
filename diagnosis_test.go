package azblob

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/planvault/azblob/internal/blob"
)

var (
	sights = []blobStatus{absent, unreadable, notStarted, running, final}
	yes    = []bool{true}
	no     = []bool{false}
)

// verdictRow is a row of the decision table. Nil matches everything.
type verdictRow struct {
	entry, object                                                                     []blobStatus
	marker, deleteMarker, marked, young, youngDelete, thorough, parts, both, restored []bool // both: entry and object are there
	want                                                                              finding
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
		{r.young, s.recent},
		{r.youngDelete, s.recentDelete},
		{r.thorough, s.thorough},
		{r.parts, s.parts},
		{r.both, s.entry != absent && s.object != absent},
		{r.restored, s.restored},
	} {
		if c.want != nil && !slices.Contains(c.want, c.is) {
			return false
		}
	}
	return (r.entry == nil || slices.Contains(r.entry, s.entry)) && (r.object == nil || slices.Contains(r.object, s.object))
}

// table is the table of docs/protocol.md. The first row that matches applies.
var table = []verdictRow{
	{both: no, young: yes, want: tooRecent},
	{entry: []blobStatus{absent, notStarted}, object: []blobStatus{absent}, want: remains},
	{entry: []blobStatus{running, final}, object: []blobStatus{absent}, deleteMarker: yes, want: remains},
	{entry: []blobStatus{running, final}, object: []blobStatus{absent}, marker: yes, restored: yes, want: remains},
	{entry: []blobStatus{running, final}, object: []blobStatus{absent}, want: lostObject},
	{entry: []blobStatus{unreadable}, object: []blobStatus{absent}, want: unreadableState},
	{entry: []blobStatus{absent}, object: []blobStatus{final}, thorough: yes, deleteMarker: no, want: restorableEntry},
	{entry: []blobStatus{absent}, object: []blobStatus{notStarted, running}, thorough: yes, deleteMarker: no, marker: yes, want: restorableEntry},
	{entry: []blobStatus{absent}, object: []blobStatus{notStarted, running}, thorough: yes, deleteMarker: no, marked: no, parts: yes, want: restorableEntry},
	{entry: []blobStatus{absent}, want: lostEntry},

	{deleteMarker: yes, youngDelete: yes, want: tooRecent},
	{deleteMarker: yes, want: leftDelete},
	{entry: []blobStatus{unreadable}, want: unreadableState},
	{object: []blobStatus{unreadable}, want: unreadableState},
	{entry: []blobStatus{final}, object: []blobStatus{final}, marker: yes, want: leftMarker},
	{entry: []blobStatus{final}, object: []blobStatus{final}, thorough: no, want: finalPlan},
	{entry: []blobStatus{final}, object: []blobStatus{final}, want: unverified},
	{entry: []blobStatus{final}, want: unfinalized},
	{object: []blobStatus{final}, want: setBack},
	{thorough: yes, marked: yes, marker: no, want: lostMarker},
	{entry: []blobStatus{notStarted}, want: unverified},
	{thorough: yes, want: unverified},
	{want: openPlan},
}

// everySign yields every combination of signs.
func everySign(yield func(signs) bool) {
	for _, entry := range sights {
		for _, object := range sights {
			for bits := range 1 << 8 {
				bit := func(n int) bool { return bits>>n&1 == 1 }
				if !yield(signs{entry, object, bit(0), bit(1), bit(2), bit(3), bit(4), bit(5), bit(6), bit(7)}) {
					return
				}
			}
		}
	}
}

// TestDiagnose compares the diagnosis of every combination of signs with the table, and checks the table: it
// never removes a plan that may be whole or that a writer may be working on.
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
		crashed := s.entry == absent || s.entry == notStarted || s.deleteMarker || s.restored && s.marker
		switch {
		case got == remains && (s.object != absent || s.recent || !crashed || s.entry == unreadable):
			t.Errorf("%+v is removed", s)
		case !whole && s.recent && got != tooRecent:
			t.Errorf("%+v is not left alone: %d", s, got)
		case !s.thorough && slices.Contains([]finding{restorableEntry, lostMarker}, got):
			t.Errorf("%+v is restored though nobody asked for it", s)
		case whole && slices.Contains([]finding{remains, lostObject, lostEntry, restorableEntry}, got):
			t.Errorf("%+v is whole, and taken for half", s)
		}
	}
	if n != 5*5*256 {
		t.Errorf("%d combinations", n)
	}
	for i, u := range used {
		if !u {
			t.Errorf("no combination comes to row %d", i)
		}
	}
}

// TestEachRecentBlobCounts makes one blob of a plan recent at a time: whichever it is, its writer may still be at work.
func TestEachRecentBlobCounts(t *testing.T) {
	const grace = 10 * time.Minute
	seen := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	old, fresh := seen.Add(-time.Hour), seen.Add(-time.Minute)
	for i, name := range []string{"none", "marker", "delete marker", "entry", "object", "sub-object"} {
		at := func(blobOf int) *blob.Item {
			item := &blob.Item{Properties: blob.Properties{LastModified: old}}
			if blobOf == i {
				item.LastModified = fresh
			}
			return item
		}
		d := diagnosis{planBlobs: planBlobs{marker: at(1), deleteMarker: at(2), entry: at(3), object: at(4), parts: []blob.Item{*at(5)}, partsListed: true, seen: seen}, grace: grace}
		if s := d.signs(false); s.recent != (i > 0) || s.recentDelete != (i == 2) {
			t.Errorf("with a recent %s: recent %v, recentDelete %v", name, s.recent, s.recentDelete)
		}
	}
}

// TestFindingsSayWhatIsWrong checks that each finding that leads to an action or a report has a text.
func TestFindingsSayWhatIsWrong(t *testing.T) {
	quiet := []finding{finalPlan, openPlan, tooRecent, unverified}
	seen := map[string]finding{}
	for f := finalPlan; f <= unverified; f++ {
		text := fmt.Sprint(diagnosis{finding: f})
		if (text == "") != slices.Contains(quiet, f) {
			t.Errorf("finding %d: %q", f, text)
		}
		if other, known := seen[text]; known && text != "" && other != lostEntry {
			t.Errorf("findings %d and %d are both %q", other, f, text)
		}
		seen[text] = f
	}
}
