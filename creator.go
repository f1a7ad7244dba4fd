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

// Create stores a plan: N+3 requests for N sub-objects, and one more for the first plan of a day. It first fills in what
// the author left out (IDs as UUIDv7, PlanIDs, SubmitTime) so that the same plan can be given to it again after ErrUnknown.
// Every status must be NotStarted.
//
// The plan becomes visible, whole, with the last request; before that no reader sees any of it. A Create that takes longer
// than the grace period fails. One that fails leaves nothing behind, or where that can't be known, remains that no reader
// sees. Recovery removes them, and so does the next Create of the same ID once they are older than the grace period and a
// margin, which takes requests of its own.
//
// Errors: ErrInvalid before anything is sent; ErrExists when there is a plan of this ID; ErrConflict when another create or
// delete of the ID is under way, or was so recently that its remains can't be judged yet: the error says when to call again;
// ErrUnknown when the context or the grace period ended in the middle: a Create of the same plan then returns nil, ErrExists
// or ErrConflict.
func (v *Vault) Create(ctx context.Context, plan *workflow.Plan) error {
	var id uuid.UUID
	if plan != nil {
		id = plan.ID
	}
	return v.change("Create", &id, func() error {
		if err := driver.CheckNew(plan, v.reg); err != nil {
			return err
		}
		driver.Complete(plan)
		id = plan.ID
		return v.create(ctx, plan)
	})
}

// create makes a plan. Where the remains of an earlier Create or Delete of the ID are in the way it clears them, as Recovery
// does, and begins again, once.
func (v *Vault) create(ctx context.Context, plan *workflow.Plan) error {
	for first := true; ; first = false {
		c, err := v.newCreation(plan)
		if err != nil {
			return err
		}
		err = c.run(ctx)
		if !first || !errors.Is(err, errRemains) || errors.Is(err, storage.ErrUnknown) {
			return err
		}
		if err := v.clearRemains(ctx, c.keys); err != nil {
			return err
		}
	}
}

// makeRoom removes the remains of a plan if they are older than the grace period and the margin. The decision and the
// removal are Recovery's, so any number of Creates and Recoveries may do it at once.
func (v *Vault) clearRemains(ctx context.Context, keys keys) error {
	const doing = "look for remains"
	tooSoon := func(wait time.Duration) error {
		return vaultError(doing, keys.entry(), "%w: a create or delete of this ID is under way, or was broken off: call again in %v", storage.ErrConflict, wait)
	}
	s, err := v.listMarkers(ctx, keys)
	if err != nil {
		return err
	}
	c, err := v.examine(ctx, s, false)
	if err != nil {
		return err
	}
	switch {
	case c.committed():
		return vaultError(doing, keys.object(), "%w: the plan has been created meanwhile", storage.ErrExists)
	case c.entryOrObject() == nil && c.deleteMarker == nil:
		// Only a marker and sub-objects can be there. A Create takes a marker over however old it is, so they are judged alone.
		wait, err := v.clearParts(ctx, c)
		if err == nil && wait > 0 {
			return tooSoon(wait)
		}
		return err
	case c.finding == remains:
		return v.removeRemains(ctx, c)
	case c.finding == tooRecent:
		return tooSoon(max(c.wait(), time.Second))
	default:
		return vaultError(doing, keys.entry(), "%w: a damaged plan has this ID: %w", storage.ErrConflict, c.err())
	}
}

// clearParts removes the sub-objects of a plan that has neither entry nor object, unless one is young: then it says for how
// long. No marker leads to a copy of a Create's request that arrived after the Create had undone itself.
func (v *Vault) clearParts(ctx context.Context, c diagnosis) (wait time.Duration, err error) {
	keys := c.keys
	items, err := v.listParts(ctx, keys, kinds[:])
	if err != nil || len(items) == 0 {
		return 0, err
	}
	if err := v.confirmGone(ctx, keys, c.missing()...); err != nil {
		return 0, err
	}
	orphans := diagnosis{planBlobs: planBlobs{keys: keys, parts: items, seen: items[0].Seen}, grace: c.grace}
	if orphans.signs(false).recent {
		return max(orphans.wait(), time.Second), nil
	}
	return 0, v.removeParts(ctx, keys, targetsOf(items))
}

// creation is a plan on its way into the store.
type creation struct {
	v    *Vault
	plan *workflow.Plan
	keys keys
	// call makes the writeids of this Create differ from those of every other, of the same plan too: what an earlier Create
	// left is not this one's to go on with, because Recovery may be removing it.
	call  string
	entry blobWrite
	parts []partWrite

	// markerETag is empty where the marker may be another Create's too.
	markerETag, entryETag string
}

// blobWrite is what is written to a blob.
type blobWrite struct {
	ref      blob.Ref
	body     []byte
	metadata map[string]string
}

type partWrite struct {
	object workflow.Object
	blobWrite
	etag string // empty until it was written
}

// newCreation encodes everything that is sent before the object, so that nothing is sent of a plan which can't be encoded.
func (v *Vault) newCreation(plan *workflow.Plan) (*creation, error) {
	c := &creation{v: v, plan: plan, keys: v.prefix.plan(plan.ID), call: uuid.NewString()}
	size := 0
	for o := range workflow.Walk(plan) {
		w := blobWrite{ref: c.keys.of(o)}
		var err error
		if w.body, err = encodeOwn(o); err == nil {
			w.metadata, err = ownMetadata(o, c.call)
		}
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
		return nil, driver.Invalid("Plan", "needs %d bytes, %d are the most", size, blob.MaxBody)
	}
	return c, nil
}

// run is the order of writes of a Create: marker, entry, sub-objects, object. What each failure leaves is said where it is
// handled. The marker comes before all else so that whatever is left is found by Recovery; nothing is a plan before the
// object is there.
func (c *creation) run(caller context.Context) error {
	// Recovery leaves a marker alone for the grace period and a margin. All requests sent here end before that, by this machine's
	// monotonic clock.
	started := time.Now()
	ctx, cancel := c.v.within(caller, started, false, errGrace)
	defer cancel()
	commit, cancelCommit := c.v.within(caller, started, true, errGrace)
	defer cancelCommit()

	// A failure leaves nothing, or a marker of nothing.
	if err := c.putMarker(ctx); err != nil {
		return lateError(ctx, err)
	}
	// The same, where the entry was not written. A taken one is another's.
	if err := c.putEntry(ctx); err != nil {
		return lateError(ctx, err)
	}
	// From here on the ID is ours. While all outcomes are certain and the object was never sent, we can undo.
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

	// The commit point. Where the object may be there all the rest is left to Recovery.
	ref := c.keys.object()
	etag, err := c.v.client.Put(commit, ref, body, metadata, blob.IfNew)
	if blob.Is(err, blob.Mismatch) {
		return c.leaveRemains(blobError("write object", ref, err)) // not ours: somebody took the ID over while this Create was frozen
	}
	if err != nil {
		return c.undo(caller, blobError("write object", ref, err))
	}
	if time.Since(started) > c.v.grace {
		// The answer came too late to be sure that Recovery has not begun to remove the plan. It is taken back.
		return c.withdraw(caller, etag)
	}
	c.plan.State.ETag = planVersion(c.entryETag, etag, c.plan)
	return nil
}

// markerRounds is how often a Create whose marker keeps changing tries to take it over.
const markerRounds = 4

// putMarker writes the marker, or takes over that of another Create of the ID, which then belongs to both. A marker beside
// an entry or object is left as it is: to write it again would make the remains that it leads to young again.
func (c *creation) putMarker(ctx context.Context) error {
	ref := c.keys.marker()
	for round := range markerRounds {
		err := c.putNewMarker(ctx)
		if round > 0 {
			c.markerETag = "" // it may be the marker that was taken over
		}
		if !blob.Is(err, blob.Mismatch) {
			return blobError("write marker", ref, err)
		}
		there, err := c.v.headPlan(ctx, "look for the plan whose marker is there", c.keys)
		if err != nil {
			return err
		}
		if there.entryOrObject() != nil {
			return c.takenError(there.committed())
		}
		if done, err := c.takeMarkerOver(ctx); done || err != nil {
			return err
		}
	}
	return vaultError("write marker", ref, "%w: others keep creating this ID: call again", storage.ErrConflict)
}

// putNewMarker writes a marker that is this Create's alone.
func (c *creation) putNewMarker(ctx context.Context) error {
	ref := c.keys.marker()
	put := func() (err error) {
		if err := c.v.ensureContainer(ctx, ref.Container); err != nil {
			return err
		}
		c.markerETag, err = c.v.client.Put(ctx, ref, nil, markerMetadata(c.call, c.v.grace), blob.IfNew)
		return err
	}
	err := put()
	if blob.Is(err, blob.AbsentContainer) {
		c.v.containers.forget(ref.Container) // somebody dropped the day
		err = put()
	}
	return err
}

// takeMarkerOver writes another Create's marker anew, so that Recovery does not take it away while this Create goes on. It
// keeps the longer grace period, because the other one may still be at work. False is for a marker that has changed.
func (c *creation) takeMarkerOver(ctx context.Context) (done bool, err error) {
	ref := c.keys.marker()
	p, err := c.v.client.Head(ctx, ref)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return false, nil
	}
	if err != nil {
		return false, blobError("look at marker", ref, err)
	}
	grace, err := c.v.graceOf(&blob.Item{Properties: p})
	if err != nil {
		return false, blobError("look at marker", ref, err)
	}
	_, err = c.v.client.Put(ctx, ref, nil, markerMetadata(c.call, grace), blob.IfMatch(p.ETag))
	if blob.Is(err, blob.Mismatch, blob.Absent, blob.AbsentContainer) {
		return false, nil
	}
	return err == nil, blobError("write marker", ref, err)
}

// taken is the error of a Create whose ID is in use: by a plan, or else by what another Create or a Delete is at, or left.
func (c *creation) takenError(committed bool) error {
	if committed {
		return vaultError("look for the plan whose marker is there", c.keys.object(), "%w", storage.ErrExists)
	}
	return vaultError("look for the plan whose marker is there", c.keys.entry(), "%w", errRemains)
}

func (c *creation) putEntry(ctx context.Context) (err error) {
	ref := c.entry.ref
	c.entryETag, err = c.v.client.Put(ctx, ref, c.entry.body, c.entry.metadata, blob.IfNew)
	if !blob.Is(err, blob.Mismatch) {
		return blobError("write entry", ref, err)
	}
	// Whosever the entry is: our object was never sent, so nothing of this Create can ever be seen. A marker of ours alone goes,
	// so that it makes nobody's remains young.
	_, headErr := c.v.client.Head(ctx, c.keys.object())
	if headErr != nil && !blob.Is(headErr, blob.Absent) {
		return blobError("look for the plan whose entry is there", c.keys.object(), headErr)
	}
	if c.markerETag != "" {
		if err := c.v.deleteMarker(ctx, c.keys.marker(), c.markerETag); err != nil {
			return err
		}
	}
	return c.takenError(headErr == nil)
}

func (c *creation) putParts(ctx context.Context) error {
	return c.v.parallel(len(c.parts), func(i int) error {
		p := &c.parts[i]
		etag, err := c.v.client.Put(ctx, p.ref, p.body, p.metadata, blob.IfNew)
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

// object encodes the plan with the versions of all its sub-objects, which a listing can later be compared with.
func (c *creation) object() ([]byte, map[string]string, error) {
	body, err := encodeObject(c.plan)
	if err != nil {
		return nil, nil, fmt.Errorf("encode object: %w", err)
	}
	metadata, err := planMetadata(c.plan, typeObject, c.call)
	return body, metadata, err
}

// undo removes what a Create wrote that failed with cause before the object was sent. Where the outcome of a write is
// unknown, it could still arrive after its removal, so all is left to Recovery.
func (c *creation) undo(ctx context.Context, cause error) error {
	if errors.Is(cause, storage.ErrUnknown) || ctx.Err() != nil {
		return c.leaveRemains(cause)
	}
	if err := c.remove(ctx); err != nil {
		return c.leaveRemains(errors.Join(cause, err))
	}
	return lateError(ctx, cause)
}

// tooLate says of an error without effect which the end of the grace period brought about that it was not the caller's end.
func lateError(ctx context.Context, err error) error {
	ended := errors.Is(err, errGrace) || errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), errGrace)
	if !ended || errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
}

// withdraw takes back a plan whose object is there but came too late. It does so as a Delete, with a delete marker first:
// somebody may have moved the plan on meanwhile, and what is left of it must be known for remains.
func (c *creation) withdraw(ctx context.Context, objectETag string) error {
	etag, err := c.v.putDeleteMarker(ctx, c.keys)
	if err == nil {
		err = c.v.remove(ctx, "remove object that came too late", c.keys, c.keys.object(), blob.IfMatch(objectETag))
	}
	if err == nil {
		err = c.remove(ctx)
	}
	if err == nil {
		err = c.v.deleteMarker(ctx, c.keys.deleteMarker(), etag)
	}
	if err != nil {
		return fmt.Errorf("%w: %w: %w", storage.ErrUnknown, errGrace, err)
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, errGrace)
}

// remove removes all but the object, in the order of a delete, and each only in the version that was written: what is there
// instead is another Create's of the ID. A marker that may be another's too is left to Recovery.
func (c *creation) remove(ctx context.Context) error {
	var targets []blob.Target
	for _, p := range c.parts {
		if p.etag != "" {
			targets = append(targets, blob.Target{Name: p.ref.Name, ETag: p.etag})
		}
	}
	if err := c.v.removeParts(ctx, c.keys, targets); err != nil {
		return err
	}
	if err := c.v.remove(ctx, "remove entry", c.keys, c.entry.ref, blob.IfMatch(c.entryETag)); err != nil {
		return err
	}
	if c.markerETag == "" {
		return nil
	}
	return c.v.deleteMarker(ctx, c.keys.marker(), c.markerETag)
}

// left is the error of a Create whose remains are left to Recovery although the plan is certain not to be there.
func (c *creation) leaveRemains(cause error) error {
	if errors.Is(cause, storage.ErrUnknown) {
		return cause
	}
	return vaultError("create", c.keys.entry(), "%w: remains of the plan are left, which Recovery removes after the grace period: %w", storage.ErrUnknown, cause)
}
