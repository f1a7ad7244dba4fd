package conformance

import (
	"context"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// mortal is the connection of a process that dies at its nth request: before it is sent, or after it took effect. No later one
// is sent, and those sent before have come to their ends. Nothing is answered any more.
type mortal struct {
	inner policy.Transporter
	n     int
	after bool

	mu   sync.Mutex
	seen int
	sent sync.WaitGroup
	died atomic.Bool
}

func (m *mortal) Do(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	m.seen++
	nth := m.seen
	if nth < m.n {
		m.sent.Add(1)
	}
	m.mu.Unlock()
	if nth < m.n {
		defer m.sent.Done()
		return m.inner.Do(req)
	}
	if nth == m.n {
		if m.after {
			last := req.Clone(context.WithoutCancel(req.Context()))
			if resp, err := m.inner.Do(last); err == nil {
				discard(resp)
			}
		}
		m.sent.Wait()
		m.died.Store(true)
	}
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func discard(resp *http.Response) {
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
