package fleet

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Stop asks the owner of a plan to stop it, and says who asks and why. It returns nil when the request is stored. The request
// reaches the owner within its Interval and ends the context of [Node.Work]; whoever claims the plan or takes it over later
// gets it too. Stop does not wait for the plan to stop. The fleet removes requests for plans that are final or gone.
//
// Stop costs the Search for one ID, a write, and two writes for the audit log, which has it as stop. It repeats a request
// whose outcome is unknown until ctx ends.
//
// Errors: [storage.ErrNotFound] if there is no such plan; [ErrNotRunning] if the plan is final; [storage.ErrInvalid] if by does
// not say who asks; [errors.ErrUnsupported] for a vault that does not offer [storage.Control]; otherwise those of the vault.
func Stop(ctx context.Context, vault storage.Vault, plan uuid.UUID, by workflow.Attribution) error {
	s, err := storeOf("Stop", vault)
	if err != nil {
		return err
	}
	return doing("stop plan "+plan.String(), s.stop(ctx, plan, by))
}

func (s store) stop(ctx context.Context, plan uuid.UUID, by workflow.Attribution) error {
	if err := storage.CheckBy(by); err != nil {
		return err
	}
	switch found, err := s.find(ctx, plan); {
	case err == nil && found.State.Status.Final():
		return ErrNotRunning
	case err != nil && (!unreadable(err) || errors.Is(err, storage.ErrForeign)): // else its engine may be newer than this program
		return err
	}
	entry := storage.AuditEntry{What: "stop", By: by, Plans: []uuid.UUID{plan}}
	return storage.Audit(ctx, s, entry, func(ctx context.Context) error {
		return settle(ctx, func() error { return s.AddStop(ctx, plan, by) })
	})
}

// tidyAfter is the age from which a request to stop is compared with its plan, and the time between two such
// comparisons.
const tidyAfter = time.Minute

// tidy removes requests to stop plans that are final or gone, or another program's. The first of the members by hash
// does it for each plan.
func (n *Node) tidy(ctx context.Context, r storage.Roster) error {
	due := n.dueStops(r)
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
	for plan, version := range due {
		if err := n.store.RemoveStop(ctx, plan, version); err != nil && !overtaken(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// dueStops returns the versions of the requests that this node compares with their plans now.
func (n *Node) dueStops(r storage.Roster) map[uuid.UUID]storage.Version {
	n.mu.Lock()
	defer n.mu.Unlock()
	due, tidied := map[uuid.UUID]storage.Version{}, map[uuid.UUID]time.Time{}
	for _, s := range r.Stops {
		last := n.tidied[s.Plan]
		if last.IsZero() {
			last = s.Requested
		}
		if r.Now.Sub(last) >= tidyAfter && first(s.Plan, n.id, maps.Keys(n.takers)) {
			due[s.Plan], last = s.Version, r.Now
		}
		tidied[s.Plan] = last
	}
	n.tidied = tidied
	return due
}
