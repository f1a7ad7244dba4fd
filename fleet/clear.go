package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// ClearOptions are the settings of [Clear].
type ClearOptions struct {
	// By says who asks, and why. By.By is required.
	By workflow.Attribution
	// Patience is how long nodes that are alive may take to leave. Default: two minutes.
	Patience time.Duration
	// Doing is called with a description of each step. It may be nil.
	Doing func(what string)
}

// Clear waits until no node works on a suspended store. Nodes that do not leave within Patience are evicted. Clear then waits
// for their longest TTL, by the store's clock, and fences each open plan of the store, so that an evicted process which
// wakes up later finds that its writes are refused, and that its node is no member. Running plans that engines of another kind
// place are fenced, too, [DefaultTTL] after the suspension: by then those engines have seen it. They keep owner and epoch.
//
// Clear runs nothing, and may be repeated at any time: the note of the suspension names what was evicted. It returns the
// number of Running plans that no node owns, which engines without a fleet began: nothing shows whether those still run.
//
// The audit log has it as clear.
//
// Errors: [storage.ErrInvalid] if the store is not suspended, if By does not say who asks, and for a negative Patience;
// [errors.ErrUnsupported] for a vault that does not offer [storage.Control]; otherwise those of the vault. A plan that can't
// be read or fenced is an error, after all others.
func Clear(ctx context.Context, vault storage.Vault, o ClearOptions) (unclaimed int, err error) {
	if o.Patience < 0 {
		return 0, &storage.Error{Op: "Clear", Err: driver.Invalid("ClearOptions.Patience", "%v is negative", o.Patience)}
	}
	s, err := storeOf("Clear", vault)
	if err != nil {
		return 0, err
	}
	c := &clearing{store: s, doing: o.Doing}
	if c.doing == nil {
		c.doing = func(string) {}
	}
	err = storage.Audit(ctx, s, storage.AuditEntry{What: "clear", By: o.By}, func(ctx context.Context) error {
		if err := c.farewell(ctx, cmp.Or(o.Patience, 2*time.Minute)); err != nil {
			return err
		}
		unclaimed, err = c.fence(ctx)
		return doing("fence the plans of evicted nodes", err)
	})
	return unclaimed, doing("clear the vault", err)
}

// clearing is a Clear that is running.
type clearing struct {
	store store
	doing func(string)
	note  storage.Note
	storage.Suspension
}

// read reads the note of the suspension.
func (c *clearing) read(ctx context.Context) (err error) {
	c.note, err = c.store.FindNote(ctx, storage.NoteSuspended)
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("%w: the store is not suspended", storage.ErrInvalid)
	}
	if err == nil {
		c.Suspension, err = storage.ReadNote[storage.Suspension](c.note)
	}
	return err
}

// farewell returns when all members have left, or were evicted and must have noticed.
func (c *clearing) farewell(ctx context.Context, patience time.Duration) error {
	empty, said := 0, "" // empty counts successive rosters without members: one listing may have missed some
	for until := time.Now().Add(patience); ; {
		r, err := c.store.Roster(ctx)
		if err != nil {
			return err
		}
		if err := c.read(ctx); err != nil {
			return err
		}
		members, alive := remaining(r)
		if waits := waitsFor(members, r.Now.Add(time.Until(until))); alive > 0 && waits != said {
			c.doing(waits)
			said = waits
		}
		if empty++; len(members) > 0 || !c.past(r) {
			empty = 0
		}
		switch {
		case empty == 2:
			return nil
		case len(members) > 0 && (alive == 0 || !time.Now().Before(until)):
			if err := c.evict(ctx, members); err != nil {
				return err
			}
			c.doing("wait until " + clockTime(r.Now.Add(c.TTL+resolution)) + ", when evicted nodes must have noticed")
		}
		if !sleep.For(ctx, clearPause) {
			return context.Cause(ctx)
		}
	}
}

// waitsFor says for which nodes a Clear waits, and until when.
func waitsFor(members []storage.Member, until time.Time) string {
	var names []string
	for _, m := range members {
		names = append(names, MemberState{Member: m}.called())
	}
	const most = 5
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("wait until %s, when they are evicted, for nodes to leave: %s", clockTime(until), strings.Join(names, ", "))
}

// clockTime returns the minute at or after a time, in UTC.
func clockTime(t time.Time) string {
	return t.Add(time.Minute - time.Nanosecond).UTC().Format("15:04Z")
}

// clearPause is the time between two looks at the members.
const clearPause = 2 * time.Second

// remaining returns the members that have not left, and how many of them are alive.
func remaining(r storage.Roster) (members []storage.Member, alive int) {
	for _, m := range r.Members {
		if m.Phase == storage.PhaseLeft {
			continue
		}
		members = append(members, m)
		if r.Now.Sub(m.Renewed) <= ttlOf(m) {
			alive++
		}
	}
	return members, alive
}

// past reports whether the longest TTL has passed since the last eviction, by the store's clock.
func (c *clearing) past(r storage.Roster) bool {
	for _, m := range r.Members {
		if slices.Contains(c.Evicted, m.ID) && r.Now.Sub(m.Renewed) <= c.TTL+resolution {
			return false
		}
	}
	return true
}

// evict evicts members, after it has noted them.
func (c *clearing) evict(ctx context.Context, members []storage.Member) error {
	for _, m := range members {
		c.TTL = max(c.TTL, ttlOf(m))
		if !slices.Contains(c.Evicted, m.ID) {
			c.Evicted = append(c.Evicted, m.ID)
		}
	}
	n, err := storage.NewNote(storage.NoteSuspended, c.Suspension, c.note.Version)
	if err != nil {
		return err
	}
	err = settle(ctx, func() error { _, err := c.store.PutNote(ctx, n); return err })
	if overtaken(err) {
		return nil // another Clear has: look again
	}
	if err != nil {
		return err
	}
	for _, m := range members {
		if err := c.store.evict(ctx, m.ID); err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
	}
	return nil
}

// fence stores the open plans again, if anybody was evicted: those of evicted nodes with a new owner and epoch, and
// those that have not begun, or sleep, unchanged. What an evicted node has read is then out of date.
func (c *clearing) fence(ctx context.Context) (unclaimed int, err error) {
	found, err := c.store.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}})
	if err != nil {
		return 0, err
	}
	var begun, waiting, outside []uuid.UUID
	var errs []error
	for f := range found {
		switch r := f.Result; {
		case f.Err != nil && planOf(f.Err) == uuid.Nil:
			return 0, f.Err
		case f.Err != nil:
			errs = append(errs, f.Err)
		case r.State.Status == workflow.NotStarted, r.Asleep():
			waiting = append(waiting, r.ID)
		case r.External != "":
			outside = append(outside, r.ID)
		case r.Owner == uuid.Nil && r.Epoch == 0:
			unclaimed++
		case slices.Contains(c.Evicted, r.Owner):
			begun = append(begun, r.ID)
		}
	}
	if len(outside) > 0 {
		errs = append(errs, c.outdate(ctx, outside))
	}
	if len(c.Evicted) == 0 || len(begun)+len(waiting) == 0 {
		return unclaimed, errors.Join(errs...)
	}
	c.doing(fmt.Sprintf("fence open plans: %d", len(begun)+len(waiting)))
	n, err := Join(ctx, c.store, Options{Name: "switch", suspended: true})
	if err != nil {
		return unclaimed, err
	}
	errs = append(errs, atMost(readAtOnce, waiting, func(id uuid.UUID) error { return c.touch(ctx, id) }))
	errs = append(errs, atMost(readAtOnce, begun, func(id uuid.UUID) error { _, err := n.Take(ctx, id); return err }))
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.o.Interval)
	defer cancel()
	return unclaimed, errors.Join(append(errs, n.Leave(leaving))...)
}

// outdate fences plans that engines of another kind place, and leaves them to these engines. Nothing shows whether one lives: a
// [Placer] sees the suspension within its Interval, or when it wakes up and meets the fence.
func (c *clearing) outdate(ctx context.Context, plans []uuid.UUID) error {
	until := c.note.Stored.Add(DefaultTTL + resolution)
	c.doing(fmt.Sprintf("wait until %s, when engines of another kind must have noticed, and fence their plans: %d", clockTime(until), len(plans)))
	for {
		r, err := c.store.Roster(ctx)
		if err != nil {
			return err
		}
		if r.Now.After(until) {
			return atMost(readAtOnce, plans, func(id uuid.UUID) error { return c.store.outdate(ctx, id) })
		}
		if !sleep.For(ctx, clearPause) {
			return context.Cause(ctx)
		}
	}
}

// outdate stores a plan that has an owner again as it is, so that all versions that the owner knows are out of date.
func (s store) outdate(ctx context.Context, id uuid.UUID) error {
	for round := 1; ; round++ {
		plan, err := s.Read(ctx, id)
		if errors.Is(err, storage.ErrNotFound) || err == nil && (plan.State.Status.Final() || plan.Owner == uuid.Nil) {
			return nil
		}
		if err == nil {
			err = s.rewrite(ctx, plan)
		}
		if !conflicted(err) || round == maxRounds {
			return err
		}
	}
}

// touch gives a plan that has not begun, or sleeps, a new version, so that a claim or a wake of the present one is refused.
func (c *clearing) touch(ctx context.Context, id uuid.UUID) error {
	for {
		plan, err := c.store.Read(ctx, id)
		if errors.Is(err, storage.ErrNotFound) || err == nil && plan.State.Status != workflow.NotStarted && !plan.Asleep() {
			return nil
		}
		if err == nil {
			err = settle(ctx, func() error { return c.store.UpdatePlan(ctx, plan) })
		}
		if !conflicted(err) {
			return err
		}
	}
}
