package costs_test

import (
	"errors"
	"io"
	"net/http"
	"os"
	"runtime"
	"sync"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// heapPeak is the largest measured size of the live heap. Garbage does not count, so each measurement takes a collection. A
// nil heapPeak measures nothing.
type heapPeak struct {
	mu          sync.Mutex
	calls       int
	start, peak uint64
}

func newHeapPeak() *heapPeak {
	live := liveHeap()
	return &heapPeak{start: live, peak: live}
}

func liveHeap() uint64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc
}

// above returns how much the peak exceeds the start.
func (h *heapPeak) above() int64 {
	if h == nil {
		return 0
	}
	return int64(h.peak - h.start)
}

// look measures the heap at each of the first calls, and then at every 20th.
func (h *heapPeak) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.calls++; h.calls <= 20 || h.calls%20 == 0 {
		h.peak = max(h.peak, liveHeap())
	}
}

// do sends a request, and measures when it begins and when its answer has been read: a page is decoded by then and not yet
// used. The answer waits in a file, because the emulator holds answers in the memory of this process.
func (h *heapPeak) do(next policy.Transporter, req *http.Request) (*http.Response, error) {
	if h == nil {
		return next.Do(req)
	}
	h.look()
	resp, err := next.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	f, err := os.CreateTemp("", "answer")
	if err != nil {
		return nil, err
	}
	body := &spooled{f, h}
	_, err = io.Copy(f, resp.Body)
	if _, seek := f.Seek(0, io.SeekStart); err != nil || seek != nil {
		return nil, errors.Join(err, seek, body.Close())
	}
	resp.Body = body
	return resp, nil
}

// spooled is an answer in a file, which Close removes.
type spooled struct {
	*os.File
	heap *heapPeak
}

func (s *spooled) Close() error {
	err := errors.Join(s.File.Close(), os.Remove(s.Name()))
	if errors.Is(err, os.ErrClosed) { // closed before
		return nil
	}
	s.heap.look()
	return err
}
