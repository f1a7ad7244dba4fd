package fleet

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Gauges are the figures of an [Inspection].
type Gauges struct {
	// Open is the number of open plans, and Waiting the number of those that are NotStarted and may begin.
	Open, Waiting int
	// Asleep is the number of open plans that need no node now: they sleep, must not begin yet, or are paused, and nothing
	// wakes them, or they wait for a turn, or an engine of another kind places them. Open less Asleep is the fleet's work.
	Asleep int
	// More reports whether there are more open plans than were looked at.
	More bool
	// Stuck are the numbers of stuck plans. Reasons without plans are absent.
	Stuck map[Reason]int
	// Unread is the number of plans that may be stuck, too. See [OpenPlan.Unread].
	Unread int
	// OldestWait is the longest time that a NotStarted plan has waited. It is 0 if there is none.
	OldestWait time.Duration
	// Alive and Dead are the numbers of members. A dead one has a record that is older than its TTL.
	Alive, Dead int
	// Members are the members, with the number of plans that each owns.
	Members []MemberState
	// Keys are the keys for which most plans wait, ten at most.
	Keys []KeyState
	// Copies are the copies of the vault whose progress is known.
	Copies []CopyState
}

// Gauges counts what the inspection has found.
func (i Inspection) Gauges() Gauges {
	g := Gauges{
		Open: len(i.Plans), More: i.More, Stuck: map[Reason]int{}, Unread: i.Unread,
		Alive: i.Alive(), Dead: len(i.Members) - i.Alive(), Members: i.Members,
		Keys: i.Keys[:min(len(i.Keys), gaugedKeys)],
	}
	for _, c := range i.Copies {
		if !c.CaughtUp.IsZero() {
			g.Copies = append(g.Copies, c)
		}
	}
	for _, p := range i.Plans {
		if p.idle(i.Now) {
			g.Asleep++
		}
		if p.Stuck {
			g.Stuck[p.Reason]++
		}
		if p.Condition == ConditionWaiting {
			g.Waiting++
			g.OldestWait = max(g.OldestWait, i.Now.Sub(latest(p.Progress, p.Plan.WakeAt)))
		}
	}
	return g
}

// idle reports whether a plan needs no node: it has no owner, and no time, signal or stop wakes it, or no node places it.
func (p OpenPlan) idle(now time.Time) bool {
	if p.Plan.External != "" {
		return true
	}
	switch p.Condition {
	case ConditionTurn:
		return p.Turn.sure
	case ConditionPaused:
		return p.OwnerState == OwnerStateNone
	case ConditionAsleep:
		return p.Plan.WakeAt.After(now) && !asked(p) && !p.signalled
	}
	return false
}

const (
	gaugedKeys = 10
	// gaugedPlans bounds the plans of a look for gauges, and gaugedReads those that it reads again: 1,800 in an hour.
	gaugedPlans = 2000
	gaugedReads = 30
	// firstReads bounds the reads of a look at plans that may be stuck and were never read.
	firstReads = 600
	// gaugedFor is how long such a look may take.
	gaugedFor = time.Minute
)

// gauger looks at the open plans for [Observer.Gauges]. Its loop alone uses it.
type gauger struct {
	n        *Node
	wake     chan struct{} // has an element when the node has become the one that looks
	reported time.Time     // the last look that was reported; zero if the observer knows of none
	before   *Inspection
}

// gauges reports whether the node has gauges at all.
func (o Options) gauges() bool { return !o.NoGauges && o.Observer.Gauges != nil }

// run looks at the open plans until the node is no longer a member.
func (g *gauger) run() {
	g.n.every(g.n.o.Interval, g.wake, func(ctx context.Context) (time.Duration, error) {
		g.look(ctx)
		return g.n.o.Gauges, nil
	})
	g.stop(g.n.ctx)
}

// look looks at the open plans if no other member does, and reports what it finds.
func (g *gauger) look(ctx context.Context) {
	if !g.n.looksAfterGauges() {
		g.stop(ctx)
		return
	}
	began := time.Now()
	i, err := g.inspect(ctx)
	switch {
	case ctx.Err() != nil: // the node is no longer a member
	case err != nil:
		g.n.retries("look at the open plans", err)
		if time.Since(g.reported) > 2*g.n.o.Gauges {
			g.stop(ctx)
		}
	case gaugerOf(i.Members) != g.n.id:
		g.stop(ctx)
	default:
		g.reported = time.Now()
		notify(ctx, g.n.o.Observer.Gauges, GaugesEvent{Node: g.n.id, Gauges: i.Gauges(), Duration: time.Since(began)})
	}
}

// inspect inspects the vault at a bounded cost. It is no error if there is no time to read all plans.
func (g *gauger) inspect(ctx context.Context) (Inspection, error) {
	ctx, cancel := context.WithTimeout(ctx, min(g.n.o.Gauges, gaugedFor))
	defer cancel()
	i, err := begin(ctx, g.n.store, InspectOptions{MaxPlans: gaugedPlans, MaxReads: gaugedReads, Before: g.before})
	if err != nil {
		return Inspection{}, err
	}
	i.o.MaxReads = min(max(gaugedReads, i.neverRead()), firstReads)
	_ = i.read(ctx)
	for n := range i.Plans {
		if p := &i.Plans[n]; p.Plan.State.Status == workflow.Running && errors.Is(p.Err, storage.ErrSchema) {
			p.Err, p.Unread = nil, !p.Read // a node with other plugins may run it
		}
	}
	i.conclude()
	g.before = &i.Inspection
	return i.Inspection, nil
}

// neverRead counts the plans that must be read to find out whether they are stuck, and of which nothing is known.
func (i *inspector) neverRead() (n int) {
	for _, p := range i.Plans {
		if !p.Read && p.Err == nil && p.Plan.State.Status == workflow.Running && i.facts.undecided(p) {
			n++
		}
	}
	return n
}

// stop reports once that the figures are no longer known.
func (g *gauger) stop(ctx context.Context) {
	if !g.reported.IsZero() {
		g.reported, g.before = time.Time{}, nil
		notify(ctx, g.n.o.Observer.Gauges, GaugesEvent{Node: g.n.id, Stopped: true})
	}
}

// gaugerOf returns the member that looks at the open plans for the fleet: the oldest that is alive and does not drain. It
// is uuid.Nil if there is none.
func gaugerOf(members []MemberState) (first uuid.UUID) {
	for _, m := range members {
		if m.Alive && m.Member.Phase != storage.PhaseLeaving && (first == uuid.Nil || bytes.Compare(m.Member.ID[:], first[:]) < 0) {
			first = m.Member.ID
		}
	}
	return first
}

// looksAfterGauges reports whether the node was elected at its last look at the members.
func (n *Node) looksAfterGauges() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gauger == n.id
}

// electLocked notes which member looks at the open plans. A newly elected node begins at once, so after a death figures
// are missing for at most an interval, a TTL and a look at the members.
func (n *Node) electLocked(r storage.Roster) {
	was := n.gauger
	if n.gauger = gaugerOf(inspectRoster(r).Members); n.gauger == n.id && was != n.id && was != uuid.Nil {
		select {
		case n.gauges.wake <- struct{}{}:
		default:
		}
	}
}
