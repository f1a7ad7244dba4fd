package emulator

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Effect is what a [Rule] does to a request. Effects are made by [Answer],
// [LostRequest] and so on, and are values that print themselves.
type Effect struct {
	kind    kind
	applied bool
	late    bool
	n       int64 // bytes, bits or requests
	status  int
	code    string
	retry   time.Duration

	mediaType, text string // of a foreign answer
	location        string
	header          string // that is stripped
}

type kind int

const (
	kindAnswer kind = iota
	kindForeign
	kindLost
	kindReset
	kindSilence
	kindCrash
	kindCut
	kindFlip
	kindDuplicate
	kindEmptyPage
	kindStrip
	kindCutBatch
)

// Answer answers with an error instead of doing what is asked, such as
// Answer(503, "ServerBusy"). See also [Effect.Applied] and [Effect.RetryAfter].
func Answer(status int, code string) Effect {
	return Effect{kind: kindAnswer, status: status, code: code}
}

// Foreign answers in place of the service, as a proxy, a captive portal or a load
// balancer does: the answer carries none of the service's headers. With
// [Effect.Applied] the service did the request, and only its answer was replaced.
func Foreign(status int, contentType, body string) Effect {
	return Effect{kind: kindForeign, status: status, mediaType: contentType, text: body}
}

// Redirect is [Foreign] with a Location.
func Redirect(status int, location string) Effect {
	return Effect{kind: kindForeign, status: status, location: location}
}

// Strip takes a header out of the service's own answer, such as Strip("ETag").
func Strip(header string) Effect { return Effect{kind: kindStrip, header: header} }

// CutBatch ends the answer to a batch after n items, as if there had been no
// more. All items take effect. Other answers stay whole.
func CutBatch(n int) Effect { return Effect{kind: kindCutBatch, n: int64(max(n, 0))} }

// LostRequest loses the request: it never takes effect, and the client sees the
// connection end without an answer (io.EOF, as from net/http). Over a socket,
// net/http repeats a GET or HEAD by itself if the connection had been used
// before, so a rule that is to be noticed there must fire on the repetition, too.
func LostRequest() Effect { return Effect{kind: kindLost} }

// LostAnswer loses the answer: the request takes effect, and the client sees the
// connection end without an answer.
func LostAnswer() Effect { return LostRequest().Applied() }

// Reset resets the connection (ECONNRESET) before the request takes effect.
func Reset() Effect { return Effect{kind: kindReset} }

// Silence never answers: the client waits until its context ends. The request
// does not take effect. Without an end of the context it waits for ever.
func Silence() Effect { return Effect{kind: kindSilence} }

// Crash kills the client, as [Transport.Crash] does: this request does not take
// effect, and it, every other one under way and every later one of its transport
// fail with [ErrCrashed].
func Crash() Effect { return Effect{kind: kindCrash} }

// CutBody ends the answer's body after n bytes, although its Content-Length
// announces all. On a [Transport] the body ends with io.EOF as if it were whole;
// on a socket the connection ends, and net/http reports io.ErrUnexpectedEOF. A
// body of at most n bytes is not cut.
func CutBody(n int) Effect { return Effect{kind: kindCut, n: int64(max(n, 0))} }

// FlipBit flips one bit of the answer's body: bit 0 is the lowest bit of the
// first byte, bit 8 the lowest of the second. A body that ends before is left as
// it is.
func FlipBit(bit int) Effect { return Effect{kind: kindFlip, n: int64(max(bit, 0))} }

// Duplicate lets the request take effect and answers it, and lets it take effect
// once more when k more requests of the server have: a late copy on the network.
// With 0 it comes at once. See also [Server.DeliverLate].
func Duplicate(k int) Effect { return Effect{kind: kindDuplicate, n: int64(max(k, 0))} }

// EmptyPage answers a listing with no items and a marker that goes on where the
// page would have begun, as the service may at its partitions' borders. Behind
// the last item it changes nothing.
func EmptyPage() Effect { return Effect{kind: kindEmptyPage} }

// Applied lets the request take effect before the fault shows: the client learns
// nothing of it. It is for [Answer], [Foreign], [Redirect], [LostRequest],
// [Reset], [Silence] and [Crash]; for others it panics.
func (e Effect) Applied() Effect {
	e.mustHide()
	e.applied, e.late = true, false
	return e
}

// Late lets the request take effect after the fault showed, when k more requests
// of the server have: it was still under way. It is for the same effects as
// [Effect.Applied].
func (e Effect) Late(k int) Effect {
	e.mustHide()
	e.applied, e.late, e.n = false, true, int64(max(k, 0))
	return e
}

// mustHide panics unless the effect hides from the client whether the request
// took effect.
func (e Effect) mustHide() {
	if e.kind > kindCrash {
		panic("emulator: a request under \"" + e.String() + "\" always takes effect")
	}
}

// RetryAfter has an [Answer] carry a Retry-After header, in whole seconds.
func (e Effect) RetryAfter(d time.Duration) Effect {
	e.retry = d
	return e
}

// String says what the effect does, such as "answer 503 ServerBusy, applied".
func (e Effect) String() string {
	var s string
	switch e.kind {
	case kindAnswer:
		s = fmt.Sprintf("answer %d %s", e.status, e.code)
		if e.retry > 0 {
			s += fmt.Sprintf(" retry after %s", e.retry)
		}
	case kindForeign:
		s = fmt.Sprintf("foreign %d", e.status)
		if e.mediaType != "" {
			s += " " + e.mediaType
		}
		if e.location != "" {
			s += " to " + e.location
		}
	case kindLost:
		if e.applied {
			return "lost answer"
		}
		s = "lost request"
	case kindReset:
		s = "reset"
	case kindSilence:
		s = "silence"
	case kindCrash:
		s = "crash"
	case kindCut:
		return fmt.Sprintf("body cut after %d bytes", e.n)
	case kindFlip:
		return fmt.Sprintf("bit %d flipped", e.n)
	case kindDuplicate:
		return fmt.Sprintf("duplicate after %d", e.n)
	case kindEmptyPage:
		return "empty page"
	case kindStrip:
		return "without " + e.header
	case kindCutBatch:
		return fmt.Sprintf("batch cut after %d items", e.n)
	}
	if e.applied {
		s += ", applied"
	}
	if e.late {
		s += fmt.Sprintf(", applied after %d", e.n)
	}
	return s
}

// reaches tells whether the request takes effect now.
func (e *Effect) reaches() bool { return e.kind > kindCrash || e.applied }

// errSilence is turned into the context's error once that has ended.
var errSilence = errors.New("emulator: no answer")

// do makes of the service's own answer (nil if the request did not take effect)
// what reaches the client. The server's lock is held.
func (e *Effect) do(s *Server, c *call, own *answer) outcome {
	if e.late {
		s.late = append(s.late, lateCall{call: c.again(), wait: int(e.n), why: "late"})
	}
	out := outcome{answer: own, cut: -1}
	switch e.kind {
	case kindAnswer:
		out.answer = e.answer()
	case kindForeign:
		out.answer = e.foreign()
	case kindLost:
		out.err = io.EOF
	case kindReset:
		out.err = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	case kindSilence:
		out.err = errSilence
	case kindCrash:
		c.client.crashed.Store(true)
		out.err = ErrCrashed
	case kindCut:
		out.cut = e.n
	case kindDuplicate:
		s.late = append(s.late, lateCall{call: c.again(), wait: int(e.n), why: "duplicate"})
	case kindCutBatch:
		if own != nil && int64(len(own.items)) > e.n {
			out.answer = batchAnswer(c, own.items[:e.n])
		}
	case kindFlip, kindEmptyPage, kindStrip:
	}
	return out
}

// answer is the error that the effect answers with.
func (e *Effect) answer() *answer {
	_, message := explain(e.code)
	a := errorAnswer(e.status, e.code, message)
	if e.retry > 0 {
		a.header.Set("Retry-After", strconv.Itoa(int((e.retry+time.Second-1)/time.Second)))
	}
	return a
}

// foreign is an answer of somebody else.
func (e *Effect) foreign() *answer {
	a := newAnswer(e.status)
	a.foreign = true
	a.body = []byte(e.text)
	if e.mediaType != "" {
		a.header.Set("Content-Type", e.mediaType)
	}
	if e.location != "" {
		a.header.Set("Location", e.location)
	}
	return a
}

// damage does to a finished answer what the network or a disk does.
func (e *Effect) damage(a *answer) {
	if e.kind == kindStrip {
		a.header.Del(e.header)
	}
	if e.kind != kindFlip || e.n/8 >= int64(len(a.body)) {
		return
	}
	a.body = slices.Clone(a.body) // the stored body may be the same bytes
	a.body[e.n/8] ^= 1 << (e.n % 8)
}
