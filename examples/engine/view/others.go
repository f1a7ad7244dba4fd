package view

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// others is what the view knows of the fleet.
type others struct {
	self    uuid.UUID
	names   map[uuid.UUID]string    // of all nodes that were seen
	from    map[uuid.UUID]uuid.UUID // the former owners of plans that were taken over
	members string
	plans   []storage.ListResult // of other nodes
}

func newOthers() others {
	return others{names: map[uuid.UUID]string{}, from: map[uuid.UUID]uuid.UUID{}}
}

// FleetObserver returns the observer that tells the view of takeovers.
func (v *View) FleetObserver() fleet.Observer {
	return fleet.Observer{Takeover: func(_ context.Context, t fleet.TakeoverEvent) {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.fleet.from[t.Plan] = t.From
	}}
}

func (v *View) joined(_ context.Context, node uuid.UUID) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fleet.self = node
}

// Fleet shows the members of the fleet and the running plans of other nodes.
func (v *View) Fleet(members []storage.Member, running []storage.ListResult) {
	v.mu.Lock()
	defer v.mu.Unlock()
	f := &v.fleet
	var names []string
	for _, m := range members {
		f.names[m.ID] = plain(m.Name)
		names = append(names, f.name(m.ID))
	}
	slices.Sort(names)
	f.plans = slices.DeleteFunc(running, func(r storage.ListResult) bool { return r.Owner == f.self })
	if now := strings.Join(names, ", "); now != f.members {
		f.members = now
		v.say("members of the fleet: " + now)
	}
}

// name returns the name of a node.
func (f *others) name(node uuid.UUID) string {
	switch name, known := f.names[node]; {
	case node == f.self:
		return name + " (this node)"
	case known:
		return name
	}
	return "node " + node.String()
}

// origin says whom a plan was taken over from.
func (f *others) origin(p *workflow.Plan) string {
	from, taken := f.from[p.ID]
	if !taken {
		return ""
	}
	return fmt.Sprintf(" from %s (epoch %d)", f.name(from), p.Epoch)
}

// lines describes the plans of other nodes.
func (f *others) lines() []line {
	var lines []line
	for _, r := range f.plans {
		note := "on an engine without a fleet"
		if r.Owner != uuid.Nil {
			note = fmt.Sprintf("on %s, epoch %d", f.name(r.Owner), r.Epoch)
		}
		lines = append(lines, line{status: r.State.Status, text: plain(r.Name), note: note})
	}
	return lines
}
