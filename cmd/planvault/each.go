package main

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// each is the flags of a command for one plan that also works on all plans of a search.
type each struct {
	selection
	bulk
	plugin string
}

// orEach lets a command for one plan also do what all does, for the plans that flags select. status says of what status an
// action of --plugin is.
func (a *app) orEach(c *cobra.Command, e *each, status string, all func(ctx context.Context, v *azblob.Vault, f storage.Filters) error) {
	e.selection.addFlags(c.Flags())
	e.bulk.addFlags(c.Flags())
	c.Flags().StringVar(&e.plugin, "plugin", "", "plans with "+status+" action of the plugin with this `NAME`; reads each plan")
	c.Args = cobra.MaximumNArgs(1)
	one := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		f := e.filters(time.Now())
		selects := e.plugin != "" || len(f.Fields()) > 0
		switch {
		case selects == (len(args) == 1):
			return usageError("give the ID of one plan, or flags that select plans")
		case !selects:
			return one(c, args)
		}
		v, err := a.open(c.Context(), a.connection)
		if err != nil {
			return err
		}
		return all(c.Context(), v, f)
	}
}

// only returns an error if filters have a status that is not among those that can be changed. Without one, they get these
// by default.
func only(f *storage.Filters, byDefault, among []workflow.Status) error {
	if f.ByStatus == nil {
		f.ByStatus = byDefault
	}
	for _, s := range f.ByStatus {
		if !slices.Contains(among, s) {
			return usageError("--status has %s, but this is for plans that are %v", s, among)
		}
	}
	return nil
}

// has reports whether a plan has an action of --plugin with a status.
func (e *each) has(p *workflow.Plan, status workflow.Status) bool {
	for o := range workflow.Walk(p) {
		if a, ok := o.(*workflow.Action); ok && a.Plugin == e.plugin && a.State.Status == status {
			return true
		}
	}
	return e.plugin == ""
}

// swept is what became of the plans of a sweep.
type swept struct {
	of              map[string]int // by what became of them
	foreign, failed int
	more            bool
	errs            []error
}

const (
	sweepers    = 16 // how many plans a sweep works on at once
	mostReasons = 10 // how many errors it keeps
)

// sweep does something with each item of a sequence, several at a time, until the time is over. do says what became of it.
func sweep[T any](ctx context.Context, p *progress, items iter.Seq[T], budget time.Duration, do func(context.Context, T) (string, error)) (s swept, err error) {
	defer p.end()
	s.of = map[string]int{}
	begun, ends := context.WithCancel(ctx)
	defer ends()
	if budget > 0 {
		defer time.AfterFunc(budget, ends).Stop()
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	free := make(chan struct{}, sweepers)
	for item := range items {
		free <- struct{}{}
		if begun.Err() != nil {
			s.more = true
			break
		}
		work.Go(func() {
			what, err := do(ctx, item)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				s.of[what]++
			case errors.Is(err, storage.ErrForeign):
				s.foreign++
			default:
				if s.failed++; len(s.errs) < mostReasons {
					s.errs = append(s.errs, err)
				}
				if storage.LacksRight(err) || errors.Is(err, storage.ErrClosed) {
					ends()
				}
			}
			p.step()
			<-free
		})
	}
	work.Wait()
	return s, errors.Join(append(s.errs, ctx.Err())...)
}

// isDue is what a look says of a plan that is to be changed.
const isDue = "due"

// look asks of each plan that filters select what a change would do with it. It returns the IDs of those that are due, newest
// first. An error of a plan keeps no other from its change; one of the look as a whole is fatal.
func (a *app) look(ctx context.Context, v *azblob.Vault, f storage.Filters, judge func(context.Context, storage.ListResult) (string, error)) (ids []uuid.UUID, s swept, fatal error) {
	var mu sync.Mutex
	s, err := sweep(ctx, a.progress("look", "plan", 0).then(untouched), search(ctx, v, f), 0, func(ctx context.Context, r storage.Stream[storage.ListResult]) (what string, err error) {
		if err = r.Err; err == nil {
			what, err = judge(ctx, r.Result)
		}
		mu.Lock()
		defer mu.Unlock()
		if what == isDue {
			ids = append(ids, r.Result.ID)
		} else if r.Err != nil && planOfError(r.Err) == uuid.Nil {
			fatal = r.Err // the search is not whole
		}
		return what, err
	})
	if s.more || ctx.Err() != nil {
		fatal = err
	}
	slices.SortFunc(ids, func(a, b uuid.UUID) int { return bytes.Compare(b[:], a[:]) })
	a.noteForeign(s.foreign)
	return ids, s, fatal
}

// err joins the errors of a sweep.
func (s swept) err() error { return errors.Join(s.errs...) }
