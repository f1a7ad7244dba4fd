package blob

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
)

func answer(status int, code string, headers ...string) *azcore.ResponseError {
	h := http.Header{}
	for pair := range slices.Chunk(headers, 2) {
		h.Set(pair[0], pair[1])
	}
	return &azcore.ResponseError{StatusCode: status, ErrorCode: code, RawResponse: &http.Response{StatusCode: status, Header: h}}
}

func TestJudge(t *testing.T) {
	again := verdict{reason: Unreachable, again: true}
	open := verdict{reason: Unreachable, again: true, applied: true}
	for _, test := range []struct {
		err  error
		want verdict
	}{
		{answer(400, "InvalidInput"), verdict{reason: Refused}},
		{answer(400, "Md5Mismatch"), verdict{reason: Damaged, again: true, once: true}},
		{answer(401, ""), verdict{reason: Refused}},
		{answer(403, "AuthorizationFailure"), verdict{reason: Refused}},
		{answer(404, "BlobNotFound"), verdict{reason: Absent}},
		{answer(404, "ResourceNotFound"), verdict{reason: Absent}},
		{answer(404, "UnspecifiedAbsence"), verdict{reason: Absent}},
		{answer(404, "ContainerNotFound"), verdict{reason: AbsentContainer}},
		{answer(408, ""), open},
		{answer(409, "BlobAlreadyExists"), verdict{reason: Mismatch}},
		{answer(409, "UnspecifiedConflict"), verdict{reason: Refused}},
		{answer(409, "ContainerBeingDeleted"), again},
		{answer(409, "BlobImmutableDueToPolicy"), verdict{reason: Refused}},
		{answer(409, "BlobArchived"), verdict{reason: Damaged}},
		{answer(412, "ConditionNotMet"), verdict{reason: Mismatch}},
		{answer(412, "UnspecifiedCondition"), verdict{reason: Mismatch}},
		{answer(412, "LeaseIdMissing"), verdict{reason: Refused}},
		{answer(429, ""), again},
		{answer(500, "InternalError"), open},
		{answer(507, ""), open},
		{answer(503, "ServerBusy"), open},
		{answer(503, "ServerBusy", "Retry-After", "7"), verdict{reason: Unreachable, again: true, applied: true, after: 7 * time.Second}},
		{answer(429, "", "Retry-After", "7"), verdict{reason: Unreachable, again: true, after: 7 * time.Second}},
		{answer(409, "ContainerBeingDeleted", "Retry-After", "7"), verdict{reason: Unreachable, again: true, after: 7 * time.Second}},
		{&azcore.ResponseError{StatusCode: 503}, open},
		{&azcore.ResponseError{StatusCode: 409, ErrorCode: "SystemInUse"}, again},
		{&foreignError{status: 404}, open},
		{&foreignError{status: 404, after: time.Minute}, verdict{reason: Unreachable, again: true, applied: true, after: time.Minute}},
		{fmt.Errorf("%w: %w", errNoBatches, &foreignError{status: 500}), verdict{reason: Refused, applied: true}},
		{errTooLarge, verdict{reason: Damaged}},
		{errDamaged, verdict{reason: Damaged, again: true, once: true}},
		{fmt.Errorf("%w: %w", errVanished, answer(409, "")), verdict{reason: Mismatch, again: true}},
		{io.EOF, open},
		{io.ErrUnexpectedEOF, open},
		{context.DeadlineExceeded, open}, // the time limit of the attempt
		{errors.New("anything else"), open},
		{&net.OpError{Op: "read", Err: errors.New("connection reset by peer")}, open},
		{&net.OpError{Op: "dial", Err: errors.New("connection refused")}, again},
		{fmt.Errorf("a look: %w", &lookError{answer(503, "ServerBusy")}), again},
		{fmt.Errorf("%w: %w", errUndecided, io.EOF), open},
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}, again},
		{&tls.CertificateVerificationError{Err: errors.New("unknown authority")}, verdict{reason: Refused}},
	} {
		for _, err := range []error{test.err, fmt.Errorf("wrapped: %w", test.err), explain(test.err)} {
			if got := judge(err); got != test.want {
				t.Errorf("%v: %+v, not %+v", err, got, test.want)
			}
		}
	}
}

func TestRetryAfter(t *testing.T) {
	for _, test := range []struct {
		headers []string
		want    time.Duration
	}{
		{nil, 0},
		{[]string{"Retry-After", "7"}, 7 * time.Second},
		{[]string{"Retry-After", "0"}, 0},
		{[]string{"Retry-After", "-7"}, 0},
		{[]string{"Retry-After", "7.5"}, 0},
		{[]string{"Retry-After", ""}, 0},
		{[]string{"Retry-After-Ms", "7"}, 7 * time.Millisecond},
		{[]string{"X-Ms-Retry-After-Ms", "7"}, 7 * time.Millisecond},
		{[]string{"X-Ms-Retry-After-Ms", "0", "Retry-After", "7"}, 7 * time.Second},
		{[]string{"Retry-After", "Sat, 01 Jan 2000 00:01:00 GMT", "Date", "Sat, 01 Jan 2000 00:00:00 GMT"}, time.Minute},
		{[]string{"Retry-After", "Sat, 01 Jan 2000 00:01:00 GMT", "Date", "Sat, 01 Jan 2000 00:02:00 GMT"}, 0},
		{[]string{"Retry-After", "Sat, 01 Jan 2000 00:01:00 GMT"}, 0},
	} {
		if got := retryAfter(answer(503, "", test.headers...).RawResponse.Header); got != test.want {
			t.Errorf("%q: %v", test.headers, got)
		}
	}
}

// TestWrongClockIsExplained uses a client and a server whose clocks differ. The clock is not blamed if they differ by
// little, nor for a refusal because of the network.
func TestWrongClockIsExplained(t *testing.T) {
	for skew, code := range map[time.Duration]string{
		-time.Hour: "", -16 * time.Minute: "", 16 * time.Minute: "", 3 * time.Hour: "", 9 * time.Minute: "AuthenticationFailed", -20 * time.Minute: "AuthorizationFailure",
	} {
		inWorld(t, func(t *testing.T, w *world) {
			if code != "" {
				w.server.Inject(emulator.On().Do(emulator.Answer(403, code)))
			}
			_, _, err := w.Get(t.Context(), ref)
			wantError(t, "wrong clock", err, Refused, false)
			want := fmt.Sprintf("clock is %v off", -skew)
			if strings.Contains(err.Error(), want) != (code == "") || len(w.retries) > 0 {
				t.Errorf("a clock that is %v off: %v, %d retries", skew, err, len(w.retries))
			}
		}, emulator.Options{Clock: func() time.Time { return time.Now().Add(skew) }})
	}
}

// TestNetworkRemedies explains failures below HTTP. Others stay as they are.
func TestNetworkRemedies(t *testing.T) {
	for want, err := range map[string]error{
		"unknown":                   &net.DNSError{IsNotFound: true},
		"DNS does not answer":       &net.DNSError{},
		"nothing listens there":     &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED},
		"no route":                  &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH},
		"root certificates":         &tls.CertificateVerificationError{Err: io.EOF},
		"does not speak TLS":        tls.RecordHeaderError{},
		"firewall may drop":         &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded},
		io.ErrUnexpectedEOF.Error(): io.ErrUnexpectedEOF,
	} {
		got := explain(&url.Error{Op: "Get", URL: "https://a.invalid?sig=secret", Err: err})
		if !strings.Contains(got.Error(), want) || !errors.Is(got, err) || strings.Contains(got.Error(), "secret") {
			t.Errorf("%v: %v", err, got)
		}
	}
}

func TestForbidden(t *testing.T) {
	for code, want := range map[string]bool{"AuthorizationPermissionMismatch": true, "AuthorizationFailure": true, "AuthenticationFailed": false} {
		if err := fmt.Errorf("wrapped: %w", answer(403, code)); IsForbidden(err) != want {
			t.Errorf("%s: IsForbidden says %v", code, !want)
		}
	}
}

func TestReasonsAreTold(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", &Error{Reason: Mismatch, Unknown: true, Err: io.EOF})
	if !Is(err, Mismatch) || !Is(err, Absent, Mismatch) || Is(err, Absent) || Is(err) || Is(io.EOF, Mismatch) || Is(nil, Mismatch) {
		t.Error("Is does not tell")
	}
	if !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "EOF") || !IsUnknown(err) || IsUnknown(io.EOF) {
		t.Errorf("%v", err)
	}
	if got := (Ref{"box", ""}).String() + " " + ref.String(); got != "box box/b" {
		t.Error(got)
	}
}

// detail returns the whole text of the client's error in err.
func detail(t *testing.T, err error) string {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatal(err)
	}
	return e.Detail()
}

// TestRemediesNameThePermission asks with a shared access signature that allows none of it.
func TestRemediesNameThePermission(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		account, err := ParseConnectionString(w.server.ConnectionString())
		must(t, err)
		account, err = WithSignature(account.url.String()+"?"+w.server.AccountSAS(emulator.Permissions{Allowed: "t"}), func(string) bool { return false })
		must(t, err)
		c, err := account.New(Options{ClientOptions: policy.ClientOptions{Transport: w.transport}, Concurrency: 1, Retry: retry})
		must(t, err)
		lease := c.AcquireLease(t.Context(), "box", uuid.NewString(), Forever)
		_, head := c.HeadContainer(t.Context(), "box")
		_, _, list := all(c.List(t.Context(), "box", ListOptions{}))
		for permission, err := range map[string]error{"c": c.CreateContainer(t.Context(), "other", nil), "r": head, "w": lease, "l": list, "d": c.Delete(t.Context(), ref, Always)} {
			if !strings.Contains(detail(t, err), "lacks the permission "+permission) {
				t.Errorf("%s: %v", permission, err)
			}
		}
	})
}
