package fleet

import (
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// The errors of a fleet, for errors.Is. They come together with the errors of package storage.
var (
	// ErrFenced means that the plan, or all plans of the node, belong to somebody else now. What the caller
	// has in memory is out of date. It lets the plan go.
	ErrFenced = errors.New("fenced: another node owns the plan, or may take it")
	// ErrOwned means that somebody else works on the plan, or may: another member, an engine without claims, or an engine of
	// another kind. An [OwnedError] says who, if the plan names its owner.
	ErrOwned = errors.New("somebody else works on the plan")
	// ErrAsleep means that the plan sleeps, or must not begin yet, and is not due. No node owns it.
	ErrAsleep = errors.New("the plan sleeps")
	// ErrNotRunning means that a plan can't be stopped: it is final, or ends already.
	ErrNotRunning = errors.New("the plan is not running")
	// ErrStopRequested is the cause with which the context of [Node.Work] ends when somebody called [Stop]. It comes in
	// a [StopError], which says who did.
	ErrStopRequested = errors.New("the plan was asked to stop")
	// ErrPaused means that the plan is paused, see [PausePlan]. It is also the cause with which the context of [Node.Work] then
	// ends: the caller begins nothing more, lets what runs end, and calls [Node.Sleep].
	ErrPaused = errors.New("the plan is paused")
	// ErrUnsuited is an error of a vault's Read for a plan that the process has no plugins for. A program that wraps its
	// vault returns it. The node leaves the plan to others, and reads it again only when its entry has changed.
	ErrUnsuited = errors.New("the plan needs plugins that this program does not have")
	// ErrLeft means that the node has left the fleet.
	ErrLeft = errors.New("the node has left the fleet")
	// ErrSuspended means that somebody has called [Suspend], or that the store is a copy: no node may work on it.
	ErrSuspended = errors.New("the vault is suspended")
)

// OwnedError is [ErrOwned] with what the plan says of its owner.
type OwnedError struct {
	// Owner is uuid.Nil if the plan sleeps or has not begun.
	Owner uuid.UUID
	Epoch int64
	// External is who places the plan, if that is an engine of another kind.
	External workflow.External
}

func ownedError(p *workflow.Plan) error { return &OwnedError{p.Owner, p.Epoch, p.External} }

// Error says who owns the plan.
func (e *OwnedError) Error() string {
	switch {
	case e.External.Name == "" && e.Owner == uuid.Nil:
		return fmt.Sprintf("%v: the fleet places it", ErrOwned)
	case e.External.Name == "":
		return fmt.Sprintf("%v: node %s, with epoch %d", ErrOwned, e.Owner, e.Epoch)
	case e.External.Ask == "":
		return fmt.Sprintf("%v: %s places it, in epoch %d", ErrOwned, e.External.Name, e.Epoch)
	}
	return fmt.Sprintf("%v: %s places it, in epoch %d; ask it: %s", ErrOwned, e.External.Name, e.Epoch, e.External.Ask)
}

// Unwrap returns ErrOwned.
func (e *OwnedError) Unwrap() error { return ErrOwned }

// StopError is [ErrStopRequested] with the attribution of whoever called [Stop].
type StopError struct{ Attribution workflow.Attribution }

// Error says the same as ErrStopRequested.
func (e *StopError) Error() string { return ErrStopRequested.Error() }

// Unwrap returns ErrStopRequested.
func (e *StopError) Unwrap() error { return ErrStopRequested }
