package protocol

import (
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// lives says that node 1 can find the plan.
func (d *discovery) lives() (breach, func(*findState) bool) {
	return unfound, func(st *findState) bool {
		n := &st.nodes[0]
		waiting := d.backlog && st.plan.status == notStarted // its turn comes after older ones
		return !st.plan.there || waiting || st.worker() >= 0 || !n.alive || n.record != member
	}
}

// TestDiscovery explores each situation to its end.
func TestDiscovery(t *testing.T) {
	list := []*discovery{{nodes: 1}, {nodes: 2}, {nodes: 2, backlog: true}, {nodes: 3}}
	holds(t, list[:efforttest.Pick(3, 3, 4)])
}

// findNeeds says for each rule in which situation which promise is broken without it.
var findNeeds = needs{
	{&discovery{nodes: 1}, unfound, rules{findNew, findJoined, findOwnLetGo, findTried}},
	{&discovery{nodes: 2}, unfound, rules{
		findOrder, findDeparted, findStranger, findLeftGone, findDeadGone, findMarkGone, findLongest, findGap, findAgain,
		findSecond, findWaiting, findLetGo, findListed, findFailed, findSettled,
	}},
	{&discovery{nodes: 2}, robbed, rules{findOneListing, findConfirmed, findAsksLast, findWithdrawn}},
	{&discovery{nodes: 2, backlog: true}, unfound, rules{findBacklog, findBegun}},
}
