package azblob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Create stores a plan: N+3 requests for N sub-objects, and one more for the first plan of a day. It first fills in what
// the author left out (IDs as UUIDv7, PlanIDs, SubmitTime) so that the same plan can be given to it again after ErrUnknown.
// Every status must be NotStarted.
//
// The plan becomes visible, whole, with the last request; before that no reader sees any of it. A Create that takes longer
// than the grace period fails. One that fails leaves nothing behind, or where that can't be known, remains that no reader
// sees and Recovery removes.
//
// Errors: ErrInvalid before anything is sent; ErrExists when there is a plan of this ID; ErrConflict when the remains of an
// unfinished create or delete of it are in the way, until Recovery clears them; ErrUnknown when the context or the grace
// period ended in the middle: a Create of the same plan then returns nil, ErrExists or ErrConflict, and Recovery settles it.
func (v *Vault) Create(ctx context.Context, plan *workflow.Plan) error {
	var id uuid.UUID
	if plan != nil {
		id = plan.ID
	}
	return v.change("Create", &id, func() error {
		if err := storage.CheckNew(plan, v.reg); err != nil {
			return err
		}
		storage.Complete(plan)
		id = plan.ID
		c, err := v.newCreation(plan)
		if err != nil {
			return err
		}
		return c.run(ctx)
	})
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
			return nil, fmt.Errorf("%w: %s %s can't be encoded: %w", storage.ErrInvalid, o.Kind(), *o.Header().ID, err)
		}
		if o == workflow.Object(plan) {
			c.entry = w
		} else {
			c.parts = append(c.parts, partWrite{object: o, blobWrite: w})
		}
		size += len(w.body) + 64 // the object holds all of them, and an ETag for each
	}
	if size > blob.MaxBody {
		return nil, storage.Invalid("Plan", "needs %d bytes, %d are the most", size, blob.MaxBody)
	}
	return c, nil
}

// run is the order of writes of a Create: marker, entry, sub-objects, object. What each failure leaves is said where it is
// handled. The marker comes before all else so that whatever is left is found by Recovery; nothing is a plan before the
// object is there.
func (c *creation) run(caller context.Context) error {
	// Recovery leaves a marker alone for the grace period and a margin. What is sent here comes to its end before that, by this
	// machine's monotonic clock.
	started := time.Now()
	ctx, cancel := blob.Within(caller, started.Add(c.v.grace), errGrace)
	defer cancel()
	commit, cancelCommit := blob.Within(caller, started.Add(c.v.grace+c.v.margin()/2), errGrace)
	defer cancelCommit()

	// A failure leaves nothing, or a marker of nothing. It is not removed: it may be another Create's of the same ID.
	if err := c.putMarker(ctx); err != nil {
		return tooLate(ctx, err)
	}
	// The same, where the entry was not written. A taken one is another's, with its marker.
	if err := c.putEntry(ctx); err != nil {
		return tooLate(ctx, err)
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

	// The commit point. Whatever fails from here on is left to Recovery: the object may be there.
	ref := c.keys.object()
	etag, err := c.v.client.Put(commit, ref, body, metadata, blob.IfNew)
	if err != nil {
		return at("write object", ref, err)
	}
	if time.Since(started) > c.v.grace {
		// The answer came too late to be sure that Recovery has not begun to remove the plan. It is taken back.
		return c.withdraw(caller, etag)
	}
	c.plan.State.ETag = storage.Version(c.entryETag, workflow.NotStarted)
	return nil
}

func (c *creation) putMarker(ctx context.Context) error {
	ref := c.keys.marker()
	put := func() (err error) {
		if err := c.v.ensureContainer(ctx, ref.Container); err != nil {
			return err
		}
		metadata := map[string]string{blob.WriteID: c.call}
		c.markerETag, err = c.v.client.Put(ctx, ref, nil, metadata, blob.IfNew)
		if blob.Is(err, blob.Mismatch) {
			// Another Create of this ID was here, or is, and may need the marker as much as this one. It is written anew so that
			// Recovery does not take the old one away, but it is not this Create's to remove.
			_, err = c.v.client.Put(ctx, ref, nil, metadata, blob.Always)
		}
		return err
	}
	err := put()
	if blob.Is(err, blob.AbsentContainer) {
		c.v.containers.forget(ref.Container) // somebody dropped the day
		err = put()
	}
	return at("write marker", ref, err)
}

func (c *creation) putEntry(ctx context.Context) (err error) {
	ref := c.entry.ref
	c.entryETag, err = c.v.client.Put(ctx, ref, c.entry.body, c.entry.metadata, blob.IfNew)
	if !blob.Is(err, blob.Mismatch) {
		return at("write entry", ref, err)
	}
	// Whosever the entry is: our object was never sent, so nothing of this Create can ever be seen.
	_, headErr := c.v.client.Head(ctx, c.keys.object())
	switch {
	case headErr == nil:
		return &storage.Error{Doing: "write entry", Blob: ref.String(), Err: fmt.Errorf("%w: %w", storage.ErrExists, errors.Unwrap(err))}
	case blob.Is(headErr, blob.Absent):
		return &storage.Error{Doing: "write entry", Blob: ref.String(), Err: fmt.Errorf("%w: a create or delete of this ID is under way, or was and left its remains, which Recovery clears after the grace period: %w", storage.ErrConflict, errors.Unwrap(err))}
	default:
		return at("look for the plan whose entry is there", c.keys.object(), headErr)
	}
}

func (c *creation) putParts(ctx context.Context) error {
	return c.v.parallel(len(c.parts), func(i int) error {
		p := &c.parts[i]
		etag, err := c.v.client.Put(ctx, p.ref, p.body, p.metadata, blob.IfNew)
		if err != nil {
			return at("write "+p.object.Kind().String(), p.ref, err)
		}
		p.etag, p.body = etag, nil
		p.object.Header().State.ETag = storage.Version(etag, workflow.NotStarted)
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
		return c.left(cause)
	}
	if err := c.remove(ctx); err != nil {
		return c.left(errors.Join(cause, err))
	}
	return tooLate(ctx, cause)
}

// tooLate says of an error without effect which the end of the grace period brought about that it was not the caller's end.
func tooLate(ctx context.Context, err error) error {
	ended := errors.Is(err, errGrace) || errors.Is(err, context.DeadlineExceeded) && errors.Is(context.Cause(ctx), errGrace)
	if !ended || errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
}

// withdraw takes back a plan whose object is there but came too late.
func (c *creation) withdraw(ctx context.Context, objectETag string) error {
	ref := c.keys.object()
	err := at("remove object that came too late", ref, c.v.client.Delete(ctx, ref, blob.IfMatch(objectETag)))
	if err == nil {
		err = c.remove(ctx)
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
	if err := c.v.deleteParts(ctx, c.keys.container, targets); err != nil {
		return err
	}
	if err := c.v.client.Delete(ctx, c.entry.ref, blob.IfMatch(c.entryETag)); err != nil {
		return at("remove entry", c.entry.ref, err)
	}
	if c.markerETag == "" {
		return nil
	}
	return c.v.deleteMarker(ctx, c.keys.marker(), c.markerETag)
}

// left is the error of a Create whose remains are left to Recovery although the plan is certain not to be there.
func (c *creation) left(cause error) error {
	if errors.Is(cause, storage.ErrUnknown) {
		return cause
	}
	return &storage.Error{
		Doing: "create", Blob: c.keys.entry().String(),
		Err: fmt.Errorf("%w: remains of it are left, which Recovery clears after the grace period: %w", storage.ErrUnknown, cause),
	}
}

// ensureContainer creates a day's container unless this vault knows that it is there.
func (v *Vault) ensureContainer(ctx context.Context, name string) error {
	return v.containers.ensure(ctx, name, func() error {
		return v.client.CreateContainer(ctx, name, map[string]string{metaLayout: "1"})
	})
}

// containers are those that are there, as far as is known. The zero value knows of none.
type containers struct {
	mu    sync.Mutex
	known map[string]bool
	turns map[string]chan struct{} // taken by who creates one
}

// ensure creates a container that is not known. Of calls at the same time one does, and the others wait for it.
func (c *containers) ensure(ctx context.Context, name string, create func() error) error {
	known, turn := c.look(name)
	if known {
		return nil
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if known, _ := c.look(name); known {
		return nil
	}
	if err := create(); err != nil {
		return err
	}
	c.learn(name)
	return nil
}

// look says whether a container is known, and whose turn it is to create it.
func (c *containers) look(name string) (known bool, turn chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[name] {
		return true, nil
	}
	if c.turns == nil {
		c.turns = map[string]chan struct{}{}
	}
	if c.turns[name] == nil {
		c.turns[name] = make(chan struct{}, 1)
	}
	return false, c.turns[name]
}

func (c *containers) learn(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]bool{}
	}
	c.known[name] = true
	delete(c.turns, name)
}

func (c *containers) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, name)
}
