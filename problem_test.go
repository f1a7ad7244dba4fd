package azblob

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

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
		{IncompletePlan, plan, keys.entry().String(), "Recovery removes it"},
		{Orphan, plan, keys.container + "/actions/a.json", "a thorough Recovery removes it"},
		{Missing, plan, keys.entry().String(), "restores it"},
		{Unreadable, plan, keys.object().String(), "from a backup"},
		{Disagreement, plan, keys.entry().String(), "from a backup"},
		{Unfinalized, plan, keys.object().String(), "Recovery finishes it"},
		{Unmarked, plan, keys.marker().String(), "restores the marker"},
		{LeftMarker, plan, keys.marker().String(), "Recovery removes it"},
		{LeftMarker, uuid.Nil, droppingOf(keys.container).String(), "Recovery removes it"},
		{Stray, uuid.Nil, keys.container + "/x", "delete it if nobody knows it"},
		{Unreadable, uuid.Nil, catalogueOf(keys.container).String(), "Catalogue with Verify"},
		{Disagreement, uuid.Nil, catalogueOf(keys.container).String(), "delete the blob, which is always safe"},
		{Unreadable, uuid.Nil, prefix("test").member(plan).String(), "the node is fenced"},
	} {
		if got := (Problem{Kind: test.kind, Plan: test.plan, Blob: test.blob}).Repair(); !strings.Contains(got, test.want) {
			t.Errorf("%s, %s: %q, want %q", test.kind, test.blob, got, test.want)
		}
	}
}
