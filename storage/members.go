package storage

import (
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Member is the record of a process that works on a store.
type Member struct {
	ID      uuid.UUID
	Name    string    // for people
	Started time.Time // by the member's own clock, for people
	Renewed time.Time // when the record was last stored, by the store's clock
	// TTL is how long the member may go without renewing its record. Nobody removes the record sooner. It is 0
	// if it is not known, and must not be negative.
	TTL     time.Duration
	Version Version
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
	// Excused says that a member that has left was leaving before, or that a person evicted it: no action that it ran is at
	// fault.
	Excused bool
}

// Phase is a phase in the life of a member. The zero value is a member that works.
type Phase string

// The phases of a member that does not just work.
const (
	// PhaseLeaving is a member that takes no more plans and is about to leave.
	PhaseLeaving Phase = "leaving"
	// PhaseLeft is a member that has left, or was judged dead. Its plans have no owner.
	PhaseLeft Phase = "left"
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
	Version   Version
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
