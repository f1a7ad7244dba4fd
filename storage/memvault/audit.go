package memvault

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// Record stores an audit entry, and replaces the one with the same ID.
func (c control) Record(ctx context.Context, d storage.AuditEntry) error {
	return c.call(ctx, "Record", new(uuid.UUID), func() error {
		if err := driver.CheckAuditEntry(d); err != nil {
			return err
		}
		c.store.audit[d.ID] = driver.RecordedAuditEntry(d, time.Now())
		return nil
	})
}

// AuditEntries yields the audit entries that the filters select, newest first.
func (c control) AuditEntries(ctx context.Context, f storage.AuditFilters) (iter.Seq[storage.Stream[storage.AuditEntry]], error) {
	check := func() error { return driver.CheckAuditFilters(f) }
	return records(ctx, c, "AuditEntries", check, func() []storage.AuditEntry { return c.store.entries(f) })
}

// entries returns the audit entries that the filters select, newest first.
func (s *Store) entries(f storage.AuditFilters) (found []storage.AuditEntry) {
	for _, id := range slices.SortedFunc(maps.Keys(s.audit), driver.NewestFirst) {
		if d := s.audit[id]; f.Match(d) && (f.Limit == 0 || len(found) < f.Limit) {
			d.Plans = slices.Clone(d.Plans)
			found = append(found, d)
		}
	}
	return found
}
