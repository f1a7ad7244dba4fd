package costs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// tape is a transport that records what a service answers, and then gives the same answers at next to no cost
// of its own.
type tape struct {
	mu       sync.Mutex
	next     policy.Transporter // nil while the tape plays
	requests []recorded         // in the order of their answers
	answers  map[asked]*cycle
}

// recorded is a request as it was sent.
type recorded struct {
	*http.Request
	body    []byte
	refused bool // the answer, too, belongs to the operation: a blob does not exist, for instance
}

// asked selects an answer. A write is not selected by its path: the answers to all writes are alike, and a
// plan that is created again has other IDs.
type asked struct{ method, path, query string }

func askedBy(r *http.Request) asked {
	if r.Method == http.MethodPut {
		return asked{r.Method, "", r.URL.RawQuery}
	}
	return asked{r.Method, strings.TrimSuffix(r.URL.Path, "/"), r.URL.RawQuery}
}

// cycle holds the answers to one request, which are given in turn.
type cycle struct {
	answers []answer
	given   int
}

type answer struct {
	http.Response
	body []byte
}

var _ policy.Transporter = (*tape)(nil)

// record makes the tape pass requests on to next and record the answers. It forgets earlier ones.
func (t *tape) record(next policy.Transporter) {
	t.next, t.requests, t.answers = next, nil, map[asked]*cycle{}
}

// play makes the tape give the recorded answers.
func (t *tape) play() { t.next = nil }

// Do sends a request to the service, or answers it.
func (t *tape) Do(req *http.Request) (*http.Response, error) {
	if t.next != nil {
		return t.ask(req)
	}
	if req.Body != nil {
		defer req.Body.Close()
	}
	t.mu.Lock()
	c := t.answers[askedBy(req)]
	if c == nil {
		t.mu.Unlock()
		return nil, fmt.Errorf("no answer to %s %s is recorded", req.Method, req.URL.Redacted())
	}
	a := &c.answers[c.given%len(c.answers)]
	c.given++
	t.mu.Unlock()
	resp := a.Response
	resp.Request, resp.Body = req, io.NopCloser(bytes.NewReader(a.body))
	return &resp, nil
}

// ask passes a request on and records it with its answer.
func (t *tape) ask(req *http.Request) (*http.Response, error) {
	sent := recorded{Request: req.Clone(req.Context())}
	sent.Header = http.Header{}
	for name, values := range req.Header { // the SDK does not write all names in the canonical form
		sent.Header[http.CanonicalHeaderKey(name)] = values
	}
	if req.Body != nil {
		var err error
		if sent.body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(sent.body))
	}
	resp, err := t.next.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	a := answer{*resp, body}
	a.Request, a.Body = nil, nil
	sent.refused = resp.StatusCode >= http.StatusBadRequest
	t.mu.Lock()
	t.requests = append(t.requests, sent)
	key := askedBy(req)
	if t.answers[key] == nil {
		t.answers[key] = &cycle{}
	}
	t.answers[key].answers = append(t.answers[key].answers, a)
	t.mu.Unlock()
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}
