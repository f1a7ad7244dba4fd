package conformance

import (
	"context"
	"io"
	"net/http"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Mortal is the connection of a process that dies at one of its requests: before the request is sent, or
// after it took effect. Requests that were sent earlier finish, and no later one is sent. No call gets an
// answer after the death.
type Mortal struct {
	Inner policy.Transporter
	// Fatal reports whether the process dies at a request. Its calls do not overlap, and end with the first
	// true.
	Fatal func(*http.Request) bool
	// After sends the fatal request and loses its answer.
	After bool
	// Died is called once, when no request is on its way any more.
	Died func()

	mu   sync.Mutex
	dead bool
	sent sync.WaitGroup
}

func (m *Mortal) Do(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	fatal := !m.dead && m.Fatal(req)
	m.dead = m.dead || fatal
	dead := m.dead
	if !dead {
		m.sent.Add(1)
	}
	m.mu.Unlock()
	if !dead {
		defer m.sent.Done()
		return m.Inner.Do(req)
	}
	if fatal {
		if m.After {
			last := req.Clone(context.WithoutCancel(req.Context()))
			if resp, err := m.Inner.Do(last); err == nil {
				discard(resp)
			}
		}
		m.sent.Wait()
		m.Died()
	}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func discard(resp *http.Response) {
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
