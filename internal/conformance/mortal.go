package conformance

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Moment is when, at its fatal request, a process dies or a context ends.
type Moment string

// The moments of a fatal request.
const (
	BeforeEffect Moment = "before it took effect" // the request is not sent
	AfterEffect  Moment = "after it took effect"  // the answer is lost
	WithAnswer   Moment = "with its answer"       // the caller gets the answer
)

// Mortal is the connection of a process that dies at one of its requests. Requests that were sent earlier
// finish, and no later one is sent. No call gets an answer after the death, except for the fatal request's at
// [WithAnswer].
//
// A process that survives loses the context of a call at its fatal request. Its other requests are sent.
type Mortal struct {
	Inner policy.Transporter
	// Fatal reports whether the process dies at a request. Its calls do not overlap, and end with the first
	// true.
	Fatal func(*http.Request) bool
	// When is the moment of the death.
	When Moment
	// Died is called once, when no request is on its way any more. It ends the context of the calls.
	Died func()
	// Survives says that a context ends and the process lives on.
	Survives bool

	mu   sync.Mutex
	over bool // the fatal request has come
	sent sync.WaitGroup
}

// Nth returns a Fatal of a [Mortal] for its nth request.
func Nth(n int) func(*http.Request) bool {
	return func(*http.Request) bool { n--; return n == 0 }
}

func (m *Mortal) Do(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	fatal := !m.over && m.Fatal(req)
	m.over = m.over || fatal
	early := !m.over
	if early {
		m.sent.Add(1)
	}
	m.mu.Unlock()
	switch {
	case early:
		defer m.sent.Done()
		return m.Inner.Do(req)
	case fatal:
		resp, err := m.last(req)
		m.sent.Wait()
		m.Died()
		if m.When == WithAnswer {
			return resp, err
		}
	case m.Survives:
		return m.Inner.Do(req)
	}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

// last sends the fatal request, unless the process dies before that.
func (m *Mortal) last(req *http.Request) (*http.Response, error) {
	if m.When == BeforeEffect {
		return nil, nil
	}
	resp, err := m.Inner.Do(req.Clone(context.WithoutCancel(req.Context())))
	if err == nil && m.When == AfterEffect {
		discard(resp)
	}
	return resp, err
}

func discard(resp *http.Response) {
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
