package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plannote"
	"github.com/planvault/azblob/storage"
)

// request is what somebody asks of a plan beside its blobs: to stop, to pause, or a signal. It outlives a crash, and becomes useless
// when the plan is final or gone.
type request struct {
	plan   uuid.UUID
	note   bool      // a signal or a pause
	stored time.Time // by the store's clock
	remove func(ctx context.Context) error
}

// requestsOf returns all requests of a roster.
func (s store) requestsOf(r storage.Roster) (all []request) {
	for _, stop := range r.Stops {
		all = append(all, request{stop.Plan, false, stop.Requested, func(ctx context.Context) error { return s.RemoveStop(ctx, stop.Plan, stop.Version) }})
	}
	for _, n := range r.Notes {
		if plan, ok := plannote.Plan(n.Name); ok {
			all = append(all, request{plan, true, n.Stored, func(ctx context.Context) error { return s.RemoveNote(ctx, n.Name, n.Version) }})
		}
	}
	return all
}

// due returns when a request is compared with its plan, after the last time, which is zero if it never was.
func (q request) due(last time.Time) time.Time {
	switch {
	case last.IsZero():
		return q.stored.Add(tidyAfter)
	case q.note:
		return last.Add(min(max(tidyAfter, last.Sub(q.stored)), day))
	}
	return last.Add(tidyAfter)
}

// findOpen finds a plan that somebody asks something of. The error is [ErrNotRunning] if it is final. A plan that this program
// can't read is no error, and has no result: its engine may be newer.
func (s store) findOpen(ctx context.Context, plan uuid.UUID) (found storage.ListResult, err error) {
	switch found, err = s.find(ctx, plan); {
	case err == nil && found.State.Status.Final():
		return found, fmt.Errorf("%w: it is %s", ErrNotRunning, found.State.Status)
	case unreadable(err) && !errors.Is(err, storage.ErrForeign):
		return found, nil
	}
	return found, err
}

// dropNote removes a note, whatever version it has by then, and reports whether there was one. refuses may keep it.
func (s store) dropNote(ctx context.Context, name string, refuses func(storage.Note) error) (there bool, err error) {
	for ; ; there = true {
		n, err := s.FindNote(ctx, name)
		if errors.Is(err, storage.ErrNotFound) {
			return there, nil
		}
		if err == nil {
			err = refuses(n)
		}
		if err == nil {
			err = settle(ctx, func() error { return s.RemoveNote(ctx, n.Name, n.Version) })
		}
		switch {
		case err == nil, errors.Is(err, storage.ErrNotFound):
			return true, nil
		case !conflicted(err) || ctx.Err() != nil:
			return true, err
		}
	}
}

// removeAll removes requests. That somebody else has removed one is no error.
func removeAll(ctx context.Context, all []request) error {
	return atOnce(all, func(r request) error {
		if err := r.remove(ctx); err != nil && !overtaken(err) {
			return err
		}
		return nil
	})
}

// tidyAfter is the age from which a request is compared with its plan, and the time between two such comparisons of a
// request to stop. Those of a signal or pause are ever farther apart, up to a day, because the plan may wait for months.
const tidyAfter = time.Minute

// tidy removes the requests for plans that are final or gone, or another program's. The first of the members by hash
// does it for each plan.
func (n *Node) tidy(ctx context.Context, r storage.Roster) error {
	due := n.dueRequests(r)
	if len(due) == 0 {
		return nil
	}
	var ids []uuid.UUID
	for id := range due {
		ids = append(ids, id)
	}
	found, err := n.store.Search(ctx, storage.Filters{ByIDs: ids})
	if err != nil {
		return err
	}
	var errs []error
	for f := range found {
		plan := planOf(f.Err)
		switch {
		case f.Err != nil && plan == uuid.Nil:
			return f.Err // the search is incomplete
		case errors.Is(f.Err, storage.ErrForeign): // no node ever stops it
		case f.Err != nil: // the other plans follow
			delete(due, plan)
			errs = append(errs, f.Err)
		case !f.Result.State.Status.Final():
			delete(due, f.Result.ID)
		}
	}
	for _, requests := range due {
		errs = append(errs, removeAll(ctx, requests))
	}
	return errors.Join(errs...)
}

// dueRequests returns the requests that this node compares with their plans now.
func (n *Node) dueRequests(r storage.Roster) map[uuid.UUID][]request {
	of := map[uuid.UUID][]request{}
	for _, q := range n.store.requestsOf(r) {
		of[q.plan] = append(of[q.plan], q)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	due, tidied := map[uuid.UUID][]request{}, map[uuid.UUID]time.Time{}
	for plan, requests := range of {
		last := n.tidied[plan]
		for _, q := range requests {
			if !r.Now.Before(q.due(last)) && first(plan, n.id, maps.Keys(n.takers)) {
				due[plan] = requests
			}
		}
		if tidied[plan] = last; due[plan] != nil {
			tidied[plan] = r.Now
		}
	}
	n.tidied = tidied
	return due
}
