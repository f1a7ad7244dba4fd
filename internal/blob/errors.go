package blob

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
)

// Reason says why a request failed for good.
type Reason int

// The reasons.
const (
	Unreachable     Reason = iota // not served, after all retries or by the context's deadline
	Ended                         // the context was cancelled, or ended before anything was sent
	Absent                        // there is no such blob
	AbsentContainer               // there is no such container
	Mismatch                      // the write's condition does not hold: another version is there
	Refused                       // the service does not accept the request: identity, rights, settings
	Damaged                       // the bytes are not those that were written
)

// Error is how a request failed for good.
type Error struct {
	Reason Reason
	// Unknown says that a write may have taken effect all the same.
	Unknown bool
	// Err is the last try's error: the service's own where it answered, joined with the context's where that ended it all.
	Err error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the last try's error.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether err is an Error for one of the reasons.
func Is(err error, reasons ...Reason) bool {
	var e *Error
	return errors.As(err, &e) && slices.Contains(reasons, e.Reason)
}

// IsUnknown reports whether err leaves open whether a write took effect.
func IsUnknown(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Unknown
}

// IsForbidden reports whether err says that the identity is known, but lacks a right.
func IsForbidden(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusForbidden && strings.HasPrefix(answer.ErrorCode, "Authorization")
}

// errDamaged is a body that is not what its length and MD5 say.
var errDamaged = errors.New("the body does not match its MD5")

// lookError is why a look at a blob failed that followed a refused write: the write has had no effect.
type lookError struct{ error }

func (e *lookError) Unwrap() error { return e.error }

// errVanished is a write refused because something is there, where nothing was found a moment later.
var errVanished = errors.New("what was in the way is gone")

// verdict is what one failed try means.
type verdict struct {
	reason Reason
	// again says that another try may succeed; once, that only one more is worth it.
	again, once bool
	// applied says that a write may have taken effect although the try failed.
	applied bool
	// after is the least time to wait, as the service asked.
	after time.Duration
}

// judge is the one place that reads errors of the service, the SDK and the network.
func judge(err error) verdict {
	if errors.Is(err, errVanished) {
		return verdict{reason: Mismatch, again: true}
	}
	if look := (*lookError)(nil); errors.As(err, &look) {
		v := judge(look.error)
		v.applied = false
		return v
	}
	if errors.Is(err, errNoBatches) {
		return verdict{reason: Refused, applied: true}
	}
	if errors.Is(err, errUndecided) {
		return passing.verdict
	}
	var foreign *foreignError
	if errors.As(err, &foreign) {
		return verdict{reason: Unreachable, again: true, applied: true, after: foreign.after}
	}
	var answer *azcore.ResponseError
	if errors.As(err, &answer) {
		return judgeAnswer(answer)
	}
	var (
		final       interface{ NonRetriable() } // azcore's mark for what its own policies must not retry, credentials mostly
		certificate *tls.CertificateVerificationError
		dial        *net.OpError
	)
	switch {
	case errors.Is(err, errTooLarge):
		return verdict{reason: Damaged}
	case errors.Is(err, errDamaged):
		return verdict{reason: Damaged, again: true, once: true}
	case errors.As(err, &final), errors.As(err, &certificate):
		return verdict{reason: Refused}
	case errors.As(err, &dial) && dial.Op == "dial":
		return verdict{reason: Unreachable, again: true} // never sent
	default:
		return verdict{reason: Unreachable, again: true, applied: true}
	}
}

// judgeAnswer judges a refusal of the service's. Where the code is documented it decides. The service has been seen to vary
// its codes, and then the status decides.
func judgeAnswer(answer *azcore.ResponseError) verdict {
	v := judgeCode(answer.StatusCode, bloberror.Code(answer.ErrorCode))
	if v.again && answer.RawResponse != nil {
		v.after = retryAfter(answer.RawResponse.Header)
	}
	return v
}

func judgeCode(status int, code bloberror.Code) verdict {
	if status >= http.StatusInternalServerError || status == http.StatusRequestTimeout {
		return passing.verdict
	}
	if m, known := meanings[code]; known {
		return m.verdict
	}
	switch status {
	case http.StatusTooManyRequests:
		return verdict{reason: Unreachable, again: true}
	case http.StatusNotFound:
		return verdict{reason: Absent}
	case http.StatusPreconditionFailed:
		return verdict{reason: Mismatch}
	}
	return verdict{reason: Refused}
}

// retryAfter reads how long the service asks to wait: seconds or a date (RFC 9110, section 10.2.3), the latter taken by
// the service's own clock, or milliseconds in headers that Azure adds.
func retryAfter(h http.Header) time.Duration {
	for _, name := range []string{"Retry-After-Ms", "X-Ms-Retry-After-Ms"} {
		if ms, err := strconv.Atoi(h.Get(name)); err == nil && ms > 0 {
			return time.Duration(ms) * time.Millisecond
		}
	}
	value := h.Get("Retry-After")
	if s, err := strconv.Atoi(value); err == nil && s > 0 {
		return time.Duration(s) * time.Second
	}
	at, errAt := http.ParseTime(value)
	now, errNow := http.ParseTime(h.Get("Date"))
	if errAt == nil && errNow == nil && at.After(now) {
		return at.Sub(now)
	}
	return 0
}

// answerError puts a service's error on one line; the SDK's own text is a page.
type answerError struct{ *azcore.ResponseError }

func (e answerError) Error() string {
	text := fmt.Sprintf("the service answers %d %s", e.StatusCode, e.ErrorCode)
	var server time.Time
	if e.RawResponse != nil {
		if id := e.RawResponse.Header.Get("x-ms-request-id"); id != "" {
			text += " (request " + id + ")"
		}
		server, _ = http.ParseTime(e.RawResponse.Header.Get("Date"))
	}
	// A clock that is wrong is refused as a bad signature.
	if skew := time.Since(server); !server.IsZero() && e.StatusCode == http.StatusForbidden && skew.Abs() > 10*time.Minute {
		return text + fmt.Sprintf(": this machine's clock is %v off the service's, which refuses more than 15m", skew.Round(time.Second))
	}
	if remedy := meanings[bloberror.Code(e.ErrorCode)].remedy; remedy != "" {
		text += ": " + remedy
	}
	return text
}

func (e answerError) Unwrap() error { return e.ResponseError }

// explain makes an error fit to be read.
func explain(err error) error {
	switch err := err.(type) { // a wrapped error has been described already
	case *azcore.ResponseError:
		return answerError{err}
	case *lookError:
		return explain(err.error)
	case *url.Error:
		return explain(err.Err) // the URL may carry a signature, and the blob is named anyway
	}
	return err
}

// contextError is what a call returns whose context ended: the context's error, with the last try's for the cause.
func contextError(ctx context.Context, last error) error {
	cause := context.Cause(ctx)
	switch {
	case last == nil:
		return cause
	case errors.Is(last, cause):
		return last
	}
	if cause != ctx.Err() {
		return fmt.Errorf("%w: %w; last try: %w", ctx.Err(), cause, last)
	}
	return fmt.Errorf("%w; last try: %w", cause, last)
}
