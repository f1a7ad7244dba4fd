package metamorphic

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func (r *modelRun) read() {
	plan := r.now.plan
	var got *workflow.Plan
	err := r.with(func(ctx context.Context, v storage.Vault) (err error) {
		got, err = v.Read(ctx, r.id(plan))
		return err
	})
	r.note("Read plan %d: %s", plan, outcome(err))
	if r.now.cut() && err != nil && wasCut(err) {
		return
	}
	before, why := r.describe(plan), ""
	r.keep(plan, func(w world) []world {
		next, problem := w.reads(got, err)
		if problem != "" {
			why = problem
			return nil
		}
		return []world{next}
	})
	if len(r.worlds[plan]) == 0 {
		r.fail("Read plan %d: got error %v: %s; %s", plan, err, why, before)
	}
	if delete(r.known[r.now.client], plan); err == nil {
		r.known[r.now.client][plan] = got
	}
}

func (r *modelRun) exists() {
	plan := r.now.plan
	var found bool
	err := r.with(func(ctx context.Context, v storage.Vault) (err error) {
		found, err = v.Exists(ctx, r.id(plan))
		return err
	})
	r.note("Exists plan %d: %v, %s", plan, found, outcome(err))
	if r.now.cut() && err != nil && wasCut(err) {
		return
	}
	before := r.describe(plan)
	r.keep(plan, func(w world) []world {
		if err != nil || found != (w.plan != nil) {
			return nil
		}
		return []world{w}
	})
	if len(r.worlds[plan]) == 0 {
		r.fail("Exists plan %d: got %v, %v; %s", plan, found, err, before)
	}
}

type listing = iter.Seq[storage.Stream[storage.ListResult]]

func (r *modelRun) list() {
	limit := r.rand.IntN(r.m.Plans)
	if r.rand.IntN(2) == 0 {
		limit = 0
	}
	r.listing(fmt.Sprintf("List %d", limit), storage.Filters{Limit: limit}, func(ctx context.Context, v storage.Vault) (listing, error) {
		return v.List(ctx, limit)
	})
}

func (r *modelRun) search() {
	f := r.filters()
	if r.rand.IntN(4) == 0 {
		r.count(f)
		return
	}
	what := "Search " + r.words(f)
	search := func(ctx context.Context, v storage.Vault) (listing, error) { return v.Search(ctx, f) }
	if !modelZero(f) {
		r.listing(what, f, search)
		return
	}
	err := r.with(func(ctx context.Context, v storage.Vault) error {
		_, err := search(ctx, v)
		return err
	})
	r.note("%s: %s", what, outcome(err))
	if !isOnly(err, storage.ErrInvalid) {
		r.fail("%s: got %v, want ErrInvalid", what, err)
	}
}

func modelZero(f storage.Filters) bool {
	return len(f.ByIDs)+len(f.ByGroupIDs)+len(f.ByStatus)+len(f.NamePrefix)+len(f.NameContains)+f.Limit == 0 && f.BeforeID == uuid.Nil &&
		f.After.IsZero() && f.Before.IsZero() && f.EndedAfter.IsZero() && f.EndedBefore.IsZero()
}

// filters draws filters; now and then none at all.
func (r *modelRun) filters() (f storage.Filters) {
	some := func() bool { return r.rand.IntN(3) == 0 }
	if some() {
		for range 1 + r.rand.IntN(5) { // now and then the same twice, or of no plan
			f.ByIDs = append(f.ByIDs, r.id(r.rand.IntN(r.m.Plans+1)))
		}
	}
	if some() {
		for range 1 + r.rand.IntN(2) {
			f.ByGroupIDs = append(f.ByGroupIDs, r.group(1+r.rand.IntN(4)))
		}
	}
	if some() {
		for range 1 + r.rand.IntN(3) {
			f.ByStatus = append(f.ByStatus, workflow.Status(r.rand.IntN(5)))
		}
	}
	at := func() time.Time { return workflow.Time(r.id(r.rand.IntN(r.m.Plans))) }
	if some() {
		f.After = at()
	}
	if t := at(); some() && (f.After.IsZero() || f.After.Before(t)) {
		f.Before = t
	}
	if some() {
		f.BeforeID = r.id(r.rand.IntN(r.m.Plans))
	}
	if some() {
		f.Limit = 1 + r.rand.IntN(4)
	}
	rarely := func() bool { return r.rand.IntN(8) == 0 } // few plans match
	if rarely() {
		f.NamePrefix = []string{"s", "small", "p", "a", " "}[r.rand.IntN(5)]
	}
	if rarely() {
		f.NameContains = []string{"a", "l", "ll", " ", "\n", "о"}[r.rand.IntN(6)]
	}
	ended := func() time.Time {
		return r.base.Add(time.Second + time.Duration(r.rand.IntN(r.clock+2))*time.Microsecond)
	}
	if rarely() {
		f.EndedAfter = ended()
	}
	if t := ended(); rarely() && (f.EndedAfter.IsZero() || f.EndedAfter.Before(t)) {
		f.EndedBefore = t
	}
	if len(f.ByStatus) > 0 && !(f.EndedAfter.IsZero() && f.EndedBefore.IsZero()) {
		f.ByStatus = append(f.ByStatus, workflow.Completed)
	}
	return f
}

// count compares a count with the model.
func (r *modelRun) count(f storage.Filters) {
	f.Limit, f.BeforeID = 0, uuid.Nil
	what := "Count " + r.words(f)
	var got int64
	err := r.with(func(ctx context.Context, v storage.Vault) (err error) {
		got, err = v.Count(ctx, f)
		return err
	})
	r.note("%s: %d, %s", what, got, outcome(err))
	if r.now.cut() && err != nil && wasCut(err) {
		return
	}
	var sure, possible int64
	for _, worlds := range r.worlds {
		if slices.ContainsFunc(worlds, func(w world) bool { return w.matches(f) }) {
			possible++
			if !slices.ContainsFunc(worlds, func(w world) bool { return !w.matches(f) }) {
				sure++
			}
		}
	}
	if err != nil || got < sure || got > possible {
		r.fail("%s: got %d, %v, want %d to %d", what, got, err, sure, possible)
	}
}

// words names the plans in filters by their numbers.
func (r *modelRun) words(f storage.Filters) string {
	s := fmt.Sprintf("%+v", f)
	for _, empty := range []string{"ByIDs:[] ", "ByGroupIDs:[] ", "ByStatus:[] ", "After:0001-01-01 00:00:00 +0000 UTC ", "Before:0001-01-01 00:00:00 +0000 UTC ", "EndedAfter:0001-01-01 00:00:00 +0000 UTC ", "EndedBefore:0001-01-01 00:00:00 +0000 UTC ", "NamePrefix: ", "NameContains: ", "BeforeID:" + uuid.Nil.String() + " "} {
		s = strings.ReplaceAll(s, empty, "")
	}
	for i := range r.m.Plans + 1 {
		s = strings.ReplaceAll(s, r.id(i).String(), fmt.Sprintf("plan-%d", i))
	}
	return s
}

// listing compares a listing with the model.
func (r *modelRun) listing(what string, f storage.Filters, list func(context.Context, storage.Vault) (listing, error)) {
	var got []storage.ListResult
	err := r.with(func(ctx context.Context, v storage.Vault) (err error) {
		got, err = storage.Collect(list(ctx, v))
		return err
	})
	r.note("%s: %d plans, %s", what, len(got), outcome(err))
	if r.now.cut() && err != nil && wasCut(err) {
		return
	}
	if err != nil {
		r.fail("%s: %v", what, err)
	}
	rest := got
	for _, plan := range r.newestFirst() {
		if f.Limit > 0 && len(got) == f.Limit && len(rest) == 0 {
			return // the listing is full, and says nothing about the other plans
		}
		shown := len(rest) > 0 && rest[0].ID == r.id(plan)
		before := r.describe(plan)
		r.keep(plan, func(w world) []world {
			if shown != w.matches(f) || shown && !w.lists(rest[0]) {
				return nil
			}
			return []world{w}
		})
		switch {
		case len(r.worlds[plan]) > 0 && shown:
			rest = rest[1:]
		case len(r.worlds[plan]) > 0:
		case shown:
			r.fail("%s: it shows plan %d as %+v; %s", what, plan, rest[0], before)
		default:
			r.fail("%s: it does not show plan %d in its place; %s", what, plan, before)
		}
	}
	if len(rest) > 0 {
		r.fail("%s: it shows %+v, which is not next", what, rest[0])
	}
}

// newestFirst returns the plans in the order of listings.
func (r *modelRun) newestFirst() []int {
	plans := make([]int, r.m.Plans)
	for i := range plans {
		plans[i] = i
	}
	slices.SortFunc(plans, func(a, b int) int { return strings.Compare(r.id(b).String(), r.id(a).String()) })
	return plans
}
