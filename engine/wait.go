package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Wait returns the plan when it is final, on whichever node it runs, and also if this engine's Run is not active, as in a
// process that only submits. The plan is the caller's own. Any number of goroutines may wait. A plan that nobody runs is
// waited for until ctx ends.
//
// Waiting for a plan that runs here costs nothing. All other plans that this engine waits for share one look per interval:
// Options.Poll, or in a fleet Fleet.Interval. A new plan is looked at within a second, and each plan less often the longer it
// takes: after a quarter of the wait so far, up to a minute. A look is a Search for the IDs; for more than eight plans of a day
// it is a Search for the open plans between them instead, and the number of waiters does not matter. In package azblob, an ID
// costs two requests, and the other Search a listing and what the open plans in between cost. A plan that has ended is read
// once.
//
// While the vault is unavailable, Wait goes on. Errors: [storage.ErrNotFound] if there is no such plan, or it was deleted or
// expired meanwhile; the cause of ctx when ctx ends, with what hindered the last look; [storage.ErrClosed] and
// [storage.ErrDenied] as soon as a look meets them; [storage.ErrSchema] and [storage.ErrCorrupt] if the plan can't be read.
func (e *Engine) Wait(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	plan, err := e.wait(ctx, id)
	if err == nil {
		plan, err = e.asStored(plan)
	}
	if err != nil {
		return nil, fmt.Errorf("wait for plan %s: %w", id, err)
	}
	return plan, nil
}

// wait returns a final plan, which other waiters share.
func (e *Engine) wait(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := e.join(id)
	defer e.leave(w)
	select {
	case <-w.over:
		return w.plan, w.err
	case <-ctx.Done():
		return nil, e.waits.failed(w, context.Cause(ctx))
	}
}

// Status says how a plan is doing, from one Read: its status, the actions that run, the objects that wait and until when,
// what failed, and whether it looks stuck and why, in the words of package fleet. The Until of a retry is what this engine's
// Options and plugins say. Whether the plan's owner is alive, the plan does not show: see fleet.Inspect. The errors are those
// of Read.
func (e *Engine) Status(ctx context.Context, id uuid.UUID) (fleet.OpenPlan, error) {
	plan, err := e.vault.Read(ctx, id)
	if err != nil {
		return fleet.OpenPlan{}, err
	}
	return e.describe(plan), nil
}

// describe says how a plan is doing. The Until of a retry is what this engine's Options and plugins say.
func (e *Engine) describe(plan *workflow.Plan) fleet.OpenPlan {
	p := fleet.Describe(plan, time.Now().UTC())
	type ended struct {
		path string
		end  time.Time
	}
	actions := map[ended]*workflow.Action{} // several may have a path
	for o, path := range workflow.Paths(plan) {
		if a, ok := o.(*workflow.Action); ok && len(a.Attempts) > 0 {
			actions[ended{path, a.Attempts[len(a.Attempts)-1].End}] = a
		}
	}
	for i := range p.Waiting {
		if w := &p.Waiting[i]; w.For == "retry" {
			a := actions[ended{w.Path, w.Since}]
			failures, last := failed(a.Attempts[sincePause(a.Attempts):])
			w.Until = last.End.Add(e.policyOf(a).wait(a.ID, failures, last.Err))
		}
	}
	slices.SortStableFunc(p.Waiting, fleet.WaitingObject.Compare)
	return p
}

// waits holds the plans that somebody waits for. While there are any, a goroutine looks at them.
type waits struct {
	mu    sync.Mutex
	plans map[uuid.UUID]*awaited
	wake  chan struct{} // has an element if more may be due; a channel for each goroutine
	end   func()        // ends the goroutine

	// offered are plans that were submitted here and have no run yet. Their first look is an interval later. Plans that other
	// nodes have claimed stay in it until it is full.
	offered map[uuid.UUID]struct{}
}

// awaited is a plan that somebody waits for. The mutex of waits guards waiters, due and trouble.
type awaited struct {
	id      uuid.UUID
	since   time.Time
	waiters int
	due     time.Time // when to look next
	trouble error     // of the last look, which is made again

	over chan struct{} // closed when plan or err is set
	plan *workflow.Plan
	err  error
}

// join adds a waiter for a plan.
func (e *Engine) join(id uuid.UUID) *awaited {
	s := &e.waits
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.plans[id]
	if w == nil {
		now := time.Now()
		w = &awaited{id: id, since: now, due: now, over: make(chan struct{})}
		if _, soon := s.offered[id]; soon {
			w.due = e.nextLook(now, 0)
		}
		if len(s.plans) == 0 {
			ctx, end := context.WithCancel(context.Background())
			s.wake, s.end = make(chan struct{}, 1), end
			go e.watch(ctx, s.wake)
		}
		s.plans[id] = w
		s.wakeLocked()
	}
	w.waiters++
	return w
}

// wakeLocked makes the goroutine see what is due.
func (s *waits) wakeLocked() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// hurry makes the next look soon: a run has ended, perhaps just before somebody waited for the plan, or has left it.
func (s *waits) hurry(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.plans[id]; w != nil {
		w.due = time.Now()
		s.wakeLocked()
	}
}

// leave ends what join began.
func (e *Engine) leave(w *awaited) {
	s := &e.waits
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.waiters--; w.waiters == 0 {
		s.removeLocked(w)
	}
}

// removeLocked reports whether somebody waited for the plan. Without plans, the goroutine ends.
func (s *waits) removeLocked(w *awaited) bool {
	if s.plans[w.id] != w {
		return false
	}
	delete(s.plans, w.id)
	if len(s.plans) == 0 {
		s.end()
	}
	return true
}

// expect notes that a plan may soon run here.
func (s *waits) expect(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.offered) >= maxWaiting {
		clear(s.offered)
	}
	s.offered[id] = struct{}{}
}

// unexpect ends what expect began.
func (s *waits) unexpect(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.offered, id)
}

// ended gives a plan that is stored as final to those who wait for it. Nobody changes it any more.
func (s *waits) ended(plan *workflow.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.plans[plan.ID]; w != nil {
		s.concludeLocked(w, plan, nil)
	}
}

func (s *waits) concludeLocked(w *awaited, plan *workflow.Plan, err error) {
	if s.removeLocked(w) {
		w.plan, w.err = plan, err
		close(w.over)
	}
}

// failed returns the error of a waiter whose context has ended.
func (s *waits) failed(w *awaited, cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.trouble != nil {
		return fmt.Errorf("%w; the last look failed: %w", cause, w.trouble)
	}
	return cause
}

const (
	gather      = time.Second // the shortest time between two looks
	longestLook = time.Minute // the longest time between two looks at a plan, unless an interval is longer
	mostNamed   = 8           // how many plans of a day are looked at by their IDs
	readAtOnce  = 8           // how many plans that have ended are read at once
)

// nextLook returns when to look at a plan again that somebody has waited for so long. The times are those of a grid, so that
// plans share looks.
func (e *Engine) nextLook(now time.Time, waited time.Duration) time.Time {
	interval := e.opts.lookInterval()
	pause := min(max(waited/4, interval), max(interval, longestLook))
	return now.Add(pause).Truncate(interval)
}

// lookInterval is the time between two looks at plans that others run.
func (o Options) lookInterval() time.Duration {
	if o.Fleet != nil {
		return cmp.Or(o.Fleet.Interval, fleet.DefaultInterval)
	}
	return o.Poll
}

// watch looks at the plans that somebody waits for, until nobody does.
func (e *Engine) watch(ctx context.Context, wake <-chan struct{}) {
	for ctx.Err() == nil {
		due, next := e.dueLooks(time.Now())
		if len(due) > 0 {
			e.lookAt(ctx, due)
			sleep.For(ctx, gather)
			continue
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-timer.C:
		case <-wake:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// dueLooks returns the plans to look at now, and when others are due. Plans that run here need no look.
func (e *Engine) dueLooks(now time.Time) (due []*awaited, next time.Time) {
	s := &e.waits
	s.mu.Lock()
	defer s.mu.Unlock()
	next = now.Add(longestLook)
	for _, w := range s.plans {
		if !w.due.After(now) {
			if !e.runsHere(w.id) {
				due = append(due, w)
				continue
			}
			w.due = e.nextLook(now, 0)
		}
		if w.due.Before(next) {
			next = w.due
		}
	}
	return due, next
}

// lookAt looks at plans, and reads those that are not open any more.
func (e *Engine) lookAt(ctx context.Context, due []*awaited) {
	var over []*awaited
	for _, q := range questionsOf(due) {
		open, err := e.stillOpen(ctx, q.filters)
		for _, w := range q.plans {
			trouble, there := open[w.id]
			if err == nil && !there {
				over = append(over, w)
				continue
			}
			e.looked(w, nil, cmp.Or(err, trouble))
		}
	}
	var reads errgroup.Group
	reads.SetLimit(readAtOnce)
	for _, w := range over {
		reads.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, e.opts.Patience/4)
			defer cancel()
			plan, err := e.vault.Read(ctx, w.id)
			e.looked(w, plan, err)
			return nil
		})
	}
	_ = reads.Wait()
}

// looked notes what a look has shown: a plan, an error, or nothing of a plan that is open.
func (e *Engine) looked(w *awaited, plan *workflow.Plan, err error) {
	s := &e.waits
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && !passing(err) || err == nil && plan != nil && plan.State.Status.Final() {
		s.concludeLocked(w, plan, err)
		return
	}
	now := time.Now()
	w.due, w.trouble = e.nextLook(now, now.Sub(w.since)), err
}

// question is a search for some plans. What it does not find, or finds to be final, has ended.
type question struct {
	filters storage.Filters
	plans   []*awaited
}

// questionsOf returns the searches for some plans: one for the IDs, and one for each day with many, whose cost does not
// depend on their number.
func questionsOf(due []*awaited) (list []question) {
	slices.SortFunc(due, func(a, b *awaited) int { return bytes.Compare(a.id[:], b.id[:]) })
	named := question{filters: storage.Filters{ByIDs: []uuid.UUID{}}}
	for len(due) > 0 {
		day := storage.DayOf(workflow.Time(due[0].id))
		n := slices.IndexFunc(due, func(w *awaited) bool { return storage.DayOf(workflow.Time(w.id)) != day })
		if n < 0 {
			n = len(due)
		}
		some := due[:n]
		due = due[n:]
		if n <= mostNamed || day == storage.DayOf(time.Time{}) { // of IDs that belong to no plan
			named.plans = append(named.plans, some...)
			continue
		}
		list = append(list, question{storage.Filters{
			ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running},
			After:    workflow.Time(some[0].id).Add(-time.Millisecond), Before: workflow.Time(some[n-1].id).Add(time.Millisecond),
		}, some})
	}
	for _, w := range named.plans {
		named.filters.ByIDs = append(named.filters.ByIDs, w.id)
	}
	if len(named.plans) > 0 {
		list = append(list, named)
	}
	return list
}

// stillOpen returns the plans of a search that are open, or that can't be read, with their errors.
func (e *Engine) stillOpen(ctx context.Context, f storage.Filters) (open map[uuid.UUID]error, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.Patience/4)
	defer cancel()
	found, err := e.vault.Search(ctx, f)
	if err != nil {
		return nil, err
	}
	open = map[uuid.UUID]error{}
	for p := range found {
		about, named := errors.AsType[*storage.Error](p.Err)
		switch {
		case p.Err == nil && p.Result.State.Status.Final():
		case p.Err == nil:
			open[p.Result.ID] = nil
		case named && about.Plan != uuid.Nil:
			open[about.Plan] = p.Err
		default:
			return nil, p.Err
		}
	}
	return open, nil
}
