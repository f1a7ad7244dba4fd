package emulator

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/google/btree"
)

// state is everything stored. The server's lock guards it.
type state struct {
	containers *btree.BTreeG[*container]

	// deleted maps the name of a deleted container to the time from which it can be used again.
	deleted map[string]time.Time

	// versions is the last ETag that was assigned.
	versions etag

	// file keeps each change before it takes effect. It is nil for a server in memory.
	file *file
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

// change is what a write does to a container or a blob, or to neither. The exported fields are kept in the file.
type change struct {
	Versions  etag // the last one in use
	Container string
	Self      *container // nil unless the container itself changes
	Blob      *blob
	Removed   bool      // instead of stored
	Until     time.Time // when the name of a removed container is free; zero means at once
}

// notStored is the panic of a write that the file does not take. [Server.execute] answers with it.
type notStored struct{ error }

// write makes a change, in the file first. It panics with notStored, and changes nothing, if that fails.
func (s *state) write(c change) {
	c.Versions = s.versions
	if err := s.file.append(c); err != nil {
		panic(notStored{err})
	}
	if err := s.apply(c); err != nil {
		panic(err) // only a damaged file has such changes
	}
}

// apply makes a change in memory.
func (s *state) apply(c change) error {
	s.versions = max(s.versions, c.Versions)
	ct := s.container(c.Container)
	switch {
	case c.Self != nil && c.Removed:
		s.containers.Delete(c.Self)
		if !c.Until.IsZero() {
			s.deleted[c.Container] = c.Until
		}
	case c.Self != nil: // a new container, or a new version with the same blobs
		if ct == nil {
			ct = newContainer(c.Container)
		}
		c.Self.blobs = ct.blobs
		s.containers.ReplaceOrInsert(c.Self)
		delete(s.deleted, c.Container)
	case c.Blob == nil:
	case ct == nil:
		return fmt.Errorf("a blob in no container %q", c.Container)
	case c.Removed:
		ct.blobs.Delete(c.Blob)
	default:
		ct.blobs.ReplaceOrInsert(c.Blob)
	}
	return nil
}

func (s *state) putContainer(ct *container) { s.write(change{Container: ct.Name, Self: ct}) }

func (s *state) putBlob(ct *container, b *blob) { s.write(change{Container: ct.Name, Blob: b}) }

func (s *state) removeBlob(ct *container, b *blob) {
	s.write(change{Container: ct.Name, Blob: &blob{Name: b.Name}, Removed: true})
}

// removeContainer removes a container and holds its name until a point in time. The zero time does not hold it.
func (s *state) removeContainer(ct *container, until time.Time) {
	s.write(change{Container: ct.Name, Self: ct, Removed: true, Until: until})
}

// container is a container with its blobs. Once it is stored, only its blobs change. The exported fields are
// those that [Open] keeps in the file.
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

// blob is one version of a blob. It is never changed once it is stored. All of it is kept in the file of [Open].
type blob struct {
	Name     string
	Body     []byte
	Metadata metadata
	Version  etag
	Created  time.Time
	Modified time.Time
	MD5      [16]byte
	Content  *content // nil is the default
}

// content are the headers that a client may give a blob.
type content struct {
	MediaType, Encoding, Language, Disposition, CacheControl, Tier string
}

const defaultMediaType = "application/octet-stream"

// headers returns the content headers; nil is the default.
func (b *blob) headers() content {
	if b.Content == nil {
		return content{MediaType: defaultMediaType}
	}
	return *b.Content
}

// tier returns the access tier: what the client said, or the account's default.
func (b *blob) tier() string {
	if b.tierInferred() {
		return "Hot"
	}
	return b.Content.Tier
}

// tierInferred tells whether the client did not say the tier.
func (b *blob) tierInferred() bool { return b.Content == nil || b.Content.Tier == "" }

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

// parseETag reads the form of listings. What is none is version 0.
func parseETag(s string) etag {
	var e uint64
	if _, err := fmt.Sscanf(strings.Trim(s, `"`), "0x8D%013X", &e); err != nil {
		return 0
	}
	return etag(e)
}
