package azblob

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/catalogue"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/oracle"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// archive is a store with final plans of many days, of which there is only what listings look at.
type archive struct {
	t      *testing.T
	server *emulator.Server
	r      *rand.Rand
	groups []uuid.UUID
	plans  []*workflow.Plan
}

// inArchive runs a test in virtual time, ten days after the day on which its plans begin.
func inArchive(t *testing.T, seed uint64, opts []emulator.Options, test func(t *testing.T, a *archive, first time.Time)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		first := time.Now().UTC().Truncate(24 * time.Hour)
		time.Sleep(10*24*time.Hour + 5*time.Hour)
		a := &archive{t: t, server: emulator.New(merge.Fields(opts...)), r: rand.New(rand.NewPCG(seed, 1))}
		for range 20 {
			a.groups = append(a.groups, workflow.NewV7())
		}
		test(t, a, first)
	})
}

func (a *archive) open() *Vault { return a.openOver(a.server.Transport(), Observer{}) }

func (a *archive) openOver(transport policy.Transporter, observer Observer) *Vault {
	a.t.Helper()
	opts := Options{ClientOptions: policy.ClientOptions{Transport: transport}, Observer: observer}
	v, err := NewFromConnectionString(a.t.Context(), "test", a.server.ConnectionString(), nil, opts)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() { v.Close(context.Background()) })
	return v
}

// lister opens a vault that reads no catalogue.
func (a *archive) lister() *Vault {
	v := a.open()
	for c := range a.server.Containers() {
		v.uncatalogued.remember(c, time.Now())
	}
	return v
}

// text returns a text that compression doesn't make much shorter.
func (a *archive) text(n int) string {
	b := make([]byte, n/4*3)
	for i := range b {
		b[i] = byte(a.r.Uint32())
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// plan returns a random final plan that was created at a time.
func (a *archive) plan(at time.Time) *workflow.Plan {
	p := &workflow.Plan{ID: workflow.NewV7At(at), SubmitTime: at.Add(time.Duration(a.r.IntN(1e9)))}
	p.Name = []string{"", "deploy", "ünïcode", fmt.Sprint("plan ", a.r.IntN(50)), strings.Repeat("n", 9_000)}[min(a.r.IntN(80), 4)*a.r.IntN(2)]
	if a.r.IntN(3) == 0 {
		p.Descr = a.text(20)
	}
	if a.r.IntN(4) > 0 {
		p.GroupID = a.groups[a.r.IntN(len(a.groups))]
	}
	if a.r.IntN(2) == 0 {
		p.Owner, p.Epoch = a.groups[a.r.IntN(3)], 1+a.r.Int64N(3)
	}
	if a.r.IntN(2) == 0 {
		p.Labels = map[string]string{"env": []string{"", "prod", "тест"}[a.r.IntN(3)], "n": fmt.Sprint(a.r.IntN(5))}
	}
	if p.ID[15]%4 == 0 {
		p.ForkedFrom = a.groups[p.ID[14]%3]
	}
	if p.ID[15]%3 == 0 {
		p.Submitted.By = []string{"ops", "план@example.com"}[p.ID[14]%2]
	}
	p.State.Status = []workflow.Status{workflow.Completed, workflow.Completed, workflow.Completed, workflow.Failed, workflow.Stopped}[a.r.IntN(5)]
	p.State.Start = p.SubmitTime.Add(time.Duration(a.r.Int64N(int64(time.Minute))))
	if p.State.Start.Nanosecond()%10 > 0 { // not every engine sets it
		p.State.End = p.State.Start.Add(time.Duration(a.r.Int64N(int64(time.Hour))))
	}
	return p
}

// put stores a plan as listings see it.
func (a *archive) put(p *workflow.Plan) {
	a.t.Helper()
	var f format
	k := prefix("test").plan(p.ID)
	if !slices.Contains(slices.Collect(a.server.Containers()), k.container) {
		a.server.PutContainer(k.container, map[string]string{metaLayout: "1"})
	}
	for ref, docType := range map[string]string{k.entry().Name: typeEntry, k.object().Name: typeObject} {
		m, err := f.planMetadata(p, docType, uuid.NewString(), planMarks{})
		must(a.t, err)
		var body []byte
		if len(p.Name) > 8_000 {
			body, err = f.encodeEntry(p)
			must(a.t, err)
		}
		a.server.Put(k.container, ref, body, m)
	}
	a.plans = append(a.plans, p)
}

// fill stores n random plans, evenly over some days.
func (a *archive) fill(first time.Time, days, n int) {
	for i := range n {
		a.put(a.plan(first.Add(time.Duration(i) * (time.Duration(days) * 24 * time.Hour / time.Duration(n)))))
	}
	slices.SortFunc(a.plans, func(p, q *workflow.Plan) int { return driver.NewestFirst(p.ID, q.ID) })
}

func gather(t *testing.T, v *Vault, f storage.Filters) (all []storage.ListResult) {
	t.Helper()
	if driver.CheckFilters(f) != nil { // without any filter
		all, err := storage.Collect(v.List(t.Context(), f.Limit))
		must(t, err)
		return all
	}
	all, err := storage.Collect(v.Search(t.Context(), f))
	must(t, err)
	return all
}

// TestCatalogueAndListingAgree searches random plans, with each filter alone and with several, in a vault that reads
// catalogues and in one that does not: 100,000 plans with PLANVAULT_LONG.
func TestCatalogueAndListingAgree(t *testing.T) {
	selective := map[string]bool{"Limit": true, "BeforeID": true, "ByKey": true} // the pages set them, and the last is for open plans
	n := efforttest.Pick(100, 500, 5_000)
	for seed := range efforttest.Seeds(t, 1, 1, 20) {
		inArchive(t, seed, nil, func(t *testing.T, a *archive, first time.Time) {
			a.fill(first, 10, n)
			v, lister := a.open(), a.lister()
			report, err := v.Admin().Catalogue(t.Context(), CatalogueOptions{})
			must(t, err)
			if len(report.Built) != 9 || report.Past != 9 || len(report.Skipped) > 0 {
				t.Fatalf("%+v", report)
			}
			var draws []storage.Filters
			for range 2 {
				draws = slices.AppendSeq(draws, oracle.Each(a.r, a.plans))
			}
			for range efforttest.Pick(2, 6, 15) {
				draws = append(draws, oracle.Draw(a.r, a.plans, a.r.IntN(4)))
			}
			for _, f := range draws {
				f.Limit, f.BeforeID = 0, uuid.Nil // Count takes neither
				chosen := 0
				for _, p := range a.plans {
					if oracle.Selects(f, p) {
						chosen++
					}
				}
				if set := f.Fields(); len(set) == 1 && 0 < chosen && chosen < n {
					selective[set[0]] = true
				}
				want := gather(t, lister, f)
				if got := gather(t, v, f); !reflect.DeepEqual(got, want) || len(got) != chosen {
					t.Fatalf("seed %d: %+v: %d plans, %d are listed, %d should be", seed, f, len(got), len(want), chosen)
				}
				if got, err := v.Count(t.Context(), f); err != nil || got != len(want) {
					t.Fatalf("seed %d: %+v: Count: %d, want %d: %v", seed, f, got, len(want), err)
				}
				var paged []storage.ListResult
				for f.Limit = 1 + len(want)/8 + a.r.IntN(len(want)+2); ; {
					page := gather(t, v, f)
					paged = append(paged, page...)
					if len(page) < f.Limit {
						break
					}
					f.BeforeID = page[len(page)-1].ID
				}
				if !reflect.DeepEqual(paged, want) {
					t.Fatalf("seed %d: %+v: %d plans in pages, %d are listed", seed, f, len(paged), len(want))
				}
			}
		})
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[storage.Filters]()) {
		if !selective[f.Name] && !testing.Short() { // whose plans are few
			t.Errorf("%s selects all plans of the archive, or none", f.Name)
		}
	}
}

// TestDaysWithoutACatalogue lists the days for which no catalogue is built, and why.
func TestDaysWithoutACatalogue(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	inArchive(t, 1, nil, func(t *testing.T, a *archive, first time.Time) {
		a.fill(first, 8, 80)
		day := func(i int) string { return prefix("test").day(first.AddDate(0, 0, i)) }
		open := a.plan(first)
		open.State = workflow.State{Status: workflow.Running}
		a.put(open)
		marked := a.plan(first.AddDate(0, 0, 1))
		a.put(marked)
		a.server.Put(day(1), prefix("test").plan(marked.ID).deleteMarker().Name, nil, nil)
		a.server.Put(day(2), openDir+"dropping", nil, nil)
		a.server.PutContainer("test-1999-12-31", nil)
		newer := a.plan(first.AddDate(0, 0, 3))
		a.put(newer)
		b, _ := a.server.Blob(day(3), prefix("test").plan(newer.ID).entry().Name)
		b.Metadata[metaSchema] = "9"
		a.server.Put(day(3), b.Name, b.Body, b.Metadata)
		a.server.Put(day(4), catalogueName, []byte("of newer code"), map[string]string{metaState: stateBuilt, metaSchema: "9", metaContainer: day(4)})
		a.server.Put(day(5), catalogueName, []byte(statePlaceholder), map[string]string{metaState: statePlaceholder})
		remains := prefix("test").plan(workflow.NewV7At(first.AddDate(0, 0, 5)))
		a.server.Put(day(5), remains.entry().Name, nil, nil)

		v := a.open()
		dry, err := v.Admin().Catalogue(t.Context(), CatalogueOptions{DryRun: true})
		must(t, err)
		var told []storage.Progress
		report, err := v.Admin().Catalogue(t.Context(), CatalogueOptions{Progress: func(p storage.Progress) { told = append(told, p) }})
		must(t, err)
		var got []string
		for _, d := range report.Built {
			got = append(got, d.Day.Start().Format("built 01-02"))
		}
		for _, d := range report.Skipped {
			got = append(got, fmt.Sprint(d.Day.Start().Format("01-02 "), d.Detail))
		}
		want := []string{
			"built 01-08", "built 01-07", "built 01-06",
			"01-04 the metadata of plan ", "01-03 1 marker of open plans or work in progress, such as open/dropping",
			"01-02 1 marker of open plans or work in progress, such as open/" + marked.ID.String() + "-delete",
			"01-01 plan " + open.ID.String() + " is Running, and no marker leads to it", "12-31 the vault did not make its container",
		}
		if len(got) != len(want) || report.Past != 9 || report.Present != 1 || len(dry.Built) != 7 || len(dry.Skipped) != 1 {
			t.Fatalf("%q\n%+v\n%+v", got, report, dry)
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%q, want %q", got[i], want[i])
			}
		}
		if built := report.Built[0]; built.Plans != 10 || built.Bytes == 0 {
			t.Errorf("%+v", built)
		}
		if len(told) != 9 || told[0] != (storage.Progress{Done: 1, Total: 9}) || told[8] != (storage.Progress{Done: 9, Total: 9}) {
			t.Errorf("Progress: %+v", told)
		}
		again, err := v.Admin().Catalogue(t.Context(), CatalogueOptions{})
		must(t, err)
		if again.Present != 4 || len(again.Built) != 0 {
			t.Errorf("again: %+v", again)
		}
		// The plan with newer metadata is an error in each listing.
		_, err = storage.Collect(v.List(t.Context(), 0))
		if _, want := storage.Collect(a.lister().List(t.Context(), 0)); err == nil || err.Error() != want.Error() {
			t.Errorf("List: %v, want %v", err, want)
		}
	})
}

// before returns a transport that calls a function before one of its requests takes effect.
func (a *archive) before(at *emulator.Rule, do func()) policy.Transporter {
	transport := a.server.Transport()
	transport.Inject(at.Do(emulator.Before(do)))
	return transport
}

// TestDayChangesWhileCatalogueIsBuilt removes the placeholder, as every change does, before each request of a build.
func TestDayChangesWhileCatalogueIsBuilt(t *testing.T) {
	for nth := 1; nth <= 8; nth++ {
		inArchive(t, 1, nil, func(t *testing.T, a *archive, first time.Time) {
			a.fill(first, 1, 10)
			day := prefix("test").day(first)
			changed := false
			v := a.openOver(a.before(emulator.On().Nth(nth), func() { changed = a.server.Remove(day, catalogueName) }), Observer{})
			report, err := v.Admin().Catalogue(t.Context(), CatalogueOptions{})
			must(t, err)
			// The requests: list containers, look, placeholder, open/ twice, plans/ twice, catalogue.
			b, there := a.server.Blob(day, catalogueName)
			if built := there && b.Metadata[metaState] == stateBuilt; changed == built || changed != (nth > 3) || len(report.Built) == len(report.Skipped) {
				t.Errorf("changed before request %d (%t): there is a catalogue: %t, %+v", nth, changed, built, report)
			}
		})
	}
}

// TestUnusableCatalogue damages, replaces and removes a catalogue that takes several reads, before the first of
// them and between them.
func TestUnusableCatalogue(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	inArchive(t, 1, nil, func(t *testing.T, a *archive, first time.Time) {
		for i := range 450 { // 2,700 bytes each
			p := a.plan(first.Add(time.Duration(i) * time.Minute))
			p.Name, p.Descr = "deploy", a.text(3_600)
			a.put(p)
		}
		day := prefix("test").day(first)
		_, err := a.open().Admin().Catalogue(t.Context(), CatalogueOptions{})
		must(t, err)
		sound, ok := a.server.Blob(day, catalogueName)
		if !ok || len(sound.Body) <= 2*catalogue.FirstRead {
			t.Fatalf("the catalogue has %d bytes", len(sound.Body))
		}
		want := gather(t, a.lister(), storage.Filters{})
		store := func(body []byte, metadata map[string]string) func() {
			return func() { a.server.Put(day, catalogueName, body, metadata) }
		}
		damaged := func(at int) []byte {
			b := slices.Clone(sound.Body)
			b[at] ^= 1
			return b
		}
		for what, do := range map[string]func(){
			"gone":              func() { a.server.Remove(day, catalogueName) },
			"placeholder":       store([]byte(statePlaceholder), map[string]string{metaState: statePlaceholder}),
			"another":           store(sound.Body, sound.Metadata),
			"damaged header":    store(damaged(3), sound.Metadata),
			"damaged directory": store(damaged(100), sound.Metadata),
			"damaged block":     store(damaged(catalogue.FirstRead/2), sound.Metadata),
			"damaged end":       store(damaged(len(sound.Body)-10), sound.Metadata),
			"cut":               store(sound.Body[:catalogue.FirstRead+1000], sound.Metadata),
			"empty":             store(nil, sound.Metadata),
			"newer schema":      store(append([]byte("planvcat\x00\x00\x00\x7f"), sound.Body[12:]...), sound.Metadata),
		} {
			for nth := 1; nth <= 2; nth++ {
				a.server.Restore(day, sound)
				n := new(notes)
				v := a.openOver(a.before(emulator.On(emulator.GetBlob).Path(catalogueName).Nth(nth), do), n.observer())
				a.server.ResetRequests()
				got := gather(t, v, storage.Filters{})
				if !reflect.DeepEqual(got, want) {
					t.Errorf("%s before read %d: %d plans, want %d", what, nth, len(got), len(want))
				}
				damaged := nth == 1 && (strings.HasPrefix(what, "damaged") || what == "cut" || what == "newer schema") // its checksum is wrong
				if len(n.damages) > 1 || (len(n.damages) > 0) != damaged || damaged && (n.damages[0].Operation.Name != "List" || n.damages[0].Blob != day+"/catalogue") {
					t.Errorf("%s before read %d: damage is reported as %+v", what, nth, n.damages)
				}
				reads, lists := 0, 0
				for _, r := range a.server.Requests() {
					switch {
					case r.Op == emulator.ListBlobs:
						lists++
					case r.Blob == catalogueName:
						reads++
					}
				}
				if usable := what == "another" && nth == 1; reads > 3 || usable == (lists > 0) {
					t.Errorf("%s before read %d: %d reads, %d lists", what, nth, reads, lists)
				}
			}
		}
		// A search that can't tell whether a day is closed does not leave its plans out.
		a.server.Restore(day, sound)
		transport := a.server.Transport()
		transport.Inject(emulator.On(emulator.HeadBlob).Path(catalogueName).Do(emulator.Answer(503, "ServerBusy")))
		_, err = storage.Collect(a.openOver(transport, Observer{}).Search(t.Context(), storage.Filters{ByStatus: []workflow.Status{workflow.Running}}))
		if !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("a search for open plans: %v, want ErrUnavailable", err)
		}
		// Verify finds damage, and builds the catalogue anew.
		a.server.Put(day, catalogueName, damaged(len(sound.Body)-10), sound.Metadata)
		v := a.open()
		report, err := v.Admin().Catalogue(t.Context(), CatalogueOptions{Verify: true})
		must(t, err)
		again, _ := a.server.Blob(day, catalogueName)
		if len(report.Built) != 1 || !bytes.Equal(again.Body, sound.Body) {
			t.Errorf("Verify: %+v", report)
		}
		if report, err := v.Admin().Catalogue(t.Context(), CatalogueOptions{Verify: true}); err != nil || report.Present != 1 || len(report.Built) > 0 {
			t.Errorf("Verify of a sound catalogue: %+v, %v", report, err)
		}
	})
}

// TestCostOfCatalogues counts the requests and the round trips of a year of past days.
func TestCostOfCatalogues(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	const days, latency = 365, time.Second
	inArchive(t, 1, []emulator.Options{{Latency: latency}}, func(t *testing.T, a *archive, first time.Time) {
		first = first.AddDate(0, 0, -days+8)
		for d := range days {
			for i := range 4 {
				p := a.plan(first.AddDate(0, 0, d).Add(time.Duration(i) * 5 * time.Hour))
				p.Name = "short"
				a.put(p)
			}
		}
		v := a.open()
		count := func(what string, requests, trips int, do func()) {
			t.Helper()
			a.server.ResetRequests()
			began := time.Now()
			do()
			if r, n := len(a.server.Requests()), int(time.Since(began)/latency); r > requests || n > trips {
				t.Errorf("%s: %d requests, the budget is %d; %d round trips, the budget is %d", what, r, requests, n, trips)
			} else {
				t.Logf("%s: %d requests, %d round trips", what, r, n)
			}
		}
		count("the first Catalogue", 1+8*days, 3+7*days, func() {
			report, err := v.Admin().Catalogue(t.Context(), CatalogueOptions{})
			must(t, err)
			if len(report.Built) != days {
				t.Fatalf("%+v", report.Skipped)
			}
		})
		count("a Catalogue that finds nothing due", 1+days, 3, func() { _, _ = v.Admin().Catalogue(t.Context(), CatalogueOptions{}) })
		count("a search by group", 1+days, 7, func() { gather(t, v, storage.Filters{ByGroupIDs: a.groups[:1]}) })
		count("a search for failed plans", 1+days, 7, func() { gather(t, v, storage.Filters{ByStatus: []workflow.Status{workflow.Failed}}) })
		count("all", 1+days, 7, func() { gather(t, v, storage.Filters{}) })
		count("a search for open plans", 1+days, 9, func() { gather(t, v, storage.Filters{ByStatus: []workflow.Status{workflow.Running}}) })
		count("Count", 1+days, 7, func() { _, _ = v.Count(t.Context(), storage.Filters{}) })
		count("Stats", 1+days, 1+(days+listing.CataloguesAhead-1)/listing.CataloguesAhead, func() { statsOf(t, a, a.open(), StatsOptions{}) })
		count("Stats with bytes, a page of each day in turns", 1+2*days, 2+(days+sizedAtOnce-1)/sizedAtOnce+days/listing.CataloguesAhead, func() {
			statsOf(t, a, a.open(), StatsOptions{Bytes: true})
		})
		count("List(10)", 1+5, 6, func() { gather(t, v, storage.Filters{Limit: 10}) })
		for c := range a.server.Containers() {
			a.server.Remove(c, catalogueName)
		}
		// The searches of several days meet at the limit of requests in flight. In which order they do is the scheduler's
		// choice, and costs a round trip or two.
		const anyOrder = 5
		count("the first search without catalogues", 1+2*days, 7+days/5+2+anyOrder, func() { gather(t, v, storage.Filters{ByGroupIDs: a.groups[:1]}) })
		count("the second one", 1+days, 2+days/5+2+anyOrder, func() { gather(t, v, storage.Filters{ByGroupIDs: a.groups[:1]}) })
	})
}

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
		must(t, a.open().Admin().Hold(audited.Mark(t.Context()), storage.DayOf(first), workflow.Attribution{})) // a lease does not forbid the hint
		catalogue := func(what string, o CatalogueOptions, wantSets int, want map[string]string) {
			t.Helper()
			sets := 0
			a.server.ResetRequests()
			_, err := a.open().Admin().Catalogue(t.Context(), o)
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
		_, err := v.Admin().Catalogue(t.Context(), CatalogueOptions{})
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
		dropping := a.openOver(a.before(emulator.On(emulator.SetContainerMetadata).Nth(1), func() { a.server.RemoveContainer(day) }), Observer{})
		report, err := dropping.Admin().Catalogue(t.Context(), CatalogueOptions{})
		must(t, err)
		if len(report.Built) != 1 {
			t.Errorf("%+v", report)
		}
	})
}

// statsOf returns all days of a Stats, and its requests.
func statsOf(t *testing.T, a *archive, v *Vault, o StatsOptions) ([]DayStats, int) {
	t.Helper()
	before := len(a.server.Requests())
	days, err := storage.Collect(v.Admin().Stats(t.Context(), o))
	must(t, err)
	return days, len(a.server.Requests()) - before
}

// TestStats compares the numbers of each day with what is stored, with and without catalogues.
func TestStats(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	inArchive(t, 1, nil, func(t *testing.T, a *archive, first time.Time) {
		a.fill(first, 10, 300)
		open := a.plan(first)
		open.State = workflow.State{Status: workflow.Running}
		a.put(open)
		a.server.PutContainer(prefix("test").day(first.AddDate(0, 0, -3)), map[string]string{metaLayout: "1"})
		v := a.open()
		must(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(first.AddDate(0, 0, 2)), workflow.Attribution{}))
		unreadable := prefix("test").plan(a.plans[0].ID).entry()
		b, _ := a.server.Blob(unreadable.Container, unreadable.Name)
		b.Metadata[metaSchema] = "9"
		a.server.Put(unreadable.Container, b.Name, b.Body, b.Metadata)

		want := map[string]DayStats{}
		for container := range a.server.Containers() {
			date, _ := prefix("test").parseDay(container)
			d := DayStats{Day: storage.DayOf(date), Plans: map[workflow.Status]int{}, Held: date.Equal(first.AddDate(0, 0, 2))}
			for b := range a.server.Blobs(container) {
				d.Blobs++
				d.Bytes += int64(len(b.Body))
			}
			want[container] = d
		}
		for _, p := range a.plans {
			k := prefix("test").plan(p.ID)
			d := want[k.container]
			if p == a.plans[0] {
				d.Unreadable++
			} else {
				d.Plans[p.State.Status]++
			}
			want[k.container] = d
		}
		compare := func(what string, days []DayStats, bytes bool) {
			t.Helper()
			if len(days) != len(want) {
				t.Fatalf("%s: %d days, want %d", what, len(days), len(want))
			}
			for i, d := range days {
				w := want[prefix("test").day(d.Day.Start())]
				if w.Left = len(days) - 1 - i; !bytes {
					w.Blobs, w.Bytes = 0, 0
				}
				if d.Day != w.Day || d.Left != w.Left || d.Held != w.Held || !maps.Equal(d.Plans, w.Plans) || d.Unreadable != w.Unreadable || d.Blobs != w.Blobs || d.Bytes != w.Bytes {
					t.Errorf("%s: %+v, want %+v", what, d, w)
				}
			}
		}
		days, n := statsOf(t, a, v, StatsOptions{Bytes: true})
		compare("listed", days, true)
		if n != 1+2*len(want) {
			t.Errorf("listed: %d requests for %d days", n, len(want))
		}
		report, err := v.Admin().Catalogue(t.Context(), CatalogueOptions{})
		must(t, err)
		if len(report.Built) != 9 { // of ten days with plans, today has none, the first has an open plan, and the empty one has one, too
			t.Errorf("%+v", report)
		}
		days, n = statsOf(t, a, a.open(), StatsOptions{})
		compare("catalogued", days, false)
		if n != 1+len(want) {
			t.Errorf("catalogued: %d requests for %d days", n, len(want))
		}
		gets := 0
		for _, r := range a.server.Requests()[len(a.server.Requests())-n:] {
			if r.Op == emulator.GetBlob {
				gets++
			}
		}
		if gets != len(report.Built) {
			t.Errorf("%d catalogues were read, there are %d", gets, len(report.Built))
		}
		some, _ := statsOf(t, a, v, StatsOptions{From: storage.DayOf(first).Add(3), To: storage.DayOf(first).Add(4)})
		if len(some) != 2 || some[0].Day != storage.DayOf(first).Add(4) || some[0].Left != 1 || some[0].Total() == 0 {
			t.Errorf("two days: %+v", some)
		}
	})
}

// TestStatsEnds fails each request of a Stats, cancels it and breaks out of it: what was yielded is whole, and the
// last element is the error.
func TestStatsEnds(t *testing.T) {
	inArchive(t, 1, nil, func(t *testing.T, a *archive, first time.Time) {
		a.fill(first, 6, 60)
		whole, n := statsOf(t, a, a.open(), StatsOptions{Bytes: true})
		same := func(got []DayStats) bool {
			return slices.EqualFunc(got, whole[:len(got)], func(a, b DayStats) bool { return a.Total() == b.Total() && a.Bytes == b.Bytes })
		}
		for nth := 1; nth <= n; nth++ {
			server := a.server.Clone()
			server.Inject(emulator.On().Nth(nth).Do(emulator.Answer(403, "AuthorizationFailure")))
			v := (&archive{t: t, server: server}).open()
			got, err := storage.Collect(v.Admin().Stats(t.Context(), StatsOptions{Bytes: true}))
			if !errors.Is(err, storage.ErrDenied) || !same(got) {
				t.Errorf("request %d: %d days, %v", nth, len(got), err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		days, err := a.open().Admin().Stats(ctx, StatsOptions{})
		must(t, err)
		var last error
		seen := 0
		for d := range days {
			if last = d.Err; last == nil {
				seen++
			}
			cancel()
		}
		if !errors.Is(last, context.Canceled) || seen != 1 {
			t.Errorf("canceled after %d days: %v", seen, last)
		}
		for range days {
			break
		}
		synctest.Wait()
		if _, err := a.open().Admin().Stats(t.Context(), StatsOptions{From: storage.DayOf(first), To: storage.DayOf(first).Add(-1)}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("no days: %v", err)
		}
	})
}

// TestProgressOfCheckAndRepair follows both over some days.
func TestProgressOfCheckAndRepair(t *testing.T) {
	observed(t, slowServer, func(t *testing.T, v *Vault, s *emulator.Server, _ *notes) {
		const days = 4
		for i := range days {
			plan := plantest.Small()
			plan.ID = workflow.NewV7At(time.Now().AddDate(0, 0, i-days))
			must(t, v.Create(t.Context(), plan))
		}
		var told []storage.Progress
		_, err := v.Admin().Check(t.Context(), CheckOptions{Progress: func(p storage.Progress) { told = append(told, p) }})
		if must(t, err); fmt.Sprint(told) != "[{1 4} {2 4} {3 4} {4 4}]" {
			t.Errorf("Check: %v", told)
		}
		for _, thorough := range []bool{false, true} {
			told = nil
			_, err := v.Admin().Repair(audited.Mark(t.Context()), RepairOptions{Thorough: thorough, Progress: func(p storage.Progress) { told = append(told, p) }})
			if must(t, err); fmt.Sprint(told) != "[{1 0} {2 0} {3 0} {4 0}]" {
				t.Errorf("thorough %t: %+v", thorough, told)
			}
		}
	})
}

// TestIsBuilt: a catalogue of the oldest schema that is known is read. One of an older schema is a placeholder.
func TestIsBuilt(t *testing.T) {
	for schema, want := range map[string]bool{"1": false, "2": true, "3": true, "": false} {
		if got := isBuilt(blob.Properties{Metadata: map[string]string{metaSchema: schema, metaState: stateBuilt}}); got != want {
			t.Errorf("schema %q: %t", schema, got)
		}
	}
}
