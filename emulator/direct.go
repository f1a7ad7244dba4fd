package emulator

import (
	"bytes"
	"crypto/md5" // the service's own checksum
	"fmt"
	"iter"
	"slices"
	"time"
)

// Blob is a stored blob, as returned by [Server.Blobs].
type Blob struct {
	Name         string
	Body         []byte            // must not be changed
	Metadata     map[string]string // names in lower case; must not be changed
	ETag         string            // without quotes, as in listings
	Created      time.Time
	LastModified time.Time // to the second
	MD5          []byte    // as stored; see Server.Corrupt
	ContentType  string
}

// Containers yields the names of all containers in order. It is a snapshot from the start of the loop.
func (s *Server) Containers() iter.Seq[string] {
	return func(yield func(string) bool) {
		s.mu.Lock()
		names := make([]string, 0, s.state.containers.Len())
		s.state.containers.Ascend(func(ct *container) bool {
			names = append(names, ct.Name)
			return true
		})
		s.mu.Unlock()
		for _, name := range names {
			if !yield(name) {
				return
			}
		}
	}
}

// Blobs yields all blobs of a container in the order of their names. It is a snapshot from the start of the
// loop, in which the server may be used. A container that does not exist has no blobs.
func (s *Server) Blobs(container string) iter.Seq[Blob] {
	return func(yield func(Blob) bool) {
		s.mu.Lock()
		ct := s.state.container(container)
		if ct == nil {
			s.mu.Unlock()
			return
		}
		// The tree is copied on write, so this does not copy a million blobs.
		blobs := ct.blobs.Clone()
		s.mu.Unlock()
		blobs.Ascend(func(b *blob) bool { return yield(b.public()) })
	}
}

// Blob returns a blob, and whether it exists.
func (s *Server) Blob(container, name string) (Blob, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, b := s.state.find(container, name)
	if b == nil {
		return Blob{}, false
	}
	return b.public(), true
}

// Len returns the number of blobs in a container.
func (s *Server) Len(container string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	ct := s.state.container(container)
	if ct == nil {
		return 0
	}
	return ct.blobs.Len()
}

func (b *blob) public() Blob {
	return Blob{
		Name:         b.Name,
		Body:         b.Body,
		Metadata:     b.Metadata.unpack(),
		ETag:         b.Version.bare(),
		Created:      b.Created,
		LastModified: b.Modified,
		MD5:          b.MD5[:],
		ContentType:  b.mediaType(),
	}
}

// Put stores a blob without a request: no rule, log, gate or limit applies. It creates the container if
// needed. Put keeps the body without copying it, so the body must not be changed afterwards.
func (s *Server) Put(container, name string, body []byte, metadata map[string]string) {
	b := &blob{Name: name, Body: body, Metadata: packMetadata(metadata), MD5: md5.Sum(body)}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	ct := s.makeContainer(container, now)
	b.Version = s.state.nextVersion(now)
	b.Modified = second(now)
	b.Created = b.Modified
	s.store(ct, b)
}

// Restore stores a blob as [Server.Blobs] or [Server.Blob] returned it, with its ETag and times: an earlier
// version, or a blob of another server. It creates the container if needed.
func (s *Server) Restore(container string, old Blob) {
	b := &blob{
		Name: old.Name, Body: old.Body, Metadata: packMetadata(old.Metadata),
		Version: parseETag(old.ETag), Created: old.Created, Modified: second(old.LastModified), MediaType: old.ContentType,
	}
	copy(b.MD5[:], old.MD5)
	s.mu.Lock()
	defer s.mu.Unlock()
	// No later write may get this version again.
	s.state.versions = max(s.state.versions, b.Version)
	s.store(s.makeContainer(container, s.clock()), b)
}

// makeContainer returns a container and creates it if needed.
func (s *Server) makeContainer(name string, now time.Time) *container {
	if ct := s.state.container(name); ct != nil {
		return ct
	}
	ct := newContainer(name)
	ct.touch(s, now)
	s.state.putContainer(ct)
	return ct
}

// PutContainer creates a container without a request, or replaces the metadata of an existing one.
func (s *Server) PutContainer(name string, metadata map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock()
	changed := *s.makeContainer(name, now)
	changed.Metadata = packMetadata(metadata)
	changed.touch(s, now)
	s.state.putContainer(&changed)
}

// Remove deletes a blob without a request. It reports whether the blob existed.
func (s *Server) Remove(container, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ct, b := s.state.find(container, name)
	if b == nil {
		return false
	}
	s.state.removeBlob(ct, b)
	return true
}

// RemoveContainer deletes a container without a request. It reports whether the container existed. The name
// can be used again at once.
func (s *Server) RemoveContainer(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	ct := s.state.container(name)
	if ct == nil {
		return false
	}
	s.state.removeContainer(ct, time.Time{})
	return true
}

// Corrupt changes the bytes of a blob and nothing else: MD5, ETag and times stay the same, as when a disk
// damages the blob. damage gets a copy that it may change. Corrupt reports whether the blob existed.
func (s *Server) Corrupt(container, name string, damage func([]byte) []byte) bool {
	old, ok := s.Blob(container, name)
	if !ok {
		return false
	}
	body := damage(slices.Clone(old.Body))
	s.mu.Lock()
	defer s.mu.Unlock()
	ct, b := s.state.find(container, name)
	if b == nil || !bytes.Equal(b.Body, old.Body) {
		return false
	}
	damaged := *b
	damaged.Body = body
	s.state.putBlob(ct, &damaged)
	return true
}

// Forbid calls judge for each request before it takes effect, so that a test fails on requests that its
// protocol does not allow. An error refuses the request with 400 ForbiddenByTest and is kept for
// [Server.Violations]. The function may read what is stored, for example with [Server.Blobs], and must be
// safe for concurrent use. Late duplicates are not judged again. A nil function allows everything.
func (s *Server) Forbid(judge func(Request) error) {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	s.forbid = judge
}

// Violations returns the errors with which [Server.Forbid] refused requests, each with its request.
func (s *Server) Violations() []error {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	return slices.Clone(s.violations)
}

// banned returns why the request is forbidden, or nil.
func (s *Server) banned(r Request) error {
	s.fmu.Lock()
	judge := s.forbid
	s.fmu.Unlock()
	if judge == nil {
		return nil
	}
	err := judge(r)
	if err != nil {
		s.fmu.Lock()
		s.violations = append(s.violations, fmt.Errorf("%s: %w", r, err))
		s.fmu.Unlock()
	}
	return err
}

// secondarySuffix is what the name of an account has at its secondary.
const secondarySuffix = "-secondary"

// Replicate brings the secondary of the account up to date. An account has a secondary from the first
// Replicate on, at the host or path of the account with "-secondary": it answers reads with what was stored
// then, and refuses writes.
func (s *Server) Replicate() {
	copied := s.Clone()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.second = copied
}

// executeAtSecondary executes a verified request at the secondary. The server's lock is held.
func (s *Server) executeAtSecondary(c *call) *answer {
	switch {
	case s.second == nil: // the account has no read access to it
		return failWith("InsufficientAccountPermissions", "The account has no read-access geo-redundant replication.")
	case needOf(c).write:
		return fail("InsufficientAccountPermissions")
	}
	return c.operation.do(s.second, c)
}
