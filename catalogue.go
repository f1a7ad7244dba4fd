package azblob

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// CatalogueOptions are the options of [Vault.Catalogue].
type CatalogueOptions struct {
	// DryRun builds nothing. The report has the days that are due in Built, with neither plans nor bytes.
	DryRun bool
	// Verify also reads the catalogues that exist, and builds those anew that are damaged. It costs as much as
	// a List of all closed days.
	Verify bool
	// Progress, if it is not nil, is called after each day that was built, in the goroutine of the call.
	Progress func(CataloguedDay)
}

// CatalogueReport is what [Vault.Catalogue] found and did.
type CatalogueReport struct {
	// Closed is the number of days that may have a catalogue, and Present is how many of them had one.
	Closed, Present int
	// Built are the days whose catalogue was built, newest first.
	Built []CataloguedDay
	// Skipped are the closed days without a catalogue that were left alone, newest first.
	Skipped []SkippedDay
}

// CataloguedDay is a day whose catalogue was built.
type CataloguedDay struct {
	Day   time.Time // 0:00 UTC
	Plans int64
	Bytes int64 // of the catalogue
}

// SkippedDay is a day that was left alone.
type SkippedDay struct {
	Day    time.Time // 0:00 UTC
	Reason string    // such as "2 plans are open, such as 0198…"
}

// Catalogue builds the catalogues that are due. The catalogue of a day is one blob that holds what a listing
// tells of each plan. List and Search read it in place of a listing, which takes one request for 2,500 plans.
//
// A day is closed when the day after it has ended, by the service's clock. Catalogue builds the catalogue of
// each closed day that has none and in which nothing is open; it skips the others and reports why. Whoever
// changes a closed day removes its catalogue first, so a catalogue never contradicts a write, and the next
// Catalogue builds it anew. Call it daily. It may run on several nodes at once and beside all other calls. It
// may be stopped at any point and run again.
//
// It asks for the catalogue of each day with one request, and builds one with four and one for 2,500 plans,
// newest day first. If a day can't be built, it goes on with the others; the error joins those of all days, and
// the report is complete.
func (v *Vault) Catalogue(ctx context.Context, o CatalogueOptions) (report CatalogueReport, err error) {
	err = v.call(ctx, "Catalogue", uuid.Nil, func(ctx context.Context) error {
		_, err := v.days(ctx)
		return err
	})
	return report, err
}
