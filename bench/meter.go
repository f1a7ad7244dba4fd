package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// meter counts the requests that pass through it.
type meter struct {
	next policy.Transporter
	// latency is what each request takes; it is changed between operations only.
	latency time.Duration
	// apart leaves what the next transport allocates out of allocations. The requests must come one by one then.
	apart bool

	// heap is looked at when a request begins and when its answer has been read; nil for not at all.
	heap *heapPeak

	mu      sync.Mutex
	n       measured
	mallocs uint64 // by the next transport
}

// measured is what went over the wire.
type measured struct {
	requests       tally
	sent, received int64 // bytes of bodies
}

var _ policy.Transporter = (*meter)(nil)

// Do sends a request.
func (m *meter) Do(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	m.n.requests[classify(req)]++
	m.n.sent += max(req.ContentLength, 0)
	m.look()
	m.mu.Unlock()

	if err := pause(req.Context(), m.latency/2); err != nil {
		return nil, err
	}
	resp, err := m.send(req)
	if err != nil {
		return nil, err
	}
	if m.heap != nil {
		if resp.Body, err = spool(resp.Body); err != nil {
			return nil, err
		}
	}
	if err := pause(req.Context(), m.latency-m.latency/2); err != nil {
		resp.Body.Close()
		return nil, err
	}
	resp.Body = &counted{resp.Body, m}
	return resp, nil
}

func (m *meter) send(req *http.Request) (*http.Response, error) {
	if !m.apart {
		return m.next.Do(req)
	}
	before := allocations()
	resp, err := m.next.Do(req)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mallocs += allocations() - before
	return resp, err
}

// reset forgets what was counted.
func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n, m.mallocs = measured{}, 0
}

// end returns what was counted since reset.
func (m *meter) end() measured {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n
}

// spool moves an answer to a file, which it is read from. The emulator makes answers whole, in this process's memory; they
// would count as the vault's.
func spool(body io.ReadCloser) (io.ReadCloser, error) {
	defer body.Close()
	f, err := os.CreateTemp("", "bench-answer")
	if err != nil {
		return nil, err
	}
	s := spooled{f}
	if _, err := io.Copy(f, body); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// spooled is an answer in a file that goes when it is closed.
type spooled struct{ *os.File }

func (s spooled) Close() error { return errors.Join(s.File.Close(), os.Remove(s.Name())) }

// counted is an answer's body.
type counted struct {
	io.ReadCloser
	m *meter
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.m.mu.Lock()
	c.m.n.received += int64(n)
	c.m.mu.Unlock()
	return n, err
}

// Close gives up the answer. If it was a page, then all of it is decoded by now and none is used, so the heap is at its
// highest.
func (c *counted) Close() error {
	err := c.ReadCloser.Close()
	c.ReadCloser = http.NoBody // an emulator's whole answer is not held any longer than a connection would; closing again does nothing
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.look()
	return err
}

// look looks at the heap, with the lock held.
func (m *meter) look() {
	if m.heap != nil {
		m.heap.look()
	}
}

func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// allocations is how many objects the process has allocated.
func allocations() uint64 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.Mallocs
}

// heapPeak is the most memory that was live, of what was looked at. Garbage does not count: what is live is known after a
// collection, which is why it does not look all the time.
type heapPeak struct {
	// every is how many calls of look there are to one look, after as many that all look.
	every       int
	calls       int
	start, peak uint64
}

func newHeapPeak(every int) *heapPeak {
	live := liveHeap()
	return &heapPeak{every: every, start: live, peak: live}
}

func (h *heapPeak) look() {
	if h.calls++; h.calls <= h.every || h.calls%h.every == 0 {
		h.peak = max(h.peak, liveHeap())
	}
}

// above is how much the peak is above the start.
func (h *heapPeak) above() int64 { return int64(h.peak - h.start) }

func liveHeap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
