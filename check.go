package azblob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// CheckOptions say what to check.
type CheckOptions struct {
	// After and Before choose days (UTC) that have any time after and before these; zero for no bound.
	After, Before time.Time
}

// CheckReport says what Check found.
type CheckReport struct {
	// Days, Plans and Blobs are how many containers, whole plans and blobs were looked at, Bytes how much was read.
	Days, Plans, Blobs int
	Bytes              int64
	// InProgress is the number of plans with unfinished work that is recent enough for its writer to be active.
	InProgress int
	// Problems are the broken invariants; none in a sound store.
	Problems []Problem
}

// ProblemKind names an invariant that is broken. docs/protocol.md explains them.
type ProblemKind string

// The kinds of problems, and what removes each. Thorough is Recover with that option.
const (
	// IncompletePlan: what a create or delete left that was broken off. Recovery removes it where a marker leads to it, and the
	// next Create of the ID does; Thorough removes it in any case.
	IncompletePlan ProblemKind = "incomplete plan"
	// Orphan: a sub-object that belongs to no plan. Thorough removes it.
	Orphan ProblemKind = "orphan"
	// Missing: an entry, object or sub-object that a plan has lost. Thorough restores all but objects, which only a backup can.
	Missing ProblemKind = "missing"
	// Unreadable: a blob that can't be read or understood. It has to be restored from a backup, or the plan be deleted.
	Unreadable ProblemKind = "unreadable"
	// Disagreement: two places that should say the same do not. One of them has to be restored from a backup, or the plan be
	// deleted.
	Disagreement ProblemKind = "disagreement"
	// Unfinalized: a plan that is final by its entry but not by its object. Recovery settles it where a marker leads to it, and
	// Thorough does in any case.
	Unfinalized ProblemKind = "unfinalized"
	// Unmarked: a plan that is not final and has no marker, so that neither Recovery nor a search for open plans finds it.
	// Thorough restores the marker.
	Unmarked ProblemKind = "unmarked"
	// LeftMarker: a marker without need. Recovery removes it.
	LeftMarker ProblemKind = "left marker"
	// Stray: a blob that is none of the vault's. The vault leaves it alone.
	Stray ProblemKind = "stray"
)

// Problem is one broken invariant.
type Problem struct {
	Kind ProblemKind
	// Plan is uuid.Nil for a stray.
	Plan uuid.UUID
	// Blob is where it shows, as container/name.
	Blob string
	// Detail says what is wrong.
	Detail string
}

// String returns the problem on one line.
func (p Problem) String() string {
	if p.Plan == uuid.Nil {
		return fmt.Sprintf("%s: %s: %s", p.Kind, p.Blob, p.Detail)
	}
	return fmt.Sprintf("%s: plan %s (%s): %s", p.Kind, p.Plan, p.Blob, p.Detail)
}

// Check reads everything that is stored in the chosen days and reports each broken invariant. It changes nothing. It may run
// beside other calls: what looks broken is looked at a second time, and what is too young to be judged is only counted.
//
// A problem is not an error: the error says that the check could not be completed, and the report is of what was seen.
func (v *Vault) Check(ctx context.Context, o CheckOptions) (report CheckReport, err error) {
	err = v.call("Check", uuid.Nil, func() error {
		if !o.After.IsZero() && !o.Before.IsZero() && !o.After.Before(o.Before) {
			return driver.Invalid("CheckOptions.After", "%v is not before Before, %v", o.After.Format(time.RFC3339Nano), o.Before.Format(time.RFC3339Nano))
		}
		days, err := v.days(ctx)
		if err != nil {
			return err
		}
		for _, d := range days {
			if _, ok := stretch(d, storage.Filters{After: o.After, Before: o.Before}); !ok {
				continue
			}
			report.Days++
			if err := v.checkDay(ctx, d, &report); err != nil {
				return err
			}
		}
		return nil
	})
	return report, err
}

// verdict is what was found out about one plan.
type verdict struct {
	problems   []Problem
	inProgress bool
	bytes      int64
}

func (v *Vault) checkDay(ctx context.Context, d day, report *CheckReport) error {
	stray := func(name, detail string) {
		report.Blobs++
		report.Problems = append(report.Problems, Problem{Kind: Stray, Blob: blob.Ref{Container: d.container, Name: name}.String(), Detail: detail})
	}
	if err := v.strays(ctx, d, stray); err != nil {
		return err
	}
	var plans []planBlobs
	judge := func() error {
		verdicts := make([]verdict, len(plans))
		err := v.parallel(len(plans), func(i int) (err error) {
			verdicts[i], err = v.checkTwice(ctx, plans[i])
			return err
		})
		for i, found := range verdicts {
			report.Blobs += len(plans[i].all())
			report.Bytes += found.bytes
			report.Problems = append(report.Problems, found.problems...)
			if plans[i].committed() {
				report.Plans++
			}
			if found.inProgress {
				report.InProgress++
			}
		}
		plans = plans[:0]
		return err
	}
	for b, err := range v.dayPlans(ctx, d, stray) {
		if err != nil {
			return err
		}
		if plans = append(plans, b); len(plans) == v.concurrency {
			if err := judge(); err != nil {
				return err
			}
		}
	}
	return judge()
}

// checkTwice looks a second time at a plan that seems broken, because a plan that is worked on changes between a listing and
// a look. Only what shows both times counts.
func (v *Vault) checkTwice(ctx context.Context, b planBlobs) (verdict, error) {
	first, err := v.checkPlan(ctx, b)
	if err != nil || len(first.problems) == 0 {
		return first, err
	}
	again, err := v.relistPlan(ctx, b)
	if err != nil {
		return first, err
	}
	second, err := v.checkPlan(ctx, again)
	second.problems = slices.DeleteFunc(second.problems, func(p Problem) bool {
		return !slices.ContainsFunc(first.problems, func(q Problem) bool { return p.Kind == q.Kind && p.Blob == q.Blob })
	})
	return second, err
}

// examination is one look at a plan.
type planCheck struct {
	v *Vault
	planBlobs
	verdict
	grace time.Duration // to wait for before the plan is judged
	// cause is what keeps the examination from finding out, such as a service that can't be reached.
	cause error
}

// checkPlan holds what is stored of one plan against the invariants. The error is for what keeps it from finding out.
func (v *Vault) checkPlan(ctx context.Context, b planBlobs) (verdict, error) {
	x := planCheck{v: v, planBlobs: b}
	var err error
	if x.grace, err = v.graceOf(b.marker, b.deleteMarker); err != nil {
		x.bad(Unreadable, b.keys.marker(), "%v", err)
		return x.verdict, nil
	}
	if !b.committed() {
		x.incomplete()
		return x.verdict, nil
	}
	if b.deleteMarker != nil {
		x.unless([]*blob.Item{b.deleteMarker}, LeftMarker, b.keys.deleteMarker(), "the plan is whole")
	}
	var entry, object *workflow.Plan
	entryOK := x.read(ctx, b.keys.entry(), func(body []byte) (err error) { entry, err = decodeEntry(body, b.keys.plan); return err })
	objectOK := x.read(ctx, b.keys.object(), func(body []byte) (err error) { object, err = decodeObject(body, b.keys.plan); return err })
	if entryOK && objectOK {
		x.plan(entry, object)
		x.subObjects(ctx, object)
	}
	return x.verdict, x.cause
}

func (x *planCheck) bad(kind ProblemKind, ref blob.Ref, detail string, args ...any) {
	x.problems = append(x.problems, Problem{kind, x.keys.plan, ref.String(), fmt.Sprintf(detail, args...)})
}

// unless reports a problem unless one of the items was written so recently that its writer may still be at work.
func (x *planCheck) unless(items []*blob.Item, kind ProblemKind, ref blob.Ref, detail string) {
	if slices.ContainsFunc(items, func(i *blob.Item) bool { return i != nil && recent(i, i.Seen, x.grace) }) {
		x.inProgress = true
		return
	}
	x.bad(kind, ref, "%s", detail)
}

// read gets and decodes a blob. False is for one that can't be, which is reported, and for an examination that can't go on.
func (x *planCheck) read(ctx context.Context, ref blob.Ref, decode func(body []byte) error) bool {
	if x.cause != nil {
		return false
	}
	body, _, err := x.v.client.Get(ctx, ref)
	x.bytes += int64(len(body))
	switch {
	case err == nil:
		err = decode(body)
	case blob.Is(err, blob.Ended, blob.Unreachable, blob.Refused):
		x.cause = blobError("read", ref, err)
		return false
	}
	if err != nil {
		x.bad(Unreadable, ref, "%v", err)
	}
	return err == nil
}

// half judges what is not a whole plan, by the table that Recovery decides by.
func (x *planCheck) incomplete() {
	all := x.all()
	if len(all) == 0 {
		return // gone between two looks
	}
	c := diagnosis{planBlobs: x.planBlobs, grace: x.grace}
	c.finding = diagnose(c.signs(false))
	switch lost := c.err(); {
	case c.finding == tooRecent:
		x.inProgress = true
	case lost != nil && c.finding == unreadableState:
		x.bad(Unreadable, x.keys.entry(), "%v", errors.Unwrap(lost))
	case lost != nil:
		x.bad(Missing, x.missing()[0], "%v", errors.Unwrap(lost))
	case len(all) == len(x.parts):
		x.bad(Orphan, x.keys.at(x.parts[0].Name), "%d sub-objects belong to no plan, and no marker leads to them", len(x.parts))
	default:
		x.bad(IncompletePlan, x.keys.entry(), "%s", c)
	}
}

// plan holds entry, object and markers against each other and their metadata.
func (x *planCheck) plan(entry, object *workflow.Plan) {
	want, err := planMetadata(entry, typeEntry, x.entry.Metadata[blob.WriteID])
	x.metadata(x.keys.entry(), want, err, *x.entry)
	want, err = planMetadata(object, typeObject, x.object.Metadata[blob.WriteID])
	x.metadata(x.keys.object(), want, err, *x.object)
	if !sameChildren(entry, object) {
		x.bad(Disagreement, x.keys.entry(), "its children are not those of the object")
	}
	now, settled := entry.State.Status, object.State.Status
	switch {
	case !now.Final() && settled.Final():
		x.bad(Disagreement, x.keys.entry(), "it says %s, the object says %s", now, settled)
	case !now.Final() && x.marker == nil && x.marked:
		x.bad(Unmarked, x.keys.marker(), "the plan is %s", now)
	case now.Final() && !settled.Final():
		x.unless([]*blob.Item{x.entry}, Unfinalized, x.keys.object(), fmt.Sprintf("the entry says %s, the object says %s", now, settled))
	case now.Final() && x.marker != nil:
		x.unless([]*blob.Item{x.object, x.marker}, LeftMarker, x.keys.marker(), fmt.Sprintf("the plan is %s", now))
	}
}

// subObjects holds the sub-objects against the object, which names them all.
func (x *planCheck) subObjects(ctx context.Context, object *workflow.Plan) {
	left := make(map[string]blob.Item, len(x.parts))
	for _, item := range x.parts {
		left[item.Name] = item
	}
	for _, o := range workflow.Parts(object) {
		ref := x.keys.part(o)
		item, there := left[ref.Name]
		delete(left, ref.Name)
		if !there {
			x.bad(Missing, ref, "the object has it")
			continue
		}
		var part workflow.Object
		if !x.read(ctx, ref, func(body []byte) (err error) {
			part, err = decodePart(body, kindOf(o), x.keys.plan, *o.Header().ID)
			return err
		}) {
			continue
		}
		want, err := partMetadata(part, item.Metadata[blob.WriteID])
		x.metadata(ref, want, err, item)
		if !sameChildren(part, o) {
			x.bad(Disagreement, ref, "its children are not those in the object")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		x.bad(Orphan, x.keys.at(name), "the object does not have it")
	}
}

// metadata holds what was listed of a blob against what its content makes of it.
func (x *planCheck) metadata(ref blob.Ref, want map[string]string, err error, item blob.Item) {
	if err != nil {
		x.bad(Unreadable, ref, "%v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got := item.Metadata[name]; got != want[name] {
			x.bad(Disagreement, ref, "metadata %s is %q, the content makes it %q", name, got, want[name])
		}
	}
}
