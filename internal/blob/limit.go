package blob

import (
	"context"
	"sync"
)

// limiter decides how many attempts may be in flight, and which of those that wait begins next. It has no
// clock and blocks nobody: begin and end say what happens, and it says who may go.
//
// The limit follows the service. When the service asks for fewer requests, the limit falls to half of those in
// flight. While all of it is used, it rises again, by one in each round trip. Operations take turns: one that
// needs a single request waits for its turn, and not behind all requests of a large one.
type limiter struct {
	most     int // the largest limit
	limit    float64
	inFlight int
	era      int // how often the limit fell
	next     []*operation
}

// operation is what waits of one call of the vault.
type operation struct{ waiting []*attempt }

// attempt is one that waits.
type attempt struct {
	ready chan struct{} // closed when it may go
	era   int           // the limiter's when it was let go
	left  bool          // whether it no longer waits
}

// fewest is the least to which the limit falls. A service that refuses even these few is left alone by the
// back-off of retries.
const fewest = 4

func newLimiter(most int) *limiter { return &limiter{most: most, limit: float64(most)} }

// begin lets an attempt of an operation go, in an era, or returns an attempt that waits.
func (l *limiter) begin(o *operation) (era int, waits *attempt) {
	if l.inFlight < int(l.limit) { // then nothing waits
		l.inFlight++
		return l.era, nil
	}
	waits = &attempt{ready: make(chan struct{})}
	if o.waiting = append(o.waiting, waits); len(o.waiting) == 1 {
		l.next = append(l.next, o)
	}
	return 0, waits
}

// result is what an attempt says about the limit.
type result int

const (
	unclear result = iota
	succeeded
	overload // the service asks for fewer requests
)

// end ends an attempt that was let go in an era, and lets others go.
func (l *limiter) end(era int, r result) {
	switch {
	case r == overload && era == l.era: // the attempts of earlier eras were sent before the limit fell
		l.limit = max(float64(min(fewest, l.most)), min(l.limit, float64(l.inFlight))/2)
		l.era++
	case r == succeeded && l.inFlight >= int(l.limit):
		l.limit = min(float64(l.most), l.limit+1/l.limit)
	}
	l.inFlight--
	l.release()
}

// release lets attempts go while there is room, one of each operation in turn.
func (l *limiter) release() {
	for l.inFlight < int(l.limit) && len(l.next) > 0 {
		o := l.next[0]
		l.next[0], l.next = nil, l.next[1:]
		a := o.waiting[0]
		o.waiting[0], o.waiting = nil, o.waiting[1:]
		if len(o.waiting) > 0 {
			l.next = append(l.next, o)
		}
		if !a.left {
			a.era = l.era
			l.inFlight++
			close(a.ready)
		}
	}
}

// slots is a limiter for many goroutines.
type slots struct {
	mu sync.Mutex
	*limiter
}

// take waits until an attempt may go, and returns its era. It returns false if ctx ends in the wait, even if the attempt may go at
// the same moment: an attempt that has begun may have written.
func (s *slots) take(ctx context.Context) (era int, ok bool) {
	o, ok := ctx.Value(operationKey{}).(*operation)
	if !ok {
		o = &operation{}
	}
	s.mu.Lock()
	era, waits := s.begin(o)
	s.mu.Unlock()
	if waits == nil {
		return era, true
	}
	select {
	case <-waits.ready:
		if ctx.Err() == nil {
			return waits.era, true
		}
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-waits.ready: // another one goes instead
		s.end(waits.era, unclear)
	default:
		waits.left = true
	}
	return 0, false
}

// give ends an attempt of an era.
func (s *slots) give(era int, r result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(era, r)
}

// operationKey is the context key of an operation.
type operationKey struct{}

// AsOperation returns a context for all requests of one operation. When requests must wait, operations take
// turns, however many requests each of them has.
func AsOperation(ctx context.Context) context.Context {
	return context.WithValue(ctx, operationKey{}, &operation{})
}
