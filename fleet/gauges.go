package fleet

import (
	"time"

	"github.com/planvault/azblob/workflow"
)

// Gauges are the figures of an [Inspection].
type Gauges struct {
	// Open is the number of open plans, and Waiting the number of those that are NotStarted.
	Open, Waiting int
	// More reports whether there are more open plans than were looked at.
	More bool
	// Stuck are the numbers of stuck plans. Reasons without plans are absent.
	Stuck map[Reason]int
	// Unread is the number of plans that may be stuck, too. See [OpenPlan.Unread].
	Unread int
	// OldestWait is for how long the plan has waited that is NotStarted for longest. It is 0 if there is none.
	OldestWait time.Duration
	// Alive and Dead are the numbers of members. A dead one has a record that is older than its TTL.
	Alive, Dead int
	// Members are the members, with the number of plans that each owns.
	Members []MemberState
}

// Gauges counts what the inspection has found.
func (i Inspection) Gauges() Gauges {
	g := Gauges{
		Open: len(i.Plans), More: i.More, Stuck: map[Reason]int{}, Unread: i.Unread,
		Alive: i.Alive(), Dead: len(i.Members) - i.Alive(), Members: i.Members,
	}
	for _, p := range i.Plans {
		if p.Stuck {
			g.Stuck[p.Reason]++
		}
		if p.State.Status == workflow.NotStarted && p.Err == nil {
			g.Waiting++
			g.OldestWait = max(g.OldestWait, i.Now.Sub(p.Progress))
		}
	}
	return g
}
