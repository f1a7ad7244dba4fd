package retention

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
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

// record is the text of the note with the policy.
type record struct {
	Form int `json:"form"`
	Policy
	// By and Why say who set the policy, and why.
	By  string `json:"by,omitempty"`
	Why string `json:"why,omitempty"`
	// Set is when it was set, by the store's clock. The version that sets it can't know: there it is zero, and means when
	// that version was stored.
	Set    time.Time `json:"set,omitzero"`
	AtOnce bool      `json:"atOnce,omitempty"`
	Claim  string    `json:"claim,omitempty"`
	Last   *Report   `json:"last,omitempty"`
}

// Report is what a step did.
type Report struct {
	At      time.Time `json:"at"` // when it began, by the store's clock
	By      string    `json:"by,omitempty"`
	Dropped int       `json:"dropped"`         // days
	Removed int       `json:"removed"`         // plans, one by one
	Kept    []KeptDay `json:"kept,omitempty"`  // the first of them
	KeptAll int       `json:"keptAll"`         // how many they are
	More    bool      `json:"more,omitempty"`  // something is left to do
	Error   string    `json:"error,omitempty"` // of the first day that failed, or why the step ended early
}

// KeptDay is a day that was to be dropped and is still there.
type KeptDay struct {
	Day storage.Day `json:"day"`
	Why string      `json:"why"`
}

// Stored is the policy of a store, and how far its steps have come.
type Stored struct {
	Policy Policy
	// By says who set the policy, why, and when by the store's clock.
	By workflow.Attribution
	// AtOnce says that the first step does not wait.
	AtOnce bool
	// Claim is who is at work on a step, since this version was stored. It is empty if nobody is.
	Claim string
	// Last is the last step that ended, maybe by an earlier policy. It is nil if none has.
	Last *Report
	// Version is the note's, and At when that was stored, by the store's clock.
	Version storage.Version
	At      time.Time
}

// record returns what is stored.
func (s Stored) record() record {
	return record{Form: form, Policy: s.Policy, By: s.By.By, Why: s.By.Why, Set: s.By.At, AtOnce: s.AtOnce, Claim: s.Claim, Last: s.Last}
}

// Begin returns when the next step may begin. It is in the past if one may begin now.
func (s Stored) Begin() time.Time {
	begin := s.By.At
	if !s.AtOnce {
		begin = s.By.At.Add(Delay)
	}
	if s.Claim != "" {
		begin = later(begin, s.At.Add(claimTTL))
	}
	if s.Last != nil && !s.Last.At.Before(s.By.At) {
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

// decode reads a policy from a note.
func decode(n storage.Note) (Stored, error) {
	unread := Stored{Version: n.Version, At: n.Stored}
	var version struct {
		Form int `json:"form"`
	}
	var r record
	err := json.Unmarshal(n.Text, &version)
	switch {
	case err == nil && version.Form > form:
		return unread, fmt.Errorf("note %s: %w: it has form %d, but this program knows only %d: update the program", noteName, storage.ErrSchema, version.Form, form)
	case err == nil && version.Form < 1:
		err = fmt.Errorf("there is no form %d", version.Form)
	case err == nil:
		err = json.Unmarshal(n.Text, &r)
	}
	if err == nil {
		r.Policy, err = r.WithDefaults()
	}
	if err != nil {
		return unread, fmt.Errorf("note %s: %w: %w: set the policy again", noteName, storage.ErrCorrupt, err)
	}
	if r.Set.IsZero() {
		r.Set = n.Stored
	}
	return Stored{r.Policy, workflow.Attribution{By: r.By, Why: r.Why, At: r.Set}, r.AtOnce, r.Claim, r.Last, n.Version, n.Stored}, nil
}

// put stores a policy in place of a version, and returns its version.
func put(ctx context.Context, notes storage.Control, s Stored, version storage.Version) (storage.Version, error) {
	n, err := storage.NewNote(noteName, s.record(), version)
	if err != nil {
		return "", err
	}
	return notes.PutNote(ctx, n)
}

// failed returns the error of a call, or nil.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return &storage.Error{Op: op, Err: err}
}

// Find returns the policy of a store, or [storage.ErrNotFound]. With [storage.ErrCorrupt] and [storage.ErrSchema] it
// returns the version. A vault without [storage.Control] is [errors.ErrUnsupported].
func Find(ctx context.Context, vault storage.Vault) (Stored, error) {
	notes, err := storage.Require[storage.Control](vault)
	if err != nil {
		return Stored{}, failed("Find policy", err)
	}
	s, err := find(ctx, notes)
	return s, failed("Find policy", err)
}

func find(ctx context.Context, notes storage.Control) (Stored, error) {
	n, err := notes.FindNote(ctx, noteName)
	if err != nil {
		return Stored{Version: n.Version, At: n.Stored}, err
	}
	return decode(n)
}

// Change says how a policy is changed.
type Change struct {
	// By says who sets the policy, and why, for the policy and for the audit log. Its At is ignored. Required.
	By workflow.Attribution
	// AtOnce lets the first step begin at once. Default: false, and it waits for [Delay].
	AtOnce bool
}

// tries is how often a change is tried whose note somebody else changes meanwhile.
const tries = 5

// Set sets the policy of a store, and reports whether that changed it. The Delay begins anew with each change. A step that is
// under way by the policy before ends within a minute. The audit log has each change, see [storage.Audit].
//
// Errors: [storage.ErrInvalid] for a policy that makes no sense, and if nobody asks; [errors.ErrUnsupported] for a vault
// without [storage.Control].
func Set(ctx context.Context, vault storage.Vault, p Policy, c Change) (changed bool, err error) {
	notes, err := storage.Require[storage.Control](vault)
	p, wrong := p.WithDefaults()
	if err = errors.Join(err, wrong, storage.CheckBy(c.By)); err != nil {
		return false, failed("Set policy", err)
	}
	s := setting{notes, Stored{Policy: p, By: workflow.Attribution{By: c.By.By, Why: c.By.Why}, AtOnce: c.AtOnce}}
	if _, same, err := s.look(ctx); err != nil || same {
		return false, failed("Set policy", err)
	}
	entry := storage.AuditEntry{What: "policy-set", By: c.By, Detail: p.String()}
	err = storage.Audit(ctx, vault, entry, func(ctx context.Context) (err error) {
		changed, err = s.set(ctx)
		return err
	})
	return changed, failed("Set policy", err)
}

// setting is a Set in progress, and the policy to set.
type setting struct {
	notes storage.Control
	to    Stored
}

// look returns the policy before, and whether it is the same already. One that is damaged is replaced.
func (s setting) look(ctx context.Context) (was Stored, same bool, err error) {
	was, err = find(ctx, s.notes)
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrCorrupt) {
		return was, false, nil
	}
	return was, was.Policy == s.to.Policy && (was.AtOnce || !s.to.AtOnce), err
}

func (s setting) set(ctx context.Context) (changed bool, err error) {
	for range tries {
		was, same, err := s.look(ctx)
		if err != nil || same {
			return false, err
		}
		s.to.Last = was.Last
		if _, err = put(ctx, s.notes, s.to, was.Version); !overtaken(err) {
			return err == nil, err
		}
	}
	return false, errOvertaken
}

// errOvertaken means that others keep changing the policy.
var errOvertaken = fmt.Errorf("%w: others keep changing the policy: call again", storage.ErrConflict)

// Remove removes the policy of a store, and reports whether there was one. A step that is under way ends within a minute. by
// says who removes it, and why, for the audit log.
//
// Errors: [storage.ErrInvalid] if nobody asks; [errors.ErrUnsupported] for a vault without [storage.Control].
func Remove(ctx context.Context, vault storage.Vault, by workflow.Attribution) (removed bool, err error) {
	notes, err := storage.Require[storage.Control](vault)
	if err = errors.Join(err, storage.CheckBy(by)); err != nil {
		return false, failed("Remove policy", err)
	}
	if version, err := present(ctx, notes); err != nil || version == "" {
		return false, failed("Remove policy", err)
	}
	entry := storage.AuditEntry{What: "policy-remove", By: by}
	err = storage.Audit(ctx, vault, entry, func(ctx context.Context) (err error) {
		removed, err = remove(ctx, notes)
		return err
	})
	return removed, failed("Remove policy", err)
}

// present returns the version of the policy, even of one that can't be read, or "" if there is none.
func present(ctx context.Context, notes storage.Control) (storage.Version, error) {
	n, err := notes.FindNote(ctx, noteName)
	if errors.Is(err, storage.ErrNotFound) { // a wrong answer must not leave a policy that seems to be removed
		n, err = notes.FindNote(ctx, noteName)
	}
	if n.Version != "" || errors.Is(err, storage.ErrNotFound) {
		err = nil
	}
	return n.Version, err
}

func remove(ctx context.Context, notes storage.Control) (removed bool, err error) {
	for range tries {
		version, err := present(ctx, notes)
		if err != nil || version == "" {
			return false, err
		}
		if err = notes.RemoveNote(ctx, noteName, version); !overtaken(err) {
			return err == nil, err
		}
	}
	return false, errOvertaken
}

// overtaken reports whether a write failed because somebody else has changed the note.
func overtaken(err error) bool {
	return errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrExists)
}
