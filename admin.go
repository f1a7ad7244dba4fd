package azblob

import (
	"reflect"

	"github.com/planvault/azblob/storage"
)

// As sets target, a pointer, to what the vault offers of its type beside its own methods, and reports whether it does. That
// is [Admin], [storage.Control], and what other packages ask for in an interface of their own, such as [retention.Vault].
// Call it by [storage.As].
//
// [retention.Vault]: https://pkg.go.dev/github.com/planvault/azblob/storage/retention#Vault
func (v *Vault) As(target any) bool {
	to := reflect.ValueOf(target).Elem()
	for _, offer := range []any{v.Admin(), v.offered()} {
		if o := reflect.ValueOf(offer); o.Type().AssignableTo(to.Type()) {
			to.Set(o)
			return true
		}
	}
	return false
}

func (v *Vault) offered() offered { return offered{v, v.Control()} }

var _ storage.Copier = offered{}
