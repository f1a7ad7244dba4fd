package fleet

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// note adds what reading the plan has shown.
func (p *OpenPlan) note(plan *workflow.Plan) {
	plan = workflow.InferRunning(plan)
	p.Read, p.Plan.Owner, p.Plan.Epoch, p.Plan.State.Status = true, plan.Owner, plan.Epoch, plan.State.Status
	p.Plan.External, p.Ask = driver.Listed(plan).External, plan.External.Ask
	p.Progress = latest(firstProgress(p.Plan), plan.State.Start, plan.RuntimeUpdate)
	p.Running, p.Waiting, p.Done, p.Actions, p.waits, p.unseen = nil, nil, 0, 0, time.Time{}, false // an earlier inspection may have set them
	if at := plan.Ending.At; !at.IsZero() && !plan.State.Status.Final() {
		p.Progress = latest(p.Progress, at)
		p.Waiting = append(p.Waiting, WaitingObject{For: endedHook, Since: at})
	}
	cont := continuous(plan)
	for o, path := range workflow.Paths(plan) {
		if o == workflow.Object(plan) || cont[o] {
			continue
		}
		s := o.Header().State
		p.Progress = latest(p.Progress, s.Start, s.End)
		if w := waitOf(o, path); w.For != "" {
			p.waits = latest(p.waits, w.Until)
			if w.Until.IsZero() || w.Until.After(p.ReadAt) {
				p.Waiting = append(p.Waiting, w)
			}
		}
		if a, ok := o.(*workflow.Action); ok {
			p.noteAction(a, path)
		}
	}
	if plan.State.Status == workflow.Failed {
		p.Failure = failure(plan)
	}
	slices.SortStableFunc(p.Waiting, WaitingObject.Compare)
	slices.SortStableFunc(p.Running, func(a, b RunningAction) int { return a.Since.Compare(b.Since) })
}

// failure says which action of a plan failed first, and why, unless it is a bypass check.
func failure(plan *workflow.Plan) string {
	var first *workflow.Action
	bypass := map[workflow.Object]bool{}
	for o, parent := range workflow.Walk(plan) {
		if checks := workflow.ChecksOf(parent); checks != nil && workflow.Object(*checks[0]) == o {
			bypass[o] = true
		}
		a, ok := o.(*workflow.Action)
		if ok && a.State.Status == workflow.Failed && !bypass[parent] && (first == nil || a.State.End.Before(first.State.End)) {
			first = a
		}
	}
	if first == nil {
		return ""
	}
	text := maps.Collect(workflow.Paths(plan))[first]
	if n := len(first.Attempts); n > 0 && first.Attempts[n-1].Err != nil {
		line, _, _ := strings.Cut(first.RedactText(first.Attempts[n-1].Err.Error()), "\n")
		text += ": " + cut(line)
	}
	return text
}

func (p *OpenPlan) noteAction(a *workflow.Action, path string) {
	p.Actions++
	for _, t := range a.Attempts {
		p.Progress = latest(p.Progress, t.Start, t.End)
	}
	switch {
	case a.State.Status.Final():
		p.Done++
	case waitOf(a, path).For == nextCall:
	case a.State.Status == workflow.Running:
		p.Running = append(p.Running, RunningAction{Path: path, Since: a.State.Start, Attempts: len(a.Attempts), Unended: unended(a), Timeout: a.Timeout})
	case a.Idempotent:
		p.unseen = true
	}
}

// endedHook is what a plan waits for that is about to end.
const endedHook = "Ended hook"

// nextCall is what an action waits for whose plugin is to be called again.
const nextCall = "next call"

// unended counts the attempts before the last one that never ended.
func unended(a *workflow.Action) (n int) {
	for _, t := range a.Attempts[:max(0, len(a.Attempts)-1)] {
		if t.End.IsZero() && !t.Interrupted {
			n++
		}
	}
	return n
}

// waitOf returns the wait that an object has begun, without For if there is none.
func waitOf(o workflow.Object, path string) WaitingObject {
	s := o.Header().State
	after := func(what string, since time.Time, delay time.Duration) WaitingObject {
		if delay <= 0 {
			return WaitingObject{}
		}
		return WaitingObject{Path: path, For: what, Until: since.Add(delay).UTC(), Since: since}
	}
	switch o := o.(type) {
	case *workflow.Block:
		if s.Status == workflow.Completed {
			return after("exit delay", s.End, o.ExitDelay)
		}
		if s.Status == workflow.Running {
			return after("entrance delay", s.Start, o.EntranceDelay)
		}
	case *workflow.Checks:
		if s.Status == workflow.Running {
			return after("delay", s.Start, o.Delay)
		}
	case *workflow.Action:
		if l := o.Later(); l != nil && !l.Called && s.Status == workflow.Running {
			return WaitingObject{path, nextCall, l.At.UTC(), o.Attempts[len(o.Attempts)-1].Start, cut(l.For)}
		}
		if n := len(o.Attempts); s.Status == workflow.Running && n > 0 && o.Attempts[n-1].Err != nil && !o.Attempts[n-1].End.IsZero() && !o.Attempts[n-1].Paused {
			return WaitingObject{Path: path, For: "retry", Since: o.Attempts[n-1].End}
		}
	}
	return WaitingObject{}
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
