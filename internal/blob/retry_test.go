package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/sleep"
)

func TestWaitsGrowAndAreJittered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.HeadBlob).Do(emulator.Answer(503, "ServerBusy")))
		_, err := w.Head(t.Context(), ref)
		wantError(t, "always busy", err, Unreachable, false)
		requests := w.server.Requests()
		if len(w.retries) < 40 || len(requests) != len(w.retries)+1 {
			t.Fatalf("it was retried %d times in 15 minutes, with %d requests", len(w.retries), len(requests))
		}
		base := retry.InitialInterval
		exact := 0
		for i, r := range w.retries {
			if r.Wait < base/2 || r.Wait > base*3/2 {
				t.Errorf("wait %d is %v, want %v changed by up to half", i+1, r.Wait, base)
			}
			if r.Wait == base {
				exact++
			}
			if d := requests[i+1].Time.Sub(requests[i].Time); d != r.Wait || r.Try != i+1 {
				t.Errorf("wait %d was %v, the event is %+v", i+1, d, r)
			}
			base = min(2*base, retry.MaxInterval)
		}
		if exact > len(w.retries)/2 {
			t.Error("the waits are not jittered")
		}
	})
}

// TestRetryEnds bounds a call in an outage by MaxElapsed, a deadline of the caller, and one of the vault's own, which
// leaves MaxElapsed in force.
func TestRetryEnds(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	errOwn := errors.New("the vault's own limit")
	for _, test := range []struct {
		caller, own, after time.Duration // after is what the service asks to wait; 0 is none
		want               time.Duration
		is                 error
	}{
		{0, 0, 0, 15 * time.Minute, nil},
		{0, 0, 24 * time.Hour, 15 * time.Minute, nil},
		{time.Second, 0, 0, time.Second, context.DeadlineExceeded},
		{time.Minute, 0, 0, time.Minute, context.DeadlineExceeded},
		{10 * time.Hour, 0, 0, 10 * time.Hour, context.DeadlineExceeded},
		{0, time.Hour, 0, 15 * time.Minute, nil},
		{0, time.Minute, 0, time.Minute, errOwn},
		{time.Minute, time.Hour, 0, time.Minute, context.DeadlineExceeded},
		{2 * time.Hour, time.Hour, 0, time.Hour, errOwn},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On().Do(emulator.Answer(503, "ServerBusy").RetryAfter(test.after)))
			ctx, started := t.Context(), time.Now()
			if test.caller > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, test.caller)
				defer cancel()
			}
			for i := range 2 { // they may be nested
				if test.own > 0 {
					var cancel context.CancelFunc
					ctx, cancel = Within(ctx, started.Add(test.own+time.Duration(i)), errOwn)
					defer cancel()
				}
			}
			_, err := w.Head(ctx, ref)
			what := fmt.Sprintf("%+v", test)
			wantError(t, what, err, Unreachable, false)
			least := test.want
			if test.is == nil && test.after > 0 {
				least = 0 // it need not wait in vain
			} else if test.is == nil {
				least -= 2 * retry.MaxInterval
			}
			if took := time.Since(started); took > test.want || took < least {
				t.Errorf("%s: it took %v", what, took)
			}
			answer, answered := errors.AsType[*azcore.ResponseError](err)
			if !answered || answer.StatusCode != 503 || test.is != nil && !errors.Is(err, test.is) || errors.Is(err, context.DeadlineExceeded) != (test.is != nil) {
				t.Errorf("%s: %v", what, err)
			}
		})
	}
}

// TestDeadlinesInAnOutage checks that the error wraps those of the service and of the deadline. A cancelled
// call is no outage.
func TestDeadlinesInAnOutage(t *testing.T) {
	for _, effect := range []emulator.Effect{
		emulator.LostRequest(), emulator.Silence(), emulator.Foreign(502, "text/html", portalPage),
		emulator.Answer(429, "TooManyRequests").RetryAfter(10 * time.Minute),
	} {
		for op, do := range operations() {
			inFilledWorld(t, func(t *testing.T, w *world) {
				w.server.Inject(emulator.On().Do(effect))
				ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
				defer cancel()
				if err := do(ctx, w); !Is(err, Unreachable) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s, %s: %v", op, effect, err)
				}
				ctx, cancelNow := context.WithCancel(t.Context())
				time.AfterFunc(40*time.Second, cancelNow)
				if err := do(ctx, w); !Is(err, Ended) || !errors.Is(err, context.Canceled) {
					t.Errorf("%s, %s, cancelled: %v", op, effect, err)
				}
			})
		}
	}
}

// TestContextsEndCalls cancels a put at each point of its life, with a cause and without one.
func TestContextsEndCalls(t *testing.T) {
	for _, test := range []struct {
		what     string
		effect   emulator.Effect
		after    time.Duration
		unknown  bool
		requests int
	}{
		{"before it began", emulator.Answer(503, "ServerBusy"), 0, false, 0},
		{"while no answer comes", emulator.Silence(), time.Second, true, 1},
		{"in the wait after an answer that leaves it open", emulator.Answer(503, "ServerBusy").RetryAfter(10 * time.Minute), time.Second, true, 1},
		{"in the wait after a lost answer", emulator.LostAnswer(), time.Millisecond, true, 1},
		{"in the wait after a refusal", emulator.Answer(429, "TooManyRequests").RetryAfter(10 * time.Minute), time.Second, false, 1},
	} {
		for _, cause := range []error{nil, errors.New("why it ended")} {
			inWorld(t, func(t *testing.T, w *world) {
				w.server.Inject(emulator.On(emulator.PutBlob).Do(test.effect))
				ctx, cancel := context.WithCancelCause(t.Context())
				if test.after == 0 {
					cancel(cause)
				}
				time.AfterFunc(test.after, func() { cancel(cause) })
				started := time.Now()
				_, err := w.Put(ctx, ref, []byte("new"), mine(), IfNew)
				wantError(t, test.what, err, Ended, test.unknown)
				if n, took := len(w.server.Requests()), time.Since(started); took != test.after || n != test.requests {
					t.Errorf("%s: it took %v and %d requests", test.what, took, n)
				}
				if !errors.Is(err, context.Canceled) || cause != nil && !errors.Is(err, cause) || cause == nil && strings.Count(err.Error(), "context canceled") > 1 {
					t.Errorf("%s: the error is %v", test.what, err)
				}
				if _, ok := errors.AsType[*azcore.ResponseError](err); ok != (test.requests > 0 && strings.HasPrefix(test.effect.String(), "answer")) {
					t.Errorf("%s: the service's own error is lost: %v", test.what, err)
				}
				_, err = w.Head(ctx, ref)
				wantError(t, test.what+", then a read", err, Ended, false)
			})
		}
	}
}

// TestSlowIsNotSilent reads, writes and lists a byte at a time, with pauses. However long that takes, an attempt goes on
// until nothing moves for 30 seconds.
func TestSlowIsNotSilent(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for op, do := range map[string]func(context.Context, *Client) error{
		"put": func(ctx context.Context, c *Client) error {
			_, err := c.Put(ctx, ref, []byte("body"), mine(), Always)
			return err
		},
		"get": func(ctx context.Context, c *Client) error { _, _, err := c.Get(ctx, ref); return err },
		"list": func(ctx context.Context, c *Client) error {
			_, _, err := all(c.List(ctx, "box", ListOptions{}))
			return err
		},
	} {
		for pause, attempts := range map[time.Duration]int{29 * time.Second: 1, 31 * time.Second: 2, time.Hour: 2} {
			inFilledWorld(t, func(t *testing.T, w *world) {
				sent := 0
				c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
					if sent++; sent > 1 {
						return next(req)
					}
					if req.Body != nil {
						body, err := io.ReadAll(&tricklingBody{req.Body, req.Context(), pause})
						if err != nil {
							return nil, err
						}
						req.Body = io.NopCloser(bytes.NewReader(body))
					}
					resp, err := next(req)
					if err == nil {
						resp.Body = &tricklingBody{resp.Body, req.Context(), pause}
					}
					return resp, err
				})
				if err := do(t.Context(), c); err != nil || sent != attempts {
					t.Errorf("%s with pauses of %v: %d attempts, want %d: %v", op, pause, sent, attempts, err)
				}
				if attempts > 1 && (len(w.retries) != 1 || !strings.Contains(w.retries[0].Err.Error(), "for 30s") || errors.Is(w.retries[0].Err, context.Canceled)) {
					t.Errorf("%s with pauses of %v: %+v", op, pause, w.retries)
				}
			})
		}
	}
}

// tricklingBody gives a byte at a time, after a pause.
type tricklingBody struct {
	io.ReadCloser
	ctx   context.Context
	pause time.Duration
}

func (b *tricklingBody) Read(p []byte) (int, error) {
	if !sleep.For(b.ctx, b.pause) {
		return 0, b.ctx.Err()
	}
	return b.ReadCloser.Read(p[:min(1, len(p))])
}

// TestSlots uses all slots. The context of a put ends while it waits for one. An urgent attempt needs none, and an
// attempt that waits to be made again holds none.
func TestSlots(t *testing.T) {
	busy := emulator.Answer(503, "ServerBusy").RetryAfter(10 * time.Minute)
	same := func(ctx context.Context) context.Context { return ctx }
	for what, test := range map[string]struct {
		others emulator.Effect
		change func(context.Context) context.Context
		want   int // puts that are sent
	}{"a slot is awaited": {emulator.Silence(), same, 0}, "urgent": {emulator.Silence(), Urgent, 1}, "the others wait": {busy, same, 1}} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On(emulator.HeadBlob).Times(4).Do(test.others))
			var wg sync.WaitGroup
			for range 4 { // as many as there are slots
				wg.Go(func() { _, _ = w.Head(t.Context(), ref) })
			}
			synctest.Wait()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			started := time.Now()
			_, err := w.Put(test.change(ctx), ref, nil, mine(), IfNew)
			if test.want == 0 {
				wantError(t, what, err, Ended, false)
			}
			if took := time.Since(started); (err == nil) != (test.want > 0) || (took == 0) != (test.want > 0) || took > time.Second || w.count(emulator.PutBlob) != test.want {
				t.Errorf("%s: %v after %v and %d requests", what, err, took, w.count(emulator.PutBlob))
			}
			wg.Wait()
			if w.slots.inFlight != 0 {
				t.Errorf("%s: %d slots are in use at the end", what, w.slots.inFlight)
			}
		})
	}
}
