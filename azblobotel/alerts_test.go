package azblobotel_test

import (
	"context"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/azblobotel"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// recording has the values of all series at each scrape, by the text that names the series for promtool.
type recording map[string][]string

// note records a value of a series at the nth scrape. The scrapes before it did not show the series.
func (r recording) note(series string, nth int, value float64) {
	for len(r[series]) < nth {
		r[series] = append(r[series], "_")
	}
	r[series] = append(r[series], fmt.Sprint(value))
}

// end ends the series that the nth scrape has not shown, as Prometheus does.
func (r recording) end(nth int) {
	for series, values := range r {
		if len(values) == nth {
			r[series] = append(values, "stale")
		}
	}
}

// scrape records all that was measured, as the nth scrape of an instance shows it.
func (r *rig) scrape(to recording, instance string, nth int) {
	for _, s := range r.series() {
		note := func(suffix string, value float64, le string) {
			name := strings.TrimSuffix(prometheus(s.name, instrument{kind: s.kind, unit: s.unit})[0], "_bucket") + suffix
			labels := []string{fmt.Sprintf("instance=%q", instance)}
			for _, a := range s.attrs.ToSlice() {
				labels = append(labels, fmt.Sprintf("%s=%q", label(string(a.Key)), a.Value.String()))
			}
			if le != "" {
				labels = append(labels, fmt.Sprintf("le=%q", le))
			}
			to.note(name+"{"+strings.Join(labels, ",")+"}", nth, value)
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

// interval is how often Prometheus scrapes the instances and evaluates the alerts.
const interval = 30 * time.Second

// fires matches the alerts that have fired.
const fires = `max by (alertname) (max_over_time(ALERTS{alertstate="firing"%s}[2h]))`

// promtool lets Prometheus evaluate the rules on the recording. No alert has fired after the quiet time, each of the
// wanted ones at most its time later, and no other one in the end.
func (r recording) promtool(t *testing.T, quiet time.Duration, want map[string]time.Duration, end time.Duration) {
	rules, err := filepath.Abs("../docs/alerts.yml")
	must(t, err)
	var file strings.Builder
	fmt.Fprintf(&file, "rule_files: [%q]\nevaluation_interval: %v\ntests:\n- interval: %[2]v\n  input_series:\n", rules, interval)
	for _, series := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(&file, "  - {series: %q, values: %q}\n", series, strings.Join(r[series], " "))
	}
	fmt.Fprintf(&file, "  promql_expr_test:\n")
	expect := func(at time.Duration, of string, names ...string) {
		fmt.Fprintf(&file, "  - {expr: %q, eval_time: %v, exp_samples: [", fmt.Sprintf(fires, of), at)
		for _, name := range names {
			fmt.Fprintf(&file, "{labels: %q, value: 1},", fmt.Sprintf("{alertname=%q}", name))
		}
		fmt.Fprintln(&file, "]}")
	}
	expect(quiet, "")
	for name, most := range want {
		expect(quiet+most, fmt.Sprintf(",alertname=%q", name), name)
	}
	expect(end, "", slices.Collect(maps.Keys(want))...)
	path := filepath.Join(t.TempDir(), "test.yml")
	must(t, os.WriteFile(path, []byte(file.String()), 0o600))
	if out, err := exec.Command(os.Getenv("PROMTOOL"), "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// How an action works that does not work well.
const hangs, fails = "hangs", "fails"

// monitored is a vault with engines that are scraped.
type monitored struct {
	*testing.T
	server    *emulator.Server
	author    *azblob.Vault
	recording recording
	scrapes   int
	rigs      map[string]*rig // by the instance
}

func monitor(t *testing.T) *monitored {
	m := &monitored{T: t, server: emulator.New(emulator.Options{NoLog: true}), recording: recording{}, rigs: map[string]*rig{}}
	m.author = m.open(m.server.Transport(), azblob.Options{})
	return m
}

// work is the plugin of the engines' actions: it takes 20 seconds, or forever, or fails.
func work(ctx context.Context, _ engine.Call, how string) (int, error) {
	switch how {
	case hangs:
		<-ctx.Done()
		return 0, ctx.Err()
	case fails:
		return 0, &plugins.Error{Message: "no", Permanent: true}
	}
	time.Sleep(20 * time.Second)
	return 0, nil
}

func (m *monitored) open(transport *emulator.Transport, opts azblob.Options) *azblob.Vault {
	opts.Transport = transport
	v, err := azblob.NewFromConnectionString(m.Context(), "vault", m.server.ConnectionString(), registry.Must(engine.Task("work", work)), opts)
	must(m, err)
	m.Cleanup(func() { _ = v.Close(context.Background()) })
	return v
}

// start starts an engine. The function that it returns kills the process.
func (m *monitored) start(instance string) (kill func()) {
	r := newRig(m, "vault")
	onVault, err := azblobotel.New(r.opts)
	must(m, err)
	onNode, err := azblobotel.NewFleet(r.opts)
	must(m, err)
	onEngine, err := azblobotel.NewEngine(r.opts)
	must(m, err)
	transport := m.server.NamedTransport(instance)
	v := m.open(transport, azblob.Options{Observer: onVault})
	e, err := engine.New(v, engine.Options{Fleet: &fleet.Options{Name: instance, Observer: onNode}, Observer: onEngine})
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

func (m *monitored) submit(how string) {
	action := func() *workflow.Action {
		return &workflow.Action{Name: "work", Plugin: "work", Req: how, Timeout: 5 * time.Hour}
	}
	must(m, m.author.Create(m.Context(), &workflow.Plan{Name: "plan", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action(), action()}}}}}}))
}

// watch lets time pass. Prometheus scrapes the instances, and each three minutes somebody submits a plan.
func (m *monitored) watch(d time.Duration) {
	for i := range int(d / interval) {
		if i%6 == 0 {
			m.submit("")
		}
		time.Sleep(interval)
		synctest.Wait()
		m.scrapes++
		for instance, r := range m.rigs {
			r.scrape(m.recording, instance, m.scrapes)
		}
		m.recording.end(m.scrapes)
	}
}

// TestAlerts lets a fleet of two engines run for an hour in virtual time, with one thing wrong or none. Prometheus says
// which alerts fire, and how soon.
func TestAlerts(t *testing.T) {
	if os.Getenv("PROMTOOL") == "" {
		t.Skip("make alerts runs it: PROMTOOL names the program")
	}
	type firing map[string]time.Duration // the longest time
	for _, test := range []struct {
		name string
		do   func(m *monitored, kill []func())
		want firing
	}{
		{"all is well", func(*monitored, []func()) {}, nil},
		{"a plan hangs", func(m *monitored, _ []func()) { m.submit(hangs) }, firing{"AzblobPlanStuck": 22 * time.Minute}},
		{"a plan fails", func(m *monitored, _ []func()) { m.submit(fails) }, firing{"AzblobPlanFailed": 2 * time.Minute}},
		{"a plan hangs, and can't be read", func(m *monitored, _ []func()) {
			m.submit(hangs)
			time.Sleep(time.Minute)
			m.server.Inject(emulator.On(emulator.GetBlob).Path("plans/*-object.json").Do(emulator.Answer(503, "ServerBusy")))
		}, firing{
			"AzblobPlansUnread": 35 * time.Minute, "AzblobPlanStuck": time.Hour, "AzblobErrorRate": time.Hour, "AzblobRequestErrors": time.Hour,
			"AzblobRetries": time.Hour, "AzblobSlow": time.Hour,
		}},
		{"a copy is not kept up to date", func(m *monitored, _ []func()) {
			_, err := m.author.Control().PutNote(m.Context(), storage.Note{Name: "copy-west", Text: []byte(`{"to":"west","caughtUp":"` + time.Now().UTC().Format(time.RFC3339) + `"}`)})
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
		{"the writes of a node are refused", func(m *monitored, _ []func()) {
			m.server.Inject(emulator.On(emulator.PutBlob).Client("a").Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
		}, firing{
			"AzblobNeedsPerson": 2 * time.Minute, "AzblobHeartbeatsFail": 2 * time.Minute, "AzblobFenced": 2 * time.Minute, "AzblobMemberRemoved": 2 * time.Minute,
			"AzblobErrorRate": 10 * time.Minute, "AzblobRequestErrors": 20 * time.Minute,
		}},
		{"the account is busy", func(m *monitored, _ []func()) {
			m.server.Inject(emulator.On().Every(20).Do(emulator.Answer(503, "ServerBusy")))
		}, firing{"AzblobRetries": 10 * time.Minute, "AzblobRequestErrors": 20 * time.Minute}},
		{"the writes of a node are slow", func(m *monitored, _ []func()) {
			m.server.Inject(emulator.On(emulator.PutBlob).Client("a").Do(emulator.Before(func() { time.Sleep(2 * time.Second) })))
		}, firing{"AzblobSlow": 20 * time.Minute}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var recorded recording
			const quiet, after = 10 * time.Minute, time.Hour
			synctest.Test(t, func(t *testing.T) {
				m := monitor(t)
				kill := []func(){m.start("a"), m.start("b")}
				m.watch(quiet)
				test.do(m, kill)
				m.watch(after)
				recorded = m.recording
			})
			recorded.promtool(t, quiet, test.want, quiet+after)
		})
	}
}

// look inspects the vault each minute, as a monitor without a node does.
func (m *monitored) look() {
	r := newRig(m, "vault")
	o, err := azblobotel.NewFleet(r.opts)
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
