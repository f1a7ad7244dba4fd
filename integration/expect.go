package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// is returns nil if err is the wanted error.
func is(err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("want the error %q, got %w", want, cmp.Or(err, errors.New("none")))
	}
	return nil
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
func (s *stage) whole(ctx context.Context, v *azblob.Vault, want *workflow.Plan) error {
	return errors.Join(reads(ctx, v, want), seen(ctx, v, want.ID, want))
}

// gone checks that Read, Exists and Search find no plan.
func (s *stage) gone(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
	_, err := v.Read(ctx, id)
	return errors.Join(is(err, storage.ErrNotFound), seen(ctx, v, id))
}

// seen checks what Exists and Search say about an ID. The wanted plans are one or none.
func seen(ctx context.Context, v *azblob.Vault, id uuid.UUID, want ...*workflow.Plan) error {
	there, err := v.Exists(ctx, id)
	if err != nil {
		return err
	}
	if there != (len(want) > 0) {
		return fmt.Errorf("the vault returns %t from Exists", there)
	}
	found, err := v.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{id}})
	if err != nil {
		return err
	}
	return sameList(found, want)
}

// left checks how many blobs of a plan are stored.
func (s *stage) left(ctx context.Context, id uuid.UUID, want int) error {
	blobs, err := s.blobsOf(ctx, id)
	if err != nil {
		return err
	}
	if len(blobs) != want {
		return fmt.Errorf("%s of plan %s are stored, want %d: %s", count(len(blobs), "blob"), id, want, strings.Join(blobs, ", "))
	}
	return nil
}

// newestFirst returns all expected plans.
func (s *stage) newestFirst() []*workflow.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.plans), func(a, b *workflow.Plan) int { return driver.NewestFirst(a.ID, b.ID) })
}

// listed checks that a vault lists the expected plans and no others.
func (s *stage) listed(ctx context.Context, v *azblob.Vault) error {
	all, err := v.List(ctx, 0)
	if err != nil {
		return err
	}
	return sameList(all, s.newestFirst())
}

// sameList compares a listing with the expected plans, in their order.
func sameList(got iter.Seq[storage.Stream[storage.ListResult]], want []*workflow.Plan) error {
	n := 0
	for r := range got {
		if r.Err != nil {
			return r.Err
		}
		if n == len(want) {
			return fmt.Errorf("plan %s is listed after the %d expected plans", r.Result.ID, n)
		}
		if d := diffListed(want[n], r.Result); d != "" {
			return fmt.Errorf("no. %d of the list: %s", n+1, d)
		}
		n++
	}
	if n < len(want) {
		return fmt.Errorf("%s listed, want %d: %s is missing", count(n, "plan"), len(want), want[n].ID)
	}
	return nil
}

func diffListed(p *workflow.Plan, r storage.ListResult) string {
	same := func(a, b workflow.State) bool {
		return a.Status == b.Status && a.Start.Equal(b.Start) && a.End.Equal(b.End)
	}
	switch {
	case r.ID != p.ID:
		return fmt.Sprintf("it is plan %s, want %s", r.ID, p.ID)
	case r.GroupID != p.GroupID, r.Name != p.Name, r.Descr != p.Descr, !r.SubmitTime.Equal(p.SubmitTime), !same(r.State, p.State):
		return fmt.Sprintf("plan %s has %+v, want %s, %q, %q, %v, %v", r.ID, r, p.GroupID, p.Name, p.Descr, p.SubmitTime, p.State)
	}
	return ""
}

// sound checks that Check finds the expected plans, all their blobs, and no problem.
func (s *stage) sound(ctx context.Context, v *azblob.Vault) error {
	r, err := v.Check(ctx, azblob.CheckOptions{})
	if err != nil {
		return err
	}
	if len(r.Problems) > 0 {
		return fmt.Errorf("%s, such as %v", count(len(r.Problems), "problem"), r.Problems[0])
	}
	plans := s.newestFirst()
	blobs := 0
	for _, p := range plans {
		blobs += len(workflow.Parts(p)) + 2
		if !p.State.Status.Final() {
			blobs++ // the marker
		}
	}
	if want := len(plans); r.Plans != want || r.InProgress != 0 || r.Blobs != blobs {
		return fmt.Errorf("it finds %s with %s and %d in progress, want %d with %d and none",
			count(r.Plans, "plan"), count(r.Blobs, "blob"), r.InProgress, want, blobs)
	}
	return nil
}
