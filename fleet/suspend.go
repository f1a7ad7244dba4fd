package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob/storage"
)

// suspendedBy returns [ErrSuspended] if a roster or the store says that the store is suspended, with who suspended it and
// why, or why that is not known.
func suspendedBy(ctx context.Context, store storage.Control, r storage.Roster) error {
	_, suspended := r.FindNote(storage.NoteSuspended)
	var c storage.Suspension
	n, err := store.FindNote(ctx, storage.NoteSuspended)
	switch {
	case suspended || err == nil:
	case errors.Is(err, storage.ErrNotFound):
		return nil // a roster alone may have missed it
	default:
		return fmt.Errorf("look whether the vault is suspended: %w", err)
	}
	if err == nil {
		c, err = storage.ReadNote[storage.Suspension](n)
	}
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return fmt.Errorf("%w until a moment ago: try again", ErrSuspended)
	case err != nil:
		return fmt.Errorf("%w; who suspended it can't be read: %w", ErrSuspended, err)
	}
	return suspendedError(c)
}

func suspendedError(c storage.Suspension) error {
	return fmt.Errorf("%w by %s since %s: %s; %s", ErrSuspended, c.By, c.At.Format(time.RFC3339), c.Why, c.Remedy())
}

// obey gives up all plans if the store is suspended, and notes that the node has looked.
func (n *Node) obey(r storage.Roster) {
	_, suspended := r.FindNote(storage.NoteSuspended)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looked, n.suspended = time.Now().Round(0), n.suspended || suspended && !n.o.suspended
	if !n.suspended {
		return
	}
	for _, w := range n.work {
		w.end(ErrSuspended)
	}
	n.drain()
	n.record.self.Phase = storage.Leaving
	n.record.announce()
}

// Suspended reports whether the node has seen that the store is suspended. Loops over [Node.Plans] have ended, and the
// contexts of [Node.Work] end with the cause [ErrSuspended]. The process lets its plans go, and calls [Node.Leave].
func (n *Node) Suspended() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.suspended
}

// admitted returns an error if the node may not become the owner of a plan because the store is suspended. A node that has
// not looked at the members for a TTL looks now: it may have slept while the store was suspended and its plans were
// fenced. The wall clock decides, because it runs on while a machine sleeps.
func (n *Node) admitted(ctx context.Context) error {
	n.mu.Lock()
	age := time.Now().Round(0).Sub(n.looked)
	n.mu.Unlock()
	if age > n.o.TTL || age < -n.o.TTL {
		r, err := n.roster(ctx)
		if err != nil {
			return err
		}
		n.obey(r)
	}
	if n.Suspended() {
		return ErrSuspended
	}
	return nil
}

// Suspend keeps engines away from a store until [Resume]: the nodes of its fleet let their plans go and leave, and [Join]
// returns [ErrSuspended]. An engine without a fleet looks only when it starts. Suspend returns what the store's note says:
// an earlier suspension stays, and takes over the MovedTo of c. If the store has moved elsewhere, the error is
// ErrSuspended. If c.At is zero, it is now. Suspend returns at once: [Clear] waits.
func Suspend(ctx context.Context, store storage.Control, c storage.Suspension) (storage.Suspension, error) {
	if c.At.IsZero() {
		c.At = time.Now().UTC()
	}
	version := storage.Version("")
	for {
		n, err := storage.NewNote(storage.NoteSuspended, c, version)
		if err != nil {
			return c, err
		}
		err = settle(ctx, func() error { _, err := store.PutNote(ctx, n); return err })
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, storage.ErrExists) && !overtaken(err) {
			return c, fmt.Errorf("suspend the store: %w", err)
		}
		n, err = store.FindNote(ctx, storage.NoteSuspended)
		if errors.Is(err, storage.ErrNotFound) && ctx.Err() == nil {
			version = "" // it was resumed meanwhile
			continue
		}
		was, readErr := storage.ReadNote[storage.Suspension](n)
		switch err = cmp.Or(err, readErr); {
		case err != nil:
			return c, fmt.Errorf("suspend the store: %w", err)
		case c.MovedTo == "" || was.Copy || was.MovedID == c.MovedID && was.MovedTo != "":
			return was, nil
		case was.MovedTo != "":
			return was, suspendedError(was)
		}
		was.MovedTo, was.MovedID = c.MovedTo, c.MovedID
		c, version = was, n.Version
	}
}

// Resume ends the suspension of a store. It returns nil if the store is not suspended, and [ErrSuspended] if it is a copy or
// has moved: see package storage/mirror.
func Resume(ctx context.Context, store storage.Control) error {
	for {
		n, err := store.FindNote(ctx, storage.NoteSuspended)
		if c, readErr := storage.ReadNote[storage.Suspension](n); err == nil && readErr == nil && (c.Copy || c.MovedTo != "") {
			return suspendedError(c)
		}
		if err == nil {
			err = settle(ctx, func() error { return store.RemoveNote(ctx, n.Name, n.Version) })
		}
		switch {
		case err == nil, errors.Is(err, storage.ErrNotFound):
			return nil
		case !conflicted(err) || ctx.Err() != nil:
			return fmt.Errorf("resume the store: %w", err)
		}
	}
}
