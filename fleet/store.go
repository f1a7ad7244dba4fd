package fleet

import (
	"fmt"

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

// doing says what failed, if anything did.
func doing(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
