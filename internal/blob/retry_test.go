package blob

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

func TestWaitsGrowAndAreJittered(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.HeadBlob).Do(emulator.Answer(503, "ServerBusy")))
		_, err := w.Head(t.Context(), ref)
		wantError(t, "always busy", err, Unreachable, false)
		if len(w.retries) < 40 {
			t.Fatalf("it was retried %d times in 15 minutes", len(w.retries))
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
			if r.Try != i+1 {
				t.Errorf("attempt %d was reported as %d", i+1, r.Try)
			}
			base = min(2*base, retry.MaxInterval)
		}
		if exact > len(w.retries)/2 {
			t.Error("the waits are not jittered")
		}
		requests := w.server.Requests()
		if len(requests) != len(w.retries)+1 {
			t.Fatalf("%d requests, %d waits", len(requests), len(w.retries))
		}
		for i, r := range w.retries {
			if d := requests[i+1].Time.Sub(requests[i].Time); d != r.Wait {
				t.Errorf("wait %d was %v, the event says %v", i+1, d, r.Wait)
			}
		}
	})
}

// headers returns the headers by which a client knows an answer of the service.
func headers() http.Header {
	return http.Header{"X-Ms-Request-Id": {"1"}, "X-Ms-Version": {Version}, "Etag": {`"0x1"`}, "Last-Modified": {"Sat, 01 Jan 2000 00:00:00 GMT"}}
}

// busy returns a transport that answers 503 with these headers n times, and then 200.
func busy(n int, more map[string]string) sender {
	return func(req *http.Request) (*http.Response, error) {
		h := headers()
		status := http.StatusOK
		if n--; n >= 0 {
			status = http.StatusServiceUnavailable
			for name, value := range more {
				h.Set(name, value)
			}
		}
		return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, Request: req}, nil
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // the start of virtual time
	for _, test := range []struct {
		headers map[string]string
		least   time.Duration
	}{
		{map[string]string{"Retry-After": "60"}, time.Minute},
		{map[string]string{"Retry-After-Ms": "90500"}, 90500 * time.Millisecond},
		{map[string]string{"X-Ms-Retry-After-Ms": "90500", "Retry-After": "1"}, 90500 * time.Millisecond},
		{map[string]string{"Retry-After": now.Add(2 * time.Minute).Format(http.TimeFormat), "Date": now.Format(http.TimeFormat)}, 2 * time.Minute},
		// The service's clock may be wrong.
		{map[string]string{"Retry-After": now.Add(62 * time.Minute).Format(http.TimeFormat), "Date": now.Add(time.Hour).Format(http.TimeFormat)}, 2 * time.Minute},
		{map[string]string{"Retry-After": "0"}, 0},
		{map[string]string{"Retry-After": "-5"}, 0},
		{map[string]string{"Retry-After": "soon"}, 0},
		{map[string]string{"Retry-After": now.Add(-time.Minute).Format(http.TimeFormat), "Date": now.Format(http.TimeFormat)}, 0},
		{nil, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, emulator.New())
			c, err := NewFromConnectionString(w.server.ConnectionString(), Options{Concurrency: 1, Retry: retry, Transport: busy(1, test.headers)})
			must(t, err)
			started := time.Now()
			if _, err := c.Head(t.Context(), ref); err != nil {
				t.Fatal(err)
			}
			most := max(test.least, retry.InitialInterval*3/2)
			if waited := time.Since(started); waited < test.least || waited > most {
				t.Errorf("%v: the wait was %v", test.headers, waited)
			}
		})
	}
}

// TestRetryAfterDoesNotOutlastMaxElapsed checks that MaxElapsed ends a call without a deadline, however long
// the service asks to wait.
func TestRetryAfterDoesNotOutlastMaxElapsed(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.HeadBlob).Do(emulator.Answer(503, "ServerBusy").RetryAfter(24 * time.Hour)))
		started := time.Now()
		_, err := w.Head(t.Context(), ref)
		wantError(t, "busy for a day", err, Unreachable, false)
		if took := time.Since(started); took > retry.MaxElapsed {
			t.Errorf("it took %v, want at most %v", took, retry.MaxElapsed)
		}
	})
}

func TestMaxElapsedBoundsCallsWithoutDeadlineOnly(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.HeadBlob).Do(emulator.Answer(503, "ServerBusy")))
		started := time.Now()
		_, err := w.Head(t.Context(), ref)
		wantError(t, "no deadline", err, Unreachable, false)
		if took := time.Since(started); took > retry.MaxElapsed || took < retry.MaxElapsed-2*retry.MaxInterval {
			t.Errorf("without a deadline it took %v", took)
		}
		var answer *azcore.ResponseError
		if !errors.As(err, &answer) || answer.StatusCode != 503 {
			t.Errorf("the service's own error is lost: %v", err)
		}
	})
	for _, deadline := range []time.Duration{time.Second, time.Minute, 10 * time.Hour} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On(emulator.HeadBlob).Do(emulator.Answer(503, "ServerBusy")))
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			started := time.Now()
			_, err := w.Head(ctx, ref)
			wantError(t, "with a deadline", err, Unreachable, false)
			if took := time.Since(started); took != deadline {
				t.Errorf("with a deadline of %v it took %v", deadline, took)
			}
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "503") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

// TestContextsEndCalls cancels a put at each point of its life.
func TestContextsEndCalls(t *testing.T) {
	errWhy := errors.New("why it ended")
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
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On(emulator.PutBlob).Do(test.effect))
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if test.after == 0 {
				cancel(errWhy)
			} else {
				time.AfterFunc(test.after, func() { cancel(errWhy) })
			}
			started := time.Now()
			_, err := w.Put(ctx, ref, []byte("new"), mine(), IfNew)
			wantError(t, test.what, err, Ended, test.unknown)
			if took := time.Since(started); took != test.after {
				t.Errorf("%s: it took %v", test.what, took)
			}
			if !errors.Is(err, errWhy) {
				t.Errorf("%s: the error is %v", test.what, err)
			}
			if n := len(w.server.Requests()); n != test.requests {
				t.Errorf("%s: %d requests", test.what, n)
			}
			_, err = w.Head(ctx, ref)
			wantError(t, test.what+", then a read", err, Ended, false)
		})
	}
}

func TestSilentServersAreGivenUp(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, test := range []struct {
		size  int
		limit time.Duration
	}{{0, 30 * time.Second}, {1 << 20, 31 * time.Second}, {10 << 20, 40 * time.Second}} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On(emulator.PutBlob).Times(2).Do(emulator.Silence()))
			started := time.Now()
			_, err := w.Put(t.Context(), ref, make([]byte, test.size), mine(), IfNew)
			must(t, err)
			waits := time.Duration(0)
			for _, r := range w.retries {
				waits += r.Wait
			}
			if took := time.Since(started); len(w.retries) != 2 || took != 2*test.limit+waits {
				t.Errorf("%d bytes: it took %v with %d waits of %v", test.size, took, len(w.retries), waits)
			}
		})
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Put("box", "b", []byte("abc"), mine())
		w.server.Inject(
			emulator.On(emulator.GetBlob).Times(1).Do(emulator.Silence()),
			emulator.On(emulator.HeadBlob).Times(1).Do(emulator.Silence()),
			emulator.On(emulator.DeleteBlob).Times(1).Do(emulator.Silence()),
		)
		_, _, err := w.Get(t.Context(), ref)
		must(t, err)
		_, err = w.Head(t.Context(), ref)
		must(t, err)
		must(t, w.Delete(t.Context(), ref, Always))
	})
}

// TestNoMoreThanConcurrencyInFlight counts requests under way.
func TestNoMoreThanConcurrencyInFlight(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Put("box", "b", []byte("abc"), mine())
		var now, most atomic.Int32
		c := w.over(t, func(req *http.Request, next sender) (*http.Response, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			return next(req)
		})
		started := time.Now()
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				var err error
				switch i % 4 {
				case 0:
					_, err = c.Head(t.Context(), ref)
				case 1:
					_, _, err = c.Get(t.Context(), ref)
				case 2:
					_, err = c.Put(t.Context(), Ref{"box", fmt.Sprint(i)}, nil, mine(), IfNew)
				case 3:
					err = c.DeleteBatch(t.Context(), "box", []Target{{Name: "none"}})
				}
				if err != nil && !Is(err, Absent) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if most.Load() != 4 || time.Since(started) != 10*time.Second {
			t.Errorf("%d requests were in flight at most, all took %v", most.Load(), time.Since(started))
		}
	}, emulator.WithLatency(time.Second))
}

func TestWaitsHoldNoSlot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Put("box", "b", []byte("abc"), mine())
		w.server.Inject(emulator.On(emulator.HeadBlob).Times(4).Do(emulator.Answer(503, "ServerBusy").RetryAfter(10 * time.Minute)))
		var wg sync.WaitGroup
		for range 4 { // as many as there are slots
			wg.Go(func() {
				if _, err := w.Head(t.Context(), ref); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		started := time.Now()
		if _, _, err := w.Get(t.Context(), ref); err != nil || time.Since(started) != 0 {
			t.Errorf("%v after %v", err, time.Since(started))
		}
		wg.Wait()
	})
}

func TestContextEndsTheWaitForASlot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.HeadBlob).Times(4).Do(emulator.Silence()))
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { _, _ = w.Head(t.Context(), ref) })
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		started := time.Now()
		_, err := w.Put(ctx, ref, nil, mine(), IfNew)
		wantError(t, "no slot", err, Ended, false)
		if time.Since(started) != time.Second || w.count(emulator.PutBlob) != 0 {
			t.Errorf("it took %v and %d requests", time.Since(started), w.count(emulator.PutBlob))
		}
		wg.Wait()
	})
}

// TestCauseOfAContext: a call that a context with a cause ends, before an attempt or during one, has the error of the
// context as well as its cause.
func TestCauseOfAContext(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On().Do(emulator.Silence()))
		cause := errors.New("a cause")
		for _, wait := range []time.Duration{0, time.Second} {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(wait, func() { cancel(cause) })
			if wait == 0 {
				cancel(cause)
			}
			if _, err := w.Head(ctx, ref); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
				t.Errorf("after %v: %v", wait, err)
			}
		}
	})
}

func TestUrgentAttemptsNeedNoSlot(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Put("box", "b", []byte("abc"), mine())
		w.server.Inject(emulator.On(emulator.HeadBlob).Times(4).Do(emulator.Silence()))
		var wg sync.WaitGroup
		for range 4 { // as many as there are slots
			wg.Go(func() { _, _ = w.Head(t.Context(), ref) })
		}
		synctest.Wait()
		started := time.Now()
		if _, _, err := w.Get(Urgent(t.Context()), ref); err != nil || time.Since(started) != 0 {
			t.Errorf("%v after %v", err, time.Since(started))
		}
		wg.Wait()
	})
}

func TestPermanentErrorsAreNotRetried(t *testing.T) {
	for _, test := range []struct {
		status int
		code   string
		want   Reason
	}{
		{400, "InvalidHeaderValue", Refused},
		{400, "InvalidInput", Refused},
		{401, "NoAuthenticationInformation", Refused},
		{403, "AuthenticationFailed", Refused},
		{403, "AuthorizationPermissionMismatch", Refused},
		{403, "AccountIsDisabled", Refused},
		{404, "BlobNotFound", Absent},
		{404, "ContainerNotFound", AbsentContainer},
		{405, "UnsupportedHttpVerb", Refused},
		{413, "RequestBodyTooLarge", Refused},
		{416, "InvalidRange", Refused},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Inject(emulator.On().Do(emulator.Answer(test.status, test.code)))
			_, _, err := w.Get(t.Context(), ref)
			wantError(t, test.code, err, test.want, false)
			_, err = w.Head(t.Context(), ref)
			wantError(t, test.code, err, test.want, false)
			_, err = w.Put(t.Context(), ref, nil, mine(), IfNew)
			wantError(t, test.code, err, test.want, false)
			if n := len(w.server.Requests()); n != 3 || len(w.retries) > 0 {
				t.Errorf("%d %s: %d requests", test.status, test.code, n)
			}
		})
	}
}

// credential is a token credential that counts its calls.
type credential struct {
	asked int
	err   error
}

func (c *credential) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	c.asked++
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, c.err
}

func TestTokenCredentials(t *testing.T) {
	for _, refusal := range []error{nil, errors.New("no identity here")} {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New()
			server.Put("box", "b", []byte("abc"), mine())
			cred := &credential{err: refusal}
			account, err := WithToken("https://blob.emulator.invalid/"+emulator.DefaultAccount, cred)
			must(t, err)
			c, err := account.New(Options{Concurrency: 1, Retry: retry, Transport: server.Transport()})
			must(t, err)
			_, _, err = c.Get(t.Context(), ref)
			if refusal == nil {
				must(t, err)
				return
			}
			wantError(t, "no token", err, Refused, false)
			if !errors.Is(err, refusal) || cred.asked != 1 || len(server.Requests()) != 0 {
				t.Errorf("%v; asked %d times, %d requests", err, cred.asked, len(server.Requests()))
			}
			_, err = c.Put(t.Context(), ref, nil, mine(), IfNew)
			wantError(t, "no token for a write", err, Refused, false)
		})
	}
}

// TestConnectionsThatFail tries the errors that net/http reports.
func TestConnectionsThatFail(t *testing.T) {
	for _, test := range []struct {
		what    string
		err     error
		unknown bool
		want    Reason
		tries   bool
	}{
		{"no such host", &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}, false, Unreachable, true},
		{"connection refused", &net.OpError{Op: "dial", Err: errors.New("connection refused")}, false, Unreachable, true},
		{"reset", &net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, true, Unreachable, true},
		{"end of file", io.EOF, true, Unreachable, true},
		{"unexpected end of file", io.ErrUnexpectedEOF, true, Unreachable, true},
		{"bad certificate", &tls.CertificateVerificationError{Err: errors.New("unknown authority")}, false, Refused, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			c, err := NewFromConnectionString(emulator.New().ConnectionString(), Options{
				Concurrency: 1, Retry: retry,
				Transport: sender(func(*http.Request) (*http.Response, error) { n++; return nil, test.err }),
			})
			must(t, err)
			_, err = c.Put(t.Context(), ref, nil, mine(), IfNew)
			wantError(t, test.what, err, test.want, test.unknown)
			if !errors.Is(err, test.err) || (n > 1) != test.tries {
				t.Errorf("%s: %v after %d tries", test.what, err, n)
			}
			_, err = c.Head(t.Context(), ref)
			wantError(t, test.what+", a read", err, test.want, false)
		})
	}
}
