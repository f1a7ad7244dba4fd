package azblob

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// What all records have in common: how they are written and removed.

var _ storage.Control = (*Vault)(nil)

// putRecord writes a record and returns its version. If the condition is that the record is new, it creates
// the control container when that is missing.
func (s *store) putRecord(ctx context.Context, doing string, ref blob.Ref, r record, cond blob.Condition) (version storage.Version, err error) {
	body, err := s.format.encodeRecord(r)
	if err != nil {
		return "", err
	}
	metadata := func(writeID string) (map[string]string, error) { return s.format.recordMetadata(r, writeID), nil }
	w, err := s.put(ctx, ref, body, cond, metadata)
	if cond == blob.IfNew && blob.Is(err, blob.AbsentContainer) {
		s.containers.forget(ref.Container) // somebody removed it
		if err := s.ensureContainer(ctx, ref.Container); err != nil {
			return "", blobError("create container", blob.Ref{Container: ref.Container}, err)
		}
		w, err = s.put(ctx, ref, body, cond, metadata)
	}
	if cond == blob.IfNew && blob.Is(err, blob.Mismatch) {
		return "", vaultError(doing, ref, "%w", storage.ErrExists)
	}
	return storage.Version(w.etag), blobError(doing, ref, err)
}

// removeRecord removes a record that has this version. If an earlier request of this call, or an earlier call
// of unknown outcome, may have removed it, it is no error that the record is gone.
func (s *store) removeRecord(ctx context.Context, doing string, ref blob.Ref, version storage.Version) error {
	w := write{ref: ref, cond: blob.IfMatch(string(version))}
	again := s.unknown.take(w) != ""
	err := s.client.Delete(ctx, ref, w.cond)
	switch unknown := blob.IsUnknown(err); {
	case blob.Is(err, blob.Absent, blob.AbsentContainer) && (again || unknown):
		return nil
	case unknown || again && !settled(err):
		s.unknown.keep(w, uuid.NewString())
	}
	return blobError(doing, ref, err)
}
