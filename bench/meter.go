package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/internal/sleep"
)

// meter sends requests, and counts what its observer sees of them from [meter.reset] on.
type meter struct {
	next policy.Transporter
	// latency is how long each request takes. It changes only between operations.
	latency time.Duration
	// heap is measured when a request begins and when its answer has been read; nil if it is not measured.
	heap *heapPeak

	mu sync.Mutex
	n  measured
}

// measured is what was sent and received.
type measured struct {
	requests       price.Tally
	sent, received int64 // bytes of bodies
}

func newMeter(next policy.Transporter) *meter {
	m := &meter{next: next}
	m.reset()
	return m
}

// observer returns the observer of the vault that is measured.
func (m *meter) observer() azblob.Observer {
	return azblob.Observer{Request: func(_ context.Context, e azblob.RequestEvent) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.n.requests[e.Class]++
		m.n.sent += e.BytesSent
		m.n.received += e.BytesReceived
	}}
}

// Do sends a request.
func (m *meter) Do(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	m.look()
	m.mu.Unlock()

	if m.latency > 0 && !sleep.For(req.Context(), m.latency/2) {
		return nil, req.Context().Err()
	}
	resp, err := m.next.Do(req)
	if err != nil {
		return nil, err
	}
	if m.heap != nil {
		if resp.Body, err = spool(resp.Body); err != nil {
			return nil, err
		}
	}
	if m.latency > 0 && !sleep.For(req.Context(), m.latency/2) {
		resp.Body.Close()
		return nil, req.Context().Err()
	}
	resp.Body = &metered{resp.Body, m}
	return resp, nil
}

// reset sets all counts to zero.
func (m *meter) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.n = measured{requests: price.Tally{}}
}

// counts returns the counts since reset.
func (m *meter) counts() measured {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.n
	n.requests = maps.Clone(n.requests)
	return n
}

// spool moves an answer to a file. The emulator holds whole answers in the memory of this process, where they
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

// spooled is an answer in a file, which Close removes.
type spooled struct{ *os.File }

func (s spooled) Close() error { return errors.Join(s.File.Close(), os.Remove(s.Name())) }

// metered is an answer's body.
type metered struct {
	io.ReadCloser
	m *meter
}

// Close closes the body and measures the heap: a page is decoded by now and not yet used, so the heap is at
// its peak.
func (w *metered) Close() error {
	err := w.ReadCloser.Close()
	w.ReadCloser = http.NoBody // releases the emulator's answer; a second Close does nothing
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	w.m.look()
	return err
}

// look measures the heap. The caller holds the lock.
func (m *meter) look() {
	if m.heap != nil {
		m.heap.look()
	}
}

// heapPeak is the largest measured size of the live heap. Garbage does not count, so each measurement takes a
// collection.
type heapPeak struct {
	calls       int
	start, peak uint64
}

func newHeapPeak() *heapPeak {
	live := liveHeap()
	return &heapPeak{start: live, peak: live}
}

// look measures the heap at each of the first calls, and then at every 20th.
func (h *heapPeak) look() {
	if h.calls++; h.calls <= 20 || h.calls%20 == 0 {
		h.peak = max(h.peak, liveHeap())
	}
}

// above returns how much the peak exceeds the start.
func (h *heapPeak) above() int64 { return int64(h.peak - h.start) }

func liveHeap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}
