package emulator

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"
)

// Listener serves a [Server] on a port, for HTTP/1.1 clients of any kind.
type Listener struct {
	server *Server
	client *client
	http   *http.Server
	addr   net.Addr
	done   chan struct{} // closed when the port is
	active sync.RWMutex  // read-locked by each request
}

// Listen serves on a TCP address such as "127.0.0.1:0", until [Listener.Close].
// A server may have several listeners; the log names them "listener-1" and so on.
func (s *Server) Listen(addr string) (*Listener, error) {
	port, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	l := &Listener{
		server: s,
		client: &client{name: fmt.Sprintf("listener-%d", s.clients.Add(1))},
		addr:   port.Addr(),
		done:   make(chan struct{}),
	}
	l.http = &http.Server{Handler: l, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(l.done)
		// It ends with http.ErrServerClosed, or because the port broke: then every
		// request fails, which says enough.
		_ = l.http.Serve(port)
	}()
	return l, nil
}

// ServeHTTP answers the requests of the listener.
func (l *Listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.active.RLock()
	defer l.active.RUnlock()
	l.server.serveWire(l.client, w, r)
}

// Addr returns the address, with the port that was chosen for port 0.
func (l *Listener) Addr() net.Addr { return l.addr }

// URL returns the service URL of the account.
func (l *Listener) URL() string { return "http://" + l.addr.String() + "/" + l.server.account }

// ConnectionString returns a connection string for this address.
func (l *Listener) ConnectionString() string { return l.server.connectionString(l.URL()) }

// Close closes the port and all connections, and returns when no request is
// under way any more.
func (l *Listener) Close() error {
	err := l.http.Close()
	<-l.done
	l.active.Lock()
	defer l.active.Unlock()
	return err
}

// serveWire answers a request that came over a connection.
func (s *Server) serveWire(cl *client, w http.ResponseWriter, r *http.Request) {
	out := s.serve(r.Context(), cl, r)
	if out.err != nil {
		if errors.Is(out.err, syscall.ECONNRESET) {
			resetConnection(w)
		}
		// Closes the connection without an answer.
		panic(http.ErrAbortHandler)
	}
	a := out.answer
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	if out.cut >= 0 && out.cut < int64(len(a.body)) {
		_, _ = w.Write(a.body[:out.cut])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	// If it fails the client is gone, and learns nothing anyway.
	_, _ = w.Write(a.body)
}

// resetConnection closes a connection so that its client sees ECONNRESET.
func resetConnection(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
