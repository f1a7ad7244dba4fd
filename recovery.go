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
	Young int
	// Plans are those on which something was done, or would be in a dry run, or could not be, newest first. A plan on which
	// several things were done comes several times.
	Plans []RecoveredPlan
	// Strays are blobs that are none of the vault's, as container/name, in no order. Only a thorough Recover looks for them;
	// it leaves them alone.
	Strays []string
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
	suspects := r.suspects
	if r.opts.Thorough {
		suspects = r.everything
	}
	for s, err := range suspects(ctx, days) {
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

// suspects yields the plans that may need something. An error stands for what is left of a day.
func (r *recovery) suspects(ctx context.Context, days []day) iter.Seq2[suspect, error] {
	return func(yield func(suspect, error) bool) {
		marked := map[uuid.UUID]bool{} // in days that may have plans without markers
		markers := r.inDays(ctx, days, openDir, markersPage, func(b belongings) (suspect, bool) {
			return suspicious(b), true
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
			settled := b.committed() && sightOf(b.entry) == final && sightOf(b.object) == final
			return suspicious(b), !settled
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
	all := func(string) bool { return true } // markers tell grace periods, entries and objects states
	return backwards(ctx, stretches(days, storage.Filters{}), page, ahead, directory(r.v, dir, all, take))
}

// everything yields all plans of all days with all that is stored of them, and notes strays.
func (r *recovery) everything(ctx context.Context, days []day) iter.Seq2[suspect, error] {
	return func(yield func(suspect, error) bool) {
		for _, d := range days {
			stray := func(name, _ string) {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.report.Strays = append(r.report.Strays, blob.Ref{Container: d.container, Name: name}.String())
			}
			if err := r.v.strays(ctx, d, stray); err != nil && !yield(suspect{}, err) {
				return
			}
			for b, err := range r.v.belongings(ctx, d, stray) {
				if err != nil {
					if !yield(suspect{}, err) {
						return
					}
					break
				}
				s := suspicious(b)
				s.parts, s.listed = b.parts, true
				if !yield(s, nil) {
					return
				}
			}
		}
	}
}

// suspicious makes a suspect of what was listed of a plan: it was seen when the first of that was.
func suspicious(b belongings) suspect {
	s := suspect{keys: b.keys, marker: b.marker, deleteMarker: b.deleteMarker, marked: b.marked}
	for _, item := range b.all() {
		if s.seen.IsZero() || item.Seen.Before(s.seen) {
			s.seen = item.Seen
		}
	}
	return s
}

// rounds bounds what is done on one plan in one run; each thing that is mended may bring out another.
const rounds = 8

// settle decides about one plan, by what is there now: the listing only said where to look.
func (r *recovery) settle(ctx context.Context, s suspect) error {
	for range rounds {
		again, err := r.mend(ctx, &s)
		if err != nil || !again {
			return err
		}
	}
	return nil
}

// mend does the first thing that is to be done about a plan, and notes in the suspect what has changed by it. It says whether
// to look for another.
func (r *recovery) mend(ctx context.Context, s *suspect) (again bool, err error) {
	c, err := r.v.examine(ctx, *s, r.opts.Thorough)
	switch {
	case errors.Is(err, storage.ErrConflict):
		return false, r.leave()
	case errors.Is(err, storage.ErrCorrupt):
		return false, r.fail(s.keys, "a marker that can't be read", err)
	case err != nil:
		return false, r.blind(ctx, s.keys, err)
	}
	keys := s.keys
	switch c.found {
	case openPlan:
		return false, r.open()
	case tooYoung:
		return false, r.leave()
	case remains:
		_, err = r.act(c, func() (string, error) { return "removed what was left", r.v.clear(ctx, c) })
	case lostObject, lostEntry, unreadableState:
		err = r.fail(keys, c.String(), c.err())
	case restorableEntry:
		again, err = r.act(c, func() (string, error) { return r.restoreEntry(ctx, keys) })
		again = again && !r.opts.DryRun
	case leftDelete:
		again, err = r.act(c, func() (string, error) {
			return "rewrote the object, so that the delete can't go on, and removed the delete marker", r.keep(ctx, c)
		})
		s.deleteMarker = nil
	case unsettledPlan:
		if r.opts.Thorough {
			if err := r.verify(ctx, c); err != nil { // a completion needs all sub-objects
				return false, err
			}
		}
		again, err = r.act(c, func() (string, error) { return "rewrote the object", r.complete(ctx, c) })
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
		err = r.setBack(ctx, keys)
	case unverified:
		err = r.verify(ctx, c)
	}
	return again, err
}

// keep makes an old delete marker on a whole plan harmless, and removes it. A Delete may have been held up between its marker
// and its commit for any time, on a machine that slept too. It demands the object's version, so the object is written anew
// before the marker goes.
func (r *recovery) keep(ctx context.Context, c condition) error {
	keys := c.suspect.keys
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
		return nil, "", at("read object", ref, err)
	}
	if plan, err = decodeObject(body, keys.plan); err != nil {
		return nil, "", at("read object", ref, err) // it may be a newer program's
	}
	w, err := r.v.put(ctx, ref, body, blob.IfMatch(p.ETag), func(writeID string) (map[string]string, error) {
		p.Metadata[blob.WriteID] = writeID
		return p.Metadata, nil
	})
	return plan, w.etag, at("rewrite object", ref, err)
}

// complete does what the last update of a plan did not come to: it writes the object from entry and sub-objects, and takes
// the marker away.
func (r *recovery) complete(ctx context.Context, c condition) error {
	keys := c.suspect.keys
	entry, err := r.v.readEntry(ctx, keys)
	if err != nil {
		return err
	}
	if !entry.State.Status.Final() {
		return &storage.Error{Doing: "read entry", Blob: keys.entry().String(), Err: fmt.Errorf("%w: its metadata says that the plan is final, and it says %s: restore the blob from a backup", storage.ErrCorrupt, entry.State.Status)}
	}
	if err := r.settleObject(ctx, entry, c); err != nil {
		return err
	}
	// A marker that is gone or has changed meanwhile takes nothing from that.
	if err := r.v.removeMarker(ctx, keys, keys.marker(), c.marker); !outrun(err) {
		return err
	}
	return nil
}

// settleObject writes a plan's object anew from its entry and sub-objects, over the version that was looked at.
func (r *recovery) settleObject(ctx context.Context, entry *workflow.Plan, c condition) error {
	keys := c.suspect.keys
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
	_, err = r.v.putObject(ctx, plan, body, blob.IfMatch(c.now.object.ETag))
	return at("settle object", keys.object(), err)
}

// renewObject gives the object of a plan that has not started the versions of sub-objects that were rewritten: readers take
// them from it. Once the plan runs they ask for the sub-objects.
func (r *recovery) renewObject(ctx context.Context, c condition) error {
	entry, err := r.v.readEntry(ctx, c.suspect.keys)
	if err != nil || entry.State.Status != workflow.NotStarted {
		return err
	}
	return r.settleObject(ctx, entry, c)
}

// setBack is about a final object beside an entry that is not.
func (r *recovery) setBack(ctx context.Context, keys keys) error {
	// They were asked for at once, so the plan may have been completed between the two answers.
	now, err := r.v.look(ctx, "look at entry", keys)
	if err != nil {
		return r.blind(ctx, keys, err)
	}
	if !now.committed() || sightOf(now.entry) == final {
		return nil
	}
	return r.fail(keys, "a final object beside an entry that is not", at("compare entry and object", keys.entry(),
		fmt.Errorf("%w: the object is final and the entry is not: it was set back from outside", storage.ErrCorrupt)))
}

// verify looks whether all sub-objects of a plan are there. They were written before its object, so one that is missing was
// lost from outside. A thorough Recovery also looks for those that the object does not name.
func (r *recovery) verify(ctx context.Context, c condition) error {
	keys := c.suspect.keys
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
		kinds, _, _ := several(parts)
		if items, err = r.v.listParts(ctx, keys, kinds); err != nil {
			return r.blind(ctx, keys, err)
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
	stale = stale && r.opts.Thorough && sightOf(c.now.entry) == notStarted && !young(c.now.object, c.seen, c.grace)
	// What is not listed is looked for by name: a listing can miss a blob, and a delete may have begun.
	lost, err = r.missing(ctx, keys, lost)
	if errors.Is(err, storage.ErrConflict) {
		return r.leave()
	}
	if err != nil {
		return r.blind(ctx, keys, err)
	}
	extra := slices.DeleteFunc(slices.Clone(c.parts), func(item blob.Item) bool {
		return named[item.Name] || young(&item, c.seen, c.grace)
	})
	if len(lost)+len(extra) == 0 && !stale {
		if sightOf(c.now.entry) == final {
			return nil
		}
		return r.open()
	}
	now, err := r.v.client.Head(ctx, keys.object())
	if blob.Is(err, blob.Absent, blob.AbsentContainer) || err == nil && now.ETag != read.ETag {
		return nil // a delete it was, or the plan was completed or is another one by now
	}
	if err != nil {
		return r.blind(ctx, keys, at("look at object", keys.object(), err))
	}
	if len(lost) == 0 && stale {
		_, err = r.do(keys, "sub-objects of a plan that has not started are newer than its object", func() (string, error) {
			return "rewrote the object", r.renewObject(ctx, c)
		})
	}
	return errors.Join(err, r.lostParts(ctx, c, lost), r.extraParts(ctx, c, extra))
}

// missing leaves those of a plan's sub-objects that are not there, by their names and by a listing.
func (r *recovery) missing(ctx context.Context, keys keys, parts []workflow.Object) ([]workflow.Object, error) {
	gone := make([]bool, len(parts))
	err := r.v.parallel(len(parts), func(i int) error {
		ref := keys.part(parts[i])
		_, err := r.v.client.Head(ctx, ref)
		if gone[i] = blob.Is(err, blob.Absent); gone[i] {
			return nil
		}
		return at("look for "+parts[i].Kind().String(), ref, err)
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
func (r *recovery) lostParts(ctx context.Context, c condition, lost []workflow.Object) error {
	if len(lost) == 0 {
		return nil
	}
	keys := c.suspect.keys
	ref := keys.part(lost[0])
	found := fmt.Sprintf("%d of its sub-objects are missing, such as %s: they were lost from outside", len(lost), ref)
	if !r.opts.Thorough {
		return r.fail(keys, found, &storage.Error{Doing: "look for sub-objects", Blob: ref.String(), Err: fmt.Errorf("%w: %d are missing: Recover with Thorough rewrites them", storage.ErrCorrupt, len(lost))})
	}
	did := "rewrote them from the object"
	if sightOf(c.now.entry) == running {
		did += ", which has them as NotStarted: they may run again"
	}
	_, err := r.do(keys, found, func() (string, error) {
		err := r.v.parallel(len(lost), func(i int) error { return r.rewrite(ctx, keys, lost[i]) })
		if err == nil && sightOf(c.now.entry) == notStarted {
			err = r.renewObject(ctx, c)
		}
		return did, err
	})
	return err
}

// rewrite writes a sub-object anew, as the object has it.
func (r *recovery) rewrite(ctx context.Context, keys keys, o workflow.Object) error {
	ref := keys.part(o)
	body, err := encodePart(o)
	if err != nil {
		return err
	}
	_, err = r.v.put(ctx, ref, body, blob.IfNew, func(writeID string) (map[string]string, error) { return partMetadata(o, writeID) })
	return at("rewrite "+o.Kind().String(), ref, err)
}

// extraParts removes sub-objects that the plan's object does not name, in the version that was listed.
func (r *recovery) extraParts(ctx context.Context, c condition, extra []blob.Item) error {
	if len(extra) == 0 {
		return nil
	}
	keys := c.suspect.keys
	found := fmt.Sprintf("%d sub-objects, such as %s, that the object does not name", len(extra), keys.at(extra[0].Name))
	_, err := r.do(keys, found, func() (string, error) { return "removed them", r.v.removeParts(ctx, keys, targetsOf(extra)) })
	return err
}

// restoreMarker writes the marker of an open plan that has lost it. Where the plan is completed or deleted meanwhile a later
// Recovery removes it.
func (r *recovery) restoreMarker(ctx context.Context, keys keys) (etag string, err error) {
	ref := keys.marker()
	w, err := r.v.put(ctx, ref, nil, blob.IfNew, func(writeID string) (map[string]string, error) {
		return markerMetadata(writeID, r.v.grace), nil
	})
	return w.etag, at("write marker", ref, err)
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
		return "", at("rewrite entry", ref, err)
	}
	now, err := r.v.client.Head(ctx, keys.object())
	switch {
	case err == nil && now.ETag == objectETag:
		return fmt.Sprintf("restored the entry from the object, as %s", plan.State.Status), nil
	case err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer):
		return "", at("look at object", keys.object(), err)
	}
	if err := r.v.remove(ctx, "remove entry", keys, ref, blob.IfMatch(entry.etag)); err != nil {
		return "", err
	}
	return "", at("look at object", keys.object(), fmt.Errorf("%w: it has changed", storage.ErrConflict))
}

func (r *recovery) leave() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Young++
	return nil
}

func (r *recovery) open() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Open++
	return nil
}

// act does something about what is wrong with a plan.
func (r *recovery) act(c condition, do func() (did string, err error)) (done bool, err error) {
	return r.do(c.suspect.keys, c.String(), do)
}

// do does something about a plan, unless it is a dry run, and notes it. A version that has changed since it was looked at, or
// is gone, means that somebody else is at work: the next recovery looks again.
func (r *recovery) do(keys keys, found string, do func() (did string, err error)) (done bool, err error) {
	p := RecoveredPlan{ID: keys.plan, Found: found}
	if !r.opts.DryRun {
		switch did, err := do(); {
		case outrun(err):
			return false, r.leave()
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
func (r *recovery) blind(ctx context.Context, keys keys, err error) error {
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
	tell(r.v.observer.Repair, p)
}
