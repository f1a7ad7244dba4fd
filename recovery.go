package azblob

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// RecoverOptions say how to recover.
type RecoverOptions struct {
	// DryRun changes nothing and reports what would be done.
	DryRun bool
	// Repair rewrites sub-objects of NotStarted plans that were lost from outside. It is apart because a rewrite that races with
	// a delete and is then broken off leaves debris that only Check finds: run it where nothing deletes.
	Repair bool
}

// RecoveryReport says what Recover found.
type RecoveryReport struct {
	// Days is how many containers were looked at.
	Days int
	// Open is how many plans are NotStarted or Running, and whole.
	Open int
	// Young is how many were left alone because they may be under way: less than the grace period and a margin has passed
	// since they were last written. Another Recover after that settles them.
	Young int
	// Plans are those on which something was done, or would be in a dry run, or could not be, newest first.
	Plans []RecoveredPlan
}

// RecoveredPlan says what was done about one plan.
type RecoveredPlan struct {
	ID uuid.UUID
	// Found says what was wrong, Did what was done about it: "" when nothing could be, or in a dry run.
	Found, Did string
	// Err says why it could not be mended; nil otherwise.
	Err error
}

// Recovery is Recover with its defaults, for the start of a service. The errors of plans that could not be mended are joined.
func (v *Vault) Recovery(ctx context.Context) error {
	_, err := v.Recover(ctx, RecoverOptions{})
	return err
}

// Recover finishes or removes what crashed processes left: creates and deletes that were broken off, and plans whose last
// update was. It finds them by their markers, so its cost follows the open plans and not the history: one listing for each
// day, two requests for each open plan, and what the work on broken ones takes.
//
// It leaves alone what may be under way, by the service's clock and never by this machine's. It may run on several nodes at
// once, and beside all other calls; it may be broken off at any point and run again. A plan that it can't mend is reported,
// and the rest goes on: the error joins those of the plans, beside the full report.
func (v *Vault) Recover(ctx context.Context, o RecoverOptions) (report RecoveryReport, err error) {
	err = v.call("Recovery", uuid.Nil, func() error {
		r := recovery{v: v, opts: o}
		err := r.run(ctx)
		slices.SortFunc(r.report.Plans, func(a, b RecoveredPlan) int { return storage.NewestFirst(a.ID, b.ID) })
		report = r.report
		return err
	})
	return report, err
}

type recovery struct {
	v    *Vault
	opts RecoverOptions

	mu     sync.Mutex
	report RecoveryReport
}

func (r *recovery) run(ctx context.Context) error {
	days, err := r.v.days(ctx)
	if err != nil {
		return err
	}
	r.report.Days = len(days)
	var (
		plans errgroup.Group
		mu    sync.Mutex
		errs  []error
	)
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	plans.SetLimit(r.v.concurrency)
	for s, err := range r.suspects(ctx, days) {
		if err != nil {
			failed(err) // a day that can't be listed does not keep the others
			continue
		}
		plans.Go(func() error {
			if err := r.settle(ctx, s); err != nil {
				failed(edge("", s.keys.plan, err)) // nor does a plan
			}
			return nil
		})
	}
	_ = plans.Wait()
	return errors.Join(errs...)
}

// suspect is a plan that has a marker, or in a day without markers one that may need something.
type suspect struct {
	keys keys
	// marker and deleteMarker are as listed; nil when they are not there.
	marker, deleteMarker *blob.Item
	// seen is the service's time when the plan was found.
	seen time.Time
}

// suspects yields the plans that may need something. An error stands for what is left of a day.
func (r *recovery) suspects(ctx context.Context, days []day) iter.Seq2[suspect, error] {
	return func(yield func(suspect, error) bool) {
		marked := map[uuid.UUID]bool{} // in days that may have plans without markers
		markers := r.inDays(ctx, days, openDir, markersPage, func(b belongings) (suspect, bool) {
			s := suspect{keys: b.keys, marker: b.marker, deleteMarker: b.deleteMarker}
			if s.marker != nil {
				s.seen = s.marker.Seen
			} else {
				s.seen = s.deleteMarker.Seen
			}
			return s, true
		})
		unmarked := slices.DeleteFunc(slices.Clone(days), func(d day) bool { return d.marked })
		for s, err := range markers {
			if err == nil && slices.ContainsFunc(unmarked, func(d day) bool { return d.container == s.keys.container }) {
				marked[s.keys.plan] = true
			}
			if !yield(s, err) {
				return
			}
		}
		// This layout did not make these containers, so those of their plans that need a marker are found one by one.
		plans := r.inDays(ctx, unmarked, plansDir, blob.MaxPage, func(b belongings) (suspect, bool) {
			settled := b.committed() && isFinal(b.entry) && isFinal(b.object)
			return suspect{keys: b.keys, seen: b.any().Seen}, !settled
		})
		for s, err := range plans {
			if !marked[s.keys.plan] && !yield(s, err) {
				return
			}
		}
	}
}

// inDays lists a directory of days, many at once.
func (r *recovery) inDays(ctx context.Context, days []day, dir string, page int, take func(belongings) (suspect, bool)) iter.Seq2[suspect, error] {
	ahead := func(int) int { return r.v.ahead(page) }
	return backwards(ctx, stretches(days, storage.Filters{}), page, ahead, directory(r.v, dir, nil, take))
}

func isFinal(item *blob.Item) bool {
	s, err := listedState(item.Metadata)
	return err == nil && s.Status.Final()
}

// settle decides about one plan, by what is there now: the listing only said where to look.
func (r *recovery) settle(ctx context.Context, s suspect) error {
	now, err := r.v.look(ctx, s.keys)
	if err != nil {
		return err
	}
	if !now.committed() {
		if slices.ContainsFunc([]*blob.Item{s.marker, s.deleteMarker, now.entry, now.object}, r.young(s)) {
			return r.leave()
		}
		return r.act(s, now.half(), "removed what was left", func() error { return r.remove(ctx, s, now) })
	}
	if s.deleteMarker != nil {
		if r.young(s)(s.deleteMarker) {
			return r.leave()
		}
		err := r.act(s, "a delete marker on a whole plan: a delete was broken off before it began", "removed the delete marker", func() error {
			return r.v.deleteMarker(ctx, s.keys.deleteMarker(), s.deleteMarker.ETag)
		})
		if err != nil {
			return err
		}
	}

	entry, err := listedState(now.entry.Metadata)
	if err != nil {
		return r.fail(s, "metadata that can't be read", at("read metadata of entry", s.keys.entry(), err))
	}
	object, err := listedState(now.object.Metadata)
	if err != nil {
		return r.fail(s, "metadata that can't be read", at("read metadata of object", s.keys.object(), err))
	}
	switch {
	case entry.Status.Final() && object.Status.Final():
		if s.marker == nil {
			return nil
		}
		return r.act(s, "a marker on a plan that is final: its last update was broken off", "removed the marker", func() error {
			return r.v.deleteMarker(ctx, s.keys.marker(), s.marker.ETag)
		})
	case entry.Status.Final():
		return r.act(s, "a final entry beside an object that is not: the last update was broken off", "rewrote the object", func() error {
			return r.complete(ctx, s, now.object.ETag)
		})
	case object.Status.Final():
		// They were asked for at once, so the plan may have been completed between the two answers.
		again, err := r.v.client.Head(ctx, s.keys.entry())
		if blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return nil // deleted meanwhile
		}
		if err != nil {
			return at("look at entry", s.keys.entry(), err)
		}
		if entry, err = listedState(again.Metadata); err == nil && entry.Status.Final() {
			return nil
		}
		return r.fail(s, "a final object beside an entry that is not", at("compare entry and object", s.keys.entry(),
			fmt.Errorf("%w: it says %s, and the object says %s: the entry was set back from outside", storage.ErrCorrupt, entry.Status, object.Status)))
	case entry.Status == workflow.NotStarted:
		return r.verify(ctx, s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Open++
	return nil
}

// margin is what is added to the grace period before anything is removed: time for requests that were sent within it to
// arrive, and for the service's clock, which tells whole seconds.
func (v *Vault) margin() time.Duration { return v.grace/4 + time.Second }

// young says whether a blob had, by a time of the service, been written so recently that its writer may still be at work.
func (v *Vault) young(item *blob.Item, at time.Time) bool {
	return item != nil && at.Sub(item.LastModified) <= v.grace+v.margin()
}

// young is what was so when the plan was listed. The looks at its blobs may be far apart: what was written between them is
// new, however old it has become.
func (r *recovery) young(s suspect) func(*blob.Item) bool {
	return func(item *blob.Item) bool { return r.v.young(item, s.seen) }
}

// remove clears away a plan that is none: object, sub-objects, entry, markers. Each goes only in the version that was seen,
// so that what another process has begun with the same ID meanwhile stays.
func (r *recovery) remove(ctx context.Context, s suspect, now stored) error {
	if now.object != nil {
		err := r.v.client.Delete(ctx, s.keys.object(), blob.IfMatch(now.object.ETag))
		if err != nil {
			return at("remove object", s.keys.object(), err)
		}
	}
	items, err := r.v.listParts(ctx, s.keys, kinds[:])
	if err != nil {
		return err
	}
	parts := make([]blob.Target, len(items))
	for i, item := range items {
		if !item.LastModified.Before(s.seen) {
			// Written since the markers were listed, so another Create of the ID is at work: what was read is no longer so.
			return at("remove sub-objects", s.keys.at(item.Name), fmt.Errorf("%w: it is new", storage.ErrConflict))
		}
		parts[i] = blob.Target{Name: item.Name, ETag: item.ETag}
	}
	if now.entry != nil {
		err = r.v.clear(ctx, s.keys, parts, now.entry.ETag)
	} else {
		err = r.v.deleteParts(ctx, s.keys.container, parts)
	}
	if err != nil {
		return err
	}
	if s.marker != nil {
		if err := r.v.deleteMarker(ctx, s.keys.marker(), s.marker.ETag); err != nil {
			return err
		}
	}
	if s.deleteMarker != nil {
		return r.v.deleteMarker(ctx, s.keys.deleteMarker(), s.deleteMarker.ETag)
	}
	return nil
}

// complete does what the last update of a plan did not come to: it writes the object from entry and sub-objects, and takes
// the marker away.
func (r *recovery) complete(ctx context.Context, s suspect, objectETag string) error {
	entry, err := r.v.readEntry(ctx, s.keys)
	if err != nil {
		return err
	}
	object, _, err := r.v.readObject(ctx, s.keys)
	if err != nil {
		return err
	}
	plan, err := r.v.assemble(ctx, entry, object)
	if err != nil {
		return err
	}
	body, err := encodeObject(plan)
	if err != nil {
		return err
	}
	if _, err := r.v.putObject(ctx, plan, body, blob.IfMatch(objectETag)); err != nil {
		return at("settle object", s.keys.object(), err)
	}
	if s.marker == nil {
		return nil
	}
	return r.v.deleteMarker(ctx, s.keys.marker(), s.marker.ETag)
}

// verify looks whether all sub-objects of a plan that has not started are there. They were written before its object, so one
// that is missing was lost from outside.
func (r *recovery) verify(ctx context.Context, s suspect) error {
	object, read, err := r.v.readObject(ctx, s.keys)
	if errors.Is(err, storage.ErrNotFound) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return r.fail(s, "an object that can't be read", err)
	}
	parts := partsOf(object)
	kinds, _, _ := several(parts)
	items, err := r.v.listParts(ctx, s.keys, kinds)
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(items))
	for _, item := range items {
		there[item.Name] = true
	}
	// What is not listed is looked for by name: a listing can miss a blob, and a delete may have begun.
	parts = slices.DeleteFunc(parts, func(o workflow.Object) bool { return there[s.keys.part(o).Name] })
	missing := make([]bool, len(parts))
	err = r.v.parallel(len(parts), func(i int) error {
		ref := s.keys.part(parts[i])
		_, err := r.v.client.Head(ctx, ref)
		if missing[i] = blob.Is(err, blob.Absent); missing[i] {
			return nil
		}
		return at("look for "+parts[i].Kind().String(), ref, err)
	})
	if err != nil {
		return err
	}
	var lost []workflow.Object
	for i, o := range parts {
		if missing[i] {
			lost = append(lost, o)
		}
	}
	if len(lost) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.report.Open++
		return nil
	}
	now, err := r.v.client.Head(ctx, s.keys.object())
	if blob.Is(err, blob.Absent, blob.AbsentContainer) || err == nil && now.ETag != read.ETag {
		return nil // a delete it was, or the plan was completed or is another one by now
	}
	if err != nil {
		return at("look at object", s.keys.object(), err)
	}
	ref := s.keys.part(lost[0])
	found := fmt.Sprintf("%d of its sub-objects are missing, such as %s: they were lost from outside", len(lost), ref)
	if !r.opts.Repair {
		return r.fail(s, found, &storage.Error{Doing: "look for sub-objects", Blob: ref.String(), Err: fmt.Errorf("%w: %d are missing: Recover with Repair rewrites them", storage.ErrCorrupt, len(lost))})
	}
	return r.act(s, found, "rewrote them from the object", func() error {
		return r.v.parallel(len(lost), func(i int) error { return r.repair(ctx, s.keys, lost[i]) })
	})
}

// repair writes a sub-object anew, as the object has it.
func (r *recovery) repair(ctx context.Context, keys keys, o workflow.Object) error {
	ref := keys.part(o)
	body, err := encodePart(o)
	if err != nil {
		return err
	}
	_, err = r.v.put(ctx, ref, body, blob.IfNew, func(writeID string) (map[string]string, error) { return partMetadata(o, writeID) })
	return at("rewrite "+o.Kind().String(), ref, err)
}

func (r *recovery) leave() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Young++
	return nil
}

// act does something about a plan, unless it is a dry run, and notes it. A version that has changed since it was looked at,
// or is gone, means that somebody else is at work: the next recovery looks again.
func (r *recovery) act(s suspect, found, did string, do func() error) error {
	p := RecoveredPlan{ID: s.keys.plan, Found: found}
	if !r.opts.DryRun {
		switch err := do(); {
		case errors.Is(err, storage.ErrConflict), errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt):
			return r.leave()
		case err != nil:
			p.Err = err
		default:
			p.Did = did
		}
	}
	r.note(p)
	return p.Err
}

func (r *recovery) fail(s suspect, found string, err error) error {
	r.note(RecoveredPlan{ID: s.keys.plan, Found: found, Err: err})
	return err
}

func (r *recovery) note(p RecoveredPlan) {
	r.mu.Lock()
	r.report.Plans = append(r.report.Plans, p)
	r.mu.Unlock()
	tell(r.v.observer.Repair, p)
}
