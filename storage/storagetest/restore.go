package storagetest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// restorePromises are about vaults that are a [storage.Restorer].
func restorePromises() []promise {
	return slices.Concat([]promise{
		{"a plan of any status comes back as it was", restoreAnyStatus},
		{"plans of any shape and text come back as they were", restoreAnyShape},
		{"a restored plan goes on to its end, with its own versions", restoreGoesOn},
		{"an ID that is taken is ErrExists, and the plan stays as it is", restoreExists},
		{"no reader sees a plan before it is whole", restoreNotSeenEarly},
		{"if two nodes restore one ID at once, one wins", restoreRace},
		{"bad input is ErrInvalid with the field, and nothing is stored", restoreInvalid},
		{"a death at any request leaves a whole plan or none, and Recovery removes the remains", restoreDeath},
		{"after an unknown outcome Restore can be called again with the same plan", restoreUnknown},
	}, contextPromises("restore"))
}

// restorer returns the vault as a Restorer. If it is none, the case is skipped.
func (s *stage) restorer(v storage.Vault) storage.Restorer {
	s.Helper()
	r, ok := v.(storage.Restorer)
	s.needs(ok, "vault with storage.Restorer")
	return r
}

// restores stores a plan that another store may have.
func (s *stage) restores(plan *workflow.Plan) {
	s.Helper()
	s.must(s.restorer(s.vault).Restore(s.ctx, plan))
}

// copied returns a plan of a status as a Read of another store would return it.
func copied(plan *workflow.Plan, status workflow.Status) *workflow.Plan {
	if status != workflow.NotStarted {
		plantest.Finish(plan)
		plan.Owner, plan.Epoch = node, 3
	}
	plan.ID, plan.SubmitTime = workflow.NewV7(), moment
	for o := range workflow.Walk(plan) {
		h := o.Header()
		if o != workflow.Object(plan) {
			*h.ID = workflow.NewV7()
		}
		*h.PlanID = plan.ID
		h.State.ETag = "a version of another store"
	}
	plan.State = workflow.State{Status: status, ETag: "another@" + status.String()}
	if status != workflow.NotStarted {
		plan.State.Start = moment
	}
	if status.Final() {
		plan.State.End = moment.Add(time.Hour)
	}
	return plan
}

func restoreAnyStatus(s *stage) {
	s.restorer(s.vault)
	for _, status := range statuses {
		plan := copied(plantest.Full(), status)
		given := plantest.Clone(plan)
		s.restores(plan)
		s.shows(s.open(), given)
		got := s.read(s.vault, plan.ID)
		for o := range workflow.Walk(plan) {
			h := o.Header()
			if stored := objectOf(got, *h.ID); stored == nil || stored.Header().State.ETag != h.State.ETag {
				s.Errorf("%s: Restore did not set the version of a %s", status, o.Kind())
			}
		}
		found := s.search(s.vault, storage.Filters{ByStatus: []workflow.Status{status}})
		if len(found) != 1 || found[0].ID != plan.ID {
			s.Errorf("a search for %s finds %v", status, found)
		}
		// The same after it was read, deleted and restored.
		s.must(s.vault.Delete(s.ctx, plan.ID))
		s.restores(got)
		s.must(s.open().Recovery(s.ctx))
		s.shows(s.vault, given)
		s.sound()
		s.must(s.vault.Delete(s.ctx, plan.ID))
		s.lacks(s.vault, plan.ID)
	}
}

func restoreAnyShape(s *stage) {
	s.restorer(s.vault)
	for seed := range uint64(10) {
		plan := copied(plantest.Random(seed), statuses[seed%5])
		given := plantest.Clone(plan)
		s.restores(plan)
		s.same(given, s.read(s.vault, plan.ID))
		if s.Failed() {
			s.Fatalf("the plan was plantest.Random(%d), %s", seed, statuses[seed%5])
		}
	}
}

func restoreGoesOn(s *stage) {
	s.restorer(s.vault)
	for _, status := range statuses[:2] {
		old := plantest.Clone(copied(allKinds(), status))
		plan := plantest.Clone(old)
		s.restores(plan)
		if status == workflow.NotStarted {
			s.runs(plan)
		}
		s.refuses(storage.ErrInvalid, s.vault, old.Blocks[0]) // the version is another store's
		s.must(finishParts(s.ctx, s.vault, plan))
		s.shows(s.open(), plan)
		s.must(complete(s.ctx, s.vault, plan))
		s.shows(s.open(), plan)
	}
	plan := copied(allKinds(), workflow.Failed)
	s.restores(plan)
	plan.State.Status = workflow.Running
	s.refuses(storage.ErrInvalid, s.vault, plan) // a final plan stays final
	plan.State.Status, plan.Descr = workflow.Failed, "looked at"
	s.update(plan)
	s.shows(s.vault, plan)
}

func restoreExists(s *stage) {
	r := s.restorer(s.vault)
	for _, plan := range []*workflow.Plan{s.create(plantest.Full()), s.started(allKinds()), s.completed(allKinds())} {
		other := copied(plantest.Small(), workflow.Completed)
		other.ID = plan.ID
		for o := range workflow.Walk(other) {
			*o.Header().PlanID = plan.ID
		}
		s.want(storage.ErrExists, "Restore", plan.ID, r.Restore(s.ctx, other))
		s.want(storage.ErrExists, "Restore", plan.ID, s.restorer(s.open()).Restore(s.ctx, plantest.Clone(plan)))
		s.shows(s.vault, plan)
	}
	s.recoverAll() // the calls that failed may have left remains
}

func restoreNotSeenEarly(s *stage) {
	s.restorer(s.vault)
	for _, status := range []workflow.Status{workflow.Running, workflow.Completed} {
		plan := copied(plantest.Sized(2, 3, 4), status)
		id := plan.ID
		whole := make(chan error, 1)
		other := s.restorer(s.open())
		go func() { whole <- other.Restore(s.ctx, plan) }()
		for restored := false; !restored; {
			select {
			case err := <-whole:
				s.must(err)
				restored = true
			default:
			}
			for _, r := range s.search(s.vault, storage.Filters{ByStatus: []workflow.Status{status}}) {
				if got := s.read(s.vault, r.ID); r.ID == id {
					s.same(plan, got)
				}
			}
			if got, err := s.vault.Read(s.ctx, id); err == nil {
				s.same(plan, got)
			} else {
				s.want(storage.ErrNotFound, "Read", id, err)
			}
		}
		s.shows(s.vault, plan)
	}
}

func restoreRace(s *stage) {
	nodes := []storage.Restorer{s.restorer(s.vault), s.restorer(s.open())}
	for _, status := range statuses {
		plan := copied(allKinds(), status)
		errs := make([]error, 4)
		_ = atOnce(len(errs), func(i int) error {
			errs[i] = nodes[i%2].Restore(s.ctx, plantest.Clone(plan))
			return nil
		})
		won := 0
		for _, err := range errs {
			switch {
			case err == nil:
				won++
			case errors.Is(err, storage.ErrConflict): // the winner was not finished yet
			default:
				s.want(storage.ErrExists, "Restore", plan.ID, err)
			}
		}
		if won != 1 {
			s.Fatalf("%d calls succeeded, want 1: %v", won, errs)
		}
		s.shows(s.vault, plan)
	}
	s.recoverAll() // those that lost may have left a marker
}

func restoreInvalid(s *stage) {
	r := s.restorer(s.vault)
	for _, bad := range plantest.BadPlans() {
		plan := copied(plantest.Full(), workflow.Completed)
		bad.Edit(plan)
		s.names(bad.Field, "Restore", uuid.Nil, r.Restore(s.ctx, plan))
	}
	s.want(storage.ErrInvalid, "Restore", uuid.Nil, r.Restore(s.ctx, nil))
	plan := copied(plantest.Full(), workflow.Completed)
	plan.ID = uuid.Nil
	s.names("ID", "Restore", uuid.Nil, r.Restore(s.ctx, plan))
	plan = copied(plantest.Full(), workflow.Completed)
	plan.Blocks[0].ID = uuid.Nil
	s.names("Blocks[0].ID", "Restore", plan.ID, r.Restore(s.ctx, plan))
	if list := s.list(s.vault); len(list) > 0 {
		s.Errorf("%d plans were stored, such as %+v", len(list), list[0])
	}
}

func restoreDeath(s *stage) {
	s.restorer(s.vault)
	whole, gone := map[uuid.UUID]*workflow.Plan{}, []uuid.UUID{}
	i := 0
	for d := range s.deaths() {
		plan := copied(allKinds(), statuses[1+i%2]) // Running, then final
		given := plantest.Clone(plan)
		i++
		err := d.run(func(ctx context.Context, v storage.Vault) error { return s.restorer(v).Restore(ctx, plan) })
		got := s.find(s.vault, given.ID)
		if got == nil {
			gone = append(gone, given.ID)
			if err == nil {
				s.Errorf("Restore returned nil, but there is no plan")
			}
			continue
		}
		s.same(given, got)
		whole[plan.ID] = got
		if err != nil && !errors.Is(err, storage.ErrUnknown) {
			s.Errorf("Restore stored the plan, but did not return nil or ErrUnknown: %v", err)
		}
	}
	s.recoverAll()
	for _, plan := range whole {
		s.shows(s.vault, plan)
	}
	for _, id := range gone {
		s.lacks(s.vault, id)
	}
}

func restoreUnknown(s *stage) {
	r := s.restorer(s.vault)
	var blocked []*workflow.Plan
	i := 0
	for d := range s.deaths() {
		plan := copied(allKinds(), statuses[1+i%2])
		i++
		_ = d.run(func(ctx context.Context, v storage.Vault) error { return s.restorer(v).Restore(ctx, plan) })
		there := s.find(s.vault, plan.ID) != nil
		switch err := r.Restore(s.ctx, plan); {
		case there:
			s.want(storage.ErrExists, "Restore", plan.ID, err)
		case errors.Is(err, storage.ErrConflict): // until Recovery removes the remains
			s.want(storage.ErrConflict, "Restore", plan.ID, err)
			blocked = append(blocked, plan)
		default:
			s.must(err)
			s.shows(s.vault, plan)
		}
	}
	s.recoverAll()
	for _, plan := range blocked {
		s.restores(plan)
		s.shows(s.vault, plan)
	}
}
