package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/planvault/azblob/internal/sleep"
)

// Retry configures retries. Zero fields mean the defaults.
type Retry struct {
	InitialInterval time.Duration // the wait before the second attempt; doubled for each later one
	MaxInterval     time.Duration
	MaxElapsed      time.Duration // for contexts without a deadline of the caller
}

// backOff returns the waits between the attempts of a call.
func (r Retry) backOff() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(r.InitialInterval),
		backoff.WithMaxInterval(r.MaxInterval),
		backoff.WithMultiplier(2),
		backoff.WithMaxElapsedTime(0), // do has the bound
	)
}

// call describes a request to the retry layer.
type call struct {
	op    string
	ref   Ref
	write bool
	try   int         // number of the attempt, from 1
	quiet *time.Timer // ends the attempt; reset whenever bytes arrive or leave
}

// callKey is the context key of the call of a request.
type callKey struct{}

// maxQuiet is how long an attempt may go on while no byte arrives or leaves.
const maxQuiet = 30 * time.Second

// errQuiet ends an attempt. It is a timeout, and not that of the caller's context.
var errQuiet = fmt.Errorf("nothing was received or sent for %v: %w", maxQuiet, os.ErrDeadlineExceeded)

// whyEnded returns the error of something that a context has ended: errQuiet if that is the reason.
func whyEnded(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && context.Cause(ctx) == errQuiet {
		return errQuiet
	}
	return err
}

// movingBody notes the bytes that are read from a body.
type movingBody struct {
	io.ReadCloser
	quiet *time.Timer
}

func (b *movingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.quiet.Reset(maxQuiet)
	}
	return n, err
}

// watch makes the bytes of a request prolong its attempt.
func (c call) watch(req *http.Request) {
	if c.quiet == nil || req.Body == nil || req.Body == http.NoBody {
		return
	}
	req.Body = &movingBody{req.Body, c.quiet}
	if again := req.GetBody; again != nil {
		req.GetBody = func() (io.ReadCloser, error) {
			body, err := again()
			return &movingBody{body, c.quiet}, err
		}
	}
}

// watchAnswer makes the bytes of an answer prolong the attempt.
func (c call) watchAnswer(resp *http.Response) {
	if c.quiet != nil {
		c.quiet.Reset(maxQuiet)
		resp.Body = &movingBody{resp.Body, c.quiet}
	}
}

// do is the only retry layer. It calls try until try succeeds, fails for good, or ctx ends. Between attempts
// it waits with exponential back-off and jitter, and at least as long as the service asks. An attempt holds
// one of the client's slots unless it is [Urgent]. The error is an [*Error] that names the host of the account.
func (c *Client) do(ctx context.Context, call call, try func(ctx context.Context) error) error {
	started := time.Now()
	var wait *backoff.ExponentialBackOff // nil until an attempt fails

	var last error
	unknown := false // whether a failed attempt may have written
	onceMore := true
	for n := 1; ; n++ {
		call.try = n
		err := c.tryOnce(ctx, call, try)
		if err == nil {
			return nil
		}
		if err == errNotStarted {
			return c.ended(ctx, call, unknown, last)
		}
		v := judge(err)
		v.again = v.again || v.reason == AbsentContainer && c.isNew(call.ref.Container)
		unknown = unknown || call.write && v.applied
		last = fmt.Errorf("%s: %w", c.host, explain(err))
		if ctx.Err() != nil {
			return c.ended(ctx, call, unknown, last)
		}
		if wait == nil {
			wait = c.retry.backOff()
		}
		next := wait.NextBackOff()
		next = max(next, v.after)
		tooLong := !bounded(ctx) && time.Since(started)+next > c.retry.MaxElapsed // or the deadline of the caller is the bound
		if !v.again || ctx.Value(onceKey{}) != nil || v.once && !onceMore || tooLong {
			return c.failure(call, v.reason, unknown, last)
		}
		onceMore = onceMore && !v.once
		if c.onRetry != nil {
			c.onRetry(ctx, RetryEvent{call.op, call.ref, n, next, last})
		}
		if !sleep.For(ctx, next) {
			return c.ended(ctx, call, unknown, last)
		}
	}
}

// newFor is how long a container that was created may still seem absent: not all of the service's servers know it at
// once.
const newFor = 10 * time.Second

// isNew reports whether a container is there that this client wanted to create at most [newFor] ago.
func (c *Client) isNew(container string) bool {
	created, ok := c.created.Load(container)
	return ok && time.Since(created.(time.Time)) < newFor
}

// ended returns the error of a call whose context has ended, after a last attempt if there was one. A
// deadline that passed while the service did not serve the call is an outage, too.
func (c *Client) ended(ctx context.Context, call call, unknown bool, last error) *Error {
	reason := Ended
	if last != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		reason = Unreachable
	}
	return c.failure(call, reason, unknown, contextError(ctx, last))
}

// failure returns the error of a call.
func (c *Client) failure(call call, reason Reason, unknown bool, err error) *Error {
	return &Error{Reason: reason, Unknown: unknown, Err: err, host: c.host, container: call.ref.Container}
}

// ownKey marks contexts whose deadline the vault has set.
type ownKey struct{}

// Within returns a context that ends at a time, with a cause. Unlike a deadline of the caller, this one
// leaves [Retry.MaxElapsed] in force.
func Within(ctx context.Context, at time.Time, cause error) (context.Context, context.CancelFunc) {
	if !bounded(ctx) {
		ctx = context.WithValue(ctx, ownKey{}, true)
	}
	return context.WithDeadlineCause(ctx, at, cause)
}

// bounded reports whether the caller has set a deadline.
func bounded(ctx context.Context) bool {
	_, deadline := ctx.Deadline()
	return deadline && ctx.Value(ownKey{}) == nil
}

// urgentKey marks contexts whose attempts need no slot.
type urgentKey struct{}

// Urgent returns a context whose attempts need none of the client's slots. It is for a few requests that must
// not wait for all others, however many there are.
func Urgent(ctx context.Context) context.Context {
	return context.WithValue(ctx, urgentKey{}, true)
}

// onceKey marks contexts whose requests are not tried again.
type onceKey struct{}

// Once returns a context whose requests are tried once.
func Once(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, true)
}

// errNotStarted means that the context ended before an attempt was sent.
var errNotStarted = errors.New("not started")

func (c *Client) tryOnce(ctx context.Context, call call, try func(ctx context.Context) error) error {
	if ctx.Err() != nil {
		return errNotStarted
	}
	r := unclear
	if ctx.Value(urgentKey{}) == nil {
		era, ok := c.slots.take(ctx)
		if !ok {
			return errNotStarted
		}
		defer func() { c.slots.give(era, r) }()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	call.quiet = time.AfterFunc(maxQuiet, func() { cancel(errQuiet) })
	defer call.quiet.Stop()
	err := whyEnded(ctx, try(context.WithValue(ctx, callKey{}, call)))
	r = resultOf(err)
	return err
}

// resultOf returns what the error of an attempt says about the limit.
func resultOf(err error) result {
	switch {
	case err == nil:
		return succeeded
	case throttled(err):
		return overload
	case slices.Contains([]Reason{Absent, AbsentContainer, Mismatch, Leased}, judge(err).reason): // as good an answer
		return succeeded
	}
	return unclear
}
