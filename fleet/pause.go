package fleet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plannote"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// A plan is paused while the vault has a note with its ID. Nodes see the note in the one list that they ask for anyway. The
// owner lets a paused plan sleep, and marks it: whoever has an old list looks for the note before it wakes such a plan.

// PausePlan makes a plan begin nothing more until [ResumePlan], and says who wants that and why. It returns nil when the note
// of it is stored. The note reaches the owner within its Interval and ends the context of [Node.Work]; what runs then ends by
// itself, and the plan sleeps without an owner. A plan that has not begun, or sleeps, stays where it is. A pause outlives
// takeovers and restarts. [Stop] ends it. A plan that is paused already stays so: the first note counts.
//
// PausePlan costs the Search for one ID, a write, and two writes for the audit log, which has it as pause. It repeats a write
// whose outcome is unknown until ctx ends.
//
// Errors: [storage.ErrNotFound] if there is no such plan; [ErrNotRunning] if the plan is final; [storage.ErrInvalid] if by does
// not say who asks; [errors.ErrUnsupported] for a plan that an engine without a fleet has begun, which would not see the note,
// and for a vault that does not offer [storage.Control]; otherwise those of the vault.
func PausePlan(ctx context.Context, vault storage.Vault, plan uuid.UUID, by workflow.Attribution) error {
	s, err := storeOf("PausePlan", vault)
	if err != nil {
		return err
	}
	return doing("pause plan "+plan.String(), s.pausePlan(ctx, plan, by))
}

func (s store) pausePlan(ctx context.Context, plan uuid.UUID, by workflow.Attribution) error {
	if err := storage.CheckBy(by); err != nil {
		return err
	}
	switch found, err := s.findOpen(ctx, plan); {
	case err != nil:
		return err
	case found.State.Status == workflow.Running && found.Epoch == 0:
		return fmt.Errorf("%w: an engine without a fleet runs it", errors.ErrUnsupported)
	}
	return storage.Audit(ctx, s, storage.AuditEntry{What: "pause", By: by, Plans: []uuid.UUID{plan}}, func(ctx context.Context) error {
		by.At = time.Time{} // the store's clock tells
		n, err := storage.NewNote(plannote.Pause(plan), by, "")
		if err == nil {
			err = settle(ctx, func() error { _, err := s.PutNote(ctx, n); return err })
		}
		if errors.Is(err, storage.ErrExists) {
			return nil
		}
		return err
	})
}

// ResumePlan ends the pause of a plan, which goes on within the fleet's Interval. It returns nil if the plan is not paused.
// [Resume] is for a whole vault.
//
// ResumePlan costs a read, a delete, and two writes for the audit log, which has it as resume.
//
// Errors: [storage.ErrNotFound] if the plan is neither paused nor there; [storage.ErrInvalid] if by does not say who asks;
// [errors.ErrUnsupported] for a vault that does not offer [storage.Control]; otherwise those of the vault.
func ResumePlan(ctx context.Context, vault storage.Vault, plan uuid.UUID, by workflow.Attribution) error {
	s, err := storeOf("ResumePlan", vault)
	if err != nil {
		return err
	}
	entry := storage.AuditEntry{What: "resume", By: by, Plans: []uuid.UUID{plan}}
	return doing("resume plan "+plan.String(), storage.Audit(ctx, s, entry, func(ctx context.Context) error { return s.resumePlan(ctx, plan) }))
}

func (s store) resumePlan(ctx context.Context, plan uuid.UUID) error {
	there, err := s.dropNote(ctx, plannote.Pause(plan), func(storage.Note) error { return nil })
	if err == nil && !there {
		_, err = s.find(ctx, plan)
	}
	return err
}

// pausedBy looks whether a plan is paused now, and by whom. At is when the pause was stored.
func (s store) pausedBy(ctx context.Context, plan uuid.UUID) (by workflow.Attribution, paused bool, err error) {
	n, err := s.FindNote(ctx, plannote.Pause(plan))
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return by, false, nil
	case err == nil:
		if by, err = storage.ReadNote[workflow.Attribution](n); err == nil && workflow.CheckAttribution(by) != nil {
			by = workflow.Attribution{} // any program may have written it
		}
	}
	by.At = n.Stored
	if unreadable(err) {
		err = nil
	}
	return by, err == nil, err
}

// Pause is [PausePlan] for a plan that the node owns, and ends the plan's [Node.Work] at once.
func (n *Node) Pause(ctx context.Context, plan uuid.UUID, by workflow.Attribution) error {
	ctx, cancel := n.bind(ctx)
	defer cancel()
	if err := PausePlan(ctx, n.store, plan, by); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.work[plan]; w != nil {
		w.end(ErrPaused)
	}
	return nil
}

// isPaused reports whether the plan was paused at the node's last look.
func (n *Node) isPaused(plan uuid.UUID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.paused[plan]
}

// mark returns who has paused a plan that the node lets sleep. It asks only if a pause has ended the work.
func (n *Node) mark(ctx context.Context, plan uuid.UUID) (by workflow.Attribution, err error) {
	n.mu.Lock()
	w := n.work[plan]
	n.mu.Unlock()
	if w != nil && errors.Is(context.Cause(w.ctx), ErrPaused) {
		by, _, err = n.store.pausedBy(ctx, plan)
	}
	return by, err
}

// resumed returns an error unless the plan was resumed since it was marked as paused, or was asked to stop. The plan was read
// before, so a note that is gone was removed after the mark, or the mark came after the resume.
func (n *Node) resumed(ctx context.Context, plan *workflow.Plan) error {
	n.mu.Lock()
	_, asked := n.stopLocked(plan.ID)
	n.mu.Unlock()
	if asked || plan.Paused == (workflow.Attribution{}) {
		return nil
	}
	_, paused, err := n.store.pausedBy(ctx, plan.ID)
	if err != nil || !paused {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused[plan.ID] = true // the next look says when it is resumed
	n.noteSleeperLocked(plan.ID, sleeper{wakeAt: plan.WakeAt, lastSignal: plan.LastSignal, own: true}, 0)
	return ErrPaused
}

// notePausesLocked stores which plans a roster shows as paused: it ends the work on them, and wakes those that are not paused
// any more.
func (n *Node) notePausesLocked(r storage.Roster) {
	before := n.paused
	n.paused = pausesOf(r)
	for plan := range n.paused {
		if w := n.work[plan]; w != nil {
			w.end(ErrPaused)
		}
		if p := n.asleep.known[plan]; p != nil && !before[plan] {
			n.noteSleeperLocked(plan, *p, 0)
		}
	}
	for plan := range before {
		if p := n.asleep.known[plan]; p != nil && !n.paused[plan] {
			later := n.o.Interval / 2
			if p.own {
				later = 0
			}
			n.noteSleeperLocked(plan, *p, later)
		}
	}
}

// whilePaused is how long a node waits for a plan that is paused, unless it sees that the plan is resumed.
const whilePaused = 365 * day

// pausesOf returns the plans that are paused.
func pausesOf(r storage.Roster) map[uuid.UUID]bool {
	paused := map[uuid.UUID]bool{}
	for _, n := range r.Notes {
		if plan, ok := plannote.ParsePause(n.Name); ok {
			paused[plan] = true
		}
	}
	return paused
}
