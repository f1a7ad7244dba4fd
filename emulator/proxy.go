package emulator

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Proxy returns a server that stores nothing and passes every request on to another service, for example to a
// real account with an [http.Client]. Its transports have everything that those of an emulator have: rules, a
// log, gates, crashes, and requests that a test forbids. [EmptyPage], [CutBatch] and effects on the items of a
// batch do nothing. Answers are read as a whole. The methods that access what is stored find nothing. A request that
// was passed on ends before its client goes on, even if the client's context has ended.
func Proxy(to policy.Transporter, o Options) *Server {
	s := New(o)
	s.upstream = to
	return s
}

// patience is how long a request that was passed on may take.
const patience = 2 * time.Minute

// forward passes a request on. The server's lock is held, except while the request is under way.
func (s *Server) forward(c *call) *answer {
	if c.body == nil && c.http.ContentLength != 0 {
		return c.reject.copy() // the body has no length, or is too large
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.http.Context()), patience)
	defer cancel()
	r := c.http.Clone(ctx)
	r.URL.Host, r.RequestURI = r.Host, ""
	r.Body = io.NopCloser(bytes.NewReader(c.body))
	if r.ContentLength = int64(len(c.body)); r.ContentLength == 0 {
		r.Body = http.NoBody
	}
	resp, err := s.upstream.Do(r)
	if err != nil {
		return &answer{err: err}
	}
	defer resp.Body.Close()
	a := &answer{status: resp.StatusCode, code: resp.Header.Get("X-Ms-Error-Code"), header: resp.Header, complete: true}
	a.body, a.err = io.ReadAll(resp.Body)
	return a
}

// locateElsewhere is locate for a request to any account: its name is in the host of the service, and in the
// path otherwise.
func locateElsewhere(r *http.Request) string {
	path := strings.TrimPrefix(r.URL.Path, "/")
	if !strings.Contains(r.Host, ".blob.") || strings.HasSuffix(r.Host, ".invalid") {
		_, path, _ = strings.Cut(path, "/")
	}
	return path
}
