package web

import (
	"context"
	"sync/atomic"

	"github.com/planvault/azblob"
)

// counterKey is the key of a context's counter of requests.
type counterKey struct{}

// counted returns a context whose requests are counted, if the vault has the [Observer].
func counted(ctx context.Context) (context.Context, *atomic.Int64) {
	n := new(atomic.Int64)
	return context.WithValue(ctx, counterKey{}, n), n
}

// Observer returns the observer that a vault needs so that the pages can say how many requests a look took.
func Observer() azblob.Observer {
	return azblob.Observer{Request: func(ctx context.Context, _ azblob.RequestEvent) {
		if n, ok := ctx.Value(counterKey{}).(*atomic.Int64); ok {
			n.Add(1)
		}
	}}
}
