package main

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/planvault/azblob/storage"
)

// screen is the last line of a terminal, on which progress is shown.
type screen struct {
	mu    sync.Mutex
	w     io.Writer // nil in a pipe
	drawn bool
}

// draw replaces the line.
func (s *screen) draw(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drawn = true
	fmt.Fprint(s.w, eraseLine+line)
}

// erase removes the line.
func (s *screen) erase() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn {
		fmt.Fprint(s.w, eraseLine)
		s.drawn = false
	}
}

const eraseLine = "\r\x1b[K"

// above returns a writer to the same terminal, which writes over the progress and not behind it.
func (s *screen) above(w io.Writer) io.Writer { return &aboveScreen{s, w} }

type aboveScreen struct {
	screen *screen
	io.Writer
}

func (a *aboveScreen) Write(b []byte) (int, error) {
	a.screen.erase()
	return a.Writer.Write(b)
}

// progress shows on a terminal how far a long command is: what is done, of how many, the rate, and the time left. In a
// pipe it shows nothing. When the command is interrupted, the last word on stderr is how far it came. The methods may be
// called concurrently.
type progress struct {
	screen      *screen
	doing, unit string
	next        string // what to do after an interrupt

	mu          sync.Mutex
	done, total int // total is 0 if it is not known
	began, drew time.Time
}

// progress begins a progress line, such as "purge: 1,200 of 5,000 plans, 230/s, 16s left". A total of 0 is not known.
func (a *app) progress(doing, unit string, total int) *progress {
	p := &progress{screen: &a.screen, doing: doing, unit: unit, total: total, began: time.Now()}
	a.reached.Store(p)
	return p
}

// then says what to do after an interrupt, such as "run the command again to go on".
func (p *progress) then(next string) *progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = next
	return p
}

// What to do after an interrupt: while a command was looking, and while it made the change.
const (
	untouched = "nothing was changed"
	goOn      = "run the same command again to go on"
)

// redraw is the shortest time between two states of a line.
const redraw = 100 * time.Millisecond

// at notes how many are done.
func (p *progress) at(done int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(done)
}

func (p *progress) set(done int) {
	p.done = done
	now := time.Now()
	if p.screen.w == nil || now.Sub(p.drew) < redraw {
		return
	}
	p.drew = now
	p.screen.draw(p.reached() + p.pace(now.Sub(p.began)))
}

// step notes that one more is done.
func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.set(p.done + 1)
}

// reach notes the progress of an operation, which may know the total.
func (p *progress) reach(s storage.Progress) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = cmp.Or(s.Total, p.total)
	p.set(s.Done)
}

// end removes the line.
func (p *progress) end() { p.screen.erase() }

// String says how far the command came, and what to do next.
func (p *progress) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == "" {
		return p.reached()
	}
	return p.reached() + "; " + p.next
}

// reached returns "purge: 1,200 of 5,000 plans".
func (p *progress) reached() string {
	if p.total > 0 {
		return fmt.Sprintf("%s: %s of %s", p.doing, count(p.done), plural(p.total, p.unit))
	}
	return fmt.Sprintf("%s: %s", p.doing, plural(p.done, p.unit))
}

// pace returns ", 230/s, 16s left", or less of it before it is known.
func (p *progress) pace(took time.Duration) string {
	if took < time.Second || p.done == 0 {
		return ""
	}
	rate := float64(p.done) / took.Seconds()
	text := fmt.Sprintf(", %.3g/s", rate)
	if rate >= 1000 {
		text = fmt.Sprintf(", %s/s", count(int(rate)))
	}
	if left := p.total - p.done; left > 0 {
		text += ", " + span(time.Duration(float64(left)/rate*float64(time.Second))) + " left"
	}
	return text
}
