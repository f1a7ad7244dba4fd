package memvault

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

var _ storage.Journal = (*Vault)(nil)

// Record stores a deed, and replaces the one with the same ID.
func (v *Vault) Record(ctx context.Context, d storage.Deed) error {
	return v.call(ctx, "Record", new(uuid.UUID), func() error {
		if err := driver.CheckDeed(d); err != nil {
			return err
		}
		v.store.deeds[d.ID] = driver.RecordedDeed(d, time.Now())
		return nil
	})
}

// Deeds returns the deeds that the filters select, newest first.
func (v *Vault) Deeds(ctx context.Context, f storage.DeedFilters) (found []storage.Deed, err error) {
	err = v.call(ctx, "Deeds", new(uuid.UUID), func() error {
		for _, id := range slices.SortedFunc(maps.Keys(v.store.deeds), driver.NewestFirst) {
			if d := v.store.deeds[id]; f.Match(d) && (f.Limit <= 0 || len(found) < f.Limit) {
				d.Plans = slices.Clone(d.Plans)
				found = append(found, d)
			}
		}
		return nil
	})
	return found, err
}
