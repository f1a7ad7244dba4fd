package azblob

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

var _ storage.Restorer = (*Vault)(nil)

// Restore stores a plan of any status as it is, with its IDs, times, states, attempts, results, owner and
// epoch. Only versions are new. It takes as many requests as [Vault.Create], and for a final plan one more,
// which removes the marker. No reader sees any of the plan before all of it is stored.
//
// Like Create, it ends within the grace period. If it does not finish, Recovery removes the remains, and so
// does the next Restore or Create of the ID, once they are older than the grace period and the margin.
//
// An open plan is open again: engines on this prefix may run it at once. Restore it only if no engine runs it
// elsewhere. A Running plan keeps its owner. If that is no member here, a fleet takes the plan over.
//
// Errors: [storage.ErrInvalid] before anything is sent, also for nil IDs and, if the vault has a registry,
// for plugins that it lacks; [storage.ErrExists] if there is a plan of this ID, whatever its content;
// [storage.ErrConflict] and [storage.ErrUnknown] as Create returns them. After ErrUnknown the same plan may
// be restored again.
func (v *Vault) Restore(ctx context.Context, plan *workflow.Plan) error {
	var id uuid.UUID
	if plan != nil {
		id = plan.ID
	}
	return v.call(ctx, "Restore", id, func(ctx context.Context) error {
		if err := driver.CheckRestored(plan, v.reg); err != nil {
			return err
		}
		return v.create(ctx, plan, true)
	})
}

// finish does the rest of a creation after its commit. Only a plan that was restored may be final, and a final
// plan has no marker. A marker that another Create may share is left to Recovery.
func (c *creation) finish(ctx context.Context) error {
	if !c.plan.State.Status.Final() || c.markerETag == "" {
		return nil
	}
	if err := c.v.deleteMarker(ctx, c.keys.marker(), c.markerETag); err != nil {
		return fmt.Errorf("%w: the plan is stored, and Recovery removes its marker: %w", storage.ErrUnknown, err)
	}
	return nil
}

// rewriteEntry stores the entry of a restored plan again, over the version that this call wrote. The removal by a
// Recovery that found the plan before its object was there then fails. An entry that has changed belongs to
// whoever runs the plan. rewriteEntry returns false if it is gone.
func (c *creation) rewriteEntry(ctx context.Context) (there bool, err error) {
	w, err := c.write(c.plan, uuid.NewString())
	if err != nil {
		return false, err
	}
	etag, err := c.v.client.Put(ctx, w.ref, w.body, w.metadata, blob.IfMatch(c.entryETag))
	switch {
	case err == nil:
		c.entryETag = etag
		return true, nil
	case blob.Is(err, blob.Mismatch):
		return true, nil
	case blob.Is(err, blob.Absent, blob.AbsentContainer):
		return false, c.v.confirmGone(ctx, c.keys, w.ref)
	}
	return false, blobError("rewrite entry", w.ref, err)
}
