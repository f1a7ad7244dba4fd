package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Drain prepares the node to leave: it acquires no more plans, and loops over [Node.Plans] end. Its record shows this at
// once, so other nodes no longer wait for it. The node keeps the plans that it owns. The next step is [Node.Leave].
func (n *Node) Drain() {
	n.drain()
	n.change(func(self *storage.Member) { self.Phase = storage.PhaseLeaving })
}

// Leave removes the node from the fleet. The record of a node that may own plans stays for a while, marked as left, so
// that each other node sees it at its next look at the members, within its Interval, and takes the plans. Call Leave
// after the engine's calls have ended: Leave ends all contexts of the node with the cause [ErrLeft]. It returns when
// the node's goroutines have ended and the store shows that the node has left. Give ctx a deadline: in an outage Leave
// goes on trying until ctx ends. Others then find the node dead after the TTL. Calling Leave again is allowed.
func (n *Node) Leave(ctx context.Context) error {
	n.end(ErrLeft)
	n.loops.Wait() // their requests have ended with the node's context
	for {
		err := n.resign(ctx)
		switch {
		case err == nil, overtaken(err) && !conflicted(err):
			return nil
		case conflicted(err):
			// A heartbeat whose answer did not arrive has changed the record, or somebody has marked it.
			m, findErr := n.store.FindMember(ctx, n.id)
			switch {
			case errors.Is(findErr, storage.ErrNotFound), findErr == nil && m.Phase == storage.PhaseLeft:
				return nil
			case findErr == nil && m.Version != n.version():
				n.adopt(m.Version)
				continue
			}
			err = cmp.Or(findErr, err)
		}
		if !errors.Is(err, storage.ErrUnknown) || !sleep.For(ctx, settlePause) {
			return fmt.Errorf("leave as node %s: %w", n.id, err)
		}
	}
}

// resign marks the node's record as left, or removes it if the node has never tried to own a plan.
func (n *Node) resign(ctx context.Context) error {
	n.mu.Lock()
	self, acquires := n.record.self, n.acquires
	n.mu.Unlock()
	if !acquires {
		return n.store.RemoveMember(ctx, n.id, self.Version)
	}
	_, err := n.store.RenewMember(ctx, leftRecord(self))
	return err
}

// leftRecord is the record that replaces m when the member has left. It holds little, because m may hold what this program
// can't store.
func leftRecord(m storage.Member) storage.Member {
	return storage.Member{ID: m.ID, Version: m.Version, Phase: storage.PhaseLeft, Excused: excused(m)}
}

// excused reports whether a member's plugins are not to blame for its end: it drains, or a person evicted it.
func excused(m storage.Member) bool { return m.Excused || m.Phase == storage.PhaseLeaving }

// markLeft marks the record of a member as left, in the version that was judged. This fences the member: its next
// heartbeat meets another version. It returns ErrConflict if the member has renewed its record since, and ErrNotFound if
// somebody else has marked or removed it. left is then that mark, which may excuse the member where m does not.
func (s store) markLeft(ctx context.Context, m storage.Member) (left storage.Member, err error) {
	left = leftRecord(m)
	if _, err = s.RenewMember(ctx, left); !conflicted(err) {
		return left, err
	}
	now, findErr := s.FindMember(ctx, m.ID)
	switch {
	case findErr != nil:
		return left, findErr
	case now.Phase == storage.PhaseLeft:
		return now, storage.ErrNotFound
	}
	return left, err
}

// EvictOptions are the settings of [Evict].
type EvictOptions struct {
	// By says who asks, and why. By.By is required.
	By workflow.Attribution
}

// Evict marks a member as left although it may be alive, for a process whose heartbeats continue but whose
// work does not. The member learns at its next heartbeat that it is fenced, and its work ends. Other nodes take its
// plans, and the store refuses what it writes afterwards. Its process may join again as a new node, which leaves its
// former plans to other nodes if there are any. Running actions run again; the eviction does not count as a crash.
//
// Evict repeats an update whose outcome is unknown until ctx ends. The audit log has it as evict.
//
// Errors: [storage.ErrNotFound] if there is no such member, or if it has left; [storage.ErrInvalid] if By does not say who
// asks; [errors.ErrUnsupported] for a vault that does not offer [storage.Control]; otherwise those of the vault.
func Evict(ctx context.Context, vault storage.Vault, member uuid.UUID, o EvictOptions) error {
	s, err := storeOf("Evict", vault)
	if err != nil {
		return err
	}
	entry := storage.AuditEntry{What: "evict", By: o.By, Detail: "node " + member.String()}
	return doing("evict node "+member.String(), storage.Audit(ctx, s, entry, func(ctx context.Context) error { return s.evict(ctx, member) }))
}

func (s store) evict(ctx context.Context, member uuid.UUID) error {
	for again := false; ; again = true {
		m, err := s.FindMember(ctx, member)
		if err == nil && m.Phase == storage.PhaseLeft {
			if again {
				return nil
			}
			err = storage.ErrNotFound
		}
		if err != nil {
			return err
		}
		m.Excused = true
		err = settle(ctx, func() error {
			_, err := s.markLeft(ctx, m)
			return err
		})
		switch {
		case err == nil, overtaken(err) && !conflicted(err):
			return nil
		case !conflicted(err) || ctx.Err() != nil:
			return err
		} // else it has renewed its record meanwhile
	}
}
