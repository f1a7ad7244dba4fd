package fleet

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/planvault/azblob/storage"
)

// CopyState is a copy of the vault, and how far it is behind. The program that keeps the copy up to date stores a note
// whose name begins with [storage.NoteCopy].
type CopyState struct {
	// Name is the rest of the note's name, and To says for people where the copy is.
	Name, To string
	// CaughtUp is the time, by the store's clock, up to which the copy has everything. It is zero if the note does
	// not say it.
	CaughtUp time.Time
	// Lag is the time since CaughtUp. It is not negative.
	Lag time.Duration

	version string // of the note
}

// noteFinder is the part of [storage.Notes] with which a store lets notes be read.
type noteFinder interface {
	FindNote(ctx context.Context, name string) (storage.Note, error)
}

// noteSuspension notes who has suspended the vault. A note that can't be read suspends it, too.
func (i *inspector) noteSuspension(ctx context.Context, r storage.Roster) {
	if _, suspended := r.FindNote(storage.NoteSuspended); !suspended {
		return
	}
	i.Suspended = new(storage.Suspension)
	if store, ok := i.store.(noteFinder); ok {
		if n, err := store.FindNote(ctx, storage.NoteSuspended); err == nil {
			*i.Suspended, _ = storage.ReadNote[storage.Suspension](n)
		}
	}
}

// noteCopies says how far the copies of the vault are behind. It reads the notes that have changed since the
// inspection before. What can't be read now keeps its state; a lag then only grows.
func (i *inspector) noteCopies(ctx context.Context, notes []storage.Note) {
	store, ok := i.store.(noteFinder)
	if !ok {
		return
	}
	before := map[string]CopyState{}
	if i.o.Before != nil {
		for _, c := range i.o.Before.Copies {
			before[c.Name] = c
		}
	}
	for _, n := range notes {
		name, isCopy := strings.CutPrefix(n.Name, storage.NoteCopy)
		if !isCopy {
			continue
		}
		c := before[name]
		if c.version != n.Version {
			if read, err := store.FindNote(ctx, n.Name); err == nil {
				c = copyOf(read)
			}
		}
		if c.Name = name; !c.CaughtUp.IsZero() {
			c.Lag = max(0, i.Now.Sub(c.CaughtUp))
		}
		i.Copies = append(i.Copies, c)
	}
}

// copyOf returns what the note of a copy says. It may have any text.
func copyOf(n storage.Note) CopyState {
	var says struct {
		To       string
		CaughtUp string
	}
	_ = json.Unmarshal(n.Text, &says) // a wrong type in one member leaves the other
	c := CopyState{To: cut(says.To), version: n.Version}
	if at, err := time.Parse(time.RFC3339, says.CaughtUp); err == nil {
		c.CaughtUp = at.UTC()
	}
	return c
}
