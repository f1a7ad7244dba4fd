package costs_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestBudgets expires and catalogues days within a budget that is used up at once. Each call does what it has begun, and
// says that more is left.
func TestBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.WithLatency(time.Second))
		v := vaulttest.OnEmulator(t, server)
		for n := range 20 {
			vaulttest.PutDay(server, vaulttest.DaysAgo(9+n))
		}
		catalogue := azblob.CatalogueOptions{Budget: time.Nanosecond}
		for i := range 3 {
			report, err := v.Catalogue(t.Context(), catalogue)
			if vaulttest.Must(t, err); len(report.Built) != 1 || report.Present != i || !report.More {
				t.Errorf("%d: %+v", i, report)
			}
		}
		catalogue.Budget = time.Hour
		if report, err := v.Catalogue(t.Context(), catalogue); err != nil || len(report.Built) != 17 || report.More {
			t.Errorf("%+v, %v", report, err)
		}
		expire := azblob.ExpireOptions{OlderThan: time.Hour, Budget: time.Nanosecond}
		for i, want := range []int{8, 8, 4, 0} {
			report, err := v.Expire(t.Context(), expire)
			if vaulttest.Must(t, err); report.Dropped() != want || report.More != (i < 2) {
				t.Errorf("%d: %+v", i, report)
			}
		}
		expire.Budget, catalogue.Budget = -1, -1
		_, expireErr := v.Expire(t.Context(), expire)
		_, catalogueErr := v.Catalogue(t.Context(), catalogue)
		if !errors.Is(expireErr, storage.ErrInvalid) || !errors.Is(catalogueErr, storage.ErrInvalid) {
			t.Errorf("negative budgets: %v, %v", expireErr, catalogueErr)
		}
	})
}
