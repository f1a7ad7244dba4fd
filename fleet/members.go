package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// look looks at the members, and returns when to look next.
func (n *Node) look(ctx context.Context) (next time.Duration, err error) {
	try, cancel := context.WithTimeout(ctx, n.o.patience())
	defer cancel()
	r, err := n.roster(try)
	if err != nil {
		n.retries("look at the members", err)
		return 0, err
	}
	return n.see(ctx, r), nil
}

// roster returns the members and the stop requests, and corrects the node's clock.
func (n *Node) roster(ctx context.Context) (storage.Roster, error) {
	asked := time.Now()
	r, err := n.store.Roster(ctx)
	if err == nil {
		n.hear(r, asked)
	}
	return r, err
}

// hear corrects the node's clock after a look.
func (n *Node) hear(r storage.Roster, asked time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.clock = n.clock.hear(r.Now, asked, time.Now())
}

// see marks dead members as left, notes the members and the stop requests, and returns the time until the next look, which
// repeats what failed.
func (n *Node) see(ctx context.Context, r storage.Roster) (next time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, n.o.Interval)
	defer cancel()
	n.judge.lapse = n.takeLapse()
	next = min(n.o.Interval, n.judge.next(r))
	err := n.bury(ctx, r)
	n.note(r)
	n.obey(r)
	if _, absent := n.known(n.id); absent {
		n.expelled(ctx) // a node whose heartbeats do not get through learns it here
	}
	if err := errors.Join(err, n.sweep(ctx, r), n.tidy(ctx, r)); err != nil {
		n.retries("mark or remove old records", err)
	}
	return next
}

// bury marks the records of dead members as left, in the store in the version that was judged, and in r.
func (n *Node) bury(ctx context.Context, r storage.Roster) error {
	var errs []error
	for _, m := range n.judge.look(r) {
		left, err := n.store.markLeft(ctx, m)
		switch {
		case err == nil:
			notify(ctx, n.o.Observer.Removal, RemovalEvent{n.id, m})
		case conflicted(err):
			continue // it lives: it has renewed its record since
		case !overtaken(err):
			errs = append(errs, err)
			continue
		}
		i := slices.IndexFunc(r.Members, func(other storage.Member) bool { return other.ID == m.ID })
		r.Members[i].Phase, r.Members[i].Excused = storage.PhaseLeft, left.Excused
	}
	return errors.Join(errs...)
}

// sweep removes the records of members that have left, once all other members must have seen them.
func (n *Node) sweep(ctx context.Context, r storage.Roster) error {
	longest := n.o.TTL
	for _, m := range r.Members {
		if m.Phase != storage.PhaseLeft {
			longest = max(longest, m.TTL)
		}
	}
	var errs []error
	for _, m := range r.Members {
		if m.Phase == storage.PhaseLeft && r.Now.Sub(m.Renewed) > min(longest, fullInterval)+resolution {
			if err := n.store.RemoveMember(ctx, m.ID, m.Version); err != nil && !overtaken(err) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// note stores a roster, and ends the work on plans that were asked to stop.
func (n *Node) note(r storage.Roster) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.now.IsZero() && r.Now.Sub(n.now) > min(n.o.TTL, fullInterval) {
		n.departures++ // the records of members that left may have been removed between the two looks
	}
	members, left := n.members, n.left
	n.now, n.members, n.stops = r.Now, map[uuid.UUID]struct{}{}, map[uuid.UUID]workflow.Attribution{}
	n.takers, n.left, n.letGo = map[uuid.UUID]struct{}{}, map[uuid.UUID]struct{}{}, map[letting]struct{}{}
	for _, m := range r.Members {
		n.noteMember(m, left)
	}
	n.electLocked(r)
	for id := range members {
		_, there := n.members[id]
		if _, marked := n.left[id]; !there && !marked {
			n.departures++
		}
	}
	for _, s := range r.Stops {
		n.stops[s.Plan] = s.Attribution()
		n.hastenLocked(s.Plan)
		if w := n.work[s.Plan]; w != nil {
			w.end(&StopError{s.Attribution()})
		}
	}
	n.notePausesLocked(r)
	n.noteSignalsLocked(r)
	n.notifyLocked()
}

// noteMember stores a record of a roster. left are the members that were marked as left before.
func (n *Node) noteMember(m storage.Member, left map[uuid.UUID]struct{}) {
	n.excuse(m)
	if m.Phase == storage.PhaseLeft {
		n.left[m.ID] = struct{}{}
		if _, before := left[m.ID]; !before {
			n.departures++
		}
		return
	}
	n.members[m.ID] = struct{}{}
	if m.Phase != storage.PhaseLeaving {
		n.takers[m.ID] = struct{}{}
	}
	if m.ID != n.id {
		for _, plan := range m.LetGo {
			n.letGo[letting{m.ID, plan}] = struct{}{}
		}
	}
}

// isAbsent reports whether an owner is no longer a member. Its ID never comes back. A listing may lack a new member, so one
// request confirms it.
func (n *Node) isAbsent(ctx context.Context, owner uuid.UUID) (bool, error) {
	if member, absent := n.known(owner); member || absent {
		return absent, nil
	}
	m, err := n.store.FindMember(ctx, owner)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return false, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && m.Phase != storage.PhaseLeft {
		n.members[owner] = struct{}{} // seen, so that its departure is noticed
		return false, nil
	}
	n.excuse(m)
	n.absent[owner] = struct{}{}
	return true, nil
}

// excuse notes that a member's plugins are not to blame for its end. Its record may be gone when its plans are taken.
func (n *Node) excuse(m storage.Member) {
	if excused(m) {
		n.excused[m.ID] = struct{}{}
	}
}

// excuses reports whether an owner's plugins are not to blame for its end.
func (n *Node) excuses(owner uuid.UUID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, excused := n.excused[owner]
	return excused
}

// hasLetGo reports whether the owner's current record lists a plan as let go. The owner takes the plan off its record
// before it takes the plan again, so updating a version that was read before this call fences nobody at work.
func (n *Node) hasLetGo(ctx context.Context, owner, plan uuid.UUID) (bool, error) {
	if !n.letsGo(owner, plan) {
		return false, nil
	}
	m, err := n.store.FindMember(ctx, owner)
	if errors.Is(err, storage.ErrNotFound) {
		return true, nil
	}
	return m.Phase == storage.PhaseLeft || slices.Contains(m.LetGo, plan), err
}

// letsGo reports whether the owner of a plan had let it go at the last look.
func (n *Node) letsGo(owner, plan uuid.UUID) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, free := n.letGo[letting{owner, plan}]
	return free
}

func (n *Node) known(owner uuid.UUID) (member, absent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, member = n.members[owner]
	_, absent = n.absent[owner]
	if _, left := n.left[owner]; left {
		return false, true
	}
	return member, absent
}
