package azblob

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Hold holds a day: from when it returns nil until [Admin.Release], no plan of the day is deleted, and the
// day is not dropped. Plans can still be created and updated. A second Hold of a day does nothing. Any vault of
// the prefix may release the day.
//
// Hold acquires an infinite lease of the day's container, which the service asks for when a container is
// deleted. It then waits until no Delete that may have overlooked the lease is under way: at most the grace
// period and the margin, if Recovery runs. Before that, it may wait up to a minute for an [Admin.Expire] of the
// day. If ctx ends while Hold waits for a Delete, the day is held, but a Delete that began earlier may still
// take effect: call Hold again, or Release.
//
// A hold is not immutable storage. Whoever may write to the account can release it, break the lease, or remove
// blobs without the vault.
//
// by says who asks, and why. The audit log has a Hold of a day that was not held, and then Hold takes two requests more; see
// [storage.Audit].
//
// Errors: [storage.ErrInvalid] for a by that is empty, if the calendar lacks the day, or if it is not past, which it is when
// the next day has ended, by the service's clock; [storage.ErrNotFound] if there is no such day; [storage.ErrConflict] if
// somebody else than a vault holds the lease; [storage.ErrDenied] for an identity without the right to write containers;
// [storage.ErrUnknown] if the outcome is unknown: call Hold again.
func (a *Admin) Hold(ctx context.Context, day storage.Day, by workflow.Attribution) error {
	return a.changeHold(ctx, "Hold", day, by, func(ctx context.Context, h hold) error {
		if err := h.acquire(ctx); err != nil {
			return err
		}
		return h.awaitDeletes(ctx)
	})
}

// Release ends the hold of a day. It does nothing if the day is not held, which takes one request; otherwise it takes two, and
// two for the audit log, which has who asked, and why.
//
// Errors: [storage.ErrInvalid] for a by that is empty, or if the calendar lacks the day; [storage.ErrNotFound] if there is no
// such day; [storage.ErrConflict] if somebody else than a vault holds the lease; [storage.ErrDenied] for an identity without
// the right to write containers; [storage.ErrUnknown] if the outcome is unknown: call Release again.
func (a *Admin) Release(ctx context.Context, day storage.Day, by workflow.Attribution) error {
	return a.changeHold(ctx, "Release", day, by, func(ctx context.Context, h hold) error { return h.release(ctx) })
}

// changeHold makes a change of the hold of a day.
func (a *Admin) changeHold(ctx context.Context, op string, day storage.Day, by workflow.Attribution, do func(ctx context.Context, h hold) error) error {
	return a.call(ctx, op, uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckDay("day", day); err != nil {
			return err
		}
		entry := storage.AuditEntry{What: strings.ToLower(op), By: by, From: day, To: day}
		return a.audit(ctx, entry, func(ctx context.Context, begin func()) error {
			return do(ctx, hold{a.store, a.prefix.day(day.Start()), begin})
		})
	})
}

// Holds returns the days that are held, oldest first, with one request for each 5,000 days. It counts every
// infinite lease as a hold, also those that were not acquired by a vault.
//
// Errors: those of a listing of the days.
func (a *Admin) Holds(ctx context.Context) (held []storage.Day, err error) {
	err = a.call(ctx, "Holds", uuid.Nil, func(ctx context.Context) error {
		days, err := a.days(ctx)
		for _, d := range slices.Backward(days) {
			if d.lease == blob.LeasedForever {
				held = append(held, storage.DayOf(d.date))
			}
		}
		return err
	})
	return held, err
}

// hold is the hold of a day, to be acquired or released.
type hold struct {
	*store
	container string
	begin     func() // before the first change
}

// holds is the namespace of the IDs of holds.
var holds = uuid.MustParse("6f0c3f0e-5d0b-5a52-9a53-2b1d0c7d9e41")

// holdOf returns the ID of the lease that holds a container. It is the same for all vaults, so that each of them
// can release the hold.
func holdOf(container string) string { return uuid.NewSHA1(holds, []byte(container)).String() }

func (h hold) headDay(ctx context.Context) (blob.ContainerItem, error) {
	c, err := h.client.HeadContainer(ctx, h.container)
	return c, blobError("look for container", blob.Ref{Container: h.container}, err)
}

// foreignHold is the error of a container whose infinite lease is not a vault's.
func foreignHold(doing, container string) error {
	return vaultError(doing, blob.Ref{Container: container}, "%w: the container has an infinite lease that no vault acquired: whoever did must release or break it", storage.ErrConflict)
}

// How long Hold waits between two looks.
const (
	awaitExpiry  = 5 * time.Second
	awaitDelete  = time.Second // doubled after each look
	longestAwait = 30 * time.Second
)

// release releases the lease of a hold.
func (h hold) release(ctx context.Context) error {
	c, err := h.headDay(ctx)
	if err != nil || c.Lease != blob.LeasedForever && c.Lease != blob.LeaseUnknown {
		return err
	}
	h.begin()
	err = h.client.ReleaseLease(ctx, h.container, holdOf(h.container))
	if !blob.Is(err, blob.Leased) {
		return deniedLease(blobError("release", blob.Ref{Container: h.container}, err))
	}
	c, err = h.headDay(ctx)
	if err == nil && c.Lease == blob.LeasedForever {
		err = foreignHold("release", h.container)
	}
	return err // an earlier attempt may have released it
}

// acquire acquires the lease of a hold.
func (h hold) acquire(ctx context.Context) error {
	for {
		c, err := h.headDay(ctx)
		if err != nil {
			return err
		}
		if date, _ := h.prefix.parseDay(h.container); !isPast(date, c.Seen) {
			return driver.Invalid("day", "%s is not past: a day can be held when the next day has ended", storage.DayOf(date))
		}
		if c.Lease != blob.LeasedForever {
			h.begin()
		}
		err = h.client.AcquireLease(ctx, h.container, holdOf(h.container), blob.Forever)
		switch {
		case !blob.Is(err, blob.Leased):
			return deniedLease(blobError("hold", blob.Ref{Container: h.container}, err))
		case c.Lease == blob.LeasedForever:
			return foreignHold("hold", h.container)
		case !sleep.For(ctx, awaitExpiry):
			return blobError("wait for expiry", blob.Ref{Container: h.container}, context.Cause(ctx))
		}
	}
}

// awaitDeletes waits until two listings show no delete marker in a day. A Delete writes its marker before it looks for
// the lease. Each Delete that has not seen the lease therefore has a marker, and all later ones see the lease.
func (h hold) awaitDeletes(ctx context.Context) error {
	ref := blob.Ref{Container: h.container, Name: openDir}
	for wait := awaitDelete; ; wait = min(2*wait, longestAwait) {
		waiting, err := h.anyDelete(ctx, ref)
		if err != nil || waiting == "" {
			return err
		}
		if !sleep.For(ctx, wait) {
			ref.Name = waiting
			return vaultError("wait for deletes", ref, "the day is held, but a Delete that began before may still take effect: call Hold again: %w", context.Cause(ctx))
		}
	}
}

// anyDelete returns the name of a delete marker, if one of two listings shows any.
func (h hold) anyDelete(ctx context.Context, open blob.Ref) (name string, err error) {
	for _, size := range pageSizes() {
		for item, err := range h.listPages(ctx, "look for deletes", open, blob.ListOptions{MaxResults: size}) {
			if err != nil {
				return "", err
			}
			if strings.HasSuffix(item.Name, deleteTail) {
				return item.Name, nil
			}
		}
	}
	return "", nil
}

// deniedLease adds the remedy to the refusal of a lease.
func deniedLease(err error) error {
	if !blob.IsForbidden(err) {
		return err
	}
	return fmt.Errorf("%w: holds and expiry need the right to write and delete containers, which a signature of one container does not have", err)
}
