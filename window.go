package azblob

import (
	"bytes"
	"context"
	"iter"
	"math"
	"math/big"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// The service lists names from the first to the last, and listings want the newest plan, which is the last of its day. Names
// sort by the IDs in them and IDs by their time, and a request may say where to begin. So a day is read by windows, from its
// end backwards, each as wide as is expected to fit on one page. How dense plans lie is learnt from what was read before.

// window is a stretch of a day's IDs to be read with one request, if it fits.
type window struct {
	day
	from, to uuid.UUID // to is the first ID behind it
	// floor is the first ID behind what others read: a service that always begins at the first name is read from there.
	floor uuid.UUID
	// limit is how many blobs to ask for; 0 for as many as a page holds.
	limit int
}

// reading is what was read of a window.
type reading[E any] struct {
	// from and to are the bounds of what was read whole: those of the window, unless the service began at the first name
	// (then from is the floor) or the window holds more than a page (then to is the first ID that is missing).
	from, to uuid.UUID
	items    []E       // by ID
	blobs    int       // in it
	first    uuid.UUID // of these
}

// source is what days are read from.
type source[E any] struct {
	read func(ctx context.Context, w window) (reading[E], error)
	// last finds a stretch of a minute or so which has the last plan before the window's end in it. It begins with a plan or
	// before it, and may lie before the window; both bounds are Nil where there is no plan.
	last func(ctx context.Context, w window) (from, to uuid.UUID, err error)
}

// backwards yields what is in some stretches of days, from the last stretch's end backwards; each is from another day, the
// newest comes first. It aims at windows of as many blobs as page. Of windows that were not used up yet it reads as many
// ahead as ahead says, given the number of those that were, and at least one.
//
// An error comes in place of what is left of its day; the other days follow. Breaking off ends the requests under way.
func backwards[E any](ctx context.Context, stretches []window, page int, ahead func(used int) int, from source[E]) iter.Seq2[E, error] {
	return func(yield func(E, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		b := &backward[E]{page: page, source: from, answers: make(chan answer[E]), quit: make(chan struct{})}
		defer b.readers.Wait()
		defer cancel()
		defer close(b.quit)
		for _, w := range stretches {
			b.segments = append(b.segments, &segment[E]{window: w, top: w.to})
		}
		for used := 0; len(b.segments) > 0; {
			b.start(ctx, ahead(used))
			first := b.segments[0]
			if first.state != done {
				b.settle(<-b.answers)
				continue
			}
			b.segments = b.segments[1:]
			used++
			if first.err != nil {
				b.segments = slices.DeleteFunc(b.segments, func(s *segment[E]) bool { return s.day == first.day })
				var none E
				if !yield(none, first.err) {
					return
				}
			}
			for _, e := range slices.Backward(first.items) {
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// backward is a reading of days that is under way.
type backward[E any] struct {
	source[E]
	page     int
	segments []*segment[E] // what was not used up yet, the newest first
	answers  chan answer[E]
	quit     chan struct{} // nobody waits for answers any more
	readers  sync.WaitGroup
}

type answer[E any] struct {
	of *segment[E]
	reading[E]
	last bool // from and to are of the last plan, and nothing has been read
	err  error
}

// segment is a stretch of a day that is read, or is to be.
type segment[E any] struct {
	window
	state state
	items []E
	err   error

	// What is known of one that is not read yet: width is how wide a window should be; 0 where nothing is known, which is
	// found out by a request for its beginning. top is behind the last plan; whether that is so at all is asked once for a day
	// that does not fit on a page, because plans may have ended hours before its end.
	width float64
	top   uuid.UUID
	ask   bool
	// sampled says that the window above has been read, so that width is of a neighbour and not of a distant hour, and the
	// service is known to begin where it is told to. misses counts the windows in a row that were not as expected.
	sampled bool
	misses  int
}

type state int

const (
	waiting state = iota
	held          // until the window above is read
	underWay
	done
)

// start begins to read the first segments, until most are under way or not used up yet.
func (b *backward[E]) start(ctx context.Context, most int) {
	busy := 0
	for i := 0; i < len(b.segments) && (i == 0 || busy < most); i++ {
		s := b.segments[i]
		if s.state == waiting {
			a := answer[E]{of: s, last: s.ask}
			w := s.window
			if !s.ask {
				w = b.cut(i)
			}
			s.state = underWay
			b.readers.Go(func() {
				if a.last {
					a.from, a.to, a.err = b.last(ctx, w)
				} else {
					a.reading, a.err = b.read(ctx, w)
				}
				select {
				case b.answers <- a:
				case <-b.quit:
				}
			})
		}
		if s.state != held {
			busy++
		}
	}
}

// cut makes a window of a segment's end, and a segment of its own of the rest.
func (b *backward[E]) cut(i int) window {
	s := b.segments[i]
	if s.width == 0 {
		s.floor, s.limit = s.from, b.page
		return s.window
	}
	s.floor = s.from
	if s.top == s.to {
		s.limit = spare * b.page // what lies behind the window is another's
	}
	if from := s.begin(); bytes.Compare(from[:], s.from[:]) > 0 {
		rest := &segment[E]{window: window{day: s.day, from: s.from, to: from}, width: s.width, top: from, sampled: true}
		s.from = from
		if s.sampled && s.misses == 0 {
			s.floor = from
		} else {
			rest.state = held
		}
		b.segments = slices.Insert(b.segments, i+1, rest)
	}
	return s.window
}

// begin says where the window at a segment's end should begin. The density says so, where it can be trusted. Where a window
// was empty, plans end somewhere in what is left, whose beginning is known to be dense: that is searched for, by halves of
// the time and by halves of its order of magnitude, because one finds the end of a working day and the other that of a burst.
func (s *segment[E]) begin() uuid.UUID {
	left := distance(s.from, s.top)
	switch {
	case left <= s.width/reserve:
		return s.from // all of it fits
	case s.misses == 0:
		return shift(s.top, -s.width)
	case s.misses == 1:
		return shift(s.top, -min(growth*s.width, left/2))
	case s.misses%2 == 0:
		return shift(s.from, left/2)
	default:
		return shift(s.from, math.Sqrt(s.width*left))
	}
}

const (
	// reserve is the part of a page that a window is expected to fill, so that it still fits when there is a little more.
	reserve = 0.93
	// spare is how many pages a window that has others behind it may fill.
	spare = 4
	// growth is how much wider than the last one a window may be.
	growth = 64
)

// settle takes an answer in.
func (b *backward[E]) settle(a answer[E]) {
	i := slices.Index(b.segments, a.of)
	if i < 0 {
		return // of a day that has failed
	}
	s := b.segments[i]
	s.state, s.items, s.err = done, a.items, a.err
	if a.err != nil {
		return
	}
	if a.last {
		s.state, s.ask = waiting, false
		if bytes.Compare(s.from[:], a.to[:]) < 0 && bytes.Compare(a.to[:], s.to[:]) < 0 {
			s.top = a.to
			s.width = max(s.width, distance(a.from, a.to)) // so that the last plan is in the first window
		}
		return
	}
	rest := b.rest(i)
	if rest != nil && a.from == rest.from { // it was read, too
		b.segments = slices.Delete(b.segments, i+1, i+2)
		rest = nil
	}
	aim := reserve * float64(b.page)
	switch {
	case a.to != s.to:
		// There is more than a page of it: the page is its beginning.
		gap := &segment[E]{
			window: window{day: s.day, from: a.to, to: s.to}, top: s.top, ask: s.width == 0,
			width: max(1, distance(a.first, a.to)*aim/float64(a.blobs)),
		}
		if bytes.Compare(gap.top[:], gap.from[:]) <= 0 {
			gap.top = gap.to // newer ones have come
		}
		if s.misses > 0 {
			gap.misses = s.misses + 1
		}
		if rest != nil {
			rest.width = gap.width
		}
		s.to = gap.from
		b.segments = slices.Insert(b.segments, i, gap)
	case rest != nil && a.blobs == 0:
		rest.misses = s.misses + 1
	case rest != nil:
		rest.width = max(1, distance(s.from, s.top)*min(growth, aim/float64(a.blobs)))
	}
	if rest != nil {
		rest.state = waiting
	}
}

// rest returns what of the same day is still to be read below a segment, if that does not wait for another one.
func (b *backward[E]) rest(i int) *segment[E] {
	for j, s := range b.segments[i+1:] {
		switch {
		case s.day != b.segments[i].day:
			return nil
		case s.state == waiting, s.state == held && j == 0:
			return s
		case s.state == held:
			return nil
		}
	}
	return nil
}

// distance is how far apart two IDs are, as the numbers that they are.
func distance(from, to uuid.UUID) float64 {
	d := new(big.Int).Sub(number(to), number(from))
	f, _ := new(big.Float).SetInt(d).Float64()
	return f
}

// shift returns the ID so far behind another, or before it.
func shift(id uuid.UUID, by float64) uuid.UUID {
	d, _ := big.NewFloat(by).Int(nil)
	n := d.Add(d, number(id))
	switch {
	case n.Sign() < 0:
		return uuid.Nil
	case n.BitLen() > 8*len(id):
		return uuid.Max
	}
	n.FillBytes(id[:])
	return id
}

func number(id uuid.UUID) *big.Int { return new(big.Int).SetBytes(id[:]) }

// firstID returns an ID that sorts before those of a time, and behind those of earlier milliseconds. Times that no UUIDv7 can
// tell stand for the nearest that one can.
func firstID(t time.Time) (id uuid.UUID) {
	const last = 1<<48 - 1
	var ms int64
	switch { // Go has times whose milliseconds overflow
	case t.After(time.UnixMilli(last)):
		ms = last
	case t.After(time.UnixMilli(0)):
		ms = t.UnixMilli()
	}
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	return id
}
