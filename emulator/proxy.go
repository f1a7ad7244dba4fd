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

// Lies returns a [Random] rule that lies as proxies, captive portals and load balancers do. It replaces
// answers of the service by pages of the proxy, before or after the request took effect, removes headers from
// the service's answers, redirects, and cuts the answers to batches short. A client can tell each of these
// lies from an answer of the service and should survive all of them.
func Lies(chance float64, seed uint64) *Rule {
	const page = "<html><body>Please sign in.</body></html>"
	return Random(chance, seed,
		Foreign(200, "text/html", page),
		Foreign(200, "text/html", page).Applied(),
		Foreign(201, "text/html", ""),
		Foreign(404, "text/html", page),
		Foreign(404, "", "").Applied(),
		Foreign(409, "text/html", page),
		Foreign(412, "", ""),
		Foreign(403, "text/html", page),
		Foreign(502, "text/html", page).Applied(),
		Foreign(507, "", "").Applied(),
		Foreign(520, "text/html", page).Applied(),
		Redirect(302, "http://portal.invalid/login"),
		Redirect(307, "https://elsewhere.invalid/").Applied(),
		Strip("ETag"),
		Strip("X-Ms-Request-Id"),
		Strip("X-Ms-Version"),
		Strip("Last-Modified"),
		CutBatch(0),
		CutBatch(1),
	)
}

// FalseAbsences returns a rule that answers HEAD and DELETE requests, also those of a batch, with the service's
// own 404 although the blob exists, with probability chance. A client can't recognize such an answer. A reader has
// to believe it, but no client may remove anything because of it.
func FalseAbsences(chance float64, seed uint64) *Rule {
	return On(HeadBlob, DeleteBlob, BatchItem).Chance(chance, seed).Do(Answer(404, "BlobNotFound"))
}
