package fleet

import (
	"slices"
	"time"

	"github.com/planvault/azblob/workflow"
)

// note adds what reading the plan has shown.
func (p *OpenPlan) note(plan *workflow.Plan) {
	plan = workflow.InferRunning(plan)
	p.Read, p.Plan.Owner, p.Plan.Epoch, p.Plan.State.Status = true, plan.Owner, plan.Epoch, plan.State.Status
	p.Progress = latest(firstProgress(p.Plan), plan.State.Start, plan.RuntimeUpdate)
	p.Running, p.Done, p.Actions, p.waits, p.unseen = nil, 0, 0, time.Time{}, false // an earlier inspection may have set them
	cont := continuous(plan)
	for o, path := range workflow.Paths(plan) {
		if o == workflow.Object(plan) || cont[o] {
			continue
		}
		s := o.Header().State
		p.Progress = latest(p.Progress, s.Start, s.End)
		p.waits = latest(p.waits, waitsUntil(o))
		if a, ok := o.(*workflow.Action); ok {
			p.noteAction(a, path)
		}
	}
	slices.SortStableFunc(p.Running, func(a, b RunningAction) int { return a.Since.Compare(b.Since) })
}

func (p *OpenPlan) noteAction(a *workflow.Action, path string) {
	p.Actions++
	for _, t := range a.Attempts {
		p.Progress = latest(p.Progress, t.Start, t.End)
	}
	switch {
	case a.State.Status.Final():
		p.Done++
	case a.State.Status == workflow.Running:
		p.Running = append(p.Running, RunningAction{Path: path, Since: a.State.Start, Attempts: len(a.Attempts), Timeout: a.Timeout})
	case a.Idempotent:
		p.unseen = true
	}
}

// waitsUntil returns when the delay ends that an object has begun, or the zero time.
func waitsUntil(o workflow.Object) time.Time {
	s := o.Header().State
	switch o := o.(type) {
	case *workflow.Block:
		if s.Status == workflow.Completed {
			return s.End.Add(o.ExitDelay)
		}
		if s.Status == workflow.Running {
			return s.Start.Add(o.EntranceDelay)
		}
	case *workflow.Checks:
		if s.Status == workflow.Running {
			return s.Start.Add(o.Delay)
		}
	}
	return time.Time{}
}

// continuous returns the continuous checks of a plan, with all that is below them.
func continuous(plan *workflow.Plan) map[workflow.Object]bool {
	cont := map[workflow.Object]bool{}
	for o, parent := range workflow.Walk(plan) {
		if checks := workflow.ChecksOf(parent); checks != nil && workflow.Object(*checks[2]) == o || cont[parent] {
			cont[o] = true
		}
	}
	return cont
}
