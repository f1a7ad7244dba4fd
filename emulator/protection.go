package emulator

import (
	"net/http"
	"strings"
	"time"
)

// What protects data on an account: versions, soft delete, immutability, and the archive tier, which makes
// blobs unreadable. Kept copies are counted and can't be read.

// softDeleteDays is for how many days an account with soft delete says that it keeps blobs.
const softDeleteDays = 7

// Kept returns how many earlier versions and deleted blobs the account keeps because of [Options].Versioning and
// [Options].SoftDelete, and the total size of their bodies in bytes. The service bills them as active data until
// they expire. They are not kept in the file of [Open].
func (s *Server) Kept() (blobs int, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kept, s.keptBytes
}

// keep counts a blob that a request replaces or deletes.
func (s *Server) keep(old *blob) {
	s.kept++
	s.keptBytes += int64(len(old.Body))
}

// keepReplaced counts the blob that a put replaces. Soft delete does not protect archived blobs.
func (s *Server) keepReplaced(old *blob) {
	if old != nil && (s.versioning || s.softDelete && !s.hierarchical) {
		s.keep(old)
	}
}

// keepDeleted counts a deleted blob, and tells the client what became of it.
func (s *Server) keepDeleted(old *blob, a *answer) {
	if s.versioning || s.softDelete {
		s.keep(old)
		a.header.Set("X-Ms-Delete-Type-Permanent", "false")
	}
}

// keepContainer counts the blobs of a deleted container.
func (s *Server) keepContainer(ct *container) {
	if s.softDelete {
		ct.blobs.Ascend(func(b *blob) bool {
			s.keep(b)
			return true
		})
	}
}

// describeVersion names the version of a blob, a time with seven digits of a second.
func (s *Server) describeVersion(b *blob, h http.Header) {
	if s.versioning {
		h.Set("X-Ms-Version-Id", time.UnixMicro(int64(b.Version)).UTC().Format("2006-01-02T15:04:05.0000000Z"))
	}
}

// Archive moves the blobs of a container whose names have a prefix to the archive tier, as a lifecycle rule
// does. Their ETags don't change. They can be listed, looked at and deleted, but neither read nor written.
//
// The documentation says that an archived blob can't be modified
// (https://learn.microsoft.com/azure/storage/blobs/access-tiers-overview), and elsewhere what happens to one
// that is overwritten; the service has been seen to refuse that
// (https://github.com/Azure/azure-storage-azcopy/issues/1688).
func (s *Server) Archive(container, prefix string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ct := s.state.container(container)
	if ct == nil {
		return
	}
	ct.blobs.Clone().AscendGreaterOrEqual(&blob{Name: prefix}, func(b *blob) bool {
		if !strings.HasPrefix(b.Name, prefix) {
			return false
		}
		archived := *b
		archived.Archived = true
		s.state.putBlob(ct, &archived)
		return true
	})
}

// checkOnline refuses to read or write an archived blob.
func checkOnline(b *blob) *answer {
	if b != nil && b.Archived {
		return fail("BlobArchived")
	}
	return nil
}

// Policy is the immutability policy of a container.
type Policy int

// The policies.
const (
	NoPolicy        Policy = iota
	ContainerPolicy        // blobs can be added, but neither overwritten nor deleted
	HoldPolicy             // a legal hold: the same, with another error
	VersionPolicy          // blobs can be added and overwritten, but not deleted
)

// SetPolicy sets the immutability policy of a container, which it creates if needed. The policy applies to all
// blobs of the container and does not expire. It is not kept in the file of [Open].
// https://learn.microsoft.com/azure/storage/blobs/immutable-container-level-worm-policies,
// https://learn.microsoft.com/azure/storage/blobs/immutable-version-level-worm-policies
func (s *Server) SetPolicy(container string, p Policy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.makeContainer(container, s.clock()).policy = p
}

// checkPut refuses to overwrite a blob under a policy.
func (ct *container) checkPut(old *blob) *answer {
	if ct.policy == VersionPolicy {
		return nil
	}
	return ct.checkChange(old)
}

// checkChange refuses to delete a blob under a policy, and to write its metadata.
func (ct *container) checkChange(old *blob) *answer {
	switch {
	case old == nil, ct.policy == NoPolicy:
		return nil
	case ct.policy == HoldPolicy:
		return fail("BlobImmutableDueToLegalHold")
	}
	return fail("BlobImmutableDueToPolicy")
}
