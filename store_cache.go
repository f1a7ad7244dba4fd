package azblob

import (
	"context"
	"crypto/sha256"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// What a vault remembers between its calls, to save requests and to recognize its own writes. Other processes don't
// need it.

// containers are the containers that are known to exist, by name.
type containers struct {
	known sync.Map
	items sync.Map // those that were listed or looked at: a blob.ContainerItem
	// turns are held by the calls that create containers, one chan struct{} for each name. Other calls for the same
	// container wait for it, or for their contexts.
	turns sync.Map
}

// ensure calls create unless the container is known. Concurrent calls wait for the first one and then need
// not create it again.
func (c *containers) ensure(ctx context.Context, name string, create func() error) error {
	if c.knows(name) {
		return nil
	}
	turns, _ := c.turns.LoadOrStore(name, make(chan struct{}, 1))
	turn := turns.(chan struct{})
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.knows(name) {
		return nil
	}
	if err := create(); err != nil {
		return err
	}
	c.learn(name)
	return nil
}

func (c *containers) knows(name string) bool {
	_, ok := c.known.Load(name)
	return ok
}

func (c *containers) learn(name string) { c.known.Store(name, true) }

// remember learns that a container exists, and what a listing shows of it.
func (c *containers) remember(item blob.ContainerItem) {
	c.learn(item.Name)
	c.items.Store(item.Name, item)
}

// listed returns a container that was remembered.
func (c *containers) listed(name string) (blob.ContainerItem, bool) {
	item, ok := c.items.Load(name)
	if !ok {
		return blob.ContainerItem{}, false
	}
	return item.(blob.ContainerItem), true
}

func (c *containers) forget(name string) {
	c.known.Delete(name)
	c.items.Delete(name)
}

// startedPlans are the open plans that a search has seen after their start, by the ETags of their markers. A
// plan never moves back to NotStarted, and a Create of the same ID writes the marker anew. A search for
// NotStarted plans therefore leaves them out without looking at them again.
type startedPlans struct {
	mu      sync.Mutex
	markers map[uuid.UUID]startedMarker
}

type startedMarker struct {
	etag   string
	listed time.Time // when the last search that listed it began
}

const (
	// maxStarted bounds the memory to about 10 MB. Plans beyond it are looked at by each search.
	maxStarted = 100_000
	// startedFor is how long a marker is remembered that no search lists.
	startedFor = 2 * time.Hour
)

// relisted notes that a search which began at a time has listed a marker, and reports whether its plan is known to
// have started.
func (s *startedPlans) relisted(plan uuid.UUID, etag string, began time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, ok := s.markers[plan]
	if !ok || m.etag != etag {
		return false
	}
	if m.listed.Before(began) {
		s.markers[plan] = startedMarker{etag, began}
	}
	return true
}

// note remembers the marker of a plan that has started.
func (s *startedPlans) note(plan uuid.UUID, etag string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.markers == nil {
		s.markers = map[uuid.UUID]startedMarker{}
	}
	if _, ok := s.markers[plan]; ok || len(s.markers) < maxStarted {
		s.markers[plan] = startedMarker{etag, time.Now()}
	}
}

// forget forgets the markers that a whole search which began at a time has not listed, and those that no
// search lists any more.
func (s *startedPlans) forget(f storage.Filters, began time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.markers, func(id uuid.UUID, m startedMarker) bool {
		searched := f.Limit == 0 && driver.ChooseID(f, id)
		return searched && m.listed.Before(began) || began.Sub(m.listed) > startedFor
	})
}

// rememberAbsence is how long a vault does not ask again for what it has not found or could not use. What it asks
// for saves requests, and is never needed.
const rememberAbsence = time.Hour

// absences are the days in which something was not found: by container, when.
type absences struct{ seen sync.Map }

func (u *absences) remember(container string, now time.Time) { u.seen.Store(container, now) }

func (u *absences) forget(container string) { u.seen.Delete(container) }

func (u *absences) has(container string, now time.Time) bool {
	at, ok := u.seen.Load(container)
	return ok && now.Sub(at.(time.Time)) < rememberAbsence
}

// What a vault remembers between its calls, to save requests and to recognise its own writes. Other processes
// do not need it.

// write is what makes two calls the same write: blob, condition and content.
type write struct {
	ref  blob.Ref
	cond blob.Condition
	body []byte
}

// identity is a write by a hash of its content.
type identity struct {
	ref  blob.Ref
	cond blob.Condition
	body [sha256.Size]byte
}

func (w write) identity() identity { return identity{w.ref, w.cond, sha256.Sum256(w.body)} }

// unknownWrites are the writeids of writes whose outcome is unknown. Only one call may take a writeid: two calls that
// do the same at the same time are two writes.
type unknownWrites struct {
	mu  sync.Mutex
	ids map[identity]string
}

// maxUnknown bounds the memory that an outage takes. A write that was dropped meets a conflict when it is
// made again.
const maxUnknown = 10_000

// take returns the writeid of a write, or "", and forgets it.
func (u *unknownWrites) take(w write) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.ids) == 0 { // nearly always, and then no hash is needed
		return ""
	}
	is := w.identity()
	id := u.ids[is]
	delete(u.ids, is)
	return id
}

// keep remembers the writeid of a write.
func (u *unknownWrites) keep(w write, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[identity]string{}
	}
	for old := range u.ids {
		if len(u.ids) < maxUnknown {
			break
		}
		delete(u.ids, old)
	}
	u.ids[w.identity()] = id
}
