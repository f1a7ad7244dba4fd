package fleet

import (
	"context"

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
	if _, err := s.findOpen(ctx, plan); err != nil {
		return err
	}
	entry := storage.AuditEntry{What: "stop", By: by, Plans: []uuid.UUID{plan}}
	return storage.Audit(ctx, s, entry, func(ctx context.Context) error {
		return settle(ctx, func() error { return s.AddStop(ctx, plan, by) })
	})
}
