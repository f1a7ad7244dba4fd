package azblob

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/planvault/azblob/storage"
)

// The service lists names in ascending order, and listings want the newest plan first. Names sort by the IDs in them, and IDs
// by their time, so a day is read in windows, from its end backwards. A listing with a delimiter tells which minutes of a day
// have plans. A window takes as many of those minutes as should fit on a page.

// window is a range of one day's IDs.
type window struct {
	day
	from, to uuid.UUID // to is the first ID after the window
	// limit is the size of the page to ask for. A window that holds more is read up to there, unless it is unbounded.
	limit     int
	unbounded bool
}

// candidate is a plan that a listing leads to, before it is known to be one.
type candidate struct {
	planBlobs
	result    storage.ListResult
	truncated bool  // name and description are too long for metadata: the entry has them whole
	err       error // why the plan can't be read
}

// reading is what was read of a window.
type reading struct {
	plans []candidate // in ascending order
	blobs int         // how many blobs there are in the part that was read
	first uuid.UUID   // the first plan of that part
	to    uuid.UUID   // the end of the window, or the first ID that did not fit on the page
	// ignored says that the service does not know where to begin a listing. Nothing was read.
	ignored bool
}

// reader reads one directory of the vault's days.
type reader interface {
	read(ctx context.Context, w window) (reading, error)
	// groups returns the minutes of a window that have plans, in ascending order, or its milliseconds where it lies within a
	// minute. It may return others, too.
	groups(ctx context.Context, w window) ([]group, error)
}

// group is a minute or a millisecond that has plans. Its bounds are keys.
type group struct {
	from, size uint64
	// own is the group's density, if it is known to differ from that of its day.
	own *density
}

// firstID returns an ID that sorts before those of a time, and after those of earlier milliseconds. The nearest time that a
// UUIDv7 can hold stands for a time that it can't.
func firstID(t time.Time) uuid.UUID {
	const last = 1<<48 - 1
	var ms uint64
	switch { // Go has times whose milliseconds overflow
	case t.After(time.UnixMilli(last)):
		ms = last
	case t.After(time.UnixMilli(0)):
		ms = uint64(t.UnixMilli())
	}
	return idOf(ms * aMillisecond)
}

func less(a, b uuid.UUID) bool { return bytes.Compare(a[:], b[:]) < 0 }

func later(a, b uuid.UUID) uuid.UUID {
	if less(a, b) {
		return b
	}
	return a
}

func (w window) wholeDay() bool { return w.from == firstID(w.date) }

// tail is the end of a window before now: a map of a few hours is a short answer, and most listings need no more.
func (w window) tail(now time.Time) window {
	const hours = 6
	end := min(keyOf(w.to), keyOf(firstID(now)))
	w.from = later(w.from, idOf(end-min(end, hours*aDay/24)))
	return w
}

// overlap is how much of a group lies in the window.
func (w window) overlap(g group) float64 {
	from, to := max(g.from, keyOf(w.from)), min(g.from+g.size, keyOf(w.to))
	if to <= from { // the window ends or begins within the last key
		return 1
	}
	return float64(to - from)
}

// elapsed returns the window, cut off at now if now lies in the group.
func (w window) elapsed(g group, now time.Time) window {
	if present := firstID(now); less(idOf(g.from), present) && less(present, w.end(g)) && less(w.from, present) {
		w.to = present
	}
	return w
}

// within returns those of the groups that reach into the window.
func (w window) within(groups []group) []group {
	i, _ := slices.BinarySearchFunc(groups, w.from, func(g group, from uuid.UUID) int { return cmp.Compare(g.from+g.size-1, keyOf(from)) })
	j, _ := slices.BinarySearchFunc(groups, w.to, func(g group, to uuid.UUID) int {
		if less(idOf(g.from), to) {
			return -1
		}
		return 1
	})
	return groups[i:max(i, j)]
}

// scan reads windows of days, each of another day, and yields their plans: the last plan of the first window first.
type scan struct {
	reader
	page  int // how many blobs a window should hold
	ahead int // how many windows are read at once
	// limit is how many plans are wanted; 0 for all. Where aimed is set, the reader returns no plan that is not wanted, so no
	// more is read than should hold them. Otherwise the number of windows that are read at once grows with the number of
	// those that were used.
	limit int
	aimed bool
	now   time.Time // an estimate, which decides what to ask for and not what is found

	segments []*segment // what was not yielded yet, newest first
	answers  chan answer
	quit     chan struct{} // closed when nobody waits for answers
	readers  sync.WaitGroup
	underWay int     // requests
	used     int     // segments
	yielded  int     // plans
	perDay   float64 // how many blobs a day is expected to hold
	ignored  bool    // the service ignores where a listing should begin
}

// segment is a part of a day that is read, or is to be.
type segment struct {
	window
	density *density
	// groups is what has plans in the segment; mapped says that it is known. mustMap says that the segment does not fit on a
	// page, and mustAll that there is nothing at its end.
	groups                   []group
	mapped, mustMap, mustAll bool

	begun, done bool
	expected    float64 // how many blobs the segment should hold, or holds
	plans       []candidate
	err         error
}

// density is what is known of the minutes of a day that have plans, or of one of them.
type density struct {
	perMinute float64 // how many blobs a minute has on average; infinite if unknown
	missed    bool    // the last window, a part of a minute, was empty
}

type answer struct {
	to *segment
	reading
	asked  window // for groups, if mapped
	groups []group
	mapped bool
	err    error
}

const (
	// reserve is the part of a page that a window should fill, for pages to hold a little more than expected.
	reserve = 0.93
	// spare is how many pages a window may fill that has others around it.
	spare = 4
	// surplus is how much more than what is wanted a window should hold, for windows that hold a little less than expected.
	surplus = 1.4
	// enough minutes in a row that have plans are many plans.
	enough = 8
	// growth is how much the density may change from a window to the next.
	growth = 16
)

// run yields the plans. An error comes in place of what is left of its day; the other days follow. Breaking off ends the
// requests under way.
func (s *scan) run(ctx context.Context, windows []window) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		s.answers, s.quit = make(chan answer), make(chan struct{})
		defer s.readers.Wait()
		defer cancel()
		defer close(s.quit)
		s.perDay = math.Inf(1)
		for _, w := range windows {
			s.segments = append(s.segments, &segment{window: w, density: &density{perMinute: math.Inf(1)}})
		}
		for len(s.segments) > 0 {
			s.start(ctx)
			first := s.segments[0]
			if !first.done {
				s.take(<-s.answers)
				continue
			}
			s.segments = s.segments[1:]
			s.used++
			if first.err != nil {
				s.segments = slices.DeleteFunc(s.segments, func(other *segment) bool { return other.day == first.day })
				if !yield(candidate{}, first.err) {
					return
				}
			}
			for _, p := range slices.Backward(first.plans) {
				s.yielded++
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}

// start begins to read the first segments: as many as may be read at once, and no more than should hold what is wanted.
func (s *scan) start(ctx context.Context) {
	most, wanted := s.ahead, math.Inf(1)
	switch {
	case s.aimed:
		most, wanted = min(most, 2*(s.used+1)), 2*float64(max(1, s.limit-s.yielded))
	case s.limit > 0:
		most = min(most, s.used)
	}
	for i := 0; i < len(s.segments) && (i == 0 || i < most && wanted > 0); i++ {
		segment := s.segments[i]
		if !segment.begun && s.underWay == s.ahead {
			return
		}
		if !segment.begun {
			s.begin(ctx, i, wanted)
		}
		if s.aimed {
			wanted -= segment.expected
		}
	}
}

// begin takes the next step with a segment: it asks for its groups, or reads its last window and leaves the rest to a segment
// of its own.
func (s *scan) begin(ctx context.Context, i int, wanted float64) {
	segment := s.segments[i]
	segment.begun = true
	w := segment.window
	w.limit = s.page
	ask := false
	if segment.mapped {
		if len(segment.groups) == 0 {
			segment.done, segment.expected = true, 0
			return
		}
		w, ask = s.cut(i, wanted)
	} else {
		segment.expected = s.perDay * segment.share(s.now)
		ask = segment.mustMap || s.ignored && !w.wholeDay() || s.aimed && segment.expected*surplus > float64(s.page)
		if ask && s.aimed && !segment.mustAll {
			w = w.tail(s.now)
		}
	}
	if ask {
		segment.expected = math.Inf(1)
	}
	a := answer{to: segment, asked: w, mapped: ask}
	s.underWay++
	s.readers.Go(func() {
		if ask {
			a.groups, a.err = s.groups(ctx, w)
		} else {
			a.reading, a.err = s.read(ctx, w)
		}
		select {
		case s.answers <- a:
		case <-s.quit:
		}
	})
}

// share is the part of a day that lies in a window and before now.
func (w window) share(now time.Time) float64 {
	from, to := keyOf(w.from), min(keyOf(w.to), keyOf(firstID(now)))
	if to < from { // written by a clock ahead
		to = keyOf(w.to)
	}
	return float64(max(1, to-from)) / aDay
}

// cut returns the window at a segment's end, and leaves the rest to a new segment. With a limit, a minute that may hold more
// than is wanted is asked for its milliseconds first.
func (s *scan) cut(i int, wanted float64) (w window, ask bool) {
	segment := s.segments[i]
	aim, most := reserve*float64(s.page), len(segment.groups)
	if s.aimed {
		aim, most = min(aim, surplus*wanted), min(most, 1+int(math.Ceil(wanted/2))) // each group has a plan, if it is not cut
	}
	from, sum := segment.to, 0.0
	if s.ignored { // a prefix leads to a minute, and nothing to a place in it
		last := segment.groups[len(segment.groups)-1].from / aMinute * aMinute
		from, segment.to = idOf(last), segment.end(group{from: last, size: aMinute})
		sum = aim
	}
	for j, g := range slices.Backward(segment.groups) {
		if len(segment.groups)-1-j == most || sum >= aim {
			break
		}
		n := segment.expect(g, s.now)
		if math.IsInf(n, 1) {
			if g.own == nil && j > 0 && segment.elapsed(g, s.now).overlap(g) < aMinute/2 {
				g = segment.groups[j-1] // has more to tell
			}
			w = segment.window
			w.from, w.to = later(w.from, idOf(g.from)), w.end(g)
			return w, true
		}
		from = idOf(g.from)
		if sum+n > aim && (g.size == aMinute || g.own != nil) {
			elapsed := segment.elapsed(g, s.now)
			part := (aim - sum) / n * elapsed.overlap(g)
			if segment.densityOf(g).missed {
				part = max(part, elapsed.overlap(g)/2)
			}
			from, n = idOf(keyOf(elapsed.end(g))-uint64(max(1, part))), aim-sum
		}
		sum += n
	}
	segment.expected = sum
	rest := *segment
	rest.begun, rest.to = false, from
	if rest.groups = rest.within(rest.groups); less(rest.from, from) && len(rest.groups) > 0 {
		s.segments = slices.Insert(s.segments, i+1, &rest)
	}
	segment.from = later(segment.from, from)
	segment.groups = segment.within(segment.groups)
	w = segment.window
	w.limit, w.unbounded = s.page, s.ignored
	if !s.aimed {
		w.limit *= spare
	}
	return w, false
}

// end is where a group ends in a window.
func (w window) end(g group) uuid.UUID {
	if end := idOf(g.from + g.size); less(end, w.to) {
		return end
	}
	return w.to
}

// expect says how many blobs a group should have in a segment.
func (segment *segment) expect(g group, now time.Time) float64 {
	if g.size == aMillisecond && g.own == nil {
		return 2 * segment.overlap(g) / aMillisecond
	}
	return segment.densityOf(g).perMinute * segment.elapsed(g, now).overlap(g) / aMinute
}

func (segment *segment) densityOf(g group) *density {
	if g.own != nil {
		return g.own
	}
	return segment.density
}

// take takes an answer in.
func (s *scan) take(a answer) {
	s.underWay--
	i := slices.Index(s.segments, a.to)
	switch {
	case i < 0: // of a day that has failed
	case a.err != nil:
		a.to.err, a.to.done = a.err, true
	case a.mapped && a.to.mapped:
		a.to.refine(a)
	case a.mapped:
		s.mapped(i, a)
	case a.ignored:
		s.ignored, a.to.begun = true, false
	default:
		s.settle(i, a.reading)
	}
}

// mapped takes in which groups the end of a segment has.
func (s *scan) mapped(i int, a answer) {
	segment := s.segments[i]
	segment.begun = false
	groups := a.asked.within(a.groups)
	partly := a.asked.from != segment.from
	if n := len(groups); n > 0 && groups[0].size == aMinute {
		latest := n
		if s.aimed {
			latest = min(n, max(2*enough, 4*s.limit))
		}
		if perMinute := estimate(groups, a.asked, latest); s.aimed || !math.IsInf(perMinute, 1) {
			segment.density.perMinute = perMinute
		}
		s.perDay = segment.density.perMinute * float64(len(groups)) / a.asked.share(s.now)
		if s.aimed && !segment.mustMap && s.perDay*segment.share(s.now)*surplus <= float64(s.page) {
			return // the whole segment fits on a page
		}
	}
	if partly && len(groups) == 0 {
		segment.to, segment.mustMap, segment.mustAll = a.asked.from, true, true
		return
	}
	if partly {
		rest := *segment
		rest.to, rest.density = a.asked.from, &density{perMinute: segment.density.perMinute}
		s.segments = slices.Insert(s.segments, i+1, &rest)
		segment.from = a.asked.from
	}
	segment.groups, segment.mapped = groups, true
}

// estimate tells how many blobs a minute has if it has any, by how many of the minutes since the first of the latest groups
// have none. It is infinite if enough of them have some and none has none, because that tells nothing.
func estimate(groups []group, asked window, latest int) (perMinute float64) {
	from := keyOf(asked.from)
	if earlier := len(groups) - latest; earlier > 0 {
		groups = groups[earlier:]
		from = groups[0].from
	}
	n := float64(len(groups))
	minutes := float64(groups[len(groups)-1].from/aMinute-from/aMinute) + 1
	if n == minutes && n >= enough {
		return math.Inf(1)
	}
	return -2 * math.Log(1-n/(minutes+1)) * minutes / n
}

// refine replaces a minute of a segment by its milliseconds, and learns from their number how dense the other minutes are.
func (segment *segment) refine(a answer) {
	segment.begun = false
	groups := a.asked.within(a.groups)
	i := slices.IndexFunc(segment.groups, func(g group) bool { return g.from+g.size > keyOf(a.asked.from) })
	if n := len(groups); n > 0 && segment.groups[i].own == nil {
		end := keyOf(a.asked.to)
		if n > 2 { // they may have ended with the minute still going on
			end = groups[n-1].from + aMillisecond
		}
		segment.density.perMinute = 2 * float64(n) * aMinute / float64(end-keyOf(a.asked.from))
	}
	segment.groups = slices.Concat(segment.groups[:i], groups, segment.groups[i+1:])
}

// settle takes in what was read of a segment. What did not fit on the page is left to a new segment.
func (s *scan) settle(i int, r reading) {
	segment := s.segments[i]
	segment.done = true
	segment.plans, segment.expected = r.plans, 2*float64(len(r.plans))
	from := segment.from
	if !segment.mapped {
		from = r.first
	}
	d := segment.density
	if n := len(segment.groups); n > 0 {
		switch last := segment.groups[n-1]; {
		case n == 1 && last.own != nil:
			d = last.own
		case last.size == aMillisecond:
			d = &density{} // a few milliseconds tell nothing of the minutes
		}
	}
	d.learn(window{from: from, to: r.to}.minutes(segment.groups), r.blobs)
	if r.to == segment.to {
		return
	}
	gap := *segment
	gap.from, gap.plans, gap.begun, gap.done = r.to, nil, false, false
	gap.mustMap = true
	if gap.groups = slices.Clone(gap.within(gap.groups)); len(gap.groups) > 0 {
		gap.groups[0].own = &density{perMinute: s.crowd(gap.groups[0], segment, r)}
	}
	segment.to = r.to
	s.segments = slices.Insert(s.segments, i, &gap)
}

// crowd returns the density of the group that a page ended in. With a limit the milliseconds of a minute tell more.
func (s *scan) crowd(g group, segment *segment, r reading) float64 {
	if s.aimed && g.size == aMinute {
		return math.Inf(1)
	}
	read := *segment
	read.from, read.to = r.first, r.to
	blobs := float64(r.blobs)
	for _, other := range read.within(segment.groups) {
		if other.from != g.from {
			blobs -= read.expect(other, s.now)
		}
	}
	return max(blobs, float64(r.blobs)/2) / read.overlap(g) * aMinute
}

// minutes is how many minutes that have plans the window holds; without groups all of them.
func (w window) minutes(groups []group) (n float64) {
	if groups == nil {
		return float64(keyOf(w.to)-keyOf(w.from)+1) / aMinute
	}
	for _, g := range w.within(groups) {
		n += w.overlap(g) / aMinute
	}
	return n
}

// learn takes in how many blobs so many minutes have.
func (d *density) learn(minutes float64, blobs int) {
	if d.missed = blobs == 0; d.missed {
		return
	}
	now := float64(blobs) / minutes
	if was := d.perMinute; !math.IsInf(was, 1) {
		now = min(max(now, was/growth), was*growth)
	}
	d.perMinute = now
}
