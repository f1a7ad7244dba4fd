package azblob

import (
	"maps"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
)

// hintsOf returns the metadata of a day's container, as a new vault sees it.
func (a *archive) hintsOf(container string) map[string]string {
	a.t.Helper()
	days, err := a.open().days(a.t.Context())
	must(a.t, err)
	for _, d := range days {
		if d.container == container {
			return d.metadata
		}
	}
	return nil
}

// TestHints counts the requests that set a hint, and those that listings send with the hint and without it.
func TestHints(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	inArchive(t, 1, nil, func(t *testing.T, a *archive, first time.Time) {
		a.fill(first, 1, 20)
		day := prefix("test").day(first)
		plain := map[string]string{metaLayout: "1", "owner": "somebody"}
		hinted := map[string]string{metaLayout: "1", "owner": "somebody", metaCatalogue: "1"}
		a.server.PutContainer(day, plain)
		must(t, a.open().Hold(t.Context(), first)) // a lease does not forbid the hint
		catalogue := func(what string, o CatalogueOptions, wantSets int, want map[string]string) {
			t.Helper()
			sets := 0
			a.server.ResetRequests()
			_, err := a.open().Catalogue(t.Context(), o)
			must(t, err)
			for _, r := range a.server.Requests() {
				if r.Op == emulator.SetContainerMetadata {
					sets++
				}
			}
			if got := a.hintsOf(day); sets != wantSets || !maps.Equal(got, want) {
				t.Errorf("%s: %d requests, want %d; the metadata is %v, want %v", what, sets, wantSets, got, want)
			}
		}
		reads := func(what string, want int) {
			t.Helper()
			a.server.ResetRequests()
			if got := gather(t, a.open(), storage.Filters{}); len(got) != 20 {
				t.Errorf("%s: %d plans", what, len(got))
			}
			n := 0
			for _, r := range a.server.Requests() {
				if r.Blob == catalogueName {
					n++
				}
			}
			if n != want {
				t.Errorf("%s: %d reads of the catalogue, want %d", what, n, want)
			}
		}
		catalogue("a dry run", CatalogueOptions{DryRun: true}, 0, plain)
		reads("no catalogue", 0)
		refused := emulator.On(emulator.SetContainerMetadata).Do(emulator.Answer(403, "AuthorizationPermissionMismatch"))
		a.server.Inject(refused)
		catalogue("without the right to set a hint", CatalogueOptions{}, 1, plain)
		reads("no hint", 0)
		a.server.ClearFaults()
		catalogue("a dry run beside a catalogue", CatalogueOptions{DryRun: true}, 0, plain)
		catalogue("a catalogue without a hint", CatalogueOptions{}, 1, hinted)
		reads("a hint", 1)
		catalogue("a catalogue with a hint", CatalogueOptions{}, 0, hinted)
		a.server.Remove(day, catalogueName)
		reads("a hint at nothing", 1)
		catalogue("a hint at nothing", CatalogueOptions{}, 0, hinted)
	})
}

// TestHintsOfDaysThatGo drops a day before its hint is set, and makes it anew.
func TestHintsOfDaysThatGo(t *testing.T) {
	inArchive(t, 1, nil, func(t *testing.T, a *archive, first time.Time) {
		a.fill(first, 1, 20)
		day := prefix("test").day(first)
		v := a.open()
		_, err := v.Catalogue(t.Context(), CatalogueOptions{})
		must(t, err)
		a.server.RemoveContainer(day)
		a.plans = nil
		a.fill(first, 1, 10)
		if got := gather(t, v, storage.Filters{}); len(got) != 10 {
			t.Errorf("%d plans of the new day", len(got))
		}
		if got := a.hintsOf(day); len(got) != 1 {
			t.Errorf("a new day has the metadata %v", got)
		}
		dropping := a.open(a.before(emulator.On(emulator.SetContainerMetadata).Nth(1), func() { a.server.RemoveContainer(day) }))
		report, err := dropping.Catalogue(t.Context(), CatalogueOptions{})
		must(t, err)
		if len(report.Built) != 1 {
			t.Errorf("%+v", report)
		}
	})
}
