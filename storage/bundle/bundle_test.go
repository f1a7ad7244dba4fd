package bundle_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/bundle"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// by is who imports.
var by = workflow.Attribution{By: "operator"}

// filled returns a vault with n small plans of all statuses.
func filled(t testing.TB, n int) *memvault.Vault {
	t.Helper()
	return of(t, n, func(int) *workflow.Plan { return plantest.Small() })
}

// of returns a vault with n plans of all statuses.
func of(t testing.TB, n int, shape func(i int) *workflow.Plan) *memvault.Vault {
	t.Helper()
	v := memvault.New(nil, memvault.Options{})
	for i := range n {
		p := shape(i)
		p.ID = workflow.NewV7At(time.Date(2026, 11, 1, 0, 0, i, 0, time.UTC))
		driver.Complete(p)
		if i%5 > 0 {
			plantest.Finish(p)
			p.State.Status = workflow.Status(i % 5)
		}
		if err := v.Restore(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	return v
}

// exportOf returns the bundle of a vault.
func exportOf(t testing.TB, from storage.Vault, o bundle.ExportOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	report, err := bundle.Export(t.Context(), from, &b, o)
	if err != nil {
		t.Fatal(err)
	}
	if report.Bytes != int64(b.Len()) || report.Unreadable != 0 || !report.Whole {
		t.Errorf("%+v for %d bytes", report, b.Len())
	}
	return b.Bytes()
}

// equal checks that a vault has exactly the plans of another one, or some of them if partly is set, and returns how many.
func equal(t *testing.T, want, got storage.Reader, partly bool) (n int) {
	t.Helper()
	list := func(v storage.Reader) (ids []uuid.UUID) {
		for _, r := range newest(t, v) {
			ids = append(ids, r.ID)
		}
		return ids
	}
	all, there := list(want), list(got)
	if !partly && !slices.Equal(all, there) {
		t.Errorf("there are %d plans, want %d", len(there), len(all))
	}
	for _, id := range there {
		a, errA := want.Read(t.Context(), id)
		b, errB := got.Read(t.Context(), id)
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if d := plantest.Diff(a, b); d != "" {
			t.Errorf("plan %s: %s", id, d)
		}
	}
	return len(there)
}

// stream hides that a reader can seek.
type stream struct{ io.Reader }

func TestPlansOfAnyStatusComeBackEqual(t *testing.T) {
	from, to := of(t, 12, func(i int) *workflow.Plan {
		if i < 5 {
			return plantest.Full()
		}
		return plantest.Random(uint64(i))
	}), memvault.New(nil, memvault.Options{})
	var last storage.Progress
	text := exportOf(t, from, bundle.ExportOptions{Source: "here", Progress: func(p storage.Progress) {
		if p.Done != last.Done+1 {
			t.Errorf("%+v after %+v", p, last)
		}
		last = p
	}})
	found, err := bundle.Verify(t.Context(), bytes.NewReader(text), bundle.ImportOptions{})
	if err != nil || found.Plans != 12 || found.Manifest.Source != "here" || found.Manifest.Created.IsZero() || last.Done != 12 {
		t.Errorf("Verify: %+v, %v", found, err)
	}
	for _, want := range []bundle.ImportReport{{Manifest: found.Manifest, Verified: true, Restored: 12}, {Manifest: found.Manifest, Verified: true, Present: 12}} {
		if report, err := bundle.Import(t.Context(), to, bytes.NewReader(text), bundle.ImportOptions{By: by}); err != nil || report != want {
			t.Errorf("Import: %+v, %v, want %+v", report, err, want)
		}
		equal(t, from, to, false)
	}
	// The same with one plan at a time, from a stream, into a vault with a registry.
	typed := memvault.New(plantest.Register(), memvault.Options{})
	for _, want := range []bundle.ImportReport{{Manifest: found.Manifest, Restored: 12}, {Manifest: found.Manifest, Present: 12}} {
		o := bundle.ImportOptions{By: by, Concurrency: 1}
		if report, err := bundle.Import(t.Context(), typed, stream{bytes.NewReader(text)}, o); err != nil || report != want {
			t.Errorf("Import into a vault with a registry: %+v, %v, want %+v", report, err, want)
		}
	}
}

// TestBundleIsTheSame exports some plans twice, with other limits: the records of the plans are the same.
func TestBundleIsTheSame(t *testing.T) {
	from := filled(t, 20)
	plans := func(o bundle.ExportOptions) []byte {
		text := exportOf(t, from, o)
		at := recordsOf(text)
		if len(at) != 4+3 {
			t.Fatalf("there are %d records", len(at)-1)
		}
		return text[at[1]:at[5]]
	}
	failed := storage.Filters{ByStatus: []workflow.Status{workflow.Failed}}
	if !bytes.Equal(plans(bundle.ExportOptions{Filters: failed}), plans(bundle.ExportOptions{Filters: failed, Concurrency: 1})) {
		t.Error("the bundles differ")
	}
}

// TestDamage changes each byte of a bundle, and cuts it at each byte. A file is refused whole; of a stream, the
// plans before the damage are restored and valid.
func TestDamage(t *testing.T) {
	from := filled(t, 3)
	whole := exportOf(t, from, bundle.ExportOptions{})
	step := efforttest.Pick(97, 7, 1)
	try := func(what string, text []byte, at int) {
		t.Helper()
		to := memvault.New(nil, memvault.Options{})
		report, err := bundle.Import(t.Context(), to, bytes.NewReader(text), bundle.ImportOptions{By: by})
		refused(t, what, err, at)
		if n := equal(t, from, to, true); n != 0 || report.Restored != 0 {
			t.Errorf("%s: %d plans of a damaged file were restored", what, n)
		}
		report, err = bundle.Import(t.Context(), to, stream{bytes.NewReader(text)}, bundle.ImportOptions{By: by, Concurrency: 1})
		refused(t, what, err, at)
		if n := equal(t, from, to, true); n != report.Restored {
			t.Errorf("%s: %d plans are there, and %d were restored", what, n, report.Restored)
		}
	}
	header := recordsOf(whole)[1] // of the first plan: try each byte of it
	for i := 0; i < len(whole); i++ {
		if i%step > 0 && (i < header || i >= header+61) {
			continue
		}
		damaged := slices.Clone(whole)
		damaged[i] ^= 1 << (i % 8)
		try(fmt.Sprintf("byte %d of %d changed", i, len(whole)), damaged, i)
		try(fmt.Sprintf("cut at %d of %d", i, len(whole)), whole[:i], i)
	}
	try("more at the end", append(slices.Clone(whole), 0), len(whole))
}

// refused checks that an error is about damage at or before a byte.
func refused(t *testing.T, what string, err error, at int) {
	t.Helper()
	damage, ok := errors.AsType[*bundle.DamageError](err)
	if !errors.Is(err, storage.ErrCorrupt) || !ok || damage.Byte > int64(at)+1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v", what, err)
	}
}

// TestRecordsThatAreWhole puts whole records where they don't belong, and reads manifests that name no format, and a newer one.
func TestRecordsThatAreWhole(t *testing.T) {
	text := exportOf(t, filled(t, 3), bundle.ExportOptions{})
	at := recordsOf(text)
	part := func(i int) []byte { return text[at[i]:at[i+1]] }
	n := len(at) - 2 // the end
	for name, parts := range map[string][][]byte{
		"a plan is missing":       {text[:at[1]], part(2), part(3), part(n)},
		"a plan comes twice":      {text[:at[2]], part(1), part(2), part(3), part(n)},
		"two plans are exchanged": {text[:at[1]], part(2), part(1), part(3), part(n)},
		"one plan for another":    {text[:at[1]], part(1), part(1), part(3), part(n)},
		"no manifest":             {text[:at[0]], part(1), part(2), part(3), part(n)},
		"two manifests":           {text[:at[1]], part(0), part(1), part(2), part(3), part(n)},
		"no format":               {written(0, nil, 0)},
		"a newer format":          {written(99, nil, 0)},
	} {
		want := storage.ErrCorrupt
		if name == "a newer format" {
			want = storage.ErrSchema
		}
		_, err := bundle.Verify(t.Context(), bytes.NewReader(slices.Concat(parts...)), bundle.ImportOptions{})
		damage, ok := errors.AsType[*bundle.DamageError](err)
		if !ok || !errors.Is(damage.Err, want) || errors.Is(err, storage.ErrCorrupt) != (want == storage.ErrCorrupt) || damage.Byte == 0 {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// recordsOf returns where the records of a bundle begin, and its length.
func recordsOf(text []byte) (at []int) {
	for next := len(magic); next < len(text); next += 61 + int(binary.BigEndian.Uint32(text[next+21:])) {
		at = append(at, next)
	}
	return append(at, len(text))
}

const magic = "planvault bundle\n"

// written returns a bundle as the package describes it. It has one plan with any content, whose header says how long
// that is, or no plan if the content is nil.
func written(format int, content []byte, size int) []byte {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	defer encoder.Close()
	text, sums := []byte(magic), sha256.New()
	put := func(kind byte, plan uuid.UUID, content []byte, size int) {
		content = encoder.EncodeAll(content, nil)
		header := append([]byte{kind}, plan[:]...)
		header = binary.BigEndian.AppendUint32(header, uint32(size))
		header = binary.BigEndian.AppendUint32(header, uint32(len(content)))
		header = binary.BigEndian.AppendUint32(header, crc32.Checksum(header, crc32.MakeTable(crc32.Castagnoli)))
		sum := sha256.Sum256(slices.Concat(header, content))
		sums.Write(sum[:])
		text = slices.Concat(text, header, sum[:], content)
	}
	manifest := fmt.Appendf(nil, `{"format":%d,"schema":1}`, format)
	put('M', uuid.Nil, manifest, len(manifest))
	plans := 0
	if content != nil {
		var plan uuid.UUID
		copy(plan[:], content)
		put('P', plan, content, size)
		plans = 1
	}
	end := fmt.Appendf(nil, `{"plans":%d,"sha256":%q}`, plans, base64.StdEncoding.EncodeToString(sums.Sum(nil)))
	put('E', uuid.Nil, end, len(end))
	return text
}

func withContent(content []byte) []byte { return written(1, content, len(content)) }

// TestBombs reads short bundles that would take much memory.
func TestBombs(t *testing.T) {
	efforttest.NotShort(t, "the race detector takes memory of its own")
	const start = `{"id":"7b226964-` // these bytes are the ID of the record
	objects := func(n int) []byte {
		id := start + uuid.UUID([]byte(start)).String()[9:]
		return withContent([]byte(id + `","preChecks":{"actions":[` + strings.Repeat(`{},`, n) + `{}]}}`))
	}
	for _, test := range []struct {
		name string
		text []byte
		most uint64
	}{
		{"a content that is longer than its header says", written(1, make([]byte, 64<<20), 10), 16 << 20},
		{"many objects", objects(8 << 20 / 3), 200 << 20},
		{"many problems", objects(90_000), 100 << 20},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := bundle.Verify(t.Context(), bytes.NewReader(test.text), bundle.ImportOptions{})
		runtime.ReadMemStats(&after)
		refused(t, test.name, err, len(test.text))
		if took := after.TotalAlloc - before.TotalAlloc; took > test.most || len(err.Error()) > 1000 {
			t.Errorf("%s: %d bytes took %d MiB of memory, and the error %d bytes", test.name, len(test.text), took>>20, len(err.Error()))
		}
	}
}

// TestPlanThatDiffers imports beside a plan of the same ID with other content: it stays, the others are restored.
func TestPlanThatDiffers(t *testing.T) {
	from, to := filled(t, 5), memvault.New(nil, memvault.Options{})
	other := plantest.Small()
	other.ID = newest(t, from)[2].ID
	if err := to.Create(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	err := imports(t, "beside another plan", to, exportOf(t, from, bundle.ExportOptions{}), bundle.ImportOptions{By: by}, [3]int{4, 0, 1}, storage.ErrExists)
	if !strings.Contains(err.Error(), other.ID.String()) {
		t.Errorf("the error does not name the plan: %v", err)
	}
	if got, err := to.Read(t.Context(), other.ID); err != nil || plantest.Diff(other, got) != "" {
		t.Errorf("the plan that was there has changed: %v", err)
	}
}

// imports imports a bundle, and checks how many plans were restored, were present and failed, and the error.
func imports(t *testing.T, what string, to storage.Vault, text []byte, o bundle.ImportOptions, want [3]int, wantErr error) error {
	t.Helper()
	r, err := bundle.Import(t.Context(), to, bytes.NewReader(text), o)
	if got := [3]int{r.Restored, r.Present, r.Failed}; got != want || !errors.Is(err, wantErr) {
		t.Errorf("%s: %+v, %v, want %d restored, present and failed, and %v", what, r, err, want, wantErr)
	}
	return err
}

// newest returns what a vault lists.
func newest(t *testing.T, v storage.Reader) []storage.ListResult {
	t.Helper()
	found, err := storage.Collect(v.List(t.Context(), 0))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// failing is a target whose nth Restore, and all later ones, fail.
func failing(to storage.Vault, n int, err error) storage.Vault {
	var calls atomic.Int64
	return hooked.Wrap(to, hooked.On("Restore", func(c *hooked.Call) error {
		if calls.Add(1) >= int64(n) {
			return &storage.Error{Op: "Restore", Plan: c.ID, Err: err}
		}
		return c.Do()
	}))
}

// TestImportBesideDeletes imports plans that are there, and deleted before they can be compared.
func TestImportBesideDeletes(t *testing.T) {
	text := exportOf(t, filled(t, 10), bundle.ExportOptions{})
	imports(t, "deleted meanwhile", failing(memvault.New(nil, memvault.Options{}), 3, storage.ErrExists), text, bundle.ImportOptions{By: by}, [3]int{2, 0, 8}, storage.ErrNotFound)
}

func TestInterruptedImport(t *testing.T) {
	from, to := filled(t, 30), memvault.New(nil, memvault.Options{})
	text := exportOf(t, from, bundle.ExportOptions{})
	for n := 1; n <= 30; n += 7 {
		report, err := bundle.Import(t.Context(), failing(to, n, storage.ErrUnavailable), bytes.NewReader(text), bundle.ImportOptions{By: by, Concurrency: 4})
		if !errors.Is(err, storage.ErrUnavailable) || report.Failed != 0 {
			t.Errorf("Import that fails from plan %d on: %+v, %v", n, report, err)
		}
		equal(t, from, to, true)
	}
	report, err := bundle.Import(t.Context(), to, bytes.NewReader(text), bundle.ImportOptions{By: by})
	if err != nil || report.Restored+report.Present != 30 || report.Present == 0 {
		t.Errorf("%+v, %v", report, err)
	}
	equal(t, from, to, false)
	// Errors of single plans don't stop an import.
	imports(t, "conflicts", failing(memvault.New(nil, memvault.Options{}), 11, storage.ErrConflict), text, bundle.ImportOptions{By: by}, [3]int{10, 0, 20}, storage.ErrConflict)
}

func TestImportWhoseContextEnds(t *testing.T) {
	text := exportOf(t, filled(t, 5), bundle.ExportOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	report, err := bundle.Import(ctx, memvault.New(nil, memvault.Options{}), bytes.NewReader(text), bundle.ImportOptions{By: by})
	if !errors.Is(err, context.Canceled) || report.Restored != 0 {
		t.Errorf("%+v, %v", report, err)
	}
	var out bytes.Buffer
	if _, err := bundle.Export(ctx, filled(t, 5), &out, bundle.ExportOptions{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Export: %v", err)
	}
	if _, err := bundle.Verify(t.Context(), &out, bundle.ImportOptions{}); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("an export that was stopped: %v", err)
	}
}

func TestExportOfPlansThatCantBeRead(t *testing.T) {
	from := filled(t, 5)
	id := newest(t, from)[3].ID
	for _, tt := range []struct {
		err   error
		times int  // that the plan can't be read; -1 for always
		whole bool // whether the bundle is
		plans int
		fails bool
	}{
		{storage.ErrCorrupt, -1, true, 4, true},
		{storage.ErrSchema, -1, true, 4, true},
		{storage.ErrNotFound, -1, true, 4, false}, // deleted meanwhile
		{storage.ErrNotFound, 1, true, 5, false},  // a single false answer
		{storage.ErrUnavailable, -1, false, 3, true},
	} {
		var out bytes.Buffer
		times := tt.times
		unreadable := hooked.Wrap(from, hooked.On("Read", func(c *hooked.Call) error {
			if c.ID != id || times == 0 {
				return c.Do()
			}
			times--
			return &storage.Error{Op: "Read", Plan: id, Err: tt.err}
		}))
		report, err := bundle.Export(t.Context(), unreadable, &out, bundle.ExportOptions{Concurrency: 1})
		if (err != nil) != tt.fails || tt.fails && (!errors.Is(err, tt.err) || !strings.Contains(err.Error(), id.String())) || report.Plans != tt.plans || report.Whole != tt.whole {
			t.Errorf("%v: %+v, %v", tt.err, report, err)
		}
		verified, err := bundle.Verify(t.Context(), &out, bundle.ImportOptions{})
		if (err == nil) != tt.whole || tt.whole && (verified.Plans != tt.plans || verified.Unreadable != report.Unreadable) {
			t.Errorf("%v: Verify: %+v, %v", tt.err, verified, err)
		}
	}
}

// full is a writer without room after n bytes.
type full struct{ n int }

var errFull = errors.New("no space left")

func (f *full) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestExportWithoutRoom(t *testing.T) {
	from := filled(t, 5)
	for n := range 40 {
		if _, err := bundle.Export(t.Context(), from, &full{n * 50}, bundle.ExportOptions{}); !errors.Is(err, errFull) {
			t.Errorf("room for %d bytes: %v", n*50, err)
		}
	}
	if _, err := bundle.Export(t.Context(), from, io.Discard, bundle.ExportOptions{Concurrency: -1}); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("a negative concurrency: %v", err)
	}
}

// endless is a vault of n plans that are made when they are read, and forgotten when they are restored.
type endless struct {
	storage.Vault
	n int
}

func (e endless) List(context.Context, int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	return func(yield func(storage.Stream[storage.ListResult]) bool) {
		for i := e.n - 1; i >= 0; i-- {
			if !yield(storage.Stream[storage.ListResult]{Result: storage.ListResult{ID: workflow.NewV7At(time.UnixMilli(1_700_000_000_000 + int64(i)))}}) {
				return
			}
		}
	}, nil
}

func (endless) Read(_ context.Context, id uuid.UUID) (*workflow.Plan, error) {
	p := plantest.Sized(1, 2, 8)
	p.ID = id
	driver.Complete(p)
	plantest.Finish(p)
	return p, nil
}

func (endless) Restore(context.Context, *workflow.Plan) error { return nil }

// TestImportBudget imports a bundle within several budgets. Each import skips what is there, however long that takes,
// and then restores some.
func TestImportBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := filled(t, 20), memvault.New(nil, memvault.Options{})
		text := exportOf(t, from, bundle.ExportOptions{})
		slow := hooked.Wrap(to, hooked.On("Restore", func(c *hooked.Call) error { time.Sleep(time.Second); return c.Do() }))
		for done := 0; done < 20; {
			results := map[bundle.ImportResult]int{}
			report, err := bundle.Import(t.Context(), slow, bytes.NewReader(text), bundle.ImportOptions{
				By: by, Concurrency: 4, Budget: time.Second, Each: func(_ uuid.UUID, r bundle.ImportResult) { results[r]++ },
			})
			if err != nil || report.Present != done || report.Restored == 0 || report.Restored > 12 || report.More != (done+report.Restored < 20) ||
				results[bundle.ImportRestored] != report.Restored || results[bundle.ImportPresent] != report.Present {
				t.Fatalf("%+v, %v, progress %v; %d plans were there", report, err, results, done)
			}
			done += report.Restored
		}
		equal(t, from, to, false)
		if _, err := bundle.Import(t.Context(), to, bytes.NewReader(text), bundle.ImportOptions{By: by, Budget: -1}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a negative budget: %v", err)
		}
	})
}

// TestDryRunOfImport tells what an import would do, and does nothing.
func TestDryRunOfImport(t *testing.T) {
	from, to := filled(t, 20), memvault.New(nil, memvault.Options{})
	text := exportOf(t, from, bundle.ExportOptions{})
	for i, r := range newest(t, from)[:7] {
		plan, err := from.Read(t.Context(), r.ID)
		if i == 0 {
			plan.Name += " of somebody else"
		}
		if err = errors.Join(err, to.Restore(t.Context(), plan)); err != nil {
			t.Fatal(err)
		}
	}
	results := map[bundle.ImportResult]int{}
	count := func(_ uuid.UUID, r bundle.ImportResult) { results[r]++ }
	imports(t, "a dry run", to, text, bundle.ImportOptions{DryRun: true, Each: count}, [3]int{13, 6, 1}, storage.ErrExists)
	if results[bundle.ImportRestored] != 13 || results[bundle.ImportPresent] != 6 || results[bundle.ImportFailed] != 1 {
		t.Errorf("progress %v", results)
	}
	if n, _ := to.Count(t.Context(), storage.Filters{}); n != 7 {
		t.Errorf("%d plans after a dry run", n)
	}
}

// TestImportIsLogged imports with and without somebody who asks. Of an import that restores nothing, the log has nothing.
func TestImportIsLogged(t *testing.T) {
	to := memvault.New(nil, memvault.Options{})
	whole := exportOf(t, filled(t, 3), bundle.ExportOptions{Source: "here"})
	empty := exportOf(t, memvault.New(nil, memvault.Options{}), bundle.ExportOptions{})
	for _, c := range []struct {
		text []byte
		o    bundle.ImportOptions
		err  error
		want string
	}{
		{whole, bundle.ImportOptions{}, storage.ErrInvalid, ""},
		{whole[:100], bundle.ImportOptions{By: by}, storage.ErrCorrupt, ""},
		{whole, bundle.ImportOptions{DryRun: true}, nil, ""},
		{empty, bundle.ImportOptions{By: by}, nil, ""},
		{whole, bundle.ImportOptions{By: by}, nil, "import by operator: 3 plans of here: done"},
	} {
		_, err := bundle.Import(t.Context(), to, bytes.NewReader(c.text), c.o)
		entries, logErr := storage.Collect(to.Control().AuditEntries(t.Context(), storage.AuditFilters{}))
		got := ""
		for _, e := range entries {
			got += fmt.Sprintf("%s by %s: %s: %s", e.What, e.By.By, e.Detail, e.Result)
		}
		if !errors.Is(err, c.err) || logErr != nil || got != c.want {
			t.Errorf("%+v: %v; the log has %q, want %q; %v", c.o, err, got, c.want, logErr)
		}
	}
	unable := struct{ storage.Vault }{to}
	if _, err := bundle.Import(t.Context(), unable, bytes.NewReader(whole), bundle.ImportOptions{By: by}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a vault that can't restore: %v", err)
	}
}

// TestMemory exports many plans through a pipe into an import, and measures what the heap keeps.
func TestMemory(t *testing.T) {
	efforttest.NotShort(t, "the race detector takes memory of its own")
	n := efforttest.Pick(0, 500, 100_000)
	const most = 3 << 20 // the plans in flight, however they are scheduled; all plans take twice as much
	vault := endless{n: n}
	in, out := io.Pipe()
	go func() {
		_, err := bundle.Export(t.Context(), vault, out, bundle.ExportOptions{})
		out.CloseWithError(err)
	}()
	var first, peak uint64
	report, err := bundle.Import(t.Context(), vault, in, bundle.ImportOptions{By: by, Progress: func(p storage.Progress) {
		if p.Done%100 == 0 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			first = cmp.Or(first, m.HeapAlloc)
			peak = max(peak, m.HeapAlloc)
		}
	}})
	if err != nil || report.Restored != n {
		t.Fatalf("%+v, %v", report, err)
	}
	t.Logf("%d plans, %.1f MB of heap at most, %.1f MB after the first 100", n, float64(peak)/1e6, float64(first)/1e6)
	if peak > first+most {
		t.Errorf("the heap grew by %d bytes, at most %d are allowed", peak-first, most)
	}
}

// FuzzVerify reads any bytes as a bundle, and whole records with any content.
func FuzzVerify(f *testing.F) {
	f.Add(exportOf(f, of(f, 2, func(int) *workflow.Plan { return &workflow.Plan{Name: "p"} }), bundle.ExportOptions{}))
	f.Add([]byte(magic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, text := range [][]byte{text, withContent(text)} {
			to := memvault.New(nil, memvault.Options{})
			_, err := bundle.Verify(t.Context(), bytes.NewReader(text), bundle.ImportOptions{})
			report, importErr := bundle.Import(t.Context(), to, stream{bytes.NewReader(text)}, bundle.ImportOptions{By: by})
			if (err == nil) != (importErr == nil) && report.Failed == 0 {
				t.Errorf("Verify: %v, Import: %v", err, importErr)
			}
			if damage, ok := errors.AsType[*bundle.DamageError](err); err != nil && (!ok || damage.Byte > int64(len(text))) {
				t.Errorf("%v", err)
			}
		}
	})
}
