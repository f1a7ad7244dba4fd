package azblob

import (
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// What all records have in common: how they are written and removed.

// control is what a fleet needs of a vault beside plans.
type control struct{ *session }

var _ storage.Control = control{}

// Control returns what a fleet needs of the vault beside plans: members, requests to stop plans, notes, keys, and the audit log.
// Other vaults that wrap this one offer it by [storage.As].
//
// Each call sends one request, unless it says otherwise. The first record of a prefix takes two more, which create the
// container. Roster and Keys send one for each 5,000 records, AuditEntries one for each 1,000 entries. RenewMember and Roster do not
// count for [Options].Concurrency.
func (v *Vault) Control() storage.Control { return control{v.session} }

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

// replacing returns the condition under which a record takes the place of a version, or is new if the version is empty.
func replacing(version storage.Version) blob.Condition {
	if version == "" {
		return blob.IfNew
	}
	return blob.IfMatch(string(version))
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
