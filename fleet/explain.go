package fleet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// unread is said of a plan that may be stuck.
const unread = " It was not read, so its progress is not known."

// unreadableBecause explains a plan that could not be read.
func unreadableBecause(err error) (Condition, bool, string) {
	switch {
	case errors.Is(err, storage.ErrSchema):
		return ConditionUnreadable, true, fmt.Sprintf("It can't be read by this program, and perhaps by no engine: %v. Update the programs.", err)
	case unreadable(err):
		return ConditionUnreadable, true, fmt.Sprintf("It is damaged, so no engine runs it: %v. Check the plan, and repair it.", err)
	}
	return ConditionUnknown, false, fmt.Sprintf("Nothing is known of it, because reading it failed: %v. Try again.", err)
}

func (f fleetFacts) whyWaiting(p OpenPlan, late bool) string {
	why := fmt.Sprintf("It has not begun since it was created %s ago", f.ago(p.Progress))
	switch {
	case f.blind:
		why += ". Whether a node is alive to claim it, only the records of the nodes show."
	case f.alive == 0:
		why += ", and no node is alive to claim it. " + f.start("Start an engine.")
	case late:
		why += fmt.Sprintf(", although %s: a node may be full, or lack its plugins. Read the logs, or start another node.", f.nodes())
	default:
		why += fmt.Sprintf(", and %s to claim it.", f.nodes())
	}
	return why + f.stops(p, " It was asked to stop %s, and stops as soon as a node claims it.")
}

func (f fleetFacts) whyAsleep(p OpenPlan, late bool) string {
	at := p.Plan.WakeAt.UTC().Format(time.RFC3339)
	why := fmt.Sprintf("It sleeps until %s, in %s.", at, short(max(0, p.Plan.WakeAt.Sub(f.now))))
	if p.Plan.State.Status == workflow.NotStarted {
		why = fmt.Sprintf("It waits until %s, in %s: its author does not want it to begin before.", at, short(p.Plan.WakeAt.Sub(f.now)))
	}
	switch overdue := f.now.Sub(p.Plan.WakeAt); {
	case overdue > 0 && f.deserted():
		why = fmt.Sprintf("It slept until %s, and no node is alive to wake it. %s", at, f.start("Start an engine."))
	case overdue > 0 && late:
		why = fmt.Sprintf("It slept until %s, and nobody has woken it, although %s: a node may be full, or lack its plugins. Read the logs.", at, f.nodes())
	case overdue > 0:
		why = fmt.Sprintf("It slept until %s, and is about to be woken: %s.", at, f.nodes())
	}
	return why + f.awaits(p) + f.stops(p, " It was asked to stop %s, and stops as soon as a node wakes it.")
}

func (f fleetFacts) whyPaused(p OpenPlan, late bool) string {
	why := fmt.Sprintf("It was paused %s ago", f.ago(p.PausedSince))
	if p.PausedBy != "" {
		why += " by " + p.PausedBy
	}
	if p.PausedWhy != "" {
		why += " (" + p.PausedWhy + ")"
	}
	switch {
	case p.Plan.External != "":
		return why + ", and waits to be resumed. " + f.placed(p)
	case p.OwnerState != OwnerStateAlive:
		return why + ", and waits to be resumed."
	case late:
		return why + fmt.Sprintf(", but nothing has been stored for %s.", f.ago(p.Progress)) + f.runs(p) + " If the plugin hangs, restart the node, or evict it."
	}
	return why + ". It sleeps when its running actions have ended." + f.runs(p)
}

func (f fleetFacts) whyExternal(p OpenPlan, late bool) string {
	why := f.placed(p)
	at := p.Plan.WakeAt.UTC().Format(time.RFC3339)
	switch begun := p.Plan.State.Status != workflow.NotStarted; {
	case p.Plan.Owner != uuid.Nil && p.Unread:
		why += unread
	case p.Plan.Owner != uuid.Nil && !p.Read:
	case p.Plan.Owner != uuid.Nil:
		why += fmt.Sprintf(" Its last change was stored %s ago.", f.ago(p.Progress)) + f.runs(p) + f.ahead(p)
	case begun && p.Plan.WakeAt.After(f.now):
		why += fmt.Sprintf(" It sleeps until %s, in %s.", at, short(p.Plan.WakeAt.Sub(f.now)))
	case begun:
		why += fmt.Sprintf(" It slept until %s, and has not been woken.", at)
	case p.Plan.WakeAt.After(f.now):
		why += fmt.Sprintf(" It must not begin before %s, in %s.", at, short(p.Plan.WakeAt.Sub(f.now)))
	default:
		why += fmt.Sprintf(" It has not begun since it was created %s ago.", f.ago(p.Progress))
	}
	why += f.awaits(p)
	switch {
	case asked(p):
		why += f.stops(p, " It was asked to stop %s, which that engine sees "+heard)
	case !p.PausedSince.IsZero():
		why += fmt.Sprintf(" It was paused %s ago, which that engine sees "+heard, f.ago(p.PausedSince))
	}
	if late {
		why += " If that engine is gone for ever, take the plan over as external."
	}
	return why
}

// heard says when an engine of another kind sees what is asked of a plan.
const heard = "within 10s while it works on the plan, and otherwise when it runs the plan next."

// placed says who places a plan.
func (f fleetFacts) placed(p OpenPlan) string {
	return fmt.Sprintf("%s, an engine of another kind, places it, and no node does.", cut(p.Plan.External))
}

// ask says how to ask who places a plan. It comes last, as people copy the command.
func (p OpenPlan) ask() string {
	switch {
	case p.Plan.External == "" || p.Err != nil:
	case p.Ask != "":
		return " Ask it: " + p.Ask
	case !p.Read:
		return " The plan may say how to ask it."
	}
	return ""
}

func (f fleetFacts) whyUnclaimed(p OpenPlan, late bool) string {
	why := "An engine without a fleet began it, so no heartbeat shows whether that engine is alive."
	switch {
	case asked(p):
		return why + f.stops(p, " It was asked to stop %s, but such an engine does not see stop requests. Stop it in that engine.")
	case p.Unread:
		return why + unread
	case late:
		return why + fmt.Sprintf(" Nothing has been stored for %s.%s If the engine has died, start it again.", f.ago(p.Progress), f.runs(p))
	}
	return why
}

// start returns what to do where no node is alive. No node works on a suspended vault.
func (f fleetFacts) start(advice string) string {
	switch {
	case f.suspended == nil:
		return advice
	case f.suspended.MovedTo != "":
		return "The vault is suspended, and its plans run in " + f.suspended.MovedTo + "."
	case f.suspended.Copy:
		return "The vault is suspended, because it is a copy."
	}
	return "The vault is suspended until somebody resumes it."
}

func (f fleetFacts) whyOrphaned(p OpenPlan, owner *MemberState, late bool) string {
	why := "It has no owner"
	switch {
	case p.OwnerState == OwnerStateGone && owner != nil:
		why = fmt.Sprintf("Its owner, %s, has let it go", owner.called())
	case p.OwnerState == OwnerStateGone:
		why = fmt.Sprintf("Its owner, node %s, has left the fleet or died", p.Plan.Owner)
	case p.OwnerState == OwnerStateSilent:
		why = fmt.Sprintf("Its owner, %s, has been silent for %s, longer than its TTL of %s", owner.called(), short(owner.Silence), short(ttlOf(owner.Member)))
	}
	switch {
	case f.blind:
		why += ". Whether a node is alive to take it, only the records of the nodes show."
	case f.alive == 0:
		why += ", and no node is alive to take it. " + f.start("Start an engine: it takes the plan.")
	case late:
		why += fmt.Sprintf(", and nobody has taken it, although %s: a node may be full, or lack its plugins. Read the logs. Take the plan over to make the nodes look again.", f.nodes())
	default:
		why += fmt.Sprintf(". %s, and it is usually taken within %s.", f.nodes(), short(f.within))
	}
	if p.Unread {
		why += unread
	}
	return why + f.stops(p, " It was asked to stop %s, and stops as soon as a node takes it.")
}

func (f fleetFacts) whyStopping(p OpenPlan, owner *MemberState, late bool) string {
	why := fmt.Sprintf("It was asked to stop %s, and its owner%s", f.asked(p), lives(p, owner))
	if !late {
		return why + ". It stops when its running actions have ended."
	}
	return why + ", but it has not stopped." + f.runs(p) + " Actions that are running are not cancelled. If the plugin hangs, restart the node, or evict it: the next owner stops the plan."
}

func (f fleetFacts) whyWorking(p OpenPlan, owner *MemberState, late, waits bool) string {
	why := "Its owner" + lives(p, owner)
	switch {
	case waits:
		return why + fmt.Sprintf(". Nothing runs, and nothing has been stored for %s, but its author gave it a delay, which ends in %s.", f.ago(p.Progress), short(max(0, p.waits.Sub(f.now)))) + f.awaits(p)
	case p.Unread:
		return why + "." + unread
	case !late:
		return why + "." + f.runs(p) + f.awaits(p) + f.ahead(p)
	}
	why += fmt.Sprintf(", but nothing has been stored for %s.", f.ago(p.Progress)) + f.runs(p)
	switch {
	case len(p.Running) == 0 && p.unseen:
		return why + " An idempotent action may run, which is stored when it ends. If it or the node hangs, restart the node, or evict it."
	case len(p.Running) == 0 && slices.ContainsFunc(p.Waiting, func(w WaitingObject) bool { return w.For == endedHook }):
		return why + " Its work has ended, and its engine calls engine.Options.Ended, for an hour at most. Look at that hook."
	case len(p.Running) == 0:
		return why + " Nothing runs, so the node may hang: restart it, or evict it."
	}
	return why + " Look at the plugin. If it hangs, restart the node, or evict it: the next owner runs the action again, or stops the plan if it was asked to."
}

// awaits says what an action waits for, if its plugin says it.
func (f fleetFacts) awaits(p OpenPlan) string {
	for _, w := range p.Waiting {
		if w.What != "" {
			return fmt.Sprintf(" Action %s has waited for %s for: %s.", w.Path, f.ago(w.Since), w.What)
		}
	}
	return ""
}

// runs says what has run longest.
func (f fleetFacts) runs(p OpenPlan) string {
	if len(p.Running) == 0 {
		return ""
	}
	a := p.Running[0]
	text := fmt.Sprintf(" Action %s is running", a.Path)
	if !a.Since.IsZero() {
		text = fmt.Sprintf(" Action %s has been running for %s", a.Path, f.ago(a.Since))
	}
	if a.Attempts > 1 {
		text += fmt.Sprintf(", in its attempt %d", a.Attempts)
	}
	if a.Unended > 0 {
		text += fmt.Sprintf(", after %d that never ended", a.Unended)
	}
	if a.Timeout > 0 {
		text += fmt.Sprintf(", with a timeout of %s", short(a.Timeout))
	}
	if more := len(p.Running) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text + "."
}

// stops fills in the age of a stop request, if there is one.
func (f fleetFacts) stops(p OpenPlan, text string) string {
	if !asked(p) {
		return ""
	}
	return fmt.Sprintf(text, f.asked(p))
}

// ahead warns of an engine whose clock is ahead of the store's, because its progress looks too recent.
func (f fleetFacts) ahead(p OpenPlan) string {
	if by := p.Progress.Sub(f.now); by > clockSkew {
		return fmt.Sprintf(" Its engine's clock is %s ahead of the store's, so ages are not exact.", short(by))
	}
	return ""
}

// clockSkew is how far clocks differ before anybody should hear of it.
const clockSkew = time.Minute

// nodes says how many members are alive.
func (f fleetFacts) nodes() string {
	if f.alive == 1 {
		return "1 node is alive"
	}
	return fmt.Sprintf("%d nodes are alive", f.alive)
}

// lives says who owns a plan, and that its record shows a heartbeat, unless nobody has looked.
func lives(p OpenPlan, owner *MemberState) string {
	if owner == nil {
		return fmt.Sprintf(" is node %s (its record was not read)", p.Plan.Owner)
	}
	return fmt.Sprintf(", %s, is alive (heartbeat %s ago)", owner.called(), short(owner.Silence))
}

// called is what people call a member.
func (m MemberState) called() string {
	if m.Member.Name == "" {
		return "node " + m.Member.ID.String()
	}
	return fmt.Sprintf("node %s (%s)", cut(m.Member.Name), m.Member.ID)
}

// reports says what a member reports, if anything.
func (m *MemberState) reports() string {
	if m == nil || m.Member.Trouble == "" {
		return ""
	}
	return " It reports: " + m.Member.Trouble
}

// asked says when a plan was asked to stop, by whom, and why.
func (f fleetFacts) asked(p OpenPlan) string {
	text := f.ago(p.StopRequested) + " ago"
	if p.StopBy != "" {
		text += " by " + p.StopBy
	}
	if p.StopWhy != "" {
		text += " (" + p.StopWhy + ")"
	}
	return text
}

func (f fleetFacts) ago(t time.Time) string { return short(f.since(t)) }

// short returns a duration with one or two units, such as 45s, 15m or 3h20m.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Minute:
		d = d.Round(time.Second)
	case d < 100*time.Hour:
		d = d.Round(time.Minute)
	default:
		return fmt.Sprintf("%dd", int(d.Hours()/24))
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// mostName is the number of characters to which names are cut.
const mostName = 120

// cut shortens a name for people.
func cut(name string) string {
	n := 0
	for end := range name {
		if n++; n > mostName {
			return name[:end] + "…"
		}
	}
	return name
}
