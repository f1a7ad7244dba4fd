package workflow

import "github.com/google/uuid"

// InferRunning returns a Running plan as it is: what is above an object that has begun is Running, also if its engine has
// not stored that. Package engine stores the end of a block, of checks, of a sequence or a batch, and the beginning only
// where something depends on it. A sub-object that is NotStarted has begun if something below it has, at the earliest
// start below it. What a fork carried over has not begun: it started before the plan did.
//
// InferRunning does not change p. The result is a [Copy] of a Running plan, and any other plan itself.
func InferRunning(p *Plan) *Plan {
	if p == nil || p.State.Status != Running {
		return p
	}
	p = Copy(p)
	p.infer(p)
	return p
}

// infer makes Running what has begun at and below o.
func (p *Plan) infer(o Object) {
	s := o.Header().State
	inferred := s.Status == NotStarted
	for child := range Children(o) {
		p.infer(child)
		c := child.Header().State
		carried := p.ForkedFrom != uuid.Nil && c.Status.Final() && c.Start.Before(p.State.Start)
		if inferred && c.Status != NotStarted && !carried && (s.Status == NotStarted || c.Start.Before(s.Start)) {
			s.Status, s.Start = Running, c.Start
		}
	}
}
