package catalogue

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// day is the start of the day that the tests make catalogues of.
var day = time.Date(2026, 2, 28, 0, 0, 0, 0, time.UTC)

// container is that day's.
const container = "test-2026-02-28"

// randomPlans returns plans of a day, newest first, with values of all kinds.
func randomPlans(r *rand.Rand, n, groups int) []Plan {
	id := func() (id uuid.UUID) {
		for i := range id {
			id[i] = byte(r.Uint32())
		}
		return id
	}
	some := []uuid.UUID{uuid.Nil}
	for range groups {
		some = append(some, id())
	}
	owners := []uuid.UUID{uuid.Nil, id(), id()}
	texts := []string{"", "deploy", "déployer\x00\n", strings.Repeat("long ", 1500), "0x1", "0x8DDF0A1B2C3D4E5F"}
	text := func() string {
		if r.IntN(3) == 0 {
			return fmt.Sprintf("plan %d", r.IntN(n))
		}
		return texts[r.IntN(len(texts))]
	}
	at := func(from time.Time) time.Time {
		switch r.IntN(20) {
		case 0:
			return time.Time{}
		case 1:
			return time.Date(r.IntN(9999), 1, 1, 0, 0, 0, r.IntN(1e9), time.UTC)
		}
		return from.Add(time.Duration(r.Int64N(int64(time.Hour))))
	}
	plans := make([]Plan, n)
	for i := range plans {
		p := &plans[i]
		created := day.Add(time.Duration(r.Int64N(int64(24 * time.Hour))))
		p.ID = id()
		ms := created.UnixMilli()
		for j := range 6 {
			p.ID[j] = byte(ms >> (40 - 8*j))
		}
		p.GroupID, p.Owner, p.Epoch = some[r.IntN(len(some))], owners[r.IntN(len(owners))], r.Int64N(3)
		p.Name, p.Descr, p.NameCut, p.DescrCut = text(), text(), r.IntN(50) == 0, r.IntN(50) == 0
		if r.IntN(2) == 0 {
			p.Labels = map[string]string{"env": fmt.Sprint(r.IntN(3)), "team": "план"}
		}
		if r.IntN(20) == 0 {
			p.ForkedFrom = some[r.IntN(len(some))]
		}
		if r.IntN(3) == 0 {
			p.SubmittedBy = []string{"ops", "план@example.com", text()}[r.IntN(3)]
		}
		p.SubmitTime = at(created)
		p.State.Start = at(p.SubmitTime)
		p.State.End = at(p.State.Start)
		p.State.Status = workflow.Completed
		switch r.IntN(10) {
		case 0:
			p.State.Status = workflow.Failed
		case 1:
			p.State.Status = workflow.Stopped
		}
		p.State.ETag = formatETag(r.Uint64())
		if r.IntN(20) == 0 {
			p.State.ETag = []string{"", "0x", "0x0f", "0xg", "W/1"}[r.IntN(5)]
		}
	}
	slices.SortFunc(plans, func(a, b Plan) int { return bytes.Compare(b.ID[:], a.ID[:]) })
	return plans
}

func encode(t testing.TB, plans []Plan) []byte {
	t.Helper()
	e, err := NewEncoder(container, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range slices.Backward(plans) {
		if err := e.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	body, err := e.Finish()
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// inMemory is the source of a catalogue in memory.
type inMemory []byte

func (b inMemory) Get(_ context.Context, offset, size int) ([]byte, error) {
	return b[min(offset, len(b)):min(offset+size, len(b))], nil
}

func (inMemory) Parallel(n int, do func(i int) error) error {
	var errs []error
	for i := range n {
		errs = append(errs, do(i))
	}
	return errors.Join(errs...)
}

// search reads the plans of a query, and counts them.
func search(body []byte, q Query) (plans []Plan, counted int, err error) {
	ctx, s := context.Background(), Search{Query: q, Chosen: q.chooses}
	r, err := Open(ctx, inMemory(body), container, s)
	if err != nil {
		return nil, 0, err
	}
	for p, err := range r.Plans(ctx) {
		if err != nil {
			return nil, 0, err
		}
		plans = append(plans, p)
	}
	s.Numbers = true
	if r, err = Open(ctx, inMemory(body), container, s); err != nil {
		return nil, 0, err
	}
	numbers, err := r.Count(ctx)
	for _, n := range numbers {
		counted += int(n)
	}
	return plans, counted, err
}

// chooses applies a query to a plan.
func (q Query) chooses(p Plan) bool {
	return bytes.Compare(q.From[:], p.ID[:]) <= 0 && bytes.Compare(p.ID[:], q.To[:]) < 0 &&
		(len(q.Statuses) == 0 || slices.Contains(q.Statuses, p.State.Status)) && (len(q.Groups) == 0 || slices.Contains(q.Groups, p.GroupID)) &&
		(q.EndedAfter.IsZero() && q.EndedBefore.IsZero() || !p.State.End.IsZero()) &&
		(q.EndedAfter.IsZero() || p.State.End.After(q.EndedAfter)) && (q.EndedBefore.IsZero() || p.State.End.Before(q.EndedBefore))
}

// all is the query of all plans.
var all = Query{To: uuid.Max}

// randomQuery returns a query that some of the plans answer.
func randomQuery(r *rand.Rand, plans []Plan) Query {
	q := all
	one := func() Plan { return plans[r.IntN(len(plans))] }
	if r.IntN(2) == 0 {
		q.From = one().ID
	}
	if r.IntN(2) == 0 {
		q.To = one().ID
	}
	for range r.IntN(3) {
		q.Statuses = append(q.Statuses, one().State.Status)
	}
	for range r.IntN(3) {
		if g := one().GroupID; g != uuid.Nil {
			q.Groups = append(q.Groups, g)
		}
	}
	if r.IntN(4) == 0 {
		q.EndedAfter = one().State.End
	}
	if r.IntN(4) == 0 {
		q.EndedBefore = one().State.End
	}
	return q
}

// TestPlansComeBack encodes random plans, with few and with many groups, and searches for them.
func TestPlansComeBack(t *testing.T) {
	for seed := range efforttest.Seeds(t, 4, 8, 200) {
		r := rand.New(rand.NewPCG(seed, 1))
		plans := randomPlans(r, 1+r.IntN(9000), []int{0, 3, 200, 30_000}[seed%4])
		body := encode(t, plans)
		for i := range 12 {
			q := all
			if i > 0 {
				q = randomQuery(r, plans)
			}
			want := slices.DeleteFunc(slices.Clone(plans), func(p Plan) bool { return !q.chooses(p) })
			got, counted, err := search(body, q)
			if err != nil {
				t.Fatalf("seed %d: %+v: %v", seed, q, err)
			}
			if !(len(got) == 0 && len(want) == 0) && !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %+v: %d plans, want %d", seed, q, len(got), len(want))
			}
			if counted != len(want) {
				t.Fatalf("seed %d: %+v: %d plans are counted, there are %d", seed, q, counted, len(want))
			}
		}
	}
}

// TestManyPlans encodes more plans than a block takes of bytes, whose names are too short to end a block by its size.
func TestManyPlans(t *testing.T) {
	plans := randomPlans(rand.New(rand.NewPCG(1, 7)), 100_000, 100_000)
	for i := range plans {
		plans[i].Name, plans[i].Descr = fmt.Sprint("p", i), ""
	}
	got, counted, err := search(encode(t, plans), all)
	if err != nil || counted != len(plans) || !reflect.DeepEqual(got, plans) {
		t.Errorf("%d plans, %d counted: %v", len(got), counted, err)
	}
}

// TestCatalogueNamesItsDay reads the catalogue of another day, and one of the schema that named no day.
func TestCatalogueNamesItsDay(t *testing.T) {
	body := encode(t, randomPlans(rand.New(rand.NewPCG(1, 8)), 10, 0))
	older := slices.Clone(body)
	older[len(magic)+3] = 1
	copy(older[headerSize-4:], binary.BigEndian.AppendUint32(nil, sumOf(older[:headerSize-4])))
	for what, err := range map[string]error{
		"another day": second(ReadDirectory(body, "test-2026-02-27")), "another prefix": second(ReadDirectory(body, "prod-2026-02-28")),
		"an older schema": second(ReadDirectory(older, container)),
	} {
		if damage := (*Damage)(nil); !errors.As(err, &damage) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestOlderCatalogue reads catalogues of schema 2, which has no labels, and of schema 4, which has one byte of flags.
func TestOlderCatalogue(t *testing.T) {
	plans := olderPlans()
	for _, schema := range []string{"schema2", "schema4"} {
		body, err := os.ReadFile(filepath.Join("testdata", schema))
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := search(body, all); err != nil || !reflect.DeepEqual(got, plans) {
			t.Errorf("%s: %+v, %v", schema, got, err)
		}
		for i := range plans { // what schema 4 has
			if i%2 == 0 {
				plans[i].Labels = map[string]string{"env": "prod"}
			}
			if i%4 == 0 {
				plans[i].ForkedFrom = plans[8].ID
			}
		}
	}
}

// olderPlans returns what the golden catalogue of schema 2 has.
func olderPlans() []Plan {
	at := day.Add(3 * time.Hour)
	id := func(n byte) uuid.UUID {
		return uuid.UUID{0x01, 0x9c, 0xa1, 0xfe, 0x75, n, 0x70, 8: 0x80, 15: n}
	}
	var want []Plan
	for n := byte(9); n > 0; n-- {
		p := Plan{ListResult: storage.ListResult{ID: id(n), Name: fmt.Sprintf("plan %d", n%4), SubmitTime: at, Owner: id(100), Epoch: int64(n)}}
		p.State = workflow.State{Status: workflow.Completed, Start: at.Add(time.Second), End: at.Add(time.Duration(n) * time.Minute), ETag: formatETag(uint64(n) << 40)}
		if n%3 == 0 {
			p.GroupID, p.Descr, p.DescrCut, p.State.Status, p.State.ETag = id(101), "a start", true, workflow.Failed, "W/1"
		}
		want = append(want, p)
	}
	return want
}

func second[T any](_ T, err error) error { return err }

// cut is a source that fails after some reads.
type cut struct {
	inMemory
	reads *int
}

func (c cut) Get(ctx context.Context, offset, size int) ([]byte, error) {
	if *c.reads--; *c.reads < 0 {
		return nil, storage.ErrUnavailable
	}
	return c.inMemory.Get(ctx, offset, size)
}

// TestOpenFails fails the reads of a catalogue with a few blocks behind the first read. Open says so.
func TestOpenFails(t *testing.T) {
	body := encode(t, randomPlans(rand.New(rand.NewPCG(1, 9)), 15_000, 0))
	for reads, want := range []error{storage.ErrUnavailable, storage.ErrUnavailable, nil} {
		if err := second(Open(t.Context(), cut{body, &reads}, container, Search{Query: all, Chosen: all.chooses})); !errors.Is(err, want) {
			t.Errorf("%v, want %v, of a catalogue of %d bytes", err, want, len(body))
		}
	}
}

// TestPlanWithoutEnd searches by end in a block whose plans all match but for one that has no end.
func TestPlanWithoutEnd(t *testing.T) {
	plans := randomPlans(rand.New(rand.NewPCG(1, 1)), 5, 0)
	for i := range plans {
		plans[i].State.Status, plans[i].State.End = workflow.Completed, day.Add(time.Duration(i)*time.Hour)
	}
	plans[2].State.End = time.Time{}
	for _, q := range []Query{
		{To: uuid.Max, EndedBefore: day.AddDate(0, 0, 1)},
		{To: uuid.Max, EndedAfter: day.AddDate(0, 0, -1)},
		{To: uuid.Max, EndedAfter: day.AddDate(-9999, 0, 0)},
	} {
		if got, counted, err := search(encode(t, plans), q); err != nil || len(got) != 4 || counted != 4 {
			t.Errorf("%+v: %d plans, %d counted, %v", q, len(got), counted, err)
		}
	}
}

// TestListResultIsWhole fails when a field is added to a listing that catalogues don't have.
func TestListResultIsWhole(t *testing.T) {
	var known Plan
	r := rand.New(rand.NewPCG(1, 2))
	for _, p := range randomPlans(r, 200, 3) {
		v, k := reflect.ValueOf(p.ListResult), reflect.ValueOf(&known.ListResult).Elem()
		for i := range v.NumField() {
			if !v.Field(i).IsZero() && k.Field(i).CanSet() {
				k.Field(i).Set(v.Field(i))
			}
		}
	}
	v := reflect.ValueOf(known.ListResult)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if slices.Contains([]string{"_", "WakeAt", "LastSignal", "External", "Keys", "KeepTurn", "Unique", "WaitsFor", "Deadline"}, name) {
			continue // a day with a catalogue has no open plans, and these fields are of open plans
		}
		if v.Field(i).IsZero() {
			t.Errorf("storage.ListResult.%s is not among the random values", name)
		}
		if !slices.ContainsFunc(fields, func(f field) bool { return f.name == name }) {
			t.Errorf("storage.ListResult.%s has no row among the fields of a catalogue", name)
		}
	}
	if n := reflect.TypeFor[workflow.State]().NumField(); n != 5 {
		t.Errorf("workflow.State has %d fields; a catalogue has four of the five that it had", n)
	}
}

// TestSchemaCoversItsFields fails when the fields of a catalogue change and Schema doesn't: older code would read the new
// form as its own. Who raises Schema adds a row, and a golden file of the schema before to testdata.
func TestSchemaCoversItsFields(t *testing.T) {
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	want := map[int]string{
		5: "ID GroupID Owner Epoch SubmitTime Name Descr State Labels ForkedFrom SubmittedBy",
	}
	if got := strings.Join(names, " "); got != want[Schema] {
		t.Errorf("schema %d has the fields %q, want %q; other fields are another schema", Schema, got, want[Schema])
	}
}

// TestEncoderRefuses lists what is no catalogue of a past day.
func TestEncoderRefuses(t *testing.T) {
	plans := randomPlans(rand.New(rand.NewPCG(1, 3)), 10, 0)
	e, err := NewEncoder(container, 100)
	if err != nil {
		t.Fatal(err)
	}
	open := plans[0]
	open.State.Status = workflow.Running
	if err := e.Add(open); err == nil {
		t.Error("a plan that is open was added")
	}
	if err := e.Add(plans[1]); err != nil {
		t.Fatal(err)
	}
	if err := e.Add(plans[2]); err == nil {
		t.Error("a plan was added after a newer one")
	}
	if _, err := e.Finish(); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a catalogue of more than 100 bytes: %v", err)
	}
}

// TestDamageIsFound flips each bit of a small catalogue, and cuts it at each byte.
func TestDamageIsFound(t *testing.T) {
	plans := randomPlans(rand.New(rand.NewPCG(1, 4)), 8, 3)
	body := encode(t, plans)
	q := all
	for _, p := range plans {
		if p.GroupID != uuid.Nil {
			q.Groups = append(q.Groups, p.GroupID)
		}
	}
	find := func(what string, body []byte) {
		t.Helper()
		_, _, err := search(body, q)
		if err == nil {
			_, _, err = search(body, all) // blocks without a group
		}
		if damage := (*Damage)(nil); !errors.As(err, &damage) && !errors.Is(err, ErrSchema) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range len(body) {
		find(fmt.Sprintf("cut at %d", i), body[:i])
		for bit := range 8 {
			broken := slices.Clone(body)
			broken[i] ^= 1 << bit
			find(fmt.Sprintf("byte %d, bit %d", i, bit), broken)
		}
	}
}

// FuzzDecode decodes bytes that no Encoder wrote. Their checksums are set, so that the decoder looks at them.
func FuzzDecode(f *testing.F) {
	plans := randomPlans(rand.New(rand.NewPCG(1, 5)), 30, 3)
	for n := range 3 {
		f.Add(encode(f, plans[:n*10]))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		body = slices.Clone(body)
		mend(body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		d, err := ReadDirectory(body, container)
		if err != nil {
			return
		}
		q := all
		for _, p := range d.Pages {
			q.Groups = append(q.Groups, p.first)
		}
		for _, p := range d.PagesOf(q.Groups) {
			_, _ = d.Postings(p, clip(body, p.Section), q.Groups)
		}
		most := uint64(0)
		for _, m := range d.Matches(all, nil) {
			most += 3*uint64(m.plainSize) + 64<<10
			for p, err := range d.Plans(m.Block, clip(body, m.Section)) {
				if err == nil && p.State.Status != m.Status {
					t.Errorf("a plan is %s in a block of %s plans", p.State.Status, m.Status)
				}
			}
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 10*uint64(len(body))+most+1<<20 {
			t.Errorf("%d bytes were allocated for %d", got, len(body))
		}
	})
}

// clip returns a section of a catalogue, as far as it is there.
func clip(body []byte, s Section) []byte {
	return body[min(s.Offset, len(body)):min(s.End(), len(body))]
}

// mend sets all checksums of a catalogue as far as its directory can be read.
func mend(body []byte) {
	for range 2 {
		if len(body) < headerSize {
			return
		}
		end := min(len(body), headerSize+int(binary.BigEndian.Uint32(body[12:])))
		end = max(end, headerSize) // the sum wraps where an int has 32 bits
		copy(body, appendHeader(nil, body[headerSize:end]))
		in := input{rest: body[headerSize:end]}
		d, err := ReadDirectory(body, container)
		if err != nil {
			return
		}
		sums := func(s Section) { // the checksum follows the length
			in.number()
			if b := in.bytes(4); b != nil {
				binary.BigEndian.PutUint32(b, sumOf(clip(body, s)))
			}
		}
		in.bytes(in.number())
		in.number()
		for _, p := range d.Pages {
			sums(p.Section)
			in.number()
			in.id()
		}
		in.number()
		for _, b := range d.Blocks {
			sums(b.Section)
			for range 3 {
				in.number()
			}
			in.id()
			in.id()
			in.time()
			in.time()
		}
	}
}
