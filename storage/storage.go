// Package storage says what a vault for workflow plans promises, whatever it is built on: the Vault interface and its
// parts, the filters and results of listings, and the errors.
package storage

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Vault keeps workflow plans. All methods are safe for concurrent use by many goroutines, and several vaults may work
// on the same store from several machines.
//
// A nil error of a write means that it is durable. Any other error means that it had no effect, unless errors.Is finds
// ErrUnknown: then it may or may not have had one, and the same call again, or Recovery, settles it. A call returns soon
// after its context ends. Bad input is ErrInvalid before anything is stored.
type Vault interface {
	Creator
	Reader
	Updater
	Deleter
	Recoverer
	// Close waits for the calls under way, until ctx ends at the latest, and gives up what the vault holds. Calls made after
	// it return ErrClosed; a second Close returns nil.
	Close(ctx context.Context) error
}

// Creator stores new plans.
type Creator interface {
	// Create stores a plan. It first fills in what the author left out: IDs as UUIDv7, PlanIDs, SubmitTime. Every status
	// must be NotStarted. When it returns nil, every State.ETag is set; before, no reader sees anything of the plan.
	//
	// ErrExists says that there is a plan of this ID; ErrConflict that the remains of an unfinished create or delete of this
	// ID are in the way, which Recovery clears. After ErrUnknown the same plan may be given to Create again.
	Create(ctx context.Context, plan *workflow.Plan) error
}

// Reader finds plans. Reads never write.
type Reader interface {
	// Exists says whether there is a plan of this ID. No plan has an ID that is not a UUIDv7.
	Exists(ctx context.Context, id uuid.UUID) (bool, error)
	// Read returns the whole plan with its present states; ErrNotFound when there is none. Each State.ETag is the version
	// that was read, for updates.
	Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error)
	// List yields the plans, newest first; at most limit of them, or all when limit is 0 or less. It streams: what happens while it
	// runs may or may not show, but a plan that was there throughout is yielded exactly once. A listing that fails, or whose
	// context ends, ends with a Stream with an Err; a plan that can't be read is a Stream with an Err that names it, and the
	// rest still comes. Breaking out of the loop is fine. The sequence may be ranged over more than once, and is asked anew
	// each time.
	List(ctx context.Context, limit int) (iter.Seq[Stream[ListResult]], error)
	// Search yields the plans that match, as List does.
	Search(ctx context.Context, filters Filters) (iter.Seq[Stream[ListResult]], error)
}

// Updater stores how plans go on. An update writes the fields of one object and not those of its children.
//
// State.ETag must be the version that Create, Read or an update before gave, and the one that is stored: an empty one and
// what is no version of the vault are ErrInvalid, another than the stored one ErrConflict. It is set to the new version on
// return. An engine that starts an object again uses State.Reset, which keeps the version. A vault may be opened to take updates
// without versions: they overwrite whatever is there.
//
// All below the object must be what the plan was created with. The version tells, so a child that was added, removed, replaced
// or moved is ErrInvalid before anything is stored. A plan only moves forward, from NotStarted to Running to a final status,
// else its update is ErrInvalid. A part may move to any status: its version alone decides.
//
// An update of what is not there is ErrNotFound. Readers see a plan as deleted from some time during Delete on; an update of
// one of its parts may still return nil until Delete has returned nil, and has then no effect that anybody sees.
//
// An update reads the object's own fields and the IDs of all below it, so other goroutines may work on those parts, and
// update them, at the same time. Only an update of a plan to a final status reads all of it.
//
// Requests and responses must be fit for JSON: encoding/json can write them, and read them again into the types of their
// plugins, their text is valid Unicode, and they are nested at most workflow.MaxDepth levels deep. Create and updates check that
// before anything is stored, and return ErrInvalid. In fields of type any, numbers are read as float64.
//
// An engine moves a plan to Running before it updates any part of it, and writes the parts before it moves the plan to
// a final status: a plan that is NotStarted or final is read as a whole, without its parts.
type Updater interface {
	// UpdatePlan stores the plan's own fields. With a final status it also settles the whole plan as it is given, with all
	// its parts, which must carry their last states. Any status of a part will do, and its version does not count. What is
	// written to a part later is never shown.
	UpdatePlan(ctx context.Context, plan *workflow.Plan) error
	UpdateChecks(ctx context.Context, checks *workflow.Checks) error
	UpdateBlock(ctx context.Context, block *workflow.Block) error
	UpdateSequence(ctx context.Context, sequence *workflow.Sequence) error
	UpdateAction(ctx context.Context, action *workflow.Action) error
	UpdateDeferredActions(ctx context.Context, deferred *workflow.DeferredActions) error
	UpdateDeferBatch(ctx context.Context, batch *workflow.DeferBatch) error
}

// Update stores an object with the method for its kind. Nil and objects of no known kind are ErrInvalid.
func Update(ctx context.Context, v Updater, o workflow.Object) error {
	switch o := o.(type) {
	case *workflow.Plan:
		return v.UpdatePlan(ctx, o)
	case *workflow.Checks:
		return v.UpdateChecks(ctx, o)
	case *workflow.Block:
		return v.UpdateBlock(ctx, o)
	case *workflow.Sequence:
		return v.UpdateSequence(ctx, o)
	case *workflow.Action:
		return v.UpdateAction(ctx, o)
	case *workflow.DeferredActions:
		return v.UpdateDeferredActions(ctx, o)
	case *workflow.DeferBatch:
		return v.UpdateDeferBatch(ctx, o)
	}
	return &Error{Op: "Update", Err: fmt.Errorf("%w: %w", ErrInvalid, &workflow.FieldError{Field: "Object", Problem: fmt.Sprintf("no update stores a %T", o)})}
}

// Deleter removes plans.
type Deleter interface {
	// Delete removes a plan with all its parts; ErrNotFound when there is none. A delete that was interrupted is finished by
	// calling it again, or by Recovery.
	Delete(ctx context.Context, id uuid.UUID) error
}

// Recoverer clears up.
type Recoverer interface {
	// Recovery finishes or removes what crashed processes left half done. It leaves alone what may still be under way, may
	// run on several nodes at once, and is meant to be called whenever a service starts. What can't be mended is reported in
	// the error, after all else was done.
	Recovery(ctx context.Context) error
}

// MaxAhead is how far in the future the time in the ID of a new plan may lie: a day, for clocks that disagree. A plan that
// was created by a clock further ahead can be read, updated and deleted like any other.
const MaxAhead = 24 * time.Hour

// ListResult is what a listing tells of a plan.
type ListResult struct {
	ID         uuid.UUID
	GroupID    uuid.UUID
	Name       string
	Descr      string
	SubmitTime time.Time
	// State is the plan's own. Its ETag changes with each update of the plan; updates want the one of Read.
	State workflow.State
}

// Stream is one element of a listing: a result, or an error in its place.
type Stream[T any] struct {
	// Result is the zero value when Err is set.
	Result T
	Err    error
}
