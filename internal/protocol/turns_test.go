package protocol

import (
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

func (x *turns) lives() (breach, func(*turnState) bool) { return turnLost, (*turnState).ended }

// The limits that the plans of a situation name.
var (
	turnOne   = [mostTurns]uint8{1, 1, 1}
	turnTwo   = [mostTurns]uint8{2, 2, 2}
	turnMixed = [mostTurns]uint8{1, 2, 2}
)

// TestTurns explores each situation to its end.
func TestTurns(t *testing.T) {
	list := []*turns{
		{nodes: 2, plans: 2, limits: turnOne, sleeps: true, keeps: true, late: true},
		{nodes: 2, plans: 2, limits: turnOne, sleeps: true, stills: true},
		{nodes: 2, plans: 2, limits: turnOne, two: true},
		{nodes: 2, plans: 3, limits: turnMixed},
		{nodes: 2, plans: 2, limits: turnOne, sleeps: true, keeps: true, loses: true, late: true},
		{nodes: 2, plans: 2, limits: turnOne, sleeps: true, keeps: true, damages: true},
		{nodes: 2, plans: 2, limits: turnTwo, keeps: true, operator: true, damages: true},
		{nodes: 2, plans: 2, limits: turnOne, sleeps: true, keeps: true, deletes: true},
		{nodes: 2, plans: 2, limits: turnOne, unique: true, sleeps: true, late: true},
		{nodes: 2, plans: 3, limits: turnOne, unique: true, forks: true},

		{nodes: 2, plans: 3, limits: turnMixed, operator: true},
		{nodes: 2, plans: 3, limits: turnMixed, sleeps: true, keeps: true, loses: true},
		{nodes: 2, plans: 3, limits: turnTwo, loses: true},
		{nodes: 2, plans: 2, limits: turnOne, two: true, keeps: true, loses: true},
		{nodes: 3, plans: 2, limits: turnOne, sleeps: true, keeps: true, late: true},

		{nodes: 2, plans: 3, limits: turnTwo, loses: true, late: true},
		{nodes: 2, plans: 3, limits: turnTwo, keeps: true, operator: true, damages: true},
		{nodes: 2, plans: 2, limits: turnOne, two: true, sleeps: true, keeps: true, deletes: true, late: true},
		{nodes: 2, plans: 2, limits: turnOne, unique: true, deletes: true, late: true},
		{nodes: 2, plans: 3, limits: turnOne, unique: true, sleeps: true, deletes: true, forks: true},
		{nodes: 3, plans: 2, limits: turnOne, unique: true, deletes: true},
		{nodes: 3, plans: 2, limits: turnOne, sleeps: true, keeps: true, deletes: true, loses: true},
		{nodes: 3, plans: 3, limits: turnMixed, sleeps: true, keeps: true},
		{nodes: 3, plans: 3, limits: turnTwo, loses: true},
		{nodes: 2, plans: 2, limits: turnOne, two: true, sleeps: true, keeps: true, loses: true, deletes: true},
		{nodes: 2, plans: 3, limits: turnTwo, keeps: true, loses: true, deletes: true},
	}
	holds(t, list[:efforttest.Pick(10, 15, len(list))])
}

// turnNeeds says for each rule in which situation which promise is broken without it.
var turnNeeds = needs{
	{&turns{nodes: 2, plans: 2, limits: turnOne, sleeps: true, keeps: true, late: true}, turnTooMany, rules{
		turnClaim, turnAnew, turnWrites, turnMatch, turnRoom, turnLast, turnThen, turnRemoval, turnKinds, turnKept, turnSchema,
	}},
	{&turns{nodes: 2, plans: 2, limits: turnOne, sleeps: true, keeps: true}, turnLost, rules{turnSweep}},
	{&turns{nodes: 2, plans: 2, limits: turnOne, sleeps: true, stills: true}, turnLost, rules{turnResting, turnUnbegun}},
	{&turns{nodes: 2, plans: 2, limits: turnMixed}, turnTooMany, rules{turnNamed}},
	{&turns{nodes: 2, plans: 2, limits: turnTwo, operator: true}, turnNoRoom, rules{turnPause}},
	{&turns{nodes: 2, plans: 2, limits: turnTwo, operator: true}, turnRobbed, rules{turnHas}},
	{&turns{nodes: 2, plans: 2, limits: turnOne, two: true}, turnTooMany, rules{turnAll}},
	{&turns{nodes: 2, plans: 2, limits: turnOne, two: true}, turnLost, rules{turnHolds}},
	{&turns{nodes: 2, plans: 3, limits: turnOne}, turnTooMany, rules{turnMark}},
	{&turns{nodes: 2, plans: 2, limits: turnOne, sleeps: true, keeps: true, loses: true, late: true}, turnTooMany, rules{turnSearch, turnAfter}},
	{&turns{nodes: 2, plans: 2, limits: turnOne, loses: true}, turnTooMany, rules{turnItself}},
	{&turns{nodes: 2, plans: 2, limits: turnOne, damages: true}, turnTooMany, rules{turnRepair}},
	{&turns{nodes: 2, plans: 2, limits: turnTwo, operator: true, damages: true}, turnNoRoom, rules{turnDamaged}},
	{&turns{nodes: 2, plans: 2, limits: turnTwo, keeps: true, operator: true, damages: true}, turnLost, rules{turnLooks}},
	{&turns{nodes: 2, plans: 2, limits: turnOne, unique: true}, turnTwoOpen, rules{turnReserve, turnYoung, turnReserved, turnRenews}},
	{&turns{nodes: 2, plans: 2, limits: turnOne, unique: true}, turnTooMany, rules{turnConfirm}},
}

// TestTurnLimits shows what is not promised: Submit does not search, so it may admit a second plan with a Unique whose record was
// lost, and both work. No plan waits for ever.
func TestTurnLimits(t *testing.T) {
	for promise, want := range map[breach]breach{turnTooMany: turnTooMany, turnLost: 0} {
		x := &turns{nodes: 2, plans: 2, limits: turnOne, unique: true, loses: true, mutant: mutant{only: promise}}
		x.explore(x).want(t, want)
	}
}
