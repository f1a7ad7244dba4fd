package azblob

import (
	"math"
	"time"

	"github.com/google/uuid"
)

// piece is a part of a day that has not been yielded.
type piece struct {
	window
	scale    *scale  // shared with other pieces of the day or minute; nil if unknown
	dense    bool    // a page did not hold it, so its groups are needed
	closed   bool    // it is read by the catalogue of its day, if there is one
	expected float64 // how many blobs the piece should hold

	done chan struct{} // nil until the piece is read, and closed when got and err are set
	got  reading
	err  error
}

// inGroup reports whether all IDs of the piece are of one group.
func (p *piece) inGroup() bool {
	return p.scale.position(p.to) <= math.Floor(p.scale.position(p.from))+1
}

// relist makes a piece whose day has no catalogue one to list.
func (p *piece) relist() { p.closed, p.done = false, nil }

// isListed reports whether the day of a piece turned out to have no catalogue.
func (p *piece) isListed() bool {
	if !p.closed || p.done == nil {
		return false
	}
	select {
	case <-p.done:
		return p.err == nil && p.got.day == nil
	default:
		return false
	}
}

// lastGroup returns the index of the last group of a piece.
func (p *piece) lastGroup() int { return max(1, int(math.Ceil(p.scale.position(p.to)))) - 1 }

// minute returns the part of a piece that lies in one of its minutes.
func (p *piece) minute(group int) *piece {
	minute := &piece{window: p.window}
	first := p.scale.groups[group]
	if from := idOf(first); less(minute.from, from) {
		minute.from = from
	}
	if next := idOf(first + aMinute); less(next, minute.to) {
		minute.to = next
	}
	return minute
}

// until returns the end of a piece, or now if that lies in its last group.
func (p *piece) until(now time.Time) uuid.UUID {
	if end := firstID(now); less(end, p.to) && less(idOf(p.scale.groups[p.lastGroup()]), end) {
		return end
	}
	return p.to
}

// perMinute returns how many blobs a minute should hold, given a piece that begins with a minute and whose scale
// has its milliseconds. Each minute has a plan at least. An estimate of surplus plans is low enough for that, and
// not too low for two.
func (p *piece) perMinute() float64 {
	groups := p.scale.groups
	if len(groups) < 2 {
		return perPlan * surplus
	}
	// The time until plan n has n intervals or one less, depending on when the first plan came.
	passed := float64(groups[len(groups)-1]+aMillisecond-keyOf(p.from)) / aMinute
	return perPlan * max(surplus, (float64(len(groups))-0.8)/passed)
}
