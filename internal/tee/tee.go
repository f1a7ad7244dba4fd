// Package tee lets one function of an observer stand for those of several.
package tee

import "context"

// Of returns a function that calls one function of each observer, in order, or nil if all of them are nil: an event that
// nobody wants may cost requests.
func Of[O, E any](observers []O, pick func(O) func(context.Context, E)) func(context.Context, E) {
	var all []func(context.Context, E)
	for _, o := range observers {
		if f := pick(o); f != nil {
			all = append(all, f)
		}
	}
	if all == nil {
		return nil
	}
	return func(ctx context.Context, event E) {
		for _, f := range all {
			f(ctx, event)
		}
	}
}
