package azblob

import (
	"cmp"
	"context"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// Count returns how many plans the filters select. It sends the requests of [Vault.Search] without a limit, and
// none for names that are too long for metadata unless it has to look for a name. If the filters select by ID
// and time of creation alone, the service sends names only. Memory does not grow with the vault.
//
// Changes made while it runs may or may not count. A plan whose metadata can't be read does not count; the error
// then names the first one. With any other error the count is 0.
func (v *Vault) Count(ctx context.Context, filters storage.Filters) (n int64, err error) {
	err = v.call(ctx, "Count", uuid.Nil, func(ctx context.Context) error {
		err := driver.CheckCount(filters)
		if err == nil {
			n, err = v.count(ctx, filters)
		}
		return err
	})
	return n, err
}

// count counts the plans that the filters choose. The error is that of the first plan that can't be read, or the
// one that ended the listing.
func (v *Vault) count(ctx context.Context, f storage.Filters) (n int64, unread error) {
	for p, err := range v.findAnywhere(ctx, f, false) {
		if err == nil {
			err = ctx.Err() // an incomplete listing must not pass for a count
		}
		if err != nil {
			return 0, err
		}
		if p.err == nil {
			n += max(1, p.stands)
		} else {
			unread = cmp.Or(unread, opError("Count", p.keys.plan, p.err))
		}
	}
	return n, unread
}
