package races_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// numberedPrefix starts the IDs that are the same in each run: UUIDv7 of the time at which a bubble begins.
const numberedPrefix = "00dc6acf-ac00-7000-8000-"

// numbered sets all IDs of a plan to values that depend on n alone.
func numbered(plan *workflow.Plan, n int) *workflow.Plan {
	i := 0
	id := func() uuid.UUID {
		i++
		return uuid.MustParse(fmt.Sprintf("%s%012x", numberedPrefix, n*1000+i))
	}
	for o := range workflow.Walk(plan) {
		*o.Header().ID = id()
		if a, ok := o.(*workflow.Action); ok {
			a.Key = uuid.Nil
		}
	}
	plan.SubmitTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	driver.Complete(plan)
	return plan
}

// target is the ID of the plan that the actors share.
var target = numbered(&workflow.Plan{}, 1).ID

// small returns the plan that the actors share. It is the same in each run.
func small(name string) *workflow.Plan {
	plan := plantest.Small()
	plan.Name, plan.Blocks[0].Name = name, name // in two blobs, so that a mixture of two plans is neither
	plan = numbered(plan, 1)
	plan.SubmitTime = plan.SubmitTime.Add(time.Duration(len(name)) * time.Second)
	return plan
}

// glance is the stored state of the target at one moment.
type glance struct {
	whole  bool
	status workflow.Status
}

func (r *run) glance() (g glance) {
	for c := range r.server.Containers() {
		entry, hasEntry := r.server.Blob(c, "plans/"+target.String()+"-entry.json")
		_, hasObject := r.server.Blob(c, "plans/"+target.String()+"-object.json")
		if hasEntry && hasObject {
			g.whole = true
			var state workflow.State
			if err := json.Unmarshal([]byte(entry.Metadata["state"]), &state); err != nil {
				r.Error(err)
			}
			g.status = state.Status
		}
	}
	return g
}

// atEnd settles the store after a run and returns the wanted plan that is there, or nil.
func (r *run) atEnd(v *azblob.Vault, wanted ...*workflow.Plan) *workflow.Plan {
	r.Helper()
	if len(wanted) == 0 {
		wanted = []*workflow.Plan{{ID: target}} // which no plan is like
	}
	r.server.DeliverLate()
	early := vaulttest.WholeOrGone(r.T, v, wanted...)
	vaulttest.Settled(r.T, v)
	late := vaulttest.WholeOrGone(r.T, v, wanted...)
	if early != late {
		r.Error("Recovery changed what Read finds")
	}
	if late == nil {
		for c := range r.server.Containers() {
			for b := range r.server.Blobs(c) {
				if strings.Contains(b.Name, target.String()) {
					r.Errorf("%s is left", b.Name)
				}
			}
		}
	}
	return late
}

// returned reports whether an actor lived to return nil. Any error must be one that it may return.
func (r *run) returned(a *acting) bool {
	r.Helper()
	if a.dead() || a.err == nil {
		return !a.dead()
	}
	if !slices.ContainsFunc(a.may, func(kind error) bool { return errors.Is(a.err, kind) }) {
		r.Errorf("%s: %v", a.name, a.err)
	}
	return false
}

// wanted returns the states of the target that readers may find.
func (r *run) wanted() (plans []*workflow.Plan) {
	if r.was != nil {
		plans = append(plans, r.was)
	}
	for _, a := range r.actors {
		if a.writes != nil {
			plans = append(plans, a.writes(r))
		}
	}
	return plans
}

// promises checks what the actors returned. What one has written is there if it returned nil, and nothing that another
// one did not remove is gone. At most one of several writers succeeds.
func (r *run) promises(v *azblob.Vault) {
	r.Helper()
	there := r.atEnd(v, r.wanted()...)
	// rival reports whether an actor that did not end before a does the opposite.
	rival := func(a *acting, does func(b *acting) bool) bool {
		return slices.ContainsFunc(r.actors, func(b *acting) bool { return does(b) && a.after != b.name })
	}
	won := 0
	for _, a := range r.actors {
		if a.reads || a.lax {
			continue
		}
		nilled := r.returned(a)
		switch {
		case a.deletes && nilled && there != nil && !rival(a, func(b *acting) bool { return b.creates }):
			r.Errorf("%s returned nil, and the plan is there", a.name)
		case a.writes == nil:
		case nilled:
			won++
			if there != a.writes(r) && !rival(a, func(b *acting) bool { return b.removes }) {
				r.Errorf("%s returned nil, and what it wrote is not there", a.name)
			}
		case a.creates && there == a.writes(r) && !a.dead() && !errors.Is(a.err, storage.ErrUnknown):
			r.Errorf("%s returned %v, and its plan is there", a.name, a.err)
		}
	}
	if won > 1 {
		r.Errorf("%d writers succeeded", won)
	}
	if there == nil && r.was != nil && !slices.ContainsFunc(r.actors, func(a *acting) bool { return a.removes }) {
		r.Error("the plan is gone")
	}
}

// creator creates the plan with a name that identifies the creator.
func creator(name, plan string) actor {
	return creatorOf(name, func() *workflow.Plan { return small(plan) }, func(v *azblob.Vault, ctx context.Context, plan *workflow.Plan) error {
		began := time.Now()
		err := v.Create(ctx, plan)
		if took := time.Since(began); err == nil && took > 10*time.Minute {
			return fmt.Errorf("it succeeded after %v, when its grace period was over", took)
		}
		return err
	})
}

// creatorOf creates a plan, which is made anew in each run.
func creatorOf(name string, plan func() *workflow.Plan, create func(*azblob.Vault, context.Context, *workflow.Plan) error) actor {
	made := plan()
	return actor{
		name: name, creates: true, may: []error{storage.ErrExists, storage.ErrConflict},
		writes: func(*run) *workflow.Plan { return made },
		do:     func(ctx context.Context, _ *acting, v *azblob.Vault) error { return create(v, ctx, plan()) },
	}
}

// observer reads twice, and compares each result with the store before and after the call.
func observer(name string, look func(ctx context.Context, v *azblob.Vault, r *run) (seen bool, status workflow.Status, err error)) actor {
	return actor{name: name, concurrency: 2, reads: true, do: func(ctx context.Context, a *acting, v *azblob.Vault) error {
		for range 2 {
			a.fresh = true
			seen, status, err := look(ctx, v, a.run)
			if ctx.Err() != nil {
				return nil // the run is over
			}
			if err != nil {
				a.run.Errorf("%s: %v", name, err)
				return err
			}
			from, to := a.saw, a.run.glance()
			switch {
			case seen && !from.whole && !to.whole:
				a.run.Errorf("%s shows a plan that is not there", name)
			case !seen && from.whole && to.whole && !a.run.replaced:
				a.run.Errorf("%s does not show a plan that is there", name)
			case seen && !a.run.replaced && status >= 0 && (from.whole && status < from.status || to.whole && status > to.status):
				a.run.Errorf("%s shows a plan as %s that was %s and is %s", name, status, from.status, to.status)
			}
		}
		return nil
	}}
}

// unsaid is the status that an observer reports if it does not learn it.
const unsaid workflow.Status = -1

// reader reads the plan, which must be one of those that a reader may find.
func reader() actor {
	return observer("reader", func(ctx context.Context, v *azblob.Vault, r *run) (bool, workflow.Status, error) {
		got, err := v.Read(ctx, target)
		if errors.Is(err, storage.ErrNotFound) {
			return false, unsaid, nil
		}
		if err != nil {
			return false, unsaid, err
		}
		var d string
		for _, state := range r.wanted() {
			if d = plantest.Diff(state, got); d == "" {
				return true, got.State.Status, nil
			}
		}
		r.Errorf("Read returns a plan that never was: %s", d)
		return true, got.State.Status, nil
	})
}

// prober calls Exists.
func prober() actor {
	return observer("prober", func(ctx context.Context, v *azblob.Vault, _ *run) (bool, workflow.Status, error) {
		exists, err := v.Exists(ctx, target)
		return exists, unsaid, err
	})
}

// lister lists all plans, one of which exists throughout.
func lister() actor {
	return observer("lister", func(ctx context.Context, v *azblob.Vault, r *run) (bool, workflow.Status, error) {
		return inListing(ctx, v, r, storage.Filters{}, target, steady)
	})
}

// searcher searches for the plan by its ID.
func searcher() actor {
	return observer("searcher", func(ctx context.Context, v *azblob.Vault, r *run) (bool, workflow.Status, error) {
		return inListing(ctx, v, r, storage.Filters{ByIDs: []uuid.UUID{target}}, target)
	})
}

// steady is the ID of a plan that no actor touches.
var steady = numbered(&workflow.Plan{}, 2).ID

// inListing reports whether a listing shows the first of the plans, and with which status. The listing must
// show the others, and none twice.
func inListing(ctx context.Context, v *azblob.Vault, r *run, f storage.Filters, ids ...uuid.UUID) (seen bool, status workflow.Status, err error) {
	list, err := storage.Collect(v.List(ctx, 0))
	if len(f.ByIDs) > 0 {
		list, err = storage.Collect(v.Search(ctx, f))
	}
	if err != nil {
		return false, unsaid, err
	}
	found := map[uuid.UUID]int{}
	for _, listed := range list {
		found[listed.ID]++
		if listed.ID == ids[0] {
			status = listed.State.Status
		}
	}
	for i, id := range ids {
		if n := found[id]; n > 1 || n == 0 && i > 0 {
			r.Errorf("a listing shows plan %s %d times", id, n)
		}
	}
	return found[ids[0]] == 1, status, nil
}

// updater stores the target as it will be.
func updater(name string) actor {
	return updaterOf(name, func(r *run) *workflow.Plan { return r.will }, (*azblob.Vault).UpdatePlan)
}

// updaterOf makes one update, which leaves a plan.
func updaterOf(name string, writes func(r *run) *workflow.Plan, update func(*azblob.Vault, context.Context, *workflow.Plan) error) actor {
	return actor{name: name, writes: writes, do: func(ctx context.Context, a *acting, v *azblob.Vault) error {
		mine := *writes(a.run) // the version in it changes
		return update(v, ctx, &mine)
	}}
}

func deleter(name string) actor {
	return actor{name: name, removes: true, deletes: true, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error { return v.Delete(ctx, target) }}
}

func recoverer(name string) actor {
	return actor{name: name, do: func(ctx context.Context, _ *acting, v *azblob.Vault) error { return v.Recovery(ctx) }}
}

// returns lets an actor return more errors.
func (a actor) returns(errs ...error) actor {
	a.may = slices.Concat(a.may, errs)
	return a
}

// then makes an actor begin after another has ended.
func (a actor) then(name string) actor {
	a.after = name
	return a
}

// within gives an actor's vault another grace period.
func (a actor) within(grace time.Duration) actor {
	a.grace = grace
	return a
}

// wide lets an actor's vault send two requests at a time.
func (a actor) wide() actor {
	a.concurrency = 2
	return a
}
