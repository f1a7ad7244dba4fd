package azblob

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
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
	// InProgress is how many plans had something unfinished that is so young that its writer may still be at work.
	InProgress int
	// Problems are the broken invariants; none in a sound store.
	Problems []Problem
}

// ProblemKind names an invariant that is broken. docs/protocol.md explains them.
type ProblemKind string

// The kinds of problems.
const (
	// HalfPlan: entry, object or markers without the rest of the plan. Recovery removes it.
	HalfPlan ProblemKind = "half plan"
	// Orphan: a sub-object that belongs to no plan.
	Orphan ProblemKind = "orphan"
	// Missing: a sub-object that a plan has lost.
	Missing ProblemKind = "missing"
	// Unreadable: a blob that can't be read or understood.
	Unreadable ProblemKind = "unreadable"
	// Disagreement: two places that should say the same do not.
	Disagreement ProblemKind = "disagreement"
	// Unsettled: a plan that is final by its entry but not by its object. Recovery settles it.
	Unsettled ProblemKind = "unsettled"
	// Unmarked: a plan that is not final and has no marker, so that Recovery does not find it.
	Unmarked ProblemKind = "unmarked"
	// LeftMarker: a marker without need. Recovery removes it.
	LeftMarker ProblemKind = "left marker"
	// Stray: a blob that is none of the vault's.
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
			return storage.Invalid("CheckOptions.After", "%v is not before Before, %v", o.After.Format(time.RFC3339Nano), o.Before.Format(time.RFC3339Nano))
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

// belongings is everything that is stored of one plan.
type belongings struct {
	stored
	marked               bool // the day's plans have markers
	marker, deleteMarker *blob.Item
	parts                []blob.Item
}

func (b *belongings) add(name parsed, item blob.Item) {
	switch name.role {
	case roleMarker:
		b.marker = &item
	case roleDeleteMarker:
		b.deleteMarker = &item
	case roleEntry:
		b.entry = &item
	case roleObject:
		b.object = &item
	case rolePart:
		b.parts = append(b.parts, item)
	}
}

func (b *belongings) blobs() int {
	n := len(b.parts)
	for _, item := range []*blob.Item{b.marker, b.deleteMarker, b.entry, b.object} {
		if item != nil {
			n++
		}
	}
	return n
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
	var plans []belongings
	judge := func() error {
		verdicts := make([]verdict, len(plans))
		err := v.parallel(len(plans), func(i int) (err error) {
			verdicts[i], err = v.checkTwice(ctx, plans[i])
			return err
		})
		for i, found := range verdicts {
			report.Blobs += plans[i].blobs()
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
	for b, err := range v.belongings(ctx, d, stray) {
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

// directories are all the names' first parts, sorted as a listing is.
func directories() []string {
	dirs := []string{openDir, plansDir}
	for _, k := range kinds {
		dirs = append(dirs, k.dir)
	}
	slices.Sort(dirs)
	return dirs
}

// strays reports the blobs that lie outside all directories, by listing the gaps between them.
func (v *Vault) strays(ctx context.Context, d day, report func(name, detail string)) error {
	dirs := directories()
	found := make([][]string, len(dirs)+1)
	err := v.parallel(len(found), func(i int) error {
		var from, to string
		if i > 0 {
			from = strings.TrimSuffix(dirs[i-1], "/") + "0" // the next character after the slash
		}
		if i < len(dirs) {
			to = dirs[i]
		}
		for page, err := range v.client.List(ctx, d.container, blob.ListOptions{StartFrom: from, MaxResults: 10}) {
			if blob.Is(err, blob.AbsentContainer) {
				return nil // dropped as a whole
			}
			if err != nil {
				return at("list strays", blob.Ref{Container: d.container, Name: from}, err)
			}
			for _, item := range page.Items {
				if to != "" && item.Name >= to {
					return nil
				}
				found[i] = append(found[i], item.Name)
			}
		}
		return nil
	})
	for _, name := range slices.Concat(found...) {
		report(name, "lies in none of the vault's directories")
	}
	return err
}

// belongings yields all plans of a day with all that is stored of each, by merging the listings of all directories: each is
// sorted by plan.
func (v *Vault) belongings(ctx context.Context, d day, stray func(name, detail string)) iter.Seq2[belongings, error] {
	type head struct {
		next func() (namedItem, error, bool)
		item namedItem
	}
	return func(yield func(belongings, error) bool) {
		var heads []*head
		advance := func(h *head) (more bool, err error) {
			item, err, ok := h.next()
			h.item = item
			return ok, err
		}
		for _, dir := range directories() {
			next, stop := iter.Pull2(v.named(ctx, d, dir, stray))
			defer stop()
			h := &head{next: next}
			more, err := advance(h)
			if err != nil {
				yield(belongings{}, err)
				return
			}
			if more {
				heads = append(heads, h)
			}
		}
		for len(heads) > 0 {
			first := slices.MinFunc(heads, func(a, b *head) int {
				return strings.Compare(a.item.name.plan.String(), b.item.name.plan.String())
			}).item.name.plan
			b := belongings{stored: stored{keys: v.prefix.plan(first), id: first}, marked: d.marked}
			left := heads[:0]
			for _, h := range heads {
				more := true
				for more && h.item.name.plan == first {
					b.add(h.item.name, h.item.Item)
					var err error
					if more, err = advance(h); err != nil {
						yield(belongings{}, err)
						return
					}
				}
				if more {
					left = append(left, h)
				}
			}
			heads = left
			if !yield(b, nil) {
				return
			}
		}
	}
}

// namedItem is a listed blob with what its name says.
type namedItem struct {
	name parsed
	blob.Item
}

// named lists a directory of a day; what no vault would write there is a stray.
func (v *Vault) named(ctx context.Context, d day, dir string, stray func(name, detail string)) iter.Seq2[namedItem, error] {
	return func(yield func(namedItem, error) bool) {
		for page, err := range v.client.List(ctx, d.container, blob.ListOptions{Prefix: dir, Metadata: true}) {
			if blob.Is(err, blob.AbsentContainer) {
				return // dropped as a whole
			}
			if err != nil {
				yield(namedItem{}, at("list", blob.Ref{Container: d.container, Name: dir}, err))
				return
			}
			for _, item := range page.Items {
				name, ok := parseName(item.Name)
				switch {
				case !ok:
					stray(item.Name, "is not a name that a vault writes")
				case v.prefix.plan(name.plan).container != d.container:
					stray(item.Name, "belongs to a plan of another day")
				default:
					if !yield(namedItem{name, item}, nil) {
						return
					}
				}
			}
		}
	}
}

// checkTwice looks a second time at a plan that seems broken, because a plan that is worked on changes between a listing and
// a look. Only what shows both times counts.
func (v *Vault) checkTwice(ctx context.Context, b belongings) (verdict, error) {
	first, err := v.checkPlan(ctx, b)
	if err != nil || len(first.problems) == 0 {
		return first, err
	}
	again, err := v.gather(ctx, b)
	if err != nil {
		return first, err
	}
	second, err := v.checkPlan(ctx, again)
	second.problems = slices.DeleteFunc(second.problems, func(p Problem) bool {
		return !slices.ContainsFunc(first.problems, func(q Problem) bool { return p.Kind == q.Kind && p.Blob == q.Blob })
	})
	return second, err
}

// gather lists what is stored of one plan.
func (v *Vault) gather(ctx context.Context, was belongings) (belongings, error) {
	b := belongings{stored: stored{keys: was.keys, id: was.id}, marked: was.marked}
	id := b.id.String()
	prefixes := []string{openDir + id, plansDir + id}
	for _, k := range kinds {
		prefixes = append(prefixes, b.keys.parts(k))
	}
	for _, prefix := range prefixes {
		for page, err := range v.client.List(ctx, b.keys.container, blob.ListOptions{Prefix: prefix, Metadata: true}) {
			if blob.Is(err, blob.AbsentContainer) {
				break
			}
			if err != nil {
				return b, at("list", b.keys.at(prefix), err)
			}
			for _, item := range page.Items {
				if name, ok := parseName(item.Name); ok {
					b.add(name, item)
				}
			}
		}
	}
	return b, nil
}

// examination is one look at a plan.
type examination struct {
	v *Vault
	belongings
	verdict
	// cause is what keeps the examination from finding out, such as a service that can't be reached.
	cause error
}

// checkPlan holds what is stored of one plan against the invariants. The error is for what keeps it from finding out.
func (v *Vault) checkPlan(ctx context.Context, b belongings) (verdict, error) {
	x := examination{v: v, belongings: b}
	if !b.committed() {
		x.half()
		return x.verdict, nil
	}
	if b.deleteMarker != nil {
		x.unless([]*blob.Item{b.deleteMarker}, LeftMarker, b.keys.deleteMarker(), "the plan is whole")
	}
	var entry, object *workflow.Plan
	entryOK := x.read(ctx, b.keys.entry(), func(body []byte) (err error) { entry, err = decodeEntry(body, b.id); return err })
	objectOK := x.read(ctx, b.keys.object(), func(body []byte) (err error) { object, err = decodeObject(body, b.id); return err })
	if entryOK && objectOK {
		x.plan(entry, object)
		x.subObjects(ctx, object)
	}
	return x.verdict, x.cause
}

func (x *examination) bad(kind ProblemKind, ref blob.Ref, detail string, args ...any) {
	x.problems = append(x.problems, Problem{kind, x.id, ref.String(), fmt.Sprintf(detail, args...)})
}

// unless reports a problem unless one of the items was written so recently that its writer may still be at work.
func (x *examination) unless(young []*blob.Item, kind ProblemKind, ref blob.Ref, detail string) {
	if slices.ContainsFunc(young, func(i *blob.Item) bool { return i != nil && x.v.young(i, i.Seen) }) {
		x.inProgress = true
		return
	}
	x.bad(kind, ref, "%s", detail)
}

// read gets and decodes a blob. False is for one that can't be, which is reported, and for an examination that can't go on.
func (x *examination) read(ctx context.Context, ref blob.Ref, decode func(body []byte) error) bool {
	if x.cause != nil {
		return false
	}
	body, _, err := x.v.client.Get(ctx, ref)
	x.bytes += int64(len(body))
	switch {
	case err == nil:
		err = decode(body)
	case blob.Is(err, blob.Ended, blob.Unreachable, blob.Refused):
		x.cause = at("read", ref, err)
		return false
	}
	if err != nil {
		x.bad(Unreadable, ref, "%v", err)
	}
	return err == nil
}

// half judges what is not a whole plan.
func (x *examination) half() {
	all := []*blob.Item{x.marker, x.deleteMarker, x.entry, x.object}
	for i := range x.parts {
		all = append(all, &x.parts[i])
	}
	if x.blobs() == 0 {
		return // gone between two looks
	}
	if x.blobs() == len(x.parts) {
		x.unless(all, Orphan, x.keys.at(x.parts[0].Name), fmt.Sprintf("%d sub-objects belong to no plan, and no marker leads to them", len(x.parts)))
		return
	}
	x.unless(all, HalfPlan, x.keys.entry(), x.stored.half())
}

// plan holds entry, object and markers against each other and their metadata.
func (x *examination) plan(entry, object *workflow.Plan) {
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
		x.unless([]*blob.Item{x.entry}, Unsettled, x.keys.object(), fmt.Sprintf("the entry says %s, the object says %s", now, settled))
	case now.Final() && x.marker != nil:
		x.unless([]*blob.Item{x.object, x.marker}, LeftMarker, x.keys.marker(), fmt.Sprintf("the plan is %s", now))
	}
}

// subObjects holds the sub-objects against the object, which names them all.
func (x *examination) subObjects(ctx context.Context, object *workflow.Plan) {
	left := make(map[string]blob.Item, len(x.parts))
	for _, item := range x.parts {
		left[item.Name] = item
	}
	for _, o := range partsOf(object) {
		ref := x.keys.part(o)
		item, there := left[ref.Name]
		delete(left, ref.Name)
		if !there {
			x.bad(Missing, ref, "the object has it")
			continue
		}
		var part workflow.Object
		if !x.read(ctx, ref, func(body []byte) (err error) {
			part, err = decodePart(body, kindOf(o), x.id, *o.Header().ID)
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
func (x *examination) metadata(ref blob.Ref, want map[string]string, err error, item blob.Item) {
	if err != nil {
		x.bad(Unreadable, ref, "%v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got := item.Metadata[name]; got != want[name] {
			x.bad(Disagreement, ref, "metadata %s is %q, the content makes it %q", name, got, want[name])
		}
	}
}

// sameChildren says whether two versions of an object have children of the same IDs in the same places.
func sameChildren(a, b workflow.Object) bool {
	only := func(o workflow.Object) []byte {
		kind := kindOf(o)
		o = kind.alone(o)
		kind.adopt(o, kind.empty())
		text, _ := workflow.Marshal(o) // nothing is left in it that could fail
		return text
	}
	return bytes.Equal(only(a), only(b))
}
