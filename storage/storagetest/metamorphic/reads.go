package metamorphic

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/oracle"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// sees makes a call about a plan, and removes the worlds that disagree with its result. agrees says of a world what is
// wrong, and returns the one after the call. A call that was cut tells nothing.
func (r *modelRun) sees(op string, do func(ctx context.Context, v storage.Vault) error, agrees func(w world, err error) (world, string)) {
	plan := r.now.plan
	err := r.with(do)
	what := fmt.Sprintf("%s plan %d", op, plan)
	r.note("%s: %v", what, err)
	if r.now.cut() && wasCut(err) {
		return
	}
	before, why := r.describe(plan), ""
	r.keep(plan, func(w world) []world {
		next, problem := agrees(w, err)
		if problem != "" {
			why = problem
			return nil
		}
		return []world{next}
	})
	if len(r.worlds[plan]) == 0 {
		r.t.Fatalf("%s (%v): %s; %s", what, err, why, before)
	}
}

func (r *modelRun) read() {
	plan, held := r.now.plan, r.known[r.now.client]
	var got *workflow.Plan
	r.sees("Read", func(ctx context.Context, v storage.Vault) (err error) {
		got, err = v.Read(ctx, r.id(plan))
		return err
	}, func(w world, err error) (world, string) {
		if delete(held, plan); err == nil {
			held[plan] = got
		}
		return w.reads(got, err)
	})
}

func (r *modelRun) exists() {
	var found bool
	r.sees("Exists", func(ctx context.Context, v storage.Vault) (err error) {
		found, err = v.Exists(ctx, r.id(r.now.plan))
		return err
	}, func(w world, err error) (world, string) {
		if err != nil || found != (w.plan != nil) {
			return w, fmt.Sprint("it returned ", found)
		}
		return w, ""
	})
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
	if len(f.Fields()) > 0 {
		r.listing(what, f, search)
		return
	}
	err := r.with(func(ctx context.Context, v storage.Vault) error {
		_, err := search(ctx, v)
		return err
	})
	r.note("%s: %v", what, err)
	if !isOnly(err, storage.ErrInvalid) {
		r.t.Fatalf("%s: got %v, want ErrInvalid", what, err)
	}
}

// filters draws filters for the plans that the clients use and for a plan that never exists. Some are empty.
func (r *modelRun) filters() storage.Filters {
	plans := make([]*workflow.Plan, r.m.Plans+1)
	for i := range plans {
		plans[i] = &workflow.Plan{ID: r.id(i), GroupID: r.group(i % 4)}
		if i < len(r.worlds) && r.worlds[i][0].plan != nil {
			plans[i] = r.worlds[i][0].plan
		}
	}
	return oracle.Draw(r.rand, plans, r.rand.IntN(4))
}

// count compares a count with the model.
func (r *modelRun) count(f storage.Filters) {
	f.Limit, f.BeforeID = 0, uuid.Nil
	what := "Count " + r.words(f)
	var got int
	err := r.with(func(ctx context.Context, v storage.Vault) (err error) {
		got, err = v.Count(ctx, f)
		return err
	})
	r.note("%s: %d, %v", what, got, err)
	if r.now.cut() && wasCut(err) {
		return
	}
	var sure, possible int
	for _, worlds := range r.worlds {
		if slices.ContainsFunc(worlds, func(w world) bool { return w.matches(f) }) {
			possible++
			if !slices.ContainsFunc(worlds, func(w world) bool { return !w.matches(f) }) {
				sure++
			}
		}
	}
	if err != nil || got < sure || got > possible {
		r.t.Fatalf("%s: got %d, %v, want %d to %d", what, got, err, sure, possible)
	}
}

// words names the plans in filters by their numbers.
func (r *modelRun) words(f storage.Filters) string {
	var set []string
	for _, field := range f.Fields() {
		set = append(set, fmt.Sprintf("%s:%v", field, reflect.ValueOf(f).FieldByName(field)))
	}
	s := strings.Join(set, " ")
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
	r.note("%s: %d plans, %v", what, len(got), err)
	if r.now.cut() && wasCut(err) {
		return
	}
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
	rest := got
	for _, plan := range r.newestFirst() {
		if f.Limit > 0 && len(got) == f.Limit && len(rest) == 0 {
			return // the listing is full, and says nothing about the other plans
		}
		shown := len(rest) > 0 && rest[0].ID == r.id(plan)
		before := r.describe(plan)
		r.keep(plan, func(w world) []world {
			if shown != w.matches(f) || shown && !oracle.Shows(rest[0], w.plan) {
				return nil
			}
			return []world{w}
		})
		switch {
		case len(r.worlds[plan]) > 0 && shown:
			rest = rest[1:]
		case len(r.worlds[plan]) > 0:
		case shown:
			r.t.Fatalf("%s: it shows plan %d as %+v; %s", what, plan, rest[0], before)
		default:
			r.t.Fatalf("%s: it does not show plan %d in its place; %s", what, plan, before)
		}
	}
	if len(rest) > 0 {
		r.t.Fatalf("%s: it shows %+v, which is not next", what, rest[0])
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
