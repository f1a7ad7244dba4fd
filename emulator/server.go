package emulator

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Server is one account of the service. It is an [http.Handler]. [Server.Transport] and [Server.Listen]
// connect clients to it. It is safe for concurrent use.
type Server struct {
	settings
	handler  *client
	upstream policy.Transporter // see Proxy
	listings map[uint64]int     // how often each was asked for, with real answers

	// mu guards the fields below. It is held while a write is stored in a file, but never while sleeping or
	// waiting.
	mu     sync.Mutex
	state  state
	second *Server // the read-only secondary: what was stored at the last Replicate; nil if there is none
	// kept and keptBytes count what versioning and soft delete keep.
	kept      int
	keptBytes int64
	n         int // number of the last request
	log       []Request
	late      []lateCall

	// fmu guards the ban.
	fmu        sync.Mutex
	forbid     func(Request) error
	violations []error

	rules   rules
	clients atomic.Int64
}

// settings are set by New and never changed.
type settings struct {
	account   string
	key       []byte
	tenant    string // whose tokens are checked; "" accepts every token
	latency   time.Duration
	clock     func() time.Time
	pageLimit int
	logging   bool
	table     []operation

	hierarchical bool // see Options.HierarchicalNamespace
	versioning   bool
	softDelete   bool
	real         *uint64 // see Options.RealAnswers; nil without it
}

// New returns an empty account in memory. [Open] returns one that is kept in a file.
func New(o Options) *Server {
	key, err := base64.StdEncoding.DecodeString(DefaultKey)
	if err != nil {
		panic(err) // the constant is base64
	}
	s := &Server{state: newState(), handler: &client{name: "http"}, settings: settings{
		account:   DefaultAccount,
		key:       key,
		clock:     o.Clock,
		pageLimit: min(cmp.Or(max(o.PageLimit, 0), pageLimit), pageLimit),
		logging:   !o.NoLog,
		table:     operations(),

		tenant: o.Tokens, latency: o.Latency, hierarchical: o.HierarchicalNamespace, versioning: o.Versioning, softDelete: o.SoftDelete,
	}}
	if o.Clock == nil {
		s.clock = time.Now
	}
	if o.RealAnswers != 0 {
		s.real, s.listings = &o.RealAnswers, map[uint64]int{}
	}
	return s
}

// Clone returns an independent copy of everything stored, with the same options: what a client would find
// after a crash. It does not copy fault rules, the ban, the log, late requests and clients. Cloning is cheap
// because bodies never change and are shared. The copy is in memory, even if the server comes from [Open].
func (s *Server) Clone() *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Server{
		settings:  s.settings,
		state:     s.state.clone(),
		handler:   &client{name: "http"},
		listings:  maps.Clone(s.listings),
		kept:      s.kept,
		keptBytes: s.keptBytes,
	}
}

// ConnectionString returns a connection string for clients with a [Transport]. Its host does not exist.
func (s *Server) ConnectionString() string {
	return s.connectionString("http://blob.emulator.invalid/" + s.account)
}

func (s *Server) connectionString(endpoint string) string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%s;AccountKey=%s;BlobEndpoint=%s;",
		s.account, base64.StdEncoding.EncodeToString(s.key), endpoint)
}

// client is a source of requests: a transport, a listener, or the server's own handler.
type client struct {
	name    string
	crashed atomic.Bool
	rules   rules

	mu   sync.Mutex
	gate Gate
}

// outcome is what reaches the client: an answer or err.
type outcome struct {
	answer *answer
	err    error
	cut    int64 // number of bytes of the body that arrive; -1 means all
}

// serve passes a request through latency, gate and faults, and returns what reaches the client.
func (s *Server) serve(ctx context.Context, cl *client, r *http.Request) outcome {
	body, bad, err := readBody(r)
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
		// Whether the request was applied or not, the client no longer exists.
		return outcome{err: ErrCrashed}
	}
	return out
}

// takeEffect executes a request under the rules. It also returns the entry of the log.
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
			item.fault = s.pick(c.client, &item.entry)
		}
	}
	if e.calls(kindBefore); ctx.Err() != nil {
		return outcome{err: ctx.Err()}, c.entry
	}
	s.verify(c, s.clock())

	s.mu.Lock()
	if c.client.crashed.Load() {
		s.mu.Unlock()
		return outcome{err: ErrCrashed}, c.entry
	}
	s.n++
	c.n, c.now, c.manners = s.n, s.clock(), s.mannersOf(s.n)
	var own *answer
	switch {
	case banned != nil:
		own = failWith("ForbiddenByTest", banned.Error())
	case e == nil || e.reaches():
		asked := c.list
		s.shorten(c.container, &c.list)
		c.list.emptyPage = c.list.emptyPage || e != nil && e.kind == kindEmptyPage
		own = s.execute(c)
		c.list = asked
	}
	out := outcome{answer: own, cut: -1}
	if own != nil {
		out.err = own.err
	}
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
		// Pages are rendered without the lock, so their size is known only now.
		own.body, own.render = own.render(), nil
		entry.Out = int64(len(own.body))
		s.amend(entry.N, entry.Out)
	}
	if out.answer != nil && out.err == nil {
		out.answer.finish(c)
		if e != nil {
			e.damage(out.answer)
		}
	}
	e.calls(kindAfter)
	return out, entry
}

// verify runs the checks that don't depend on what is stored.
func (s *Server) verify(c *call, now time.Time) {
	if s.upstream != nil {
		return
	}
	if !c.stray {
		c.verdict = s.authorize(c, now)
	}
	if c.verdict == nil {
		c.verdict = c.reject
	}
	for _, item := range c.items {
		s.verify(item, now)
	}
}

// execute executes a verified request. The server's lock is held.
func (s *Server) execute(c *call) (a *answer) {
	if s.upstream != nil {
		return s.forward(c)
	}
	if c.verdict != nil {
		return c.verdict.copy()
	}
	if c.secondary {
		return s.executeAtSecondary(c)
	}
	if _, b := s.state.find(c.container, c.blob); b != nil && c.createOnly {
		return fail("UnauthorizedBlobOverwrite")
	}
	defer func() {
		switch p := recover().(type) {
		case nil:
		case notStored:
			a = failWith("InternalError", p.Error())
		default:
			panic(p)
		}
	}()
	return c.operation.do(s, c)
}

// lateCall is a request that takes effect after some more requests have.
type lateCall struct {
	call *call
	wait int
	why  string
}

// deliver executes the late requests that are due. The server's lock is held.
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

// DeliverLate executes all requests that are still under way: late duplicates, and requests delayed by
// [Effect.Late]. It returns their number.
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

// sleep waits for d or until the context ends.
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

// ServeHTTP implements [http.Handler]. A fault that breaks the connection hijacks the connection, or panics
// with [http.ErrAbortHandler] if the connection can't be hijacked.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.serveWire(s.handler, w, r)
}
