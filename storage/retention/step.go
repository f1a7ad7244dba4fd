package retention

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/planvault/azblob/storage"
)

// The limits of a step, by the clock of the process.
const (
	// stepBudget is the time after which a step begins nothing more, and stepLimit that after which its context ends:
	// before its claim does.
	stepBudget = 10 * time.Minute
	stepLimit  = 20 * time.Minute
	// look is how long a step goes on without a look at the note.
	look = time.Minute
)

// Enforcer enforces the policy of a store beside those of other processes. It is not safe for concurrent use.
type Enforcer struct {
	vault Vault
	name  string
	known Stored // as it was read last
}

// NewEnforcer returns an enforcer on a vault. The name is for people.
func NewEnforcer(vault Vault, name string) *Enforcer { return &Enforcer{vault: vault, name: name} }

// Look does a step if one is due, and the store is not suspended. It takes one request if none is, and one more after a
// change of the policy. It returns the policy as it was read, or nil if there is none, and what the step did, or nil.
// The error is why there is no step, or why it failed in part. Call it each hour.
func (e *Enforcer) Look(ctx context.Context) (*Stored, *Report, error) {
	roster, err := e.read(ctx)
	if err != nil || e.known.Version == "" {
		return nil, nil, err
	}
	policy, now := e.known, roster.Now
	if _, suspended := roster.FindNote(storage.NoteSuspended); suspended || now.Before(policy.Begin()) {
		return &policy, nil, nil
	}
	claim := policy
	claim.Claim = e.name
	version, err := put(ctx, e.vault, claim, policy.Version)
	if overtaken(err) {
		return &policy, nil, nil // another process does it, or the policy has changed
	}
	if err != nil {
		return &policy, nil, fmt.Errorf("claim a step of the policy: %w", err)
	}
	s := step{Enforcer: e, policy: policy.Policy, version: version, report: &Report{At: later(now, policy.By.At), By: e.name}, began: time.Now()}
	err = s.run(ctx)
	claim.Claim, claim.Last = "", s.report
	if _, putErr := put(ctx, e.vault, claim, version); putErr != nil && !overtaken(putErr) {
		err = errors.Join(err, fmt.Errorf("report a step of the policy: %w", putErr))
	}
	return &policy, s.report, err
}

// read reads the policy, unless it is known, and returns the roster.
func (e *Enforcer) read(ctx context.Context) (roster storage.Roster, err error) {
	if roster, err = e.vault.Roster(ctx); err != nil {
		return roster, fmt.Errorf("look for a policy: %w", err)
	}
	n, _ := roster.FindNote(noteName)
	version := n.Version
	if version == "" || version != e.known.Version {
		e.known = Stored{}
	}
	if version != e.known.Version {
		found, err := find(ctx, e.vault)
		switch {
		case errors.Is(err, storage.ErrNotFound): // removed meanwhile
		case err != nil:
			return roster, err
		default:
			e.known = found
		}
	}
	return roster, nil
}

// step is a step that is being done.
type step struct {
	*Enforcer
	policy  Policy
	version storage.Version // of the claim
	report  *Report
	began   time.Time
	lost    bool // the claim is another's, or the policy has changed
}

// run does the step, and fills the report.
func (s *step) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	errs := []error{s.days(ctx)}
	if s.policy.Catalogue && s.mayGoOn(ctx) {
		errs = append(errs, s.vault.Upkeep(ctx))
	}
	err := errors.Join(errs...)
	if err != nil {
		s.report.Error = cut(err.Error())
		err = fmt.Errorf("do a step of the policy: %w", err)
	}
	return err
}

// days removes what is due, oldest day first. A day that fails does not stop the others.
func (s *step) days(ctx context.Context) error {
	days, err := s.vault.DueDays(ctx, s.policy)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range days {
		switch {
		case d.Held:
			s.keep(d, "held")
			continue
		case d.Operation() == OperationKeep:
			continue
		}
		if !s.mayGoOn(ctx) {
			break
		}
		err := s.retire(ctx, d)
		if err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil || storage.LacksRight(err) || errors.Is(err, storage.ErrClosed) {
			s.report.More = true
			break
		}
	}
	return errors.Join(errs...)
}

// retire removes what is due in a day.
func (s *step) retire(ctx context.Context, d Day) error {
	for {
		r, err := s.vault.Retire(ctx, s.policy, d.Day, look)
		s.report.Removed += r.Removed
		if r.Dropped {
			s.report.Dropped++
		}
		if err == nil && r.More && s.mayGoOn(ctx) {
			continue
		}
		if s.report.More = s.report.More || r.More; r.Kept != "" {
			s.keep(d, r.Kept)
		}
		return err
	}
}

// mayGoOn reports whether the step has time left, and the note is still that of its claim.
func (s *step) mayGoOn(ctx context.Context) bool {
	if s.lost {
		return false
	}
	if ctx.Err() != nil || time.Since(s.began) >= stepBudget {
		s.report.More = true
		return false
	}
	n, err := s.vault.FindNote(ctx, noteName)
	switch {
	case n.Version == s.version:
		return true
	case err == nil || n.Version != "" || errors.Is(err, storage.ErrNotFound):
		s.lost = true
	}
	s.report.More = true
	return false
}

// firstKept is how many days a report names.
const firstKept = 10

func (s *step) keep(d Day, why string) {
	if s.report.KeptAll++; len(s.report.Kept) < firstKept {
		s.report.Kept = append(s.report.Kept, KeptDay{d.Day, cut(why)})
	}
}

// mostText is how many bytes a text of a report may have.
const mostText = 500

// cut returns the start of a text that fits into a report.
func cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), mostText)], "") }
