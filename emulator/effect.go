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

// Effect is what a [Rule] does to a request. [Answer], [LostRequest] and others return effects. An Effect is
// a value and prints itself.
type Effect struct {
	kind    kind
	applied bool
	late    bool
	n       int64 // bytes, bits, items or requests
	status  int
	code    string
	retry   time.Duration

	mediaType, text string // of Foreign
	location        string
	header          string  // of Strip
	call            *func() // of Before and After; a pointer, so that effects can be compared
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
	kindBefore
	kindAfter
)

// Answer refuses the request with an error, such as Answer(503, "ServerBusy"). The request does not take
// effect. See also [Effect.Applied] and [Effect.RetryAfter].
func Answer(status int, code string) Effect {
	return Effect{kind: kindAnswer, status: status, code: code}
}

// Foreign answers in place of the service, as a proxy, a captive portal or a load balancer does. The answer
// has none of the service's headers. With [Effect.Applied] the request takes effect and only its answer is
// replaced.
func Foreign(status int, contentType, body string) Effect {
	return Effect{kind: kindForeign, status: status, mediaType: contentType, text: body}
}

// Redirect is [Foreign] with a Location.
func Redirect(status int, location string) Effect {
	return Effect{kind: kindForeign, status: status, location: location}
}

// Strip removes a header from the answer of the service, such as Strip("ETag").
func Strip(header string) Effect { return Effect{kind: kindStrip, header: header} }

// CutBatch ends the answer to a batch after n items, as if the batch had no more. All items take effect.
// Answers to other requests are not changed.
func CutBatch(n int) Effect { return Effect{kind: kindCutBatch, n: int64(max(n, 0))} }

// LostRequest loses the request. It never takes effect, and the client sees the connection end without an
// answer (io.EOF, as from net/http). Over a socket, net/http itself retries a GET or HEAD on a connection
// that was used before, so a rule must fire on the retry, too, for the client to notice.
func LostRequest() Effect { return Effect{kind: kindLost} }

// LostAnswer loses the answer. The request takes effect, and the client sees the connection end without an
// answer.
func LostAnswer() Effect { return LostRequest().Applied() }

// Reset resets the connection (ECONNRESET) before the request takes effect.
func Reset() Effect { return Effect{kind: kindReset} }

// Silence never answers. The client waits until its context ends, or forever. The request does not take
// effect.
func Silence() Effect { return Effect{kind: kindSilence} }

// Crash crashes the client, as [Transport.Crash] does. This request does not take effect. It fails with
// [ErrCrashed], and so does every other request of the transport, now and later.
func Crash() Effect { return Effect{kind: kindCrash} }

// CutBody ends the body of the answer after n bytes, although its Content-Length announces all of it. On a
// [Transport] the body ends with io.EOF, as if it were complete. On a socket the connection ends, and
// net/http reports io.ErrUnexpectedEOF. A body of at most n bytes is not cut.
func CutBody(n int) Effect { return Effect{kind: kindCut, n: int64(max(n, 0))} }

// FlipBit flips one bit of the answer's body. Bit 0 is the lowest bit of the first byte, bit 8 the lowest bit
// of the second byte. A shorter body is not changed.
func FlipBit(bit int) Effect { return Effect{kind: kindFlip, n: int64(max(bit, 0))} }

// Duplicate executes the request twice. The client gets the first answer; the copy takes effect after k more
// requests to the server, or immediately if k is 0. See also [Server.DeliverLate].
func Duplicate(k int) Effect { return Effect{kind: kindDuplicate, n: int64(max(k, 0))} }

// EmptyPage answers a listing with no items and a marker for the same page, as the service may do at the
// boundary of a partition. After the last item it has no effect.
func EmptyPage() Effect { return Effect{kind: kindEmptyPage} }

// Before calls a function before the request takes effect. The function may use the server. The request never
// takes effect if its context has ended by then.
func Before(call func()) Effect { return Effect{kind: kindBefore, call: &call} }

// After calls a function when the request has taken effect, and before the client learns of it. The answer is lost
// if the context of the request has ended by then.
func After(call func()) Effect { return Effect{kind: kindAfter, call: &call} }

// Applied executes the request before the fault occurs, so the client does not learn that it took effect.
// Applied is for [Answer], [Foreign], [Redirect], [LostRequest], [Reset], [Silence] and [Crash]. It panics
// for other effects.
func (e Effect) Applied() Effect {
	e.mustHide()
	e.applied, e.late = true, false
	return e
}

// Late executes the request after the fault has occurred, when k more requests to the server have taken
// effect: the request was still under way. It is for the same effects as [Effect.Applied].
func (e Effect) Late(k int) Effect {
	e.mustHide()
	e.applied, e.late, e.n = false, true, int64(max(k, 0))
	return e
}

// mustHide panics unless the effect hides from the client whether the request took effect.
func (e Effect) mustHide() {
	if e.kind > kindCrash {
		panic("emulator: a request under \"" + e.String() + "\" always takes effect")
	}
}

// RetryAfter adds a Retry-After header to an [Answer], in whole seconds.
func (e Effect) RetryAfter(d time.Duration) Effect {
	e.retry = d
	return e
}

// String returns a description of the effect, such as "answer 503 ServerBusy, applied".
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
	case kindBefore:
		return "call before"
	case kindAfter:
		return "call after"
	}
	if e.applied {
		s += ", applied"
	}
	if e.late {
		s += fmt.Sprintf(", applied after %d", e.n)
	}
	return s
}

// reaches reports whether the request takes effect now.
func (e *Effect) reaches() bool { return e.kind > kindCrash || e.applied }

// calls calls the function of [Before] or [After].
func (e *Effect) calls(k kind) {
	if e != nil && e.kind == k {
		(*e.call)()
	}
}

// errSilence makes the server wait for the end of the context and return the context's error.
var errSilence = errors.New("emulator: no answer")

// do returns what reaches the client. own is the answer of the service, or nil if the request did not take
// effect. The server's lock is held.
func (e *Effect) do(s *Server, c *call, own *answer) outcome {
	if e.late {
		s.late = append(s.late, lateCall{call: c.again(), wait: int(e.n), why: "late"})
	}
	out := outcome{answer: own, cut: -1}
	if own != nil && own.err != nil { // the fault of a real network comes first
		out.err = own.err
		return out
	}
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
	case kindFlip, kindEmptyPage, kindStrip, kindBefore, kindAfter:
	}
	return out
}

// answer returns the answer of an [Answer] effect.
func (e *Effect) answer() *answer {
	a := errorAnswer(e.status, e.code, message(e.code), "")
	if e.retry > 0 {
		a.header.Set("Retry-After", strconv.Itoa(int((e.retry+time.Second-1)/time.Second)))
	}
	return a
}

// foreign returns the answer of a [Foreign] effect.
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

// damage applies to a finished answer what happens to it in transit.
func (e *Effect) damage(a *answer) {
	if e.kind == kindStrip {
		a.header.Del(e.header)
	}
	if e.kind != kindFlip || e.n/8 >= int64(len(a.body)) {
		return
	}
	a.body = slices.Clone(a.body) // the stored body may share these bytes
	a.body[e.n/8] ^= 1 << (e.n % 8)
}
