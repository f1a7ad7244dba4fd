package azblob

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
)

// CheckReport is what [Admin.Check] found.
type CheckReport struct {
	// Days, Plans and Blobs are the numbers of containers, whole plans and blobs that were looked at. Bytes
	// is how much was read.
	Days, Plans, Blobs int
	Bytes              int64
	// InProgress is the number of plans with unfinished work that is recent, so that its writer may still be
	// running.
	InProgress int
	// Foreign is the number of plans, and of remains of plans, that another program wrote. They are no problems, and
	// Plans does not count them.
	Foreign int
	// Wait is how long it takes until all of these plans can be judged.
	Wait time.Duration
	// Problems are the broken invariants. A sound store has none.
	Problems []Problem
}

// checking is a Check that is running.
type checking struct {
	*store
	report *CheckReport
}

// ProblemKind is a code for a broken invariant. docs/protocol.md explains them.
type ProblemKind string

// String returns the kind in words, such as "left marker".
func (k ProblemKind) String() string {
	if k == ProblemForeign {
		return "written by another program"
	}
	return strings.ReplaceAll(string(k), "-", " ")
}

// The kinds of problems, and what repairs each. Thorough is [Admin.Repair] with that option.
const (
	// ProblemIncompletePlan: remains of a Create or Delete that did not finish. Recovery removes them if a marker
	// leads to them, and so does the next Create of the ID. Thorough removes them in any case.
	ProblemIncompletePlan ProblemKind = "incomplete-plan"
	// ProblemOrphan: a sub-object that belongs to no plan. Thorough removes it.
	ProblemOrphan ProblemKind = "orphan"
	// ProblemMissing: an entry, object or sub-object that a plan has lost. Thorough restores all but objects, which
	// only a backup can restore.
	ProblemMissing ProblemKind = "missing"
	// ProblemUnreadable: a blob that can't be read or understood. Update the program if the schema is newer. Otherwise
	// restore the blob from a backup, or delete the plan. Delete the record of a member or a stop request.
	ProblemUnreadable ProblemKind = "unreadable"
	// ProblemDisagreement: two blobs that contradict each other. Restore one of them from a backup, or delete the
	// plan.
	ProblemDisagreement ProblemKind = "disagreement"
	// ProblemUnfinalized: a plan that is final by its entry but not by its object. Recovery finishes it if a marker
	// leads to it. Thorough does so in any case.
	ProblemUnfinalized ProblemKind = "unfinalized"
	// ProblemUnmarked: an open plan without a marker, which neither Recovery nor a search for open plans finds.
	// Thorough restores the marker.
	ProblemUnmarked ProblemKind = "unmarked"
	// ProblemLeftMarker: a marker that is no longer needed. Recovery removes it.
	ProblemLeftMarker ProblemKind = "left-marker"
	// ProblemStray: a blob that no vault writes there. The vault leaves it alone.
	ProblemStray ProblemKind = "stray"
	// ProblemForeign: a blob of a plan that another program wrote, among blobs of a vault. The vault leaves it alone.
	ProblemForeign ProblemKind = "foreign"
)

// repairs say what repairs the problems of each kind.
var repairs = map[ProblemKind]string{
	ProblemIncompletePlan: "Recovery removes it, thoroughly if no marker leads to it",
	ProblemOrphan:         "a thorough Repair removes it",
	ProblemMissing:        "a thorough Repair restores it, unless it is an object: restore that from a backup",
	ProblemUnreadable:     "update the program if it says so; otherwise restore it from a backup, or delete the plan",
	ProblemDisagreement:   "restore one of the two from a backup, or delete the plan",
	ProblemUnfinalized:    "Recovery finishes it, thoroughly if no marker leads to it",
	ProblemUnmarked:       "a thorough Repair restores the marker",
	ProblemLeftMarker:     "Recovery removes it",
	ProblemStray:          "nothing needs it, and no vault removes it: delete it if nobody knows it",
	ProblemForeign:        "no vault changes it: find out which program writes here, and give each a prefix of its own",
}

// Problem is one broken invariant.
type Problem struct {
	Kind ProblemKind
	// Plan is uuid.Nil for a stray and for the record of a member.
	Plan uuid.UUID
	// Blob is the blob that shows the problem, as container/name.
	Blob string
	// Detail says what is wrong.
	Detail string
	// Wait is how long Recovery still leaves the plan or the blob alone, because it is recent. It is 0 for a problem
	// that Recovery can repair now, and for one that it can't repair at all.
	Wait time.Duration
}

// Repair says in a few words what repairs the problem.
func (p Problem) Repair() string {
	_, name, _ := strings.Cut(p.Blob, "/")
	record, isRecord := parseRecordName(name)
	switch {
	case name == catalogueName && p.Kind == ProblemUnreadable:
		return "Catalogue with Verify builds it anew"
	case name == catalogueName:
		return "delete the blob, which is always safe; the next Catalogue builds it anew"
	case isRecord && record.role == roleNote:
		return "delete the blob, and store the note again"
	case isRecord && record.role == roleKey:
		return "nobody gets a turn for the key until planvault key repair has written it anew"
	case isRecord:
		return "delete the blob; if it is that of a live node, the node is fenced and joins anew"
	}
	return repairs[p.Kind]
}

// String returns the problem on one line.
func (p Problem) String() string {
	if p.Plan == uuid.Nil {
		return fmt.Sprintf("%s: %s: %s", p.Kind, p.Blob, p.Detail)
	}
	return fmt.Sprintf("%s: plan %s (%s): %s", p.Kind, p.Plan, p.Blob, p.Detail)
}
