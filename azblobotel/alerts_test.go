package azblobotel_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/azblobotel"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// scrape records all that was measured, as a scrape of an instance shows it.
func (r *rig) scrape(to recording, instance string, at time.Time) {
	for _, s := range r.series() {
		note := func(suffix string, value float64, le string) {
			name := strings.TrimSuffix(prometheus(s.name, instrument{kind: s.kind, unit: s.unit})[0], "_bucket") + suffix
			key := strings.Join([]string{instance, name, le, s.attrs.Encoded(attribute.DefaultEncoder())}, " ")
			to.note(key, at, value, func() labels {
				l := labels{"instance": instance, "__name__": name}
				for _, a := range s.attrs.ToSlice() {
					l[label(string(a.Key))] = a.Value.String()
				}
				if le != "" {
					l["le"] = le
				}
				return l
			})
		}
		if s.kind != "histogram" {
			note("", s.value, "")
			continue
		}
		count := uint64(0)
		for i, n := range s.buckets {
			count += n
			note("_bucket", float64(count), fmt.Sprint(append(slices.Clone(s.bounds), math.Inf(1))[i]))
		}
		note("_count", s.value, "")
	}
}

// alert is a rule of docs/alerts.yml.
type alert struct {
	name, expr string
	wait       time.Duration
}

func readAlerts(t testing.TB) (alerts []alert) {
	text, err := os.ReadFile("../docs/alerts.yml")
	must(t, err)
	for _, m := range regexp.MustCompile(`- alert: (\w+)\n +expr: \|\n((?: {10}.*\n)+)(?: +for: (\w+)\n)?`).FindAllStringSubmatch(string(text), -1) {
		wait, _ := time.ParseDuration(m[3])
		alerts = append(alerts, alert{m[1], m[2], wait})
	}
	if n := strings.Count(string(text), "- alert:"); n == 0 || n != len(alerts) {
		t.Fatalf("%d of %d alerts were understood", len(alerts), n)
	}
	return alerts
}

// monitored is a vault with engines that are scraped, and the alerts.
type monitored struct {
	*testing.T
	server    *emulator.Server
	author    *azblob.Vault
	recording recording
	alerts    []alert
	began     time.Time
	pending   map[string]time.Time     // since when, by the name of the alert and its labels
	fired     map[string]time.Duration // after which time, by the name of the alert

	rigs map[string]*rig
}

func monitor(t *testing.T) *monitored {
	m := &monitored{
		T: t, server: emulator.New(emulator.WithoutLog()), recording: recording{}, alerts: readAlerts(t), began: time.Now(),
		pending: map[string]time.Time{}, fired: map[string]time.Duration{}, rigs: map[string]*rig{},
	}
	m.author = m.open(m.server.Transport())
	return m
}

// work is the plugin of the engines' actions: it takes 20 seconds, or forever.
func work(ctx context.Context, _ engine.Call, hangs bool) (int, error) {
	if hangs {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	time.Sleep(20 * time.Second)
	return 0, nil
}

func (m *monitored) open(transport *emulator.Transport, opts ...azblob.Option) *azblob.Vault {
	v, err := azblob.NewFromConnectionString(m.Context(), "vault", m.server.ConnectionString(), registry.Must(engine.Func("work", work)), append(opts, azblob.WithTransport(transport))...)
	must(m, err)
	m.Cleanup(func() { _ = v.Close(context.Background()) })
	return v
}

// start starts an engine. The function that it returns kills the process.
func (m *monitored) start(instance string) (kill func()) {
	r := newRig(m, azblobotel.WithNamespace("vault"))
	onVault, err := azblobotel.New(r.opts...)
	must(m, err)
	onNode, err := azblobotel.NewFleet(r.opts...)
	must(m, err)
	onEngine, err := azblobotel.NewEngine(r.opts...)
	must(m, err)
	transport := m.server.Transport()
	v := m.open(transport, azblob.WithObserver(onVault))
	e, err := engine.New(v, registry.Must(engine.Func("work", work)), engine.Options{Fleet: &fleet.Options{Name: instance, Observer: onNode}, Observer: onEngine})
	must(m, err)
	m.rigs[instance] = r
	ctx, cancel := context.WithCancel(m.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx)
	}()
	m.Cleanup(func() {
		cancel()
		<-ended
	})
	return func() {
		delete(m.rigs, instance)
		transport.Crash()
		cancel()
	}
}

func (m *monitored) submit(hangs bool) {
	action := func() *workflow.Action {
		return &workflow.Action{Name: "work", Plugin: "work", Req: hangs, Timeout: 5 * time.Hour}
	}
	must(m, m.author.Create(m.Context(), &workflow.Plan{Name: "plan", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action(), action()}}}}}}))
}

// watch lets time pass. Each half a minute Prometheus scrapes the instances and evaluates the alerts, and each three
// minutes somebody submits a plan.
func (m *monitored) watch(d time.Duration) {
	for i := range int(d / (30 * time.Second)) {
		if i%6 == 0 {
			m.submit(false)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		for instance, r := range m.rigs {
			r.scrape(m.recording, instance, time.Now())
		}
		m.recording.end(time.Now())
		for _, a := range m.alerts {
			m.evaluate(a, time.Now())
		}
	}
}

func (m *monitored) evaluate(a alert, now time.Time) {
	active := map[string]bool{}
	for _, e := range m.recording.eval(a.expr, now) {
		key := a.name + e.labels.without("__name__")
		active[key] = true
		if m.pending[key].IsZero() {
			m.pending[key] = now
		}
		if _, before := m.fired[a.name]; !before && now.Sub(m.pending[key]) >= a.wait {
			m.fired[a.name] = now.Sub(m.began)
		}
	}
	maps.DeleteFunc(m.pending, func(key string, _ time.Time) bool { return strings.HasPrefix(key, a.name+"map") && !active[key] })
}

// TestAlerts lets a fleet of two engines run for an hour in virtual time, with one thing wrong or none, and checks which
// alerts fire, and how soon.
func TestAlerts(t *testing.T) {
	type firing map[string]time.Duration // the longest time
	for _, test := range []struct {
		name string
		do   func(m *monitored, kill []func())
		want firing
	}{
		{"all is well", func(*monitored, []func()) {}, nil},
		{"a plan hangs", func(m *monitored, _ []func()) { m.submit(true) }, firing{"AzblobPlanStuck": 22 * time.Minute}},
		{"a copy is not kept up to date", func(m *monitored, _ []func()) {
			_, err := m.author.PutNote(m.Context(), storage.Note{Name: "copy-west", Text: []byte(`{"to":"west","caughtUp":"` + time.Now().UTC().Format(time.RFC3339) + `"}`)})
			must(m, err)
		}, firing{"AzblobMirrorBehind": 37 * time.Minute}},
		{"a node dies", func(_ *monitored, kill []func()) { kill[0]() }, firing{"AzblobMemberRemoved": 2 * time.Minute}},
		{"all nodes die", func(_ *monitored, kill []func()) {
			for _, k := range kill {
				k()
			}
		}, firing{"AzblobNobodyLooks": 11 * time.Minute}},
		{"all nodes die, and somebody watches", func(m *monitored, kill []func()) {
			for _, k := range kill {
				k()
			}
			m.look()
		}, firing{"AzblobNoNodeAlive": 5 * time.Minute, "AzblobPlanStuck": 22 * time.Minute}},
		{"one request fails", func(m *monitored, _ []func()) {
			m.server.Inject(emulator.On().Nth(500).Do(emulator.Answer(500, "InternalError")))
		}, nil},
		{"one list in 150 fails", func(m *monitored, _ []func()) {
			m.server.Inject(emulator.On(emulator.ListBlobs).Every(150).Do(emulator.Answer(500, "InternalError")))
		}, firing{"AzblobRequestErrors": 55 * time.Minute}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if testing.Short() && test.name != "a plan hangs" {
				t.Skip("the hours of the other cases pass without -short")
			}
			synctest.Test(t, func(t *testing.T) {
				m := monitor(t)
				kill := []func(){m.start("a"), m.start("b")}
				m.watch(10 * time.Minute)
				if len(m.fired) > 0 {
					t.Fatalf("in the first minutes there are %v", m.fired)
				}
				m.began = time.Now()
				test.do(m, kill)
				m.watch(time.Hour)
				for _, name := range slices.Sorted(maps.Keys(m.fired)) {
					if most, wanted := test.want[name]; !wanted || m.fired[name] > most {
						t.Errorf("%s fires after %v, want %v", name, m.fired[name], most)
					}
				}
				for name := range test.want {
					if _, fires := m.fired[name]; !fires {
						t.Errorf("%s does not fire", name)
					}
				}
			})
		})
	}
}

// look inspects the vault each minute, as a monitor without a node does.
func (m *monitored) look() {
	r := newRig(m, azblobotel.WithNamespace("vault"))
	o, err := azblobotel.NewFleet(r.opts...)
	must(m, err)
	m.rigs["monitor"] = r
	ctx, stop := context.WithCancel(m.Context())
	ended := make(chan struct{})
	m.Cleanup(func() {
		stop()
		<-ended
	})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if i, err := fleet.Inspect(ctx, m.author, fleet.InspectOptions{}); err == nil {
				o.Gauges(ctx, fleet.GaugesEvent{Node: workflow.NewV7(), Gauges: i.Gauges()})
			}
			time.Sleep(time.Minute)
		}
	}()
}
