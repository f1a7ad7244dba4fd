package azblob

import (
	"context"
	"crypto/sha256"
	"sync"

	"github.com/planvault/azblob/internal/blob"
)

// write is what makes two calls the same write: blob, condition and content.
type write struct {
	ref  blob.Ref
	cond blob.Condition
	body [sha256.Size]byte
}

// unknownWrites are the writeids of writes whose outcome could not be learnt. Each is for one call to take: two that do the
// same at the same time are not the same write.
type unknownWrites struct {
	mu  sync.Mutex
	ids map[write]string
}

// maxUnknown bounds the memory of an outage. A write that is forgotten meets a conflict when it is asked for again.
const maxUnknown = 10_000

func (u *unknownWrites) take(w write) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	id := u.ids[w]
	delete(u.ids, w)
	return id
}

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

// containers are those that are there, as far as is known. The zero value knows of none.
type containers struct {
	mu    sync.Mutex
	known map[string]bool
	turns map[string]chan struct{} // taken by who creates one
}

// ensure creates a container that is not known. Of calls at the same time one does, and the others wait for it.
func (c *containers) ensure(ctx context.Context, name string, create func() error) error {
	known, turn := c.look(name)
	if known {
		return nil
	}
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if known, _ := c.look(name); known {
		return nil
	}
	if err := create(); err != nil {
		return err
	}
	c.learn(name)
	return nil
}

// look says whether a container is known, and whose turn it is to create it.
func (c *containers) look(name string) (known bool, turn chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known[name] {
		return true, nil
	}
	if c.turns == nil {
		c.turns = map[string]chan struct{}{}
	}
	if c.turns[name] == nil {
		c.turns[name] = make(chan struct{}, 1)
	}
	return false, c.turns[name]
}

func (c *containers) learn(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]bool{}
	}
	c.known[name] = true
	delete(c.turns, name)
}

func (c *containers) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, name)
}
