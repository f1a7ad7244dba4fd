package storage

import (
	"time"

	"github.com/google/uuid"
)

// NoteSuspended is the name of the note that suspends a store: while the store has it, no member of a fleet works on the
// store. Package fleet obeys it. An engine without a fleet looks only when it starts.
const NoteSuspended = "closed"

// NoteCopy begins the name of a note that says how far a copy of the store has come. The name of the copy follows.
const NoteCopy = "copy-"

// Suspension says who has suspended a store, and why. It is the text of the note [NoteSuspended]. A note that can't be
// read suspends the store, too.
type Suspension struct {
	At  time.Time `json:"at,omitzero"` // by the clock of whoever suspended it, for people
	By  string    `json:"by,omitempty"`
	Why string    `json:"why,omitempty"`
	// Copy says that the store is a copy that package mirror keeps.
	Copy bool `json:"copy,omitempty"`
	// MovedTo says for people where the plans of the store run since, and MovedID which copy of the store that is. Both are
	// zero of a store that has not moved.
	MovedTo string    `json:"movedTo,omitempty"`
	MovedID uuid.UUID `json:"movedID,omitzero"`
	// Evicted are members that did not leave by themselves. What they were doing may not have ended.
	Evicted []uuid.UUID `json:"evicted,omitempty"`
	// TTL is the longest TTL of these members.
	TTL time.Duration `json:"ttl,omitempty"`
}

// Remedy says what ends the suspension, or where the plans run.
func (c Suspension) Remedy() string {
	switch {
	case c.Copy:
		return "it is a copy: see mirror.Promote"
	case c.MovedTo != "":
		return "its plans run in " + c.MovedTo
	}
	return "see fleet.Resume"
}

// FindNote returns the note with a name of a roster, without its text.
func (r Roster) FindNote(name string) (Note, bool) {
	for _, n := range r.Notes {
		if n.Name == name {
			return n, true
		}
	}
	return Note{}, false
}
