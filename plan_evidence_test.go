package azblob

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

var (
	sights = []blobStatus{absent, foreign, unreadable, notStarted, running, final}
	yes    = []bool{true}
	no     = []bool{false}
)

// verdictRow is a row of the decision table. Nil matches everything.
type verdictRow struct {
	entry, object                                                                                    []blobStatus
	marker, deleteMarker, marked, young, youngDelete, thorough, parts, unmarkedParts, both, restored []bool // both: entry and object are there
	want                                                                                             finding
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
		{r.unmarkedParts, s.unmarkedParts},
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
	{entry: []blobStatus{foreign}, want: foreignPlan},
	{object: []blobStatus{foreign}, want: foreignPlan},
	{both: no, young: yes, want: tooRecent},
	{entry: []blobStatus{unreadable}, object: []blobStatus{absent}, want: unreadableState},
	{entry: []blobStatus{running, final}, object: []blobStatus{absent}, deleteMarker: no, marker: no, want: lostObject},
	{entry: []blobStatus{running, final}, object: []blobStatus{absent}, deleteMarker: no, restored: no, want: lostObject},
	{object: []blobStatus{absent}, unmarkedParts: yes, want: foreignPlan},
	{object: []blobStatus{absent}, want: remains},
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
	{thorough: yes, want: unverified},
	{want: openPlan},
}

// everySign yields every combination of signs.
func everySign(yield func(signs) bool) {
	for _, entry := range sights {
		for _, object := range sights {
			for bits := range 1 << 9 {
				bit := func(n int) bool { return bits>>n&1 == 1 }
				if !yield(signs{entry, object, bit(0), bit(1), bit(2), bit(3), bit(4), bit(5), bit(6), bit(7), bit(8)}) {
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
		case got == remains && (s.object != absent || s.recent || !crashed || s.entry == unreadable || s.entry == foreign || s.unmarkedParts):
			t.Errorf("%+v is removed", s)
		case !whole && s.recent && got != tooRecent && got != foreignPlan:
			t.Errorf("%+v is not left alone: %d", s, got)
		case !s.thorough && slices.Contains([]finding{restorableEntry, lostMarker}, got):
			t.Errorf("%+v is restored though nobody asked for it", s)
		case whole && slices.Contains([]finding{remains, lostObject, lostEntry, restorableEntry}, got):
			t.Errorf("%+v is whole, and taken for half", s)
		}
	}
	if n != 6*6*512 {
		t.Errorf("%d combinations", n)
	}
	quiet := []finding{finalPlan, openPlan, tooRecent, unverified} // which lead to no action and no report
	for i, u := range used {
		if !u {
			t.Errorf("no combination comes to row %d", i)
		}
		if f := table[i].want; (diagnosis{finding: f}.String() == "") != slices.Contains(quiet, f) {
			t.Errorf("finding %d: %q", f, diagnosis{finding: f})
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

// partsCase is what findParts decides by.
type partsCase struct {
	recentObject  bool
	lost, changed bool // the sequence is absent; the block has another version
	entry         workflow.Status
	extra         string // the age of a sub-object that the object does not name, or ""
}

// everyPartsCase yields each combination.
func everyPartsCase(yield func(partsCase) bool) {
	for bits := range 1 << 3 {
		bit := func(n int) bool { return bits>>n&1 == 1 }
		for _, entry := range []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed} {
			for _, extra := range []string{"", "old", "recent"} {
				if !yield(partsCase{bit(0), bit(1), bit(2), entry, extra}) {
					return
				}
			}
		}
	}
}

// TestFindParts compares the sub-objects that an object names with a listing.
func TestFindParts(t *testing.T) {
	plan := &workflow.Plan{
		Name: "p", Descr: "d",
		Blocks: []*workflow.Block{{Name: "b", Descr: "d", Sequences: []*workflow.Sequence{{Name: "s", Descr: "d"}}}},
	}
	driver.Complete(plan)
	keys := prefix("prod").plan(plan.ID)
	parts := workflow.Parts(plan)
	for _, o := range parts {
		o.Header().State.ETag = driver.Version("known", o)
	}
	seen := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	item := func(name, etag string, isRecent bool) blob.Item {
		i := blob.Item{Name: name, Properties: blob.Properties{ETag: etag, LastModified: seen, Metadata: map[string]string{metaSchema: "1"}}}
		if !isRecent {
			i.LastModified = seen.Add(-time.Hour)
		}
		return i
	}
	n := 0
	for c := range everyPartsCase {
		n++
		state, err := stateMetadata(workflow.State{Status: c.entry})
		must(t, err)
		entry := item(keys.entry().Name, "", false)
		entry.Metadata = map[string]string{metaState: state}
		object := item(keys.object().Name, "", c.recentObject)
		d := diagnosis{grace: time.Minute, planBlobs: planBlobs{keys: keys, seen: seen, entry: &entry, object: &object}}

		block := item(keys.part(parts[0]).Name, "known", false)
		if c.changed {
			block.ETag = "new"
		}
		listed := []blob.Item{block}
		if !c.lost {
			listed = append(listed, item(keys.part(parts[1]).Name, "known", false))
		}
		if c.extra != "" {
			listed = append(listed, item(keys.partsPrefix(kinds[0])+"unnamed.json", "", c.extra == "recent"))
		}

		d.parts = listed
		f := findParts(d, plan)
		var lost []workflow.Object
		if c.lost {
			lost = parts[1:]
		}
		if !slices.Equal(f.lost, lost) {
			t.Errorf("%+v: %d are lost", c, len(f.lost))
		}
		if want := c.extra == "old"; (len(f.extra) == 1) != want || len(f.extra) > 1 {
			t.Errorf("%+v: %d are extra", c, len(f.extra))
		}
		if want := c.changed && c.entry == workflow.NotStarted && !c.recentObject; f.stale != want {
			t.Errorf("%+v: stale is %t", c, f.stale)
		}
		if f.none() != (len(f.lost)+len(f.extra) == 0 && !f.stale) {
			t.Errorf("%+v: none is %t", c, f.none())
		}
	}
	if n != 8*3*3 {
		t.Errorf("%d combinations", n)
	}
}

// TestProblemRepair looks for what repairs problems of each kind: of plans, of catalogues and of the records of a fleet.
func TestProblemRepair(t *testing.T) {
	plan := workflow.NewV7()
	keys := prefix("test").plan(plan)
	for _, test := range []struct {
		kind ProblemKind
		plan uuid.UUID
		blob string
		want string
	}{
		{ProblemIncompletePlan, plan, keys.entry().String(), "Recovery removes it"},
		{ProblemOrphan, plan, keys.container + "/actions/a.json", "a thorough Repair removes it"},
		{ProblemMissing, plan, keys.entry().String(), "restores it"},
		{ProblemUnreadable, plan, keys.object().String(), "from a backup"},
		{ProblemDisagreement, plan, keys.entry().String(), "from a backup"},
		{ProblemUnfinalized, plan, keys.object().String(), "Recovery finishes it"},
		{ProblemUnmarked, plan, keys.marker().String(), "restores the marker"},
		{ProblemLeftMarker, plan, keys.marker().String(), "Recovery removes it"},
		{ProblemLeftMarker, uuid.Nil, droppingOf(keys.container).String(), "Recovery removes it"},
		{ProblemStray, uuid.Nil, keys.container + "/x", "delete it if nobody knows it"},
		{ProblemUnreadable, uuid.Nil, catalogueOf(keys.container).String(), "Catalogue with Verify"},
		{ProblemDisagreement, uuid.Nil, catalogueOf(keys.container).String(), "delete the blob, which is always safe"},
		{ProblemUnreadable, uuid.Nil, prefix("test").member(plan).String(), "the node is fenced"},
	} {
		if got := (Problem{Kind: test.kind, Plan: test.plan, Blob: test.blob}).Repair(); !strings.Contains(got, test.want) {
			t.Errorf("%s, %s: %q, want %q", test.kind, test.blob, got, test.want)
		}
	}
}
