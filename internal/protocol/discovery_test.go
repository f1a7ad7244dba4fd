package protocol

import (
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// explore visits all states of a situation, and then looks for one in which node 1 can't find the plan.
func (d *discovery) explore() report {
	d.visit(d, findState{})
	if d.report.violation != "" || !d.judges(unfound) {
		return d.report
	}
	helps := func(m move) bool { return m.helps }
	good := func(st *findState) bool {
		n := &st.nodes[0]
		waiting := d.backlog && st.plan.status == notStarted // its turn comes after older ones
		return !st.plan.there || waiting || st.worker() >= 0 || !n.alive || n.record != member
	}
	if id := d.stuck(d, helps, good); id >= 0 {
		d.report.violation = unfound.String()
		d.report.path = append(d.path(d, id), d.describe(move{0, -1, "does not find the plan", false}))
	}
	return d.report
}

// TestDiscovery explores each situation to its end.
func TestDiscovery(t *testing.T) {
	list := []*discovery{{nodes: 1}, {nodes: 2}, {nodes: 2, backlog: true}, {nodes: 3}}
	holds(t, list[:efforttest.Pick(3, 4, 4)])
}

// findNeeds says for each rule in which situation which promise is broken without it.
var findNeeds = map[rule]need{
	findNew:        {in: &discovery{nodes: 1}, promise: unfound},
	findOrder:      {in: &discovery{nodes: 2}, promise: unfound},
	findJoined:     {in: &discovery{nodes: 1}, promise: unfound},
	findDeparted:   {in: &discovery{nodes: 2}, promise: unfound},
	findStranger:   {in: &discovery{nodes: 2}, promise: unfound},
	findLeftGone:   {in: &discovery{nodes: 2}, promise: unfound},
	findDeadGone:   {in: &discovery{nodes: 2}, promise: unfound},
	findMarkGone:   {in: &discovery{nodes: 2}, promise: unfound},
	findLongest:    {in: &discovery{nodes: 2}, promise: unfound},
	findGap:        {in: &discovery{nodes: 2}, promise: unfound},
	findAgain:      {in: &discovery{nodes: 2}, promise: unfound},
	findSecond:     {in: &discovery{nodes: 2}, promise: unfound},
	findWaiting:    {in: &discovery{nodes: 2}, promise: unfound},
	findLetGo:      {in: &discovery{nodes: 2}, promise: unfound},
	findListed:     {in: &discovery{nodes: 2}, promise: unfound},
	findOwnLetGo:   {in: &discovery{nodes: 1}, promise: unfound},
	findFailed:     {in: &discovery{nodes: 2}, promise: unfound},
	findTried:      {in: &discovery{nodes: 1}, promise: unfound},
	findSettled:    {in: &discovery{nodes: 2}, promise: unfound},
	findOneListing: {in: &discovery{nodes: 2}, promise: robbed},
	findConfirmed:  {in: &discovery{nodes: 2}, promise: robbed},
	findAsksLast:   {in: &discovery{nodes: 2}, promise: robbed},
	findWithdrawn:  {in: &discovery{nodes: 2}, promise: robbed},
	findBacklog:    {in: &discovery{nodes: 2, backlog: true}, promise: unfound},
	findBegun:      {in: &discovery{nodes: 2, backlog: true}, promise: unfound},
}

// TestDiscoveryRules removes the rules one at a time.
func TestDiscoveryRules(t *testing.T) { removeRules(t, findNeeds) }
