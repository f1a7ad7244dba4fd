package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob/storage"
)

// noteName is the name of the note with the policy.
const noteName = "policy"

// The times of a step, by the store's clock.
const (
	// Delay is the time between a change of the policy and the first step.
	Delay = 24 * time.Hour
	// claimTTL is how long a claim lasts. Its owner stops before that.
	claimTTL = 30 * time.Minute
	// interval is the time between two steps, a little less than a day. After a step that left something, or failed,
	// it is pause.
	interval = 23 * time.Hour
	pause    = time.Hour
)

// form is the form of the record that this code knows. A newer one is left alone.
const form = 1

// Record is the note with the policy.
type Record struct {
	Form int `json:"form"`
	Policy
	// By and Why say who set the policy, and why.
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
	// Set is when it was set, by the store's clock. The version that sets it can't know: there it is zero, and means when
	// that version was stored.
	Set time.Time `json:"set,omitzero"`
	// AtOnce says that the first step does not wait.
	AtOnce bool `json:"atOnce,omitempty"`
	// Claim is who is at work on a step, since this version was stored. It is empty if nobody is.
	Claim string `json:"claim,omitempty"`
	// Last is the last step that ended, maybe by an earlier policy.
	Last *Report `json:"last,omitempty"`
}

// Report is what a step did.
type Report struct {
	At      time.Time `json:"at"` // when it began, by the store's clock
	By      string    `json:"by,omitempty"`
	Dropped int       `json:"dropped"`         // days
	Removed int64     `json:"removed"`         // plans, one by one
	Kept    []KeptDay `json:"kept,omitempty"`  // the first of them
	KeptAll int       `json:"keptAll"`         // how many they are
	More    bool      `json:"more,omitempty"`  // something is left to do
	Error   string    `json:"error,omitempty"` // of the first day that failed, or why the step ended early
}

// KeptDay is a day that was to be dropped and is still there.
type KeptDay struct {
	Day string `json:"day"`
	Why string `json:"why"`
}

// Stored is a record with the note's version, and with the times that only the store knows.
type Stored struct {
	Record
	Version storage.Version
	At      time.Time // when this version was stored
}

// Begin returns when the next step may begin. It is in the past if one may begin now.
func (s Stored) Begin() time.Time {
	begin := s.Set
	if !s.AtOnce {
		begin = s.Set.Add(Delay)
	}
	if s.Claim != "" {
		begin = later(begin, s.At.Add(claimTTL))
	}
	if s.Last != nil && !s.Last.At.Before(s.Set) {
		wait := interval
		if s.Last.More || s.Last.Error != "" {
			wait = pause
		}
		begin = later(begin, s.Last.At.Add(wait))
	}
	return begin
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// decode reads a record from a note.
func decode(n storage.Note) (Stored, error) {
	s := Stored{Version: n.Version, At: n.Stored}
	var version struct {
		Form int `json:"form"`
	}
	err := json.Unmarshal(n.Text, &version)
	switch {
	case err == nil && version.Form > form:
		return s, fmt.Errorf("retention: note %s: %w: it has form %d, but this program knows only %d: update the program", noteName, storage.ErrSchema, version.Form, form)
	case err == nil && version.Form < 1:
		err = fmt.Errorf("there is no form %d", version.Form)
	case err == nil:
		err = json.Unmarshal(n.Text, &s.Record)
	}
	if err == nil {
		s.Policy, err = s.WithDefaults()
	}
	if err != nil {
		return Stored{Version: n.Version, At: n.Stored}, fmt.Errorf("retention: note %s: %w: %w: set the policy again", noteName, storage.ErrCorrupt, err)
	}
	if s.Set.IsZero() {
		s.Set = n.Stored
	}
	return s, nil
}

// put stores a record in place of a version, and returns its version.
func put(ctx context.Context, notes storage.Control, r Record, version storage.Version) (storage.Version, error) {
	r.Form = form
	n, err := storage.NewNote(noteName, r, version)
	if err != nil {
		return "", err
	}
	return notes.PutNote(ctx, n)
}

// Find returns the policy of a store, or [storage.ErrNotFound]. With [storage.ErrCorrupt] and [storage.ErrSchema] it
// returns the version.
func Find(ctx context.Context, notes storage.Control) (Stored, error) {
	n, err := notes.FindNote(ctx, noteName)
	if err != nil {
		return Stored{Version: n.Version, At: n.Stored}, err
	}
	return decode(n)
}

// Change says who changes a policy, and why.
type Change struct {
	By, Why string
	// AtOnce lets the first step begin at once. Default: it waits for [Delay].
	AtOnce bool
}

// tries is how often a change is tried whose note somebody else changes meanwhile.
const tries = 5

// Set sets the policy of a store, and reports whether that changed it. The Delay begins anew with each change. A step that is
// under way by the policy before ends within a minute.
func Set(ctx context.Context, notes storage.Control, p Policy, c Change) (changed bool, err error) {
	if p, err = p.WithDefaults(); err != nil {
		return false, err
	}
	for range tries {
		was, findErr := Find(ctx, notes)
		switch {
		case errors.Is(findErr, storage.ErrNotFound), errors.Is(findErr, storage.ErrCorrupt): // it is replaced
		case findErr != nil:
			return false, findErr
		case was.Policy == p && (was.AtOnce || !c.AtOnce):
			return false, nil
		}
		_, err = put(ctx, notes, Record{Policy: p, By: c.By, Why: c.Why, AtOnce: c.AtOnce, Last: was.Last}, was.Version)
		if !overtaken(err) {
			return err == nil, err
		}
	}
	return false, err
}

// Remove removes the policy of a store, and reports whether there was one. A step that is under way ends within a minute.
func Remove(ctx context.Context, notes storage.Control) (removed bool, err error) {
	for range tries {
		n, err := notes.FindNote(ctx, noteName)
		if errors.Is(err, storage.ErrNotFound) { // a wrong answer must not leave a policy that seems to be removed
			n, err = notes.FindNote(ctx, noteName)
		}
		if n.Version == "" {
			if errors.Is(err, storage.ErrNotFound) {
				err = nil
			}
			return false, err
		}
		if err = notes.RemoveNote(ctx, noteName, n.Version); !overtaken(err) {
			return err == nil, err
		}
	}
	return false, err
}

// overtaken reports whether a write failed because somebody else has changed the note.
func overtaken(err error) bool {
	return errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrExists)
}
