package workflow

import "github.com/google/uuid"

// InferRunning returns a Running plan as it is: what is above an object that has begun is Running, also if its engine has
// not stored that. Package engine stores the end of a block, of checks, of a sequence or a batch, and the beginning only
// where something depends on it. A sub-object that is NotStarted has begun if something below it has, at the earliest
// start below it. What a fork carried over has not begun: it started before the plan did.
//
// InferRunning does not change p. The result is p itself if there is nothing to infer, and otherwise a [Copy].
func InferRunning(p *Plan) *Plan {
	if p == nil || p.State.Status != Running || !p.lacksRunning() {
		return p
	}
	p = Copy(p)
	p.infer(p)
	return p
}

// lacksRunning reports whether there is something to infer.
func (p *Plan) lacksRunning() bool {
	for o, parent := range Walk(p) {
		if parent != nil && parent.Header().State.Status == NotStarted && p.hasBegun(o) {
			return true
		}
	}
	return false
}

// infer makes Running what has begun at and below o.
func (p *Plan) infer(o Object) {
	s := o.Header().State
	inferred := s.Status == NotStarted
	for child := range Children(o) {
		p.infer(child)
		if start := child.Header().State.Start; inferred && p.hasBegun(child) && (s.Status == NotStarted || start.Before(s.Start)) {
			s.Status, s.Start = Running, start
		}
	}
}

// hasBegun reports whether a sub-object has begun and was not carried over.
func (p *Plan) hasBegun(o Object) bool {
	s := o.Header().State
	carried := p.ForkedFrom != uuid.Nil && s.Status.Final() && s.Start.Before(p.State.Start)
	return s.Status != NotStarted && !carried
}
