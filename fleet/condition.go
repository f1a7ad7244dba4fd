package fleet

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Condition says how an open plan is doing.
type Condition string

// The conditions of a plan. But for ConditionTurn and the last two, a plan is stuck when it has made no progress, or was asked to stop,
// for longer than InspectOptions.Older.
const (
	// ConditionWorking: the owner is alive. An author's delay does not make a plan stuck.
	ConditionWorking Condition = "working"
	// ConditionStopping: the owner is alive, and the plan was asked to stop.
	ConditionStopping Condition = "stopping"
	// ConditionWaiting: the plan is NotStarted and waits for an engine.
	ConditionWaiting Condition = "waiting"
	// ConditionAsleep: the plan sleeps until a time, or must not begin before, and needs no node until then. It is stuck if it is
	// overdue, or was asked to stop.
	ConditionAsleep Condition = "asleep"
	// ConditionTurn: the plan waits for a turn for a key, and needs no node until there is one. It is stuck only if the record of
	// the key can't be read. OpenPlan.Turn says more.
	ConditionTurn Condition = "turn"
	// ConditionPaused: somebody has paused the plan, which waits to be resumed. It is stuck only if an action of it still runs, and
	// makes no progress.
	ConditionPaused Condition = "paused"
	// ConditionOrphaned: the owner is gone or silent. Such a plan is also stuck if no node is alive.
	ConditionOrphaned Condition = "orphaned"
	// ConditionUnclaimed: the plan has no owner and epoch 0. An engine without a fleet began it, and nothing shows whether that
	// engine is alive. Such a plan is also stuck if it was asked to stop, because the engine does not see the request.
	ConditionUnclaimed Condition = "unclaimed"
	// ConditionExternal: an engine of another kind places the plan, and nothing shows whether that engine is alive. No node
	// begins, takes or wakes the plan. It is stuck if it is overdue, too. While it is paused and nobody owns it, it is
	// ConditionPaused.
	ConditionExternal Condition = "external"
	// ConditionUnreadable: the plan can't be read until somebody repairs it or updates the programs. It is stuck.
	ConditionUnreadable Condition = "unreadable"
	// ConditionUnknown: reading the plan failed for a reason that may pass.
	ConditionUnknown Condition = "unknown"
)

// Reason is a code for why a plan is stuck or does not go on. [Reason.String] says it in words.
type Reason string

// The reasons. A plan that is not stuck has one of the first four, ReasonExternal, one of the last four, or none.
const (
	ReasonNoNode      Reason = "no-node"   // is alive, and the plan needs one
	ReasonSuspended   Reason = "suspended" // is the vault, and so no node is alive
	ReasonOwnerGone   Reason = "owner-gone"
	ReasonOwnerSilent Reason = "owner-silent"
	ReasonNotPickedUp Reason = "not-picked-up" // it is NotStarted or overdue, and nodes are alive
	ReasonNoProgress  Reason = "no-progress"
	ReasonStopIgnored Reason = "stop-ignored"
	ReasonUnclaimed   Reason = "unclaimed"
	ReasonExternal    Reason = "external" // an engine of another kind places it
	ReasonUnreadable  Reason = "unreadable"
	ReasonKeyDamaged  Reason = "key-damaged" // nobody gets a turn for a key of the plan
	ReasonTurn        Reason = "turn"        // it waits for one
	ReasonAsleep      Reason = "asleep"
	ReasonPaused      Reason = "paused"
	ReasonUnknown     Reason = "unknown" // reading it failed, or it is Unread
)

// Reasons returns all reasons for which a plan may be stuck.
func Reasons() []Reason {
	return []Reason{
		ReasonNoNode, ReasonSuspended, ReasonOwnerGone, ReasonOwnerSilent, ReasonNotPickedUp, ReasonNoProgress, ReasonStopIgnored,
		ReasonUnclaimed, ReasonExternal, ReasonUnreadable, ReasonKeyDamaged,
	}
}

// String says the reason in two or three words for people, such as "owner gone".
func (r Reason) String() string {
	switch r {
	case ReasonNoNode:
		return "no node alive"
	case ReasonExternal:
		return "placed by another engine"
	case ReasonSuspended:
		return "vault suspended"
	case ReasonTurn:
		return "waits for a turn"
	}
	return strings.ReplaceAll(string(r), "-", " ")
}

// Remedy says what to do about plans that are stuck for this reason. [OpenPlan.Why] says it for one plan.
func (r Reason) Remedy() string {
	switch r {
	case ReasonNoNode:
		return "No node is alive. Start an engine: it takes them all."
	case ReasonSuspended:
		return "No node works on a suspended vault. If its plans do not run elsewhere, resume it, and start an engine."
	case ReasonOwnerGone:
		return "No live node has taken them: the nodes may be full, or lack the plugins. Read their logs. Take a plan over to make them look again."
	case ReasonOwnerSilent:
		return "Their owners have been silent for longer than their TTL, and no live node has taken the plans: the nodes may be full, or lack the plugins. Read their logs."
	case ReasonNotPickedUp:
		return "The live nodes may be full, or lack the plugins. Read their logs, or start another node."
	case ReasonNoProgress:
		return "Their owners are alive, but have stored nothing for long. Look at the plugins. If one hangs, restart its node, or evict the node: the next owners run the actions again."
	case ReasonStopIgnored:
		return "They were asked to stop, and their owners are alive. Running actions are not cancelled. If a plugin hangs, restart its node, or evict the node: the next owners stop the plans."
	case ReasonUnclaimed:
		return "An engine without a fleet began them, so nothing shows whether it is alive. If it has died, start it again."
	case ReasonExternal:
		return "Engines of another kind place them, and no node does. Ask those engines: each plan says how. If one is gone for ever, take its plans over as external."
	case ReasonUnreadable:
		return "They are damaged, or newer than this program. Check the vault, and update the programs."
	case ReasonKeyDamaged:
		return "The record of a key of theirs can't be read, so nobody gets a turn for it. Repair the key: planvault key repair."
	case ReasonTurn:
		return "They wait for a turn for a key, which other plans have. planvault keys shows which."
	case ReasonAsleep:
		return "They sleep until the time that each shows. Stop wakes them."
	case ReasonPaused:
		return "Somebody has paused them. Resume each, or stop it."
	case ReasonUnknown:
		return "They may be stuck or not: they have not been read yet, or reading them failed. Look again."
	}
	return ""
}

// fleetFacts is what decides about a plan besides the plan and its owner.
type fleetFacts struct {
	now       time.Time
	older     time.Duration
	alive     int                 // how many members are alive
	blind     bool                // nobody has looked at the members
	suspended *storage.Suspension // nil if the vault is not suspended
	within    time.Duration       // how soon they take the plans of a dead member
}

// explain says how a plan is doing, whether it is stuck, and why, but for OpenPlan.ask. owner is nil if the plan's owner has no record.
func (f fleetFacts) explain(p OpenPlan, owner *MemberState) (c Condition, stuck bool, why string) {
	late := f.since(p.Progress) > f.older && !p.Unread
	switch {
	case p.Err != nil:
		return unreadableBecause(p.Err)
	case p.Plan.External != "" && (p.Plan.Owner != uuid.Nil || p.PausedSince.IsZero() || asked(p)):
		if p.Turn != nil && !asked(p) {
			late = p.Turn.Key.Err != nil
			return ConditionExternal, late, f.placed(p) + " " + f.whyTurn(*p.Turn)
		}
		late = f.lateOutside(p)
		return ConditionExternal, late, f.whyExternal(p, late)
	case !p.PausedSince.IsZero() && !asked(p):
		late = p.OwnerState == OwnerStateAlive && f.since(latest(p.Progress, p.PausedSince)) > f.older && !p.Unread
		return ConditionPaused, late, f.whyPaused(p, late)
	case p.Turn != nil && !asked(p):
		return ConditionTurn, p.Turn.Key.Err != nil, f.whyTurn(*p.Turn)
	case p.Plan.State.Status == workflow.NotStarted && !p.Plan.WakeAt.After(f.now):
		late = f.since(latest(p.Progress, p.Plan.WakeAt, p.turnsChanged)) > f.older
		return ConditionWaiting, late, f.whyWaiting(p, late)
	case p.Plan.Asleep():
		overdue := latest(p.Plan.WakeAt, p.turnsChanged)
		if asked(p) && p.StopRequested.Before(overdue) {
			overdue = p.StopRequested
		}
		late = f.since(overdue) > f.older
		return ConditionAsleep, late, f.whyAsleep(p, late)
	case p.OwnerState == OwnerStateNone && p.Plan.Epoch == 0:
		return ConditionUnclaimed, late || asked(p), f.whyUnclaimed(p, late)
	case p.OwnerState != OwnerStateAlive && p.OwnerState != OwnerStateUnknown:
		return ConditionOrphaned, late || f.deserted(), f.whyOrphaned(p, owner, late)
	case asked(p):
		late = f.since(p.StopRequested) > f.older
		return ConditionStopping, late, f.whyStopping(p, owner, late) + owner.reports()
	}
	waits := f.delayed(p)
	return ConditionWorking, late && !waits, f.whyWorking(p, owner, late, waits) + owner.reports()
}

// deserted reports whether no member is alive.
func (f fleetFacts) deserted() bool { return f.alive == 0 && !f.blind }

// delayed reports whether nothing runs because the plan's author wants it so.
func (f fleetFacts) delayed(p OpenPlan) bool {
	return p.Read && len(p.Running) == 0 && p.waits.After(p.Progress) && f.since(p.waits) <= f.older
}

// lateOutside reports whether a plan that an engine of another kind places is stuck.
func (f fleetFacts) lateOutside(p OpenPlan) bool {
	idle := latest(p.Progress, p.PausedSince)
	owned := p.Plan.Owner != uuid.Nil
	if !owned {
		idle = latest(idle, p.Plan.WakeAt, p.turnsChanged)
	}
	if asked(p) && (owned || p.StopRequested.Before(idle)) {
		return f.since(p.StopRequested) > f.older
	}
	return f.since(idle) > f.older && !p.Unread && !(owned && f.delayed(p))
}

// abandoned reports whether the plan has had no live owner for longer than older.
func (f fleetFacts) abandoned(p OpenPlan) bool {
	return !p.orphaned.IsZero() && f.since(p.orphaned) > f.older
}

// undecided reports whether a Running plan must be read to find out whether it is stuck.
func (f fleetFacts) undecided(p OpenPlan) bool {
	switch {
	case f.since(p.Progress) <= f.older || f.delayed(p) || p.Plan.Asleep():
		return false
	case p.OwnerState == OwnerStateAlive || p.OwnerState == OwnerStateExternal || p.OwnerState == OwnerStateNone && p.Plan.Epoch == 0:
		return !asked(p)
	}
	return f.alive > 0 && !f.abandoned(p)
}

// reason is the code of what explain says.
func (f fleetFacts) reason(p OpenPlan) Reason {
	switch {
	case p.Condition == ConditionUnreadable:
		return ReasonUnreadable
	case p.Condition == ConditionUnknown:
		return ReasonUnknown
	case p.Condition == ConditionExternal && !p.Unread:
		return ReasonExternal
	case p.Condition == ConditionTurn && p.Stuck:
		return ReasonKeyDamaged
	case p.Condition == ConditionTurn:
		return ReasonTurn
	case p.Condition == ConditionAsleep && !p.Stuck:
		return ReasonAsleep
	case p.Condition == ConditionPaused && !p.Stuck:
		return ReasonPaused
	case (p.Condition == ConditionWaiting || p.Condition == ConditionAsleep) && !f.deserted():
		return ReasonNotPickedUp
	case f.suspended != nil && f.deserted() && (p.Condition == ConditionWaiting || p.Condition == ConditionAsleep || p.Condition == ConditionOrphaned):
		return ReasonSuspended
	case p.Condition == ConditionWaiting || p.Condition == ConditionAsleep || p.Condition == ConditionOrphaned && f.deserted():
		return ReasonNoNode
	case p.Condition == ConditionOrphaned && p.OwnerState == OwnerStateSilent:
		return ReasonOwnerSilent
	case p.Condition == ConditionOrphaned:
		return ReasonOwnerGone
	case p.Unread:
		return ReasonUnknown
	case !p.Stuck:
		return ""
	}
	return map[Condition]Reason{ConditionWorking: ReasonNoProgress, ConditionPaused: ReasonNoProgress, ConditionStopping: ReasonStopIgnored, ConditionUnclaimed: ReasonUnclaimed}[p.Condition]
}

// since returns the time since t by the store's clock. It is not negative.
func (f fleetFacts) since(t time.Time) time.Duration { return max(0, f.now.Sub(t)) }

func asked(p OpenPlan) bool { return !p.StopRequested.IsZero() }
