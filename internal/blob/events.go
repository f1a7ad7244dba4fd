package blob

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// RequestEvent describes an HTTP request. It has no URL, because a URL may contain a signature.
type RequestEvent struct {
	// Op is put, get, head, delete, delete batch, list, list containers, create container, head container, set
	// container metadata, delete container, acquire lease, release lease, get account info or get service
	// properties.
	Op             string
	Ref            Ref
	Method         string
	Class          Class
	Try            int // number of the attempt, from 1
	Start          time.Time
	Duration       time.Duration // until the answer was read
	Status         int           // 0 if there was no answer
	RequestID      string
	Sent, Received int64 // bytes of the bodies
	Err            error // why there was no whole answer of the service
}

// RetryEvent describes a failed attempt that will be followed by another one.
type RetryEvent struct {
	Op   string
	Ref  Ref
	Try  int // number of the failed attempt, from 1
	Wait time.Duration
	Err  error
}

// Class is the class in which the service bills a request.
type Class string

// The classes. [ClassList] has listings and the creation of containers.
const (
	ClassWrite  Class = "write"
	ClassList   Class = "list"
	ClassRead   Class = "read"
	ClassOther  Class = "other"
	ClassDelete Class = "delete"
)

// ClassOf returns the billing class of a request. The class of a batch is not documented; it counts as other.
func ClassOf(req *http.Request) Class {
	comp, restype := parameter(req, "comp"), parameter(req, "restype")
	switch {
	case comp == "list", req.Method == http.MethodPut && restype == "container" && comp == "":
		return ClassList
	case req.Method == http.MethodDelete:
		return ClassDelete
	case req.Method == http.MethodPut && comp == "":
		return ClassWrite
	case req.Method == http.MethodGet && comp == "" && restype == "":
		return ClassRead
	}
	return ClassOther
}

// Usage is what requests took.
type Usage struct {
	Requests int
	// RoundTrips is the length of the longest chain of requests in which each began after the one before it
	// had ended.
	RoundTrips     int
	Sent, Received int64 // bytes of the bodies
}

// Meter measures the requests of the contexts that [Metered] returns. It is safe for concurrent use.
type Meter struct {
	mu    sync.Mutex
	usage Usage
	ended int // the longest chain whose requests have all ended
}

// meterKey is the context key of a meter.
type meterKey struct{}

// Metered returns a context whose requests a meter measures.
func Metered(ctx context.Context, m *Meter) context.Context {
	return context.WithValue(ctx, meterKey{}, m)
}

// Usage returns what the requests took, apart from those in flight, of which only the number counts.
func (m *Meter) Usage() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.usage
}

// begin counts a request, and returns the length of the longest chain that it ends.
func (m *Meter) begin() (chain int) {
	if m == nil {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	chain = m.ended + 1
	m.usage.Requests++
	m.usage.RoundTrips = max(m.usage.RoundTrips, chain)
	return chain
}

// end counts what a request took that began with this chain.
func (m *Meter) end(chain int, sent, received int64) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = max(m.ended, chain)
	m.usage.Sent += sent
	m.usage.Received += received
}

// exchange is a request in flight that is observed. A nil exchange is not observed.
type exchange struct {
	ctx    context.Context
	event  RequestEvent
	report func(context.Context, RequestEvent) // may be nil
	meter  *Meter                              // may be nil
	chain  int
	ended  bool
}

// begin returns the exchange of a request, or nil if nobody observes it.
func (w wire) begin(req *http.Request) *exchange {
	ctx := req.Context()
	meter, _ := ctx.Value(meterKey{}).(*Meter)
	if meter == nil && w.onStart == nil && w.onRequest == nil {
		return nil
	}
	call, _ := ctx.Value(callKey{}).(call)
	x := &exchange{
		ctx: ctx, report: w.onRequest, meter: meter, chain: meter.begin(),
		event: RequestEvent{
			Op: call.op, Ref: call.ref, Method: req.Method, Class: ClassOf(req), Try: call.try,
			Start: time.Now(), Sent: max(req.ContentLength, 0),
		},
	}
	if w.onStart != nil {
		w.onStart(ctx, x.event)
	}
	return x
}

// answered notes the header of the answer, and makes the exchange count the bytes of the body.
func (x *exchange) answered(resp *http.Response) {
	if x == nil {
		return
	}
	x.event.Status, x.event.RequestID = resp.StatusCode, resp.Header.Get("X-Ms-Request-Id")
	resp.Body = &countedBody{resp.Body, &x.event.Received}
}

// failed notes why there is no whole answer.
func (x *exchange) failed(err error) {
	if x != nil && x.event.Err == nil {
		x.event.Err = err
	}
}

// end reports the exchange. Only the first call has an effect.
func (x *exchange) end() {
	if x == nil || x.ended {
		return
	}
	x.ended = true
	x.event.Duration = time.Since(x.event.Start)
	x.meter.end(x.chain, x.event.Sent, x.event.Received)
	if x.report != nil {
		x.report(x.ctx, x.event)
	}
}

// countedBody counts the bytes that are read from a body.
type countedBody struct {
	io.ReadCloser
	n *int64
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	*b.n += int64(n)
	return n, err
}
