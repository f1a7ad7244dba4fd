package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Inspection says who works on a vault, and what is stuck.
type Inspection struct {
	// Now is the store's clock, by which the ages of members and stop requests are measured. The times of plans
	// are by the clocks of their engines.
	Now time.Time
	// Members are the members that have not left, in the order in which they joined.
	Members []MemberState
	// Suspended says who has suspended the vault, and why. It is nil if the vault is not suspended.
	Suspended *storage.Suspension
	// Keys are the keys for which plans wait, most waited for first. Their Plans is not set, and of those that were not read, only
	// Waiting and Next are known.
	Keys []KeyState
	// Copies are the copies of the vault that its notes name.
	Copies []CopyState
	// Plans are the open plans: stuck plans first, and those with the oldest progress first among them.
	Plans []OpenPlan
	// More reports whether there are more open plans than MaxPlans. They are older than those in Plans.
	More bool
	// Unread is the number of plans that are [OpenPlan.Unread].
	Unread int
	// Foreign is the number of plans of another program, open or not, that the search met.
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
		if p.OwnerState == OwnerStateGone && !slices.ContainsFunc(i.Members, func(m MemberState) bool { return m.Member.ID == p.Plan.Owner }) {
			gone[p.Plan.Owner]++
		}
	}
	return gone
}

// MemberState is a member, and what its record shows.
type MemberState struct {
	Member storage.Member
	// Silence is the time since the last heartbeat. It is not negative.
	Silence time.Duration
	// Alive reports whether the silence is not longer than the TTL. The other nodes remove the record of a dead
	// member and take its plans.
	Alive bool
	// Plans is the number of open plans that the member owns, among those that were looked at.
	Plans int
}

// CopyState is a copy of the vault, and how far it is behind. The program that keeps the copy up to date stores a note
// whose name begins with [storage.NoteCopy].
type CopyState struct {
	// Name is the rest of the note's name, and To says for people where the copy is.
	Name, To string
	// CaughtUp is the time, by the store's clock, up to which the copy has everything. It is zero if the note does
	// not say it.
	CaughtUp time.Time
	// Lag is the time since CaughtUp. It is not negative.
	Lag time.Duration

	version storage.Version // of the note
}

// OwnerState says what the roster shows of a plan's owner.
type OwnerState string

// The states of an owner.
const (
	// OwnerStateNone: the plan has no owner. It is NotStarted, or an engine without a fleet began it.
	OwnerStateNone OwnerState = "none"
	// OwnerStateAlive: the owner has renewed its record within its TTL.
	OwnerStateAlive OwnerState = "alive"
	// OwnerStateSilent: the owner has a record that is older than its TTL, so other nodes are about to remove it.
	OwnerStateSilent OwnerState = "silent"
	// OwnerStateGone: the owner has left or died, or it has let the plan go. Any node takes the plan.
	OwnerStateGone OwnerState = "gone"
	// OwnerStateExternal: the owner belongs to an engine of another kind, which has no record.
	OwnerStateExternal OwnerState = "external"
	// OwnerStateUnknown: the plan has an owner, and its record was not looked at: see [Describe].
	OwnerStateUnknown OwnerState = "unknown"
)

// OpenPlan is a plan that is not final, or was not when an inspection found it.
type OpenPlan struct {
	// Plan is what listings show. It has the plan's ID alone if the plan can't be read.
	Plan       storage.ListResult
	OwnerState OwnerState
	// Read reports whether the plan was read, by this inspection or by an earlier one. Running, Done and Actions are
	// known only then, and are those of ReadAt.
	Read bool
	// ReadAt is the time of the last inspection that tried to read the plan, by the store's clock.
	ReadAt time.Time
	// Unread reports whether the plan may be stuck, but was not read because of MaxReads or NoReads. It does not count as stuck.
	Unread bool
	// Progress is the latest change that is stored in the plan: the times of its states and attempts. If the plan
	// was not read, it is the plan's own start or creation. Continuous checks are no progress.
	Progress time.Time
	// Running are the actions that are stored as Running, longest first, without those of continuous checks and those whose
	// plugin is to be called again, which are Waiting. An Idempotent action may run without being stored.
	Running []RunningAction
	// Waiting are the objects that wait for a time, the earliest first and those without Until last.
	Waiting []WaitingObject
	// Done and Actions are the numbers of final actions and of all actions, without those of continuous checks.
	Done, Actions int
	// Failure says of a plan that is Failed which action failed first, and begins why, without secrets:
	// "europe/canary/restart: no route to host". The text is cut after a line or 120 letters.
	Failure string
	// Ask is how to ask the engine of another kind that places the plan. It is known only if the plan was read.
	Ask string
	// StopRequested is the time of the stop request by the store's clock. It is zero if there is none.
	StopRequested time.Time
	// StopBy and StopWhy say who asked for the stop, and why. They are cut after 120 letters.
	StopBy, StopWhy string
	// PausedSince is when the plan was paused, by the store's clock. It is zero if it is not paused. PausedBy and PausedWhy say by
	// whom, and why. They are cut after 120 letters.
	PausedSince         time.Time
	PausedBy, PausedWhy string
	// Turn says for which turn the plan waits. It is nil if it waits for none.
	Turn      *TurnWait
	Condition Condition
	// Stuck reports whether somebody should look into it.
	Stuck bool
	// Reason is why the plan is stuck or does not go on. It is empty if the plan works.
	Reason Reason
	// Why says in a sentence or two why the plan is stuck or is not, what this was concluded from, and what to do.
	// It may contain names that authors and engines chose.
	Why string
	// Err is the error of a plan that can't be read.
	Err error

	turnsChanged time.Time // when it may have begun to find room: the records of its keys changed, or it was asked to stop
	others       int       // how many plans wait for the turn of this one for the key wanted
	wanted       string

	pause     storage.Version // of the note that pauses it
	signalled bool            // it has a signal that wakes it
	earlier   bool            // whether Err is that of an earlier inspection
	waits     time.Time       // when the last delay ends that has begun
	unseen    bool            // an idempotent action may run, and is not stored as Running
	orphaned  time.Time       // since when inspections have seen it without a live owner; zero if it has one
}

// RunningAction is an action that is Running.
type RunningAction struct {
	// Path is that of [workflow.Paths], such as "europe/canary/restart".
	Path string
	// Since is when the action started.
	Since time.Time
	// Attempts is the number of attempts, including the present one.
	Attempts int
	// Unended is the number of earlier attempts that never ended, because their process died or lost the plan.
	Unended int
	// Timeout limits an attempt. It is 0 if the engine's default applies.
	Timeout time.Duration
}

// WaitingObject is an object that waits for a time.
type WaitingObject struct {
	// Path is that of [workflow.Paths]. That of the plan is empty.
	Path string
	// For is what it waits for: "entrance delay", "exit delay", "delay" of checks, "retry" or "next call" of an action, or the
	// plan for the "Ended hook" of its engine.
	For string
	// Until is when the wait ends. It is zero for a hook, and for a retry, whose end the plan does not show: the engine's
	// Status does.
	Until time.Time
	// Since is when the wait began.
	Since time.Time
	// What is what the plugin says it waits for, cut after 120 letters, such as "approvals, has 1 of 2". It may be empty.
	What string
}

// Compare orders waits by their ends. One without Until is the last.
func (w WaitingObject) Compare(other WaitingObject) int {
	if w.Until.IsZero() != other.Until.IsZero() {
		return other.Until.Compare(w.Until)
	}
	return w.Until.Compare(other.Until)
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

// Describe says how a plan is doing, as far as the plan itself shows it at a time by the store's clock. It sends no request.
// Whether nodes are alive, and what the roster shows besides, is not known: [Inspect] asks. A plan is stuck if it has made no
// progress for [DefaultOlder]. A final plan has no Condition.
func Describe(plan *workflow.Plan, now time.Time) OpenPlan {
	p := OpenPlan{Plan: driver.Listed(plan), OwnerState: OwnerStateUnknown, ReadAt: now, StopRequested: plan.Stopped.At, StopBy: cut(plan.Stopped.By), StopWhy: cut(plan.Stopped.Why)}
	p.notePause(plan.Paused)
	if plan.Owner == uuid.Nil || plan.External.Name != "" {
		p.OwnerState = ownerState(p.Plan, nil)
	}
	p.note(plan)
	if !plan.State.Status.Final() {
		facts := fleetFacts{now: now, older: DefaultOlder, blind: true}
		if p.PausedSince.IsZero() {
			p.Turn = sleepsFor(p.Plan, now)
		}
		p.Condition, p.Stuck, p.Why = facts.explain(p, nil)
		p.Reason = facts.reason(p)
		p.Why += p.ask()
	}
	return p
}

// notePause notes who has paused the plan.
func (p *OpenPlan) notePause(by workflow.Attribution) {
	p.PausedSince, p.PausedBy, p.PausedWhy = by.At.UTC(), cut(by.By), cut(by.Why)
}

// stuckFirst compares plans in the order of an inspection.
func stuckFirst(a, b OpenPlan) int {
	if a.Stuck != b.Stuck {
		if a.Stuck {
			return -1
		}
		return 1
	}
	return cmp.Or(a.Progress.Compare(b.Progress), driver.NewestFirst(b.Plan.ID, a.Plan.ID))
}

// ownerState says what the roster shows of the owner of a plan. member is nil if the owner has no record.
func ownerState(p storage.ListResult, member *MemberState) OwnerState {
	switch {
	case p.Owner == uuid.Nil:
		return OwnerStateNone
	case p.External != "":
		return OwnerStateExternal
	case member == nil:
		return OwnerStateGone
	case !member.Alive:
		return OwnerStateSilent
	case slices.Contains(member.Member.LetGo, p.ID):
		return OwnerStateGone
	}
	return OwnerStateAlive
}

// ttlOf returns the TTL of a member, or the default if its record does not say it.
func ttlOf(m storage.Member) time.Duration { return cmp.Or(m.TTL, DefaultTTL) }

// inspectRoster returns an inspection of the members alone.
func inspectRoster(r storage.Roster) Inspection {
	i := Inspection{Now: r.Now}
	for _, m := range r.Members {
		if m.Phase == storage.PhaseLeft {
			continue
		}
		silence := max(0, r.Now.Sub(m.Renewed))
		i.Members = append(i.Members, MemberState{Member: m, Silence: silence, Alive: silence <= ttlOf(m)})
	}
	return i
}
