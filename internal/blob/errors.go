package blob

import (
	"cmp"
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

// Reason is why a request failed for good.
type Reason int

// The reasons.
const (
	Unreachable     Reason = iota // not served, after all retries or until the context's deadline
	Ended                         // the context was cancelled, or ended before anything was sent
	Absent                        // the blob does not exist
	AbsentContainer               // the container does not exist
	Mismatch                      // the condition of the write does not hold: another version exists
	Leased                        // the container has another lease than the request names, or none
	Refused                       // the service does not accept the request, because of identity, permissions or settings
	Damaged                       // the bytes are not those that were written
)

// Error is the error of a request that failed for good.
type Error struct {
	Reason Reason
	// Unknown means that a write may have taken effect although it failed.
	Unknown bool
	// Err is the error of the last attempt: the error of the service if it answered, joined with the error of
	// the context if the context ended.
	Err error

	host, container string // of the request
}

// Error returns the text of Err without the hosts, URLs and the container in it.
func (e *Error) Error() string { return private(e.Err, e.host, e.container) }

// Detail returns the whole text of Err.
func (e *Error) Detail() string { return e.Err.Error() }

// Unwrap returns the error of the last attempt.
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

// IsForbidden reports whether the service knows the identity but the identity lacks a permission.
func IsForbidden(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusForbidden &&
		(strings.HasPrefix(answer.ErrorCode, "Authorization") || outOfReach(answer))
}

// IsProtected reports whether the service keeps the blob or the container, whoever asks.
func IsProtected(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && meanings[bloberror.Code(answer.ErrorCode)].protected
}

// RefusedAt returns the service's clock when it sent the refusal in err, in whole seconds. It is zero if there
// is none.
func RefusedAt(err error) time.Time {
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) || answer.RawResponse == nil {
		return time.Time{}
	}
	at, _ := http.ParseTime(answer.RawResponse.Header.Get("Date"))
	return at
}

// errDamaged means that a body does not match its length or MD5.
var errDamaged = errors.New("the body does not match its MD5")

// errNoMD5 means that a body can't be checked. The vault writes every blob with its MD5.
var errNoMD5 = errors.New("the answer has no Content-MD5, most likely because of a proxy: make it pass answers unchanged, or go around it; " +
	"else the blob is not the vault's")

// lookError wraps the error of a read that followed a refused write. The write has had no effect.
type lookError struct{ error }

func (e *lookError) Unwrap() error { return e.error }

// errVanished means that a write was refused because a blob existed, and a moment later the blob did not
// exist.
var errVanished = errors.New("the blob that was in the way is gone")

// verdict is the meaning of a failed attempt.
type verdict struct {
	reason Reason
	// again means that another attempt may succeed; once means that only one more is worthwhile.
	again, once bool
	// applied means that a write may have taken effect although the attempt failed.
	applied bool
	// after is the shortest time to wait that the service asks for.
	after time.Duration
}

// judge is the only function that interprets errors of the service, the SDK and the network.
func judge(err error) verdict {
	var (
		look        *lookError
		foreign     *foreignError
		answer      *azcore.ResponseError
		final       interface{ NonRetriable() } // azcore's mark for errors that must not be retried, mostly of credentials
		certificate *tls.CertificateVerificationError
		dial        *net.OpError
	)
	switch {
	case errors.Is(err, errVanished):
		return verdict{reason: Mismatch, again: true}
	case errors.As(err, &look):
		v := judge(look.error)
		v.applied = false
		return v
	case errors.Is(err, errNoBatches):
		return verdict{reason: Refused, applied: true}
	case errors.Is(err, errDelimiter):
		return verdict{reason: Refused}
	case errors.Is(err, errUndecided):
		return passing.verdict
	case errors.Is(err, errNoToken):
		return verdict{reason: Unreachable, again: true}
	case errors.As(err, &foreign):
		return verdict{reason: Unreachable, again: true, applied: true, after: foreign.after}
	case errors.As(err, &answer):
		return judgeAnswer(answer)
	case errors.Is(err, errTooLarge):
		return verdict{reason: Damaged}
	case errors.Is(err, errDamaged), errors.Is(err, errNoMD5):
		return verdict{reason: Damaged, again: true, once: true}
	case errors.As(err, &final), errors.As(err, &certificate):
		return verdict{reason: Refused}
	case errors.As(err, &dial) && dial.Op == "dial":
		return verdict{reason: Unreachable, again: true} // never sent
	}
	return verdict{reason: Unreachable, again: true, applied: true}
}

// judgeAnswer interprets a refusal of the service. A documented code decides. The service has been seen to
// vary its codes; for an unknown code the status decides.
func judgeAnswer(answer *azcore.ResponseError) verdict {
	v := judgeCode(answer.StatusCode, bloberror.Code(answer.ErrorCode))
	if v.reason == Refused && challenges(answer) {
		v.again, v.once = true, true
	}
	if v.again && answer.RawResponse != nil {
		v.after = retryAfter(answer.RawResponse.Header)
	}
	return v
}

// challenges reports whether the service wants a token with certain claims. azcore's policy has answered that with the newest
// token, which another request may have got a moment before without the claims.
func challenges(answer *azcore.ResponseError) bool {
	return answer.StatusCode == http.StatusUnauthorized && answer.RawResponse != nil &&
		strings.Contains(answer.RawResponse.Header.Get("WWW-Authenticate"), "insufficient_claims")
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

// retryAfter returns how long the service asks to wait: seconds or a date (RFC 9110, section 10.2.3), or
// milliseconds in headers that Azure adds. A date is compared with the service's own clock.
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

// answerError prints an error of the service on one line. The SDK's text is a page.
type answerError struct{ *azcore.ResponseError }

func (e answerError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("the service answers %d %s", e.StatusCode, e.ErrorCode))
	if resp := e.RawResponse; resp != nil {
		if e.StatusCode == http.StatusBadRequest && resp.Request != nil {
			text += " to version " + strings.Join(headerOf(resp.Request, "x-ms-version"), ",")
		}
		if id := resp.Header.Get("x-ms-request-id"); id != "" {
			text += " (request " + id + ")"
		}
	}
	m, known := meanings[bloberror.Code(e.ErrorCode)]
	switch {
	case unread(e.ResponseError):
		m.remedy = otherVersion.remedy
	case !known && e.StatusCode == http.StatusBadRequest:
		m.remedy = unsent
	}
	if remedy := cmp.Or(loginRemedy(e.ResponseError), clockRemedy(e.ResponseError), m.remedy); remedy != "" {
		text += ": " + remedy
	}
	return text
}

// unread reports whether the service has refused a request before it has read it. The reason is most likely the
// version of the request.
func unread(err error) bool {
	var answer *azcore.ResponseError
	return errors.As(err, &answer) && answer.StatusCode == http.StatusBadRequest && answer.ErrorCode == ""
}

func (e answerError) Unwrap() error { return e.ResponseError }

// clockRemedy says how far this machine's clock is off, if that may be why the service has just refused a
// request. The service refuses a wrong date and a wrong signature of the account's key in the same way. It
// returns "" otherwise.
func clockRemedy(answer *azcore.ResponseError) string {
	server := RefusedAt(answer)
	skew := time.Since(server)
	if answer.ErrorCode != string(bloberror.AuthenticationFailed) || server.IsZero() || skew.Abs() <= 10*time.Minute {
		return ""
	}
	return fmt.Sprintf("this machine's clock is %v off, and the service allows 15m", skew.Round(time.Second))
}

// explain makes an error readable.
func explain(err error) error {
	switch err := err.(type) { // not errors.As: wrapped errors have been explained
	case *azcore.ResponseError:
		return answerError{err}
	case *lookError:
		return explain(err.error)
	case *url.Error:
		return explain(err.Err) // the URL may contain a signature, and the message names the blob anyway
	case *networkError:
		return err
	}
	if remedy := networkRemedy(err); remedy != "" {
		return &networkError{err, remedy}
	}
	return err
}

// contextError returns the error of a call whose context has ended: the error of the context, joined with the
// error of the last attempt.
func contextError(ctx context.Context, last error) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(last, cause) {
		return last
	}
	if cause != err {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil {
		err = fmt.Errorf("%w; last try: %w", err, last)
	}
	return err
}
