package azblob

import (
	"context"
	"sync"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// What an account with soft delete keeps of a plan.

// kept is what the account has of a plan: the live and the deleted blobs, by name, and the names of those with snapshots.
type kept struct {
	live, deleted map[string]blob.Item
	snapshots     map[string]bool
	seen          time.Time
	gone          time.Time // when the object was deleted, with which a Delete begins
}

// listKept lists all that the account has of the plan, deleted or not.
func (s planStore) listKept(ctx context.Context) (kept, error) {
	k := kept{map[string]blob.Item{}, map[string]blob.Item{}, map[string]bool{}, time.Time{}, time.Time{}}
	var mu sync.Mutex
	dirs := directories()
	err := s.parallel(len(dirs), func(i int) error {
		ref := s.keys.at(dirs[i] + s.keys.plan.String())
		for page, err := range s.client.ListKept(ctx, ref) {
			if err != nil {
				return blobError("list deleted blobs", ref, err)
			}
			mu.Lock()
			for _, item := range page {
				k.seen = item.Seen
				switch {
				case item.Snapshot:
					k.snapshots[item.Name] = true
				case item.Deleted:
					if k.deleted[item.Name] = item.Item; item.Name == s.keys.object().Name {
						k.gone = item.At
					}
				default:
					k.live[item.Name] = item.Item
				}
			}
			mu.Unlock()
		}
		return nil
	})
	if blob.Is(err, blob.AbsentContainer) {
		return k, vaultError("list deleted blobs", blob.Ref{Container: s.keys.container}, "%w: the day is not there: undelete the day", storage.ErrNotFound)
	}
	return k, err
}

// removeSnapshots deletes the snapshots of the plan's blobs, which would keep a Delete from removing them.
func (s planStore) removeSnapshots(ctx context.Context, k kept) error {
	var refs []blob.Ref
	for name := range k.snapshots {
		if _, live := k.live[name]; live {
			refs = append(refs, s.keys.at(name))
		}
	}
	return s.parallel(len(refs), func(i int) error {
		err := s.client.DeleteSnapshots(ctx, refs[i], k.live[refs[i].Name].ETag)
		if blob.Is(err, blob.Absent, blob.Mismatch) {
			return nil // somebody has changed or deleted the blob, and says what is in the way
		}
		return blobError("remove snapshots", refs[i], forgetUnknown(err))
	})
}

// clearUndelete removes the snapshots that an Undelete which did not finish has restored, if the delete marker is that of
// one. No blob with snapshots can be removed.
func (s planStore) clearUndelete(ctx context.Context, marker *blob.Item) error {
	if marker == nil || marker.Metadata[metaUndelete] == "" {
		return nil
	}
	k, err := s.listKept(ctx)
	if err != nil {
		return err
	}
	return s.removeSnapshots(ctx, k)
}
