package emulator

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"golang.org/x/net/http/httpguts"
)

var _ policy.Transporter = (*Transport)(nil)

// Transport connects one client to a [Server] without sockets. Use it as the Transport of
// azcore.ClientOptions. A Transport can have faults of its own and can crash. It is safe for concurrent use
// and needs no closing.
type Transport struct {
	server *Server
	client *client
}

// Transport returns a new connection, named "client-1", "client-2" and so on.
func (s *Server) Transport() *Transport {
	return s.NamedTransport(fmt.Sprintf("client-%d", s.clients.Add(1)))
}

// ClientOptions returns the options of a client for Azure that sends its requests over a new [Server.Transport].
func (s *Server) ClientOptions() policy.ClientOptions {
	return policy.ClientOptions{Transport: s.Transport()}
}

// NamedTransport is [Server.Transport] with a name of your own, which appears in the log and in rules.
func (s *Server) NamedTransport(name string) *Transport {
	return &Transport{server: s, client: &client{name: name}}
}

// Name returns the client's name.
func (t *Transport) Name() string { return t.client.name }

// Server returns the server that the transport is connected to.
func (t *Transport) Server() *Server { return t.server }

// Crash makes every request of this transport fail with [ErrCrashed], including those under way. Requests
// that have not taken effect yet never do.
func (t *Transport) Crash() {
	// With the lock held, no request is between the check and its effect.
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	t.client.crashed.Store(true)
}

// Crashed reports whether the client has crashed.
func (t *Transport) Crashed() bool { return t.client.crashed.Load() }

// Do implements [policy.Transporter]. Its errors are *url.Error, as from an [http.Client]. They wrap the
// error of the context, io.EOF, a *net.OpError with ECONNRESET, or [ErrCrashed].
func (t *Transport) Do(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close() // as net/http does
	}
	resp, err := t.do(req)
	if err != nil {
		return nil, &url.Error{Op: operationName(req.Method), URL: req.URL.Redacted(), Err: err}
	}
	return resp, nil
}

func (t *Transport) do(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r, err := onWire(req)
	if err != nil {
		return nil, err
	}
	out := t.server.serve(ctx, t.client, r)
	if out.err != nil {
		return nil, out.err
	}
	a := out.answer
	body := a.body
	if out.cut >= 0 && out.cut < int64(len(body)) {
		body = body[:out.cut]
	}
	length := int64(-1)
	if n, err := strconv.ParseInt(a.header.Get("Content-Length"), 10, 64); err == nil {
		length = n
	}
	return &http.Response{
		Status:        fmt.Sprintf("%d %s", a.status, http.StatusText(a.status)),
		StatusCode:    a.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        a.header,
		Body:          &responseBody{ctx: ctx, reader: bytes.NewReader(body)},
		ContentLength: length,
		Request:       req,
	}, nil
}

// operationName returns the method as errors of net/http write it.
func operationName(method string) string {
	if method == "" {
		return "Get"
	}
	return method[:1] + strings.ToLower(method[1:])
}

// onWire returns the request as a server reads it from the wire, or the error of net/http for one that it does not send.
func onWire(req *http.Request) (*http.Request, error) {
	for name, values := range req.Header { // Write would change what is invalid
		if !httpguts.ValidHeaderFieldName(name) {
			return nil, fmt.Errorf("net/http: invalid header field name %q", name)
		}
		if slices.ContainsFunc(values, func(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }) {
			return nil, fmt.Errorf("net/http: invalid header field value for %q", name)
		}
	}
	var wire bytes.Buffer
	if err := req.Write(&wire); err != nil {
		return nil, err
	}
	r, err := http.ReadRequest(bufio.NewReader(&wire))
	if err != nil {
		return nil, err
	}
	r.URL.Scheme = req.URL.Scheme
	return r.WithContext(req.Context()), nil
}

// responseBody is a body that can be read until the context of its request ends.
type responseBody struct {
	ctx    context.Context
	reader *bytes.Reader
	closed bool
}

func (b *responseBody) Read(p []byte) (int, error) {
	if b.closed {
		return 0, http.ErrBodyReadAfterClose
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	return b.reader.Read(p)
}

func (b *responseBody) Close() error {
	b.closed = true
	return nil
}

// Gate decides when requests take effect. See [Transport.SetGate], and the package emulator/schedule for a
// Gate that tries orders of requests.
type Gate interface {
	// Enter is called before a request takes effect and may block. If Enter returns an error, the request
	// never takes effect and fails with that error. A Gate that blocks should return the error of ctx, the
	// request's context, when ctx ends.
	Enter(ctx context.Context, r Request) error

	// Leave is called once the request has taken effect or was stopped by a fault, before the client learns
	// of the outcome. r contains the outcome.
	Leave(r Request)
}

// SetGate sets the gate for the requests of this transport. A nil gate removes it. Requests that have already
// reached a gate stay with that gate.
func (t *Transport) SetGate(g Gate) {
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	t.client.gate = g
}
