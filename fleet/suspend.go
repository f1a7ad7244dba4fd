package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// suspendedBy returns [ErrSuspended] if a roster or the store says that the store is suspended, with who suspended it and
// why, or why that is not known.
func suspendedBy(ctx context.Context, s store, r storage.Roster) error {
	_, suspended := r.FindNote(storage.NoteSuspended)
	var c storage.Suspension
	n, err := s.FindNote(ctx, storage.NoteSuspended)
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
	n.record.self.Phase = storage.PhaseLeaving
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

// SuspendOptions are the settings of [Suspend]. Zero fields have their defaults.
type SuspendOptions struct {
	// MovedTo says for people where the plans of the vault run from now on, and MovedID which copy of the vault that is.
	// Default: they run nowhere.
	MovedTo string
	MovedID uuid.UUID
}

// Suspend keeps engines away from a vault until [Resume]: the nodes of its fleet let their plans go and leave, and [Join]
// returns [ErrSuspended]. An engine without a fleet looks only when it starts. Suspend returns what the vault's note says:
// an earlier suspension stays, and takes over MovedTo and MovedID. If the vault has moved elsewhere, the error is
// ErrSuspended. If by.At is zero, it is now. Suspend returns at once: [Clear] waits. The audit log has it as suspend.
//
// Errors: [storage.ErrInvalid] if by does not say who asks; [errors.ErrUnsupported] for a vault that does not offer
// [storage.Control]; otherwise those of the vault.
func Suspend(ctx context.Context, vault storage.Vault, by workflow.Attribution, o SuspendOptions) (note storage.Suspension, err error) {
	s, err := storeOf("Suspend", vault)
	if err != nil {
		return note, err
	}
	if by.At.IsZero() {
		by.At = time.Now().UTC()
	}
	entry := storage.AuditEntry{What: "suspend", By: by}
	if o.MovedTo != "" {
		entry.Detail = "moved to " + o.MovedTo
	}
	err = storage.Audit(ctx, s, entry, func(ctx context.Context) error {
		note, err = s.suspend(ctx, storage.Suspension{At: by.At, By: by.By, Why: by.Why, MovedTo: o.MovedTo, MovedID: o.MovedID})
		return err
	})
	return note, doing("suspend the vault", err)
}

// suspend stores the note of a suspension, and returns the one that is stored.
func (s store) suspend(ctx context.Context, c storage.Suspension) (storage.Suspension, error) {
	version := storage.Version("")
	for {
		n, err := storage.NewNote(storage.NoteSuspended, c, version)
		if err != nil {
			return c, err
		}
		err = settle(ctx, func() error { _, err := s.PutNote(ctx, n); return err })
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, storage.ErrExists) && !overtaken(err) {
			return c, err
		}
		n, err = s.FindNote(ctx, storage.NoteSuspended)
		if errors.Is(err, storage.ErrNotFound) && ctx.Err() == nil {
			version = "" // it was resumed meanwhile
			continue
		}
		was, readErr := storage.ReadNote[storage.Suspension](n)
		switch err = cmp.Or(err, readErr); {
		case err != nil:
			return c, err
		case c.MovedTo == "" || was.Copy || was.MovedID == c.MovedID && was.MovedTo != "":
			return was, nil
		case was.MovedTo != "":
			return was, suspendedError(was)
		}
		was.MovedTo, was.MovedID = c.MovedTo, c.MovedID
		c, version = was, n.Version
	}
}

// Resume ends the suspension of a vault. It returns nil if the vault is not suspended, and [ErrSuspended] if it is a copy or
// has moved: see package storage/mirror. The audit log has it as resume.
//
// Errors: [storage.ErrInvalid] if by does not say who asks; [errors.ErrUnsupported] for a vault that does not offer
// [storage.Control]; otherwise those of the vault.
func Resume(ctx context.Context, vault storage.Vault, by workflow.Attribution) error {
	s, err := storeOf("Resume", vault)
	if err != nil {
		return err
	}
	return doing("resume the vault", storage.Audit(ctx, s, storage.AuditEntry{What: "resume", By: by}, s.resume))
}

func (s store) resume(ctx context.Context) error {
	_, err := s.dropNote(ctx, storage.NoteSuspended, func(n storage.Note) error {
		if c, err := storage.ReadNote[storage.Suspension](n); err == nil && (c.Copy || c.MovedTo != "") {
			return suspendedError(c)
		}
		return nil
	})
	return err
}
