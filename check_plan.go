package azblob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// The check of one plan.

// verdict is what Check found out about one plan or record.
type verdict struct {
	problems   []Problem
	inProgress bool
	foreign    bool          // another program wrote the plan
	wait       time.Duration // until a plan in progress can be judged
	bytes      int64
}

// checkTwice checks a plan that seems broken a second time, and returns the problems that both checks found.
// A plan that another process is working on changes between a listing and a look.
func (s *store) checkTwice(ctx context.Context, b planBlobs) (verdict, error) {
	first, err := s.checkPlan(ctx, b)
	if err != nil || len(first.problems) == 0 {
		return first, err
	}
	again, err := s.relistPlan(ctx, b)
	if err != nil {
		return first, err
	}
	second, err := s.checkPlan(ctx, again)
	second.problems = slices.DeleteFunc(second.problems, func(p Problem) bool {
		return !slices.ContainsFunc(first.problems, func(q Problem) bool { return p.Kind == q.Kind && p.Blob == q.Blob })
	})
	return second, err
}

// planCheck is one check of a plan.
type planCheck struct {
	*store
	planBlobs
	verdict
	grace time.Duration // the longest of all that count for the plan
	// cause is why the check can't go on, for example because the service can't be reached.
	cause error
}

// checkPlan compares the blobs of a plan with the invariants. The error says why it could not.
func (s *store) checkPlan(ctx context.Context, b planBlobs) (verdict, error) {
	x := planCheck{store: s, planBlobs: b}
	if done := x.foreignBlobs(ctx); done {
		return x.verdict, x.cause
	}
	var err error
	if x.grace, err = s.graceOf(b.marker, b.deleteMarker); err != nil {
		x.bad(ProblemUnreadable, b.keys.marker(), "%v", err)
		return x.verdict, nil
	}
	x.changeMarkers()
	if b.committed() {
		x.whole(ctx)
	} else {
		x.incomplete()
	}
	busy := []*blob.Item{b.deleteMarker}
	for i := range b.changes {
		busy = append(busy, &b.changes[i])
	}
	x.leftAlone(busy...)
	return x.verdict, x.cause
}

// whole checks a plan that has an entry and an object.
func (x *planCheck) whole(ctx context.Context) {
	if x.planBlobs.deleteMarker != nil {
		x.unlessRecent([]*blob.Item{x.planBlobs.deleteMarker}, ProblemLeftMarker, x.keys.deleteMarker(), "the plan is whole")
	}
	var entry, object *workflow.Plan
	entryOK := x.read(ctx, x.keys.entry(), func(body []byte) (err error) { entry, err = x.format.decodeEntry(body, x.keys.plan); return err })
	objectOK := x.read(ctx, x.keys.object(), func(body []byte) (err error) { object, err = x.format.decodeObject(body, x.keys.plan); return err })
	if entryOK && objectOK {
		x.plan(entry, object)
		x.subObjects(ctx, object)
	}
}

// foreignBlobs looks for blobs that another program wrote, and reports whether that is all there is to say about the plan.
// If a vault has written the entry or the object, the other one is a problem.
func (x *planCheck) foreignBlobs(ctx context.Context) (done bool) {
	others := 0
	for _, item := range []*blob.Item{x.entry, x.object} {
		if item != nil && isForeign(item.Metadata) {
			others++
		}
	}
	switch {
	case x.entry == nil && x.object == nil:
		return x.foreignRemains(ctx)
	case others == 0:
		return false
	case others == 2 || !x.committed():
		x.foreign = true
		return true
	case isForeign(x.entry.Metadata):
		x.bad(ProblemForeign, x.keys.entry(), "a vault wrote the object")
	default:
		x.bad(ProblemForeign, x.keys.object(), "a vault wrote the entry")
	}
	return true
}

// foreignRemains is foreignBlobs for sub-objects without entry and object. The metadata of another program's may be empty,
// so it reads one that no vault may have written.
func (x *planCheck) foreignRemains(ctx context.Context) (done bool) {
	i := slices.IndexFunc(x.parts, func(item blob.Item) bool { return !hasMarks(item.Metadata) })
	if i < 0 {
		return false
	}
	ref := x.keys.at(x.parts[i].Name)
	if body, ok := x.get(ctx, ref); ok {
		if x.foreign = isForeignDocument(body); !x.foreign {
			x.bad(ProblemStray, ref, "a sub-object of no plan, without the metadata that a vault writes")
		}
	}
	return true
}

// changeMarkers reports the markers of changes that did not finish, and takes them from the plan's blobs.
func (x *planCheck) changeMarkers() {
	for i := range x.changes {
		x.unlessRecent([]*blob.Item{&x.changes[i]}, ProblemLeftMarker, x.keys.at(x.changes[i].Name), "an update of a final plan did not finish")
	}
	x.changes = nil
}

// bad reports a problem.
func (x *planCheck) bad(kind ProblemKind, ref blob.Ref, detail string, args ...any) {
	x.problems = append(x.problems, Problem{Kind: kind, Plan: x.keys.plan, Blob: ref.String(), Detail: fmt.Sprintf(detail, args...)})
}

// leftAlone notes on the problems that Recovery leaves the plan alone while one of these blobs, which may be nil, is recent.
func (x *planCheck) leftAlone(items ...*blob.Item) {
	wait := x.remaining(items...)
	for i, p := range x.problems {
		if p.Kind != ProblemUnreadable && p.Kind != ProblemDisagreement {
			x.problems[i].Wait = max(p.Wait, wait)
		}
	}
}

// remaining returns how long any of these blobs, which may be nil, will be recent.
func (x *planCheck) remaining(items ...*blob.Item) (wait time.Duration) {
	for _, i := range items {
		if i != nil && recent(i, i.Seen, x.grace) {
			wait = max(wait, i.LastModified.Add(x.grace+margin(x.grace)+time.Second).Sub(i.Seen))
		}
	}
	return wait
}

// unlessRecent reports a problem unless one of the items is recent.
func (x *planCheck) unlessRecent(items []*blob.Item, kind ProblemKind, ref blob.Ref, detail string) {
	if wait := x.remaining(items...); wait > 0 {
		x.inProgress, x.wait = true, max(x.wait, wait)
		return
	}
	x.bad(kind, ref, "%s", detail)
}

// read reads and decodes a blob. It returns false if the blob is unreadable, which it reports, or if the
// check can't go on.
func (x *planCheck) read(ctx context.Context, ref blob.Ref, decode func(body []byte) error) bool {
	body, ok := x.get(ctx, ref)
	if !ok {
		return false
	}
	err := decode(body)
	switch {
	case errors.Is(err, storage.ErrForeign):
		x.bad(ProblemForeign, ref, "it is no document of a vault")
	case err != nil:
		x.bad(ProblemUnreadable, ref, "%v", err)
	}
	return err == nil
}

// get reads a blob. It returns false if the blob can't be read, which it reports, or if the check can't go on.
func (x *planCheck) get(ctx context.Context, ref blob.Ref) (body []byte, ok bool) {
	if x.cause != nil {
		return nil, false
	}
	body, _, err := x.client.Get(ctx, ref)
	x.bytes += int64(len(body))
	switch {
	case blob.Is(err, blob.Ended, blob.Unreachable, blob.Refused):
		x.cause = blobError("read", ref, err)
	case err != nil:
		x.bad(ProblemUnreadable, ref, "%v", err)
	}
	return body, err == nil
}

// incomplete checks a plan that lacks the entry or the object, by the table that Recovery decides by.
func (x *planCheck) incomplete() {
	all := x.all()
	if len(all) == 0 {
		return // deleted between two looks
	}
	d := diagnosis{planBlobs: x.planBlobs, grace: x.grace}
	d.finding = diagnose(d.signs(false))
	switch lost := d.err(); {
	case d.finding == tooRecent:
		x.inProgress, x.wait = true, max(x.wait, d.wait())
	case lost != nil && d.finding == unreadableState:
		x.bad(ProblemUnreadable, x.keys.entry(), "%v", errors.Unwrap(lost))
	case lost != nil:
		x.bad(ProblemMissing, x.missing()[0], "%v", errors.Unwrap(lost))
	case len(all) == len(x.parts):
		x.bad(ProblemOrphan, x.keys.at(x.parts[0].Name), "%s of no plan, to which no marker leads", plural(len(x.parts), "sub-object"))
	default:
		x.bad(ProblemIncompletePlan, x.keys.entry(), "%s", d)
	}
}

// plan compares entry, object and markers with each other, and their content with their metadata.
func (x *planCheck) plan(entry, object *workflow.Plan) {
	want, err := x.format.planMetadata(entry, typeEntry, x.entry.Metadata[blob.WriteID], planMarks{restored(x.entry), copied(x.entry)})
	x.metadata(x.keys.entry(), want, err, *x.entry)
	want, err = x.format.planMetadata(object, typeObject, x.object.Metadata[blob.WriteID], planMarks{copied: copied(x.object)})
	x.metadata(x.keys.object(), want, err, *x.object)
	if !sameChildren(entry, object) {
		x.bad(ProblemDisagreement, x.keys.entry(), "its children are not those of the object")
	}
	now, last := entry.State.Status, object.State.Status
	switch {
	case !now.Final() && last.Final():
		x.bad(ProblemDisagreement, x.keys.entry(), "it says %s, but the object says %s", now, last)
	case !now.Final() && x.marker == nil && x.marked:
		x.bad(ProblemUnmarked, x.keys.marker(), "the plan is %s", now)
	case now.Final() && !last.Final():
		x.unlessRecent([]*blob.Item{x.entry}, ProblemUnfinalized, x.keys.object(), fmt.Sprintf("the entry says %s, the object says %s", now, last))
	case now.Final() && x.marker != nil:
		x.unlessRecent([]*blob.Item{x.object, x.marker}, ProblemLeftMarker, x.keys.marker(), fmt.Sprintf("the plan is %s", now))
	}
}

// subObjects compares the sub-objects with the object, which names them all.
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
			x.bad(ProblemMissing, ref, "the object has it")
			continue
		}
		var part workflow.Object
		if !x.read(ctx, ref, func(body []byte) (err error) {
			part, err = x.format.decodePart(body, kindOf(o), x.keys.plan, *o.Header().ID)
			return err
		}) {
			continue
		}
		want, err := x.format.partMetadata(part, item.Metadata[blob.WriteID])
		x.metadata(ref, want, err, item)
		if !sameChildren(part, o) {
			x.bad(ProblemDisagreement, ref, "its children are not those in the object")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if hasMarks(left[name].Metadata) {
			x.bad(ProblemOrphan, x.keys.at(name), "the object does not have it")
			item := left[name]
			x.problems[len(x.problems)-1].Wait = x.remaining(&item)
		} else {
			x.bad(ProblemStray, x.keys.at(name), "the object does not have it, nor has it the metadata that a vault writes")
		}
	}
}

// metadata compares the metadata of a blob with what its content makes of it.
func (x *planCheck) metadata(ref blob.Ref, want map[string]string, err error, item blob.Item) {
	if err != nil {
		x.bad(ProblemUnreadable, ref, "%v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		got := item.Metadata[name]
		if version, err := strconv.Atoi(got); name == metaSchema && err == nil && x.format.checkSchema(version) == nil {
			continue // an older schema, until the next update
		}
		if got != want[name] {
			x.bad(ProblemDisagreement, ref, "metadata %s is %q, but the content makes it %q", name, got, want[name])
		}
	}
}
