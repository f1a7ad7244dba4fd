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

// history is a vault of past days that have catalogues. The days are simulated: the emulator has their
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

// watched opens the vault of a server, and returns what its last operation took.
func watched(ctx context.Context, server *emulator.Server, transport policy.Transporter) (*azblob.Vault, *azblob.OperationEnd, error) {
	last := &azblob.OperationEnd{}
	v, err := azblob.NewFromConnectionString(ctx, vaultName, server.ConnectionString(), nil, azblob.Options{
		ClientOptions: policy.ClientOptions{Transport: transport}, Observer: azblob.Observer{OperationStart: func(ctx context.Context, _ azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
			return ctx, func(e azblob.OperationEnd) { *last = e }
		}}})
	return v, last, err
}

// recall measures searches in past days, and the building of the catalogue of the newest.
func recall(ctx context.Context, cfg config, stdout io.Writer) error {
	h := history{days: 365, plans: 5_000, newest: 1_000_000}
	if cfg.short {
		h = history{days: 365, plans: 100, newest: 20_000}
	}
	fmt.Fprintln(stdout, "The days are simulated: the emulator has their catalogues alone. Listings are computed: a page for 2,500 plans.")
	newest := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	if err := h.search(ctx, newest, stdout); err != nil {
		return err
	}
	return h.build(ctx, newest, stdout)
}

// search fills an emulator, and measures searches in it. Each may take two requests a day, one for the containers, and
// twelve round trips.
func (h history) search(ctx context.Context, newest time.Time, stdout io.Writer) error {
	server := emulator.New(emulator.WithLatency(distance))
	size, largest := 0, 0
	for d := range h.days {
		midnight := newest.AddDate(0, 0, -d)
		body, err := h.catalogue(midnight, d)
		if err != nil {
			return err
		}
		size, largest = size+len(body), max(largest, len(body))
		container := containerOf(midnight)
		server.PutContainer(container, map[string]string{"planvaultlayout": "1", "planvaultcatalogue": "1"})
		server.Put(container, "catalogue", body, map[string]string{"state": "built", "schema": strconv.Itoa(catalogue.Schema), "container": container})
	}
	fmt.Fprintf(stdout, "%d days: %d of %d plans and one of %d; catalogues of %.1f MB, the largest %.1f MB\n",
		h.days, h.days-1, h.plans, h.newest, float64(size)/1e6, float64(largest)/1e6)
	v, took, err := watched(ctx, server, server.Transport())
	if err != nil {
		return err
	}
	defer v.Close(ctx)
	w := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "operation\tplans\trequests\tround trips\tMB\t$\tlistings\t$ of listings\t")
	groups := storage.Filters{ByGroupIDs: []uuid.UUID{h.group(newest, 0, h.newest/2), h.group(newest.AddDate(0, 0, -h.days/2), h.days/2, h.plans/2)}}
	failed := storage.Filters{ByStatus: []workflow.Status{workflow.Failed}}
	for _, op := range []struct {
		name   string
		counts bool
		filter storage.Filters
		want   int
		lists  int // what listings would take at least
	}{
		{"Search by two groups", false, groups, 2 * groupOf, h.lists()},
		{"Search for failed plans", false, failed, (h.newest+999)/1000 + (h.days-1)*((h.plans+999)/1000), h.lists()},
		{"Count of all", true, storage.Filters{}, h.newest + (h.days-1)*h.plans, h.lists()},
		{"Count by group", true, groups, 2 * groupOf, h.lists()},
		{"List(10)", false, storage.Filters{Limit: 10}, 10, 1},
	} {
		var err error
		var n int64
		if op.counts {
			n, err = v.Count(ctx, op.filter)
		} else {
			var found []storage.ListResult
			found, err = storage.Collect(v.Search(ctx, op.filter))
			n = int64(len(found))
		}
		switch most := 1 + 2*h.days; {
		case err != nil:
			return fmt.Errorf("%s: %w", op.name, err)
		case n != int64(op.want):
			return fmt.Errorf("%s: %d plans, want %d", op.name, n, op.want)
		case took.Requests > most || took.RoundTrips > 12:
			return fmt.Errorf("over budget: %s: %d requests and %d round trips; %d and 12 are the budget", op.name, took.Requests, took.RoundTrips, most)
		}
		reads := price.Tally{azblob.ClassRead: took.Requests - 1, azblob.ClassList: 1}
		lists := price.Tally{azblob.ClassList: op.lists + 1}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f\t%.5f\t%d\t%.5f\t\n",
			op.name, n, took.Requests, took.RoundTrips, float64(took.BytesReceived)/1e6, reads.Dollars(), op.lists, lists.Dollars())
	}
	return w.Flush()
}

// build stores the entries and objects of the newest day in an emulator, and measures the building of its catalogue.
func (h history) build(ctx context.Context, newest time.Time, stdout io.Writer) error {
	f := fill.Filling{Plans: h.newest, Days: 1, End: newest.Add(24*time.Hour - time.Millisecond), Ended: true}
	server := emulator.New(emulator.WithoutLog())
	if err := f.FillServer(ctx, server, vaultName); err != nil {
		return err
	}
	m := newMeter(server.Transport())
	m.heap = newHeapPeak()
	v, took, err := watched(ctx, server, m)
	if err != nil {
		return err
	}
	defer v.Close(ctx)
	report, err := v.Catalogue(ctx, azblob.CatalogueOptions{})
	switch most := 40 + h.newest/2500; {
	case err != nil:
		return err
	case len(report.Built) != 1 || report.Built[0].Plans != int64(h.newest):
		return fmt.Errorf("a day of %d plans: %+v", h.newest, report)
	case took.Requests > most:
		return fmt.Errorf("over budget: a catalogue of %d plans takes %d requests; %d are the budget", h.newest, took.Requests, most)
	}
	_, err = fmt.Fprintf(stdout, "Catalogue of a day of %d plans, which the emulator has whole: %d requests, %d round trips, %.1f MB received; the catalogue has %.1f MB; the heap grew by %.0f MB at most\n",
		h.newest, took.Requests, took.RoundTrips, float64(took.BytesReceived)/1e6, float64(report.Built[0].Bytes)/1e6, float64(m.heap.above())/1e6)
	return err
}
