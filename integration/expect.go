package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// started is when all objects start, to the nanosecond.
var started = time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.UTC)

// start sets an object to Running.
func start(o workflow.Object) {
	st := o.Header().State
	st.Status, st.Start = workflow.Running, started
}

// create creates a plan, and expects it from then on.
func (s *stage) create(ctx context.Context, plan *workflow.Plan) error {
	if err := s.vault.Create(ctx, plan); err != nil {
		return err
	}
	for o := range workflow.Walk(plan) {
		if h := o.Header(); h.State.ETag == "" || *h.PlanID != plan.ID {
			return fmt.Errorf("%s %s was not given its version and plan", o.Kind(), h.ID)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans[plan.ID] = plan
	return nil
}

// end gives a plan its last update.
func (s *stage) end(ctx context.Context, plan *workflow.Plan, end workflow.Status, reason workflow.FailureReason) error {
	plan.State.Status, plan.State.End, plan.Reason = end, started.AddDate(0, 0, 1), reason
	return s.vault.UpdatePlan(ctx, plan)
}

// remove deletes a plan, and does not expect it from then on.
func (s *stage) remove(ctx context.Context, plan *workflow.Plan) error {
	s.mu.Lock()
	delete(s.plans, plan.ID)
	s.mu.Unlock()
	return s.vault.Delete(ctx, plan.ID)
}

// finishParts updates all sub-objects to final statuses.
func finishParts(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	running := plan.State
	plantest.Finish(plan)
	plan.State = running
	return updateParts(ctx, v, plan)
}

// updateParts updates all sub-objects, several at a time as engines do.
func updateParts(ctx context.Context, v *azblob.Vault, plan *workflow.Plan) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, o := range workflow.Parts(plan) {
		g.Go(func() error { return storage.Update(ctx, v, o) })
	}
	return g.Wait()
}

// is returns nil if err is the wanted error.
func is(err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("want the error %q, got %w", want, cmp.Or(err, errors.New("none")))
	}
	return nil
}

// reported returns the error of a call, or one that shows its report if that is not as expected.
func reported(err error, expected bool, report any) error {
	if err == nil && !expected {
		err = fmt.Errorf("it reports %+v", report)
	}
	return err
}

// reads reads a plan and compares it with the expected one.
func reads(ctx context.Context, v *azblob.Vault, want *workflow.Plan) error {
	got, err := v.Read(ctx, want.ID)
	if err != nil {
		return err
	}
	if d := plantest.Diff(want, got); d != "" {
		return fmt.Errorf("the plan that was read differs: %s", d)
	}
	return nil
}

// whole checks that Read, Exists and Search show a plan as expected.
func (s *stage) whole(ctx context.Context, want *workflow.Plan) error {
	return errors.Join(reads(ctx, s.vault, want), s.seen(ctx, want.ID, want))
}

// gone checks that Read, Exists and Search find no plan.
func (s *stage) gone(ctx context.Context, id uuid.UUID) error {
	_, err := s.vault.Read(ctx, id)
	return errors.Join(is(err, storage.ErrNotFound), s.seen(ctx, id))
}

// seen checks what Exists and Search say about an ID. The wanted plans are one or none.
func (s *stage) seen(ctx context.Context, id uuid.UUID, want ...*workflow.Plan) error {
	there, err := s.vault.Exists(ctx, id)
	if err := reported(err, there == (len(want) > 0), there); err != nil {
		return fmt.Errorf("what Exists returns: %w", err)
	}
	return shows(want)(s.vault.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{id}}))
}

// newestFirst returns all expected plans.
func (s *stage) newestFirst() []*workflow.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.plans), func(a, b *workflow.Plan) int { return driver.NewestFirst(a.ID, b.ID) })
}

// listed checks that the vault lists the expected plans and no others.
func (s *stage) listed(ctx context.Context) error {
	return shows(s.newestFirst())(s.vault.List(ctx, 0))
}

// shows compares a listing with the expected plans, in their order.
func shows(want []*workflow.Plan) func(iter.Seq[storage.Stream[storage.ListResult]], error) error {
	return func(got iter.Seq[storage.Stream[storage.ListResult]], err error) error {
		listed, err := storage.Collect(got, err)
		if err != nil {
			return err
		}
		for i, r := range listed[:min(len(listed), len(want))] {
			p := want[i]
			same := r.ID == p.ID && r.GroupID == p.GroupID && r.Name == p.Name && r.Descr == p.Descr && r.SubmitTime.Equal(p.SubmitTime) &&
				r.State.Status == p.State.Status && r.State.Start.Equal(p.State.Start) && r.State.End.Equal(p.State.End)
			if !same {
				return fmt.Errorf("no. %d of the list is %+v, want plan %s with %s, %q, %q, %v, %v", i+1, r, p.ID, p.GroupID, p.Name, p.Descr, p.SubmitTime, p.State)
			}
		}
		if len(listed) != len(want) {
			return fmt.Errorf("%s listed, want %d", count(len(listed), "plan"), len(want))
		}
		return nil
	}
}

// sound checks that Check finds the expected plans, all their blobs, and no problem.
func (s *stage) sound(ctx context.Context) error {
	plans := s.newestFirst()
	blobs := 0
	for _, p := range plans {
		blobs += len(workflow.Parts(p)) + 2
		if !p.State.Status.Final() {
			blobs++ // the marker
		}
	}
	r, err := s.vault.Admin().Check(ctx, azblob.CheckOptions{})
	if err == nil && len(r.Problems) > 0 {
		return fmt.Errorf("%s, such as %v", count(len(r.Problems), "problem"), r.Problems[0])
	}
	return reported(err, r.Plans == len(plans) && r.InProgress == 0 && r.Blobs == blobs, r)
}
