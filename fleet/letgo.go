package fleet

import (
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
)

// release is a plan that its owner has let go.
type release struct{ owner, plan uuid.UUID }

// pause is how long a node leaves a plan to others that it has let go.
type pause struct {
	until time.Time // zero after another node has taken the plan
	wait  time.Duration
}

// The pauses after the first and after many times that a node lets a plan go.
const (
	firstPause   = time.Minute
	longestPause = time.Hour
)

// LetGo says that the node works no more on a plan that it owns. The work's context ends, the plan no longer counts
// against Options.Capacity, and the node's record names the plan at once, so that another node takes it within its
// Interval. A record names 100 plans at most: of more, the others take those that were let go last, and the rest when
// the node has left.
//
// The node itself takes the plan again if nobody else has within a minute. Each time that it lets the plan go doubles
// this pause, up to an hour, or not if somebody called [Stop]. LetGo does nothing if the node does not own the plan, or
// if it was done before.
func (n *Node) LetGo(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.work[plan]
	if w == nil {
		return
	}
	wait := min(max(2*n.pauses[plan].wait, firstPause), longestPause)
	n.releaseLocked(plan, w)
	n.listLocked(plan, pause{time.Now().Add(wait), wait})
}

// listLocked announces that others may take a plan, and makes this node wait before it takes the plan itself.
func (n *Node) listLocked(plan uuid.UUID, p pause) {
	n.pauses[plan] = p
	self := &n.record.self
	list := append(slices.DeleteFunc(slices.Clone(self.LetGo), func(id uuid.UUID) bool { return id == plan }), plan)
	self.LetGo = list[max(0, len(list)-storage.MaxLetGo):]
	n.record.announce()
	n.notifyLocked()
}

// GiveBack is LetGo for a plan that lacks nothing but a place: this node, too, may take it at once. It also announces a plan
// that the node may own although it could not acquire it.
func (n *Node) GiveBack(plan uuid.UUID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.releaseLocked(plan, n.work[plan])
	n.listLocked(plan, pause{time.Now(), n.pauses[plan].wait})
}

// taken ends the pause of a plan that this node has let go, after another node has taken it or it is final.
func (n *Node) taken(plan uuid.UUID) {
	n.unlist(plan)
	n.mu.Lock()
	defer n.mu.Unlock()
	if p, there := n.pauses[plan]; there {
		n.pauses[plan] = pause{wait: p.wait}
	}
}

// forgetPauses forgets the pauses of plans that are not open any more.
func (n *Node) forgetPauses(open map[uuid.UUID]bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.pauses, func(id uuid.UUID, p pause) bool { return !open[id] && p.until.IsZero() })
}
