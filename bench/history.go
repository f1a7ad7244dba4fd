package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/catalogue"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// history is a vault of closed days that have catalogues. The days are simulated: the emulator has their
// catalogues, as an Encoder makes them, and neither entries nor objects. What listings of the same plans would
// take is computed from their number.
type history struct {
	days, plans int // plans of each day but the newest
	newest      int // plans of the newest day
}

// distance is what a request takes. It is long compared with the work between requests, so the round trips are those of a
// distant account.
const distance = 100 * time.Millisecond

// groupOf is how many plans of a day have a group, one after the other.
const groupOf = 100

// of returns the number of plans of a day, counted from the newest.
func (h history) of(day int) int {
	if day == 0 {
		return h.newest
	}
	return h.plans
}

// lists returns how many requests listings of all plans take.
func (h history) lists() (n int) {
	for d := range h.days {
		n += (2*h.of(d) + 4999) / 5000
	}
	return n
}

func (h history) id(midnight time.Time, day, i int) (id uuid.UUID) {
	at := midnight.Add(24 * time.Hour / time.Duration(h.of(day)) * time.Duration(i))
	binary.BigEndian.PutUint64(id[:], uint64(at.UnixMilli())<<16|uint64(i)&0xfff)
	binary.BigEndian.PutUint64(id[8:], uint64(i+1)*0x9e3779b97f4a7c15) // as random as in a UUIDv7
	id[6], id[8] = id[6]|0x70, id[8]&0x3f|0x80
	return id
}

// group returns the group of a plan: the ID of its first plan.
func (h history) group(midnight time.Time, day, i int) uuid.UUID {
	return h.id(midnight, day, i-i%groupOf)
}

// containerOf names the container of a day.
func containerOf(midnight time.Time) string { return vaultName + "-" + midnight.Format(time.DateOnly) }

// catalogue returns the catalogue of a day. One plan in a thousand failed.
func (h history) catalogue(midnight time.Time, day int) ([]byte, error) {
	e, err := catalogue.NewEncoder(containerOf(midnight), 256<<20)
	if err != nil {
		return nil, err
	}
	for i := range h.of(day) {
		p := catalogue.Plan{ListResult: storage.ListResult{
			ID: h.id(midnight, day, i), GroupID: h.group(midnight, day, i), Name: "deploy service " + strconv.Itoa(i%500), Descr: "all regions, one after the other",
		}}
		r := uint64(i+1) * 0x9e3779b97f4a7c15
		p.SubmitTime = workflow.Time(p.ID).UTC().Add(time.Duration(r % 1e6))
		p.State.Start = p.SubmitTime.Add(time.Duration(r % 1e9))
		p.State.End = p.State.Start.Add(time.Duration(r % 1e12))
		p.State.ETag = fmt.Sprintf("0x%X", 0x8DE000000000000+uint64(p.State.End.UnixNano()/100)%1e15)
		if p.State.Status = workflow.Completed; i%1000 == 0 {
			p.State.Status = workflow.Failed
		}
		if err := e.Add(p); err != nil {
			return nil, err
		}
	}
	return e.Finish()
}

// recalled is what an operation took.
type recalled struct {
	name  string
	found int64
	azblob.OperationEnd
	lists int // what listings would take at least
}

// watched opens the vault of a server, and returns what its last operation took.
func watched(ctx context.Context, server *emulator.Server, transport policy.Transporter) (*azblob.Vault, *azblob.OperationEnd, error) {
	last := &azblob.OperationEnd{}
	v, err := azblob.NewFromConnectionString(ctx, vaultName, server.ConnectionString(), nil, azblob.WithTransport(transport),
		azblob.WithObserver(azblob.Observer{OperationStart: func(ctx context.Context, _ azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
			return ctx, func(e azblob.OperationEnd) { *last = e }
		}}))
	return v, last, err
}

// measure fills an emulator, and measures searches in it. Each may take two requests a day, one for the containers, and
// twelve round trips.
func (h history) measure(ctx context.Context, progress io.Writer) (rows []recalled, err error) {
	server := emulator.New(emulator.WithLatency(distance))
	newest := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	size, most := 0, 0
	for d := range h.days {
		midnight := newest.AddDate(0, 0, -d)
		body, err := h.catalogue(midnight, d)
		if err != nil {
			return nil, err
		}
		size, most = size+len(body), max(most, len(body))
		container := containerOf(midnight)
		server.PutContainer(container, map[string]string{"planvaultlayout": "1", "planvaultcatalogue": "1"})
		server.Put(container, "catalogue", body, map[string]string{"state": "built", "schema": strconv.Itoa(catalogue.Schema), "container": container})
	}
	fmt.Fprintf(progress, "%d days: %d of %d plans and one of %d; catalogues of %.1f MB, the largest %.1f MB\n",
		h.days, h.days-1, h.plans, h.newest, float64(size)/1e6, float64(most)/1e6)
	v, last, err := watched(ctx, server, server.Transport())
	if err != nil {
		return nil, err
	}
	defer v.Close(ctx)
	groups := []uuid.UUID{h.group(newest, 0, h.newest/2), h.group(newest.AddDate(0, 0, -h.days/2), h.days/2, h.plans/2)}
	failed := []workflow.Status{workflow.Failed}
	search := func(f storage.Filters) func() (int64, error) {
		return func() (int64, error) {
			found, err := storage.Collect(v.Search(ctx, f))
			return int64(len(found)), err
		}
	}
	count := func(f storage.Filters) func() (int64, error) {
		return func() (int64, error) { return v.Count(ctx, f) }
	}
	for _, op := range []struct {
		name string
		do   func() (int64, error)
		want int64
	}{
		{"Search by two groups", search(storage.Filters{ByGroupIDs: groups}), 2 * groupOf},
		{"Search for failed plans", search(storage.Filters{ByStatus: failed}), int64((h.newest+999)/1000 + (h.days-1)*((h.plans+999)/1000))},
		{"Count of all", count(storage.Filters{}), int64(h.newest + (h.days-1)*h.plans)},
		{"Count by group", count(storage.Filters{ByGroupIDs: groups}), 2 * groupOf},
		{"List(10)", search(storage.Filters{Limit: 10}), 10},
	} {
		n, err := op.do()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", op.name, err)
		}
		if n != op.want {
			return nil, fmt.Errorf("%s: %d plans, want %d", op.name, n, op.want)
		}
		if most := 1 + 2*h.days; last.Requests > most || last.RoundTrips > 12 {
			return nil, fmt.Errorf("over budget: %s: %d requests and %d round trips; %d and 12 are the budget", op.name, last.Requests, last.RoundTrips, most)
		}
		rows = append(rows, recalled{op.name, n, *last, h.lists()})
	}
	rows[len(rows)-1].lists = 1
	return rows, nil
}

// building is what the catalogue of a day takes.
type building struct {
	azblob.OperationEnd
	azblob.CataloguedDay
	heap int64 // bytes at the peak, above those before
}

// build stores the entries and objects of the newest day in an emulator, and builds the catalogue.
func (h history) build(ctx context.Context) (b building, err error) {
	midnight := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	f := fill.Filling{Plans: h.newest, Days: 1, End: midnight.Add(24*time.Hour - time.Millisecond), Ended: true}
	server := emulator.New(emulator.WithoutLog())
	if err := f.FillServer(ctx, server, vaultName); err != nil {
		return b, err
	}
	m := newMeter(server.Transport())
	m.heap = newHeapPeak(heapEvery)
	v, last, err := watched(ctx, server, m)
	if err != nil {
		return b, err
	}
	defer v.Close(ctx)
	report, err := v.Catalogue(ctx, azblob.CatalogueOptions{})
	if err != nil {
		return b, err
	}
	if len(report.Built) != 1 || report.Built[0].Plans != int64(h.newest) {
		return b, fmt.Errorf("a day of %d plans: %+v", h.newest, report)
	}
	b.OperationEnd, b.CataloguedDay, b.heap = *last, report.Built[0], m.heap.above()
	if most := 40 + h.newest/2500; b.Requests > most {
		return b, fmt.Errorf("over budget: a catalogue of %d plans takes %d requests; %d are the budget", h.newest, b.Requests, most)
	}
	return b, nil
}

// recall measures searches in closed days.
func recall(ctx context.Context, cfg config, stdout io.Writer) error {
	h := history{days: 365, plans: 5_000, newest: 1_000_000}
	if cfg.short {
		h = history{days: 365, plans: 100, newest: 20_000}
	}
	fmt.Fprintln(stdout, "The days are simulated: the emulator has their catalogues alone. Listings are computed: a page for 2,500 plans.")
	rows, err := h.measure(ctx, stdout)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "operation\tplans\trequests\tround trips\tMB\t$\tlistings\t$ of listings\t")
	for _, r := range rows {
		reads := price.Tally{azblob.ClassRead: r.Requests - 1, azblob.ClassList: 1}
		lists := price.Tally{azblob.ClassList: r.lists + 1}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f\t%.5f\t%d\t%.5f\t\n", r.name, r.found, r.Requests, r.RoundTrips, float64(r.BytesReceived)/1e6, reads.Dollars(), r.lists, lists.Dollars())
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b, err := h.build(ctx)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "Catalogue of a day of %d plans, which the emulator has whole: %d requests, %d round trips, %.1f MB received; the catalogue has %.1f MB; the heap grew by %.0f MB at most\n",
		b.Plans, b.Requests, b.RoundTrips, float64(b.BytesReceived)/1e6, float64(b.Bytes)/1e6, float64(b.heap)/1e6)
	return err
}
