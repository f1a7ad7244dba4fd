package listing

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
)

// A scale measures a part of a day by its groups, so that time without plans takes no request. It is an estimate: the
// groups may be out of date, or wrong.
type scale struct {
	groups  []uint64 // their first keys, in ascending order
	unit    uint64
	density float64 // how many blobs a group should hold
	misled  bool    // a window held more than that
}

// measure returns the scale of a span.
func measure[T any](ctx context.Context, from Source[T], s Span) (*scale, error) {
	groups, err := from.Groups(ctx, s)
	unit := s.Unit()
	groups = slices.DeleteFunc(groups, func(g uint64) bool { return g+unit <= KeyOf(s.From) || g > s.last() })
	return &scale{groups: groups, unit: unit, density: perPlan}, err
}

// position returns how many groups lie before an ID. A group that the ID divides counts in part.
func (c *scale) position(id uuid.UUID) float64 {
	key := KeyOf(id)
	n, found := slices.BinarySearch(c.groups, key)
	if found || n == 0 {
		return float64(n)
	}
	return float64(n-1) + min(1, float64(key-c.groups[n-1])/float64(c.unit))
}

// at returns the first ID at a position that has groups on both sides.
func (c *scale) at(position float64) uuid.UUID {
	n, part := math.Modf(position)
	return IDOf(c.groups[int(n)] + uint64(part*float64(c.unit)))
}

// perMinute estimates how many blobs a minute should hold by how many of the latest minutes are without plans, if plans
// come at random. If none of these is, it looks for the last that is.
func (c *scale) perMinute(from uuid.UUID, latest int) float64 {
	groups, first := c.groups, KeyOf(from)
	if earlier := len(groups) - latest; earlier > 0 {
		groups = groups[earlier:]
		first = groups[0]
	}
	n, minutes := len(groups), int(groups[len(groups)-1]/Minute-first/Minute+1)
	for n == minutes && n < len(c.groups) && c.groups[len(c.groups)-n-1] == first-uint64(n-len(groups)+1)*Minute {
		n, minutes = n+1, minutes+1
	}
	busy := min(float64(n), float64(minutes)-0.5) / float64(minutes)
	return -perPlan * math.Log(1-busy) / busy
}

// aim returns how many blobs the next window should hold.
func (l *listing[T]) aim() float64 {
	aim := reserve * float64(l.Page)
	if l.Aimed { // one more, because the plan of the last group may lie beyond the piece
		aim = min(aim, perPlan*(surplus*l.wanted()+1))
	}
	return aim
}

// divides reports whether a piece is to be divided by its groups.
func (l *listing[T]) divides(p *piece[T]) bool {
	if p.dense == (Span{}) && l.Aimed && p.expected > l.aim() {
		p.dense = p.Span
	}
	return p.dense != (Span{}) && !p.dense.InOne(Millisecond) && !p.InOne(Millisecond)
}

// survey estimates how many blobs a piece holds by its groups.
func (l *listing[T]) survey(p *piece[T]) {
	c := p.scale
	switch {
	case len(c.groups) == 0:
		if l.empty++; l.empty > 1 { // not only today has none
			l.perDay = 0
		}
	case c.unit == Minute:
		c.density = c.perMinute(p.From, 4*min(max(1, l.Limit), MaxPage))
		if KeyOf(FirstID(l.Now)) > KeyOf(p.From)+4*Minute { // the day has not just begun
			l.perDay = c.density * float64(len(c.groups)) / p.share(l.Now)
		}
	}
	if width := c.position(p.From) - c.position(p.dense.From); p.older > 0 && width > 0 { // a page of it has been read
		c.density = max(perPlan, float64(p.older)/width)
	}
}

// cut divides an unread piece into its newest window, which should fill a page or hold what is wanted, and the rest. It
// returns the size of the window's page.
func (l *listing[T]) cut(p *piece[T]) (page int, pieces []*piece[T]) {
	whole := []*piece[T]{p}
	c := p.scale
	if c == nil {
		if p.dense == (Span{}) {
			return l.Page, whole
		}
		return MaxPage, whole // it lies within a millisecond
	}
	start, end := c.position(p.From), c.position(p.until(l.Now))
	width := l.aim() / c.density
	switch all := end - start; {
	case c.unit == Millisecond: // milliseconds are not divided
		end, width = math.Ceil(end), max(1, math.Floor(width))
	case !l.Aimed && all > width && all < 2*width: // two halves overlap less than a window and a small rest
		width = all / 2
	}
	begin := end - width
	if l.Aimed && !p.guessed { // nor are minutes, except by a guess
		begin = min(begin, math.Ceil(end)-1)
	}
	p.expected = c.density * (end - max(start, begin))
	if begin > start && begin < float64(len(c.groups)) {
		if at := c.at(begin); Less(p.From, at) && Less(at, p.To) {
			rest := &piece[T]{Span: Span{p.From, at}, day: p.day, scale: c}
			if p.guessed && rest.InOne(Minute) { // if it is needed, the guess was wrong
				rest.scale, rest.dense = nil, rest.Span
			}
			p.From = at
			return l.room(p), []*piece[T]{p, rest}
		}
	}
	if c.unit == Millisecond && end-start <= 1 || end == start {
		return MaxPage, whole // it can't be divided
	}
	return l.room(p), whole
}

// room returns the size of the page for a window. The service does not know where a window ends, so a page that is
// larger than the window shows plans that another page shows, too. A window of a few groups has any number of plans.
func (l *listing[T]) room(p *piece[T]) int {
	const few = 10
	if c := p.scale; l.Aimed || p.guessed || c.misled || c.position(p.To)-c.position(p.From) < few {
		return l.Page
	}
	return min(l.Page, max(l.Page/4, int(p.expected/reserve)+spare))
}

// until returns the end of a piece, or now if that lies in its last group.
func (p *piece[T]) until(now time.Time) uuid.UUID {
	groups := p.scale.groups
	if id := FirstID(now); len(groups) > 0 && Less(p.From, id) && Less(id, p.To) && Less(IDOf(groups[len(groups)-1]), id) {
		return id
	}
	return p.To
}

// overflow divides a piece of which a page holds only the beginning: what was read, and the rest. If a page does not hold
// a single minute, the rest of that is measured by its milliseconds. But where the piece ends in the middle of the
// minute, plans probably come up to there as they did before, which takes a request less.
func (l *listing[T]) overflow(p *piece[T]) []*piece[T] {
	rest := &piece[T]{Span: Span{p.page.Rest, p.To}, day: p.day, scale: p.scale}
	p.To = p.page.Rest
	l.learn(p)
	c := p.scale
	if c != nil {
		c.misled = true
	}
	if c == nil || len(c.groups) == 0 {
		rest.scale, rest.dense, rest.older = nil, Span{p.From, rest.To}, p.page.Blobs
		return []*piece[T]{rest, p}
	}
	next := IDOf((KeyOf(rest.From)/Minute + 1) * Minute)
	oneMinute := c.position(p.To)-c.position(p.From) <= 1 || l.Aimed && c.position(rest.To) == c.position(next)
	if c.unit == Millisecond || !oneMinute || l.Aimed && !p.guessed && Less(rest.until(l.Now), next) {
		rest.guessed = oneMinute && c.unit == Minute
		return []*piece[T]{rest, p}
	}
	minute := &piece[T]{Span: rest.Span, day: p.day, dense: rest.Span}
	if !Less(next, rest.To) {
		return []*piece[T]{minute, p}
	}
	minute.dense.To = next
	if c.position(next) == c.position(rest.To) { // nothing is known to lie behind the minute
		return []*piece[T]{minute, p}
	}
	minute.To, rest.From, rest.guessed = next, next, true
	return []*piece[T]{rest, minute, p}
}

// learn sets the density by the number of blobs in a piece.
func (l *listing[T]) learn(p *piece[T]) {
	if len(p.page.Items) == 0 {
		l.empty++
	}
	if p.scale == nil {
		l.perDay = float64(p.page.Blobs) / p.share(l.Now)
	} else if width := p.scale.position(p.To) - p.scale.position(p.From); width > 0 {
		density := max(perPlan, float64(p.page.Blobs)/width)
		if l.Aimed && width < 1 { // a part of a minute may have no plans beside others that have many
			density = max(density, p.scale.density/2)
		}
		p.scale.density = density
	}
}
