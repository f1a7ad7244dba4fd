package azblob

import (
	"context"
	"errors"

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

// AuditEntries returns the entries of the audit log that the filters select, newest first, with one request for each 1,000.
// It stops at the limit.
//
// Errors: [storage.ErrCorrupt] and [storage.ErrSchema] for entries that can't be read, together with the others.
func (c control) AuditEntries(ctx context.Context, f storage.AuditFilters) (found []storage.AuditEntry, err error) {
	err = c.call(ctx, "AuditEntries", uuid.Nil, func(ctx context.Context) error {
		log := blob.Ref{Container: c.prefix.log(), Name: auditDir}
		o := blob.ListOptions{Prefix: auditDir, Metadata: true, MaxResults: 1000}
		if !f.Before.IsZero() {
			o.StartFrom = auditEntriesFrom(f.Before)
		}
		var unreadable []error
		for page, err := range c.client.List(ctx, log.Container, o) {
			if blob.Is(err, blob.AbsentContainer) {
				return nil
			}
			if err != nil {
				return errors.Join(append(unreadable, blobError("list the log", log, err))...)
			}
			for _, item := range page.Items {
				id, ok := parseAuditName(item.Name)
				if !ok {
					continue // no vault has written it
				}
				d, err := c.format.auditEntryOf(id, item.Properties)
				switch {
				case err != nil && f.Match(storage.AuditEntry{ID: id}): // as to its time
					unreadable = append(unreadable, blobError("read the log", blob.Ref{Container: log.Container, Name: item.Name}, err))
				case err == nil && f.Match(d):
					found = append(found, d)
				}
				if f.Limit > 0 && len(found) == f.Limit || !f.After.IsZero() && workflow.Time(id).Before(f.After) {
					return errors.Join(unreadable...)
				}
			}
		}
		return errors.Join(unreadable...)
	})
	return found, err
}
