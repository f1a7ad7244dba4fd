package azblob

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/planvault/azblob/internal/blob"
)

// What a vault remembers between its calls, to save requests and to recognise its own writes. Other processes
// do not need it.

// write is what makes two calls the same write: blob, condition and content.
type write struct {
	ref  blob.Ref
	cond blob.Condition
	body [sha256.Size]byte
}

// unknownWrites are the writeids of writes whose outcome is unknown. Only one call may take a writeid: two
// that do the same at the same time are two writes.
type unknownWrites struct {
	mu  sync.Mutex
	ids map[write]string
}

// maxUnknown bounds the memory that an outage takes. A write that was dropped meets a conflict when it is
// made again.
const maxUnknown = 10_000

// take returns the writeid of a write and forgets it; "" if there is none.
func (u *unknownWrites) take(w write) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := u.ids[w]
	delete(u.ids, w)
	return id
}

// keep remembers the writeid of a write.
func (u *unknownWrites) keep(w write, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ids == nil {
		u.ids = map[write]string{}
	}
	for old := range u.ids {
		if len(u.ids) < maxUnknown {
			break
		}
		delete(u.ids, old)
	}
	u.ids[w] = id
}

// containers are the containers that are known to exist.
type containers struct {
	mu    sync.Mutex
	known map[string]bool
	// turns are held by the calls that create containers, one for each name. Other calls for the same container
	// wait for it, or for their contexts.
	turns map[string]chan struct{}
}

func newContainers() *containers {
	return &containers{known: map[string]bool{}, turns: map[string]chan struct{}{}}
}

// ensure calls create unless the container is known. Concurrent calls wait for the first one and then need
// not create it again.
func (c *containers) ensure(ctx context.Context, name string, create func() error) error {
	if c.knows(name) {
		return nil
	}
	turn := c.turn(name)
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
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known[name]
}

func (c *containers) turn(name string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.turns[name] == nil {
		c.turns[name] = make(chan struct{}, 1)
	}
	return c.turns[name]
}

func (c *containers) learn(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known[name] = true
}

func (c *containers) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, name)
}
