package storage

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Members keeps who works on a store, so that several engines can share it. Package fleet is built on it. A
// vault that implements Members keeps the records beside its plans. All methods are safe for concurrent use.
//
// The errors are those of [Vault]. A name of more than 1,000 bytes, a phase that is not a short word of lower-case
// letters, a field that is longer than [Member] allows, an ID that is not a UUIDv7, and an empty version are
// [ErrInvalid]. After [ErrUnknown], the same call may be repeated on the same vault.
type Members interface {
	// AddMember stores the record of a new member, all but Renewed and Version, and returns its version. The ID
	// is a UUIDv7 that was made for this call: an ID that was removed is never used again. ErrExists means that the ID is
	// taken, perhaps by this call, if others have changed the record before it could read it. On a vault that accepts
	// updates without versions, AddMember returns ErrInvalid.
	AddMember(ctx context.Context, m Member) (version string, err error)
	// RenewMember stores the record again, if it still has the version m.Version, and returns its new version.
	// ErrConflict and ErrNotFound mean that somebody else has changed or removed the record.
	RenewMember(ctx context.Context, m Member) (version string, err error)
	// FindMember returns the record of a member, or ErrNotFound.
	FindMember(ctx context.Context, id uuid.UUID) (Member, error)
	// Roster returns all members and all requests to stop plans, each in the order of the IDs, and names all notes.
	Roster(ctx context.Context) (Roster, error)
	// RemoveMember removes a record that has this version. It returns ErrConflict if the record has another
	// version, and ErrNotFound if there is none.
	RemoveMember(ctx context.Context, id uuid.UUID, version string) error
	// RequestStop asks the owner of a plan to stop it, and says who asks and why. It does not look at the plan. An earlier
	// request stays, and is no error. The At of by is not stored.
	RequestStop(ctx context.Context, plan uuid.UUID, by workflow.Attribution) error
	// RemoveStop removes a request that has this version. It returns nil if there is none, and ErrConflict if
	// it has another version.
	RemoveStop(ctx context.Context, plan uuid.UUID, version string) error
}

// Member is the record of a process that works on a store.
type Member struct {
	ID      uuid.UUID
	Name    string    // for people
	Started time.Time // by the member's own clock, for people
	Renewed time.Time // when the record was last stored, by the store's clock
	// TTL is how long the member may go without renewing its record. Nobody removes the record sooner. It is 0
	// if it is not known, and must not be negative.
	TTL     time.Duration
	Version string
	// Phase says whether the member takes plans. Newer programs may store phases that are not among the constants.
	Phase Phase
	// Former is the ID that the member's process had before it joined again; uuid.Nil if it has not. It is for people.
	Former uuid.UUID
	// LetGo are plans that name the member as their owner and that it does not work on any more. Any other member
	// may take them. There are at most [MaxLetGo].
	LetGo []uuid.UUID
	// Trouble says for people what hinders the member. It is empty if nothing does, and has at most [MaxTrouble]
	// bytes.
	Trouble string
	// Excused says that a member that has Left was Leaving before, or that a person evicted it: no action that it ran is at
	// fault.
	Excused bool
}

// Phase is a phase in the life of a member. The zero value is a member that works.
type Phase string

// The phases of a member that does not just work.
const (
	// Leaving is a member that takes no more plans and is about to leave.
	Leaving Phase = "leaving"
	// Left is a member that has left, or was judged dead. Its plans have no owner.
	Left Phase = "left"
)

// The limits of a record's fields, so that it fits into the metadata of a blob.
const (
	MaxLetGo   = 100
	MaxTrouble = 500
)

// StopRequest asks the owner of a plan to stop it.
type StopRequest struct {
	Plan      uuid.UUID
	By, Why   string    // as in [workflow.Attribution]
	Requested time.Time // by the store's clock
	Version   string
}

// Attribution says who asked, when and why.
func (r StopRequest) Attribution() workflow.Attribution {
	return workflow.Attribution{By: r.By, Why: r.Why, At: r.Requested}
}

// Roster is what a store knows of a fleet at one time.
type Roster struct {
	Members []Member
	Stops   []StopRequest
	Notes   []Note    // without their texts, in the order of their names, if the store has [Notes]
	Now     time.Time // the store's clock, which may lag behind the times of records by seconds
}
