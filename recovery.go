package azblob

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// RecoverOptions say how to recover.
type RecoverOptions struct {
	// DryRun changes nothing and reports what would be done.
	DryRun bool
	// Thorough also mends what no crash leaves: blobs that were lost, or came late, from outside. It lists everything that is
	// stored, and reads the object of each plan, so its cost follows the history. In addition to the default, it
	//   - restores the lost marker of an open plan, without which no Recovery and no search for open plans finds it;
	//   - rewrites lost sub-objects from the object, as they were when it was written. In a Running plan they are then
	//     NotStarted again and may run again, and the report says so;
	//   - restores a lost entry from the object: a final one as it was, any other as Running, because nobody can know
	//     whether it had started;
	//   - removes what belongs to nothing: entries and sub-objects without a plan that no marker leads to, and sub-objects
	//     that their plan's object does not name. All of it is left alone until the grace period and the margin are over;
	//   - names strays in the report.
	//
	// A rewrite that races with a Delete of the plan can leave sub-objects behind, which the next thorough run removes.
	Thorough bool
}

// RecoveryReport says what Recover found.
type RecoveryReport struct {
	// Days is how many containers were looked at.
	Days int
	// Open is how many plans are NotStarted or Running, and whole.
	Open int
	// Young is how many were left alone because they may be under way: less than the grace period and a margin has passed
	// since they were last written, or somebody else was at work on them. Another Recover after that settles them.
	Recent int
	// Plans are those on which something was done, or would be in a dry run, or could not be, newest first. A plan on which
	// several things were done comes several times.
	Plans []RecoveredPlan
	// Strays are blobs that are none of the vault's, as container/name, in no order. Only a thorough Recover looks for them;
	// it leaves them alone.
	Strays []string
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
// It leaves alone what may be under way, by the service's clock and never by this machine's, and by the longest grace period
// of all vaults that wrote markers of the plan. It removes nothing on the word of one answer: that a blob is gone must be
// said by a request for it and by a listing. What no crash of a vault leaves is reported and not removed.
//
// Recover may run on several nodes at once, and beside all other calls; it may be broken off at any point and run again. A
// plan that it can't mend is reported, and the rest goes on: the error joins those of the plans, beside the full report.
func (v *Vault) Recover(ctx context.Context, o RecoverOptions) (report RecoveryReport, err error) {
	err = v.call("Recovery", uuid.Nil, func() error {
		r := recovery{v: v, opts: o}
		err := r.run(ctx)
		slices.SortFunc(r.report.Plans, func(a, b RecoveredPlan) int { return driver.NewestFirst(a.ID, b.ID) })
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
	candidates := r.candidates
	if r.opts.Thorough {
		candidates = r.allPlans
	}
	for s, err := range candidates(ctx, days) {
		if err != nil {
			failed(err) // a day that can't be listed does not keep the others
			continue
		}
		plans.Go(func() error {
			if err := r.recoverPlan(ctx, s); err != nil {
				failed(opError("", s.keys.plan, err)) // nor does a plan
			}
			return nil
		})
	}
	_ = plans.Wait()
	return errors.Join(errs...)
}

// candidates yields the plans that may need something. An error stands for what is left of a day.
func (r *recovery) candidates(ctx context.Context, days []day) iter.Seq2[planBlobs, error] {
	return func(yield func(planBlobs, error) bool) {
		marked := map[uuid.UUID]bool{} // in days that may have plans without markers
		markers := r.listDays(ctx, days, openDir, markersPage, func(b planBlobs) (planBlobs, bool) {
			return b, true
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
		plans := r.listDays(ctx, unmarked, plansDir, blob.MaxPage, func(b planBlobs) (planBlobs, bool) {
			settled := b.committed() && blobStatusOf(b.entry) == final && blobStatusOf(b.object) == final
			return b, !settled
		})
		for s, err := range plans {
			if !marked[s.keys.plan] && !yield(s, err) {
				return
			}
		}
	}
}

// inDays lists a directory of days, many at once.
func (r *recovery) listDays(ctx context.Context, days []day, dir string, page int, take func(planBlobs) (planBlobs, bool)) iter.Seq2[planBlobs, error] {
	ahead := func(int) int { return r.v.ahead(page) }
	all := func(string) bool { return true } // markers tell grace periods, entries and objects states
	return backwards(ctx, stretches(days, storage.Filters{}), page, ahead, directory(r.v, dir, all, take))
}

// everything yields all plans of all days with all that is stored of them, and notes strays.
func (r *recovery) allPlans(ctx context.Context, days []day) iter.Seq2[planBlobs, error] {
	return func(yield func(planBlobs, error) bool) {
		for _, d := range days {
			stray := func(name, _ string) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.report.Strays = append(r.report.Strays, blob.Ref{Container: d.container, Name: name}.String())
			}
			if err := r.v.strays(ctx, d, stray); err != nil && !yield(planBlobs{}, err) {
				return
			}
			for b, err := range r.v.dayPlans(ctx, d, stray) {
				if err != nil {
					if !yield(planBlobs{}, err) {
						return
					}
					break
				}
				if !yield(b, nil) {
					return
				}
			}
		}
	}
}

// rounds bounds what is done on one plan in one run; each thing that is mended may bring out another.
const recoverRounds = 8

// settle decides about one plan, by what is there now: the listing only said where to look.
func (r *recovery) recoverPlan(ctx context.Context, s planBlobs) error {
	for range recoverRounds {
		again, err := r.recoverStep(ctx, &s)
		if err != nil || !again {
			return err
		}
	}
	return nil
}

// mend does the first thing that is to be done about a plan, and notes in the suspect what has changed by it. It says whether
// to look for another.
func (r *recovery) recoverStep(ctx context.Context, s *planBlobs) (again bool, err error) {
	c, err := r.v.examine(ctx, *s, r.opts.Thorough)
	switch {
	case errors.Is(err, storage.ErrConflict):
		return false, r.countRecent()
	case errors.Is(err, storage.ErrCorrupt):
		return false, r.fail(s.keys, "a marker that can't be read", err)
	case err != nil:
		return false, r.lookFailed(ctx, s.keys, err)
	}
	keys := s.keys
	switch c.finding {
	case openPlan:
		return false, r.countOpen()
	case tooRecent:
		return false, r.countRecent()
	case remains:
		_, err = r.act(c, func() (string, error) { return "removed what was left", r.v.removeRemains(ctx, c) })
	case lostObject, lostEntry, unreadableState:
		err = r.fail(keys, c.String(), c.err())
	case restorableEntry:
		again, err = r.act(c, func() (string, error) { return r.restoreEntry(ctx, keys) })
		again = again && !r.opts.DryRun
	case leftDelete:
		again, err = r.act(c, func() (string, error) {
			return "rewrote the object, so that the delete can't go on, and removed the delete marker", r.dismissDelete(ctx, c)
		})
		s.deleteMarker = nil
	case unfinalized:
		if r.opts.Thorough {
			if err := r.verify(ctx, c); err != nil { // a completion needs all sub-objects
				return false, err
			}
		}
		again, err = r.act(c, func() (string, error) { return "rewrote the object", r.completeObject(ctx, c) })
		again = again && r.opts.Thorough && !r.opts.DryRun
		s.marker = nil
	case leftMarker:
		again, err = r.act(c, func() (string, error) {
			return "removed the marker", r.v.removeMarker(ctx, keys, keys.marker(), c.marker)
		})
		again = again && r.opts.Thorough
		s.marker = nil
	case lostMarker:
		s.marker = &blob.Item{Name: keys.marker().Name}
		again, err = r.act(c, func() (did string, err error) {
			s.marker.ETag, err = r.restoreMarker(ctx, keys)
			return "restored the marker", err
		})
	case setBack:
		err = r.confirmSetBack(ctx, keys)
	case unverified:
		err = r.verify(ctx, c)
	}
	return again, err
}

// keep makes an old delete marker on a whole plan harmless, and removes it. A Delete may have been held up between its marker
// and its commit for any time, on a machine that slept too. It demands the object's version, so the object is written anew
// before the marker goes.
func (r *recovery) dismissDelete(ctx context.Context, c diagnosis) error {
	keys := c.keys
	if _, _, err := r.rewriteObject(ctx, keys); err != nil {
		return err
	}
	return r.v.removeMarker(ctx, keys, keys.deleteMarker(), c.deleteMarker)
}

// rewriteObject writes an object anew, as it is, so that whoever knows its old version can't change or remove it.
func (r *recovery) rewriteObject(ctx context.Context, keys keys) (plan *workflow.Plan, etag string, err error) {
	ref := keys.object()
	body, p, err := r.v.client.Get(ctx, ref)
	if err != nil {
		return nil, "", blobError("read object", ref, err)
	}
	if plan, err = decodeObject(body, keys.plan); err != nil {
		return nil, "", blobError("read object", ref, err) // it may be a newer program's
	}
	w, err := r.v.put(ctx, ref, body, blob.IfMatch(p.ETag), func(writeID string) (map[string]string, error) {
		p.Metadata[blob.WriteID] = writeID
		return p.Metadata, nil
	})
	return plan, w.etag, blobError("rewrite object", ref, err)
}

// complete does what the last update of a plan did not come to: it writes the object from entry and sub-objects, and takes
// the marker away.
func (r *recovery) completeObject(ctx context.Context, c diagnosis) error {
	keys := c.keys
	entry, err := r.v.readEntry(ctx, keys)
	if err != nil {
		return err
	}
	if !entry.State.Status.Final() {
		return vaultError("read entry", keys.entry(), "%w: its metadata says that the plan is final, and it says %s: restore the blob from a backup", storage.ErrCorrupt, entry.State.Status)
	}
	if err := r.rebuildObject(ctx, entry, c); err != nil {
		return err
	}
	// A marker that is gone or has changed meanwhile takes nothing from that.
	if err := r.v.removeMarker(ctx, keys, keys.marker(), c.marker); !overtaken(err) {
		return err
	}
	return nil
}

// settleObject writes a plan's object anew from its entry and sub-objects, over the version that was looked at.
func (r *recovery) rebuildObject(ctx context.Context, entry *workflow.Plan, c diagnosis) error {
	keys := c.keys
	object, _, err := r.v.readObject(ctx, keys)
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
	_, err = r.v.putObject(ctx, plan, body, blob.IfMatch(c.object.ETag))
	return blobError("settle object", keys.object(), err)
}

// renewObject gives the object of a plan that has not started the versions of sub-objects that were rewritten: readers take
// them from it. Once the plan runs they ask for the sub-objects.
func (r *recovery) renewObject(ctx context.Context, c diagnosis) error {
	entry, err := r.v.readEntry(ctx, c.keys)
	if err != nil || entry.State.Status != workflow.NotStarted {
		return err
	}
	return r.rebuildObject(ctx, entry, c)
}

// setBack is about a final object beside an entry that is not.
func (r *recovery) confirmSetBack(ctx context.Context, keys keys) error {
	// They were asked for at once, so the plan may have been completed between the two answers.
	now, err := r.v.headPlan(ctx, "look at entry", keys)
	if err != nil {
		return r.lookFailed(ctx, keys, err)
	}
	if !now.committed() || blobStatusOf(now.entry) == final {
		return nil
	}
	return r.fail(keys, "a final object beside an entry that is not", blobError("compare entry and object", keys.entry(),
		fmt.Errorf("%w: the object is final and the entry is not: it was set back from outside", storage.ErrCorrupt)))
}

// verify looks whether all sub-objects of a plan are there. They were written before its object, so one that is missing was
// lost from outside. A thorough Recovery also looks for those that the object does not name.
func (r *recovery) verify(ctx context.Context, c diagnosis) error {
	keys := c.keys
	object, read, err := r.v.readObject(ctx, keys)
	if errors.Is(err, storage.ErrNotFound) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return r.fail(keys, "an object that can't be read", err)
	}
	parts := workflow.Parts(object)
	items := c.parts
	if !r.opts.Thorough {
		kinds, _, _ := kindsWorthListing(parts)
		if items, err = r.v.listParts(ctx, keys, kinds); err != nil {
			return r.lookFailed(ctx, keys, err)
		}
	}
	there := make(map[string]string, len(items))
	for _, item := range items {
		there[item.Name] = item.ETag
	}
	named := make(map[string]bool, len(parts))
	var lost []workflow.Object
	stale := false // the object has versions that are no longer there
	for _, o := range parts {
		name := keys.part(o).Name
		named[name] = true
		version, _, _ := driver.SplitVersion(o.Header().State.ETag)
		if etag, ok := there[name]; !ok {
			lost = append(lost, o)
		} else if etag != version {
			stale = true
		}
	}
	// An earlier Recovery may have died between a sub-object and the object, or met another.
	stale = stale && r.opts.Thorough && blobStatusOf(c.entry) == notStarted && !recent(c.object, c.seen, c.grace)
	// What is not listed is looked for by name: a listing can miss a blob, and a delete may have begun.
	lost, err = r.confirmLost(ctx, keys, lost)
	if errors.Is(err, storage.ErrConflict) {
		return r.countRecent()
	}
	if err != nil {
		return r.lookFailed(ctx, keys, err)
	}
	extra := slices.DeleteFunc(slices.Clone(c.parts), func(item blob.Item) bool {
		return named[item.Name] || recent(&item, c.seen, c.grace)
	})
	if len(lost)+len(extra) == 0 && !stale {
		if blobStatusOf(c.entry) == final {
			return nil
		}
		return r.countOpen()
	}
	now, err := r.v.client.Head(ctx, keys.object())
	if blob.Is(err, blob.Absent, blob.AbsentContainer) || err == nil && now.ETag != read.ETag {
		return nil // a delete it was, or the plan was completed or is another one by now
	}
	if err != nil {
		return r.lookFailed(ctx, keys, blobError("look at object", keys.object(), err))
	}
	if len(lost) == 0 && stale {
		_, err = r.repair(keys, "sub-objects of a plan that has not started are newer than its object", func() (string, error) {
			return "rewrote the object", r.renewObject(ctx, c)
		})
	}
	return errors.Join(err, r.restoreParts(ctx, c, lost), r.removeExtra(ctx, c, extra))
}

// missing leaves those of a plan's sub-objects that are not there, by their names and by a listing.
func (r *recovery) confirmLost(ctx context.Context, keys keys, parts []workflow.Object) ([]workflow.Object, error) {
	gone := make([]bool, len(parts))
	err := r.v.parallel(len(parts), func(i int) error {
		ref := keys.part(parts[i])
		_, err := r.v.client.Head(ctx, ref)
		if gone[i] = blob.Is(err, blob.Absent); gone[i] {
			return nil
		}
		return blobError("look for "+parts[i].Kind().String(), ref, err)
	})
	if err != nil {
		return nil, err
	}
	var lost []workflow.Object
	var refs []blob.Ref
	for i, o := range parts {
		if gone[i] {
			lost, refs = append(lost, o), append(refs, keys.part(o))
		}
	}
	if len(lost) == 0 {
		return nil, nil
	}
	return lost, r.v.confirmGone(ctx, keys, refs...)
}

// lostParts reports sub-objects that are not there, or rewrites them from the object.
func (r *recovery) restoreParts(ctx context.Context, c diagnosis, lost []workflow.Object) error {
	if len(lost) == 0 {
		return nil
	}
	keys := c.keys
	ref := keys.part(lost[0])
	found := fmt.Sprintf("%d of its sub-objects are missing, such as %s: they were lost from outside", len(lost), ref)
	if !r.opts.Thorough {
		return r.fail(keys, found, vaultError("look for sub-objects", ref, "%w: %d are missing: Recover with Thorough rewrites them", storage.ErrCorrupt, len(lost)))
	}
	did := "rewrote them from the object"
	if blobStatusOf(c.entry) == running {
		did += ", which has them as NotStarted: they may run again"
	}
	_, err := r.repair(keys, found, func() (string, error) {
		err := r.v.parallel(len(lost), func(i int) error { return r.rewritePart(ctx, keys, lost[i]) })
		if err == nil && blobStatusOf(c.entry) == notStarted {
			err = r.renewObject(ctx, c)
		}
		return did, err
	})
	return err
}

// rewrite writes a sub-object anew, as the object has it.
func (r *recovery) rewritePart(ctx context.Context, keys keys, o workflow.Object) error {
	ref := keys.part(o)
	body, err := encodePart(o)
	if err != nil {
		return err
	}
	_, err = r.v.put(ctx, ref, body, blob.IfNew, func(writeID string) (map[string]string, error) { return partMetadata(o, writeID) })
	return blobError("rewrite "+o.Kind().String(), ref, err)
}

// extraParts removes sub-objects that the plan's object does not name, in the version that was listed.
func (r *recovery) removeExtra(ctx context.Context, c diagnosis, extra []blob.Item) error {
	if len(extra) == 0 {
		return nil
	}
	keys := c.keys
	found := fmt.Sprintf("%d sub-objects, such as %s, that the object does not name", len(extra), keys.at(extra[0].Name))
	_, err := r.repair(keys, found, func() (string, error) { return "removed them", r.v.removeParts(ctx, keys, targetsOf(extra)) })
	return err
}

// restoreMarker writes the marker of an open plan that has lost it. Where the plan is completed or deleted meanwhile a later
// Recovery removes it.
func (r *recovery) restoreMarker(ctx context.Context, keys keys) (etag string, err error) {
	ref := keys.marker()
	w, err := r.v.put(ctx, ref, nil, blob.IfNew, func(writeID string) (map[string]string, error) {
		return markerMetadata(writeID, r.v.grace), nil
	})
	return w.etag, blobError("write marker", ref, err)
}

// restoreEntry writes the entry of a plan that has lost it, from its object. The object is written anew first, and looked at
// afterwards: a Delete or a completion that is under way is refused then, or shows.
//
// An open plan becomes Running, whether it had started or not: of a plan that is NotStarted readers take the sub-objects from
// the object, so an update that is under way would never be seen.
func (r *recovery) restoreEntry(ctx context.Context, keys keys) (did string, err error) {
	plan, objectETag, err := r.rewriteObject(ctx, keys)
	if err != nil {
		return "", err
	}
	if !plan.State.Status.Final() {
		plan.State.Status = workflow.Running
	}
	body, err := encodeEntry(plan)
	if err != nil {
		return "", err
	}
	ref := keys.entry()
	entry, err := r.v.put(ctx, ref, body, blob.IfNew, func(writeID string) (map[string]string, error) {
		return planMetadata(plan, typeEntry, writeID)
	})
	if err != nil {
		return "", blobError("rewrite entry", ref, err)
	}
	now, err := r.v.client.Head(ctx, keys.object())
	switch {
	case err == nil && now.ETag == objectETag:
		return fmt.Sprintf("restored the entry from the object, as %s", plan.State.Status), nil
	case err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer):
		return "", blobError("look at object", keys.object(), err)
	}
	if err := r.v.remove(ctx, "remove entry", keys, ref, blob.IfMatch(entry.etag)); err != nil {
		return "", err
	}
	return "", vaultError("look at object", keys.object(), "%w: it has changed", storage.ErrConflict)
}

func (r *recovery) countRecent() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Recent++
	return nil
}

func (r *recovery) countOpen() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Open++
	return nil
}

// act does something about what is wrong with a plan.
func (r *recovery) act(c diagnosis, do func() (did string, err error)) (done bool, err error) {
	return r.repair(c.keys, c.String(), do)
}

// do does something about a plan, unless it is a dry run, and notes it. A version that has changed since it was looked at, or
// is gone, means that somebody else is at work: the next recovery looks again.
func (r *recovery) repair(keys keys, found string, do func() (did string, err error)) (done bool, err error) {
	p := RecoveredPlan{ID: keys.plan, Found: found}
	if !r.opts.DryRun {
		switch did, err := do(); {
		case overtaken(err):
			return false, r.countRecent()
		case err != nil:
			p.Err = err
		default:
			p.Did = did
		}
	}
	r.note(p)
	return p.Err == nil, p.Err
}

// blind reports a plan that could not be looked at. The end of the context says nothing about a plan.
func (r *recovery) lookFailed(ctx context.Context, keys keys, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return r.fail(keys, "a plan that could not be looked at", err)
}

func (r *recovery) fail(keys keys, found string, err error) error {
	r.note(RecoveredPlan{ID: keys.plan, Found: found, Err: err})
	return err
}

func (r *recovery) note(p RecoveredPlan) {
	r.mu.Lock()
	r.report.Plans = append(r.report.Plans, p)
	r.mu.Unlock()
	notify(r.v.observer.Repair, p)
}
