package fleet

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/planvault/azblob/storage"
)

// store is a vault with what a fleet needs of it beside plans.
type store struct {
	storage.Vault
	storage.Control
	running *runningPlans
}

// storeOf returns a vault with its [storage.Control]. A vault that offers none is [errors.ErrUnsupported].
func storeOf(op string, vault storage.Vault) (store, error) {
	control, err := storage.Require[storage.Control](vault)
	if err != nil {
		return store{}, &storage.Error{Op: op, Err: err}
	}
	return store{vault, control, newRunningPlans()}, nil
}

// eachPlan calls do for the plans that filters select and that can be read: others are of another program, or their owner is newer.
func (s store) eachPlan(ctx context.Context, filters storage.Filters, do func(storage.ListResult)) error {
	found, err := s.Search(ctx, filters)
	if err != nil {
		return err
	}
	for f := range found {
		switch {
		case f.Err == nil:
			do(f.Result)
		case errors.Is(f.Err, storage.ErrForeign), unreadable(f.Err) && planOf(f.Err) != uuid.Nil:
		default:
			return f.Err
		}
	}
	return nil
}

// doing says what failed, if anything did.
func doing(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
