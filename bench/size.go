package main

import (
	"fmt"
	"time"

	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

// size is a plan that operations are measured on. The zero value means no plan.
type size struct {
	name string
	plan func() *workflow.Plan
}

const largestPlan = "L"

func sizes() []size {
	return []size{
		{"S", plantest.Small},
		{"M", medium},
		{largestPlan, func() *workflow.Plan { return plantest.Sized(4, 10, 25) }},
	}
}

// medium is a plan of 60 actions: 50 in sequences, 10 in the plan's checks.
func medium() *workflow.Plan {
	p := plantest.Sized(2, 5, 5)
	spare := plantest.Sized(1, 5, 2).Blocks[0].Sequences
	for i, c := range workflow.ChecksOf(p) {
		*c = &workflow.Checks{Actions: spare[i].Actions}
	}
	return p
}

// unbypassed is M without bypass checks. They succeed, and an engine would not run the blocks.
func unbypassed() *workflow.Plan {
	p := medium()
	p.BypassChecks = nil
	return p
}

// subObjects counts a plan's sub-objects by kind.
func subObjects(p *workflow.Plan) map[workflow.Kind]int {
	n := map[workflow.Kind]int{}
	for _, o := range workflow.Parts(p) {
		n[o.Kind()]++
	}
	return n
}

// actionsOf returns all actions of a plan.
func actionsOf(p *workflow.Plan) (actions []*workflow.Action) {
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok {
			actions = append(actions, a)
		}
	}
	return actions
}

// shape is the contents of a vault that operations are measured in. The zero value is an empty vault.
type shape struct {
	plans, days, open int
	waiting           bool // the open plans are NotStarted
}

// fillingAt returns the contents of a vault of a shape, up to a time.
func fillingAt(s shape, now time.Time) fill.Filling {
	return fill.Filling{Plans: s.plans, Days: s.days, Open: s.open, Waiting: s.waiting, End: now.UTC()}
}

const (
	smallestVault = 100
	largestVault  = 1_000_000
)

func shapes() (list []shape) {
	for _, plans := range []int{smallestVault, 10_000, largestVault} {
		for _, days := range []int{1, 14} {
			list = append(list, shape{plans: plans, days: days})
		}
	}
	return list
}

func (s shape) String() string {
	switch {
	case s.waiting:
		return fmt.Sprintf("%d not started of %d plans in %d days", s.open, s.plans, s.days)
	case s.open > 0:
		return fmt.Sprintf("%d open of %d plans in %d days", s.open, s.plans, s.days)
	case s.days == 1:
		return fmt.Sprintf("%d plans in 1 day", s.plans)
	}
	return fmt.Sprintf("%d plans in %d days", s.plans, s.days)
}
