package fleet

import (
	"errors"
	"fmt"

	"github.com/planvault/azblob/storage"
)

// store is a vault with what a fleet needs of it beside plans.
type store struct {
	storage.Vault
	storage.Control
}

// storeOf returns a vault with its [storage.Control]. A vault that offers none is [errors.ErrUnsupported].
func storeOf(op string, vault storage.Vault) (store, error) {
	control, ok := storage.As[storage.Control](vault)
	if !ok {
		return store{}, &storage.Error{Op: op, Err: fmt.Errorf("%w: the vault offers no storage.Control: a decorator needs a method Unwrap", errors.ErrUnsupported)}
	}
	return store{vault, control}, nil
}

// doing says what failed, if anything did.
func doing(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
