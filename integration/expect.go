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
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// is says how err differs from what was expected.
func is(err, want error) error {
	if !errors.Is(err, want) {
		return fmt.Errorf("want the error %q, got %w", want, cmp.Or(err, errors.New("none")))
	}
	return nil
}

// reads reads a plan and holds it against what it must be.
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

// whole reads a plan and asks Exists and Search for it.
func (s *stage) whole(ctx context.Context, v *azblob.Vault, want *workflow.Plan) error {
	if err := reads(ctx, v, want); err != nil {
		return err
	}
	there, err := v.Exists(ctx, want.ID)
	if err != nil || !there {
		return fmt.Errorf("asked whether it exists, the vault says %t, %w", there, cmp.Or(err, errors.New("though the plan is there")))
	}
	found, err := v.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{want.ID}})
	if err != nil {
		return err
	}
	return sameList(found, []*workflow.Plan{want})
}

// gone makes sure that nobody sees a plan.
func (s *stage) gone(ctx context.Context, v *azblob.Vault, id uuid.UUID) error {
	if _, err := v.Read(ctx, id); !errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("reading it: %w", is(err, storage.ErrNotFound))
	}
	there, err := v.Exists(ctx, id)
	if err != nil || there {
		return fmt.Errorf("asked whether it exists, the vault says %t, %w", there, cmp.Or(err, errors.New("though there is no such plan")))
	}
	found, err := v.Search(ctx, storage.Filters{ByIDs: []uuid.UUID{id}})
	if err != nil {
		return err
	}
	if err := sameList(found, nil); err != nil {
		return fmt.Errorf("searching it: %w", err)
	}
	return nil
}

// left makes sure that so many blobs of a plan are stored.
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

// newestFirst lists all the plans that must be there.
func (s *stage) newestFirst() []*workflow.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.plans), func(a, b *workflow.Plan) int {
		return strings.Compare(b.ID.String(), a.ID.String())
	})
}

// listed makes sure that a vault lists the plans that must be there, and no others.
func (s *stage) listed(ctx context.Context, v *azblob.Vault) error {
	all, err := v.List(ctx, 0)
	if err != nil {
		return err
	}
	return sameList(all, s.newestFirst())
}

// sameList holds a listing against the plans that it must show, in their order.
func sameList(got iter.Seq[storage.Stream[storage.ListResult]], want []*workflow.Plan) error {
	n := 0
	for r := range got {
		if r.Err != nil {
			return r.Err
		}
		if n == len(want) {
			return fmt.Errorf("plan %s is listed after the %d that should be", r.Result.ID, n)
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
	case r.GroupID != p.GroupID:
		return fmt.Sprintf("plan %s has group %s, want %s", r.ID, r.GroupID, p.GroupID)
	case r.Name != p.Name:
		return fmt.Sprintf("plan %s has the name %q, want %q", r.ID, head(r.Name), head(p.Name))
	case r.Descr != p.Descr:
		return fmt.Sprintf("plan %s has the description %q, want %q", r.ID, head(r.Descr), head(p.Descr))
	case !r.SubmitTime.Equal(p.SubmitTime):
		return fmt.Sprintf("plan %s was submitted at %v, want %v", r.ID, r.SubmitTime, p.SubmitTime)
	case !same(r.State, p.State):
		return fmt.Sprintf("plan %s has the state %v, want %v", r.ID, r.State, p.State)
	}
	return ""
}

// head cuts a text that is too long for a message.
func head(s string) string {
	if len(s) > 200 {
		return s[:200] + "…"
	}
	return s
}

// sound makes sure that Check finds nothing wrong, and just the plans that must be there.
func (s *stage) sound(ctx context.Context, v *azblob.Vault) error {
	r, err := v.Check(ctx, azblob.CheckOptions{})
	if err != nil {
		return err
	}
	if len(r.Problems) > 0 {
		return fmt.Errorf("%s, such as %v", count(len(r.Problems), "problem"), r.Problems[0])
	}
	blobs := 0
	plans := s.newestFirst()
	for _, p := range plans {
		blobs += len(parts(p)) + 2
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

// settle lets time pass and recovers, until nothing is too young any more; it returns all that was done about each plan.
func (s *stage) settle(ctx context.Context, v *azblob.Vault) (map[uuid.UUID]azblob.RecoveredPlan, error) {
	const pause, most = shortGrace / 8, 120 // two minutes
	done := map[uuid.UUID]azblob.RecoveredPlan{}
	for range most {
		r, err := v.Recover(ctx, azblob.RecoverOptions{})
		for _, p := range r.Plans {
			done[p.ID] = p
		}
		if err != nil {
			return done, err
		}
		if r.Recent == 0 {
			return done, nil
		}
		if err := s.wait(ctx, pause); err != nil {
			return done, err
		}
	}
	return done, fmt.Errorf("after %v something is still too young", most*pause)
}
