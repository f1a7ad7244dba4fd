package storage_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
)

// wrapped is a decorator that shows what it wraps, and hiding is one that does not.
type (
	wrapped struct{ storage.Vault }
	hiding  struct{ storage.Vault }
	// offering offers a number.
	offering struct{ storage.Vault }
)

func (w wrapped) Unwrap() storage.Vault { return w.Vault }

func (offering) As(target any) bool {
	n, ok := target.(*int)
	if ok {
		*n = 7
	}
	return ok
}

// TestRequire names what a vault lacks.
func TestRequire(t *testing.T) {
	if _, err := storage.Require[storage.Restorer](hiding{memvault.New(nil, memvault.Options{})}); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "no storage.Restorer") {
		t.Error(err)
	}
}

func TestAs(t *testing.T) {
	vault := memvault.New(nil, memvault.Options{})
	for _, c := range []struct {
		name  string
		vault storage.Vault
		notes bool
		n     int
	}{
		{"none", nil, false, 0},
		{"the vault itself", vault, true, 0},
		{"a decorator of a decorator", wrapped{wrapped{vault}}, true, 0},
		{"a decorator that hides the vault", wrapped{hiding{vault}}, false, 0},
		{"a decorator around nothing", wrapped{}, false, 0},
		{"what a vault offers", wrapped{offering{vault}}, false, 7},
	} {
		if _, ok := storage.As[storage.Control](c.vault); ok != c.notes {
			t.Errorf("%s: notes are found: %v", c.name, ok)
		}
		if n, ok := storage.As[int](c.vault); n != c.n || ok != (n > 0) {
			t.Errorf("%s: the number is %d, %v", c.name, n, ok)
		}
	}
}
