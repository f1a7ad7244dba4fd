package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

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
		{answer(413, ""), verdict{reason: Refused}},
		{answer(429, ""), again},
		{answer(500, "InternalError"), open},
		{answer(500, "OperationTimedOut"), open},
		{answer(501, ""), open},
		{answer(507, ""), open},
		{answer(502, ""), open},
		{answer(503, "ServerBusy"), open},
		{answer(503, "ServerBusy", "Retry-After", "7"), verdict{reason: Unreachable, again: true, applied: true, after: 7 * time.Second}},
		{answer(429, "", "Retry-After", "7"), verdict{reason: Unreachable, again: true, after: 7 * time.Second}},
		{answer(409, "ContainerBeingDeleted", "Retry-After", "7"), verdict{reason: Unreachable, again: true, after: 7 * time.Second}},
		{answer(504, ""), open},
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

// TestWrongClockIsExplained uses a client and a server whose clocks differ.
func TestWrongClockIsExplained(t *testing.T) {
	for _, skew := range []time.Duration{-time.Hour, -16 * time.Minute, 16 * time.Minute, 3 * time.Hour} {
		inWorld(t, func(t *testing.T, w *world) {
			_, err := w.Head(t.Context(), ref)
			wantError(t, "wrong clock", err, Refused, false)
			if want := fmt.Sprintf("clock is %v off", -skew); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a clock that is %v off: %v", skew, err)
			}
			var answer *azcore.ResponseError
			if !errors.As(err, &answer) || len(w.retries) > 0 {
				t.Errorf("a clock that is %v off: %v, %d retries", skew, err, len(w.retries))
			}
		}, emulator.WithClock(func() time.Time { return time.Now().Add(skew) }))
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On().Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
		_, _, err := w.Get(t.Context(), ref)
		if err == nil || strings.Contains(err.Error(), "clock") {
			t.Errorf("the clocks agree: %v", err)
		}
	}, emulator.WithClock(func() time.Time { return time.Now().Add(9 * time.Minute) }))
}

func TestAnswersAreExplainedOnOneLine(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		_, err := w.Head(t.Context(), ref)
		if text := err.Error(); strings.Contains(text, "\n") || !strings.Contains(text, "404") || !strings.Contains(text, "BlobNotFound") {
			t.Errorf("%q", text)
		}
	})
	if err := explain(io.EOF); err != io.EOF {
		t.Errorf("an error without an answer became %v", err)
	}
	if text := explain(&azcore.ResponseError{StatusCode: 403}).Error(); !strings.Contains(text, "403") {
		t.Errorf("%q", text)
	}
}

func TestContextErrors(t *testing.T) {
	why, last := errors.New("why"), errors.New("last try's")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	caused, cancelCause := context.WithCancelCause(t.Context())
	cancelCause(why)
	for _, test := range []struct {
		what string
		ctx  context.Context
		last error
		want []error
		none []error
	}{
		{"cancelled", canceled, nil, []error{context.Canceled}, []error{last}},
		{"cancelled after a try", canceled, last, []error{context.Canceled, last}, nil},
		{"cancelled in a try", canceled, fmt.Errorf("sent: %w", context.Canceled), []error{context.Canceled}, nil},
		{"with a cause", caused, nil, []error{why}, []error{last}},
		{"with a cause after a try", caused, last, []error{context.Canceled, why, last}, nil},
	} {
		err := contextError(test.ctx, test.last)
		for _, want := range test.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v is not %v", test.what, err, want)
			}
		}
		for _, none := range test.none {
			if errors.Is(err, none) {
				t.Errorf("%s: %v is %v", test.what, err, none)
			}
		}
	}
}

func TestReasonsAreTold(t *testing.T) {
	err := fmt.Errorf("wrapped: %w", &Error{Mismatch, true, io.EOF})
	if !Is(err, Mismatch) || !Is(err, Absent, Mismatch) || Is(err, Absent) || Is(err) || Is(io.EOF, Mismatch) || Is(nil, Mismatch) {
		t.Error("Is does not tell")
	}
	if !errors.Is(err, io.EOF) || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("%v", err)
	}
}

func TestConditionsArePrinted(t *testing.T) {
	for want, c := range map[string]Condition{
		"no condition": Always, "If-None-Match: *": IfNew, "If-Match: *": IfThere, `If-Match: "0x1"`: IfMatch("0x1"),
	} {
		if c.String() != want {
			t.Errorf("%q, not %q", c, want)
		}
	}
	if got := (Ref{"box", ""}).String() + " " + ref.String(); got != "box box/b" {
		t.Error(got)
	}
}

// TestConditionsAreQuotedAsSent checks the header that the service gets.
func TestConditionsAreQuotedAsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, emulator.New())
		w.server.PutContainer("box", nil)
		for _, test := range []struct {
			cond             Condition
			match, noneMatch string
		}{
			{Always, "", ""},
			{IfNew, "", "*"},
			{IfThere, "*", ""},
			{IfMatch("0x1"), `"0x1"`, ""},
		} {
			w.server.ResetRequests()
			_, _ = w.Put(t.Context(), ref, nil, mine(), test.cond)
			if r := w.server.Requests()[0]; r.IfMatch != test.match || r.IfNoneMatch != test.noneMatch {
				t.Errorf("put, %s: If-Match %q, If-None-Match %q were sent", test.cond, r.IfMatch, r.IfNoneMatch)
			}
			w.server.ResetRequests()
			_ = w.Delete(t.Context(), ref, test.cond)
			if r := w.server.Requests()[0]; r.IfMatch != test.match || r.IfNoneMatch != test.noneMatch {
				t.Errorf("delete, %s: If-Match %q, If-None-Match %q were sent", test.cond, r.IfMatch, r.IfNoneMatch)
			}
		}
	})
}

// TestClockIsNotBlamedForOtherRefusals refuses a request because of the network, while the clocks differ.
func TestClockIsNotBlamedForOtherRefusals(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On().Do(emulator.Answer(403, "AuthorizationFailure")))
		_, _, err := w.Get(t.Context(), ref)
		if err == nil || strings.Contains(err.Error(), "clock") || !strings.Contains(err.Error(), "network rules") {
			t.Error(err)
		}
	}, emulator.WithClock(func() time.Time { return time.Now().Add(-20 * time.Minute) }))
}
