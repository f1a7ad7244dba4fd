package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Faulty is a connection with random temporary faults: requests and answers are lost, errors come before and
// after the request takes effect, bodies are cut or have a bit flipped, copies of requests arrive late. The
// same request sent again is likely to succeed.
type Faulty struct {
	inner  policy.Transporter
	chance float64

	mu      sync.Mutex
	rand    *rand.Rand
	flipped map[string]bool // blobs whose last read was damaged

	faults atomic.Int64
	late   sync.WaitGroup // copies that are in transit
}

// NewFaulty returns a connection on which each request meets a fault with the given probability.
func NewFaulty(inner policy.Transporter, seed uint64, chance float64) *Faulty {
	return &Faulty{inner: inner, chance: chance, rand: rand.New(rand.NewPCG(seed, 0)), flipped: map[string]bool{}}
}

// Faults returns the number of faults so far.
func (f *Faulty) Faults() int { return int(f.faults.Load()) }

// Wait waits for late copies of requests.
func (f *Faulty) Wait() { f.late.Wait() }

var errReset = errors.New("connection reset by peer (injected)")

// losses are faults in place of the answer. The status 0 is that of a connection that ends without an answer. An applied
// request takes effect before.
var losses = []struct {
	status  int
	code    string
	applied bool
}{
	{0, "", false},
	{0, "", true},
	{http.StatusInternalServerError, "InternalError", false},
	{http.StatusInternalServerError, "InternalError", true},
	{http.StatusServiceUnavailable, "ServerBusy", false},
	{http.StatusServiceUnavailable, "OperationTimedOut", true},
	{http.StatusConflict, "ContainerBeingDeleted", false},
}

// Do sends a request, or handles it as a bad connection does.
func (f *Faulty) Do(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	which := f.rand.IntN(len(losses) + 3)
	meets := f.rand.Float64() < f.chance
	f.mu.Unlock()
	if !meets {
		return f.inner.Do(req)
	}
	f.faults.Add(1)
	switch which - len(losses) {
	case 0:
		return f.copied(req)
	case 1: // cut without an error
		return f.damaged(req, func(body []byte) []byte { return body[:len(body)/2] })
	case 2:
		return f.flippedBit(req)
	}
	l := losses[which]
	if l.applied {
		if err := f.apply(req); err != nil {
			return nil, err
		}
	}
	if l.status == 0 {
		return nil, errReset
	}
	return answerOf(req, l.status, l.code), nil
}

// apply sends a request and discards the answer.
func (f *Faulty) apply(req *http.Request) error {
	resp, err := f.inner.Do(req)
	if err == nil {
		discard(resp)
	}
	return err
}

// copied sends a write twice; the second copy arrives while the caller continues. The service accepts the
// copy like any other request, or refuses it because of its condition. A late copy of a request without a
// condition could undo later requests. No network delays a request beyond its connection, so such a copy
// arrives before the answer.
func (f *Faulty) copied(req *http.Request) (*http.Response, error) {
	if req.Method != http.MethodPut && req.Method != http.MethodDelete {
		return f.inner.Do(req)
	}
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		_ = req.Body.Close()
	}
	twin := func(ctx context.Context) *http.Request {
		r := req.Clone(ctx)
		if body != nil {
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		return r
	}
	first, err := f.inner.Do(twin(req.Context()))
	if err != nil {
		return nil, err
	}
	again := func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(req.Context()), 10*time.Second)
		defer cancel()
		_ = f.apply(twin(ctx))
	}
	if req.Header.Get("If-Match") == "" && req.Header.Get("If-None-Match") == "" {
		again()
		return first, nil
	}
	f.late.Go(again)
	return first, nil
}

// flippedBit flips a bit in the body of a blob, but never twice in a row: the vault reports that as permanent
// damage. It leaves listings alone, which have no digest.
func (f *Faulty) flippedBit(req *http.Request) (*http.Response, error) {
	f.mu.Lock()
	again := f.flipped[req.URL.Path]
	f.flipped[req.URL.Path] = !again
	f.mu.Unlock()
	if again || req.URL.Query().Has("comp") {
		return f.inner.Do(req)
	}
	return f.damaged(req, func(body []byte) []byte {
		if len(body) > 0 {
			body[len(body)/3] ^= 1
		}
		return body
	})
}

func (f *Faulty) damaged(req *http.Request, damage func([]byte) []byte) (*http.Response, error) {
	resp, err := f.inner.Do(req)
	if err != nil || req.Method != http.MethodGet || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(damage(body)))
	return resp, nil
}

func answerOf(req *http.Request, status int, code string) *http.Response {
	body := fmt.Sprintf(`<?xml version="1.0" encoding="utf-8"?><Error><Code>%s</Code><Message>Injected.</Message></Error>`, code)
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{
			"Content-Type":    {"application/xml"},
			"X-Ms-Error-Code": {code},
			"Date":            {time.Now().UTC().Format(http.TimeFormat)},
			"X-Ms-Request-Id": {"injected"},
		},
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)),
	}
}
