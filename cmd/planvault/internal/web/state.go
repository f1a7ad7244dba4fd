package web

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/report"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
)

const (
	// maxPlans is how many open plans a look covers, and maxReads how many of them it reads. While some that may be stuck
	// were never read, a look reads catchUpReads, but not the first one, for which a person waits. A read of a plan takes
	// two requests and more.
	maxPlans, maxReads, catchUpReads = 1000, 3, 50
	// soon is when the next look is due while plans are left to read.
	soon = 5 * time.Second
	// maxFailures is how many failures the health page shows.
	maxFailures = 10
	// lookLimit is how long a look may take.
	lookLimit = 2 * time.Minute
)

// state is what the live pages show at one time. It does not change.
type state struct {
	Seen     time.Time // by this machine's clock, when the look ended
	Took     time.Duration
	Requests int64     // of the look; 0 if they are not counted
	Now      time.Time // by the store's clock, when the look began
	Plans    []planRow // stuck ones first
	Members  []memberRow
	Counts   counts
	Failure  failure // the zero value if the last look succeeded

	inspection *fleet.Inspection // on which the next look builds
}

// counts are the figures of a state. They cover all open plans that were looked at, also those that are not shown.
type counts struct {
	Stuck, Running, Waiting, Unread, Alive, Silent, Gone int
	More                                                 bool // there are more open plans
}

// failure says since when looks have failed, and why the last one did.
type failure struct {
	At  time.Time
	Err string
}

// Suspended says who has suspended the vault, or is nil.
func (s *state) Suspended() *storage.Suspension {
	if s.inspection == nil {
		return nil
	}
	return s.inspection.Suspended
}

// mostKeys is how many keys the page of the fleet shows.
const mostKeys = 20

// Keys are the keys for which most plans wait.
func (s *state) Keys() []fleet.KeyState {
	if s.inspection == nil {
		return nil
	}
	return s.inspection.Keys[:min(len(s.inspection.Keys), mostKeys)]
}

// clock returns the time by the store's clock.
func (s *state) clock() time.Time { return s.Now.Add(s.Took + time.Since(s.Seen)) }

// planRow is an open plan on a page.
type planRow struct {
	fleet.OpenPlan
	OwnerName string
	Remedy    []report.Command // one or none
}

// memberRow is a member, or an owner of plans that is gone.
type memberRow struct {
	fleet.MemberState
	State fleet.OwnerState
}

// Label returns how the status of the plan is shown.
func (r planRow) Label() report.Label {
	if r.Err != nil {
		return report.Label{Mark: "?", Word: string(r.Condition), Color: "bad"}
	}
	return report.LabelOf(r.Plan.State.Status)
}

// Note says why the plan is as it is, unless all is well.
func (r planRow) Note() string {
	if r.Stuck || r.Condition != fleet.ConditionWorking && r.Condition != fleet.ConditionWaiting {
		return r.Why
	}
	return ""
}

// newState makes a state of an inspection. Members that are gone come first, then those that are silent; others stay in
// the order in which they joined.
func (s *Server) newState(i fleet.Inspection) *state {
	st := &state{Now: i.Now, inspection: &i}
	names := map[uuid.UUID]string{}
	for _, m := range i.Members {
		row := memberRow{m, fleet.OwnerStateSilent}
		if names[m.Member.ID] = m.Member.Name; m.Alive {
			row.State = fleet.OwnerStateAlive
		}
		st.Members = append(st.Members, row)
	}
	st.Counts.More = i.More
	for _, p := range i.Plans {
		st.Plans = append(st.Plans, planRow{p, names[p.Plan.Owner], s.remedyFor(p)})
		st.Counts.add(p)
	}
	for id, plans := range i.Gone() {
		st.Members = append(st.Members, memberRow{fleet.MemberState{Member: storage.Member{ID: id}, Plans: plans}, fleet.OwnerStateGone})
	}
	order := []fleet.OwnerState{fleet.OwnerStateGone, fleet.OwnerStateSilent, fleet.OwnerStateAlive}
	slices.SortStableFunc(st.Members, func(a, b memberRow) int {
		return cmp.Or(slices.Index(order, a.State)-slices.Index(order, b.State), bytes.Compare(a.Member.ID[:], b.Member.ID[:]))
	})
	for _, m := range st.Members {
		switch m.State {
		case fleet.OwnerStateAlive:
			st.Counts.Alive++
		case fleet.OwnerStateSilent:
			st.Counts.Silent++
		default:
			st.Counts.Gone++
		}
	}
	return st
}

// title says how many plans are stuck, in front of a page's title.
func (c counts) title() string {
	if c.Stuck == 0 {
		return ""
	}
	return fmt.Sprintf("(%d stuck) ", c.Stuck)
}

// StuckText says how many plans are stuck.
func (c counts) StuckText() string {
	switch c.Stuck {
	case 0:
		return "Nothing is stuck."
	case 1:
		return "1 plan is stuck."
	}
	return fmt.Sprintf("%d plans are stuck.", c.Stuck)
}

// FleetText says how many nodes are alive.
func (c counts) FleetText() string {
	switch {
	case c.Alive+c.Silent == 0:
		return "No node is in the fleet."
	case c.Silent == 0:
		return "All nodes are alive."
	}
	return fmt.Sprintf("%d of %d nodes silent.", c.Silent, c.Alive+c.Silent)
}

// Total is the number of open plans.
func (c counts) Total() int { return c.Stuck + c.Unread + c.Running + c.Waiting }

func (c *counts) add(p fleet.OpenPlan) {
	switch {
	case p.Stuck:
		c.Stuck++
	case p.Unread:
		c.Unread++
	case p.Condition == fleet.ConditionWaiting, p.Condition == fleet.ConditionTurn, p.Condition == fleet.ConditionAsleep, p.Condition == fleet.ConditionPaused,
		p.Condition == fleet.ConditionExternal && p.OwnerState == fleet.OwnerStateNone:
		c.Waiting++
	default:
		c.Running++
	}
}

// watch remembers the latest state and failures.
type watch struct {
	mu       sync.Mutex
	last     *state // nil before the first look
	failures []failure
}

// note notes what a look has found, and returns the latest state. A look that failed leaves the rows as they were.
func (w *watch) note(next *state, err error) *state {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		f := failure{At: next.Seen, Err: storage.Detail(err)}
		w.failures = append(w.failures, f)
		w.failures = w.failures[max(0, len(w.failures)-maxFailures):]
		if w.last != nil {
			kept := *w.last
			next = &kept
			f.At = cmp.Or(w.last.Failure.At, f.At)
		}
		next.Failure = f
	}
	w.last = next
	return next
}

// old returns the latest state for viewers who have waited in vain for a newer one. It says so.
func (w *watch) old() *state {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	old := state{Seen: now, Now: now}
	if w.last != nil {
		old = *w.last
	}
	if old.Failure == (failure{}) {
		old.Failure = failure{At: old.Seen, Err: "The present look at the vault has not ended yet."}
	}
	return &old
}

// recent returns the latest failures, newest first.
func (w *watch) recent() []failure {
	w.mu.Lock()
	defer w.mu.Unlock()
	failures := slices.Clone(w.failures)
	slices.Reverse(failures)
	return failures
}

// inspection returns that of the latest state, or nil.
func (w *watch) inspection() *fleet.Inspection {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		return nil
	}
	return w.last.inspection
}

// maxWait is how long a page waits for a look before it shows what is known.
const maxWait = 5 * time.Second

// now returns the state of a look that is fresh, or the latest if the store takes its time. It fails when ctx ends.
func (s *Server) now(ctx context.Context) (*state, error) {
	look := s.looks.ask(ctx, struct{}{})
	late := time.NewTimer(maxWait)
	defer late.Stop()
	select {
	case <-look.done:
		return look.value, look.err
	case <-late.C:
		return s.watch.old(), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// look inspects the vault. It builds on the look before, because it reads only a few plans.
func (s *Server) look(ctx context.Context, _ struct{}) (*state, error) {
	started := time.Now()
	ctx, sent := counted(ctx)
	o := fleet.InspectOptions{Older: s.o.Older, MaxPlans: maxPlans, MaxReads: maxReads, Before: s.watch.inspection()}
	if o.Before != nil && o.Before.Unread > 0 {
		o.MaxReads = catchUpReads
	}
	i, err := fleet.Inspect(ctx, s.store, o)
	if ctx.Err() == context.Canceled {
		return nil, ctx.Err() // the server ends
	}
	if err == nil && len(i.Plans)+len(i.Members) == 0 && !s.exists.Load() { // nothing is stuck in a vault of a wrong prefix
		p, _ := s.ping(ctx, struct{}{})
		s.exists.Store(p.Err == nil)
		if errors.Is(p.Err, errNoVault) {
			err = errNoVault
		}
	}
	if i.Now.IsZero() {
		i.Now = started
	}
	next := s.newState(i)
	next.Seen, next.Took, next.Requests = time.Now(), time.Since(started), sent.Load()
	return s.watch.note(next, err), nil
}

// untilNext returns how long a state is fresh.
func (s *Server) untilNext(now *state) time.Duration {
	if now != nil && now.Counts.Unread > 0 {
		return min(s.o.Interval, soon)
	}
	return s.o.Interval
}

// counterKey is the key of a context's counter of requests.
type counterKey struct{}

// counted returns a context whose requests are counted, if the vault has the [Observer].
func counted(ctx context.Context) (context.Context, *atomic.Int64) {
	n := new(atomic.Int64)
	return context.WithValue(ctx, counterKey{}, n), n
}

// Observer returns the observer that a vault needs so that the pages can say how many requests a look took.
func Observer() azblob.Observer {
	return azblob.Observer{Request: func(ctx context.Context, _ azblob.RequestEvent) {
		if n, ok := ctx.Value(counterKey{}).(*atomic.Int64); ok {
			n.Add(1)
		}
	}}
}
