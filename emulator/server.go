package emulator

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server is one account of the service. It is an [http.Handler]; [Server.Transport]
// and [Server.Listen] make clients of it. It is safe for concurrent use.
type Server struct {
	// Set by New and not changed.
	account   string
	key       []byte
	latency   time.Duration
	clock     func() time.Time
	deletion  time.Duration
	pageLimit int
	maxBody   int64
	logLimit  int // -1 is none
	table     []operation
	handler   *client

	// mu guards what follows. It is never held while sleeping or waiting, but for
	// the disk, where there is one.
	mu    sync.Mutex
	state state
	n     int // of the last request
	log   []Request
	late  []lateCall

	// fmu guards the rules and the ban.
	fmu        sync.Mutex
	rules      []*Rule
	forbid     func(Request) error
	violations []error

	clients atomic.Int64
}

// New returns an empty account in memory; see [Open] for one that lasts.
func New(opts ...Option) *Server {
	key, err := base64.StdEncoding.DecodeString(DefaultKey)
	if err != nil {
		panic(err) // the constant is base64
	}
	s := &Server{
		account:   DefaultAccount,
		key:       key,
		clock:     time.Now,
		deletion:  30 * time.Second,
		pageLimit: pageLimit,
		maxBody:   256 << 20,
		logLimit:  -1,
		table:     operations(),
		state:     newState(),
		handler:   &client{name: "http"},
	}
	for _, opt := range opts {
		opt(s)
	}
	return s
}

// Clone returns an independent copy of everything stored, with the same options:
// what a client would find after a crash. Fault rules, the ban, the log, late
// requests and clients are not copied. It costs little: bodies are shared, since
// they never change. The copy is in memory, also that of a server from [Open].
func (s *Server) Clone() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Server{
		account:   s.account,
		key:       s.key,
		latency:   s.latency,
		clock:     s.clock,
		deletion:  s.deletion,
		pageLimit: s.pageLimit,
		maxBody:   s.maxBody,
		logLimit:  s.logLimit,
		table:     s.table,
		state:     s.state.clone(),
		handler:   &client{name: "http"},
	}
}

// ConnectionString returns a connection string for clients that have a
// [Transport]. Its host does not exist.
func (s *Server) ConnectionString() string {
	return s.connectionString("http://blob.emulator.invalid/" + s.account)
}

func (s *Server) connectionString(endpoint string) string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;",
		s.account, base64.StdEncoding.EncodeToString(s.key), endpoint)
}

// client is who asks: a transport, a listener, or the handler as such.
type client struct {
	name    string
	crashed atomic.Bool

	mu    sync.Mutex
	rules []*Rule
	gate  Gate
}

// outcome is what reaches the client: an answer, or err.
type outcome struct {
	answer *answer
	err    error
	cut    int64 // bytes of the body that arrive; -1 is all
}

// serve takes a request through everything that may befall it.
func (s *Server) serve(ctx context.Context, cl *client, r *http.Request) outcome {
	body, bad, err := s.readBody(r)
	if err != nil {
		return outcome{err: err}
	}
	c := s.parse(cl, r, body)
	if bad != nil {
		c.reject = bad
	}
	if err := sleep(ctx, s.latency/2); err != nil {
		return outcome{err: err}
	}
	cl.mu.Lock()
	gate := cl.gate
	cl.mu.Unlock()
	if gate != nil {
		if err := gate.Enter(ctx, c.entry); err != nil {
			return outcome{err: err}
		}
	}
	out, entry := s.takeEffect(ctx, c)
	if gate != nil {
		gate.Leave(entry)
	}
	if out.err == errSilence {
		<-ctx.Done()
		return outcome{err: ctx.Err()}
	}
	if err := sleep(ctx, s.latency-s.latency/2); err != nil {
		return outcome{err: err}
	}
	if cl.crashed.Load() {
		// Applied or not, nobody is there to learn of it.
		return outcome{err: ErrCrashed}
	}
	return out
}

// takeEffect does a request, and what the rules want done to it. It returns the
// entry of the log, too.
func (s *Server) takeEffect(ctx context.Context, c *call) (outcome, Request) {
	if err := ctx.Err(); err != nil {
		return outcome{err: err}, c.entry
	}
	if c.client.crashed.Load() {
		return outcome{err: ErrCrashed}, c.entry
	}
	banned := s.banned(c.entry)
	var e *Effect
	if banned == nil {
		e = s.pick(c.client, &c.entry)
		for _, item := range c.items {
			item.fault = s.pickItem(c.client, &item.entry)
		}
	}
	s.verify(c, s.clock())

	s.mu.Lock()
	if c.client.crashed.Load() {
		s.mu.Unlock()
		return outcome{err: ErrCrashed}, c.entry
	}
	s.n++
	c.n, c.now = s.n, s.clock()
	var own *answer
	switch {
	case banned != nil:
		own = failWith(codeForbidden, banned.Error())
	case e == nil || e.reaches():
		c.list.emptyPage = e != nil && e.kind == kindEmptyPage
		own = s.execute(c)
		c.list.emptyPage = false
	}
	out := outcome{answer: own, cut: -1}
	fault := ""
	if e != nil {
		fault = e.String()
		out = e.do(s, c, own)
	}
	entry := s.record(c, own, fault)
	s.deliver()
	s.mu.Unlock()

	for _, item := range c.items {
		item.fault = nil
	}
	if own != nil && own.render != nil {
		// Pages are made without the lock, so their size is known only now.
		own.body, own.render = own.render(), nil
		entry.Out = int64(len(own.body))
		s.amend(entry.N, entry.Out)
	}
	if out.answer != nil {
		out.answer.finish(c)
		if e != nil {
			e.damage(out.answer)
		}
	}
	return out, entry
}

// verify runs the checks that need no state.
func (s *Server) verify(c *call, now time.Time) {
	if !c.stray {
		c.verdict = s.authorize(c.http, now)
	}
	if c.verdict == nil {
		c.verdict = c.reject
	}
	for _, item := range c.items {
		s.verify(item, now)
	}
}

// execute does a request that was verified, with the lock held.
func (s *Server) execute(c *call) *answer {
	if c.verdict != nil {
		return c.verdict.copy()
	}
	return c.operation.do(s, c)
}

// lateCall is a request that takes effect when some more requests have.
type lateCall struct {
	call *call
	wait int
	why  string
}

// deliver does the late requests whose time has come, with the lock held.
func (s *Server) deliver() {
	var waiting, due []lateCall
	for _, l := range s.late {
		if l.wait > 0 {
			l.wait--
			waiting = append(waiting, l)
		} else {
			due = append(due, l)
		}
	}
	s.late = waiting
	for _, l := range due {
		s.doLate(l)
	}
}

func (s *Server) doLate(l lateCall) {
	now := s.clock()
	c := l.call
	s.verify(c, now)
	s.n++
	c.n, c.now = s.n, now
	own := s.execute(c)
	s.record(c, own, l.why)
}

// DeliverLate lets all requests take effect that are still under way: late
// duplicates and requests delayed by [Effect.Late]. It tells how many there were.
func (s *Server) DeliverLate() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	due := s.late
	s.late = nil
	for _, l := range due {
		s.doLate(l)
	}
	return len(due)
}

// sleep waits, unless the context ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ServeHTTP answers a request of the wire. Faults that break a connection break
// it: the handler takes the connection over, or panics with
// [http.ErrAbortHandler] where it can't.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serveWire(s.handler, w, r)
}
