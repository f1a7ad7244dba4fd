package azblob

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Markers, and the times that they set.

// markerMetadata is what a marker says: whose write it is, and the grace period of the vault that wrote it. Vaults of one
// prefix may have different ones, and whoever judges the plan waits for the longest.
func markerMetadata(writeID string, grace time.Duration) map[string]string {
	return map[string]string{blob.WriteID: writeID, metaGrace: grace.String()}
}

// putDeleteMarker announces a Delete. It needs no condition: to write the marker twice does no harm.
func (v *Vault) putDeleteMarker(ctx context.Context, keys keys) (etag string, err error) {
	ref := keys.deleteMarker()
	etag, err = v.client.Put(ctx, ref, nil, markerMetadata(uuid.NewString(), v.grace), blob.Always)
	return etag, blobError("write delete marker", ref, err)
}

// deleteMarker removes a marker; with an ETag, only if it is still of that version. A marker that has changed is somebody
// else's, and one that is gone needs no removal: both are no error.
func (v *Vault) deleteMarker(ctx context.Context, ref blob.Ref, etag string) error {
	cond := blob.Always
	if etag != "" {
		cond = blob.IfMatch(etag)
	}
	err := v.client.Delete(ctx, ref, cond)
	if blob.Is(err, blob.Mismatch, blob.Absent, blob.AbsentContainer) {
		return nil
	}
	return blobError("remove marker", ref, err)
}

// graceOf returns the grace period to wait for before a plan with these markers is judged: the longest of this vault's and
// those of the markers' writers. Markers may be nil.
func (v *Vault) graceOf(markers ...*blob.Item) (time.Duration, error) {
	longest := v.grace
	for _, m := range markers {
		if m == nil || m.Metadata[metaGrace] == "" {
			continue
		}
		d, err := time.ParseDuration(m.Metadata[metaGrace])
		if err != nil || d <= 0 {
			return 0, fmt.Errorf("%w: metadata %s is %q, which is no grace period", storage.ErrCorrupt, metaGrace, m.Metadata[metaGrace])
		}
		longest = max(longest, d)
	}
	return longest, nil
}

// margin is what is added to a grace period before anything is removed: time for requests that were sent within it to
// arrive, and for the service's clock, which tells whole seconds.
func margin(grace time.Duration) time.Duration { return grace/4 + time.Second }

// young says whether a blob had, by a time of the service, been written so recently that its writer may still be at work.
func recent(item *blob.Item, at time.Time, grace time.Duration) bool {
	return item != nil && at.Sub(item.LastModified)-margin(grace) <= grace
}

// within bounds a context by the grace period of a write that began at started, by the monotonic clock. The request that
// commits may take half the margin longer.
func (v *Vault) within(ctx context.Context, started time.Time, commits bool, cause error) (context.Context, context.CancelFunc) {
	deadline := started.Add(v.grace)
	if commits {
		deadline = deadline.Add(margin(v.grace) / 2)
	}
	return blob.Within(ctx, deadline, cause)
}

// put writes a blob under a writeid of its own. When the outcome is unknown the writeid is kept, and used again by the same
// write when it is asked for again, so that it recognises what it may have written.
func (v *Vault) put(ctx context.Context, ref blob.Ref, body []byte, cond blob.Condition, metadata func(writeID string) (map[string]string, error)) (written, error) {
	w := written{write: write{ref, cond, sha256.Sum256(body)}}
	if w.id = v.unknown.take(w.write); w.id == "" {
		w.id = uuid.NewString()
	}
	m, err := metadata(w.id)
	if err != nil {
		return w, err
	}
	w.etag, err = v.client.Put(ctx, ref, body, m, cond)
	if blob.IsUnknown(err) {
		v.unknown.keep(w.write, w.id)
	}
	return w, err
}

// written is a write that took effect.
type written struct {
	write
	id   string // its writeid
	etag string
}

// ensureContainer creates a day's container unless this vault knows that it is there.
func (v *Vault) ensureContainer(ctx context.Context, name string) error {
	return v.containers.ensure(ctx, name, func() error {
		return v.client.CreateContainer(ctx, name, map[string]string{metaLayout: "1"})
	})
}

// putOwn writes the blob of an object's own fields.
func (v *Vault) putOwn(ctx context.Context, o workflow.Object, body []byte, cond blob.Condition) (written, error) {
	ref := v.prefix.plan(*o.Header().PlanID).of(o)
	w, err := v.put(ctx, ref, body, cond, func(writeID string) (map[string]string, error) { return ownMetadata(o, writeID) })
	return w, blobError("update "+o.Kind().String(), ref, err)
}

// putObject writes the object of a plan that has one, and returns its version.
func (v *Vault) putObject(ctx context.Context, plan *workflow.Plan, body []byte, cond blob.Condition) (string, error) {
	w, err := v.put(ctx, v.prefix.plan(plan.ID).object(), body, cond, func(writeID string) (map[string]string, error) {
		return planMetadata(plan, typeObject, writeID)
	})
	return w.etag, err
}
