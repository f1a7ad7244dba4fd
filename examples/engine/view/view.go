// Package view shows how an engine's plans go on.
package view

import (
	"fmt"
	"io"
	"sync"

	"github.com/google/uuid"

	"github.com/planvault/azblob/examples/engine/engine"
	"github.com/planvault/azblob/workflow"
)

// View is what a person sees of an engine.
type View struct {
	mu   sync.Mutex
	w    io.Writer
	done bool
}

// New returns a view that writes to w.
func New(w io.Writer) *View { return &View{w: w, done: true} }

// Say writes a line.
func (v *View) Say(line string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	fmt.Fprintln(v.w, line)
}

// Start begins.
func (v *View) Start() {}

// End ends.
func (v *View) End() bool { return v.done }

// Observer tells the view.
func (v *View) Observer() engine.Observer {
	return engine.Observer{
		PickedUp: func(p *workflow.Plan) { v.Say("picked up " + p.Name) },
		Changed: func(o workflow.Object) {
			name := ""
			if a, ok := o.(*workflow.Action); ok {
				name = a.Name
			}
			v.Say(fmt.Sprint(o.Kind(), " ", name, " ", o.Header().State.Status))
		},
		Left:    func(id uuid.UUID, err error) { v.Say(fmt.Sprint("left ", id, " ", err)) },
		Problem: func(err error) { v.Say(err.Error()) },
	}
}
