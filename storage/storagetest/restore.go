package storagetest

import (
	"slices"
	"time"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// restorePromises are about vaults that are a [storage.Restorer].
func restorePromises() []promise {
	return slices.Concat([]promise{
		{"a plan of any status comes back as it was", restoreAnyStatus},
		{"a restored plan goes on to its end, with its own versions", restoreGoesOn},
	}, restoring.promises())
}

// copyPromises are about vaults that are a [storage.Copier].
func copyPromises() []promise {
	return []promise{
		{"a plan of any status has the mark of a copy until the first update by others", copyMarked},
		{"a plan that others have changed is neither updated nor removed as a copy", copyOfOthers},
	}
}

// marked checks whether a plan has the mark, in the version that was set and in the one that a Read returns.
func (s *stage) marked(plan *workflow.Plan, want bool) {
	s.Helper()
	v := s.open()
	for _, p := range []*workflow.Plan{plan, s.read(v, plan.ID)} {
		if got := offers[storage.Copier](s, v).IsCopy(p); got != want {
			s.Errorf("a %s plan is a copy: %t, want %t", p.State.Status, got, want)
		}
	}
}

func copyMarked(s *stage) {
	c := offers[storage.Copier](s, s.vault)
	for _, status := range statuses {
		plan := copied(allKinds(), status)
		given := plantest.Clone(plan)
		s.must(c.RestoreCopy(s.ctx, plan))
		s.shows(s.vault, given)
		s.marked(plan, true)
		if status == workflow.NotStarted {
			plan.State.Status, plan.State.Start = workflow.Running, moment
		}
		plan.Descr = "changed in the source"
		s.must(c.UpdateCopy(s.ctx, plan))
		s.shows(s.vault, plan)
		s.marked(plan, true)
		s.must(s.open().Recovery(s.ctx))
		s.sound()
		s.update(plan)
		s.marked(plan, false)
		s.want(storage.ErrConflict, "UpdateCopy", plan.ID, c.UpdateCopy(s.ctx, plan))
		s.must(s.vault.Delete(s.ctx, plan.ID))
		s.must(c.RestoreCopy(s.ctx, given))
		s.must(c.DeleteCopy(s.ctx, given))
		s.lacks(s.vault, plan.ID)
	}
}

func copyOfOthers(s *stage) {
	c := offers[storage.Copier](s, s.vault)
	for _, status := range statuses {
		plan := copied(allKinds(), status)
		s.must(c.RestoreCopy(s.ctx, plan))
		seen := s.read(s.vault, plan.ID)
		plan.Owner, plan.Epoch = node, 9
		s.update(plan)
		s.want(storage.ErrConflict, "UpdateCopy", plan.ID, c.UpdateCopy(s.ctx, plantest.Clone(seen)))
		s.want(storage.ErrConflict, "DeleteCopy", plan.ID, c.DeleteCopy(s.ctx, seen))
		s.want(storage.ErrConflict, "DeleteCopy", plan.ID, c.DeleteCopy(s.ctx, plan))
		s.shows(s.open(), plan)
		s.must(s.vault.Delete(s.ctx, plan.ID))
		s.want(storage.ErrNotFound, "DeleteCopy", plan.ID, c.DeleteCopy(s.ctx, seen))
	}
}

// restores stores a plan that another store may have.
func (s *stage) restores(plan *workflow.Plan) {
	s.Helper()
	s.must(offers[storage.Restorer](s, s.vault).Restore(s.ctx, plan))
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
	offers[storage.Restorer](s, s.vault)
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

func restoreGoesOn(s *stage) {
	offers[storage.Restorer](s, s.vault)
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
