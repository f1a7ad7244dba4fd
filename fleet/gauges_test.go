package fleet_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// diary notes what the nodes of a fleet report.
type diary struct {
	mu     sync.Mutex
	events []fleet.GaugesEvent
	others []error // failed heartbeats and looks at the members
}

func (d *diary) observer() fleet.Observer {
	return fleet.Observer{
		Gauges: func(_ context.Context, e fleet.GaugesEvent) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.events = append(d.events, e)
		},
		Heartbeat: func(_ context.Context, e fleet.HeartbeatEvent) { d.failed(e.Err) },
		Failure:   func(_ context.Context, e fleet.FailureEvent) { d.failed(fmt.Errorf("%s: %w", e.Doing, e.Err)) },
	}
}

func (d *diary) failed(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		d.others = append(d.others, err)
	}
}

// take returns what was reported since the last call.
func (d *diary) take() (events []fleet.GaugesEvent, others []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer func() { d.events, d.others = nil, nil }()
	return d.events, d.others
}

// TestGaugesOfAFleet: one node of a fleet looks, the oldest of those that are alive and stay. Whatever becomes of it,
// the next one looks within two intervals, and a node that looks no more says so once.
func TestGaugesOfAFleet(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		var diary diary
		names := map[uuid.UUID]string{}
		nodes, stores := map[string]*fleet.Node{}, map[string]*processtest.Process{}
		for _, name := range []string{"dies", "freezes", "drains", "stays"} {
			stores[name], nodes[name] = start(t, store, fleet.Options{Name: name, Observer: diary.observer()})
			names[nodes[name].ID()] = name
			time.Sleep(time.Second)
		}
		silent, quiet := open(store), fleet.Options{Observer: diary.observer(), NoGauges: true}
		quiet.Observer.Gauges = func(context.Context, fleet.GaugesEvent) { t.Error("a node without gauges looked") }
		join(t, silent, quiet)
		stops := map[string]int{}
		last, gap := time.Now(), time.Duration(0)
		reports := func(d time.Duration) (nodes []string) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				events, _ := diary.take()
				for _, e := range events {
					if e.Stopped {
						stops[names[e.Node]]++
						continue
					}
					nodes = append(nodes, names[e.Node])
					gap, last = max(gap, time.Since(last)), time.Now()
				}
			}
			return nodes
		}
		phase := func(event string, do func(), want string) {
			t.Helper()
			do()
			reports(2 * time.Minute) // meanwhile, two may look
			if got := reports(3 * time.Minute); !slices.Equal(got, []string{want, want, want}) {
				t.Errorf("in three minutes after %s, %v reported, want %s", event, got, want)
			}
		}
		stores["stays"].Before("Search", func() { t.Error("a node looked before its turn") })
		phase("the start", func() {}, "dies")
		phase("a death", stores["dies"].Kill, "freezes")
		phase("a freeze", stores["freezes"].Freeze, "drains")
		phase("the thaw", stores["freezes"].Thaw, "drains")
		stores["stays"].On(nil)
		phase("a drain", nodes["drains"].Drain, "stays")
		leave(t, nodes["drains"])
		leave(t, nodes["stays"])
		if reports(time.Second); !maps.Equal(stops, map[string]int{"dies": 1, "freezes": 1, "drains": 1, "stays": 1}) {
			t.Errorf("the nodes said %v times that they look no more", stops)
		}
		if gap > time.Minute+40*time.Second {
			t.Errorf("for %v there was no report", gap)
		}
	})
}

// TestGaugesInAnOutage: looks that fail or take forever hinder no heartbeat. Figures that are too old are dropped, and
// there are new ones as soon as a look succeeds.
func TestGaugesInAnOutage(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		var d diary
		p := open(store)
		n := join(t, p, fleet.Options{Observer: d.observer()})
		for range 40 {
			claimed(t, p, n, 1)
		}
		create(t, p, 1)
		time.Sleep(20 * time.Minute)
		events, others := d.take()
		if len(events) != 20 || len(others) > 0 {
			t.Errorf("%d reports, and %v", len(events), others)
		}
		if g := events[19].Gauges; g.Open != 41 || g.Stuck[fleet.ReasonNoProgress] != 40 || g.Stuck[fleet.ReasonNotPickedUp] != 1 || g.Unread != 0 || g.Alive != 1 {
			t.Errorf("the gauges are %+v", g)
		}
		if g := events[15].Gauges; g.Stuck[fleet.ReasonNoProgress] != 40 || g.Unread != 0 {
			t.Errorf("the first look at 40 plans reads %+v", g)
		}

		p.OnOp("Read", func(ctx context.Context, _ processtest.Call, _ func() error) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		time.Sleep(10 * time.Minute)
		if events, others := d.take(); len(events) < 9 || events[8].Gauges.Stuck[fleet.ReasonNoProgress] != 40 || len(others) > 0 {
			t.Errorf("while reads take forever: %+v, and %v", events, others)
		}

		p.Fail("Search", processtest.Unavailable)
		time.Sleep(10*time.Minute + 30*time.Second)
		events, others = d.take()
		if n := len(events); n == 0 || n > 2 || !events[n-1].Stopped { // one of the looks before them ends meanwhile
			t.Errorf("while searches fail: %+v", events)
		}
		looks := 0
		for _, err := range others {
			if strings.HasPrefix(err.Error(), "look at the open plans: ") {
				looks++
			} else {
				t.Error(err)
			}
		}
		if looks < 10 || looks > 11 {
			t.Errorf("%d looks failed", looks)
		}
		p.On(nil)
		time.Sleep(time.Minute)
		if events, _ := d.take(); len(events) != 1 || events[0].Stopped {
			t.Errorf("after the outage: %+v", events)
		}
	})
}

// TestGaugesOfOtherPlugins: a plan that this node lacks the plugins for may run elsewhere, so it is not called stuck.
func TestGaugesOfOtherPlugins(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		var d diary
		p := open(store)
		n := join(t, p, fleet.Options{Observer: d.observer()})
		damage(p, claimed(t, p, n, 1).ID, "Read", fmt.Errorf("%w: %w", fleet.ErrUnsuited, storage.ErrSchema))
		time.Sleep(20 * time.Minute)
		events, _ := d.take()
		if g := events[19].Gauges; g.Open != 1 || g.Unread != 1 || len(g.Stuck) > 0 {
			t.Errorf("the gauges are %+v", g)
		}
	})
}

// TestGaugesOfCopies: the lag of a copy follows its note, which is read when it changes. Other notes, and notes that
// say nothing, are no copies.
func TestGaugesOfCopies(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		var d diary
		p := open(store)
		join(t, p, fleet.Options{Observer: d.observer()})
		reads := 0
		p.Before("FindNote", func() { reads++ })
		put := func(name string, version storage.Version, text string) storage.Version {
			t.Helper()
			v, err := p.PutNote(t.Context(), storage.Note{Name: name, Version: version, Text: []byte(text)})
			must(t, err)
			return v
		}
		caughtUp := time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)
		put("policy", "", `{"to":"x"}`)
		put("copy-strange", "", `{"to":7,"caughtUp":"yesterday"}`)
		put("copy-ahead", "", `{"caughtUp":"2999-01-01T00:00:00Z"}`)
		version := put("copy-west", "", `{"to":"https://west","caughtUp":"`+caughtUp+`","more":[]}`)
		lags := func(want string) {
			t.Helper()
			time.Sleep(5 * time.Minute)
			events, _ := d.take()
			var got []string
			for _, c := range events[len(events)-1].Gauges.Copies {
				got = append(got, fmt.Sprint(c.Name, " ", c.To, " ", c.Lag.Truncate(time.Minute)))
			}
			if text := strings.Join(got, ", "); text != want {
				t.Errorf("the copies are %s, want %s", text, want)
			}
		}
		lags("ahead  0s, west https://west 1h4m0s")
		if reads != 3 {
			t.Errorf("%d reads of three notes of copies", reads)
		}
		put("copy-west", version, `{"caughtUp":"`+time.Now().UTC().Format(time.RFC3339)+`"}`)
		lags("ahead  0s, west  4m0s")
		if reads != 4 {
			t.Errorf("%d reads after one change", reads)
		}
	})
}

// TestCostOfGauges measures what the gauges add to 20 minutes of a node that owns 20 plans: 10 that make progress, and 10
// that are stuck. docs/operating.md has the price.
func TestCostOfGauges(t *testing.T) {
	efforttest.NotShort(t, "TestGaugesOfAFleet looks under the race detector")
	cost := func(o fleet.Options) (requests map[emulator.Op]int) {
		synctest.Test(t, func(t *testing.T) {
			server := emulator.New(emulator.Options{})
			v, _ := azure(t, server)
			n := join(t, v, o)
			var works []*workflow.Plan
			for i := range 20 {
				plan := claimed(t, v, n, 10)
				if i%2 == 0 {
					works = append(works, plan)
				}
			}
			time.Sleep(30*time.Minute + 5*time.Second) // between two heartbeats
			server.ResetRequests()
			for range 4 {
				for _, plan := range works {
					a := actions(plan)[0]
					a.Attempts = append(a.Attempts, workflow.Attempt{Start: time.Now().UTC(), End: time.Now().UTC()})
					must(t, moves(t.Context(), v, a, workflow.Running))
				}
				time.Sleep(5 * time.Minute)
			}
			requests = map[emulator.Op]int{}
			for _, r := range server.Requests() {
				requests[r.Op]++
			}
		})
		return requests
	}
	without, with := cost(fleet.Options{}), cost(fleet.Options{Observer: fleet.Observer{Gauges: func(context.Context, fleet.GaugesEvent) {}}})
	// Each of 20 looks lists the roster, the days and the markers of a day, and asks for each plan. It reads the stuck
	// plans, N = 12, with 2 + N requests each. The others are read four times an hour.
	budget := map[emulator.Op]int{
		emulator.ListBlobs: 20 * 2, emulator.ListContainers: 20, emulator.HeadBlob: 20 * 20, emulator.GetBlob: (2 + 12) * (20*10 + 2*10),
	}
	for op := range with {
		if more := with[op] - without[op]; more > budget[op] {
			t.Errorf("the gauges take %d requests %s, more than %d", more, op, budget[op])
		}
	}
}
