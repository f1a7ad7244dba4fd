// Package mirror copies the plans of a vault to another one, for a copy in another account or region. [Run] brings
// the copy up to date once; call it again and again.
//
// At each moment the copy is a valid vault that any tool can read: each plan in it is whole, and only moves forward,
// as in the source. A mirror may be stopped at any point and run again, and beside engines that work on the source.
//
// A copy begins as an empty vault. A mirror suspends it with the note [storage.NoteSuspended], and marks it as a copy
// with a note of its own, until [Promote] makes it a vault of its own. A mirror writes to no other vault. It reads that note
// again before it writes a plan, after it has read both sides, and it changes and removes only plans that a mirror has
// written and nobody else has changed since; see [storage.Copier].
//
// A mirror that is left running, or frozen, therefore undoes nothing of what is done on a promoted copy, with one exception.
// If two mirrors copy a plan at once, such as Follow and a switch, and the plan is deleted in the promoted copy less than ten
// minutes after the slower mirror has read the note, that mirror may store the plan again.
//
// A mirror also copies the notes of package fleet that pause plans and that are signals for them, and removes them when the source
// has them no more. They were stored in the copy when they were copied. Requests to stop a plan stay in the source: make them
// again in a promoted copy. Pause a plan of a copy after Promote: the next mirror removes a pause that the source does not have.
//
// Of the keys that plans take turns for, it copies the limits and pauses that operators have set: [Run] each time, and [Follow]
// when it begins and with each comparison. Who has a turn is not copied. A promoted copy finds it by its own plans, and
// [Promote] reserves the Uniques of those that are open.
//
// Use vaults with a nil registry, as for package bundle.
package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/internal/same"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Pair is a vault and its copy, which must be different stores. The source is read; only [Follow] and [MoveBack] write
// notes to it. The copy is written to, and offers a [storage.Copier] and a [storage.Control].
type Pair struct {
	Source, Copy storage.Vault
	// From and To say for people where the source and the copy are. A copy remembers the first From. Default: empty.
	From, To string
}

// Options are the options of [Run].
type Options struct {
	// By says who runs the mirror, and why, for the audit log of the copy. Its At is ignored. Required, but for a dry run.
	By workflow.Attribution
	// After and Before select the plans that were created between two times, both exclusive. The creation time
	// is the one in the plan's ID. The zero time is no bound. Default: all plans.
	After, Before time.Time
	// Delete removes plans from the copy that the source does not have. Run asks the source for each of them
	// by its ID, and removes nothing after the source's listing has failed anywhere. Plans whose day is held in the copy,
	// and plans that somebody else has stored or changed, stay and count as failed. Run is [ErrNoCopy] if the copy remembers
	// another From. Default: false, and all of them stay.
	Delete bool
	// Deep reads each plan at both sides and compares all of it. Default: a plan that is NotStarted or final and
	// has the same listing at both sides is taken to be the same, false.
	Deep bool
	// DryRun writes nothing. The report says what would be done, so it measures how far the copy is behind. Default: false.
	DryRun bool
	// Budget is the time after which no other plan is begun. Those that were begun are finished, and at least one
	// of those that differ is. Default: 0, and Run ends when no plan is left.
	Budget time.Duration
	// Concurrency is how many plans are compared or copied at a time. Default: 16.
	Concurrency int
	// Progress is called after each plan of the source, and each that only the copy has. The total is unknown.
	// Default: nil, and nothing is called.
	Progress func(storage.Progress)
}

// Report is what [Run] found and did. In a dry run it is what Run would do.
type Report struct {
	// Plans is the number of plans in the source.
	Plans int
	// Unchanged, Copied and Updated are the numbers of plans that were the same in the copy, that it did not
	// have, and that it had in an older state.
	Unchanged, Copied, Updated int
	// CopiedParts is the number of sub-objects of the plans that were copied. A copy takes one request for each
	// of them, and a few for the plan.
	CopiedParts int
	// Deleted is the number of plans that were removed from the copy, and Extra that of plans that only the
	// copy has and that stay. ExtraOpen of those are not final: engines would run them, if the copy is promoted.
	Deleted, Extra, ExtraOpen int
	// Notes is the number of pauses and signals of plans that were copied, or removed from the copy.
	Notes int
	// Foreign is the number of plans in the two vaults that another program wrote. Run leaves them alone.
	Foreign int
	// Failed is the number of plans that could not be brought up to date. The error names them.
	Failed int
	// Behind is how long the copy had been behind when Run began: the age of the oldest change that Run found
	// in the source and not in the copy, by the times in the plans; 0 if there was none. It is no more than an
	// estimate: the update of a sub-object has the time of its plan.
	Behind time.Duration
	// More says that plans are left, because the budget was used up or ctx ended. Another Run skips what is in
	// the copy already, and continues.
	More bool
}

// Run brings a copy up to date with a vault: it restores the plans that the copy lacks, and updates those that
// have changed. It lists both vaults side by side, and takes constant memory. A plan that is NotStarted or
// final and has the same listing at both sides takes no request of its own; a Running one is read at both.
//
// It takes one more list to learn which pauses and signals plans have, if the source offers a [storage.Control], and four requests
// for each that has come or gone. It lists the keys of both sides, too.
//
// Run begins by making an empty vault a copy, and with a Recovery of the copy, which finishes or removes what a Run that
// died has left. Before anything is written, it returns [ErrPromoted] for a promoted copy, and [ErrNoCopy] for a vault that
// has plans and is no copy, and for a pair that is swapped or has one store twice: a source that is a copy. The audit log
// of the copy has each Run that is not refused, see [storage.Audit].
//
// A plan that was NotStarted or Running in the copy is brought forward as an engine would: to Running, then the
// sub-objects that differ, then the plan. A final plan that differs is stored again as a whole. A plan of the copy that
// can't be brought forward is ErrExists: somebody else has stored or changed it, its status or epoch is further than the
// source's, or its sub-objects are others. It stays as it is.
//
// A plan that fails does not stop the others; the error has up to 100 of theirs. After a Run that died, a plan may
// be ErrConflict until the copy's grace period is over. Run stops if a vault can't be used, or ctx ends.
//
// Other errors: [storage.ErrInvalid] for wrong options, and [errors.ErrUnsupported] for a vault that offers less than a
// [Pair] needs.
func Run(ctx context.Context, pair Pair, o Options) (Report, error) {
	replica, err := newReplica(pair, o.By, o.Delete)
	if err = errors.Join(o.check(), err); err != nil {
		return Report{}, failed("Mirror", err)
	}
	r := &run{from: pair.Source, replica: replica, opts: o, began: time.Now()}
	copied, err := r.admit(ctx)
	if err != nil {
		return Report{}, failed("Mirror", err)
	}
	if o.DryRun {
		err = r.allWithNotes(ctx)
	} else {
		err = storage.Audit(ctx, pair.Copy, r.entry("mirror"), func(ctx context.Context) error { return r.bringAll(ctx, copied) })
	}
	report, err := r.finish(err)
	return report, failed("Mirror", err)
}

// check checks the options.
func (o Options) check() error {
	var errs []error
	if o.Concurrency < 0 {
		errs = append(errs, driver.Invalid("Concurrency", "%d is negative", o.Concurrency))
	}
	if o.Budget < 0 {
		errs = append(errs, driver.Invalid("Budget", "%v is negative", o.Budget))
	}
	if !o.DryRun {
		errs = append(errs, storage.CheckBy(o.By))
	}
	return errors.Join(errs...)
}

// failed returns the error of a call, or nil.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return &storage.Error{Op: op, Err: err}
}

// bringAll makes the vault a copy, if it is not, and brings it up to date.
func (r *run) bringAll(ctx context.Context, copied bool) error {
	if !copied {
		if err := r.adopt(ctx); err != nil {
			return err
		}
	}
	r.bringKeys(ctx)
	if err := r.to.Recovery(ctx); err != nil {
		r.failed(err)
	}
	return r.allWithNotes(ctx)
}

// allWithNotes compares all plans that the options select, and the notes about them, if the source offers notes.
func (r *run) allWithNotes(ctx context.Context) error {
	source, ok := storage.As[storage.Control](r.from)
	if !ok {
		return r.all(ctx)
	}
	there, err := source.Roster(ctx)
	if err != nil {
		return err
	}
	return r.withNotes(ctx, source, there, r.all)
}

// finish completes the report of a run that ended with an error, or nil.
func (r *run) finish(err error) (Report, error) {
	if !r.oldest.IsZero() {
		r.report.Behind = max(0, r.began.Sub(r.oldest))
	}
	if r.more > 0 {
		r.errs = append(r.errs, fmt.Errorf("and %d more", r.more))
	}
	return r.report, errors.Join(append([]error{err}, r.errs...)...)
}

// run is a Run that is running.
type run struct {
	from storage.Vault
	*replica
	opts  Options
	began time.Time

	mu     sync.Mutex
	report Report
	oldest time.Time // change that the copy lacked
	errs   []error   // of single plans
	more   int
}

// defaultConcurrency is that of Options, and maxFaults how many errors of single plans are kept.
const (
	defaultConcurrency = 16
	maxFaults          = 100
)

// all compares all plans that the options select.
func (r *run) all(ctx context.Context) error {
	return r.window(ctx, storage.Filters{After: r.opts.After, Before: r.opts.Before}, func(s, _ *storage.ListResult) (*storage.ListResult, bool) { return s, true })
}

// window compares the listings of the plans that filters choose, newest first, and brings up to date what differs. bring
// returns what to take for the listing of a plan in the source, and whether to bring the plan up to date now.
func (r *run) window(ctx context.Context, f storage.Filters, bring func(s, c *storage.ListResult) (*storage.ListResult, bool)) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(r.opts.Concurrency, defaultConcurrency))
	var listings [2]iter.Seq[storage.Stream[storage.ListResult]]
	for i, v := range []storage.Vault{r.from, r.to.Vault} {
		var err error
		if len(f.Fields()) == 0 {
			listings[i], err = v.List(ctx, 0)
		} else {
			listings[i], err = v.Search(ctx, f)
		}
		if err != nil {
			return err
		}
	}
	err := r.merge(ctx, listings[0], listings[1], func(s, c *storage.ListResult) {
		if s, now := bring(s, c); now {
			g.Go(func() error { _, err := r.plan(ctx, s, c); return err })
		}
	})
	return cmp.Or(g.Wait(), err)
}

// merge calls do for each plan in one of the listings, or in both.
func (r *run) merge(ctx context.Context, source, copied iter.Seq[storage.Stream[storage.ListResult]], do func(s, c *storage.ListResult)) error {
	nextSource, stop := iter.Pull(source)
	defer stop()
	nextCopy, stop := iter.Pull(copied)
	defer stop()
	// A listing that has failed may have missed a plan. Only a whole listing shows that the source lacks one.
	whole := true
	s, err := r.next(nextSource, &whole)
	if err != nil {
		return err
	}
	copyWhole := true
	c, err := r.next(nextCopy, &copyWhole)
	for err == nil && (s != nil || c != nil) {
		if r.stop(ctx) {
			return ctx.Err()
		}
		order := -1
		if s == nil {
			order = 1
		} else if c != nil {
			order = driver.NewestFirst(s.ID, c.ID)
		}
		switch {
		case order < 0:
			do(s, nil)
		case order == 0:
			do(s, c)
		case whole:
			do(nil, c)
		}
		if order <= 0 {
			s, err = r.next(nextSource, &whole)
		}
		if order >= 0 && err == nil {
			c, err = r.next(nextCopy, &copyWhole)
		}
	}
	return err
}

// stop reports whether Run ends although plans are left: its context has ended, or it has changed something and used
// its budget up.
func (r *run) stop(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := r.report.Copied+r.report.Updated+r.report.Deleted > 0
	used := r.opts.Budget > 0 && time.Since(r.began) >= r.opts.Budget
	r.report.More = ctx.Err() != nil || changed && used
	return r.report.More
}

// next returns the next plan of a listing, or nil at its end. It notes plans whose listing can't be read, and
// that the listing is not whole.
func (r *run) next(next func() (storage.Stream[storage.ListResult], bool), whole *bool) (*storage.ListResult, error) {
	for {
		found, ok := next()
		switch {
		case !ok:
			return nil, nil
		case found.Err == nil:
			return &found.Result, nil
		case errors.Is(found.Err, storage.ErrForeign):
			r.count(func(report *Report) { report.Foreign++ })
			continue
		}
		*whole = false
		if !single(found.Err) {
			return nil, found.Err
		}
		plan := uuid.Nil
		if e, ok := errors.AsType[*storage.Error](found.Err); ok {
			plan = e.Plan
		}
		r.keepNotes(plan)
		r.failed(found.Err)
	}
}

// single reports whether an error is about one plan, and says nothing about others.
func single(err error) bool {
	for _, kind := range []error{storage.ErrExists, storage.ErrConflict, storage.ErrHeld, storage.ErrInvalid, storage.ErrCorrupt, storage.ErrSchema, storage.ErrNotFound, storage.ErrUnknown} {
		if errors.Is(err, kind) && !errors.Is(err, context.Canceled) {
			return true
		}
	}
	return false
}

// ends reports whether an error ends the run.
func ends(ctx context.Context, err error) bool {
	return ctx.Err() != nil || !single(err) || errors.Is(err, ErrPromoted) || errors.Is(err, ErrNoCopy)
}

// plan brings one plan up to date, given what the listings show of it, and counts it. It reports whether that went
// well. An error ends the run.
func (r *run) plan(ctx context.Context, s, c *storage.ListResult) (ok bool, err error) {
	done, err := r.bring(ctx, s, c)
	if err != nil && ends(ctx, err) {
		return false, err
	}
	if err != nil {
		r.keepNotes(cmp.Or(s, c).ID)
		r.failed(err)
		done = func(report *Report) { report.Failed++ }
	}
	r.count(func(report *Report) {
		if s != nil {
			report.Plans++
		}
		done(report)
	})
	return err == nil, nil
}

// bring brings a plan up to date. It returns how to count it.
func (r *run) bring(ctx context.Context, s, c *storage.ListResult) (func(*Report), error) {
	switch {
	case s == nil:
		return r.extra(ctx, *c)
	case c != nil && !r.opts.Deep && s.State.Status != workflow.Running && sameListing(*s, *c):
		return unchanged, nil
	case c != nil:
		return r.update(ctx, s.ID)
	}
	plan, err := r.from.Read(ctx, s.ID)
	if errors.Is(err, storage.ErrNotFound) {
		return unchanged, nil // deleted meanwhile: the next Run sees it
	}
	if err != nil {
		return nil, err
	}
	r.behind(plan)
	if !r.opts.DryRun {
		err = r.writePlan(ctx, plan, func(ctx context.Context) error { return r.to.RestoreCopy(ctx, plan) })
		if errors.Is(err, storage.ErrExists) { // the listing has missed it, or an answer was lost
			return r.update(ctx, plan.ID)
		}
	}
	return func(report *Report) {
		report.Copied++
		report.CopiedParts += len(workflow.Parts(plan))
	}, err
}

func unchanged(report *Report) { report.Unchanged++ }

// sameListing reports whether two listings show a plan in the same state. Each vault has versions of its own.
func sameListing(a, b storage.ListResult) bool {
	a.State.ETag, b.State.ETag = "", ""
	return same.Listed(a, b)
}

// longest is how long a mirror writes after it has read that the copy is one. Restore takes no longer at the grace period
// that is the default.
const longest = 10 * time.Minute

// write writes a plan, unless the copy has been promoted since both sides were read.
func (r *run) write(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if err := r.stillCopy(ctx); err != nil {
		return err
	}
	return do(ctx)
}

// diverged is the error of a plan of the copy that somebody else has written.
func diverged(id uuid.UUID, what string) error {
	err := fmt.Errorf("%w in the copy, and %s: it stays as it is; compare both before you remove either", storage.ErrExists, what)
	return &storage.Error{Op: "compare", Plan: id, Err: err}
}

// othersWrote is why a plan that lacks the mark of a copy stays.
const othersWrote = "somebody else has stored or changed it there"

// extra handles a plan that the source's listing does not have. A listing can miss a plan, so the source is
// asked again, after the copy was read.
func (r *run) extra(ctx context.Context, c storage.ListResult) (func(*Report), error) {
	var old *workflow.Plan
	if r.opts.Delete {
		var err error
		if old, err = r.to.Read(ctx, c.ID); errors.Is(err, storage.ErrNotFound) {
			return func(*Report) {}, nil // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
	}
	there, err := r.from.Exists(ctx, c.ID)
	if err != nil {
		return nil, err
	}
	if there {
		return func(*Report) {}, nil // the next Run compares it
	}
	if !r.opts.Delete {
		return func(report *Report) {
			if report.Extra++; !c.State.Status.Final() {
				report.ExtraOpen++
			}
		}, nil
	}
	if !r.to.IsCopy(old) {
		return nil, diverged(c.ID, othersWrote)
	}
	if !r.opts.DryRun {
		err = r.write(ctx, func(ctx context.Context) error { return r.to.DeleteCopy(ctx, old) })
		if errors.Is(err, storage.ErrNotFound) {
			err = nil
		}
	}
	return func(report *Report) { report.Deleted++ }, err
}

// update brings a plan of the copy to the state of the source's. It reads the copy first, so that the copy never moves back:
// if another run stores a newer state after that, this one meets a conflict, and what that run stored before is not newer
// than what is then read of the source.
func (r *run) update(ctx context.Context, id uuid.UUID) (func(*Report), error) {
	old, err := r.to.Read(ctx, id)
	if err != nil {
		return nil, err
	}
	plan, err := r.from.Read(ctx, id)
	if errors.Is(err, storage.ErrNotFound) {
		return unchanged, nil // deleted meanwhile: the next Run sees it
	}
	if err != nil {
		return nil, err
	}
	copied := r.to.IsCopy(old)
	changed, err := differences(plan, old)
	if err != nil {
		return nil, err
	}
	if len(changed) == 0 {
		return unchanged, nil
	}
	if !copied {
		return nil, diverged(id, othersWrote)
	}
	r.behind(plan)
	if !r.opts.DryRun {
		err = r.writePlan(ctx, plan, func(ctx context.Context) error { return r.advance(ctx, plan, old, changed) })
	}
	return func(report *Report) { report.Updated++ }, err
}

// differences returns the objects of the source's plan that differ from those of the copy, the plan first, and
// gives all of them the copy's versions.
func differences(plan, old *workflow.Plan) (changed []workflow.Object, err error) {
	if !same.Tree(plan, old) {
		return nil, diverged(plan.ID, "its sub-objects are not those of the source")
	}
	if old.Epoch > plan.Epoch {
		return nil, diverged(plan.ID, fmt.Sprintf("its epoch is %d, after %d in the source", old.Epoch, plan.Epoch))
	}
	now, was := plan.State.Status, old.State.Status
	if !driver.Follows(now, was) {
		return nil, diverged(plan.ID, fmt.Sprintf("its status %s can't become %s", was, now))
	}
	for o, old := range same.Pairs(plan, old) {
		same, err := same.Own(o, old)
		if err != nil {
			return nil, &storage.Error{Op: "compare", Plan: plan.ID, Err: fmt.Errorf("%w: %w", storage.ErrCorrupt, err)}
		}
		if !same {
			changed = append(changed, o)
		}
		o.Header().State.ETag = old.Header().State.ETag
	}
	return changed, nil
}

// advance stores the objects that have changed, in the order of an engine: the plan is Running while its
// sub-objects change, and it becomes final after them. Of a final plan readers see the sub-objects that were
// stored with it.
func (r *run) advance(ctx context.Context, plan, old *workflow.Plan, changed []workflow.Object) error {
	was, now := old.State.Status, plan.State.Status
	planChanged := changed[0].Kind() == workflow.KindPlan
	switch {
	case was.Final():
		return r.to.UpdateCopy(ctx, plan)
	case was == workflow.NotStarted && now == workflow.Running:
		if err := r.to.UpdateCopy(ctx, plan); err != nil {
			return err
		}
		planChanged = false
	case was == workflow.NotStarted && now.Final():
		old.State.Status, old.State.Start = workflow.Running, plan.State.Start
		if err := r.to.UpdateCopy(ctx, old); err != nil {
			return err
		}
		plan.State.ETag = old.State.ETag
	}
	g, updating := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(r.opts.Concurrency, defaultConcurrency))
	for _, o := range changed {
		if o.Kind() != workflow.KindPlan {
			g.Go(func() error { return storage.Update(updating, r.to, o) })
		}
	}
	if err := g.Wait(); err != nil || !planChanged {
		return err
	}
	return r.to.UpdateCopy(ctx, plan)
}

// behind notes the time of a change that the copy lacks.
func (r *run) behind(plan *workflow.Plan) {
	at := workflow.Time(plan.ID)
	for _, t := range []time.Time{plan.State.Start, plan.State.End, plan.RuntimeUpdate} {
		if t.After(at) {
			at = t
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.oldest.IsZero() || at.Before(r.oldest) {
		r.oldest = at
	}
}

// failed keeps the error of a plan.
func (r *run) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.errs) < maxFaults {
		r.errs = append(r.errs, err)
	} else {
		r.more++
	}
}

// failures returns how many errors of single plans there are.
func (r *run) failures() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.errs) + r.more
}

// count changes the report.
func (r *run) count(change func(*Report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.report)
	if r.opts.Progress != nil {
		r.opts.Progress(storage.Progress{Done: r.report.Plans + r.report.Extra + r.report.Deleted})
	}
}
