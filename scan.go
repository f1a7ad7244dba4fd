package azblob

import (
	"context"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/planvault/azblob/internal/blob"
)

// scan reads parts of days, at most one of each day, and yields their plans, newest first.
type scan struct {
	reader
	history *history // reads closed days; nil if they are listed, too
	page    int      // how many blobs a page holds
	ahead   int      // how many windows are read at once
	// limit is how many plans are wanted; 0 for all. If aimed is set, every plan that is read is wanted, so
	// the scan reads no more than should hold that many. Otherwise it reads as many windows at once as it has
	// used before.
	limit int
	aimed bool
	now   time.Time // an estimate, which decides what to ask for and not what is found
	early piece     // a part of a day whose groups are known; optional

	queue   []*piece // what is not yielded yet, newest first
	readers sync.WaitGroup
	turns   chan struct{} // one for each listing under way
	opening chan struct{} // one for each catalogue that is being read
	used    int           // windows
	yielded int           // plans
	vain    int           // windows and days without plans
	perDay  float64       // how many blobs a day should hold; infinite if unknown
}

const (
	// reserve is the part of a page that a window should fill. It may hold a little more than expected.
	reserve = 0.93
	// oldEnough is the part of a minute that tells how many plans the minutes have, even if it has only one plan.
	oldEnough = 0.75
)

// newScan returns a scan by pages of a size.
func (v *Vault) newScan(from reader, page int) *scan {
	return &scan{reader: from, page: page, ahead: v.pagesAtOnce(page), now: time.Now()}
}

// pagesAtOnce returns how many pages of a size are read at once: as many as the vault may have requests in
// flight, and as fit in memory.
func (v *Vault) pagesAtOnce(page int) int { return min(v.concurrency, max(1, maxAhead/page)) }

// split divides the day of the early piece if that begins within it.
func (s *scan) split(windows []window) []window {
	for i, w := range windows {
		if w.container == s.early.container && less(w.from, s.early.from) {
			rest := w
			windows[i].from, rest.to = s.early.from, s.early.from
			return slices.Insert(windows, i+1, rest)
		}
	}
	return windows
}

// run yields the plans. An error takes the place of the rest of its day, and the other days follow. Breaking
// out of the loop cancels the requests under way.
func (s *scan) run(ctx context.Context, days []window) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer s.readers.Wait()
		defer cancel()
		s.perDay, s.turns, s.opening = math.Inf(1), make(chan struct{}, max(1, s.ahead)), make(chan struct{}, cataloguesAhead)
		for _, d := range days {
			closed := s.history != nil && s.history.v.mayBeCatalogued(d.day, s.now)
			s.queue = append(s.queue, &piece{window: d, closed: closed})
		}
		for len(s.queue) > 0 {
			s.readAhead(ctx)
			p := s.queue[0]
			switch <-p.done; {
			case p.err != nil:
				s.queue = slices.DeleteFunc(s.queue, func(q *piece) bool { return q.container == p.container })
				if !yield(candidate{}, p.err) {
					return
				}
				continue
			case p.closed && p.got.day == nil:
				p.relist()
				continue
			case p.closed:
				s.queue = s.queue[1:]
				if !s.yieldDay(ctx, p, yield) {
					return
				}
				continue
			case p.got.to != p.to: // what did not fit on the page is newer
				s.queue = slices.Insert(s.queue, 0, s.overflow(ctx, p)...)
				continue
			}
			s.queue = s.queue[1:]
			s.used++
			s.learn(p)
			for _, plan := range slices.Backward(p.got.plans) {
				s.yielded++
				if !yield(plan, nil) {
					return
				}
			}
		}
	}
}

// yieldDay yields the plans of a day's catalogue. If the catalogue turns out to be unusable, the rest of the day
// is to be listed. It returns false if the loop is over.
func (s *scan) yieldDay(ctx context.Context, p *piece, yield func(candidate, error) bool) bool {
	c, n := p.got.day, s.yielded
	for plan, err := range c.plans(ctx) {
		switch {
		case err == nil:
			s.yielded++
			if !yield(plan, nil) {
				return false
			}
		case isUnusable(err):
			c.v.listInstead(ctx, p.container, err)
			s.queue = slices.Insert(s.queue, 0, &piece{window: c.rest()})
			return true
		case !yield(candidate{}, err):
			return false
		}
	}
	s.used++
	s.perDay = perPlan * float64(c.dir.Len())
	if s.yielded == n {
		s.vain++
	}
	return true
}

// readAhead starts to read the first windows of the queue, as many as more allows.
func (s *scan) readAhead(ctx context.Context) {
	closed := 0
	for i := 0; i < len(s.queue) && s.more(i, closed); i++ {
		if s.queue[i].isListed() {
			s.queue[i].relist()
		}
		if s.queue[i].closed {
			closed++
		}
		if s.queue[i].done == nil {
			s.queue = slices.Replace(s.queue, i, i+1, s.cut(ctx, s.queue[i])...)
			s.start(ctx, s.queue[i])
		}
	}
}

// more reports whether piece i of the queue should be read at once with those before it, of which some are read
// by catalogues.
func (s *scan) more(i, closed int) bool {
	switch {
	case i == 0:
		return true
	case closed >= cataloguesAhead, i-closed >= s.ahead:
		return false
	case s.aimed:
		wanted := perPlan * float64(s.wanted()+s.vain)
		for _, p := range s.queue[:i] {
			wanted -= p.expected
		}
		return wanted > 0
	}
	return s.limit == 0 || i < s.used
}

// wanted returns how many more plans are wanted. There is always one: the caller asks for more than the limit if
// a plan can't be read or is gone.
func (s *scan) wanted() int { return max(1, s.limit-s.yielded) }

// start reads a piece when fewer requests are under way than may be.
func (s *scan) start(ctx context.Context, p *piece) {
	p.done, p.got.to = make(chan struct{}), p.to
	if p.err != nil || p.from == p.to {
		close(p.done)
		return
	}
	s.readers.Go(func() {
		defer close(p.done)
		if p.closed {
			s.opening <- struct{}{}
			defer func() { <-s.opening }()
			p.got.day, p.err = s.history.open(ctx, p.window)
			return
		}
		s.turns <- struct{}{}
		defer func() { <-s.turns }()
		p.got, p.err = s.read(ctx, p.window)
		if p.err == nil && p.got.to != p.to && p.scale == nil { // the rest is to be cut, beside other listings
			s.measure(ctx, p)
		}
	})
}

// takeTurn is measure as soon as fewer requests are under way than may be.
func (s *scan) takeTurn(ctx context.Context, p *piece) {
	s.turns <- struct{}{}
	defer func() { <-s.turns }()
	s.measure(ctx, p)
}

// measure sets the scale of a piece.
func (s *scan) measure(ctx context.Context, p *piece) {
	if e := s.early; e.container == p.container && e.from == p.from && e.to == p.to {
		p.scale, p.err = e.scale, e.err
		return
	}
	p.scale, p.err = measure(ctx, s.reader, p.window)
}

// aim returns how many blobs the next window should hold.
func (s *scan) aim() float64 {
	aim := reserve * float64(s.page)
	if s.aimed { // one more, because the plan of the last group may lie beyond the piece
		aim = min(aim, perPlan*(surplus*float64(s.wanted())+1))
	}
	return aim
}

// cut divides an unread piece into its newest window, which is to be read now, and what is left. An aimed
// scan asks for the groups of a day first, unless the day should hold no more than is wanted. Any other scan
// reads a page of a day first, and asks for its groups if it has more pages.
func (s *scan) cut(ctx context.Context, p *piece) []*piece {
	p.limit = s.page
	if p.closed {
		p.expected = max(perPlan, s.perDay*p.share(s.now))
		return []*piece{p}
	}
	if p.scale == nil && p.err == nil {
		p.expected = max(perPlan, s.perDay*p.share(s.now))
		if !p.dense && (!s.aimed || p.expected <= s.aim()) {
			return []*piece{p}
		}
		s.survey(ctx, p)
	}
	if p.err != nil || p.from == p.to {
		return []*piece{p}
	}
	until := p.to
	if s.aimed && math.IsInf(p.scale.density, 1) {
		if pieces := s.refine(ctx, p); pieces != nil {
			return pieces
		}
		until = p.until(s.now)
	}
	least := 1.0 // plans are not evenly spread over a minute, unless there are very many
	if s.aimed && p.scale.size == aMinute && p.scale.density > float64(s.page) {
		least = float64(aMillisecond) / aMinute
	}
	p.limit += s.page / 8
	start, end, width := p.scale.position(p.from), p.scale.position(until), max(least, s.aim()/p.scale.density)
	if p.scale.size == aMillisecond { // milliseconds are not divided
		end, width = math.Ceil(end), math.Floor(width)
	}
	p.expected = p.scale.density * min(width, end-start)
	if begin := end - width; begin > 0 {
		if from := p.scale.at(begin); less(p.from, from) {
			left := &piece{window: p.window, scale: p.scale}
			p.from, left.to = from, from
			return []*piece{p, left}
		}
	}
	if p.scale.size == aMillisecond && p.inGroup() {
		p.limit = blob.MaxPage // the newest of its plans come last
	}
	return []*piece{p}
}

// survey asks for the groups of a day and estimates how many blobs they hold.
func (s *scan) survey(ctx context.Context, p *piece) {
	switch s.takeTurn(ctx, p); {
	case p.err != nil:
	case len(p.scale.groups) == 0:
		p.from = p.to
		if s.vain++; s.vain > 1 { // not only today has none
			s.perDay = 0
		}
	case p.scale.size == aMinute:
		density := p.scale.estimate(p.from, 4*s.limit)
		s.perDay = density * float64(len(p.scale.groups)) / p.share(s.now)
		if !math.IsInf(density, 1) || len(p.scale.groups) > 2 { // the day has not just begun
			p.scale.density = density
		}
	}
}

// refine asks for the milliseconds of a piece's last minute. If these should hold all that is wanted, refine
// cuts them. Otherwise it sets the density by their number and returns nil. A minute that has just begun may
// have too few plans to measure, so refine measures the one before it.
func (s *scan) refine(ctx context.Context, p *piece) []*piece {
	last := p.lastGroup()
	if last > 0 && p.scale.position(p.until(s.now)) < float64(last)+oldEnough {
		before := p.minute(last - 1)
		before.sample = s.page // a crowded minute takes many bytes
		if s.takeTurn(ctx, before); before.err != nil {
			p.err = before.err
			return []*piece{p}
		}
		p.scale.density = before.perMinute()
		return nil
	}
	minute := p.minute(last)
	s.takeTurn(ctx, minute)
	fine := minute.scale
	n := len(fine.groups)
	sure := n
	if n > 0 && less(minute.to, idOf(fine.groups[n-1]+aMillisecond)) { // its plans may lie beyond the piece
		sure--
	}
	if minute.err != nil || sure >= s.wanted() {
		if p.to = minute.from; less(p.from, p.to) {
			return append(s.cut(ctx, minute), p)
		}
		return s.cut(ctx, minute)
	}
	p.scale.density = minute.perMinute()
	if n > 2 { // the minute is not over, or only its beginning was busy
		if end := idOf(fine.groups[n-1] + aMillisecond); less(end, p.to) {
			p.to = end
		}
	}
	return nil
}

// overflow takes from a piece what did not fit on its page, and returns it. If a single minute has more than
// a page, its milliseconds are needed.
func (s *scan) overflow(ctx context.Context, p *piece) []*piece {
	rest := &piece{window: p.window, scale: p.scale}
	rest.from, p.to = p.got.to, p.got.to
	s.learn(p)
	next := int(p.scale.position(rest.from))
	if p.scale.size == aMillisecond || next == len(p.scale.groups) || !p.inGroup() && !(s.aimed && rest.inGroup()) {
		return []*piece{rest}
	}
	p.scale.density = math.Inf(1)
	dense := &piece{window: rest.window, dense: true}
	if end := idOf(p.scale.groups[next] + aMinute); less(end, rest.to) {
		dense.to, rest.from = end, end
	}
	if p.scale.position(rest.to) <= float64(next+1) {
		return []*piece{dense}
	}
	return []*piece{rest, dense}
}

// learn sets the density by the number of blobs in a piece.
func (s *scan) learn(p *piece) {
	if len(p.got.plans) == 0 {
		s.vain++
	}
	if p.scale == nil {
		s.perDay = float64(p.got.blobs) / p.share(s.now)
	} else if width := p.scale.position(p.to) - p.scale.position(p.from); width > 0 {
		density := max(perPlan, float64(p.got.blobs)/width)
		if s.aimed && width < 1 { // a part of a minute may have no plans beside others that have many
			density = max(density, p.scale.density/2)
		}
		p.scale.density = density
	}
}
