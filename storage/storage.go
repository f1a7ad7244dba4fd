// Package storage is the contract of a vault for workflow plans, whatever the vault is built on: the [Vault]
// interface and its parts, the filters and results of listings, and the errors. Packages storage/driver and
// storage/storagetest serve authors of vaults.
//
// # Removal
//
// Each way to remove plans has one verb, here and in the vaults, the tools and the pages:
//
//   - Delete removes a plan ([Deleter]).
//   - Purge deletes the plans that filters select, one by one ([Purge]).
//   - Expire drops a day: the day goes as a whole, with all its plans.
//   - Retire removes from a day what a policy of retention no longer keeps (package retention). It drops the day if nothing
//     in it must stay, and purges it otherwise.
//
// Remove is the general word, and the one for what is not a plan: members, notes, stop requests, blobs.
package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Vault stores workflow plans. All methods are safe for concurrent use, and several vaults may work on the
// same store from several machines.
//
// A write that returns nil is durable. A write that returns an error had no effect, unless errors.Is finds
// [ErrUnknown]: then it may have had its effect, and the same call again, or Recovery, settles it. A call
// returns soon after its context ends. Bad input is [ErrInvalid] before anything is stored.
type Vault interface {
	Creator
	Reader
	Updater
	Deleter
	Recoverer
	// Close waits for the calls in progress, until ctx ends at the latest, and releases what the vault holds.
	// Later calls return ErrClosed. A second Close returns nil.
	Close(ctx context.Context) error
}

// Creator stores new plans.
type Creator interface {
	// Create stores a plan. It first fills in what the author left out: IDs as UUIDv7, PlanIDs, SubmitTime, and Submitted
	// from the context (see [WithActor]).
	// Every status must be NotStarted, except for what a fork carries over (see [workflow.Fork]). When Create
	// returns nil, every State.ETag is set. No reader sees any of the plan before all of it is stored.
	//
	// Create refuses a request that would be read back as something else, as far as the vault knows the types of its plugin,
	// and names the field: a value of a struct without exported fields, two fields of one JSON name, an integer in an
	// interface that is no float64. It refuses a plugin whose response has such a type.
	//
	// ErrExists means that there is a plan with this ID. ErrConflict means that the remains of an unfinished
	// Create or Delete of this ID are in the way; Recovery removes them. After ErrUnknown the same plan may
	// be given to Create again.
	Create(ctx context.Context, plan *workflow.Plan) error
}

// Restorer stores plans as they are, from a backup or another store. It is not part of [Vault]; a vault may
// implement it, and the vaults of this module do.
type Restorer interface {
	// Restore stores a plan of any status as it is: IDs, times, states, attempts, results, owner and epoch.
	// Only versions are new: what the plan has in State.ETag is ignored, and when Restore returns nil, every
	// State.ETag is set, as after Create. Every plan that Read returns can be restored. No reader sees any of
	// the plan before all of it is stored.
	//
	// ErrExists means that there is a plan with this ID, whatever its content. Other errors are those of
	// Create; after ErrUnknown the same plan may be given to Restore again.
	//
	// An open plan is open again: engines on this store may run it at once. Restore it only if no engine
	// runs it in another store. A Running plan keeps its owner. In a store where the owner is not a member, a
	// fleet takes the plan over.
	Restore(ctx context.Context, plan *workflow.Plan) error
}

// Copier keeps plans that package mirror copies from another store, and tells them from those that anybody else has
// stored or changed. A plan has the mark of a copy from RestoreCopy to the first UpdatePlan, which takes it away. Updates
// of sub-objects leave it. Copier is not part of [Vault]; the vaults of this module implement it.
type Copier interface {
	// RestoreCopy stores a plan as Restore does, with the mark of a copy.
	RestoreCopy(ctx context.Context, plan *workflow.Plan) error
	// IsCopy reports whether the plan had the mark in the version in State.ETag.
	IsCopy(plan *workflow.Plan) bool
	// UpdateCopy stores a plan as UpdatePlan does, and leaves the mark. A version without the mark is ErrConflict.
	UpdateCopy(ctx context.Context, plan *workflow.Plan) error
	// DeleteCopy removes a plan as Delete does, unless an UpdatePlan has changed it since the version in State.ETag.
	// Then, and if the version lacks the mark, the error is ErrConflict, and the plan stays.
	DeleteCopy(ctx context.Context, plan *workflow.Plan) error
}

// Reader finds plans. Reads never write.
type Reader interface {
	// Exists reports whether there is a plan with this ID. An ID that is not a UUIDv7 belongs to no plan.
	Exists(ctx context.Context, id uuid.UUID) (bool, error)
	// Read returns the whole plan with its current states, or ErrNotFound. Each State.ETag is the version
	// that was read, for updates.
	Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error)
	// List yields the plans, newest first: at most limit of them, or all if limit is 0. A
	// negative limit is ErrInvalid. Changes made
	// while it runs may or may not show, but a plan that exists throughout is yielded exactly once.
	//
	// A listing that fails, or whose context ends, ends with a Stream that has an Err. A plan that can't be
	// read is a Stream whose Err names it, and the listing continues. The caller may break out of the loop.
	// The sequence may be ranged over more than once, and queries the store each time. [Collect] returns it
	// as a slice.
	List(ctx context.Context, limit int) (iter.Seq[Stream[ListResult]], error)
	// Search yields the plans that match, as List does.
	Search(ctx context.Context, filters Filters) (iter.Seq[Stream[ListResult]], error)
	// Count returns how many plans match: as many as Search yields, without the cost of their results. The zero
	// value counts all plans. Limit and BeforeID are ErrInvalid. If a plan can't be read, the error names the
	// first such plan, and the count has the others; if only plans of another program can't, it is a
	// [*ForeignError]. Any other error comes with a count of 0.
	Count(ctx context.Context, filters Filters) (int, error)
}

// Updater stores the progress of plans. An update writes the fields of one object, and not those of its
// children.
//
// State.ETag must be the stored version, as Create, Read or the last update set it. An empty version, or a
// string that is not a version of the vault, is [ErrInvalid]; any other version than the stored one is
// [ErrConflict]. The update sets State.ETag to the new version. An engine that starts an object again calls
// State.Reset, which keeps the version. A vault may be opened to accept updates without versions, which
// overwrite whatever is stored.
//
// The tree below the object must be the one that the plan was created with. The version identifies it, so a
// child that was added, removed, replaced or moved is ErrInvalid before anything is stored. A plan only moves
// forward: from NotStarted to Running or a final status, and from Running to a final status. Any other update of its
// status is ErrInvalid. A sub-object may move to any status: its version alone decides.
//
// An update of an object that does not exist is [ErrNotFound]. Readers stop seeing a plan at some time during
// Delete. Until Delete returns nil, an update of a sub-object of the plan may still return nil; nobody sees
// its effect.
//
// An update reads the object's own fields and the IDs of everything below it. Other goroutines may therefore
// work on the sub-objects, and update them, at the same time. Only an update of a plan to a final status
// reads the whole plan.
//
// Requests and responses must survive JSON: encoding/json can write them and read them again into the types
// of their plugins, their text is valid Unicode, and they are nested at most workflow.MaxDepth levels deep.
// Create and updates check this before anything is stored, and return ErrInvalid. Numbers in fields of type
// any are read as float64.
//
// An engine moves a plan to Running before it updates any sub-object, and writes the sub-objects before it
// moves the plan to a final status: a plan that is NotStarted or final is read as a whole, without the later
// updates of its sub-objects.
type Updater interface {
	// UpdatePlan stores the plan's own fields. With a final status it stores the whole plan as it is given,
	// with all its sub-objects, which must have their last states. They may have any status and any version.
	// Later updates of a sub-object are never shown.
	UpdatePlan(ctx context.Context, plan *workflow.Plan) error
	UpdateChecks(ctx context.Context, checks *workflow.Checks) error
	UpdateBlock(ctx context.Context, block *workflow.Block) error
	UpdateSequence(ctx context.Context, sequence *workflow.Sequence) error
	UpdateAction(ctx context.Context, action *workflow.Action) error
	UpdateDeferredActions(ctx context.Context, deferred *workflow.DeferredActions) error
	UpdateDeferBatch(ctx context.Context, batch *workflow.DeferBatch) error
}

// Update stores an object with the method for its kind. Nil, or an object of another type, is [ErrInvalid].
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
	return &Error{Op: "Update", Err: fmt.Errorf("%w: %w", ErrInvalid, &workflow.FieldError{Field: "Object", Problem: fmt.Sprintf("a %T can't be updated", o)})}
}

// Deleter removes plans.
type Deleter interface {
	// Delete removes a plan with all its sub-objects, or returns ErrNotFound, or ErrHeld in a day that is held. ErrConflict
	// means that updates kept changing the plan meanwhile: call again. If a Delete is interrupted, another Delete of the
	// same ID, or Recovery, finishes it.
	Delete(ctx context.Context, id uuid.UUID) error
}

// Recoverer repairs what crashed processes left.
type Recoverer interface {
	// Recovery finishes or removes what crashed processes left unfinished. It leaves alone what may still be
	// in progress, and may run on several nodes at once. Call it whenever a service starts. It reports what
	// it can't repair in its error, after it has done everything else.
	Recovery(ctx context.Context) error
}

// MaxAhead is how far in the future the time in the ID of a new plan may lie. It is one day, to allow for
// clocks that disagree. Plans that are already stored may have any time: they can be read, updated, deleted and
// restored.
const MaxAhead = 24 * time.Hour

// ListResult is what a listing returns of a plan. It can't be compared with ==, so that fields may be added.
type ListResult struct {
	_ [0]func()

	ID         uuid.UUID
	GroupID    uuid.UUID
	Name       string
	Descr      string
	Labels     map[string]string
	SubmitTime time.Time
	// SubmittedBy is the plan's Submitted.By.
	SubmittedBy string
	// State is the plan's own state. Its ETag changes with each update of the plan, but it is not the version
	// for updates: that is the ETag that Read returns.
	State workflow.State
	// Owner, Epoch, LastSignal and ForkedFrom are those of the plan. So is WakeAt, or NotBefore if the plan has not begun.
	Owner      uuid.UUID
	Epoch      int64
	WakeAt     time.Time
	LastSignal int
	ForkedFrom uuid.UUID
	// External is the plan's External.Name, Keys are the names of its Keys, sorted, and the others are the plan's own. They are
	// empty if the plan is final, and so is Deadline if it takes no turns.
	External string
	Keys     []string
	KeepTurn workflow.KeepTurn
	Unique   string
	WaitsFor string
	Deadline time.Time
}

// Asleep reports whether the plan sleeps, or has not begun, until WakeAt.
func (r ListResult) Asleep() bool {
	return !r.WakeAt.IsZero() && r.Owner == uuid.Nil && !r.State.Status.Final()
}

// Stream is one element of a listing: a result, or an error in its place.
type Stream[T any] struct {
	// Result is the zero value if Err is set.
	Result T
	Err    error
}

// Collect returns the results of a listing in a slice. It takes what List, Search and other listings return:
//
//	running, err := storage.Collect(vault.Search(ctx, filters))
//
// If any element is an error, Collect returns the results of the others, and all errors joined: the results
// are then incomplete.
func Collect[T any](results iter.Seq[Stream[T]], err error) ([]T, error) {
	if err != nil {
		return nil, err
	}
	var all []T
	var errs []error
	for r := range results {
		if r.Err != nil {
			errs = append(errs, r.Err)
		} else {
			all = append(all, r.Result)
		}
	}
	return all, errors.Join(errs...)
}
