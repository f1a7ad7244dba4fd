package azblob

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// UpdatePlan stores the plan's own fields: one request while it is NotStarted or Running. With a final status it is three,
// one after the other: the entry, then the object with the whole plan as it is given, then the marker's removal. From the
// first on every reader sees the plan as final; the same call again, or Recovery, completes what was broken off.
//
// Without a version in State.ETag it is one request more, which looks whether there is such a plan.
//
// The children must be the ones the plan was created with, and at a final status carry their last states.
//
// Errors: ErrInvalid before anything is sent; ErrNotFound; ErrConflict when State.ETag is not the stored version's;
// ErrUnknown when the outcome can't be known: the same call again settles it. State.ETag is set to the new version.
func (v *Vault) UpdatePlan(ctx context.Context, plan *workflow.Plan) error {
	return update(ctx, v, "UpdatePlan", plan, v.settle)
}

// UpdateChecks stores the checks' own fields with one request. Errors are as with UpdatePlan, for this and all other
// updates of parts.
func (v *Vault) UpdateChecks(ctx context.Context, checks *workflow.Checks) error {
	return update(ctx, v, "UpdateChecks", checks, nil)
}

// UpdateBlock stores the block's own fields with one request.
func (v *Vault) UpdateBlock(ctx context.Context, block *workflow.Block) error {
	return update(ctx, v, "UpdateBlock", block, nil)
}

// UpdateSequence stores the sequence's own fields with one request.
func (v *Vault) UpdateSequence(ctx context.Context, sequence *workflow.Sequence) error {
	return update(ctx, v, "UpdateSequence", sequence, nil)
}

// UpdateAction stores the action with its attempts with one request.
func (v *Vault) UpdateAction(ctx context.Context, action *workflow.Action) error {
	return update(ctx, v, "UpdateAction", action, nil)
}

// UpdateDeferredActions stores the deferred actions' own fields with one request.
func (v *Vault) UpdateDeferredActions(ctx context.Context, deferred *workflow.DeferredActions) error {
	return update(ctx, v, "UpdateDeferredActions", deferred, nil)
}

// UpdateDeferBatch stores the batch's own fields with one request.
func (v *Vault) UpdateDeferBatch(ctx context.Context, batch *workflow.DeferBatch) error {
	return update(ctx, v, "UpdateDeferBatch", batch, nil)
}

// update writes an object's own blob, then does what else there is to do.
func update[T any, P interface {
	*T
	workflow.Object
}](ctx context.Context, v *Vault, op string, o P, then func(context.Context, P) error) error {
	var id uuid.UUID
	if o != nil {
		id = *o.Header().PlanID
	}
	return v.change(op, &id, func() error {
		if o == nil {
			return storage.Invalid(op, "is nil")
		}
		if err := storage.CheckUpdate(o, v.reg); err != nil {
			return err
		}
		if err := v.updateOne(ctx, o); err != nil {
			return err
		}
		if then == nil {
			return nil
		}
		return then(ctx, o)
	})
}

// updateOne writes the blob of an object's own fields, and notes its new version in the object.
func (v *Vault) updateOne(ctx context.Context, o workflow.Object) error {
	h := o.Header()
	doing := "update " + o.Kind().String()
	ref := v.prefix.plan(*h.PlanID).of(o)

	cond := blob.IfThere
	if etag, _, _ := storage.SplitVersion(h.State.ETag); etag != "" {
		cond = blob.IfMatch(etag)
	} else if o.Kind() == workflow.KindPlan {
		// Whoever has a version has read the plan, or created it. Others may mean the entry of a Create that was broken off, which
		// must not become that of a plan that runs: searches take those for whole.
		object := v.prefix.plan(*h.PlanID).object()
		if _, err := v.client.Head(ctx, object); err != nil {
			return at("look for object", object, err)
		}
	}
	body, err := encodeOwn(o)
	if err != nil {
		return fmt.Errorf("%w: %s can't be encoded: %w", storage.ErrInvalid, doing, err)
	}
	if len(body) > blob.MaxBody {
		return storage.Invalid(doing, "needs %d bytes, %d are the most", len(body), blob.MaxBody)
	}
	etag, err := v.put(ctx, ref, body, cond, func(writeID string) (map[string]string, error) { return ownMetadata(o, writeID) })
	if err != nil {
		return at(doing, ref, err)
	}
	h.State.ETag = storage.Version(etag, h.State.Status)
	return nil
}

// settle completes the update of a plan to a final status, whose entry has been written: the object, then the marker. Until
// the object is final too, readers take the plan from its entry and sub-objects.
func (v *Vault) settle(ctx context.Context, plan *workflow.Plan) error {
	if !plan.State.Status.Final() {
		return nil
	}
	keys := v.prefix.plan(plan.ID)
	// The entry is final for everybody now, so whatever fails is not "no effect".
	begun := func(err error) error {
		return fmt.Errorf("%w: the plan is %s, and Recovery or the same call again completes the rest: %w", storage.ErrUnknown, plan.State.Status, err)
	}
	body, err := encodeObject(plan)
	if err != nil {
		return begun(err)
	}
	if _, err := v.putObject(ctx, plan, body, blob.IfThere); err != nil {
		if blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return at("settle object", keys.object(), err) // deleted meanwhile
		}
		return begun(at("settle object", keys.object(), err))
	}
	if err := v.deleteMarker(ctx, keys.marker(), ""); err != nil {
		return begun(err)
	}
	return nil
}

// putObject writes the object of a plan that has one.
func (v *Vault) putObject(ctx context.Context, plan *workflow.Plan, body []byte, cond blob.Condition) (string, error) {
	return v.put(ctx, v.prefix.plan(plan.ID).object(), body, cond, func(writeID string) (map[string]string, error) {
		return planMetadata(plan, typeObject, writeID)
	})
}
