package azblob

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// UpdatePlan stores the plan's own fields: one request while it is NotStarted or Running. With a final status it is three,
// one after the other: the entry, then the object with the whole plan as it is given, then the marker's removal. From the
// first on every reader sees the plan as final; the same call again, or Recovery, completes what was broken off.
//
// The children must be the ones the plan was created with, and at a final status carry their last states. Everything is
// encoded and checked before the first request.
//
// Of two calls with final statuses, where the second knows the version of the first, the second one's plan stays.
//
// Errors: ErrInvalid before anything is sent, also for a State.ETag that is empty or no version of the vault, children that are
// not those of its version, and a plan that goes back from its status; ErrNotFound; ErrConflict when State.ETag is not the
// stored version's; ErrUnknown when the outcome can't be known: the same call again settles it, with the object as it was given
// or as it is now, at whichever request the first one was broken off. State.ETag is set to the new version.
func (v *Vault) UpdatePlan(ctx context.Context, plan *workflow.Plan) error {
	return update(ctx, v, "UpdatePlan", plan)
}

// UpdateChecks stores the checks' own fields with one request. Errors are as with UpdatePlan, for this and all other
// updates of parts, which may move to any status.
//
// The request asks for the part and not for the plan. Beside a Delete that has not returned yet, or was broken off, it may
// return nil although the plan is gone for readers; after Delete has returned nil it is ErrNotFound.
func (v *Vault) UpdateChecks(ctx context.Context, checks *workflow.Checks) error {
	return update(ctx, v, "UpdateChecks", checks)
}

// UpdateBlock stores the block's own fields with one request.
func (v *Vault) UpdateBlock(ctx context.Context, block *workflow.Block) error {
	return update(ctx, v, "UpdateBlock", block)
}

// UpdateSequence stores the sequence's own fields with one request.
func (v *Vault) UpdateSequence(ctx context.Context, sequence *workflow.Sequence) error {
	return update(ctx, v, "UpdateSequence", sequence)
}

// UpdateAction stores the action with its attempts with one request.
func (v *Vault) UpdateAction(ctx context.Context, action *workflow.Action) error {
	return update(ctx, v, "UpdateAction", action)
}

// UpdateDeferredActions stores the deferred actions' own fields with one request.
func (v *Vault) UpdateDeferredActions(ctx context.Context, deferred *workflow.DeferredActions) error {
	return update(ctx, v, "UpdateDeferredActions", deferred)
}

// UpdateDeferBatch stores the batch's own fields with one request.
func (v *Vault) UpdateDeferBatch(ctx context.Context, batch *workflow.DeferBatch) error {
	return update(ctx, v, "UpdateDeferBatch", batch)
}

func update[T any, P interface {
	*T
	workflow.Object
}](ctx context.Context, v *Vault, op string, o P) error {
	var id uuid.UUID
	if o != nil {
		id = *o.Header().PlanID
	}
	return v.change(op, &id, func() error {
		if o == nil {
			return driver.Invalid(op, "is nil")
		}
		if err := driver.CheckUpdate(o, v.reg, v.unversioned); err != nil {
			return err
		}
		if plan, ok := any(o).(*workflow.Plan); ok {
			return v.updatePlan(ctx, plan)
		}
		return v.updatePart(ctx, o)
	})
}

// updatePart writes the blob of a part, and notes its new version in the part.
func (v *Vault) updatePart(ctx context.Context, o workflow.Object) error {
	h := o.Header()
	body, err := encodeOwn(o)
	if err := checkBody(o, false, body, err); err != nil {
		return err
	}
	cond := blob.IfThere
	if h.State.ETag != "" {
		etag, _, _ := driver.SplitVersion(h.State.ETag)
		cond = blob.IfMatch(etag)
	}
	w, err := v.putOwn(ctx, o, body, cond)
	if err != nil {
		return err
	}
	h.State.ETag = driver.Version(w.etag, o)
	return nil
}

// updatePlan writes the entry of a plan, and where it becomes final completes it.
func (v *Vault) updatePlan(ctx context.Context, plan *workflow.Plan) error {
	keys := v.prefix.plan(plan.ID)
	final := plan.State.Status.Final()
	entry, err := encodeEntry(plan)
	if err := checkBody(plan, false, entry, err); err != nil {
		return err
	}
	var object []byte
	if final {
		object, err = encodeObject(plan)
		if err := checkBody(plan, true, object, err); err != nil {
			return err
		}
	}
	entryETag, objectETag := splitPlanVersion(plan.State.ETag)
	cond := blob.IfMatch(entryETag)
	if plan.State.ETag == "" {
		cond = blob.IfThere
	}
	if objectETag == "" {
		// Whoever has a version has read the plan, or created it. Others may mean the entry of a Create that was broken off, which
		// must not become that of a plan that runs: searches take those for whole.
		p, err := v.client.Head(ctx, keys.object())
		if err != nil {
			return blobError("look for object", keys.object(), err)
		}
		objectETag = p.ETag
	}
	w, err := v.putOwn(ctx, plan, entry, cond)
	if err != nil {
		return err
	}
	if final {
		objectETag, err = v.finalize(ctx, plan, w, object, objectETag)
	}
	plan.State.ETag = planVersion(w.etag, objectETag, plan)
	return err
}

// storable refuses a body that could not be encoded, or is too large for the service.
func checkBody(o workflow.Object, whole bool, body []byte, err error) error {
	switch {
	case err != nil:
		return driver.Unencodable(o, whole, err)
	case len(body) > blob.MaxBody:
		return driver.Invalid(o.Kind().String(), "needs %d bytes, %d are the most", len(body), blob.MaxBody)
	}
	return nil
}

// settle completes the update of a plan to a final status, whose entry has been written: the object, then the marker. Until
// the object is final too, readers take the plan from its entry and sub-objects. It returns the object's version.
func (v *Vault) finalize(ctx context.Context, plan *workflow.Plan, entry written, body []byte, etag string) (string, error) {
	keys := v.prefix.plan(plan.ID)
	settled, followed, err := v.finalizeObject(ctx, plan, entry, body, etag)
	switch {
	case followed:
		return settled, nil // the marker is the later completion's to remove
	case errors.Is(err, storage.ErrNotFound):
		if v.confirmGone(ctx, keys, keys.object()) == nil {
			return settled, err // deleted meanwhile
		}
		err = clientError(err)
	case err == nil:
		err = v.deleteMarker(ctx, keys.marker(), "")
	}
	if err == nil {
		return settled, nil
	}
	// The entry is final for everybody now, so whatever fails is not "no effect". The same call again must know its entry.
	v.unknown.keep(entry.write, entry.id)
	return settled, fmt.Errorf("%w: the plan is %s, and Recovery or the same call again completes the rest: %w", storage.ErrUnknown, plan.State.Status, err)
}

// settleRounds bounds how often a completion tries to write an object that keeps being rewritten.
const finalizeRounds = 4

// settleObject writes the object of a plan that has become final, over the version that its caller knows. Recovery may have
// rewritten that, and so may a later completion, whose object must stay: followed says that there is one, which does the rest.
func (v *Vault) finalizeObject(ctx context.Context, plan *workflow.Plan, entry written, body []byte, etag string) (settled string, followed bool, err error) {
	keys := v.prefix.plan(plan.ID)
	for round := 1; ; round++ {
		settled, err := v.putObject(ctx, plan, body, blob.IfMatch(etag))
		if err == nil {
			return settled, false, nil
		}
		if err = blobError("settle object", keys.object(), err); !errors.Is(err, storage.ErrConflict) || round == finalizeRounds {
			return etag, false, err
		}
		// The object before the entry: a later completion writes them the other way around, so one that is not seen in the entry
		// has not written the object that was seen.
		object, err := v.client.Head(ctx, keys.object())
		if err != nil {
			return etag, false, blobError("look at object", keys.object(), err)
		}
		now, err := v.client.Head(ctx, keys.entry())
		if err != nil {
			return etag, false, blobError("look at entry", keys.entry(), err)
		}
		if etag = object.ETag; now.Metadata[blob.WriteID] == entry.id {
			continue
		}
		if blobStatusOf(&blob.Item{Properties: now}) == final {
			return etag, true, nil
		}
		return etag, false, vaultError("look at entry", keys.entry(), "%w: it was set back", storage.ErrConflict) // restored, perhaps
	}
}
