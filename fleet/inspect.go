package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// InspectStore is what [Inspect] needs of a vault. Inspect never writes.
type InspectStore interface {
	storage.Reader
	// Roster is that of [storage.Members].
	Roster(ctx context.Context) (storage.Roster, error)
}

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
	// MaxPlans bounds the open plans that are looked at. The newest are, and [Inspection.More] tells of the others.
	// Default: 0, which means no bound.
	MaxPlans int
	// MaxReads bounds the plans that are read. If it is positive, Inspect reads only plans of which the listing, the
	// roster and Before don't tell whether they are stuck, and begins with those that were not read for longest. If
	// it is negative, Inspect reads none. Default: 0, which means no bound.
	MaxReads int
	// ReadMore reads as many other plans as MaxReads leaves room for: those that Inspect reads without MaxReads.
	// Default: false.
	ReadMore bool
	// Before is an earlier inspection of the vault, with the same Older. An inspection with MaxReads builds on what
	// Before has read, so that a few reads each time cover many plans. Default: none.
	Before *Inspection
	// Progress is called after each plan that was read. It may be nil.
	Progress func(storage.Progress)
}

// Inspection says who works on a vault, and what is stuck.
type Inspection struct {
	// Now is the store's clock, by which the ages of members and stop requests are measured. The times of plans
	// are by the clocks of their engines.
	Now time.Time
	// Members are the records of the fleet, but not those of members that have left, in the order of their IDs, which
	// is that in which they joined.
	Members []MemberState
	// Suspended says who has suspended the vault, and why. It is nil if the vault is not suspended.
	Suspended *storage.Suspension
	// Copies are the copies of the vault whose progress its notes tell.
	Copies []CopyState
	// Plans are the open plans: stuck plans first, and those with the oldest progress first among them.
	Plans []OpenPlan
	// More reports whether there are more open plans than MaxPlans. They are older than those in Plans.
	More bool
	// Unread is the number of plans that are [OpenPlan.Unread].
	Unread int
	// Foreign is the number of plans that another program wrote, open or not, as far as the search came across them.
	Foreign int
}

// Alive returns the number of members that are alive.
func (i Inspection) Alive() (n int) {
	for _, m := range i.Members {
		if m.Alive {
			n++
		}
	}
	return n
}

// Gone returns the owners of open plans that are no members any more, with the number of plans of each.
func (i Inspection) Gone() map[uuid.UUID]int {
	gone := map[uuid.UUID]int{}
	for _, p := range i.Plans {
		if p.OwnerState == OwnerGone && !slices.ContainsFunc(i.Members, func(m MemberState) bool { return m.ID == p.Owner }) {
			gone[p.Owner]++
		}
	}
	return gone
}

// MemberState is a member, and what its record shows.
type MemberState struct {
	storage.Member
	// Silence is the time since the last heartbeat. It is not negative.
	Silence time.Duration
	// Alive reports whether the silence is not longer than the TTL. The other nodes remove the record of a dead
	// member and take its plans.
	Alive bool
	// Plans is the number of open plans that the member owns, among those that were looked at.
	Plans int
}

// OwnerState says what the roster shows of a plan's owner.
type OwnerState string

// The states of an owner.
const (
	// OwnerNone: the plan has no owner. It is NotStarted, or an engine without a fleet began it.
	OwnerNone OwnerState = "none"
	// OwnerAlive: the owner has renewed its record within its TTL.
	OwnerAlive OwnerState = "alive"
	// OwnerSilent: the owner has a record that is older than its TTL, so other nodes are about to remove it.
	OwnerSilent OwnerState = "silent"
	// OwnerGone: the owner has no record, or one that is marked as left, because it left or died; or it has let the
	// plan go. Any node takes the plan.
	OwnerGone OwnerState = "gone"
)

// Condition says how an open plan is doing.
type Condition string

// The conditions of a plan. In the first five, a plan is stuck when it has made no progress, or was asked to stop,
// for longer than InspectOptions.Older.
const (
	// Working: the owner is alive. An author's delay does not make a plan stuck.
	Working Condition = "working"
	// Stopping: the owner is alive, and the plan was asked to stop.
	Stopping Condition = "stopping"
	// Waiting: the plan is NotStarted and waits for an engine.
	Waiting Condition = "waiting"
	// Orphaned: the owner is gone or silent. Such a plan is also stuck if no node is alive.
	Orphaned Condition = "orphaned"
	// Unclaimed: the plan has no owner and the epoch 0. An engine without a fleet began it, and nothing shows
	// whether that is alive. Such a plan is also stuck if it was asked to stop, because nobody obeys.
	Unclaimed Condition = "unclaimed"
	// Unreadable: the plan can't be read until somebody repairs it or updates the programs. It is stuck.
	Unreadable Condition = "unreadable"
	// Unknown: reading the plan failed for a reason that may pass.
	Unknown Condition = "unknown"
)

// Reason says in a few words, which do not change, why a plan is stuck or does not go on.
type Reason string

// The reasons. A plan that is not stuck has the first four, the last, or none.
const (
	ReasonNoNode      Reason = "no node alive"   // and the plan needs one
	ReasonSuspended   Reason = "vault suspended" // and so no node is alive
	ReasonOwnerGone   Reason = "owner gone"
	ReasonOwnerSilent Reason = "owner silent"
	ReasonNotPickedUp Reason = "not picked up" // it is NotStarted, and nodes are alive
	ReasonNoProgress  Reason = "no progress"
	ReasonStopIgnored Reason = "stop ignored"
	ReasonUnclaimed   Reason = "unclaimed"
	ReasonUnreadable  Reason = "unreadable"
	ReasonUnknown     Reason = "unknown" // reading it failed, or it is Unread
)

// OpenPlan is a plan that is not final.
type OpenPlan struct {
	// ListResult has the plan's ID alone if the plan can't be read.
	storage.ListResult
	OwnerState OwnerState
	// Read reports whether the plan was read, by this inspection or by an earlier one. Running, Done and Actions are
	// known only then, and are those of ReadAt.
	Read bool
	// ReadAt is the time of the last inspection that tried to read the plan, by the store's clock.
	ReadAt time.Time
	// Unread reports whether the plan may be stuck, and was left unread because of MaxReads, or because an
	// inspection with MaxReads ended early. It does not count as stuck.
	Unread bool
	// Progress is the latest change that is stored in the plan: the times of its states and attempts. If the plan
	// was not read, it is the plan's own start or creation. Continuous checks are no progress.
	Progress time.Time
	// Running are the actions that are stored as Running, longest first, without those of continuous checks. One that is
	// Idempotent may run unseen.
	Running []RunningAction
	// Done and Actions are the numbers of final actions and of all actions, without those of continuous checks.
	Done, Actions int
	// StopRequested is the time of the stop request by the store's clock. It is zero if there is none.
	StopRequested time.Time
	// StopBy and StopWhy say who asked for the stop, and why. They are cut after 120 letters.
	StopBy, StopWhy string
	Condition       Condition
	// Stuck reports whether somebody should look at the plan.
	Stuck bool
	// Reason says in a few words why the plan is stuck or does not go on. It is empty if the plan works.
	Reason Reason
	// Why says in a sentence or two why the plan is stuck or is not, what this was concluded from, and what to do.
	// It may contain names that authors and engines chose.
	Why string
	// Err is the error of a plan that can't be read.
	Err error

	earlier  bool      // whether Err is that of an earlier inspection
	waits    time.Time // when the last delay ends that has begun
	unseen   bool      // an idempotent action may run, and is not stored as Running
	orphaned time.Time // since when inspections have seen it without a live owner; zero if it has one
}

// RunningAction is an action that is Running.
type RunningAction struct {
	// Path is that of [workflow.Paths], such as "europe/canary/restart".
	Path string
	// Since is when the action started.
	Since time.Time
	// Attempts is the number of attempts, including the present one.
	Attempts int
	// Timeout limits an attempt. It is 0 if the engine's default applies.
	Timeout time.Duration
}

// Doing says in a few words what runs, such as "europe/canary/restart and 2 more". It is empty if nothing is
// known to run.
func (p OpenPlan) Doing() string {
	switch n := len(p.Running); n {
	case 0:
		return ""
	case 1:
		return p.Running[0].Path
	default:
		return fmt.Sprintf("%s and %d more", p.Running[0].Path, n-1)
	}
}

// Inspect says who works on a vault, and what is stuck. It neither writes nor joins the fleet, and is safe beside
// engines.
//
// Inspect costs a Roster, a read for each copy of the vault, a Search for open plans, and a Read of each Running plan
// that was created longer than Older ago, or of all with ReadAll. The cost follows the number of open plans, and not
// that of final ones. MaxPlans and MaxReads bound it.
//
// A plan that can't be read has an Err, and the others follow. If the roster or the search fails, or ctx ends,
// Inspect returns the error with what it has found so far. Errors: [storage.ErrInvalid] for wrong options;
// otherwise those of Roster and Search.
func Inspect(ctx context.Context, store InspectStore, o InspectOptions) (Inspection, error) {
	i, err := begin(ctx, store, o)
	if i == nil {
		return Inspection{}, err
	}
	if err == nil {
		err = i.read(ctx)
	}
	i.conclude()
	return i.Inspection, err
}

// begin begins an inspection: it reads no plan yet. The inspector is nil if the error left nothing to inspect.
func begin(ctx context.Context, store InspectStore, o InspectOptions) (*inspector, error) {
	if o.Older < 0 {
		return nil, &storage.Error{Op: "Inspect", Err: driver.Invalid("InspectOptions.Older", "%v is negative", o.Older)}
	}
	if o.MaxPlans < 0 {
		return nil, &storage.Error{Op: "Inspect", Err: driver.Invalid("InspectOptions.MaxPlans", "%d is negative", o.MaxPlans)}
	}
	o.Older = cmp.Or(o.Older, DefaultOlder)
	roster, err := store.Roster(ctx)
	if err != nil {
		return nil, err
	}
	i := &inspector{store: store, o: o, Inspection: inspectRoster(roster), members: map[uuid.UUID]*MemberState{}, stops: map[uuid.UUID]storage.StopRequest{}}
	for n := range i.Members {
		i.members[i.Members[n].ID] = &i.Members[n]
	}
	for _, s := range roster.Stops {
		i.stops[s.Plan] = s
	}
	i.noteSuspension(ctx, roster)
	i.facts = fleetFacts{now: i.Now, older: o.Older, alive: i.Alive(), suspended: i.Suspended, within: i.takenWithin()}
	i.noteCopies(ctx, roster.Notes)
	err = i.search(ctx)
	i.recall()
	return i, err
}

// inspector makes an inspection.
type inspector struct {
	Inspection
	store   InspectStore
	o       InspectOptions
	facts   fleetFacts
	members map[uuid.UUID]*MemberState
	stops   map[uuid.UUID]storage.StopRequest
}

// inspectRoster returns an inspection of the members alone.
func inspectRoster(r storage.Roster) Inspection {
	i := Inspection{Now: r.Now}
	for _, m := range r.Members {
		if m.Phase == storage.Left {
			continue
		}
		silence := max(0, r.Now.Sub(m.Renewed))
		i.Members = append(i.Members, MemberState{Member: m, Silence: silence, Alive: silence <= ttlOf(m)})
	}
	return i
}

// ttlOf returns the TTL of a member, or the default if its record does not say it.
func ttlOf(m storage.Member) time.Duration { return cmp.Or(m.TTL, defaultTTL) }

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
			i.Plans = append(i.Plans, OpenPlan{ListResult: f.Result})
		case errors.Is(f.Err, storage.ErrForeign):
			i.Foreign++
		case id == uuid.Nil:
			return f.Err
		default:
			i.Plans = append(i.Plans, OpenPlan{ListResult: storage.ListResult{ID: id}, Err: f.Err})
		}
	}
	return nil
}

// recall builds on an earlier inspection, and notes what the roster says of the plans.
func (i *inspector) recall() {
	before := map[uuid.UUID]OpenPlan{}
	if i.o.Before != nil && i.o.MaxReads != 0 {
		for _, b := range i.o.Before.Plans {
			before[b.ID] = b
		}
	}
	for n := range i.Plans {
		p := &i.Plans[n]
		b, known := before[p.ID]
		known = known && p.Err == nil && b.Owner == p.Owner && b.Epoch == p.Epoch
		if known {
			p.build(b)
		}
		owner := i.place(p)
		switch {
		case p.OwnerState == OwnerNone && p.Epoch == 0 || p.OwnerState == OwnerAlive:
		case known && !b.orphaned.IsZero():
			p.orphaned = b.orphaned
		case p.OwnerState == OwnerSilent:
			p.orphaned = owner.Renewed.Add(ttlOf(owner.Member))
		default:
			p.orphaned = i.Now
		}
	}
}

// build takes over what an earlier inspection has read of the plan.
func (p *OpenPlan) build(b OpenPlan) {
	p.Read, p.ReadAt, p.Running, p.Done, p.Actions, p.waits, p.unseen = b.Read, b.ReadAt, b.Running, b.Done, b.Actions, b.waits, b.unseen
	p.Progress = latest(firstProgress(p.ListResult), b.Progress)
	if unreadable(b.Err) {
		p.Err, p.earlier = b.Err, true
	}
}

// place notes what the roster says of a plan, and returns the record of its owner.
func (i *inspector) place(p *OpenPlan) (owner *MemberState) {
	if p.Progress.IsZero() {
		p.Progress = firstProgress(p.ListResult)
	}
	owner = i.members[p.Owner]
	stop := i.stops[p.ID]
	p.StopRequested, p.StopBy, p.StopWhy = stop.Requested, cut(stop.By), cut(stop.Why)
	p.OwnerState = ownerState(p.ListResult, owner)
	return owner
}

// readAtOnce bounds the plans that an inspection reads at once.
const readAtOnce = 8

// read reads the plans whose progress must be known, and drops those that have ended meanwhile.
func (i *inspector) read(ctx context.Context) error {
	chosen := i.chosen()
	var mu sync.Mutex
	progress := storage.Progress{Total: int64(len(chosen))}
	err := atMost(readAtOnce, chosen, func(p *OpenPlan) error {
		p.ReadAt = i.Now
		plan, err := i.store.Read(ctx, p.ID)
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
		case i.o.MaxReads > 0:
			p.Unread = true
		default:
			p.Err = err
		}
	}
	i.Plans = slices.DeleteFunc(i.Plans, func(p OpenPlan) bool {
		return p.State.Status.Final() || errors.Is(p.Err, storage.ErrNotFound)
	})
	return err
}

// chosen returns the plans to read, and notes those that MaxReads leaves unread.
func (i *inspector) chosen() (chosen []*OpenPlan) {
	var more []*OpenPlan // those that need not be read
	for n := range i.Plans {
		p := &i.Plans[n]
		wanted := i.o.ReadAll || i.Now.Sub(workflow.Time(p.ID)) > i.o.Older
		switch {
		case p.Err != nil && !p.earlier || p.State.Status != workflow.Running:
		case i.o.MaxReads == 0 && wanted, i.o.MaxReads != 0 && i.facts.undecided(*p):
			chosen = append(chosen, p)
		case i.o.ReadMore && wanted:
			more = append(more, p)
		}
	}
	if i.o.MaxReads == 0 {
		return chosen
	}
	longest := func(a, b *OpenPlan) int { return a.known().Compare(b.known()) }
	if room := i.o.MaxReads - len(chosen); room >= 0 {
		slices.SortStableFunc(more, longest)
		return append(chosen, more[:min(room, len(more))]...)
	}
	slices.SortStableFunc(chosen, longest)
	most := max(0, i.o.MaxReads)
	for _, p := range chosen[most:] {
		p.Unread = !p.Read && p.Err == nil
	}
	return chosen[:most]
}

// known returns when somebody last tried to read the plan, or when it was created.
func (p OpenPlan) known() time.Time {
	return latest(workflow.Time(p.ID), p.ReadAt)
}

// conclude says how the plans are doing, and puts them in order.
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
		if p.Stuck && p.Read && p.ReadAt.Before(i.Now) {
			p.Why += fmt.Sprintf(" It was last read %s ago.", i.facts.ago(p.ReadAt))
		}
	}
	slices.SortFunc(i.Plans, stuckFirst)
}

// stuckFirst compares plans in the order of an inspection.
func stuckFirst(a, b OpenPlan) int {
	if a.Stuck != b.Stuck {
		if a.Stuck {
			return -1
		}
		return 1
	}
	return cmp.Or(a.Progress.Compare(b.Progress), driver.NewestFirst(b.ID, a.ID))
}

// takenWithin returns the time within which the live nodes take the plans of a dead member.
func (i *inspector) takenWithin() time.Duration {
	longest := time.Duration(0)
	for _, m := range i.Members {
		longest = max(longest, ttlOf(m.Member))
	}
	return longest + min(longest/2, math.MaxInt64-longest) // of the TTL, at most a third is the Interval; see docs/fleet.md
}

// ownerState says what the roster shows of the owner of a plan. member is nil if the owner has no record.
func ownerState(p storage.ListResult, member *MemberState) OwnerState {
	switch {
	case p.Owner == uuid.Nil:
		return OwnerNone
	case member == nil:
		return OwnerGone
	case !member.Alive:
		return OwnerSilent
	case slices.Contains(member.LetGo, p.ID):
		return OwnerGone
	}
	return OwnerAlive
}

// firstProgress returns the latest time that a listing shows of a plan.
func firstProgress(r storage.ListResult) time.Time {
	return latest(workflow.Time(r.ID), r.SubmitTime, r.State.Start)
}

func latest(times ...time.Time) time.Time {
	return slices.MaxFunc(times, time.Time.Compare).UTC()
}
