package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// What crashes wait for.
func marker(r request) bool {
	return strings.HasPrefix(r.Blob, "open/") && !deleteMarker(r)
}
func deleteMarker(r request) bool { return strings.HasSuffix(r.Blob, "-delete") }
func entry(r request) bool        { return strings.HasSuffix(r.Blob, "-entry.json") }
func object(r request) bool       { return strings.HasSuffix(r.Blob, "-object.json") }
func part(r request) bool         { return r.Blob != "" && strings.Count(r.Blob, "/") == 2 }
func batch(r request) bool        { return strings.HasPrefix(r.About, "batch") }

func putting(what func(request) bool) func(request) bool {
	return func(r request) bool { return r.Method == http.MethodPut && what(r) }
}

func deleting(what func(request) bool) func(request) bool {
	return func(r request) bool { return r.Method == http.MethodDelete && what(r) }
}

// crashing makes a call on a vault of its own, which must crash in the middle of it.
func (s *stage) crashing(ctx context.Context, name string, c crash, call func(ctx context.Context, v *azblob.Vault) error, opts ...azblob.Option) error {
	return s.act(name, func() error {
		v, w, err := s.open(ctx, opts...)
		if err != nil {
			return err
		}
		crashed, err := w.dies(ctx, c, func(ctx context.Context) error { return call(ctx, v) })
		switch {
		case !crashed:
			return fmt.Errorf("the request to crash at was never sent, and the call returned %w", is(err, errCrashed))
		case !errors.Is(err, storage.ErrUnknown):
			return fmt.Errorf("a call that was broken off in the middle must say so: %w", is(err, storage.ErrUnknown))
		}
		return nil // and nobody closes a vault that has crashed
	})
}

// crashedPlan is a plan on which a call has crashed.
type crashedPlan struct {
	*workflow.Plan
	where string
	// stays says that the plan must be there, now and after Recovery.
	stays bool
	// did is what Recovery must say that it did; empty for nothing.
	did string
}

// young makes sure that a recovery leaves everything alone that has just been written, unless too much time has passed to tell.
func (s *stage) young(ctx context.Context, v *azblob.Vault, since time.Time, want int) error {
	return s.act("Recovery leaves alone what is young", func() error {
		r, err := v.Recover(ctx, azblob.RecoverOptions{})
		if time.Since(since) > shortGrace {
			return err // some of it may be old enough
		}
		if err == nil && r.Recent < want {
			err = fmt.Errorf("it takes %d plans for young, want %d at least; it reports %+v", r.Recent, want, r)
		}
		return err
	})
}

// recovered lets a new vault recover, and holds what it did and left against what it should.
func (s *stage) recovered(ctx context.Context, v *azblob.Vault, plans []crashedPlan) error {
	var done map[uuid.UUID]azblob.RecoveredPlan
	err := s.act("Recovery, again and again until nothing is young", func() (err error) {
		done, err = s.settle(ctx, v)
		return err
	})
	if err != nil {
		return err
	}
	return s.act("Each plan is as it must be", func() error {
		for _, p := range plans {
			if r := done[p.ID]; r.Did != p.did {
				return fmt.Errorf("%s: Recovery should say that it did %q, it says %+v", p.where, p.did, r)
			}
			if err := s.stands(ctx, v, p); err != nil {
				return fmt.Errorf("%s: after Recovery: %w", p.where, err)
			}
			if p.stays {
				continue
			}
			if err := s.left(ctx, p.ID, 0); err != nil {
				return fmt.Errorf("%s: after Recovery: %w", p.where, err)
			}
		}
		return nil
	})
}

// stands makes sure that a plan is there, whole, or not at all.
func (s *stage) stands(ctx context.Context, v *azblob.Vault, p crashedPlan) error {
	if p.stays {
		return s.whole(ctx, v, p.Plan)
	}
	return s.gone(ctx, v, p.ID)
}

// asSeen makes sure that a new vault sees of the plans what it must, before Recovery.
func (s *stage) asSeen(ctx context.Context, v *azblob.Vault, plans []crashedPlan) error {
	return s.act("A new vault sees whole plans or none", func() error {
		for _, p := range plans {
			if err := s.stands(ctx, v, p); err != nil {
				return fmt.Errorf("%s: %w", p.where, err)
			}
		}
		return s.listed(ctx, v)
	})
}

// clearAway checks, and deletes the plans of a step.
func (s *stage) clearAway(ctx context.Context, v *azblob.Vault, plans []crashedPlan) error {
	if err := s.act("Check", func() error { return s.sound(ctx, v) }); err != nil {
		return err
	}
	err := s.act("Delete the plans that are there", func() error {
		for _, p := range plans {
			if !p.stays {
				continue
			}
			if err := s.remove(ctx, v, p.Plan); err != nil {
				return err
			}
			if err := s.left(ctx, p.ID, 0); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, v.Close(ctx))
}

func crashCreate(ctx context.Context, s *stage) error {
	var plans []crashedPlan
	var last time.Time
	const removed = "removed what was left"
	for _, c := range []struct {
		where string
		crash crash
		stays bool
		did   string
	}{
		{"after the marker", crash{putting(marker), 1, true}, false, removed},
		{"before the entry", crash{putting(entry), 1, false}, false, removed},
		{"after the entry", crash{putting(entry), 1, true}, false, removed},
		{"among the sub-objects", crash{putting(part), 7, false}, false, removed},
		{"before the object", crash{putting(object), 1, false}, false, removed},
		{"after the object", crash{putting(object), 1, true}, true, ""},
	} {
		plan := plantest.Full()
		plan.Name = "crashed " + c.where
		err := s.crashing(ctx, "Create, crash "+c.where, c.crash, func(ctx context.Context, v *azblob.Vault) error {
			return v.Create(ctx, plan)
		})
		if err != nil {
			return err
		}
		last = time.Now()
		plans = append(plans, crashedPlan{plan, c.where, c.stays, c.did})
		if c.stays {
			s.keepInMind(plan)
		}
	}
	v, err := s.recoverer(ctx)
	if err != nil {
		return err
	}
	if err := s.young(ctx, v, last, 1); err != nil {
		return err
	}
	if err := s.asSeen(ctx, v, plans); err != nil {
		return err
	}
	again := &plans[4]
	if err := s.act("Create of the plan that crashed "+again.where+": its remains are in the way", func() error {
		return is(s.vault.Create(ctx, again.Plan), storage.ErrConflict)
	}); err != nil {
		return err
	}
	if err := s.act("Check by a vault whose grace period has not passed finds work in progress", func() error {
		r, err := s.vault.Check(ctx, azblob.CheckOptions{})
		if err == nil && (len(r.Problems) > 0 || r.InProgress != 5) {
			err = fmt.Errorf("it reports %+v, want 5 in progress and no problem", r)
		}
		return err
	}); err != nil {
		return err
	}
	if err := s.recovered(ctx, v, plans); err != nil {
		return err
	}
	if err := s.act("Create of the same plan once more: now it works", func() error {
		again.stays = true
		if err := s.create(ctx, s.vault, again.Plan); err != nil {
			return err
		}
		return s.whole(ctx, v, again.Plan)
	}); err != nil {
		return err
	}
	return s.clearAway(ctx, v, plans)
}

func crashComplete(ctx context.Context, s *stage) error {
	const rewrote, unmarked = "rewrote the object", "removed the marker"
	cases := []struct {
		where string
		crash crash
		final bool // by the entry
		did   string
	}{
		{"before the entry", crash{putting(entry), 1, false}, false, ""},
		{"after the entry", crash{putting(entry), 1, true}, true, rewrote},
		{"before the object", crash{putting(object), 1, false}, true, rewrote},
		{"after the object", crash{putting(object), 1, true}, true, unmarked},
		{"before the marker's removal", crash{deleting(marker), 1, false}, true, unmarked},
		{"after the marker's removal", crash{deleting(marker), 1, true}, true, ""},
	}
	var plans []crashedPlan
	if err := s.act(fmt.Sprintf("Create and run %d plans", len(cases)), func() error {
		for _, c := range cases {
			plan := plantest.Full()
			plan.Name = "crashed " + c.where
			if err := s.run(ctx, s.vault, plan); err != nil {
				return err
			}
			plans = append(plans, crashedPlan{plan, c.where, true, c.did})
		}
		return nil
	}); err != nil {
		return err
	}
	for i, c := range cases {
		plan := plans[i].Plan
		running := plan.State
		err := s.crashing(ctx, "Update to Completed, crash "+c.where, c.crash, func(ctx context.Context, v *azblob.Vault) error {
			return s.end(ctx, v, plan, workflow.Completed, workflow.NoFailure)
		})
		if err != nil {
			return err
		}
		if !c.final {
			plan.State = running
		}
	}
	v, err := s.recoverer(ctx)
	if err != nil {
		return err
	}
	if err := s.asSeen(ctx, v, plans); err != nil {
		return err
	}
	if err := s.recovered(ctx, v, plans); err != nil {
		return err
	}
	for _, p := range plans {
		if !p.State.Status.Final() {
			continue
		}
		// No marker is left, and the object has it all: 2 requests, and not one more for each sub-object.
		if err := s.left(ctx, p.ID, len(parts(p.Plan))+2); err != nil {
			return fmt.Errorf("%s: %w", p.where, err)
		}
		n, err := s.counted("Read the plan that crashed "+p.where, func() error { return reads(ctx, v, p.Plan) })
		if err != nil {
			return err
		}
		if n != 2 {
			return fmt.Errorf("%s: reading a settled plan took %s, want 2", p.where, count(n, "request"))
		}
	}
	return s.clearAway(ctx, v, plans)
}

func crashDelete(ctx context.Context, s *stage) error {
	const finished = "removed what was left"
	// More sub-objects than a batch may have, so that there are two.
	large := func() *workflow.Plan { return plantest.Sized(1, 9, 30) }
	cases := []struct {
		where string
		crash crash
		plan  func() *workflow.Plan
		stays bool
		did   string
	}{
		{"before the delete marker", crash{putting(deleteMarker), 1, false}, plantest.Full, true, ""},
		{"after the delete marker", crash{putting(deleteMarker), 1, true}, plantest.Full, true, "rewrote the object, so that the delete can't go on, and removed the delete marker"},
		{"before the object's removal", crash{deleting(object), 1, false}, plantest.Full, true, "rewrote the object, so that the delete can't go on, and removed the delete marker"},
		{"after the object's removal", crash{deleting(object), 1, true}, plantest.Full, false, finished},
		{"before a batch of sub-objects", crash{batch, 1, false}, plantest.Full, false, finished},
		{"between two batches of sub-objects", crash{batch, 2, false}, large, false, finished},
		{"before the entry's removal", crash{deleting(entry), 1, false}, plantest.Full, false, finished},
		{"after the entry's removal", crash{deleting(entry), 1, true}, plantest.Full, false, finished},
	}
	var plans []crashedPlan
	if err := s.act(fmt.Sprintf("Create %d plans", len(cases)), func() error {
		for _, c := range cases {
			plan := c.plan()
			plan.Name = "crashed " + c.where
			if err := s.create(ctx, s.vault, plan); err != nil {
				return err
			}
			plans = append(plans, crashedPlan{plan, c.where, c.stays, c.did})
		}
		return nil
	}); err != nil {
		return err
	}
	var last time.Time
	for i, c := range cases {
		plan := plans[i].Plan
		err := s.crashing(ctx, "Delete, crash "+c.where, c.crash, func(ctx context.Context, v *azblob.Vault) error {
			return v.Delete(ctx, plan.ID)
		})
		if err != nil {
			return err
		}
		last = time.Now()
		if !c.stays {
			s.forget(plan.ID)
		}
	}
	v, err := s.recoverer(ctx)
	if err != nil {
		return err
	}
	if err := s.young(ctx, v, last, 1); err != nil {
		return err
	}
	if err := s.asSeen(ctx, v, plans); err != nil {
		return err
	}
	again := &plans[3]
	again.did = "" // before Recovery comes to it
	if err := s.act("Delete again the plan that crashed "+again.where, func() error {
		return errors.Join(s.vault.Delete(ctx, again.ID), s.left(ctx, again.ID, 0))
	}); err != nil {
		return err
	}
	if err := s.recovered(ctx, v, plans); err != nil {
		return err
	}
	return s.clearAway(ctx, v, plans)
}

func crashRecovery(ctx context.Context, s *stage) error {
	plans := []crashedPlan{{plantest.Full(), "before the object", false, ""}}
	err := s.crashing(ctx, "Create, crash before the object", crash{putting(object), 1, false}, func(ctx context.Context, v *azblob.Vault) error {
		return v.Create(ctx, plans[0].Plan)
	})
	if err != nil {
		return err
	}
	// Each recovery comes a little further than the one before.
	for _, c := range []struct {
		where string
		crash crash
	}{
		{"before the sub-objects' removal", crash{batch, 1, false}},
		{"after the sub-objects' removal", crash{batch, 1, true}},
		{"after the entry's removal", crash{deleting(entry), 1, true}},
	} {
		err := s.crashing(ctx, "Recovery until nothing is young, crash "+c.where, c.crash, func(ctx context.Context, v *azblob.Vault) error {
			_, err := s.settle(ctx, v)
			return err
		}, azblob.WithGracePeriod(shortGrace))
		if err != nil {
			return err
		}
	}
	a, err := s.recoverer(ctx)
	if err != nil {
		return err
	}
	b, err := s.recoverer(ctx)
	if err != nil {
		return err
	}
	if err := s.act("Two recoveries at once", func() error {
		failed := make(chan error, 1)
		go func() { failed <- a.Recovery(ctx) }()
		return errors.Join(b.Recovery(ctx), <-failed)
	}); err != nil {
		return err
	}
	if err := s.recovered(ctx, b, plans); err != nil {
		return err
	}
	return errors.Join(s.clearAway(ctx, b, plans), a.Close(ctx))
}
