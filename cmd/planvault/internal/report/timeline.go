package report

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/workflow"
)

// scale maps times to places on the timeline, from 0 to 100.
type scale struct{ from, to time.Time }

// ahead is how far the clocks of nodes may be ahead of each other, and of the one that the page is made by.
const ahead = 24 * time.Hour

// newScale returns the scale that has all times of the plan, without those that are absurd, and those of what was
// carried over from another plan. It returns false if there are none.
func newScale(root *Node, now time.Time) (s scale, ok bool) {
	earliest, latest := time.Unix(0, 0), now
	if p, isPlan := root.Object.(*workflow.Plan); isPlan && workflow.IsV7(p.ID) {
		created := workflow.Time(p.ID)
		earliest = created.Add(-ahead)
		if created.After(now) {
			latest = created
		}
	}
	latest = latest.Add(ahead)
	s.include(root, earliest, latest)
	if s.from.IsZero() {
		return scale{}, false
	}
	if s.to.Sub(s.from) < 10*time.Millisecond {
		s.to = s.from.Add(10 * time.Millisecond)
	}
	return s, true
}

func (s *scale) include(n *Node, earliest, latest time.Time) {
	add := func(span Span) {
		for _, t := range [...]time.Time{span.Start, span.End} {
			if span.Start.IsZero() || t.Before(earliest) || t.After(latest) {
				continue
			}
			if s.from.IsZero() || t.Before(s.from) {
				s.from = t
			}
			if t.After(s.to) {
				s.to = t
			}
		}
	}
	if !n.CarriedOver {
		add(n.Span)
		for _, a := range n.Attempts {
			add(a.Span)
		}
	}
	for _, c := range n.Children {
		s.include(c, earliest, latest)
	}
}

// at returns the place of a time. What lies outside is at the edge.
func (s scale) at(t time.Time) float64 {
	return 100 * min(1, max(0, float64(t.Sub(s.from))/float64(s.to.Sub(s.from))))
}

// bar is a bar of the timeline: its place and its width in percent, and what it shows.
type bar struct {
	X, W    float64
	Outcome Label
	Text    string
	first   int // the number of the first attempt, of count
	count   int
}

// gap is what a bar leaves free behind it, in percent, so that it stands apart from the next.
const gap = 0.25

// Drawn returns the width that is drawn.
func (b bar) Drawn() float64 {
	if b.W > 3*gap {
		return b.W - gap
	}
	return b.W
}

// narrow is the width in percent below which bars beside each other become one.
const narrow = 0.15

// bars returns a bar for each attempt of an action. Narrow bars beside each other with the same outcome become one
// bar, so that thousands of attempts remain few bars.
func (s scale) bars(n *Node) []bar {
	if n.CarriedOver {
		return nil
	}
	var bars []bar
	for i, a := range n.Attempts {
		b, ok := s.bar(a, n.latest(i))
		if !ok {
			continue
		}
		if last := len(bars) - 1; last >= 0 && bars[last].takes(b) {
			bars[last] = bars[last].with(b)
			continue
		}
		bars = append(bars, b)
	}
	return bars
}

// takes reports whether the bar b, which follows, is too narrow to stand apart.
func (to bar) takes(b bar) bool {
	return to.Outcome == b.Outcome && b.W < narrow && b.X >= to.X && b.X-to.X-to.W < narrow
}

func (to bar) with(b bar) bar {
	to.W = max(to.W, b.X+b.W-to.X)
	to.count++
	to.Text = fmt.Sprintf("attempts %d to %d: %s", to.first, to.first+to.count-1, to.Outcome.Word)
	return to
}

// bar returns the bar of an attempt, up to the time latest if its own end is unknown. An attempt that ends before
// it starts is a mark.
func (s scale) bar(a Attempt, latest time.Time) (bar, bool) {
	if a.Span.Start.IsZero() {
		return bar{}, false
	}
	b := bar{X: s.at(a.Span.Start), Outcome: a.Outcome.Label(), first: a.Number, count: 1}
	b.Text = fmt.Sprintf("attempt %d: %s", a.Number, b.Outcome.Word)
	if took := a.Span.Took(); took != "" {
		latest = a.Span.End
		b.Text += ", " + took
	}
	if !latest.IsZero() {
		b.W = max(0, s.at(latest)-b.X)
	}
	return b, true
}

// span returns the bar of a whole object, without an outcome.
func (s scale) span(n *Node) *bar {
	if n.CarriedOver || n.Span.IsZero() {
		return nil
	}
	x := s.at(n.Span.Start)
	return &bar{X: x, W: max(0, s.at(n.Span.End)-x)}
}

// tick is a mark of the time axis.
type tick struct {
	X     float64
	Label string
}

// steps are the distances between ticks, in the units that people count time in.
var steps = [...]time.Duration{
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
	50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	day, 2 * day, 7 * day, 14 * day, 30 * day, 90 * day, 180 * day, 365 * day, 2 * 365 * day, 5 * 365 * day, 10 * 365 * day,
}

const day = 24 * time.Hour

// ticks returns at most the given number of ticks, at round times.
func (s scale) ticks(most int) []tick {
	step := steps[len(steps)-1]
	for _, d := range steps {
		if s.to.Sub(s.from)/d < time.Duration(most) {
			step = d
			break
		}
	}
	var ticks []tick
	var before time.Time
	for t := s.from.UTC().Truncate(step); !t.After(s.to) && len(ticks) < most; t = t.Add(step) {
		if t.Before(s.from) {
			continue
		}
		ticks = append(ticks, tick{X: s.at(t), Label: label(t, before, step)})
		before = t
	}
	return ticks
}

// label returns the label of a tick: what differs from the tick before.
func label(t, before time.Time, step time.Duration) string {
	newDay := !before.IsZero() && t.YearDay() != before.YearDay()
	switch {
	case step >= day:
		return t.Format("2006-01-02")
	case newDay:
		return t.Format("01-02 15:04")
	case step >= time.Minute:
		return t.Format("15:04")
	case step < time.Second && !before.IsZero() && t.Second() == before.Second():
		return t.Format(".000")
	case t.Nanosecond() != 0:
		return t.Format("15:04:05.000")
	}
	return t.Format("15:04:05")
}

// Span is a time from a start to an end. Either may be unknown, which is the zero time.
type Span struct {
	Start, End time.Time
	// Open says that the end is only the present.
	Open bool
}

// IsZero reports whether an end is unknown.
func (s Span) IsZero() bool { return s.Start.IsZero() || s.End.IsZero() }

// Took returns how long the span is, or "" if an end is unknown. A clock that was set back makes it negative.
func (s Span) Took() string {
	if s.IsZero() {
		return ""
	}
	return human.Duration(s.End.Sub(s.Start))
}

// String returns how long the span is, and whether it goes on.
func (s Span) String() string {
	if s.Open {
		return s.Took() + " so far"
	}
	return s.Took()
}

// MarshalJSON writes how many seconds the span is long.
func (s Span) MarshalJSON() ([]byte, error) { return json.Marshal(s.End.Sub(s.Start).Seconds()) }
