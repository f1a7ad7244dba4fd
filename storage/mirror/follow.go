package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Reviser tells cheaply which Running plans have changed. Follow uses it if the source offers it, as a vault of
// package azblob does. Otherwise Follow reads each Running plan in each round.
type Reviser interface {
	// Revisions returns for each plan a text that changes with each update of one of its sub-objects.
	Revisions(ctx context.Context, plans []uuid.UUID) (map[uuid.UUID]string, error)
}

// The errors of [Run] and [Follow], for errors.Is.
var (
	// ErrPromoted means that the copy is a vault of its own now, on which engines may work. It is no copy any more.
	ErrPromoted = errors.New("the copy was promoted: it is a vault of its own now")
	// ErrNoCopy means that the vault to write to is no copy, and not empty, or that the source is a copy.
	ErrNoCopy = errors.New("the vault is no copy")
	// ErrSourceSuspended means that the source is suspended: nothing changes there, and somebody may be switching to the copy.
	ErrSourceSuspended = errors.New("the source is suspended")
)

// FollowOptions are the options of [Follow].
type FollowOptions struct {
	// Name is the name of the copy among those of its source: up to 50 lower-case letters, digits and hyphens. The note
	// copy-NAME in the source says how far the copy has come. Required.
	Name string
	// By says who runs Follow, and why, for the audit log of the copy. Its At is ignored. Required.
	By workflow.Attribution
	// Interval is the time between the starts of two rounds. Default: a minute.
	Interval time.Duration
	// Compare is the time between two comparisons of everything. Default: a day.
	Compare time.Duration
	// Delete is that of [Options]. It takes effect in a comparison. Default: false.
	Delete bool
	// Concurrency is that of [Options]. Default: 16.
	Concurrency int
	// Round is called after each round. Default: nil, and nothing is called.
	Round func(Round)
}

func (o FollowOptions) complete() (FollowOptions, error) {
	errs := []error{Options{By: o.By, Concurrency: o.Concurrency}.check()}
	if !copyName.MatchString(o.Name) {
		errs = append(errs, driver.Invalid("Name", "%q is not 1 to 50 lower-case letters, digits and hyphens", o.Name))
	}
	for field, d := range map[string]time.Duration{"Interval": o.Interval, "Compare": o.Compare} {
		if d < 0 {
			errs = append(errs, driver.Invalid(field, "%v is negative", d))
		}
	}
	o.Interval, o.Compare = cmp.Or(o.Interval, time.Minute), cmp.Or(o.Compare, day)
	return o, errors.Join(errs...)
}

var copyName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,49}$`)

// Round is what a round of [Follow] found and did.
type Round struct {
	Report Report
	// Now is the time of the source when the round began.
	Now time.Time
	// Standing is what the round's note says.
	Standing Standing
	// Err is why the round did not bring the copy up to date, or what it could not compare. The next one tries again.
	Err error
}

// Lag is how far the copy was behind when the round began, or 0 before the copy has caught up for the first time.
func (r Round) Lag() time.Duration {
	if r.Standing.CaughtUp.IsZero() {
		return 0
	}
	return max(0, r.Now.Sub(r.Standing.CaughtUp))
}

// Standing is how far a copy has come: the text of the note copy-NAME in its source. Times are those of the source's
// clock.
type Standing struct {
	To string    `json:"to,omitempty"` // where the copy is, for people
	ID uuid.UUID `json:"id"`           // of the copy: a copy that was made anew has another one
	// CaughtUp is the time up to which the copy has all plans that were created, and all that engines did. Deletions,
	// updates of final plans, and plans that were stored more than an hour after the time in their IDs
	// wait for a comparison.
	CaughtUp time.Time `json:"caughtUp,omitzero"`
	// Compared is when the last comparison that found everything in order, or put it in order, began.
	Compared time.Time `json:"compared,omitzero"`
	// Comparing is the comparison that is in progress: when it began, and from which time on it has compared plans.
	Began     time.Time `json:"began,omitzero"`
	Comparing time.Time `json:"comparing,omitzero"`
	// Incomplete says that the comparison in progress has met plans that could not be compared.
	Incomplete bool `json:"incomplete,omitempty"`
}

// Follow keeps a copy up to date until ctx ends: it runs a round each Interval. A round copies the plans that were
// created since the last one, and brings forward those that were open, in the source or in the copy, with their pauses and
// signals. Each round also
// compares the plans of one more day, until all are compared, once each Compare. A round ends with a note in the source,
// which says how far the copy has come; see [Standing].
//
// Follow makes an empty vault a copy. It refuses a vault with plans that is no copy, one on which a member of a fleet
// works, a promoted copy, a suspended source, and a source that is a copy: the pair may be swapped. The audit log of the copy
// has each Follow that is not refused, see [storage.Audit].
//
// The copy and the note are all that Follow needs: it may die at any time and be started again, anywhere. Two of them do
// twice the work, and no harm. It takes memory for the IDs of the open plans.
//
// A round that fails is reported to Round, and the next one tries again. Follow returns the cause of ctx, [ErrPromoted],
// [ErrNoCopy], [ErrSourceSuspended], [storage.ErrInvalid] for wrong options, [errors.ErrUnsupported] for a vault that offers less
// than a [Pair] needs, or the error of a copy that is in use. The source needs a [storage.Control], too.
func Follow(ctx context.Context, pair Pair, o FollowOptions) error {
	o, err := o.complete()
	f := &follower{o: o}
	var errs [2]error
	f.replica, errs[0] = newReplica(pair, o.By, o.Delete)
	f.source, errs[1] = sideOf(pair.Source)
	if err = errors.Join(err, errs[0], errs[1]); err != nil {
		return failed("Follow", err)
	}
	admit := func(ctx context.Context) (Round, bool, error) {
		_, err := f.admit(ctx)
		return Round{}, err == nil, err
	}
	round := func(ctx context.Context) (Round, bool, error) {
		r, err := f.round(ctx)
		return r, false, err
	}
	if err = f.repeat(ctx, admit); err == nil && ctx.Err() == nil {
		err = storage.Audit(ctx, pair.Copy, f.entry("follow"), func(ctx context.Context) error { return f.repeat(ctx, round) })
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return failed("Follow", err)
}

// repeat calls round each Interval, and tells of it, until round is done or refuses the pair, or ctx ends.
func (f *follower) repeat(ctx context.Context, round func(ctx context.Context) (r Round, done bool, err error)) error {
	for ctx.Err() == nil {
		began := time.Now()
		r, done, err := round(ctx)
		if done || ctx.Err() != nil {
			return nil
		}
		r.Err = err
		if f.o.Round != nil {
			f.o.Round(r)
		}
		for _, refusal := range []error{ErrPromoted, ErrNoCopy, ErrSourceSuspended, errInUse, errTaken} {
			if errors.Is(err, refusal) {
				return err
			}
		}
		sleep.For(ctx, f.o.Interval-time.Since(began))
	}
	return nil
}

// errTaken means that another copy has the name.
var errTaken = errors.New("the name is taken")

// follower is a Follow that is running.
type follower struct {
	*replica
	source side
	o      FollowOptions

	seen        map[uuid.UUID]string // the revisions of the Running plans that the copy has
	repaired    bool                 // the copy has been recovered since the last failure
	standing    Standing             // what the note says
	noteVersion storage.Version
}

// round brings the copy up to date once.
func (f *follower) round(ctx context.Context) (round Round, err error) {
	there, err := f.source.Roster(ctx)
	if err != nil {
		return round, err
	}
	round.Now = there.Now
	if _, suspended := there.FindNote(storage.NoteSuspended); suspended {
		return round, fmt.Errorf("%w: a copy of it is brought up to date by the switch", ErrSourceSuspended)
	}
	if err := f.adopt(ctx); err != nil {
		return round, err
	}
	if err := f.recall(ctx, there); err != nil {
		return round, err
	}
	r := f.run()
	s := f.standing
	round.Standing = s
	if !f.repaired {
		r.bringKeys(ctx)
		if err := f.to.Recovery(ctx); err != nil {
			r.failed(err)
		}
	}
	err = r.withNotes(ctx, f.source, there, func(ctx context.Context) (err error) {
		f.seen, err = r.changes(ctx, s.CaughtUp, f.seen)
		return err
	})
	round.Report, err = r.finish(err)
	if f.repaired = err == nil; err != nil {
		return round, err
	}
	first := s.CaughtUp.IsZero()
	if s.CaughtUp = there.Now; first { // changes has compared everything
		s.Compared = there.Now
	}
	compared, err := f.compare(ctx, &s, there.Now)
	round.Report.add(compared)
	round.Standing = s
	return round, errors.Join(f.keep(ctx, s), err)
}

// run returns the work of a round.
func (f *follower) run() *run {
	return &run{from: f.source.Vault, replica: f.replica, began: time.Now(), opts: Options{Concurrency: f.o.Concurrency, Delete: f.o.Delete}}
}

// add adds what a comparison did.
func (r *Report) add(o Report) {
	r.Plans, r.Unchanged, r.Copied, r.Updated = r.Plans+o.Plans, r.Unchanged+o.Unchanged, r.Copied+o.Copied, r.Updated+o.Updated
	r.CopiedParts, r.Deleted, r.Failed = r.CopiedParts+o.CopiedParts, r.Deleted+o.Deleted, r.Failed+o.Failed
	r.Extra, r.ExtraOpen, r.Notes = r.Extra+o.Extra, r.ExtraOpen+o.ExtraOpen, r.Notes+o.Notes
}

// compare compares the plans of one more day, if a comparison is due. s is the standing after it. A plan that fails is
// left for the next comparison.
func (f *follower) compare(ctx context.Context, s *Standing, now time.Time) (report Report, err error) {
	if s.Began.IsZero() {
		if now.Sub(s.Compared) < f.o.Compare {
			return report, nil
		}
		s.Began, s.Comparing, s.Incomplete = now, now.Add(storage.MaxAhead), false
	}
	newest, err := newestBefore(ctx, s.Comparing, f.source.Vault, f.to.Vault)
	if err != nil {
		return report, err
	}
	if newest.IsZero() {
		if !s.Incomplete {
			s.Compared = s.Began
		}
		s.Began, s.Comparing, s.Incomplete = time.Time{}, time.Time{}, false
		r := f.run()
		r.bringKeys(ctx)
		return r.finish(nil)
	}
	r := f.run()
	r.opts.After, r.opts.Before = newest.Add(-day), newest.Add(time.Millisecond)
	if err = r.all(ctx); err == nil {
		s.Comparing = r.opts.After.Add(time.Millisecond)
		s.Incomplete = s.Incomplete || r.failures() > 0
	}
	return r.finish(err)
}

const (
	day = 24 * time.Hour
	// overlap is how long after the time in its ID a plan may be stored. Each round lists the plans of this time again.
	overlap = time.Hour
)

// newestBefore returns the creation time of the newest plan of both vaults before a time, or zero.
func newestBefore(ctx context.Context, t time.Time, vaults ...storage.Vault) (newest time.Time, err error) {
	for _, v := range vaults {
		found, err := storage.Collect(v.Search(ctx, storage.Filters{Before: t, Limit: 1}))
		if err != nil && !single(err) {
			return newest, err
		}
		for _, r := range found {
			if at := created(r.ID); at.After(newest) {
				newest = at
			}
		}
	}
	return newest, nil
}

// recall reads the note in the source, if it has changed. The note may be about an earlier copy, which was removed and made
// anew; then it says nothing about the present copy.
func (f *follower) recall(ctx context.Context, r storage.Roster) error {
	name := storage.NoteCopy + f.o.Name
	switch n, known := r.FindNote(name); {
	case !known:
		f.standing, f.noteVersion = Standing{}, ""
	case n.Version != f.noteVersion:
		n, err := f.source.FindNote(ctx, name)
		if errors.Is(err, storage.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if f.standing, err = storage.ReadNote[Standing](n); err != nil {
			f.standing = Standing{} // it is replaced
		}
		f.noteVersion = n.Version
	}
	if f.standing.ID != f.origin.ID {
		if !f.standing.CaughtUp.IsZero() && f.pair.To != f.standing.To && f.standing.To != "" {
			return fmt.Errorf("%w: note %s is about the copy in %s: choose another name", errTaken, name, f.standing.To)
		}
		f.standing = Standing{}
	}
	f.standing.To, f.standing.ID = f.pair.To, f.origin.ID
	return nil
}

// keep stores the standing, and its time in the copy. Another follower may have stored its own, which is as true: the
// next round goes on from that.
func (f *follower) keep(ctx context.Context, s Standing) error {
	version, err := put(ctx, f.source, storage.NoteCopy+f.o.Name, s, f.noteVersion)
	if errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrExists) || errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	f.standing, f.noteVersion = s, version
	f.origin.CaughtUp = s.CaughtUp
	version, err = put(ctx, f.to, noteOrigin, f.origin, f.version)
	if errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrNotFound) {
		return nil // the next round reads it
	}
	if err == nil {
		f.version = version
	}
	return err
}
