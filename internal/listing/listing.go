// Package listing yields what the days of a vault hold, newest first. A service lists names in ascending order, and
// names sort by the time in their IDs, so a day is read in windows, from its end backwards.
//
// One invariant makes a listing complete. A queue of pieces covers the IDs that have not been yielded, newest first,
// without gap or overlap. The loop takes the first piece. If it has been read to its end, it is yielded. Otherwise it
// is replaced by smaller pieces that cover the same IDs. Estimates choose how large these are, which are read ahead,
// and nothing else: whatever they say, the result is the same.
package listing

import (
	"context"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Day is a part of a day that is to be listed.
type Day[T any] struct {
	Span
	Source[T]
	// Catalogue is that of the day. It is nil if the day has none.
	Catalogue Catalogue[T]
}

// Source lists a day.
type Source[T any] interface {
	// Read reads a span until it has about most blobs, or to its end.
	Read(ctx context.Context, s Span, most int) (Page[T], error)
	// Groups returns the first keys of the groups of a span that have plans, in ascending order: of its minutes, or of
	// its milliseconds if it lies in one minute ([Span.Unit]). They decide what a listing costs, and not what it yields.
	Groups(ctx context.Context, s Span) ([]uint64, error)
}

// Page is the oldest part of a span.
type Page[T any] struct {
	Items []T       // in ascending order
	Blobs int       // how many blobs were read
	Rest  uuid.UUID // the first ID that was not read, which lies behind the start of the span; the end of the span if all was read
}

// Catalogue has a span of a past day.
type Catalogue[T any] interface {
	// Open opens the catalogue. It returns false if the day is to be listed.
	Open(context.Context) (bool, error)
	Blobs() int // about as many as a listing of the span would have
	// All yields the items, newest first. An error is the last element.
	All(context.Context) iter.Seq2[T, error]
	// Rest returns the span that has not been yielded, after All has yielded an error. It returns false if the error is
	// final; otherwise the span is to be listed.
	Rest(context.Context, error) (Span, bool)
}

// Options say what is wanted.
type Options struct {
	Page  int // how many blobs a page holds
	Ahead int // how many pages are read at once
	// Limit is how many items are wanted; 0 for all. If Aimed is set, every item that is read is wanted, so no more is
	// read than should hold that many. Otherwise as many pieces are read at once as were needed before.
	Limit int
	Aimed bool
	// Now is an estimate of the service's time.
	Now time.Time
}

// MaxPage is the number of blobs on the largest page of the service.
const MaxPage = 5000

const (
	// perPlan is how many blobs a plan has in a listing.
	perPlan = 2
	// surplus is the ratio of what a window should hold to what is wanted. It may hold a little less than expected.
	surplus = 1.4
	// reserve is the part of a page that a window should fill. It may hold a little more than expected.
	reserve = 0.93
	// spare is how many blobs more than that a page has, because plans come at random.
	spare = 50
	// CataloguesAhead is how many days are read ahead by their catalogues. They keep the round trips of a year within
	// the budget.
	CataloguesAhead = 80
)

// Newest yields the items of the days, which are sorted newest first. An error takes the place of the rest of its day,
// and the other days follow. Breaking out of the loop cancels the requests under way.
func Newest[T any](ctx context.Context, days []Day[T], o Options) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		l := &listing[T]{Options: o, perDay: math.Inf(1), turns: make(chan struct{}, max(1, o.Ahead))}
		defer l.readers.Wait()
		defer cancel()
		for i := range days {
			l.queue = append(l.queue, &piece[T]{Span: days[i].Span, day: &days[i], closed: days[i].Catalogue != nil})
		}
		for len(l.queue) > 0 && l.step(ctx, yield) {
		}
	}
}

// listing is a Newest that is under way.
type listing[T any] struct {
	Options
	queue   []*piece[T]
	readers sync.WaitGroup
	turns   chan struct{} // one for each request under way
	used    int           // pieces
	yielded int           // items
	empty   int           // pieces without items
	perDay  float64       // how many blobs a day should hold; infinite if unknown
}

// piece is a part of a day that has not been yielded.
type piece[T any] struct {
	Span
	day      *Day[T]
	closed   bool    // its day may have a catalogue
	dense    Span    // the part whose groups are needed, because a page did not hold it; optional
	older    int     // how many blobs of dense lie before the piece
	scale    *scale  // shared with other pieces of the day or minute; nil if unknown
	guessed  bool    // its density is a guess, by the plans just before it
	expected float64 // how many blobs it should hold

	// done is nil until something is asked, and closed when the answer is there: a scale, or one of the following.
	done      chan struct{}
	page      *Page[T]
	catalogue Catalogue[T]
	err       error
}

// step takes the newest piece and yields it if its answer is final. It returns false if the loop is over.
func (l *listing[T]) step(ctx context.Context, yield func(T, error) bool) bool {
	l.readAhead(ctx)
	p := l.queue[0]
	<-p.done
	switch {
	case !p.final():
		return true
	case p.err != nil:
		l.queue = slices.DeleteFunc(l.queue, func(q *piece[T]) bool { return q.day == p.day })
		return yield(*new(T), p.err)
	}
	l.queue = slices.Delete(l.queue, 0, 1) // which forgets the piece
	l.used++
	if p.catalogue != nil {
		return l.yieldCatalogue(ctx, p, yield)
	}
	l.learn(p)
	for _, item := range slices.Backward(p.page.Items) {
		l.yielded++
		if !yield(item, nil) {
			return false
		}
	}
	return true
}

// yieldCatalogue yields a catalogue. If it turns out to be unusable, the rest of its span is listed.
func (l *listing[T]) yieldCatalogue(ctx context.Context, p *piece[T], yield func(T, error) bool) bool {
	before := l.yielded
	for item, err := range p.catalogue.All(ctx) {
		if err != nil {
			if rest, ok := p.catalogue.Rest(ctx, err); ok {
				l.queue = slices.Insert(l.queue, 0, &piece[T]{Span: rest, day: p.day})
				return true
			}
		} else {
			l.yielded++
		}
		if !yield(item, err) {
			return false
		}
	}
	l.perDay = float64(p.catalogue.Blobs())
	if l.yielded == before {
		l.empty++
	}
	return true
}

// readAhead sends requests for the first pieces of the queue, as many as more allows.
func (l *listing[T]) readAhead(ctx context.Context) {
	catalogues := 0
	for i := 0; i < len(l.queue) && l.more(i, catalogues); i++ {
		for p := l.queue[i]; !p.underWay() && !p.final(); p = l.queue[i] {
			l.queue = slices.Replace(l.queue, i, i+1, l.advance(ctx, p)...)
		}
		if l.queue[i].closed {
			catalogues++
		}
	}
}

// more reports whether piece i of the queue should be read at once with those before it, of which some are read by
// catalogues.
func (l *listing[T]) more(i, catalogues int) bool {
	switch {
	case i == 0:
		return true
	case catalogues >= CataloguesAhead, i-catalogues >= l.Ahead:
		return false
	case l.Aimed:
		wanted := perPlan * (l.wanted() + float64(l.empty))
		for _, p := range l.queue[:i] {
			wanted -= p.expected
		}
		return wanted > 0
	}
	return l.Limit == 0 || i < l.used
}

// wanted returns how many more items are wanted. There is always one: the caller asks for more than the limit if an
// item turns out to be none.
func (l *listing[T]) wanted() float64 { return max(1, float64(l.Limit)-float64(l.yielded)) }

// advance sends the next request for a piece, or replaces it by smaller ones.
func (l *listing[T]) advance(ctx context.Context, p *piece[T]) []*piece[T] {
	switch {
	case p.done == nil:
		return l.ask(ctx, p)
	case p.page != nil:
		return l.overflow(p)
	}
	p.done, p.closed = nil, false
	if p.scale != nil {
		l.survey(p)
	}
	return []*piece[T]{p}
}

// ask sends the first request for a piece, or for the newest part of it.
func (l *listing[T]) ask(ctx context.Context, p *piece[T]) []*piece[T] {
	if p.scale == nil {
		p.expected = max(perPlan, l.perDay*p.share(l.Now))
	}
	switch {
	case p.closed:
		l.start(p, nil, func() {
			var opened bool
			if opened, p.err = p.day.Catalogue.Open(ctx); opened {
				p.catalogue = p.day.Catalogue
			}
		})
	case p.scale == nil && l.divides(p):
		l.start(p, l.turns, func() { p.scale, p.err = measure(ctx, p.day, p.dense) })
	default:
		most, pieces := l.cut(p)
		l.start(p, l.turns, func() {
			var page Page[T]
			page, p.err = p.day.Read(ctx, p.Span, most)
			p.page = &page
		})
		return pieces
	}
	return []*piece[T]{p}
}

// start calls read as soon as there is a turn, if it needs one.
func (l *listing[T]) start(p *piece[T], turns chan struct{}, read func()) {
	p.done = make(chan struct{})
	done := p.done
	l.readers.Go(func() {
		defer close(done)
		if turns != nil {
			turns <- struct{}{}
			defer func() { <-turns }()
		}
		read()
	})
}

// underWay reports whether a request for the piece has no answer yet.
func (p *piece[T]) underWay() bool {
	if p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// final reports whether the piece has been answered, and needs no other request.
func (p *piece[T]) final() bool {
	return p.done != nil && !p.underWay() && (p.err != nil || p.catalogue != nil || p.page != nil && p.page.Rest == p.To)
}
