package costs_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/catalogue"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// history is a vault of past days that have catalogues. The days are simulated: the emulator has their
// catalogues, as an Encoder makes them, and neither entries nor objects.
type history struct {
	days, plans int // plans of each day but the newest
	newest      int // plans of the newest day
}

// groupOf is how many plans of a day have a group, one after the other.
const groupOf = 100

// of returns the number of plans of a day, counted from the newest.
func (h history) of(day int) int {
	if day == 0 {
		return h.newest
	}
	return h.plans
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
func (h history) catalogue(t *testing.T, midnight time.Time, day int) []byte {
	e, err := catalogue.NewEncoder(containerOf(midnight), 256<<20)
	vaulttest.Must(t, err)
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
		vaulttest.Must(t, e.Add(p))
	}
	body, err := e.Finish()
	vaulttest.Must(t, err)
	return body
}

// watched opens the vault of a server, and returns what its last operation took.
func watched(t *testing.T, server *emulator.Server, transport policy.Transporter) (*azblob.Vault, *azblob.OperationEnd) {
	last := &azblob.OperationEnd{}
	v, err := azblob.NewFromConnectionString(t.Context(), vaultName, server.ConnectionString(), nil, azblob.Options{
		ClientOptions: policy.ClientOptions{Transport: transport},
		Observer: azblob.Observer{OperationStart: func(ctx context.Context, _ azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
			return ctx, func(e azblob.OperationEnd) { *last = e }
		}},
	})
	vaulttest.Must(t, err)
	t.Cleanup(func() { vaulttest.Must(t, v.Close(context.Background())) })
	return v, last
}

// historyOf returns a small year, or with -largest that of docs/scale.md.
func historyOf() history {
	if *largest {
		return history{days: 365, plans: 5_000, newest: 1_000_000}
	}
	return history{days: 365, plans: 100, newest: 20_000}
}

// newestOf is the newest day of a history.
func newestOf(now time.Time) time.Time { return now.UTC().Truncate(24*time.Hour).AddDate(0, 0, -3) }

// TestHistory searches in a year of past days by their catalogues. Each search may take two requests a day, one for the
// containers, and twelve round trips.
func TestHistory(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	h := historyOf()
	server := emulator.New(emulator.Options{Latency: latency, NoLog: true})
	vaulttest.InBubbleOf(t, server, func(t *testing.T, server *emulator.Server) {
		time.Sleep(evening)
		newest, size := newestOf(time.Now()), 0
		for d := range h.days {
			midnight := newest.AddDate(0, 0, -d)
			body, container := h.catalogue(t, midnight, d), containerOf(midnight)
			size += len(body)
			server.PutContainer(container, map[string]string{"planvaultlayout": "1", "planvaultcatalogue": "1"})
			server.Put(container, "catalogue", body, map[string]string{"state": "built", "schema": strconv.Itoa(catalogue.Schema), "container": container})
		}
		t.Logf("%d days of %d plans and one of %d: catalogues of %.1f MB", h.days-1, h.plans, h.newest, float64(size)/1e6)
		v, took := watched(t, server, server.Transport())
		groups := storage.Filters{ByGroupIDs: []uuid.UUID{h.group(newest, 0, h.newest/2), h.group(newest.AddDate(0, 0, -h.days/2), h.days/2, h.plans/2)}}
		failed := storage.Filters{ByStatus: []workflow.Status{workflow.Failed}}
		for _, op := range []struct {
			name   string
			counts bool
			filter storage.Filters
			want   int
		}{
			{"Search by two groups", false, groups, 2 * groupOf},
			{"Search for failed plans", false, failed, (h.newest+999)/1000 + (h.days-1)*((h.plans+999)/1000)},
			{"Count of all", true, storage.Filters{}, h.newest + (h.days-1)*h.plans},
			{"Count by group", true, groups, 2 * groupOf},
			{"List(10)", false, storage.Filters{Limit: 10}, 10},
		} {
			var n int
			var err error
			if op.counts {
				n, err = v.Count(t.Context(), op.filter)
			} else {
				n = len(vaulttest.Collect(t, v, op.filter))
			}
			vaulttest.Must(t, err)
			t.Logf("%s: %d plans, %d requests, %d round trips, %.1f MB", op.name, n, took.Requests, took.RoundTrips, float64(took.BytesReceived)/1e6)
			if n != op.want || took.Requests > 1+2*h.days || took.RoundTrips > 12 {
				t.Errorf("%s: %d plans of %d, %+v", op.name, n, op.want, took)
			}
		}
	})
}

// TestBuildCost builds the catalogue of a large day, of which a request lists 2,500 plans.
func TestBuildCost(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	n := historyOf().newest
	f := fill.Filling{Plans: n, Days: 1, End: newestOf(time.Now()).Add(24*time.Hour - time.Millisecond), Ended: true}
	server := emulator.New(emulator.Options{NoLog: true})
	vaulttest.Must(t, f.FillServer(t.Context(), server, vaultName))
	c := &counter{next: server.Transport(), heap: newHeapPeak()}
	v, took := watched(t, server, c)
	report, err := v.Admin().Catalogue(t.Context(), azblob.CatalogueOptions{})
	vaulttest.Must(t, err)
	if len(report.Built) != 1 || report.Built[0].Plans != n || took.Requests > 40+n/2500 {
		t.Errorf("a day of %d plans: %+v, %+v", n, report, took)
	}
	t.Logf("a day of %d plans: %d requests, %.1f MB received; the catalogue has %.1f MB; the heap grew by %.0f MB at most", n, took.Requests,
		float64(took.BytesReceived)/1e6, float64(report.Built[0].Bytes)/1e6, float64(c.heap.above())/1e6)
}
