package emulator

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/google/btree"
	"go.etcd.io/bbolt"
)

// state is everything stored. The server's lock guards it.
type state struct {
	containers *btree.BTreeG[*container]

	// deleted maps the name of a deleted container to the time from which it can be used again.
	deleted map[string]time.Time

	// versions is the last ETag that was assigned.
	versions etag

	// file keeps each change before it takes effect. It is nil for a server in memory.
	file *bbolt.DB
}

func newState() state {
	return state{
		containers: btree.NewG(degree, func(a, b *container) bool { return a.Name < b.Name }),
		deleted:    make(map[string]time.Time),
	}
}

// degree is the degree of the trees. A million blobs are four levels.
const degree = 32

// clone copies the state without its file. Trees are copied on write and blobs are never changed, so the cost
// depends on the number of containers only.
func (s *state) clone() state {
	c := newState()
	s.containers.Ascend(func(ct *container) bool {
		c.containers.ReplaceOrInsert(ct.clone())
		return true
	})
	c.deleted = maps.Clone(s.deleted)
	c.versions = s.versions
	return c
}

// nextVersion returns an ETag that no write has had before. Like the service's ETags it follows the clock. It
// falls back to counting if the clock stands still or goes back.
func (s *state) nextVersion(now time.Time) etag {
	s.versions = max(s.versions+1, etag(max(0, now.UnixMicro())))
	return s.versions
}

// container returns a container, or nil.
func (s *state) container(name string) *container {
	ct, _ := s.containers.Get(&container{Name: name})
	return ct
}

// find returns a container and a blob, each nil if it does not exist.
func (s *state) find(container, name string) (*container, *blob) {
	ct := s.container(container)
	if ct == nil {
		return nil, nil
	}
	return ct, ct.blob(name)
}

// change is what a write does to a container or to a blob.
type change struct {
	versions  etag // the last one in use
	container string
	self      *container // nil unless the container itself changes
	blob      *blob
	removed   bool      // instead of stored
	until     time.Time // when the name of a removed container is free; zero means at once
}

// notStored is the panic of a write that the file does not take. [Server.execute] answers with it.
type notStored struct{ error }

// write makes a change, in the file first. It panics with notStored, and changes nothing, if that fails.
func (s *state) write(c change) {
	c.versions = s.versions
	if s.file != nil {
		if err := s.file.Update(c.store); err != nil {
			panic(notStored{fmt.Errorf("a write could not be stored: %w", err)})
		}
	}
	s.apply(c)
}

// apply makes a change in memory. The container of a blob exists.
func (s *state) apply(c change) {
	ct := s.container(c.container)
	switch {
	case c.self != nil && c.removed:
		s.containers.Delete(c.self)
		if !c.until.IsZero() {
			s.deleted[c.container] = c.until
		}
	case c.self != nil: // a new container, or a new version with the same blobs
		if ct == nil {
			ct = newContainer(c.container)
		}
		c.self.blobs = ct.blobs
		s.containers.ReplaceOrInsert(c.self)
		delete(s.deleted, c.container)
	case c.removed:
		ct.blobs.Delete(c.blob)
	default:
		ct.blobs.ReplaceOrInsert(c.blob)
	}
}

func (s *state) putContainer(ct *container) { s.write(change{container: ct.Name, self: ct}) }

func (s *state) putBlob(ct *container, b *blob) { s.write(change{container: ct.Name, blob: b}) }

func (s *state) removeBlob(ct *container, b *blob) {
	s.write(change{container: ct.Name, blob: &blob{Name: b.Name}, removed: true})
}

// removeContainer removes a container and holds its name until a point in time. The zero time does not hold it.
func (s *state) removeContainer(ct *container, until time.Time) {
	s.write(change{container: ct.Name, self: ct, removed: true, until: until})
}

// container is a container with its blobs. Once it is stored, only its blobs change. [Open] keeps the exported
// fields in the file.
type container struct {
	Name     string
	Metadata metadata
	Version  etag
	Modified time.Time
	policy   Policy
	Lease    lease
	blobs    *btree.BTreeG[*blob]
}

func newContainer(name string) *container {
	return &container{
		Name:  name,
		blobs: btree.NewG(degree, func(a, b *blob) bool { return a.Name < b.Name }),
	}
}

func (ct *container) clone() *container {
	c := *ct
	c.blobs = ct.blobs.Clone()
	return &c
}

// blob returns a blob, or nil.
func (ct *container) blob(name string) *blob {
	b, _ := ct.blobs.Get(&blob{Name: name})
	return b
}

// has reports whether the name of a blob has a prefix.
func (ct *container) has(prefix string) (found bool) {
	ct.blobs.AscendGreaterOrEqual(&blob{Name: prefix}, func(b *blob) bool {
		found = strings.HasPrefix(b.Name, prefix)
		return false
	})
	return found
}

// blob is one version of a blob. A stored version never changes. [Open] keeps all fields in the file.
type blob struct {
	Name     string
	Body     []byte
	Metadata metadata
	Version  etag
	Created  time.Time
	Modified time.Time
	MD5      [16]byte

	MediaType string // "" is the default
	Archived  bool   // in the archive tier
}

// mediaType returns the content type.
func (b *blob) mediaType() string { return cmp.Or(b.MediaType, "application/octet-stream") }

// tier returns the access tier.
func (b *blob) tier() string {
	if b.Archived {
		return "Archive"
	}
	return "Hot"
}

// etag is a version of a blob or a container.
type etag uint64

// bare is the form of listings, without quotes.
func (e etag) bare() string { return fmt.Sprintf("0x8D%013X", uint64(e)&(1<<52-1)) }

// quoted is the form of headers.
func (e etag) quoted() string { return `"` + e.bare() + `"` }

// is compares with what a client sent, quoted or not.
func (e etag) is(sent string) bool { return strings.Trim(sent, `"`) == e.bare() }

// stamp is the service's form of time, with a granularity of one second.
func stamp(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

// second cuts a time to what stamp can say.
func second(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// parseETag reads the form of listings. It returns 0 for any other text.
func parseETag(s string) etag {
	var e uint64
	if _, err := fmt.Sscanf(strings.Trim(s, `"`), "0x8D%013X", &e); err != nil {
		return 0
	}
	return etag(e)
}
