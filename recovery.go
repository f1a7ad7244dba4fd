package azblob

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

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
	found := make([][]suspect, len(days))
	errs := make([]error, len(days))
	_ = r.v.parallel(len(days), func(i int) error {
		found[i], errs[i] = r.suspects(ctx, days[i])
		return nil // a day that can't be listed does not keep the others
	})
	suspects := slices.Concat(found...)
	failed := make([]error, len(suspects))
	_ = r.v.parallel(len(suspects), func(i int) error {
		failed[i] = edge("", suspects[i].keys.plan, r.settle(ctx, suspects[i]))
		return nil // nor does a plan
	})
	return errors.Join(append(errs, failed...)...)
}

// suspect is a plan that has a marker, or in a day without markers one that may need something.
type suspect struct {
	keys keys
	// marker and deleteMarker are as listed; nil when they are not there.
	marker, deleteMarker *blob.Item
	// seen is the service's time when the plan was found.
	seen time.Time
}

// suspects lists the plans of a day that may need something.
func (r *recovery) suspects(ctx context.Context, d day) ([]suspect, error) {
	var list []suspect
	ref := blob.Ref{Container: d.container, Name: openDir}
	for page, err := range r.v.client.List(ctx, d.container, blob.ListOptions{Prefix: openDir}) {
		if blob.Is(err, blob.AbsentContainer) {
			return nil, nil // dropped as a whole
		}
		if err != nil {
			return list, at("list markers", ref, err)
		}
		for _, item := range page.Items {
			name, ok := parseName(item.Name)
			keys := r.v.prefix.plan(name.plan)
			if !ok || keys.container != d.container {
				continue // not a vault's; Check reports it
			}
			if n := len(list); n == 0 || list[n-1].keys != keys {
				list = append(list, suspect{keys: keys, seen: item.Seen})
			}
			if s := &list[len(list)-1]; name.role == roleMarker {
				s.marker = &item
			} else {
				s.deleteMarker = &item
			}
		}
	}
	if d.marked {
		return list, nil
	}
	// This layout did not make the container, so its plans may have no markers: those that need one are found one by one.
	marked := make(map[keys]bool, len(list))
	for _, s := range list {
		marked[s.keys] = true
	}
	for p, err := range r.v.listPlans(ctx, d.container) {
		if err != nil {
			return list, err
		}
		if !marked[p.keys] && !(p.committed() && isFinal(p.entry) && isFinal(p.object)) {
			list = append(list, suspect{keys: p.keys, seen: p.any().Seen})
		}
	}
	return list, nil
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
		if r.v.young(s.marker, s.deleteMarker, now.entry, now.object) {
			return r.leave()
		}
		return r.act(s, now.half(), "removed what was left", func() error { return r.remove(ctx, s, now) })
	}
	if s.deleteMarker != nil {
		if r.v.young(s.deleteMarker) {
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

// young says whether any of these was written so recently that its writer may still be at work. Both times of each are the
// service's.
func (v *Vault) young(items ...*blob.Item) bool {
	for _, item := range items {
		if item != nil && item.Seen.Sub(item.LastModified) <= v.grace+v.margin() {
			return true
		}
	}
	return false
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
	items, err := r.v.listParts(ctx, s.keys)
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
	object, _, err := r.v.readObject(ctx, s.keys)
	if errors.Is(err, storage.ErrNotFound) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return r.fail(s, "an object that can't be read", err)
	}
	items, err := r.v.listParts(ctx, s.keys)
	if err != nil {
		return err
	}
	there := make(map[string]bool, len(items))
	for _, item := range items {
		there[item.Name] = true
	}
	var lost []workflow.Object
	for _, o := range partsOf(object) {
		ref := s.keys.part(o)
		if there[ref.Name] {
			continue
		}
		// A listing can miss a blob, and a delete may have begun.
		if _, err := r.v.client.Head(ctx, ref); err == nil {
			continue
		} else if !blob.Is(err, blob.Absent) {
			return at("look for "+o.Kind().String(), ref, err)
		}
		lost = append(lost, o)
	}
	if len(lost) == 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.report.Open++
		return nil
	}
	if _, err := r.v.client.Head(ctx, s.keys.object()); blob.Is(err, blob.Absent) {
		return nil // a delete it was
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
