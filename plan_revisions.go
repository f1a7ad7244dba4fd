package azblob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage/driver"
)

// Which plans have changed, by the versions of their sub-objects.

// Revisions returns, for each of the plans, a text that changes with each update of one of its sub-objects. It is not
// the version of anything, and does not change with updates of the plan itself: listings show those. A plan without
// blobs has a text, too.
//
// It takes listings alone, at most one for each plan and kind of sub-object, and fewer where plans are neighbors: a
// page shows 5,000 sub-objects. An update that was stored before the call is seen.
//
// Errors: [storage.ErrInvalid] for an ID that is not a UUIDv7.
func (o offered) Revisions(ctx context.Context, plans []uuid.UUID) (revisions map[uuid.UUID]string, err error) {
	err = o.call(ctx, "Revisions", uuid.Nil, func(ctx context.Context) error {
		days := map[string][]uuid.UUID{}
		for _, id := range slices.SortedFunc(slices.Values(plans), driver.NewestFirst) {
			if driver.CheckID(id) != nil {
				return driver.Invalid("Plans", "%s is not the ID of a plan", id)
			}
			k := o.prefix.plan(id)
			days[k.container] = append(days[k.container], id)
		}
		var sweeps []*sweep
		for container, ids := range days {
			slices.Reverse(ids)
			for _, k := range kinds {
				sweeps = append(sweeps, &sweep{container: container, kind: k, plans: ids, sums: map[uuid.UUID][sha256.Size]byte{}})
			}
		}
		if err := o.parallel(len(sweeps), func(i int) error { return o.sweepParts(ctx, sweeps[i]) }); err != nil {
			return err
		}
		revisions = make(map[uuid.UUID]string, len(plans))
		for _, s := range sweeps {
			for _, id := range s.plans {
				sum := s.sums[id]
				revisions[id] += string(sum[:8])
			}
		}
		return nil
	})
	return revisions, err
}

// sweep is a listing of the sub-objects that some plans of a day have of a kind.
type sweep struct {
	container string
	kind      kind
	plans     []uuid.UUID // oldest first
	sums      map[uuid.UUID][sha256.Size]byte
}

// add adds a sub-object to the sum of its plan.
func (s *sweep) add(plan uuid.UUID, item blob.Item) {
	sum := s.sums[plan]
	s.sums[plan] = sha256.Sum256(slices.Concat(sum[:], []byte(item.Name), []byte{0}, []byte(item.ETag)))
}

// sweepParts lists sub-objects from the first of the plans to the last. Where the plans lie apart, it leaves out what is
// between them.
func (s *store) sweepParts(ctx context.Context, w *sweep) error {
	for left := w.plans; len(left) > 0; {
		opts := blob.ListOptions{Prefix: w.kind.dir, StartFrom: w.kind.dir + left[0].String()}
		if len(left) == 1 {
			opts = blob.ListOptions{Prefix: opts.StartFrom + "/"}
		}
		next, err := s.sweepOn(ctx, w, left, opts)
		if err != nil {
			return err
		}
		left = next
	}
	return nil
}

// sweepOn lists until what follows is not wanted, and returns the plans that are left.
func (s *store) sweepOn(ctx context.Context, w *sweep, left []uuid.UUID, opts blob.ListOptions) ([]uuid.UUID, error) {
	for page, err := range s.client.List(ctx, w.container, opts) {
		if blob.Is(err, blob.AbsentContainer) {
			return nil, nil
		}
		if err != nil {
			return nil, blobError("list sub-objects", blob.Ref{Container: w.container, Name: opts.Prefix}, err)
		}
		var last uuid.UUID
		for _, item := range page.Items {
			n, ok := parseName(item.Name)
			if !ok || item.Name < opts.StartFrom { // a stray, or the service ignores where to begin
				continue
			}
			for last = n.plan; len(left) > 0 && bytes.Compare(left[0][:], last[:]) < 0; left = left[1:] {
			}
			if len(left) > 0 && left[0] == last {
				w.add(last, item)
			}
		}
		if len(left) == 0 || last != uuid.Nil && left[0] != last && page.More {
			return left, nil
		}
	}
	return nil, nil
}
