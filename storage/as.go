package storage

import (
	"errors"
	"fmt"
	"reflect"
)

// As returns the first T among a vault, what it offers, and the vaults that it wraps. T is an interface for more than
// plans, such as [Control], or the type of a vault:
//
//	control, ok := storage.As[storage.Control](vault)
//
// A vault that wraps another one has a method Unwrap() Vault, which returns that; without it, it hides what it does not
// have itself. A vault may also have a method As(target any) bool, which sets the pointer target to what the vault offers
// of that type, and reports whether it did.
func As[T any](v Vault) (found T, ok bool) {
	for v != nil {
		if t, is := v.(T); is {
			return t, true
		}
		if offers, is := v.(interface{ As(target any) bool }); is && offers.As(&found) {
			return found, true
		}
		wraps, is := v.(interface{ Unwrap() Vault })
		if !is {
			break
		}
		v = wraps.Unwrap()
	}
	return found, false
}

// Require returns what [As] finds, or [errors.ErrUnsupported] with the name of what is missing.
func Require[T any](v Vault) (T, error) {
	found, ok := As[T](v)
	if !ok {
		return found, fmt.Errorf("%w: the vault offers no %v: a decorator needs a method Unwrap", errors.ErrUnsupported, reflect.TypeFor[T]())
	}
	return found, nil
}
