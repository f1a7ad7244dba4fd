package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
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
	// Promoted and By say when and by whom the copy was made a vault of its own.
	Promoted time.Time `json:"opened,omitzero"`
	By       string    `json:"by,omitempty"`
}

// errInUse means that a member works on the copy.
var errInUse = errors.New("the copy is in use")

// side is a vault with what it offers beside plans.
type side struct {
	storage.Vault
	storage.Control
}

func sideOf(v storage.Vault) (side, error) {
	control, err := storage.Require[storage.Control](v)
	return side{v, control}, err
}

// replica is the copy of a pair, and what is known of it.
type replica struct {
	pair Pair
	to   struct {
		side
		storage.Copier
	}
	by      workflow.Attribution // who asks
	removes bool                 // what the source does not have is removed

	origin  origin
	version storage.Version // of the origin
	roster  storage.Roster  // at the last look
	notes   *notes          // nil before a run has looked
}

// newReplica returns the copy of a pair, or [errors.ErrUnsupported].
func newReplica(p Pair, by workflow.Attribution, removes bool) (*replica, error) {
	f := &replica{pair: p, by: by, removes: removes}
	var errs [2]error
	f.to.side, errs[0] = sideOf(p.Copy)
	f.to.Copier, errs[1] = storage.Require[storage.Copier](p.Copy)
	return f, errors.Join(errs[:]...)
}

// entry returns the entry of a change in the log of the copy.
func (f *replica) entry(what string) storage.AuditEntry {
	return storage.AuditEntry{What: what, By: f.by, Detail: "from " + cmp.Or(f.pair.From, "a vault")}
}

// State says what a vault is a copy of.
type State struct {
	// Copy says that the vault is a copy, or was one. The other fields are zero if not.
	Copy bool
	// ID is that of the copy. One that was removed and made anew has another ID.
	ID uuid.UUID
	// CaughtUp is the time up to which the copy had everything at the last round of [Follow], by the source's clock.
	CaughtUp time.Time
	// Promoted and By say when and by whom the copy was made a vault of its own.
	Promoted time.Time
	By       string
}

// StateOf returns what a vault is a copy of. A vault without [storage.Control] is [errors.ErrUnsupported].
func StateOf(ctx context.Context, v storage.Vault) (State, error) {
	control, err := storage.Require[storage.Control](v)
	if err != nil {
		return State{}, failed("StateOf", err)
	}
	return stateOf(ctx, control)
}

func stateOf(ctx context.Context, c storage.Control) (State, error) {
	n, found, err := findOrigin(ctx, c)
	if err != nil || !found {
		return State{}, err
	}
	o, err := storage.ReadNote[origin](n)
	return State{err == nil, o.ID, o.CaughtUp, o.Promoted, o.By}, err
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

// Adopt suspends an empty vault and makes it a copy, as [Run] and [Follow] do when they begin. by says who asks, for the
// audit log. It returns nil for a copy, [ErrPromoted] for a copy that was promoted, [ErrNoCopy] for any other vault with plans
// and for a source that is a copy, and refuses a vault on which a member works.
func Adopt(ctx context.Context, pair Pair, by workflow.Attribution) error {
	f, err := newReplica(pair, by, false)
	if err = errors.Join(storage.CheckBy(by), err); err != nil {
		return failed("Adopt", err)
	}
	copied, err := f.admit(ctx)
	if err == nil && !copied {
		err = storage.Audit(ctx, pair.Copy, f.entry("adopt"), f.adopt)
	}
	return failed("Adopt", err)
}

// admit returns an error for a pair that is refused, and reports whether the copy is one already. It writes nothing.
func (f *replica) admit(ctx context.Context) (copied bool, err error) {
	if err := f.pair.check(ctx); err != nil {
		return false, err
	}
	_, copied, err = f.look(ctx)
	return copied, err
}

// check returns [ErrNoCopy] for a pair that is swapped, or has one store twice.
func (p Pair) check(ctx context.Context) error {
	if source, copied := innermost(p.Source), innermost(p.Copy); reflect.ValueOf(source).Comparable() && source == copied {
		return fmt.Errorf("%w: it is the source itself", ErrNoCopy)
	}
	control, ok := storage.As[storage.Control](p.Source)
	if !ok {
		return nil // a mirror can't make it a copy
	}
	state, err := stateOf(ctx, control)
	if err == nil && state.Copy && state.Promoted.IsZero() {
		err = fmt.Errorf("%w to write to: the source is a copy itself: are the two swapped?", ErrNoCopy)
	}
	return err
}

// innermost returns the vault that decorators wrap.
func innermost(v storage.Vault) storage.Vault {
	for {
		wraps, ok := v.(interface{ Unwrap() storage.Vault })
		if !ok {
			return v
		}
		v = wraps.Unwrap()
	}
}

// adopt makes the vault a suspended copy, if it is not, and reads its origin.
func (f *replica) adopt(ctx context.Context) error {
	for range 3 { // another follower may do the same at the same time
		r, copied, err := f.look(ctx)
		if err != nil || copied {
			return err
		}
		if err := f.mark(ctx, r); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: somebody removes the notes that make it a copy", errInUse)
}

// look reads the origin and the roster of a vault that is a copy, or may become one. It reports whether it is a suspended copy.
func (f *replica) look(ctx context.Context) (r storage.Roster, copied bool, err error) {
	if r, err = f.to.Roster(ctx); err != nil {
		return r, false, err
	}
	f.roster = r
	n, known := r.FindNote(noteOrigin)
	if !known || n.Version != f.version {
		n, err = f.to.FindNote(ctx, noteOrigin) // a listing that misses it must not suspend a vault
		if known = !errors.Is(err, storage.ErrNotFound); known && err != nil {
			return r, false, err
		}
	}
	if known && n.Version != f.version {
		if f.origin, err = storage.ReadNote[origin](n); err != nil {
			return r, false, err
		}
		f.version = n.Version
	}
	if err := f.refuses(f.origin); known && err != nil {
		return r, false, err
	}
	if _, suspended := r.FindNote(storage.NoteSuspended); known && suspended {
		return r, true, nil
	}
	if err := unused(r); err != nil || known { // nobody joins a vault that is suspended
		return r, false, err
	}
	if err = f.empty(ctx); errors.Is(err, ErrNoCopy) {
		if _, found, findErr := findOrigin(ctx, f.to); found && findErr == nil { // another follower has made it a copy meanwhile
			return f.look(ctx)
		}
	}
	return r, false, err
}

// refuses returns an error if a copy was promoted, or if plans would be removed that another source has.
func (f *replica) refuses(o origin) error {
	switch {
	case !o.Promoted.IsZero():
		return fmt.Errorf("%w since %s, by %s: mirror to another prefix or account", ErrPromoted, o.Promoted.Format(time.RFC3339), o.By)
	case f.removes && f.pair.From != "" && o.From != "" && f.pair.From != o.From:
		return fmt.Errorf("%w of %s, but of %s, whose plans would be removed", ErrNoCopy, f.pair.From, o.From)
	}
	return nil
}

// stillCopy returns nil if the vault is a copy that is not promoted.
func (f *replica) stillCopy(ctx context.Context) error {
	n, found, err := findOrigin(ctx, f.to)
	if err != nil {
		return err
	}
	if !found {
		return fmt.Errorf("%w: nothing was written to it", ErrNoCopy)
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
			return fmt.Errorf("%w, and has plans, such as %s: a copy begins empty: choose another prefix or account", ErrNoCopy, r.Result.ID)
		}
	}
	return nil
}

// unused returns an error if a member works on a copy.
func unused(r storage.Roster) error {
	for _, m := range r.Members {
		if m.Phase != storage.PhaseLeft {
			return fmt.Errorf("%w: node %s (%s) is a member of its fleet: stop it, or choose another copy", errInUse, m.ID, m.Name)
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
		was.At, was.By, was.Why, was.Copy = time.Now().UTC(), f.by.By, "a copy of "+f.pair.From, true
		if _, err := put(ctx, f.to, storage.NoteSuspended, was, n.Version); err != nil && !errors.Is(err, storage.ErrExists) && !errors.Is(err, storage.ErrConflict) {
			return err
		}
	}
	if _, known := r.FindNote(noteOrigin); !known {
		o := origin{ID: uuid.New(), From: f.pair.From, Began: time.Now().UTC()}
		if _, err := put(ctx, f.to, noteOrigin, o, ""); err != nil && !errors.Is(err, storage.ErrExists) {
			return err
		}
	}
	return nil
}

// Promote makes a copy a vault of its own: from then on, no mirror writes to it, and engines may work on it. It first marks
// the copy as promoted, then reserves the Uniques of its open plans, with a Search for them and a request for each that has one,
// and then ends its suspension. It may be repeated. by says who asks, for the audit log of the copy.
// [ErrNoCopy] means that the vault is no copy; nothing was changed.
func Promote(ctx context.Context, copied storage.Vault, by workflow.Attribution) error {
	control, err := storage.Require[storage.Control](copied)
	if err = errors.Join(storage.CheckBy(by), err); err == nil {
		entry := storage.AuditEntry{What: "promote", By: by}
		err = storage.Audit(ctx, copied, entry, func(ctx context.Context) error { return promote(ctx, side{copied, control}, by.By) })
	}
	return failed("Promote", err)
}

func promote(ctx context.Context, copied side, by string) error {
	found := false // its origin
	steps := []struct {
		note string
		do   func(n storage.Note) error
	}{
		{noteOrigin, func(n storage.Note) error { found = true; return markPromoted(ctx, copied, n, by) }},
		{storage.NoteSuspended, func(n storage.Note) error {
			if c, err := storage.ReadNote[storage.Suspension](n); err != nil || !c.Copy {
				return err // somebody has suspended the vault since
			}
			if !found {
				return fmt.Errorf("%w: the service contradicts itself about whether there is a note %s: call again", storage.ErrUnavailable, noteOrigin)
			}
			if err := reserveUniques(ctx, copied); err != nil {
				return err
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
				return err
			}
		}
	}
	if !found {
		return ErrNoCopy
	}
	return nil
}

// MoveBack resumes the source of a pair, which has moved to the copy, and gives the copy up. The copy must be suspended; it
// says from then on that it has moved back. Nothing is copied. MoveBack may be repeated. by says who asks, for the audit log of
// the source.
//
// Errors: [storage.ErrInvalid] if the source has not moved, or not to that copy; fleet.Resume is for a vault that has not
// moved. errors.Is finds [ErrPromoted] if the copy is not suspended, or members work on it.
func MoveBack(ctx context.Context, pair Pair, by workflow.Attribution) error {
	v, err := sideOf(pair.Source)
	copied, copyErr := sideOf(pair.Copy)
	if err = errors.Join(storage.CheckBy(by), err, copyErr); err == nil {
		entry := storage.AuditEntry{What: "move-back", By: by, Detail: "from " + cmp.Or(pair.To, "a copy")}
		err = storage.Audit(ctx, pair.Source, entry, func(ctx context.Context) error { return moveBack(ctx, v, copied, pair.From) })
	}
	return failed("MoveBack", err)
}

func moveBack(ctx context.Context, v, copied storage.Control, place string) error {
	note, suspension, err := suspensionOf(ctx, v)
	if err != nil || note.Version == "" {
		return err
	}
	state, err := stateOf(ctx, copied)
	if err != nil {
		return err
	}
	if suspension.MovedTo == "" || state.ID != suspension.MovedID {
		return fmt.Errorf("%w: the vault has not moved to that copy: %s", storage.ErrInvalid, suspension.Remedy())
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
		return fmt.Errorf("%w, and is not suspended: suspend it first", ErrPromoted)
	case other.MovedTo != "" && other.MovedTo != place:
		return fmt.Errorf("%w, and has moved on: %s", ErrPromoted, other.Remedy())
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

func markPromoted(ctx context.Context, copied storage.Control, n storage.Note, by string) error {
	o, err := storage.ReadNote[origin](n)
	if err != nil || !o.Promoted.IsZero() {
		return err
	}
	o.Promoted, o.By = time.Now().UTC(), by
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
