package azblob

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// An old day may have a catalogue, may be held, and may be dropped. A change of what listings show of it first writes a
// marker, removes the catalogue and looks at the container, and only then commits. The answer to the marker shows, by the
// service's clock, whether the day is old. In a young day the other steps are left out.

// prepareDay makes the day of a plan ready for a change of the plan, whose marker was written at seen. If the day is old it
// removes the catalogue, and calls look at the same time. Look is nil for a change that neither a hold nor an expiry
// forbids.
func (s planStore) prepareDay(ctx context.Context, seen time.Time, look func() error) error {
	if !isOld(s.keys.date(), seen) {
		return nil
	}
	return s.parallel(2, func(i int) error {
		switch {
		case i == 0:
			return s.removeCatalogue(ctx, s.keys.container)
		case look != nil:
			return look()
		}
		return nil
	})
}

// removeCatalogue removes the catalogue of a day. A catalogue that stays would hide the change from readers, so a single
// response that there is none is not enough. Most days that change have none, so removeCatalogue sends both requests at
// once.
func (s *store) removeCatalogue(ctx context.Context, container string) error {
	ref := catalogueOf(container)
	for range confirmations {
		var absent [2]bool
		err := s.parallel(len(absent), func(i int) (err error) {
			if i == 0 {
				err = s.client.Delete(ctx, ref, blob.Always)
			} else {
				_, err = s.client.Head(ctx, ref)
			}
			if absent[i] = blob.Is(err, blob.Absent, blob.AbsentContainer); absent[i] {
				return nil
			}
			return blobError("remove catalogue", ref, forgetUnknown(err))
		})
		if err != nil || !absent[0] || absent[1] {
			return err
		}
	}
	return vaultError("remove catalogue", ref, "%w: the service contradicts itself: the catalogue can be read, and can't be removed because it is absent", storage.ErrUnavailable)
}

// forgetUnknown returns the error of a request without its unknown outcome. The request changes no plan, so it leaves
// no doubt about the change of one.
func forgetUnknown(err error) error {
	var e *blob.Error
	if !errors.As(err, &e) || !e.Unknown {
		return err
	}
	known := *e
	known.Unknown = false
	return &known
}

// lookForHold returns ErrHeld if a day is held.
func (s *store) lookForHold(ctx context.Context, container string) error {
	const doing = "look for hold"
	ref := blob.Ref{Container: container}
	c, err := s.client.HeadContainer(ctx, container)
	switch {
	case blob.Is(err, blob.Absent, blob.AbsentContainer): // the plan was there a moment ago
		return vaultError(doing, ref, "%w: the day was dropped, or the service contradicts itself: call again", storage.ErrUnavailable)
	case err != nil:
		return blobError(doing, ref, err)
	case c.Lease == blob.LeasedForever:
		return vaultError(doing, ref, "%w: nothing in this day is removed until somebody releases it", storage.ErrHeld)
	case c.Lease == blob.LeaseUnknown:
		return vaultError(doing, ref, "%w: the service does not tell whether the day is held: give the identity the right to read the properties of containers", storage.ErrDenied)
	}
	return nil
}

// lookForExpiry returns ErrConflict if a day is being dropped, and removes what an unfinished Expire has left. A running
// Expire has a mark and a lease, so one wrong response can't hide it. An identity that can't see leases relies on the mark.
func (s *store) lookForExpiry(ctx context.Context, container string) error {
	const doing = "look for expiry"
	ref := droppingOf(container)
	etag, leased := "", false
	err := s.parallel(2, func(i int) error {
		if i == 1 {
			c, err := s.client.HeadContainer(ctx, container)
			if blob.IsForbidden(err) || blob.Is(err, blob.Absent, blob.AbsentContainer) {
				return nil
			}
			leased = c.Lease == blob.LeasedForATime
			return blobError(doing, blob.Ref{Container: container}, err)
		}
		p, err := s.client.Head(ctx, ref)
		if blob.Is(err, blob.Absent, blob.AbsentContainer) {
			return nil
		}
		etag = p.ETag
		return blobError(doing, ref, err)
	})
	if err != nil || etag == "" && !leased {
		return err
	}
	if etag != "" && !leased {
		if over, err := s.clearDropping(ctx, container, etag); err != nil || over {
			return err
		}
	}
	return vaultError(doing, ref, "%w: the day is being dropped: call again in a minute", storage.ErrConflict)
}

// clearDropping removes the mark of an Expire that ended without dropping its day, in the version that was seen before. It
// returns false if an Expire may still be at work, which has a finite lease. The lease of a hold is infinite.
func (s *store) clearDropping(ctx context.Context, container, etag string) (over bool, err error) {
	c, err := s.client.HeadContainer(ctx, container)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return true, nil
	}
	if err != nil {
		return false, blobError("look for expiry", blob.Ref{Container: container}, err)
	}
	if c.Lease == blob.LeasedForATime || c.Lease == blob.LeaseUnknown {
		return false, nil
	}
	err = s.client.Delete(ctx, droppingOf(container), blob.IfMatch(etag))
	switch {
	case blob.Is(err, blob.Mismatch):
		return false, nil // another Expire has begun
	case blob.Is(err, blob.Absent, blob.AbsentContainer):
		return true, nil
	}
	return err == nil, blobError("remove what an expiry left", droppingOf(container), forgetUnknown(err))
}

// change is a change of a plan that has no other marker: an update of a final plan, or the restoration of an entry. Its
// marker is its own, because the update that made the plan final may be about to remove the plan's marker.
type change struct {
	planStore
	marker  blob.Ref
	started time.Time
}

// beginChange writes the marker of a change, and makes the plan's day ready for it. An error leaves at most the
// marker, which Recovery removes.
func (s planStore) beginChange(ctx context.Context) (*change, error) {
	id := uuid.New()
	c := &change{planStore: s, marker: s.keys.changeMarker(id), started: time.Now()}
	ctx, cancel := c.deadline(ctx)
	defer cancel()
	_, seen, err := s.client.PutDated(ctx, c.marker, nil, markerMetadata(id.String(), s.grace), blob.IfNew)
	if err != nil {
		return nil, lateChange(blobError("write change marker", c.marker, forgetUnknown(err)))
	}
	if err := s.prepareDay(ctx, seen, nil); err != nil {
		_ = s.deleteMarker(ctx, c.marker, "")
		return nil, lateChange(err)
	}
	return c, nil
}

// deadline returns a context for the request that commits the change. Recovery does not remove the marker before
// that has ended.
func (c *change) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	return c.within(ctx, c.started, true, errSlowChange)
}

// lateChange is the error of a change that had no effect. If the grace period ended it, and not the caller, it is
// ErrUnavailable.
func lateChange(err error) error {
	if !errors.Is(err, errSlowChange) || errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", storage.ErrUnavailable, err)
}

// end removes the marker of a change that took effect, or certainly did not. If Recovery has removed it, a catalogue may have
// been built meanwhile, so end removes the catalogue again. A nil change needs no end.
func (c *change) end(ctx context.Context) error {
	if c == nil {
		return nil
	}
	err := c.client.Delete(ctx, c.marker, blob.Always)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) {
		return c.prepareDay(ctx, time.Time{}, nil)
	}
	return blobError("remove change marker", c.marker, forgetUnknown(err))
}
