package emulator

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/planvault/azblob/internal/selfsigned"
)

// Listener serves a [Server] on a TCP port, for any HTTP/1.1 client.
type Listener struct {
	server *Server
	client *client
	http   *http.Server
	addr   net.Addr
	cert   *tls.Certificate // nil without TLS
	done   chan struct{}    // closed when Serve has returned
	active sync.RWMutex     // read-locked by each request
}

// Listen serves on a TCP address such as "127.0.0.1:0" until [Listener.Close]. A server may have several
// listeners. The log names them "listener-1" and so on.
func (s *Server) Listen(addr string) (*Listener, error) { return s.listen(addr, nil) }

// ListenTLS is [Server.Listen] over TLS, with a new self-made certificate for 127.0.0.1 and localhost.
// [Listener.HTTPClient] trusts it.
func (s *Server) ListenTLS(addr string) (*Listener, error) {
	cert, err := selfsigned.New(s.clock())
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	return s.listen(addr, &cert)
}

func (s *Server) listen(addr string, cert *tls.Certificate) (*Listener, error) {
	port, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("emulator: %w", err)
	}
	l := &Listener{
		server: s,
		client: &client{name: fmt.Sprintf("listener-%d", s.clients.Add(1))},
		addr:   port.Addr(),
		cert:   cert,
		done:   make(chan struct{}),
	}
	if cert != nil {
		port = tls.NewListener(port, &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS12})
	}
	l.http = &http.Server{Handler: l, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
	go func() {
		defer close(l.done)
		// Serve returns http.ErrServerClosed, or the port is broken and every request fails.
		_ = l.http.Serve(port)
	}()
	return l, nil
}

// ServeHTTP implements [http.Handler] for the requests of this listener.
func (l *Listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.active.RLock()
	defer l.active.RUnlock()
	l.server.serveWire(l.client, w, r)
}

// Addr returns the address that the listener is bound to.
func (l *Listener) Addr() net.Addr { return l.addr }

// URL returns the service URL of the account.
func (l *Listener) URL() string {
	scheme := "http"
	if l.cert != nil {
		scheme = "https"
	}
	return scheme + "://" + l.addr.String() + "/" + l.server.account
}

// HTTPClient returns a client of its own, which keeps as many connections as a vault needs by default, and trusts the
// certificate of a listener with TLS.
func (l *Listener) HTTPClient() *http.Client {
	t := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256}
	if l.cert != nil {
		t.TLSClientConfig = selfsigned.ClientConfig(*l.cert)
	}
	return &http.Client{Transport: t}
}

// ConnectionString returns a connection string for this address.
func (l *Listener) ConnectionString() string { return l.server.connectionString(l.URL()) }

// Close closes the port and all connections. It returns when no request is under way.
func (l *Listener) Close() error {
	err := l.http.Close()
	<-l.done
	l.active.Lock()
	defer l.active.Unlock()
	return err
}

// serveWire answers a request that arrived over a connection.
func (s *Server) serveWire(cl *client, w http.ResponseWriter, r *http.Request) {
	out := s.serve(r.Context(), cl, r)
	if out.err != nil {
		if errors.Is(out.err, syscall.ECONNRESET) {
			resetConnection(w)
		}
		// This closes the connection without an answer.
		panic(http.ErrAbortHandler)
	}
	a := out.answer
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.status)
	if a.chunked {
		_ = http.NewResponseController(w).Flush() // otherwise net/http announces the length of a short body
	}
	if out.cut >= 0 && out.cut < int64(len(a.body)) {
		_, _ = w.Write(a.body[:out.cut])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	// If this fails, the client is gone.
	_, _ = w.Write(a.body)
}

// resetConnection closes a connection so that the client sees ECONNRESET.
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
