package main

import (
	"fmt"
	"io"
	"time"
)

// progress shows on a terminal how far a long command is: what is done, of how many, the rate, and the time left. In a
// pipe it shows nothing.
type progress struct {
	w           io.Writer // nil in a pipe
	doing, unit string
	total       int64 // 0 if it is not known
	began, drew time.Time
}

// progress begins a progress line, such as "purge: 1,200 of 5,000 plans, 230/s, 16s left".
func (a *app) progress(doing, unit string, total int64) *progress {
	p := &progress{doing: doing, unit: unit, total: total, began: time.Now()}
	if a.stderrIsTerm {
		p.w = a.stderr
	}
	return p
}

// redraw is the shortest time between two states of a line.
const redraw = 100 * time.Millisecond

// at notes how many are done.
func (p *progress) at(done int64) {
	now := time.Now()
	if p.w == nil || now.Sub(p.drew) < redraw {
		return
	}
	p.drew = now
	fmt.Fprintf(p.w, "\r\x1b[K%s", progressLine(p.doing, p.unit, done, p.total, now.Sub(p.began)))
}

// end removes the line.
func (p *progress) end() {
	if p.w != nil && !p.drew.IsZero() {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}

// progressLine returns the text of a progress line.
func progressLine(doing, unit string, done, total int64, took time.Duration) string {
	line := fmt.Sprintf("%s: %s", doing, plural(done, unit))
	if total > 0 {
		line = fmt.Sprintf("%s: %s of %s", doing, count(done), plural(total, unit))
	}
	if took < time.Second || done == 0 {
		return line
	}
	rate := float64(done) / took.Seconds()
	line += fmt.Sprintf(", %.3g/s", rate)
	if left := total - done; left > 0 {
		line += ", " + span(time.Duration(float64(left)/rate*float64(time.Second))) + " left"
	}
	return line
}
