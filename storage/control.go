package storage

import (
	"context"
	"iter"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Control is what a fleet needs of a store beside the plans: who works on it, which plans are to be stopped, notes that all
// programs read, which plans have turns, and the log of who changed the store. A vault offers it by [As]. Package fleet is built on it. All methods
// are safe for concurrent use.
//
// The errors are those of [Vault]. [ErrInvalid] are a member's name of more than 1,000 bytes, a phase that is not a short word
// of lower-case letters, a field that is longer than [Member] or [AuditEntry] allows, an ID of a member or an entry that is
// not a UUIDv7, a note's name that is not made of 1 to [MaxNoteName] lower-case letters, digits and hyphens, a note's text
// that is not a JSON object of at most [MaxNote] bytes, a key's record that is not as [KeyRecord] says, and an empty version of what is renewed or removed. After
// [ErrUnknown], the same call may be repeated on the same vault.
type Control interface {
	// AddMember stores the record of a new member, all but Renewed and Version, and returns its version. The ID
	// is a UUIDv7 that was made for this call: an ID that was removed is never used again. ErrExists means that the ID is
	// taken, perhaps by this call, if others have changed the record before it could read it. On a vault that accepts
	// updates without versions, AddMember returns ErrInvalid.
	AddMember(ctx context.Context, m Member) (Version, error)
	// RenewMember stores the record again, if it still has the version m.Version, and returns its new version.
	// ErrConflict and ErrNotFound mean that somebody else has changed or removed the record.
	RenewMember(ctx context.Context, m Member) (Version, error)
	// FindMember returns the record of a member, or ErrNotFound.
	FindMember(ctx context.Context, id uuid.UUID) (Member, error)
	// RemoveMember removes a record that has this version. It returns ErrConflict if the record has another
	// version, and ErrNotFound if there is none.
	RemoveMember(ctx context.Context, id uuid.UUID, version Version) error
	// Roster returns all members and all requests to stop plans, each in the order of the IDs, and names all notes.
	Roster(ctx context.Context) (Roster, error)

	// AddStop asks the owner of a plan to stop it, and says who asks and why. It does not look at the plan: see
	// fleet.Stop. An earlier request stays, and is no error. The At of by is not stored.
	AddStop(ctx context.Context, plan uuid.UUID, by workflow.Attribution) error
	// RemoveStop removes a request that has this version. It returns nil if there is none, and ErrConflict if
	// it has another version.
	RemoveStop(ctx context.Context, plan uuid.UUID, version Version) error

	// PutNote stores a note, all but Stored and Version, and returns its version. If n.Version is empty, the note
	// is new, and ErrExists means that the name is taken. Otherwise it replaces the version n.Version; ErrConflict
	// and ErrNotFound mean that somebody else has changed or removed the note.
	PutNote(ctx context.Context, n Note) (Version, error)
	// FindNote returns a note, or ErrNotFound.
	FindNote(ctx context.Context, name string) (Note, error)
	// RemoveNote removes a note that has this version. It returns ErrConflict if the note has another version, and
	// ErrNotFound if there is none.
	RemoveNote(ctx context.Context, name string, version Version) error

	// PutKey stores the record of a key, all but Stored, Now and Version, and returns its version. Versions are as those of
	// PutNote. After ErrUnknown, the same call again returns the version that the first one has stored, if it did.
	PutKey(ctx context.Context, k KeyRecord) (Version, error)
	// FindKey returns the record of a key, or ErrNotFound. With ErrCorrupt and ErrSchema, it returns name, version and times.
	FindKey(ctx context.Context, name string) (KeyRecord, error)
	// RemoveKey removes the record of a key that has this version. It returns ErrConflict if the record has another version,
	// and ErrNotFound if there is none.
	RemoveKey(ctx context.Context, name string, version Version) error
	// Keys yields what is listed of all records of keys, in no particular order, as [Vault.List] yields plans: in the place of
	// one that can't be read is its error.
	Keys(ctx context.Context) (iter.Seq[Stream[ListedKey]], error)

	// Record stores an entry of the audit log, and replaces an entry with the same ID. The entry's Stored and At are ignored.
	// [Audit] calls it for programs.
	Record(ctx context.Context, d AuditEntry) error
	// AuditEntries yields the entries that the filters select, newest first, as [Vault.Search] yields plans: in the place of
	// an entry that can't be read is its error. A negative limit is ErrInvalid.
	AuditEntries(ctx context.Context, f AuditFilters) (iter.Seq[Stream[AuditEntry]], error)
}

// Version is a version of a member's record, of a request to stop a plan, of a note, or of a key's record. It is opaque, and can be compared with
// ==. The empty version is that of nothing.
type Version string
