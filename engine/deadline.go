package engine

import (
	"errors"
	"time"
)

// errDeadline is why the scope of a plan ends at its deadline. Nothing is stored before the outcome is: whoever takes the plan
// finds the deadline past.
var errDeadline = errors.New("the plan's deadline has passed")

// awaitDeadline stops the plan at its deadline: at once if that has passed. The caller calls end when the work has ended.
func (r *run) awaitDeadline() (end func()) {
	if r.plan.Deadline.IsZero() {
		return func() {}
	}
	left := r.plan.Deadline.Sub(r.now())
	if left <= 0 {
		r.expire() // before anything begins
		return func() {}
	}
	timer := time.AfterFunc(left, func() {
		r.slot.hurry()
		r.expire()
	})
	return func() { timer.Stop() }
}
