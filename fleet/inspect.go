package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plannote"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// DefaultOlder is how long a plan may go without progress before it is stuck, unless
// [InspectOptions.Older] says otherwise.
const DefaultOlder = 15 * time.Minute

// InspectOptions are the settings of [Inspect]. Zero fields have their defaults.
type InspectOptions struct {
	// Older is how long a plan may go without progress before it is stuck. Running plans that were created more
	// recently are not read. Default: [DefaultOlder].
	Older time.Duration
	// ReadAll reads the younger Running plans, too, so that what each is doing is known. MaxReads overrides it.
	// Default: false.
	ReadAll bool
	// Plans are the plans to look at. Those that are not open are left out. Default: all open plans.
	Plans []uuid.UUID
	// MaxPlans bounds the open plans that are looked at. Inspect looks at the newest, and sets [Inspection.More] if there
	// are others. Default: 0, which means no bound.
	MaxPlans int
	// MaxReads bounds the plans that are read. If it is set, Inspect reads a plan only if the listing, the roster
	// and Before don't show whether it is stuck, least recently read first. Default: 0, which means no bound.
	MaxReads int
	// NoReads reads no plans, whatever MaxReads and ReadAll are. Default: false.
	NoReads bool
	// ReadMore uses what MaxReads leaves for plans that Inspect would read without MaxReads. Default: false.
	ReadMore bool
	// Before is an earlier inspection with the same Older. An inspection with MaxReads builds on it, so that a few reads
	// each time cover many plans. Default: none.
	Before *Inspection
	// Progress is called after each plan that was read. It may be nil.
	Progress func(storage.Progress)
}

// bounded reports whether Inspect reads only what it must.
func (o InspectOptions) bounded() bool { return o.NoReads || o.MaxReads > 0 }

// Inspect says who works on a vault, and what is stuck. It neither writes nor joins the fleet, and is safe beside
// engines.
//
// Inspect costs a Roster, a read for each copy of the vault and each plan that is paused, a Search for open plans, and a Read of each Running plan
// that was created longer than Older ago, or of all with ReadAll. The cost follows the number of open plans, and not
// that of final ones. MaxPlans and MaxReads bound it. If plans may wait for turns, it also reads the records of their keys: of
// 48 at most, for which most plans wait.
//
// A plan that can't be read has an Err. If the roster or the search fails, or ctx ends, Inspect returns the error with what
// it has found so far. Errors: [storage.ErrInvalid] for wrong options; otherwise those of Roster and Search.
func Inspect(ctx context.Context, vault storage.Vault, o InspectOptions) (Inspection, error) {
	s, err := storeOf("Inspect", vault)
	if err != nil {
		return Inspection{}, err
	}
	i, err := begin(ctx, s, o)
	if i == nil {
		return Inspection{}, err
	}
	if err == nil {
		err = i.read(ctx)
	}
	i.conclude()
	return i.Inspection, err
}

// begin begins an inspection without reading plans. The inspector is nil if there is nothing to inspect.
func begin(ctx context.Context, s store, o InspectOptions) (*inspector, error) {
	if o.Older < 0 {
		return nil, &storage.Error{Op: "Inspect", Err: driver.Invalid("InspectOptions.Older", "%v is negative", o.Older)}
	}
	if o.MaxPlans < 0 {
		return nil, &storage.Error{Op: "Inspect", Err: driver.Invalid("InspectOptions.MaxPlans", "%d is negative", o.MaxPlans)}
	}
	if o.MaxReads < 0 {
		return nil, &storage.Error{Op: "Inspect", Err: driver.Invalid("InspectOptions.MaxReads", "%d is negative", o.MaxReads)}
	}
	o.Older = cmp.Or(o.Older, DefaultOlder)
	roster, err := s.Roster(ctx)
	if err != nil {
		return nil, err
	}
	i := &inspector{store: s, o: o, Inspection: inspectRoster(roster), members: map[uuid.UUID]*MemberState{}, stops: map[uuid.UUID]storage.StopRequest{}, pauses: map[uuid.UUID]storage.Version{}, signals: LastSignals(roster)}
	for n := range i.Members {
		i.members[i.Members[n].Member.ID] = &i.Members[n]
	}
	for _, s := range roster.Stops {
		i.stops[s.Plan] = s
	}
	for _, note := range roster.Notes {
		if plan, ok := plannote.ParsePause(note.Name); ok {
			i.pauses[plan] = note.Version
		}
	}
	i.noteSuspension(ctx, roster)
	i.facts = fleetFacts{now: i.Now, older: o.Older, alive: i.Alive(), suspended: i.Suspended, within: i.takenWithin()}
	i.noteCopies(ctx, roster.Notes)
	err = i.search(ctx)
	i.recall()
	if err == nil {
		err = i.notePauses(ctx)
	}
	if err == nil {
		err = i.noteTurns(ctx)
	}
	return i, err
}

// inspector makes an inspection.
type inspector struct {
	Inspection
	store   store
	o       InspectOptions
	facts   fleetFacts
	members map[uuid.UUID]*MemberState
	stops   map[uuid.UUID]storage.StopRequest
	pauses  map[uuid.UUID]storage.Version
	signals map[uuid.UUID]int // the largest number of a signal of each plan
}

// notePauses notes who has paused the plans that are paused. It reads the notes that changed since the last inspection.
func (i *inspector) notePauses(ctx context.Context) error {
	before := map[uuid.UUID]OpenPlan{}
	if i.o.Before != nil {
		for _, b := range i.o.Before.Plans {
			before[b.Plan.ID] = b
		}
	}
	var changed []*OpenPlan
	for n := range i.Plans {
		p := &i.Plans[n]
		version, paused := i.pauses[p.Plan.ID]
		b := before[p.Plan.ID]
		switch {
		case !paused:
		case b.pause == version:
			p.pause, p.PausedSince, p.PausedBy, p.PausedWhy = b.pause, b.PausedSince, b.PausedBy, b.PausedWhy
		default:
			p.pause = version
			changed = append(changed, p)
		}
	}
	return atMost(readAtOnce, changed, func(p *OpenPlan) error {
		by, paused, err := i.store.pausedBy(ctx, p.Plan.ID)
		if paused {
			p.notePause(by)
		}
		return err
	})
}

// noteSuspension notes who suspended the vault. A note that can't be read suspends it, too.
func (i *inspector) noteSuspension(ctx context.Context, r storage.Roster) {
	if _, suspended := r.FindNote(storage.NoteSuspended); !suspended {
		return
	}
	i.Suspended = new(storage.Suspension)
	if n, err := i.store.FindNote(ctx, storage.NoteSuspended); err == nil {
		*i.Suspended, _ = storage.ReadNote[storage.Suspension](n)
	}
}

// noteCopies notes how far the copies of the vault are behind. It reads the notes that changed since the last
// inspection. A copy whose note can't be read keeps its state, and its lag grows.
func (i *inspector) noteCopies(ctx context.Context, notes []storage.Note) {
	before := map[string]CopyState{}
	if i.o.Before != nil {
		for _, c := range i.o.Before.Copies {
			before[c.Name] = c
		}
	}
	for _, n := range notes {
		name, isCopy := strings.CutPrefix(n.Name, storage.NoteCopy)
		if !isCopy {
			continue
		}
		c := before[name]
		if c.version != n.Version {
			if read, err := i.store.FindNote(ctx, n.Name); err == nil {
				c = copyOf(read)
			}
		}
		if c.Name = name; !c.CaughtUp.IsZero() {
			c.Lag = max(0, i.Now.Sub(c.CaughtUp))
		}
		i.Copies = append(i.Copies, c)
	}
}

// copyOf returns what the note of a copy says.
func copyOf(n storage.Note) CopyState {
	var says struct {
		To       string
		CaughtUp string
	}
	_ = json.Unmarshal(n.Text, &says) // any program may have written it
	c := CopyState{To: cut(says.To), version: n.Version}
	if at, err := time.Parse(time.RFC3339, says.CaughtUp); err == nil {
		c.CaughtUp = at.UTC()
	}
	return c
}

// search finds the open plans.
func (i *inspector) search(ctx context.Context) error {
	filters := storage.Filters{ByIDs: i.o.Plans, ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}
	if i.o.MaxPlans > 0 {
		filters.Limit = i.o.MaxPlans + 1
	}
	found, err := i.store.Search(ctx, filters)
	if err != nil {
		return err
	}
	for f := range found {
		if i.o.MaxPlans > 0 && len(i.Plans) == i.o.MaxPlans {
			i.More = true
			return nil
		}
		id := planOf(f.Err)
		switch {
		case f.Err == nil:
			i.Plans = append(i.Plans, OpenPlan{Plan: f.Result, signalled: i.signals[f.Result.ID] > f.Result.LastSignal})
		case errors.Is(f.Err, storage.ErrForeign):
			i.Foreign++
		case id == uuid.Nil:
			return f.Err
		default:
			i.Plans = append(i.Plans, OpenPlan{Plan: storage.ListResult{ID: id}, Err: f.Err})
		}
	}
	return nil
}

// recall builds on an earlier inspection, and notes what the roster says of the plans.
func (i *inspector) recall() {
	before := map[uuid.UUID]OpenPlan{}
	if i.o.Before != nil && i.o.bounded() {
		for _, b := range i.o.Before.Plans {
			before[b.Plan.ID] = b
		}
	}
	for n := range i.Plans {
		p := &i.Plans[n]
		b, known := before[p.Plan.ID]
		known = known && p.Err == nil && b.Plan.Owner == p.Plan.Owner && b.Plan.Epoch == p.Plan.Epoch
		if known {
			p.build(b)
		}
		owner := i.place(p)
		switch {
		case p.OwnerState == OwnerStateNone && p.Plan.Epoch == 0 || p.OwnerState == OwnerStateAlive || p.Plan.External != "" || p.Plan.Asleep():
		case known && !b.orphaned.IsZero():
			p.orphaned = b.orphaned
		case p.OwnerState == OwnerStateSilent:
			p.orphaned = owner.Member.Renewed.Add(ttlOf(owner.Member))
		default:
			p.orphaned = i.Now
		}
	}
}

// build copies what an earlier inspection has read of the plan.
func (p *OpenPlan) build(b OpenPlan) {
	p.Read, p.ReadAt, p.Running, p.Done, p.Actions, p.waits, p.unseen = b.Read, b.ReadAt, b.Running, b.Done, b.Actions, b.waits, b.unseen
	p.Progress, p.Ask = latest(firstProgress(p.Plan), b.Progress), b.Ask
	if unreadable(b.Err) {
		p.Err, p.earlier = b.Err, true
	}
}

// place notes what the roster says of a plan, and returns the record of its owner.
func (i *inspector) place(p *OpenPlan) (owner *MemberState) {
	if p.Progress.IsZero() {
		p.Progress = firstProgress(p.Plan)
	}
	owner = i.members[p.Plan.Owner]
	stop := i.stops[p.Plan.ID]
	p.StopRequested, p.StopBy, p.StopWhy = stop.Requested, cut(stop.By), cut(stop.Why)
	p.OwnerState = ownerState(p.Plan, owner)
	return owner
}

// readAtOnce bounds the plans that an inspection reads at once.
const readAtOnce = 8

// read reads the plans whose progress must be known, and drops those that have ended meanwhile.
func (i *inspector) read(ctx context.Context) error {
	chosen := i.chosen()
	var mu sync.Mutex
	progress := storage.Progress{Total: len(chosen)}
	err := atMost(readAtOnce, chosen, func(p *OpenPlan) error {
		p.ReadAt = i.Now
		plan, err := i.store.Read(ctx, p.Plan.ID)
		if ctx.Err() != nil {
			return cmp.Or(err, context.Cause(ctx))
		}
		if p.Err = err; err == nil {
			p.note(plan)
		}
		mu.Lock()
		defer mu.Unlock()
		if progress.Done++; i.o.Progress != nil {
			i.o.Progress(progress)
		}
		return nil
	})
	for _, p := range chosen {
		switch {
		case err == nil || p.Read || p.Err != nil: // else ctx has ended
		case i.o.bounded():
			p.Unread = true
		default:
			p.Err = err
		}
	}
	i.Plans = slices.DeleteFunc(i.Plans, func(p OpenPlan) bool {
		return p.Plan.State.Status.Final() || errors.Is(p.Err, storage.ErrNotFound)
	})
	return err
}

// chosen returns the plans to read, and marks those that MaxReads leaves unread.
func (i *inspector) chosen() (chosen []*OpenPlan) {
	var more []*OpenPlan // those that need not be read
	for n := range i.Plans {
		p := &i.Plans[n]
		wanted := i.o.ReadAll || i.Now.Sub(workflow.Time(p.Plan.ID)) > i.o.Older
		switch {
		case p.Err != nil && !p.earlier || p.Plan.State.Status != workflow.Running || p.Plan.Asleep() && !i.o.ReadAll:
		case !i.o.bounded() && wanted, i.o.bounded() && i.facts.undecided(*p):
			chosen = append(chosen, p)
		case i.o.ReadMore && wanted:
			more = append(more, p)
		}
	}
	if !i.o.bounded() {
		return chosen
	}
	most := i.o.MaxReads
	if i.o.NoReads {
		most = 0
	}
	longest := func(a, b *OpenPlan) int { return a.known().Compare(b.known()) }
	if room := most - len(chosen); room >= 0 {
		slices.SortStableFunc(more, longest)
		return append(chosen, more[:min(room, len(more))]...)
	}
	slices.SortStableFunc(chosen, longest)
	for _, p := range chosen[most:] {
		p.Unread = !p.Read && p.Err == nil
	}
	return chosen[:most]
}

// known returns when somebody last tried to read the plan, or when it was created.
func (p OpenPlan) known() time.Time {
	return latest(workflow.Time(p.Plan.ID), p.ReadAt)
}

// conclude decides how the plans are doing, and sorts them.
func (i *inspector) conclude() {
	for n := range i.Plans {
		p := &i.Plans[n]
		owner := i.place(p)
		if owner != nil {
			owner.Plans++
		}
		if p.Unread {
			i.Unread++
		}
		p.Condition, p.Stuck, p.Why = i.facts.explain(*p, owner)
		p.Reason = i.facts.reason(*p)
		p.Why += p.whyOthers()
		if p.Stuck && p.Read && p.ReadAt.Before(i.Now) {
			p.Why += fmt.Sprintf(" It was last read %s ago.", i.facts.ago(p.ReadAt))
		}
		p.Why += p.ask()
	}
	slices.SortFunc(i.Plans, stuckFirst)
}

// takenWithin returns the time within which the live nodes take the plans of a dead member.
func (i *inspector) takenWithin() time.Duration {
	longest := time.Duration(0)
	for _, m := range i.Members {
		longest = max(longest, ttlOf(m.Member))
	}
	return longest + min(longest/2, math.MaxInt64-longest) // of the TTL, at most a third is the Interval; see docs/fleet.md
}

// firstProgress returns the latest time that a listing shows of a plan.
func firstProgress(r storage.ListResult) time.Time {
	return latest(workflow.Time(r.ID), r.SubmitTime, r.State.Start)
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare).UTC()
}
