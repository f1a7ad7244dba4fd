package fleet

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
)

// look looks at the members, and returns when to look next.
func (n *Node) look(ctx context.Context) (next time.Duration, err error) {
	try, cancel := context.WithTimeout(ctx, n.o.patience())
	defer cancel()
	r, err := n.store.Roster(try)
	if err != nil {
		n.retries("look at the members", err)
		return 0, err
	}
	return n.see(ctx, r), nil
}

// see removes the records of dead members, and notes the members and the stop requests that are left. It tries
// again after the next look if that fails, and returns the time until then.
func (n *Node) see(ctx context.Context, r storage.Roster) (next time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, n.o.Interval)
	defer cancel()
	next = min(n.o.Interval, n.judge.next(r))
	err := n.bury(ctx, &r)
	n.note(r)
	if err := errors.Join(err, n.tidy(ctx, r)); err != nil {
		n.retries("remove old records", err)
	}
	return next
}

// bury removes the records of dead members from the store, in the version that was judged, and from r.
func (n *Node) bury(ctx context.Context, r *storage.Roster) error {
	var errs []error
	for _, m := range n.judge.look(*r) {
		err := n.store.RemoveMember(ctx, m.ID, m.Version)
		switch {
		case err == nil:
			notify(ctx, n.o.Observer.Removal, RemovalEvent{n.id, m})
		case conflicted(err):
			continue // it lives: it has renewed its record since
		case !overtaken(err):
			errs = append(errs, err)
			continue
		}
		r.Members = slices.DeleteFunc(r.Members, func(other storage.Member) bool { return other.ID == m.ID })
	}
	return errors.Join(errs...)
}

// note takes over a roster. Work on plans that were asked to stop ends.
func (n *Node) note(r storage.Roster) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.members
	n.now, n.members, n.stops = r.Now, map[uuid.UUID]struct{}{}, map[uuid.UUID]struct{}{}
	for _, m := range r.Members {
		n.members[m.ID] = struct{}{}
	}
	for id := range before {
		if _, there := n.members[id]; !there {
			n.departures++
		}
	}
	for _, s := range r.Stops {
		n.stops[s.Plan] = struct{}{}
		if w := n.work[s.Plan]; w != nil {
			w.end(ErrStopRequested)
		}
	}
	n.notifyLocked()
}

// isAbsent reports whether an owner is no member, and never will be again: IDs do not come back. A listing may
// lack a member, above all one that joined after it, so one request confirms it.
func (n *Node) isAbsent(ctx context.Context, owner uuid.UUID) (bool, error) {
	if member, absent := n.known(owner); member || absent {
		return absent, nil
	}
	_, err := n.store.FindMember(ctx, owner)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return false, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil {
		n.members[owner] = struct{}{} // seen, so that its departure is noticed
		return false, nil
	}
	n.absent[owner] = struct{}{}
	return true, nil
}

func (n *Node) known(owner uuid.UUID) (member, absent bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, member = n.members[owner]
	_, absent = n.absent[owner]
	return member, absent
}
