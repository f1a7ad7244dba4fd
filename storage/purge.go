package storage

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// PurgeOptions are the settings of Purge.
type PurgeOptions struct {
	// By says who purges, and why, for the audit log. Its At is ignored. Required, but for a dry run.
	By workflow.Attribution
	// IncludeOpen also removes open plans: those of an open status in the selection's ByStatus or, without it, all. An engine
	// that runs one of them loses it. Default: an open status in ByStatus is ErrInvalid.
	IncludeOpen bool
	// Budget is the time after which no other plan is removed. The removals in progress end. Default: 0, and
	// Purge ends when no plan is left.
	Budget time.Duration
	// Concurrency is the largest number of plans to remove at once. Default: 16.
	Concurrency int
	// Keep is called with each plan before it is removed. If it returns an error, the plan stays, and Purge ends. The Keep of
	// a bundle.Keeper writes copies that survive a crash. Each plan is read for it, so a plan that can't be read stays, too.
	// Calls may be concurrent. Default: nil, and nothing is kept.
	Keep func(ctx context.Context, plan *workflow.Plan) error
	// DryRun removes nothing. The report counts what would be removed. It counts the plans of held days as Held if
	// the vault has a method Holds, as that of this module does.
	DryRun bool
	// Progress is called after each plan. It may be nil.
	Progress func(Progress)
}

// PurgeReport is what Purge did.
type PurgeReport struct {
	// Deleted is the number of plans that were removed. In a dry run, they would be.
	Deleted int
	// Gone is the number of plans that somebody else removed first.
	Gone int
	// Held is the number of plans that are kept because their day is held, and HeldDays are these days, newest
	// first.
	Held     int
	HeldDays []Day
	// Foreign is the number of plans that are kept because another program wrote them, whether they are what is selected or
	// not.
	Foreign int
	// Failed is the number of plans that could not be read or removed. The error says why, of the first ten.
	Failed int
	// More says that plans may be left, because the budget was used up, the context ended, or the vault refuses all calls.
	// Another Purge continues.
	More bool
}

// Purge removes the plans that are selected, one by one and newest first. Without ByStatus in the selection, it removes plans
// of every final status and no open plan. Use it to remove some plans of a day; whole days are cheaper to drop, where the
// vault can do that. The audit log has the purge, see [Audit].
//
// Purge takes one Search and a Delete for each plan, and a Read with Keep, and notes nothing: what is removed is the progress,
// so it can be interrupted at any time and called again, from anywhere. It may run beside engines and beside other
// purges. A final plan stays final, so no plan begins to run between the Search and the Delete. But Purge deletes
// by ID: if somebody else deletes a plan and creates or restores another one with its ID meanwhile, Purge may
// remove that.
//
// A plan whose day is held is skipped, with all others of that day, and reported. That is no error. Other
// failures end up in the error, and the other plans are still removed, unless the failure is a missing right ([LacksRight]) or
// ErrClosed. After ErrUnknown, another Purge or Recovery settles what happened. When ctx ends, the error is the
// context's.
func Purge(ctx context.Context, vault Vault, s Selection, opts PurgeOptions) (PurgeReport, error) {
	p := &purge{vault: vault, selection: s, opts: opts}
	err := errors.Join(s.check(), p.complete())
	if err == nil {
		p.run(ctx)
		err = errors.Join(p.errs...)
	}
	if err != nil {
		err = &Error{Op: "Purge", Err: err}
	}
	return p.report, err
}

// complete checks the options and fills in the defaults.
func (p *purge) complete() error {
	isOpen := func(s workflow.Status) bool { return !s.Final() }
	f, o := &p.selection.filters, &p.opts
	switch {
	case !o.IncludeOpen && slices.ContainsFunc(f.ByStatus, isOpen):
		return invalid("Selection.ByStatus", "has an open status: set IncludeOpen to remove open plans")
	case o.Budget < 0:
		return invalid("Budget", "%v is negative", o.Budget)
	case o.Concurrency < 0:
		return invalid("Concurrency", "%d is negative", o.Concurrency)
	}
	if err := CheckBy(o.By); err != nil && !o.DryRun {
		return err
	}
	if f.ByStatus == nil && !o.IncludeOpen {
		f.ByStatus = []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped}
	}
	if o.Concurrency == 0 {
		o.Concurrency = 16
	}
	return nil
}

// purge is one call of Purge.
type purge struct {
	vault     Vault
	selection Selection
	opts      PurgeOptions
	// stop ends the search.
	stop context.CancelFunc
	// held are the days that were held before a dry run.
	held []Day

	mu     sync.Mutex // guards what follows, and makes the calls of Progress one by one
	report PurgeReport
	errs   []error
}

func (p *purge) run(ctx context.Context) {
	look, stop := context.WithCancel(ctx)
	defer stop()
	p.stop = stop
	if p.opts.Budget > 0 {
		defer time.AfterFunc(p.opts.Budget, stop).Stop()
	}
	found, err := p.vault.Search(look, p.selection.filters)
	if err == nil {
		err = p.lookForHolds(ctx)
	}
	if err != nil {
		p.errs = append(p.errs, err)
		return
	}
	next, end := iter.Pull(found)
	defer end()
	first, any := next()
	if !any {
		return // and so nothing is in the log
	}
	do := func(ctx context.Context) error {
		p.removeAll(ctx, look, first, next)
		return errors.Join(p.errs...)
	}
	if p.opts.DryRun {
		_ = do(ctx)
	} else {
		entry := AuditEntry{What: "purge", By: p.opts.By, Plans: p.selection.filters.ByIDs, Detail: p.selection.String()}
		_ = Audit(ctx, p.vault, entry, do)
	}
	if err := ctx.Err(); err != nil && !errors.Is(errors.Join(p.errs...), err) {
		p.errs = append(p.errs, err)
	}
}

// lookForHolds asks before a dry run which days are held. Otherwise Delete says so.
func (p *purge) lookForHolds(ctx context.Context) (err error) {
	h, ok := As[interface {
		Holds(ctx context.Context) ([]Day, error)
	}](p.vault)
	if ok && p.opts.DryRun {
		p.held, err = h.Holds(ctx)
	}
	return err
}

// removeAll removes what the search finds, until its context ends.
func (p *purge) removeAll(ctx, look context.Context, f Stream[ListResult], next func() (Stream[ListResult], bool)) {
	var work sync.WaitGroup
	defer work.Wait()
	free := make(chan struct{}, p.opts.Concurrency)
	for more := true; more; f, more = next() {
		free <- struct{}{}
		switch id := f.Result.ID; {
		case ctx.Err() != nil || look.Err() != nil: // ctx ends a moment earlier, and removals may fail then
			p.note(func(r *PurgeReport) { r.More = true })
			return
		case f.Err != nil:
			p.settle(uuid.Nil, f.Err)
		case p.inHeldDay(id):
			p.settle(id, ErrHeld)
		case p.opts.DryRun:
			p.settle(id, nil)
		default:
			work.Go(func() {
				p.settle(id, p.remove(ctx, id))
				<-free
			})
			continue
		}
		<-free
	}
}

// notKept is why a plan was not kept. It ends a purge.
type notKept struct{ error }

func (e notKept) Unwrap() error { return e.error }

// remove removes a plan after a copy of it was kept.
func (p *purge) remove(ctx context.Context, id uuid.UUID) error {
	if p.opts.Keep != nil {
		plan, err := p.vault.Read(ctx, id)
		if errors.Is(err, ErrNotFound) { // it was listed, so a single answer is not believed
			plan, err = p.vault.Read(ctx, id)
		}
		if err != nil {
			return fmt.Errorf("keep a copy of what is removed: %w", err)
		}
		if err := p.opts.Keep(ctx, plan); err != nil {
			return notKept{&Error{Op: "Purge", Plan: id, Err: err}}
		}
	}
	return p.vault.Delete(ctx, id)
}

func dayOf(id uuid.UUID) Day { return DayOf(workflow.Time(id)) }

// inHeldDay reports whether a plan's day is known to be held.
func (p *purge) inHeldDay(id uuid.UUID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	day := dayOf(id)
	return slices.Contains(p.report.HeldDays, day) || slices.Contains(p.held, day)
}

// settle counts what became of a plan.
func (p *purge) settle(id uuid.UUID, err error) {
	about, ofPlan := errors.AsType[*Error](err)
	p.note(func(r *PurgeReport) {
		switch {
		case err == nil:
			r.Deleted++
		case errors.Is(err, ErrNotFound):
			r.Gone++
		case errors.Is(err, ErrForeign):
			r.Foreign++
		case errors.Is(err, ErrHeld):
			r.Held++
			if day := dayOf(id); !slices.Contains(r.HeldDays, day) {
				r.HeldDays = append(r.HeldDays, day)
				slices.SortFunc(r.HeldDays, func(a, b Day) int { return b.Compare(a) })
			}
		case id == uuid.Nil && !(ofPlan && about.Plan != uuid.Nil):
			r.More = true // the search itself failed
			p.errs = append(p.errs, err)
		default:
			if r.Failed++; r.Failed <= maxFaults {
				p.errs = append(p.errs, err)
			}
			if LacksRight(err) || errors.Is(err, ErrClosed) || errors.As(err, new(notKept)) {
				p.stop()
			}
		}
	})
}

// note changes the report, and tells the caller.
func (p *purge) note(change func(*PurgeReport)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.report)
	if p.opts.Progress != nil {
		p.opts.Progress(Progress{Done: p.report.Deleted + p.report.Gone + p.report.Held + p.report.Foreign + p.report.Failed})
	}
}
