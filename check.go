package azblob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/catalogue"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// CheckOptions are the options of [Vault.Check].
type CheckOptions struct {
	// After and Before select the days (UTC) that have any time after After and before Before. A zero time is
	// no bound.
	After, Before time.Time
	// Progress is called after each day, newest first. It may be nil.
	Progress func(storage.Progress)
}

// CheckReport is what [Vault.Check] found.
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

// ProblemKind names a broken invariant. docs/protocol.md explains them.
type ProblemKind string

// The kinds of problems, and what repairs each. Thorough is [Vault.Repair] with that option.
const (
	// IncompletePlan: remains of a Create or Delete that did not finish. Recovery removes them if a marker
	// leads to them, and so does the next Create of the ID. Thorough removes them in any case.
	IncompletePlan ProblemKind = "incomplete plan"
	// Orphan: a sub-object that belongs to no plan. Thorough removes it.
	Orphan ProblemKind = "orphan"
	// Missing: an entry, object or sub-object that a plan has lost. Thorough restores all but objects, which
	// only a backup can restore.
	Missing ProblemKind = "missing"
	// Unreadable: a blob that can't be read or understood. Restore it from a backup, or delete the plan. Delete
	// the record of a member or a stop request.
	Unreadable ProblemKind = "unreadable"
	// Disagreement: two blobs that contradict each other. Restore one of them from a backup, or delete the
	// plan.
	Disagreement ProblemKind = "disagreement"
	// Unfinalized: a plan that is final by its entry but not by its object. Recovery finishes it if a marker
	// leads to it. Thorough does so in any case.
	Unfinalized ProblemKind = "unfinalized"
	// Unmarked: an open plan without a marker, which neither Recovery nor a search for open plans finds.
	// Thorough restores the marker.
	Unmarked ProblemKind = "unmarked"
	// LeftMarker: a marker that is no longer needed. Recovery removes it.
	LeftMarker ProblemKind = "left marker"
	// Stray: a blob that no vault writes there. The vault leaves it alone.
	Stray ProblemKind = "stray"
	// Foreign: a blob of a plan that another program wrote, among blobs of a vault. The vault leaves it alone.
	Foreign ProblemKind = "written by another program"
)

// repairs say what repairs the problems of each kind.
var repairs = map[ProblemKind]string{
	IncompletePlan: "Recovery removes it, thoroughly if no marker leads to it",
	Orphan:         "a thorough Recovery removes it",
	Missing:        "a thorough Recovery restores it, unless it is an object: restore that from a backup",
	Unreadable:     "restore it from a backup, or delete the plan",
	Disagreement:   "restore one of the two from a backup, or delete the plan",
	Unfinalized:    "Recovery finishes it, thoroughly if no marker leads to it",
	Unmarked:       "a thorough Recovery restores the marker",
	LeftMarker:     "Recovery removes it",
	Stray:          "nothing needs it, and no vault removes it: delete it if nobody knows it",
	Foreign:        "no vault changes it: find out which program writes here, and give each a prefix of its own",
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
	case name == catalogueName && p.Kind == Unreadable:
		return "Catalogue with Verify builds it anew"
	case name == catalogueName:
		return "delete the blob, which is always safe; the next Catalogue builds it anew"
	case isRecord && record.role == roleNote:
		return "delete the blob, and store the note again"
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

// Check reads everything that is stored in the selected days, and the records of members and stop requests,
// and reports each broken invariant. It changes nothing. It may run beside other calls: it looks a second time
// at what seems broken, and only counts what is too recent to be judged.
//
// A problem is not an error. An error says that Check did not finish; the report then has what was found
// before.
func (v *Vault) Check(ctx context.Context, o CheckOptions) (report CheckReport, err error) {
	err = v.call(ctx, "Check", uuid.Nil, func(ctx context.Context) error {
		if err := checkDays("CheckOptions.After", o.After, o.Before); err != nil {
			return err
		}
		days, err := v.selectDays(ctx, o.After, o.Before)
		if err != nil {
			return err
		}
		c := checking{v.store, &report}
		for i, d := range days {
			report.Days++
			if err := c.checkDay(ctx, d); err != nil {
				return err
			}
			if o.Progress != nil {
				o.Progress(storage.Progress{Done: int64(i + 1), Total: int64(len(days))})
			}
		}
		return c.checkRecords(ctx)
	})
	return report, err
}

// checking is a Check that is running.
type checking struct {
	*store
	report *CheckReport
}

// checkRecords checks the control container. Like a day, it counts as absent for an identity that has rights
// to some containers only.
func (c checking) checkRecords(ctx context.Context) error {
	control := blob.Ref{Container: c.prefix.control()}
	for item, err := range c.listPrefix(ctx, "list members", control, false) {
		if blob.IsForbidden(err) && c.probing > 0 {
			return nil
		}
		if err != nil {
			return err
		}
		c.report.Blobs++
		found, err := c.checkRecord(ctx, blob.Ref{Container: control.Container, Name: item.Name})
		if err != nil {
			return err
		}
		c.report.Bytes += found.bytes
		c.report.Problems = append(c.report.Problems, found.problems...)
	}
	return nil
}

// checkRecord compares a record with its name and its metadata. A record that was removed meanwhile is no
// problem.
func (c checking) checkRecord(ctx context.Context, ref blob.Ref) (verdict, error) {
	x := planCheck{store: c.store}
	name, ok := parseRecordName(ref.Name)
	if !ok {
		x.bad(Stray, ref, "is not a name that a vault writes")
		return x.verdict, nil
	}
	if name.role == roleStop {
		x.keys.plan = name.id
	}
	body, p, err := c.client.Get(ctx, ref)
	switch {
	case blob.Is(err, blob.Absent, blob.AbsentContainer):
		return x.verdict, nil
	case blob.Is(err, blob.Ended, blob.Unreachable, blob.Refused):
		return x.verdict, blobError("read", ref, err)
	}
	x.bytes = int64(len(body))
	var r record
	if err == nil {
		r, err = x.format.decodeRecord(body, name)
	}
	if err != nil {
		x.bad(Unreadable, ref, "%v", err)
	} else {
		x.metadata(ref, x.format.recordMetadata(r, p.Metadata[blob.WriteID]), nil, blob.Item{Properties: p})
	}
	return x.verdict, nil
}

// checkCatalogue compares the catalogue of a day with listings.
func (c checking) checkCatalogue(ctx context.Context, d day) error {
	ref := catalogueOf(d.container)
	bad := func(kind ProblemKind, format string, args ...any) {
		c.report.Problems = append(c.report.Problems, Problem{Kind: kind, Blob: ref.String(), Detail: fmt.Sprintf(format, args...)})
	}
	difference, etag, err := c.compareCatalogue(ctx, d)
	if difference == "" && err == nil {
		return nil
	}
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return c.confirmNoCatalogue(ctx, ref)
	}
	if etag != "" {
		now, err := c.headAgain(ctx, ref)
		if err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return blobError("look at catalogue", ref, err)
		}
		if err != nil || now.ETag != etag {
			return nil // somebody has changed the day meanwhile
		}
	}
	if err == nil {
		bad(Disagreement, "%s: Catalogue with Verify builds it anew", difference)
		return nil
	}
	switch damage := (*catalogue.Damage)(nil); {
	case errors.As(err, &damage), blob.Is(err, blob.Damaged, blob.Refused):
		bad(Unreadable, "%v: Catalogue with Verify builds it anew", err)
	case !isUnusable(err):
		return err
	}
	return nil // it is a placeholder, or of newer code
}

// verdict is what Check found out about one plan or record.
type verdict struct {
	problems   []Problem
	inProgress bool
	foreign    bool          // another program wrote the plan
	wait       time.Duration // until a plan in progress can be judged
	bytes      int64
}

// checkedAtOnce is how many plans of a day are checked at the same time, because each is in memory as a whole.
const checkedAtOnce = 64

func (c checking) checkDay(ctx context.Context, d day) error {
	dropping := false
	stray := func(name, detail string) {
		c.report.Blobs++
		switch {
		case detail == isDropping:
			dropping = true
			return
		case detail == isOthers:
			if isEntry(name) {
				c.report.Foreign++
			}
			return
		}
		c.report.Problems = append(c.report.Problems, Problem{Kind: Stray, Blob: blob.Ref{Container: d.container, Name: name}.String(), Detail: detail})
	}
	catalogued, err := c.strays(ctx, d, stray)
	if catalogued {
		c.report.Blobs++
	}
	if err == nil && (catalogued || d.hinted) { // a listing of names may have missed it
		err = c.checkCatalogue(ctx, d)
	}
	if err != nil {
		return err
	}
	var plans []planBlobs
	judge := func() error {
		verdicts := make([]verdict, len(plans))
		err := c.parallel(len(plans), func(i int) (err error) {
			verdicts[i], err = c.checkTwice(ctx, plans[i])
			return err
		})
		for i, found := range verdicts {
			c.report.Blobs += len(plans[i].all())
			c.report.Bytes += found.bytes
			c.report.Problems = append(c.report.Problems, found.problems...)
			switch {
			case found.foreign:
				c.report.Foreign++
			case plans[i].committed():
				c.report.Plans++
			}
			if found.inProgress {
				c.report.InProgress++
				c.report.Wait = max(c.report.Wait, found.wait)
			}
		}
		plans = plans[:0]
		return err
	}
	for b, err := range c.dayPlans(ctx, d, directories(), stray) {
		if blob.Is(err, blob.AbsentContainer) {
			if err = c.confirmDropped(ctx, d.container); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		if plans = append(plans, b); len(plans) == min(c.concurrency, checkedAtOnce) {
			if err := judge(); err != nil {
				return err
			}
		}
	}
	if err := judge(); err != nil || !dropping {
		return err
	}
	return c.checkExpiry(ctx, d)
}

// checkExpiry looks whether an Expire is at work that has marked a day.
func (c checking) checkExpiry(ctx context.Context, d day) error {
	now, err := c.client.HeadContainer(ctx, d.container)
	if err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return blobError("look for expiry", blob.Ref{Container: d.container}, err)
	}
	if err != nil || now.Lease == blob.LeasedForATime {
		return nil
	}
	ref := droppingOf(d.container)
	if _, err := c.client.Head(ctx, ref); err == nil {
		c.report.Problems = append(c.report.Problems, Problem{Kind: LeftMarker, Blob: ref.String(), Detail: "an expiry of the day did not finish"})
	}
	return nil
}

// checkTwice checks a plan that seems broken a second time, and returns the problems that both checks found.
// A plan that another process is working on changes between a listing and a look.
func (c checking) checkTwice(ctx context.Context, b planBlobs) (verdict, error) {
	first, err := c.checkPlan(ctx, b)
	if err != nil || len(first.problems) == 0 {
		return first, err
	}
	again, err := c.relistPlan(ctx, b)
	if err != nil {
		return first, err
	}
	second, err := c.checkPlan(ctx, again)
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
func (c checking) checkPlan(ctx context.Context, b planBlobs) (verdict, error) {
	x := planCheck{store: c.store, planBlobs: b}
	if done := x.foreignBlobs(ctx); done {
		return x.verdict, x.cause
	}
	var err error
	if x.grace, err = c.graceOf(b.marker, b.deleteMarker); err != nil {
		x.bad(Unreadable, b.keys.marker(), "%v", err)
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
		x.unlessRecent([]*blob.Item{x.planBlobs.deleteMarker}, LeftMarker, x.keys.deleteMarker(), "the plan is whole")
	}
	var entry, object *workflow.Plan
	entryOK := x.read(ctx, x.keys.entry(), func(body []byte) (err error) { entry, err = x.format.decodeEntry(body, x.keys.plan); return err })
	objectOK := x.read(ctx, x.keys.object(), func(body []byte) (err error) { object, err = x.format.decodeObject(body, nil, x.keys.plan); return err })
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
		x.bad(Foreign, x.keys.entry(), "a vault wrote the object")
	default:
		x.bad(Foreign, x.keys.object(), "a vault wrote the entry")
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
			x.bad(Stray, ref, "a sub-object of no plan, without the metadata that a vault writes")
		}
	}
	return true
}

// changeMarkers reports the markers of changes that did not finish, and takes them from the plan's blobs.
func (x *planCheck) changeMarkers() {
	for i := range x.changes {
		x.unlessRecent([]*blob.Item{&x.changes[i]}, LeftMarker, x.keys.at(x.changes[i].Name), "an update of a final plan did not finish")
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
		if p.Kind != Unreadable && p.Kind != Disagreement {
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
		x.bad(Foreign, ref, "it is no document of a vault")
	case err != nil:
		x.bad(Unreadable, ref, "%v", err)
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
		x.bad(Unreadable, ref, "%v", err)
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
		x.bad(Unreadable, x.keys.entry(), "%v", errors.Unwrap(lost))
	case lost != nil:
		x.bad(Missing, x.missing()[0], "%v", errors.Unwrap(lost))
	case len(all) == len(x.parts):
		x.bad(Orphan, x.keys.at(x.parts[0].Name), "%s of no plan, to which no marker leads", plural(len(x.parts), "sub-object"))
	default:
		x.bad(IncompletePlan, x.keys.entry(), "%s", d)
	}
}

// plan compares entry, object and markers with each other, and their content with their metadata.
func (x *planCheck) plan(entry, object *workflow.Plan) {
	want, err := x.format.planMetadata(entry, typeEntry, x.entry.Metadata[blob.WriteID], planMarks{restored(x.entry), copied(x.entry)})
	x.metadata(x.keys.entry(), want, err, *x.entry)
	want, err = x.format.planMetadata(object, typeObject, x.object.Metadata[blob.WriteID], planMarks{copied: copied(x.object)})
	x.metadata(x.keys.object(), want, err, *x.object)
	if !sameChildren(entry, object) {
		x.bad(Disagreement, x.keys.entry(), "its children are not those of the object")
	}
	now, last := entry.State.Status, object.State.Status
	switch {
	case !now.Final() && last.Final():
		x.bad(Disagreement, x.keys.entry(), "it says %s, but the object says %s", now, last)
	case !now.Final() && x.marker == nil && x.marked:
		x.bad(Unmarked, x.keys.marker(), "the plan is %s", now)
	case now.Final() && !last.Final():
		x.unlessRecent([]*blob.Item{x.entry}, Unfinalized, x.keys.object(), fmt.Sprintf("the entry says %s, the object says %s", now, last))
	case now.Final() && x.marker != nil:
		x.unlessRecent([]*blob.Item{x.object, x.marker}, LeftMarker, x.keys.marker(), fmt.Sprintf("the plan is %s", now))
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
			x.bad(Missing, ref, "the object has it")
			continue
		}
		var part workflow.Object
		if !x.read(ctx, ref, func(body []byte) (err error) {
			part, err = x.format.decodePart(body, kindOf(o), nil, x.keys.plan, *o.Header().ID)
			return err
		}) {
			continue
		}
		want, err := x.format.partMetadata(part, item.Metadata[blob.WriteID])
		x.metadata(ref, want, err, item)
		if !sameChildren(part, o) {
			x.bad(Disagreement, ref, "its children are not those in the object")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if hasMarks(left[name].Metadata) {
			x.bad(Orphan, x.keys.at(name), "the object does not have it")
			item := left[name]
			x.problems[len(x.problems)-1].Wait = x.remaining(&item)
		} else {
			x.bad(Stray, x.keys.at(name), "the object does not have it, nor has it the metadata that a vault writes")
		}
	}
}

// metadata compares the metadata of a blob with what its content makes of it.
func (x *planCheck) metadata(ref blob.Ref, want map[string]string, err error, item blob.Item) {
	if err != nil {
		x.bad(Unreadable, ref, "%v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		got := item.Metadata[name]
		if version, err := strconv.Atoi(got); name == metaSchema && err == nil && x.format.checkSchema(version) == nil {
			continue // an older schema, until the next update
		}
		if got != want[name] {
			x.bad(Disagreement, ref, "metadata %s is %q, but the content makes it %q", name, got, want[name])
		}
	}
}
