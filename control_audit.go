package azblob

import (
	"cmp"
	"context"
	"errors"
	"iter"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// The log of who changed the vault. It has a container of its own, because each heartbeat of a fleet lists the control
// container. Nothing else reads it, so a single answer that it is absent is believed.

// Record stores an entry of the audit log with one request, and replaces an entry with the same ID. The first entry of a
// vault takes two more requests, which create the container of the log. Recording an entry without a Result again takes two.
//
// Errors: [storage.ErrInvalid] before anything is sent; [storage.ErrUnknown]: the same call again settles it.
func (c control) Record(ctx context.Context, d storage.AuditEntry) error {
	return c.call(ctx, "Record", uuid.Nil, func(ctx context.Context) error {
		if err := driver.CheckAuditEntry(d); err != nil {
			return err
		}
		r, err := auditRecord(d)
		if err != nil {
			return err
		}
		conditions := []blob.Condition{blob.IfNew, blob.IfThere}
		if d.Result != "" { // its beginning was recorded
			conditions = []blob.Condition{blob.IfThere, blob.IfNew}
		}
		for _, cond := range conditions {
			_, err = c.putRecord(ctx, "write to the log", c.prefix.auditEntry(d.ID), r, cond)
			if !errors.Is(err, storage.ErrExists) && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrConflict) {
				return err
			}
		}
		return err
	})
}

// AuditEntries yields the entries of the audit log that the filters select, newest first, with one request for each 1,000.
// It stops at the limit.
//
// Errors: [storage.ErrInvalid] for a negative limit; [storage.ErrCorrupt] and [storage.ErrSchema] in the place of entries that
// can't be read.
func (c control) AuditEntries(ctx context.Context, f storage.AuditFilters) (iter.Seq[storage.Stream[storage.AuditEntry]], error) {
	if err := c.refuse(ctx, "AuditEntries", driver.CheckAuditFilters(f)); err != nil {
		return nil, err
	}
	return func(yield func(storage.Stream[storage.AuditEntry]) bool) {
		c.observer.observe(ctx, "AuditEntries", uuid.Nil, func(ctx context.Context) error { return c.yieldEntries(ctx, f, yield) })
	}, nil
}

// yieldEntries yields the entries that the filters select. It returns the error that ended the sequence, or the first error of
// an entry.
func (c control) yieldEntries(ctx context.Context, f storage.AuditFilters, yield func(storage.Stream[storage.AuditEntry]) bool) (first error) {
	failed := func(err error) bool {
		err = opError("AuditEntries", uuid.Nil, err)
		first = cmp.Or(first, err)
		return yield(storage.Stream[storage.AuditEntry]{Err: err})
	}
	end, err := c.begin()
	if err != nil {
		failed(err)
		return first
	}
	defer end()
	log := blob.Ref{Container: c.prefix.log(), Name: auditDir}
	o := blob.ListOptions{Prefix: auditDir, Metadata: true, MaxResults: 1000}
	if !f.Before.IsZero() {
		o.StartFrom = auditEntriesFrom(f.Before)
	}
	found := 0
	for page, err := range c.client.List(ctx, log.Container, o) {
		if err != nil {
			if !blob.Is(err, blob.AbsentContainer) {
				failed(blobError("list the log", log, err))
			}
			return first
		}
		for _, item := range page.Items {
			id, ok := parseAuditName(item.Name)
			if !ok {
				continue // no vault has written it
			}
			more := true
			switch d, err := c.format.auditEntryOf(id, item.Properties); {
			case err != nil && f.Match(storage.AuditEntry{ID: id}): // as to its time
				more = failed(blobError("read the log", blob.Ref{Container: log.Container, Name: item.Name}, err))
			case err == nil && f.Match(d):
				found++
				more = yield(storage.Stream[storage.AuditEntry]{Result: d})
			}
			if !more || f.Limit > 0 && found == f.Limit || !f.After.IsZero() && workflow.Time(id).Before(f.After) {
				return first
			}
		}
	}
	return first
}
