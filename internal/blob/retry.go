package blob

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Retry says how requests are tried again. Zero fields stand for the defaults.
type Retry struct {
	InitialInterval time.Duration // before the second try; doubled for each one after it
	MaxInterval     time.Duration
	MaxElapsed      time.Duration // for contexts without a deadline of the caller's
}

// RequestEvent tells of one HTTP request.
type RequestEvent struct {
	Op        string // what it was for: put, get, head, delete, delete batch, list, list containers, create container, head container
	Ref       Ref
	Method    string
	URL       *url.URL
	Status    int // 0 when there was no answer
	RequestID string
	Took      time.Duration // until the answer's header
	Err       error         // why there was no answer
}

// RetryEvent tells that a try failed and another follows.
type RetryEvent struct {
	Op   string
	Ref  Ref
	Try  int // the one that failed; 1 for the first
	Wait time.Duration
	Err  error
}

// call describes a request to the retry layer.
type call struct {
	op    string
	ref   Ref
	write bool
	bytes int // of the body that is sent, for the time limit of a try
}

// callKey finds the call in a request's context.
type callKey struct{}

// A try may take this long, and as much again for each MiB, so that a server which hangs is given up and a large body is
// not.
const (
	tryLimit       = 30 * time.Second
	tryLimitPerMiB = time.Second
)

// do is the one retry layer. It tries until try succeeds, fails for good, or ctx ends, waiting between tries with
// exponential back-off and jitter, and at least as long as the service asks. A try holds one of the client's slots.
// The error is an *Error that names the account's host.
func (c *Client) do(ctx context.Context, call call, try func(ctx context.Context) error) error {
	wait := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(c.retry.InitialInterval),
		backoff.WithMaxInterval(c.retry.MaxInterval),
		backoff.WithMultiplier(2),
		backoff.WithMaxElapsedTime(c.retry.MaxElapsed),
	)
	if bounded(ctx) {
		wait.MaxElapsedTime = 0 // the caller's deadline is the bound
	}
	wait.Reset()

	var last error
	unknown := false // whether a try that failed may have written all the same
	onceMore := true
	for n := 1; ; n++ {
		err := c.tryOnce(ctx, call, try)
		if err == nil {
			return nil
		}
		if err == errNotStarted {
			return ended(ctx, unknown, last)
		}
		v := judge(err)
		unknown = unknown || call.write && v.applied
		last = fmt.Errorf("%s: %w", c.host, explain(err))
		if ctx.Err() != nil {
			return ended(ctx, call.write, last)
		}
		next := wait.NextBackOff()
		tooLong := next == backoff.Stop || wait.MaxElapsedTime > 0 && wait.GetElapsedTime()+v.after > wait.MaxElapsedTime
		if !v.again || v.once && !onceMore || tooLong {
			return &Error{v.reason, unknown, last}
		}
		onceMore = onceMore && !v.once
		next = max(next, v.after)
		if c.onRetry != nil {
			c.onRetry(RetryEvent{call.op, call.ref, n, next, last})
		}
		if !sleep(ctx, next) {
			return ended(ctx, unknown, last)
		}
	}
}

// ended is the error of a call whose context has ended, after a last try if there was one. A deadline that passed while the
// service did not serve the call is an outage, too.
func ended(ctx context.Context, unknown bool, last error) *Error {
	reason := Ended
	if last != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		reason = Unreachable
	}
	return &Error{reason, unknown, contextError(ctx, last)}
}

// ownKey marks contexts whose deadline is the vault's own.
type ownKey struct{}

// Within returns a context that ends at a time, with a cause. Other than a deadline of the caller's it leaves
// [Retry.MaxElapsed] in force.
func Within(ctx context.Context, at time.Time, cause error) (context.Context, context.CancelFunc) {
	if !bounded(ctx) {
		ctx = context.WithValue(ctx, ownKey{}, true)
	}
	return context.WithDeadlineCause(ctx, at, cause)
}

// bounded says whether the caller gave a deadline.
func bounded(ctx context.Context) bool {
	_, deadline := ctx.Deadline()
	return deadline && ctx.Value(ownKey{}) == nil
}

// errNotStarted says that the context ended before a try was sent.
var errNotStarted = errors.New("not started")

func (c *Client) tryOnce(ctx context.Context, call call, try func(ctx context.Context) error) error {
	if ctx.Err() != nil {
		return errNotStarted
	}
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return errNotStarted
	}
	limit := tryLimit + tryLimitPerMiB*time.Duration(call.bytes>>20)
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, callKey{}, call), limit)
	defer cancel()
	return try(ctx)
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
