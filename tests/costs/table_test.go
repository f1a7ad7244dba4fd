package costs_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/internal/goldentest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// row is an operation on a plan of some size or in a vault of some shape.
type row struct {
	operation
	size   size
	vault  shape
	atOnce int // requests in flight; 0 for the vault's default
	// period is how long the operation waits, if it counts what a node sends meanwhile. It has no round trips then.
	period time.Duration
	long   bool // measured with -largest only
	rare   bool // measured with PLANVAULT_LONG and by -update only: rows beside it show the same
}

// breaksOff reports whether the operation ends while requests are in flight. How many of those are sent, and how much of their
// answers is received, is chance.
func (r row) breaksOff() bool { return r.name == "Search Running, 3" }

func (r row) String() string {
	name := r.name
	if r.size.name != "" {
		name += ", " + r.size.name
	}
	if r.vault.plans > 0 {
		name += ", " + r.vault.String()
	}
	if r.atOnce > 0 {
		name += fmt.Sprintf(", %d at a time", r.atOnce)
	}
	return name
}

// operation is what a user does with a vault.
type operation struct {
	name string
	// prepare creates what the operation needs and returns the operation, which is measured.
	prepare func(testing.TB, *scene) func()
}

// scene is where an operation takes place.
type scene struct {
	vault   *azblob.Vault
	open    func(*registry.Register) *azblob.Vault // opens it again, for other plugins; nil in benchmarks
	plan    func() *workflow.Plan
	filling fill.Filling // the contents of the vault
	period  time.Duration
	owner   uuid.UUID // of the stored plan
	again   func()    // undoes what the operation has changed in memory, for benchmarks; nil for nothing
}

// table returns all rows: operations on plans, then in vaults, grouped by shape so that each vault is filled once.
func table() (rows []row) {
	for _, o := range onPlans {
		for _, s := range sizes {
			rows = append(rows, row{operation: o, size: s})
		}
		rows = append(rows, row{operation: o, size: sizes[1], atOnce: 8})
	}
	for _, o := range ofMembers {
		rows = append(rows, row{operation: o})
	}
	for _, plans := range []int{100, 10_000, millionPlans} {
		for _, days := range []int{1, 14} {
			for _, o := range inVaults() {
				rows = append(rows, row{operation: o, vault: shape{plans: plans, days: days}, long: plans == millionPlans})
			}
		}
	}
	for _, plans := range []int{1_000, 2_500, 5_000, 10_000, 15_000, 20_000, 100_000, millionPlans} {
		rare := !slices.Contains([]int{1_000, 5_000, 20_000}, plans)
		for _, o := range amongOpen {
			rows = append(rows, row{operation: o, vault: shape{plans: plans, days: 14, open: 1_000}, long: plans == millionPlans, rare: rare})
		}
	}
	for _, v := range []shape{{plans: 10_000, days: 14, open: 1_000, waiting: true}, {plans: 2_000, days: 1, open: 2_000, waiting: true}} {
		rows = append(rows, row{operation: recovery, vault: v})
	}
	return append(rows, append(fleetRows(), engineRows()...)...)
}

// size is a plan that operations are measured on.
type size struct {
	name string
	plan func() *workflow.Plan
}

var sizes = []size{{"S", plantest.Small}, {"M", medium}, {"L", func() *workflow.Plan { return plantest.Sized(4, 10, 25) }}}

// medium is a plan of 60 actions: 50 in sequences, 10 in the plan's checks.
func medium() *workflow.Plan {
	p := plantest.Sized(2, 5, 5)
	spare := plantest.Sized(1, 5, 2).Blocks[0].Sequences
	for i, c := range workflow.ChecksOf(p) {
		*c = &workflow.Checks{Actions: spare[i].Actions}
	}
	return p
}

// shape is the contents of a vault that operations are measured in. The zero value is an empty vault.
type shape struct {
	plans, days, open int
	waiting           bool // the open plans are NotStarted
}

const millionPlans = 1_000_000

func (s shape) String() string {
	switch {
	case s.waiting:
		return fmt.Sprintf("%d not started of %d plans in %d days", s.open, s.plans, s.days)
	case s.open > 0:
		return fmt.Sprintf("%d open of %d plans in %d days", s.open, s.plans, s.days)
	case s.days == 1:
		return fmt.Sprintf("%d plans in 1 day", s.plans)
	}
	return fmt.Sprintf("%d plans in %d days", s.plans, s.days)
}

// until returns the contents of a vault of the shape, up to a time.
func (s shape) until(end time.Time) fill.Filling {
	return fill.Filling{Plans: s.plans, Days: s.days, Open: s.open, Waiting: s.waiting, End: end.UTC()}
}

const (
	evening   = 18 * time.Hour // today has its share of plans
	vaultName = "costs"
	// latency is how long a request takes. Computation takes no time, so the seconds of an operation are its round trips.
	latency    = time.Second
	heapBudget = 64 << 20 // how much the live heap may grow while a vault of a million plans is listed, in bytes
)

var (
	at      = flag.Duration("at", evening, "count at another time of the day, and compare nothing: pages depend on it")
	largest = flag.Bool("largest", false, "measure vaults of a million plans, too, and a year of catalogues: it takes minutes and gigabytes")
)

// TestCosts compares the requests, round trips and bytes of each operation with testdata/costs.txt, which is also
// documentation. -update rewrites it. The rows of a million plans are measured and logged with -args -largest.
func TestCosts(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	golden := readGolden(t)
	e := emulators{}
	var all []string
	for _, r := range table() {
		if all = append(all, r.String()); r.long && !*largest || r.rare && !efforttest.Long() && !goldentest.Updating() {
			continue
		}
		t.Run(r.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { golden.compare(t, r.String(), e.measure(t, r), r.breaksOff()) })
		})
	}
	golden.finish(t, all)
}

// emulators keeps the filled vault of one shape: the largest takes gigabytes.
type emulators struct {
	filled *emulator.Server
	shape  shape
}

// fill returns a copy of a server with a vault of the shape.
func (e *emulators) fill(t testing.TB, s shape, now time.Time) *emulator.Server {
	if e.filled == nil || e.shape != s {
		e.filled = nil // before the next one is made
		if s.plans == millionPlans {
			debug.SetGCPercent(30) // gigabytes of plans leave little room for garbage
		}
		e.filled, e.shape = emulator.New(emulator.Options{NoLog: true}), s
		if s.plans > 0 {
			vaulttest.Must(t, s.until(now).FillServer(t.Context(), e.filled, vaultName))
		}
	}
	return e.filled.Clone()
}

// measure runs a row's operation on a new vault and returns what it sent and received, as a line of the golden file. It runs
// in a bubble.
func (e *emulators) measure(t *testing.T, r row) string {
	time.Sleep(20*24*time.Hour + *at)
	server := e.fill(t, r.vault, time.Now())
	c := &counter{next: server.Transport(), requests: price.Tally{}}
	options := azblob.Options{ClientOptions: policy.ClientOptions{Transport: c}, Observer: c.observer(), Concurrency: r.atOnce}
	open := func(reg *registry.Register) *azblob.Vault {
		v, err := azblob.NewFromConnectionString(t.Context(), vaultName, server.ConnectionString(), reg, options)
		vaulttest.Must(t, err)
		t.Cleanup(func() { vaulttest.Must(t, v.Close(context.Background())) })
		return v
	}
	do := r.prepare(t, &scene{vault: open(plantest.Register()), open: open, plan: r.size.plan, filling: r.vault.until(time.Now()), period: r.period})
	c.start(r.vault.plans == millionPlans)
	started := time.Now()
	do()
	trips := fmt.Sprint(int(time.Since(started) / latency))
	synctest.Wait() // requests that were sent ahead count too
	if r.period > 0 {
		trips = "-"
		t.Logf("$%.4f a day", c.requests.Dollars()*float64(24*time.Hour)/float64(r.period))
	}
	if above := c.heap.above(); above > heapBudget {
		t.Errorf("the heap grew by %d bytes of %d", above, heapBudget)
	}
	line := c.line(trips)
	if r.breaksOff() {
		line = strings.Replace(line, fmt.Sprintf("%10d", c.received), "         -", 1)
	}
	return line
}

// counter delays requests, and counts them from start on.
type counter struct {
	next     policy.Transporter
	latency  time.Duration
	heap     *heapPeak // nil if the heap is not measured
	mu       sync.Mutex
	requests price.Tally
	sent     int64 // bytes of bodies
	received int64
}

func (c *counter) start(heap bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if clear(c.requests); heap {
		c.heap = newHeapPeak()
	}
	c.latency, c.sent, c.received = latency, 0, 0
}

func (c *counter) observer() azblob.Observer {
	return azblob.Observer{Request: func(_ context.Context, e azblob.RequestEvent) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.requests[e.Class]++
		c.sent += e.BytesSent
		c.received += e.BytesReceived
	}}
}

// Do sends a request.
func (c *counter) Do(req *http.Request) (*http.Response, error) {
	if c.latency > 0 && !sleep.For(req.Context(), c.latency/2) {
		return nil, req.Context().Err()
	}
	resp, err := c.heap.do(c.next, req)
	if err == nil && c.latency > 0 && !sleep.For(req.Context(), c.latency/2) {
		resp.Body.Close()
		return nil, req.Context().Err()
	}
	return resp, err
}

// line returns what was counted.
func (c *counter) line(trips string) string {
	var b strings.Builder
	for _, class := range price.Classes {
		fmt.Fprintf(&b, " %6s", strings.TrimPrefix(fmt.Sprintf("%d", c.requests[class]), "0"))
	}
	fmt.Fprintf(&b, " %8d %6s %9d %9d %9.4f", c.requests.Total(), trips, c.sent, c.received, 10_000*c.requests.Dollars())
	return b.String()
}

// golden is testdata/costs.txt: a head, and a line for each row of the table.
type golden struct{ lines map[string]string }

const (
	goldenName = 62 // columns
	goldenHead = " write   list   read  other delete requests  trips      sent  received  $/10,000"
)

func readGolden(t testing.TB) golden {
	text, err := os.ReadFile(filepath.Join("testdata", "costs.txt"))
	if !goldentest.Updating() {
		vaulttest.Must(t, err)
	}
	g := golden{map[string]string{}}
	for line := range strings.Lines(string(text)) {
		g.lines[strings.TrimSpace(line[:goldenName])] = strings.TrimSuffix(line[goldenName:], "\n")
	}
	return g
}

var number = regexp.MustCompile(`\S+`)

// compare reports numbers that differ by more than a hundredth, or round trips by more than a tenth: those of long listings
// depend on the order of answers that come at one moment. An operation that breaks off may send fewer requests.
func (g golden) compare(t *testing.T, name, got string, breaksOff bool) {
	want, known := g.lines[name]
	switch {
	case goldentest.Updating():
		g.lines[name] = got
		return
	case *at != evening || *largest && !known:
		t.Log(name, got)
		return
	}
	is, was := number.FindAllString(got, -1), number.FindAllString(want, -1)
	same := len(is) == len(was)
	for i := 0; same && i < len(is); i++ {
		a, _ := strconv.ParseFloat(is[i], 64)
		b, _ := strconv.ParseFloat(was[i], 64)
		slack := 100.0
		if i == len(is)-4 { // the round trips
			slack = 10
		}
		same = a-b <= b/slack && (b-a <= b/slack || breaksOff)
	}
	if !same {
		t.Errorf("testdata/costs.txt differs (go test -update rewrites it):\nrow  %s\nhead%s\nwant%s\n got%s", name, goldenHead, want, got)
	}
}

// report gives a benchmark the round trips, bytes and dollars of a row.
func (g golden) report(b *testing.B, name string) {
	is := number.FindAllString(g.lines[name], -1)
	for i, unit := range []string{"trips/op", "sent-B/op", "received-B/op", "$/10,000-ops"} {
		if at := len(is) - 4 + i; at >= 0 && is[at] != "-" {
			n, err := strconv.ParseFloat(is[at], 64)
			vaulttest.Must(b, err)
			b.ReportMetric(n, unit)
		}
	}
}

// finish checks that the file has the rows of the table, or writes it.
func (g golden) finish(t *testing.T, names []string) {
	names = slices.Insert(names, 0, "")
	g.lines[""] = goldenHead
	for name := range g.lines {
		if !slices.Contains(names, name) && !goldentest.Updating() {
			t.Errorf("testdata/costs.txt has a row %q, which the table has not", name)
		}
	}
	if goldentest.Updating() {
		var text strings.Builder
		for _, name := range names {
			if line, ok := g.lines[name]; ok {
				fmt.Fprintf(&text, "%-*s%s\n", goldenName, name, line)
			}
		}
		goldentest.Equal(t, filepath.Join("testdata", "costs.txt"), []byte(text.String()))
	}
}
