package azblob

import (
	"slices"
	"testing"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// partsCase is what findParts decides by.
type partsCase struct {
	thorough, recentObject bool
	lost, changed          bool // the sequence is absent; the block has another version
	entry                  workflow.Status
	extra                  string // the age of a sub-object that the object does not name, or ""
}

// everyPartsCase yields each combination.
func everyPartsCase(yield func(partsCase) bool) {
	for bits := range 1 << 4 {
		bit := func(n int) bool { return bits>>n&1 == 1 }
		for _, entry := range []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed} {
			for _, extra := range []string{"", "old", "recent"} {
				if !yield(partsCase{bit(0), bit(1), bit(2), bit(3), entry, extra}) {
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
		i := blob.Item{Name: name, Properties: blob.Properties{ETag: etag, LastModified: seen}}
		if !isRecent {
			i.LastModified = seen.Add(-time.Hour)
		}
		return i
	}
	n := 0
	for c := range everyPartsCase {
		n++
		state, err := stateMetadata(workflow.State{Status: c.entry})
		if err != nil {
			t.Fatal(err)
		}
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

		f := findParts(d, plan, listed, c.thorough)
		var lost []workflow.Object
		if c.lost {
			lost = parts[1:]
		}
		if !slices.Equal(f.lost, lost) {
			t.Errorf("%+v: %d are lost", c, len(f.lost))
		}
		if want := c.thorough && c.extra == "old"; (len(f.extra) == 1) != want || len(f.extra) > 1 {
			t.Errorf("%+v: %d are extra", c, len(f.extra))
		}
		if want := c.thorough && c.changed && c.entry == workflow.NotStarted && !c.recentObject; f.stale != want {
			t.Errorf("%+v: stale is %t", c, f.stale)
		}
		if f.none() != (len(f.lost)+len(f.extra) == 0 && !f.stale) {
			t.Errorf("%+v: none is %t", c, f.none())
		}
	}
	if n != 16*3*3 {
		t.Errorf("%d combinations", n)
	}
}
