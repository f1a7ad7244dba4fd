package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
)

// noteOrigin is the name of the note that makes a vault a copy.
const noteOrigin = "origin"

// origin says where a copy comes from. It is the text of the note origin in the copy.
type origin struct {
	ID    uuid.UUID `json:"id"`
	From  string    `json:"from,omitempty"`
	Began time.Time `json:"began,omitzero"`
	// CaughtUp is that of the standing, for a switch without the source.
	CaughtUp time.Time `json:"caughtUp,omitzero"`
	// Opened and By say when and by whom the copy was made a vault of its own.
	Opened time.Time `json:"opened,omitzero"`
	By     string    `json:"by,omitempty"`
}

// errInUse means that a member works on the copy.
var errInUse = errors.New("the copy is in use")

// replica is a copy, and what is known of it.
type replica struct {
	to       Copy
	from, by string // where it comes from, and who asks
	removes  bool   // what the source does not have is removed

	origin  origin
	version storage.Version // of the origin
}

// State says what a vault is a copy of.
type State struct {
	// Copy says that the vault is a copy, or was one. The other fields are zero if not.
	Copy bool
	// ID is that of the copy. One that was removed and made anew has another ID.
	ID uuid.UUID
	// CaughtUp is the time up to which the copy had everything at the last round of [Follow], by the source's clock.
	CaughtUp time.Time
	// Opened and By say when and by whom the copy was made a vault of its own.
	Opened time.Time
	By     string
}

// StateOf returns what a vault is a copy of.
func StateOf(ctx context.Context, v storage.Control) (State, error) {
	n, found, err := findOrigin(ctx, v)
	if err != nil || !found {
		return State{}, err
	}
	o, err := storage.ReadNote[origin](n)
	return State{err == nil, o.ID, o.CaughtUp, o.Opened, o.By}, err
}

// findOrigin returns the note that makes a vault a copy. It asks twice, because a single false 404 must not turn a copy into
// a vault of its own.
func findOrigin(ctx context.Context, v storage.Control) (n storage.Note, found bool, err error) {
	for range 2 {
		if n, err = v.FindNote(ctx, noteOrigin); !errors.Is(err, storage.ErrNotFound) {
			return n, err == nil, err
		}
	}
	return n, false, nil
}

// Adopt suspends an empty vault and makes it a copy, as [Run] and [Follow] do when they begin. from says for people what it
// is a copy of, and by who says so. It returns nil for a copy, [ErrOpened] for a copy that was opened and [ErrNoCopy] for
// any other vault with plans, and refuses a vault on which a member works.
func Adopt(ctx context.Context, to Copy, from, by string) error {
	return (&replica{to: to, from: from, by: by}).adopt(ctx)
}

// adopt makes the vault a suspended copy, if it is not, and reads its origin.
func (f *replica) adopt(ctx context.Context) error {
	for range 3 { // another follower may do the same at the same time
		r, err := f.to.Roster(ctx)
		if err != nil {
			return err
		}
		n, known := r.FindNote(noteOrigin)
		if !known || n.Version != f.version {
			n, err = f.to.FindNote(ctx, noteOrigin) // a listing that misses it must not suspend a vault
			if known = !errors.Is(err, storage.ErrNotFound); known && err != nil {
				return err
			}
		}
		if known && n.Version != f.version {
			if f.origin, err = storage.ReadNote[origin](n); err != nil {
				return err
			}
			f.version = n.Version
		}
		if err := f.refuses(f.origin); known && err != nil {
			return err
		}
		if _, suspended := r.FindNote(storage.NoteSuspended); known && suspended {
			return nil
		}
		if err := unused(r); err != nil { // nobody joins a vault that is suspended
			return err
		}
		if !known {
			if err := f.empty(ctx); err != nil {
				return err
			}
		}
		if err := f.mark(ctx, r); err != nil {
			return err
		}
	}
	return fmt.Errorf("mirror: %w: somebody removes the notes that make it a copy", errInUse)
}

// refuses returns an error if a copy was opened, or if plans would be removed that another source has.
func (f *replica) refuses(o origin) error {
	switch {
	case !o.Opened.IsZero():
		return fmt.Errorf("mirror: %w since %s, by %s: mirror to another prefix or account", ErrOpened, o.Opened.Format(time.RFC3339), o.By)
	case f.removes && f.from != "" && o.From != "" && f.from != o.From:
		return fmt.Errorf("mirror: %w of %s, but of %s, whose plans would be removed", ErrNoCopy, f.from, o.From)
	}
	return nil
}

// adoptable returns the error that adopt would return, as far as that depends on the vault being a copy.
func (f *replica) adoptable(ctx context.Context) error {
	_, found, err := findOrigin(ctx, f.to)
	switch {
	case err != nil:
		return err
	case found:
		return f.stillCopy(ctx)
	}
	return f.empty(ctx)
}

// stillCopy returns nil if the vault is a copy that is not opened.
func (f *replica) stillCopy(ctx context.Context) error {
	n, found, err := findOrigin(ctx, f.to)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("mirror: %w: nothing was written to it", ErrNoCopy)
	}
	o, err := storage.ReadNote[origin](n)
	if err == nil {
		err = f.refuses(o)
	}
	return err
}

// empty returns ErrNoCopy if a vault has plans. Those of another program don't count.
func (f *replica) empty(ctx context.Context) error {
	found, err := f.to.List(ctx, 0)
	if err != nil {
		return err
	}
	for r := range found {
		switch {
		case errors.Is(r.Err, storage.ErrForeign):
		case r.Err != nil:
			return r.Err
		default:
			return fmt.Errorf("mirror: %w, and has plans, such as %s: a copy begins empty: choose another prefix or account", ErrNoCopy, r.Result.ID)
		}
	}
	return nil
}

// unused returns an error if a member works on a copy.
func unused(r storage.Roster) error {
	for _, m := range r.Members {
		if m.Phase != storage.Left {
			return fmt.Errorf("mirror: %w: node %s (%s) is a member of its fleet: stop it, or choose another copy", errInUse, m.ID, m.Name)
		}
	}
	return nil
}

// mark stores the notes that the copy lacks: first that it is suspended, as a copy also if it was suspended as a vault
// that has moved, and then its origin.
func (f *replica) mark(ctx context.Context, r storage.Roster) error {
	n, suspended := r.FindNote(storage.NoteSuspended)
	var was storage.Suspension
	if suspended {
		var err error
		if n, err = f.to.FindNote(ctx, n.Name); err == nil {
			was, err = storage.ReadNote[storage.Suspension](n)
		}
		if err != nil {
			return err
		}
	}
	if !was.Copy {
		was.At, was.By, was.Why, was.Copy = time.Now().UTC(), f.by, "a copy of "+f.from, true
		if _, err := put(ctx, f.to, storage.NoteSuspended, was, n.Version); err != nil && !errors.Is(err, storage.ErrExists) && !errors.Is(err, storage.ErrConflict) {
			return err
		}
	}
	if _, known := r.FindNote(noteOrigin); !known {
		o := origin{ID: uuid.New(), From: f.from, Began: time.Now().UTC()}
		if _, err := put(ctx, f.to, noteOrigin, o, ""); err != nil && !errors.Is(err, storage.ErrExists) {
			return err
		}
	}
	return nil
}

// Open makes a copy a vault of its own: from then on, no Follow writes to it, and engines may work on it. It first marks
// the copy as opened, and then ends its suspension. It may be repeated.
func Open(ctx context.Context, copied storage.Control, by string) error {
	found := false // its origin
	steps := []struct {
		note string
		do   func(n storage.Note) error
	}{
		{noteOrigin, func(n storage.Note) error { found = true; return markOpened(ctx, copied, n, by) }},
		{storage.NoteSuspended, func(n storage.Note) error {
			if c, err := storage.ReadNote[storage.Suspension](n); err != nil || !c.Copy {
				return err // somebody has suspended the vault since
			}
			if !found {
				return fmt.Errorf("%w: the service contradicts itself about whether there is a note %s: call again", storage.ErrUnavailable, noteOrigin)
			}
			return copied.RemoveNote(ctx, n.Name, n.Version)
		}},
	}
	for _, step := range steps {
		for tries := 0; ; tries++ {
			n, err := copied.FindNote(ctx, step.note)
			if err == nil {
				err = step.do(n)
			}
			if err == nil || errors.Is(err, storage.ErrNotFound) {
				break
			}
			if !errors.Is(err, storage.ErrConflict) || tries == 9 { // a follower may just have stored it
				return fmt.Errorf("mirror: open the copy: %w", err)
			}
		}
	}
	return nil
}

// MoveBack resumes a vault that has moved to a copy, and gives the copy up. The copy must be suspended; it says from then on
// that it has moved back. Nothing is copied. MoveBack may be repeated. place says for people where the vault is.
//
// Errors: [storage.ErrInvalid] if the vault has not moved, or not to that copy; fleet.Resume is for a vault that has not
// moved. errors.Is finds [ErrOpened] if the copy is not suspended, or members work on it.
func MoveBack(ctx context.Context, v, copied Copy, place string) error {
	note, suspension, err := suspensionOf(ctx, v)
	if err != nil || note.Version == "" {
		return err
	}
	state, err := StateOf(ctx, copied)
	if err != nil {
		return err
	}
	if suspension.MovedTo == "" || state.ID != suspension.MovedID {
		return fmt.Errorf("mirror: %w: the vault has not moved to that copy: %s", storage.ErrInvalid, suspension.Remedy())
	}
	there, other, err := suspensionOf(ctx, copied)
	if err != nil {
		return err
	}
	roster, err := copied.Roster(ctx)
	switch {
	case err != nil:
		return err
	case there.Version == "":
		return fmt.Errorf("mirror: %w, and is not suspended: suspend it first", ErrOpened)
	case other.MovedTo != "" && other.MovedTo != place:
		return fmt.Errorf("mirror: %w, and has moved on: %s", ErrOpened, other.Remedy())
	}
	if err := unused(roster); err != nil {
		return err
	}
	if !other.Copy && other.MovedTo == "" {
		other.MovedTo = place
		if _, err := put(ctx, copied, there.Name, other, there.Version); err != nil {
			return err
		}
	}
	return v.RemoveNote(ctx, note.Name, note.Version)
}

// suspensionOf returns the note that suspends a vault, or none.
func suspensionOf(ctx context.Context, v storage.Control) (n storage.Note, c storage.Suspension, err error) {
	n, err = v.FindNote(ctx, storage.NoteSuspended)
	if errors.Is(err, storage.ErrNotFound) {
		return storage.Note{}, c, nil
	}
	if err == nil {
		c, err = storage.ReadNote[storage.Suspension](n)
	}
	return n, c, err
}

func markOpened(ctx context.Context, copied storage.Control, n storage.Note, by string) error {
	o, err := storage.ReadNote[origin](n)
	if err != nil || !o.Opened.IsZero() {
		return err
	}
	o.Opened, o.By = time.Now().UTC(), by
	_, err = put(ctx, copied, n.Name, o, n.Version)
	return err
}

// put stores a value as a note in place of a version, and returns its version.
func put(ctx context.Context, notes storage.Control, name string, value any, version storage.Version) (storage.Version, error) {
	n, err := storage.NewNote(name, value, version)
	if err != nil {
		return "", err
	}
	return notes.PutNote(ctx, n)
}
