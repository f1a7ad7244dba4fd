package azblob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Create stores a plan. It takes N+3 requests for N sub-objects, and one more for the first plan of a day.
// Before it sends any, it fills in what the author left out: IDs (as UUIDv7), PlanIDs, SubmitTime, and
// Submitted from the context (see [storage.WithActor]), so that the same plan can be created again after
// [storage.ErrUnknown]. Every status must be NotStarted.
//
// The last request makes the plan visible as a whole; before it no reader sees any part. A Create that takes
// longer than the grace period fails. If the plan has been started by then it stays, and the error is
// ErrUnknown. Otherwise a failed Create leaves nothing, or, if the outcome of a request is unknown, remains
// that no reader sees. Recovery removes remains, and so does the next Create of the same ID, once they are
// older than the grace period and the margin; that Create takes more requests.
//
// Errors: [storage.ErrInvalid] before anything is sent; [storage.ErrExists] if there is a plan of this ID;
// [storage.ErrConflict] if another Create or Delete of the ID is under way, or ended so recently that its
// remains can't be judged yet: the error says when to call again; [storage.ErrUnknown] if the context or the
// grace period ended in the middle: a Create of the same plan then returns nil, ErrExists or ErrConflict.
func (v *Vault) Create(ctx context.Context, plan *workflow.Plan) error {
	var id uuid.UUID
	if plan != nil {
		id = plan.ID
	}
	return v.call(ctx, "Create", id, func(ctx context.Context) error {
		if err := driver.Accept(ctx, plan, v.reg); err != nil {
			return err
		}
		identify(ctx, plan.ID)
		return opError("Create", plan.ID, v.create(ctx, plan, planMarks{}))
	})
}

// create creates a plan, or restores one as it is. If remains of an earlier call with the ID are in the way, it
// removes them and tries once more.
func (s *store) create(ctx context.Context, plan *workflow.Plan, marks planMarks) error {
	for first := true; ; first = false {
		c, err := s.newCreation(plan, marks)
		if err != nil {
			return err
		}
		err = c.run(ctx)
		if !first || !errors.Is(err, errRemains) || errors.Is(err, storage.ErrUnknown) {
			return err
		}
		if err := c.clearRemains(ctx); err != nil {
			return err
		}
	}
}

// clearRemains removes the remains of a plan if they are older than the grace period and the margin. It
// decides and removes as Recovery does, so any number of Creates and Recoveries may do it at once.
func (s planStore) clearRemains(ctx context.Context) error {
	const doing = "look for remains"
	tooSoon := func(wait time.Duration) error {
		return vaultError(doing, s.keys.entry(), "%w: a create or delete of this ID is under way, or did not finish: call again in %v", storage.ErrConflict, wait)
	}
	b, err := s.listMarkers(ctx)
	if err != nil {
		return err
	}
	d, err := s.examine(ctx, b, false)
	if err != nil {
		return err
	}
	switch {
	case d.committed():
		return vaultError(doing, s.keys.object(), "%w: the plan has been created meanwhile", storage.ErrExists)
	case d.entryOrObject() == nil && d.deleteMarker == nil:
		// Only a marker and sub-objects can be there. A Create takes over a marker of any age, so only the
		// sub-objects count.
		wait, err := s.clearParts(ctx, d)
		if err == nil && wait > 0 {
			return tooSoon(wait)
		}
		return err
	case d.finding == remains:
		return s.removeRemains(ctx, d)
	case d.finding == tooRecent:
		return tooSoon(d.wait())
	default:
		return vaultError(doing, s.keys.entry(), "%w: a damaged plan has this ID: %w", storage.ErrConflict, d.err())
	}
}

// clearParts removes the sub-objects of a plan that has neither entry nor object. If one is recent it removes
// none, and returns how long to wait. A late copy of a request can leave such sub-objects after its Create
// has undone itself; no marker leads to them.
func (s planStore) clearParts(ctx context.Context, d diagnosis) (wait time.Duration, err error) {
	items, err := s.listMarked(ctx)
	if err != nil || len(items) == 0 {
		return 0, err
	}
	if err := s.confirmGone(ctx, d.missing()...); err != nil {
		return 0, err
	}
	orphans := diagnosis{planBlobs: planBlobs{keys: d.keys, parts: items, seen: items[0].Seen}, grace: d.grace}
	if orphans.signs(false).recent {
		return orphans.wait(), nil
	}
	return 0, s.removeParts(ctx, targetsOf(items))
}

// creation is a Create or a Restore that is running.
type creation struct {
	planStore
	plan *workflow.Plan
	// marks are those of the entry. A plan that is restored may have any status.
	marks planMarks
	// call is the writeid of all blobs of this Create. Another Create of the same plan has another one: it
	// must not continue with blobs that Recovery may be removing.
	call  string
	entry blobWrite
	parts []partWrite

	// markerETag is empty if another Create may share the marker.
	markerETag, entryETag string
	// marker is the version of the marker that this Create wrote last, shared or not, and when.
	marker struct {
		etag string
		seen time.Time
	}
}

// blobWrite is what to write to a blob.
type blobWrite struct {
	ref      blob.Ref
	body     []byte
	metadata map[string]string
}

type partWrite struct {
	object workflow.Object
	blobWrite
	etag string // empty until the write has succeeded
}

// newCreation encodes everything that is sent before the object, so that nothing is sent of a plan that can't
// be encoded.
func (s *store) newCreation(plan *workflow.Plan, marks planMarks) (*creation, error) {
	c := &creation{planStore: s.plan(s.prefix.plan(plan.ID)), plan: plan, marks: marks, call: uuid.NewString()}
	size := 0
	for o := range workflow.Walk(plan) {
		w, err := c.write(o, c.call)
		if err != nil {
			return nil, driver.Unencodable(plan, true, err)
		}
		if o == workflow.Object(plan) {
			c.entry = w
		} else {
			c.parts = append(c.parts, partWrite{object: o, blobWrite: w})
		}
		size += len(w.body) + 64 // the object holds all of them, and an ETag for each
	}
	if size > blob.MaxBody {
		return nil, driver.Invalid("Plan", "needs %d bytes, at most %d are allowed", size, blob.MaxBody)
	}
	return c, nil
}

// write encodes the blob with an object's own fields.
func (c *creation) write(o workflow.Object, writeID string) (w blobWrite, err error) {
	w.ref = c.keys.of(o)
	if w.body, err = c.format.encodeOwn(o); err != nil {
		return w, err
	}
	if plan, ok := o.(*workflow.Plan); ok {
		w.metadata, err = c.format.planMetadata(plan, typeEntry, writeID, c.marks)
	} else {
		w.metadata, err = c.format.partMetadata(o, writeID)
	}
	return w, err
}

// run is the order of writes of a Create: marker, entry, sub-objects, object. It says what each failure
// leaves. The marker is first, so that Recovery finds whatever is left. There is no plan before the object
// exists.
func (c *creation) run(caller context.Context) error {
	// Recovery leaves a marker alone for the grace period and the margin. All requests end before that, by
	// this machine's monotonic clock.
	started := time.Now()
	ctx, cancel := c.within(caller, started, false, errGrace)
	defer cancel()
	commit, cancelCommit := c.within(caller, started, true, errGrace)
	defer cancelCommit()

	// A failure leaves nothing, or the marker.
	if err := c.putMarker(ctx); err != nil {
		return lateError(ctx, err)
	}
	// A failure leaves nothing, or the marker. In a young day, this sends nothing.
	if err := c.enterDay(ctx); err != nil {
		return lateError(ctx, c.takeBackMarker(ctx, err))
	}
	// A failure leaves the same. An entry that is in the way belongs to another Create.
	if err := c.putEntry(ctx); err != nil {
		return lateError(ctx, err)
	}
	// The ID is ours now. While all outcomes are certain and the object has not been sent, a failure is
	// undone.
	if err := c.putParts(ctx); err != nil {
		return c.undo(caller, err)
	}
	body, metadata, err := c.object()
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return c.undo(caller, err)
	}

	// The commit point. If the object may exist, the rest is left to Recovery.
	ref := c.keys.object()
	etag, err := c.client.Put(commit, ref, body, metadata, blob.IfNew)
	if blob.Is(err, blob.Mismatch) {
		return c.leaveRemains(blobError("write object", ref, err)) // another Create took the ID over while this one was frozen
	}
	if err != nil {
		return c.undo(caller, blobError("write object", ref, err))
	}
	if time.Since(started) > c.grace {
		// Recovery may already have begun to remove the plan.
		return c.withdraw(caller, etag)
	}
	c.plan.State.ETag = planVersion(c.entryETag, etag, c.marks.copied, c.plan)
	return c.finish(caller)
}

// markerRounds bounds how often a Create tries to take over a marker that keeps changing.
const markerRounds = 4

// putMarker writes the marker, or takes over the marker of another Create of the ID; the marker then belongs
// to both. It leaves a marker beside an entry or an object as it is, because writing it again would make the
// remains that it leads to recent again.
func (c *creation) putMarker(ctx context.Context) error {
	ref := c.keys.marker()
	for round := range markerRounds {
		err := c.putNewMarker(ctx)
		if round > 0 {
			c.markerETag = "" // another Create may share it by now
		}
		if !blob.Is(err, blob.Mismatch) {
			return blobError("write marker", ref, err)
		}
		there, err := c.headPlan(ctx, "look for the plan whose marker is there")
		if err != nil {
			return err
		}
		if there.entryOrObject() != nil {
			return c.takenError(there.committed())
		}
		if done, err := c.takeOverMarker(ctx); done || err != nil {
			return err
		}
	}
	return vaultError("write marker", ref, "%w: other processes keep creating this ID: call again", storage.ErrConflict)
}

// putNewMarker writes a marker that belongs to this Create alone.
func (c *creation) putNewMarker(ctx context.Context) error {
	ref := c.keys.marker()
	return c.inContainer(ctx, ref.Container, func() (err error) {
		c.marker.etag, c.marker.seen, err = c.client.PutDated(ctx, ref, nil, markerMetadata(c.call, c.grace), blob.IfNew)
		c.markerETag = c.marker.etag
		return err
	})
}

// enterDay makes a day that has passed ready for the plan. Since the marker was written, an Expire may have dropped
// the day, and another Create may have created it again. So enterDay looks at the marker last. From then on, an
// Expire sees the marker.
func (c *creation) enterDay(ctx context.Context) error {
	err := c.prepareDay(ctx, c.marker.seen, func() error { return c.lookForExpiry(ctx, c.keys.container) })
	if err != nil || !isOld(c.keys.date(), c.marker.seen) {
		return err
	}
	ref := c.keys.marker()
	p, err := c.client.Head(ctx, ref)
	if err != nil && !blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return blobError("look at marker", ref, err)
	}
	if err != nil || p.ETag != c.marker.etag {
		return vaultError("look at marker", ref, "%w: the day was dropped, or another Create of this ID is under way: call again", storage.ErrConflict)
	}
	return nil
}

// takeBackMarker removes the marker, unless another Create may share it, and returns why.
func (c *creation) takeBackMarker(ctx context.Context, cause error) error {
	if c.markerETag != "" {
		_ = c.deleteMarker(ctx, c.keys.marker(), c.markerETag) // what is left is Recovery's
	}
	return cause
}

// takeOverMarker writes another Create's marker again, so that Recovery does not remove it while this Create
// is running. It keeps the longer of the two grace periods, because the other Create may still be running. It
// returns false if the marker has changed.
func (c *creation) takeOverMarker(ctx context.Context) (done bool, err error) {
	ref := c.keys.marker()
	p, err := c.client.Head(ctx, ref)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return false, nil
	}
	if err != nil {
		return false, blobError("look at marker", ref, err)
	}
	grace, err := c.graceOf(&blob.Item{Properties: p})
	if err != nil {
		return false, blobError("look at marker", ref, err)
	}
	c.marker.etag, c.marker.seen, err = c.client.PutDated(ctx, ref, nil, markerMetadata(c.call, grace), blob.IfMatch(p.ETag))
	if blob.Is(err, blob.Mismatch, blob.Absent, blob.AbsentContainer) {
		return false, nil
	}
	return err == nil, blobError("write marker", ref, err)
}

// takenError is the error of a Create whose ID is in use: by a plan if committed is set, else by another
// Create or Delete or its remains.
func (c *creation) takenError(committed bool) error {
	if committed {
		return vaultError("look for the plan whose marker is there", c.keys.object(), "%w", storage.ErrExists)
	}
	return vaultError("look for the plan whose marker is there", c.keys.entry(), "%w", errRemains)
}

func (c *creation) putEntry(ctx context.Context) (err error) {
	ref := c.entry.ref
	c.entryETag, err = c.client.Put(ctx, ref, c.entry.body, c.entry.metadata, blob.IfNew)
	if !blob.Is(err, blob.Mismatch) {
		return blobError("write entry", ref, err)
	}
	// Our object was never sent, so no reader can see anything of this Create. If the marker is ours alone it
	// goes, because it would make the remains of others recent.
	_, headErr := c.client.Head(ctx, c.keys.object())
	if headErr != nil && !blob.Is(headErr, blob.Absent) {
		return blobError("look for the plan whose entry is there", c.keys.object(), headErr)
	}
	if c.markerETag != "" {
		if err := c.deleteMarker(ctx, c.keys.marker(), c.markerETag); err != nil {
			return err
		}
	}
	return c.takenError(headErr == nil)
}

func (c *creation) putParts(ctx context.Context) error {
	return c.parallel(len(c.parts), func(i int) error {
		p := &c.parts[i]
		etag, err := c.client.Put(ctx, p.ref, p.body, p.metadata, blob.IfNew)
		doing := "write " + p.object.Kind().String()
		if blob.Is(err, blob.Mismatch) && !blob.IsUnknown(err) {
			return vaultError(doing, p.ref, "%w", errRemains)
		}
		if err != nil {
			return blobError(doing, p.ref, err)
		}
		p.etag, p.body = etag, nil
		p.object.Header().State.ETag = driver.Version(etag, p.object)
		return nil
	})
}

// object encodes the plan with the versions of all sub-objects, so that a reader can compare them with a
// listing.
func (c *creation) object() ([]byte, map[string]string, error) {
	body, err := c.format.encodeObject(c.plan)
	if err != nil {
		return nil, nil, fmt.Errorf("encode object: %w", err)
	}
	metadata, err := c.format.planMetadata(c.plan, typeObject, c.call, planMarks{copied: c.marks.copied})
	return body, metadata, err
}

// undo removes what a failed Create has written, and returns the error. If the outcome of a write is unknown
// the write may still arrive after its removal, so all remains are left to Recovery.
func (c *creation) undo(ctx context.Context, cause error) error {
	if errors.Is(cause, storage.ErrUnknown) || ctx.Err() != nil {
		return c.leaveRemains(cause)
	}
	if err := c.removeWritten(ctx); err != nil {
		return c.leaveRemains(errors.Join(cause, err))
	}
	return lateError(ctx, cause)
}

// lateError is the error of a Create that had no effect. If the grace period ended it, and not the caller, it
// is ErrUnavailable.
func lateError(ctx context.Context, err error) error {
	ended := errors.Is(err, errGrace) || errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), errGrace)
	if !ended || errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
}

// withdraw removes a plan whose object was written too late, unless the plan runs and is whole. It writes a
// delete marker first, as a Delete does: another process may update the plan meanwhile, and Recovery must
// recognize what is left of it as remains.
func (c *creation) withdraw(ctx context.Context, objectETag string) error {
	etag, seen, err := c.putDeleteMarker(ctx)
	kept := false
	if err == nil {
		err = c.prepareDay(ctx, seen, nil) // Recovery may have removed the marker
	}
	if err == nil {
		kept, err = c.keepRunning(ctx)
	}
	if err == nil && !kept {
		err = c.remove(ctx, "remove object that came too late", c.keys.object(), blob.IfMatch(objectETag))
		if err == nil {
			err = c.removeWritten(ctx)
		}
	}
	if err == nil {
		err = c.deleteMarker(ctx, c.keys.deleteMarker(), etag)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w: %w", storage.ErrUnknown, errGrace, err)
	case kept:
		return vaultError("create", c.keys.entry(), "%w: the plan was created late, and somebody runs it already: call again: %w", storage.ErrUnknown, errGrace)
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, errGrace)
}

// keepRunning reports whether the plan has started, and is whole and stays whole. If it returns false nobody
// had started the plan when it looked, or Recovery has removed some of it.
func (c *creation) keepRunning(ctx context.Context) (bool, error) {
	ref := c.entry.ref
	p, err := c.client.Head(ctx, ref)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return false, c.confirmGone(ctx, ref)
	}
	if err != nil {
		return false, blobError("look at entry", ref, err)
	}
	if blobStatusOf(&blob.Item{Properties: p}) == notStarted {
		return false, nil
	}
	if p.ETag == c.entryETag {
		// The plan was restored like this. Nobody has updated the entry, so a Recovery may still remove it.
		gone, err := c.rewrite(ctx, c.plan, uuid.NewString(), &c.entryETag)
		if gone {
			err = c.confirmGone(ctx, ref)
		}
		if gone || err != nil {
			return false, err
		}
	}
	return c.rewriteParts(ctx)
}

// rewriteParts rewrites the sub-objects. It returns false if one is gone.
func (c *creation) rewriteParts(ctx context.Context) (whole bool, err error) {
	call := uuid.NewString()
	gone := make([]bool, len(c.parts))
	err = c.parallel(len(c.parts), func(i int) (err error) {
		p := &c.parts[i]
		gone[i], err = c.rewrite(ctx, p.object, call, &p.etag)
		return err
	})
	if err != nil {
		return false, err
	}
	var refs []blob.Ref
	for i, p := range c.parts {
		if gone[i] {
			refs = append(refs, p.ref)
		}
	}
	if len(refs) == 0 {
		return true, nil
	}
	return false, c.confirmGone(ctx, refs...)
}

// rewrite stores a blob again, over the version that this call wrote. The removal by a Recovery that found the plan
// before its object was there then fails. A blob that has changed belongs to whoever runs the plan, and no Recovery
// has seen that version.
func (c *creation) rewrite(ctx context.Context, o workflow.Object, writeID string, etag *string) (gone bool, err error) {
	w, err := c.write(o, writeID)
	if err != nil {
		return false, err
	}
	now, err := c.client.Put(ctx, w.ref, w.body, w.metadata, blob.IfMatch(*etag))
	switch {
	case err == nil:
		*etag = now
		return false, nil
	case blob.Is(err, blob.Mismatch):
		return false, nil
	case blob.Is(err, blob.Absent, blob.AbsentContainer):
		return true, nil
	}
	doing := "rewrite entry"
	if o != workflow.Object(c.plan) {
		doing = "rewrite " + o.Kind().String()
	}
	return false, blobError(doing, w.ref, err)
}

// removeWritten removes everything but the object, in the order of a Delete, and only in the version that was
// written: any other version belongs to another Create of the ID. A marker that another Create may share is
// left to Recovery.
func (c *creation) removeWritten(ctx context.Context) error {
	var targets []blob.Target
	for _, p := range c.parts {
		if p.etag != "" {
			targets = append(targets, blob.Target{Name: p.ref.Name, ETag: p.etag})
		}
	}
	if err := c.removeParts(ctx, targets); err != nil {
		return err
	}
	if err := c.remove(ctx, "remove entry", c.entry.ref, blob.IfMatch(c.entryETag)); err != nil {
		return err
	}
	if c.markerETag == "" {
		return nil
	}
	return c.deleteMarker(ctx, c.keys.marker(), c.markerETag)
}

// leaveRemains is the error of a Create that leaves remains to Recovery. It is ErrUnknown even if the plan
// certainly does not exist.
func (c *creation) leaveRemains(cause error) error {
	if errors.Is(cause, storage.ErrUnknown) {
		return cause
	}
	return vaultError("create", c.keys.entry(), "%w: remains of the plan are left, which Recovery removes after the grace period: %w", storage.ErrUnknown, cause)
}

// finish does the rest of a creation after its commit. Only a plan that was restored may be final, and a final
// plan has no marker. A marker that another Create may share is left to Recovery.
func (c *creation) finish(ctx context.Context) error {
	if !c.plan.State.Status.Final() || c.markerETag == "" {
		return nil
	}
	if err := c.deleteMarker(ctx, c.keys.marker(), c.markerETag); err != nil {
		return fmt.Errorf("%w: the plan is stored, and Recovery removes its marker: %w", storage.ErrUnknown, err)
	}
	return nil
}

// Restore stores a plan of any status as it is, with its IDs, times, states, attempts, results, owner and
// epoch. Only versions are new. It takes as many requests as [Vault.Create], and for a final plan one more,
// which removes the marker. No reader sees any of the plan before all of it is stored.
//
// Like Create, it ends within the grace period. If it does not finish, Recovery removes the remains, and so
// does the next Restore or Create of the ID, once they are older than the grace period and the margin.
//
// Like Create, it removes nothing, so the audit log does not have it; package bundle records an import.
//
// Unlike Create, it takes an ID whose time lies more than [storage.MaxAhead] in the future, up to the year 9999.
//
// An open plan is open again: engines on this prefix may run it at once. Restore it only if no engine runs it
// elsewhere. A Running plan keeps its owner. If that is no member here, a fleet takes the plan over.
//
// Errors: [storage.ErrInvalid] before anything is sent, also for nil IDs and, if the vault has a registry,
// for plugins that it lacks; [storage.ErrExists] if there is a plan of this ID, whatever its content;
// [storage.ErrConflict] and [storage.ErrUnknown] as Create returns them. After ErrUnknown the same plan may
// be restored again.
func (v *Vault) Restore(ctx context.Context, plan *workflow.Plan) error {
	return v.restore(ctx, "Restore", plan, planMarks{restored: true})
}

// RestoreCopy does the same for package mirror, at the same cost, and marks the plan as a copy; see [storage.Copier].
func (o offered) RestoreCopy(ctx context.Context, plan *workflow.Plan) error {
	return o.restore(ctx, "RestoreCopy", plan, planMarks{restored: true, copied: true})
}

func (v *Vault) restore(ctx context.Context, op string, plan *workflow.Plan, marks planMarks) error {
	var id uuid.UUID
	if plan != nil {
		id = plan.ID
	}
	return v.call(ctx, op, id, func(ctx context.Context) error {
		if err := driver.CheckRestored(plan, v.reg); err != nil {
			return err
		}
		return v.create(ctx, plan, marks)
	})
}
