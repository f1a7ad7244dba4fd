package azblob

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// The writes of one plan: its blobs, its markers, and the grace period that protects them.

// putOwn writes the blob with an object's own fields: the entry of a plan, which may have marks, or a sub-object.
func (s *store) putOwn(ctx context.Context, o workflow.Object, body []byte, cond blob.Condition, marks planMarks) (written, error) {
	ref := s.prefix.plan(*o.Header().PlanID).of(o)
	w, err := s.put(ctx, ref, body, cond, func(writeID string) (map[string]string, error) { return s.format.ownMetadata(o, writeID, marks) })
	return w, blobError("update "+o.Kind().String(), ref, err)
}

// putObject overwrites the object of a plan, and returns its ETag.
func (s *store) putObject(ctx context.Context, plan *workflow.Plan, body []byte, cond blob.Condition, marks planMarks) (string, error) {
	w, err := s.put(ctx, s.prefix.plan(plan.ID).object(), body, cond, func(writeID string) (map[string]string, error) {
		return s.format.planMetadata(plan, typeObject, writeID, marks)
	})
	return w.etag, err
}

// rewriteObject writes an object again as it is, but for marks that it loses. A writer that knows the old version can no
// longer change or remove it.
func (s planStore) rewriteObject(ctx context.Context, loses ...string) (plan *workflow.Plan, etag string, err error) {
	ref := s.keys.object()
	body, p, err := s.client.Get(ctx, ref)
	if err != nil {
		return nil, "", blobError("read object", ref, err)
	}
	if plan, err = s.format.decodeObject(body, s.keys.plan); err != nil {
		return nil, "", blobError("read object", ref, err) // newer code may have written it
	}
	w, err := s.put(ctx, ref, body, blob.IfMatch(p.ETag), func(writeID string) (map[string]string, error) {
		p.Metadata[blob.WriteID] = writeID
		for _, mark := range loses {
			delete(p.Metadata, mark)
		}
		return p.Metadata, nil
	})
	return plan, w.etag, blobError("rewrite object", ref, err)
}

// markerMetadata is the metadata of a marker: the writeid, and the grace period of the vault that writes it.
// Vaults of one prefix may have different grace periods, and a plan is judged by the longest.
func markerMetadata(writeID string, grace time.Duration) map[string]string {
	return map[string]string{blob.WriteID: writeID, metaGrace: grace.String()}
}

// putDeleteMarker writes the marker of a Delete. It needs no condition, because writing the marker twice does
// no harm. It also returns the service's clock.
func (s planStore) putDeleteMarker(ctx context.Context) (etag string, seen time.Time, err error) {
	ref := s.keys.deleteMarker()
	etag, seen, err = s.client.PutDated(ctx, ref, nil, markerMetadata(uuid.NewString(), s.grace), blob.Always)
	return etag, seen, blobError("write delete marker", ref, err)
}

// deleteMarker removes a marker. With an ETag it removes only that version. It is no error if the marker has
// changed, because it then belongs to another process, or if it is gone.
func (s *store) deleteMarker(ctx context.Context, ref blob.Ref, etag string) error {
	cond := blob.Always
	if etag != "" {
		cond = blob.IfMatch(etag)
	}
	err := s.client.Delete(ctx, ref, cond)
	if blob.Is(err, blob.Mismatch, blob.Absent, blob.AbsentContainer) {
		return nil
	}
	return blobError("remove marker", ref, err)
}

// graceOf returns the grace period for a plan with these markers, which may be nil: the longest of this
// vault's and those of the markers' writers.
func (s *store) graceOf(markers ...*blob.Item) (time.Duration, error) {
	longest := s.grace
	for _, m := range markers {
		if m == nil || m.Metadata[metaGrace] == "" {
			continue
		}
		d, err := time.ParseDuration(m.Metadata[metaGrace])
		if err != nil || d <= 0 {
			return 0, fmt.Errorf("%w: metadata %s is %q, which is not a grace period", storage.ErrCorrupt, metaGrace, m.Metadata[metaGrace])
		}
		longest = max(longest, d)
	}
	return longest, nil
}

// margin is the time after a grace period in which nothing is removed yet. Requests sent within the grace
// period arrive in it, and it covers the whole seconds of the service's clock.
func margin(grace time.Duration) time.Duration { return grace/4 + time.Second }

// recent reports whether a blob was written less than the grace period and the margin before at, a time of
// the service. Its writer may still be at work.
func recent(item *blob.Item, at time.Time, grace time.Duration) bool {
	return item != nil && at.Sub(item.LastModified)-margin(grace) <= grace
}

// within returns a context that ends with the grace period of a Create or Delete that began at started, by
// the monotonic clock. The request that commits has half the margin more.
func (s *store) within(ctx context.Context, started time.Time, commits bool, cause error) (context.Context, context.CancelFunc) {
	deadline := started.Add(s.grace)
	if commits {
		deadline = deadline.Add(margin(s.grace) / 2)
	}
	return blob.Within(ctx, deadline, cause)
}
