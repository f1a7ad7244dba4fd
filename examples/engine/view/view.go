// Package view shows the progress of an engine's plans: as trees that are redrawn in place in a terminal, or
// else as a line for each transition.
package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/workflow"
)

// frame is the time between two pictures.
const frame = 100 * time.Millisecond

// mostSaid is how many lines above the picture stay visible.
const mostSaid = 4

// View shows what an engine does. It is safe for concurrent use.
type View struct {
	// Plain leaves out colours. Set it before the first call.
	Plain bool

	// size returns the columns and lines of the terminal; nil if there is no terminal.
	size func() (width, height int)
	now  func() time.Time

	mu    sync.Mutex
	w     io.Writer
	trees []*tree
	byID  map[uuid.UUID]*tree // running and ended plans
	// troubled is set after a problem that belongs to no plan in trees.
	troubled bool
	fleet    others

	said  int // lines above the picture
	drawn int // lines of the present picture
	stop  chan struct{}
	ended sync.WaitGroup
}

// New returns a view that writes to w: pictures for a terminal of the given size, or lines if size is nil.
func New(w io.Writer, size func() (width, height int)) *View {
	return &View{w: w, size: size, now: time.Now, byID: map[uuid.UUID]*tree{}, fleet: newOthers(), stop: make(chan struct{})}
}

// Observer returns the observer that feeds the view.
func (v *View) Observer() engine.Observer {
	return engine.Observer{Joined: v.joined, PickedUp: v.pickedUp, Changed: v.changed, Left: v.left, Problem: v.problem, Draining: v.draining}
}

// Start begins to draw if there is a terminal.
func (v *View) Start() {
	if v.size == nil {
		return
	}
	v.ended.Go(func() {
		tick := time.NewTicker(frame)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				v.mu.Lock()
				v.draw("")
				v.mu.Unlock()
			case <-v.stop:
				return
			}
		}
	})
}

// End draws the last picture and a summary. It reports whether all plans are Completed and there was no
// problem. The view must not be used afterwards.
func (v *View) End() (completed bool) {
	close(v.stop)
	v.ended.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	completed = !v.troubled
	if v.size != nil {
		v.draw("")
	}
	for _, t := range v.trees {
		status := t.root.state.Status
		completed = completed && status == workflow.Completed
		line := fmt.Sprintf("%s is %s after %s", t.name, status, seconds(t.root.took(v.now())))
		if t.reason != workflow.NoFailure {
			line += ", " + t.reason.String()
		}
		if t.left != nil {
			line = t.leftAsItStands()
		}
		fmt.Fprintln(v.w, plain(line))
	}
	return completed
}

// Say writes a line, above the picture if there is one.
func (v *View) Say(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.say(text)
}

func (v *View) say(text string) {
	text = plain(text)
	if v.size == nil {
		fmt.Fprintln(v.w, text)
		return
	}
	v.said++
	v.draw(text + "\n")
}

// draw replaces the picture by text that stays and a new picture below it. It writes once, so that nothing
// flickers.
func (v *View) draw(text string) {
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	b.WriteString("\r\x1b[J" + text)
	b.WriteString("\x1b[?7l") // cuts lines that are too wide instead of wrapping them
	width, height := v.size()
	lines := render(v.trees, v.fleet.lines(), width, height-min(v.said, mostSaid), v.now()) // the last lines said stay visible
	for _, l := range lines {
		if v.Plain {
			l = styles.ReplaceAllString(l, "")
		}
		b.WriteString(l + "\n")
	}
	b.WriteString("\x1b[?7h")
	v.drawn = len(lines)
	_, _ = io.WriteString(v.w, b.String())
}

// styles matches escape sequences for colours and weights.
var styles = regexp.MustCompile("\x1b\\[[0-9;]*m")

// draining says which actions an interrupt waits for.
func (v *View) draining(context.Context) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var names []string
	for _, t := range v.trees {
		names = append(names, t.runningNow()...)
	}
	if len(names) == 0 {
		v.say("interrupted: no action is running")
		return
	}
	v.say("interrupted: waiting for what is running to end: " + strings.Join(names, ", "))
	v.say("a second interrupt ends the process now; what is running then runs again at the next start")
}

func (v *View) problem(_ context.Context, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.troubled = true
	v.say("problem: " + err.Error())
}

func (v *View) pickedUp(_ context.Context, p *workflow.Plan) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := newTree(p)
	if before := v.byID[p.ID]; before != nil {
		v.trees[slices.Index(v.trees, before)] = t // taken again
	} else {
		v.trees = append(v.trees, t)
	}
	v.byID[p.ID] = t
	if !t.resumed {
		_, all := t.progress()
		v.say(fmt.Sprintf("new plan %s: %d actions", t.name, all))
		return
	}
	_, all := t.progress()
	text := fmt.Sprintf("picked up plan %s%s: %d of %d actions done", t.name, v.fleet.origin(p), t.doneBefore, all)
	switch {
	case t.cutOff == 1:
		text += ", 1 was running and runs again"
	case t.cutOff > 1:
		text += fmt.Sprintf(", %d were running and run again", t.cutOff)
	}
	v.say(text)
}

func (v *View) changed(_ context.Context, o workflow.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.byID[*o.Header().PlanID]
	if t == nil {
		return
	}
	n, before := t.note(o)
	if v.size != nil {
		return // the next picture shows it
	}
	name := strings.TrimSuffix(t.name+": "+n.path(), ": ")
	text := v.now().Format(time.TimeOnly) + " " + name + ": " + n.state.Status.String()
	switch {
	case n.state.Status == before.state.Status && (n.group == contChecks || n.kind != workflow.KindAction):
		return // another round of a continuous check
	case n.attempts > before.attempts && n.attempts > 1:
		text += fmt.Sprintf(", attempt %d", n.attempts)
	case n.failure != "":
		text += ", " + n.failure
	}
	fmt.Fprintln(v.w, text)
}

func (v *View) left(_ context.Context, id uuid.UUID, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	t := v.byID[id]
	if t == nil {
		return
	}
	t.left = err
	if !errors.Is(err, engine.ErrDraining) { // End says it at a shutdown
		v.say(t.leftAsItStands())
	}
}
