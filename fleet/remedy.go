package fleet

// Remedy says in a few sentences what to do about plans that are stuck for this reason. [OpenPlan.Why] says it of a
// single plan.
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
	case ReasonUnreadable:
		return "They are damaged, or newer than this program. Check the vault, and update the programs."
	case ReasonUnknown:
		return "They may be stuck or not: they have not been read yet, or reading them failed. Look again."
	}
	return ""
}
