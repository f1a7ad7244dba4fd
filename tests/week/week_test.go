// Package week_test runs a fleet for weeks in virtual time, while everything happens to it that may. The seed of a week draws
// its plans and its events. An oracle checks what the chaos of integration checks, that nothing is lost or runs again, and
// what it can't check: that no plan waits for longer than the bounds of docs/fleet.md while a process could run it.
//
//	go test ./tests/week -v -args -week.seed 7 -week.seeds 1 -week.hours 24
//	PLANVAULT_LONG=1h go test ./tests/week -timeout 0 -v
//
//go:debug randseednop=0
package week_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	retries "math/rand" // of which the waits before retries are drawn
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

var (
	first = flag.Uint64("week.seed", 3, "the first seed")
	seeds = flag.Int("week.seeds", 0, "how many seeds are played; 0 means a few, and with PLANVAULT_LONG 1,000")
	hours = flag.Float64("week.hours", 0, "how long a week is; 0 means a few hours, and with PLANVAULT_LONG a week")
)

const prefix = "week"

// week is a fleet in virtual time.
type week struct {
	t        *testing.T
	seed     uint64
	server   *emulator.Server
	operator *azblob.Vault // whose requests meet no fault
	ctx      context.Context
	began    time.Time
	running  sync.WaitGroup

	mu     sync.Mutex
	r      *rand.Rand // of the present event
	agenda []entry
	seats  []*process // the present process of each
	alive  []*process // that have not ended
	nodes  map[uuid.UUID]*process
	plans  map[uuid.UUID]*career
	open   map[uuid.UUID]*career // that are stored and not final
	ended  []ending
	pauses map[string]keyPause
	outage *fault
	// stirred is when something happened to any process.
	stirred time.Time
	// resting means that nothing happens any more but the end of the plans.
	resting       bool
	longestAction time.Duration
	story         []string
	recent        []emulator.Request
	found         map[string]int
	counts        map[string]int

	lives, requests, calls int
	underWay               int // calls of people
}

// entry is something that happens at a time.
type entry struct {
	at time.Time
	do func()
}

// after lets something happen later.
func (w *week) after(d time.Duration, do func()) {
	w.agenda = append(w.agenda, entry{time.Now().Add(d), do})
}

// draws returns what something is drawn from. Nothing else changes it.
func (w *week) draws(what ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintln(h, what...)
	return rand.New(rand.NewPCG(w.seed, h.Sum64()))
}

// call makes a call beside all others.
func (w *week) call(do func(context.Context)) {
	w.underWay++
	w.running.Go(func() {
		ctx, cancel := context.WithTimeout(w.ctx, 10*time.Minute)
		defer cancel()
		do(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.underWay--
	})
}

func (w *week) add(c *career) {
	c.number, c.kind, c.active, c.parts = len(w.plans), "submit", map[*call]bool{}, map[uuid.UUID]*deed{}
	c.laters, c.signals = map[uuid.UUID]workflow.Later{}, map[int]time.Time{}
	c.since = time.Now()
	for o := range workflow.Walk(c.plan) {
		if a, ok := o.(*workflow.Action); ok && a.State.Status == workflow.NotStarted {
			c.wants = max(c.wants, a.Req.(task).Wants)
		}
	}
	w.plans[c.plan.ID] = c
}

// created notes that a plan is stored.
func (w *week) created(c *career) {
	if c.stored {
		return
	}
	c.sort()
	c.stored, c.since = true, time.Now()
	if !c.status.Final() {
		w.open[c.plan.ID] = c
	}
}

func (w *week) stamp() string {
	d := time.Since(w.began)
	return fmt.Sprintf("%d %02d:%02d:%06.3f", d/day, d/time.Hour%24, d/time.Minute%60, (d % time.Minute).Seconds())
}

// note adds to the story of a plan, or to that of the fleet.
func (w *week) note(p *process, c *career, format string, args ...any) {
	story := &w.story
	if c != nil {
		story = &c.story
	}
	line := w.stamp() + " "
	if p != nil {
		line += p.name + ": "
	}
	*story = append((*story)[max(0, len(*story)-kept):], line+fmt.Sprintf(format, args...))
}

// kept is how much of a story is kept.
const kept = 40

// shown is how many findings of a kind a week shows.
const shown = 2

// find reports that a promise is broken.
func (w *week) find(kind string, c *career, format string, args ...any) {
	w.found[kind]++
	if w.found[kind] > shown {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %s: %s: %s\n", w.seed, w.stamp(), kind, fmt.Sprintf(format, args...))
	if c != nil {
		fmt.Fprintf(&b, "plan %s (%s, rare %t, delay %v):\n\t%s\n", c.plan.ID, c.shape, c.rare, c.delay, strings.Join(c.story, "\n\t"))
	}
	fmt.Fprintf(&b, "events:\n\t%s\n", strings.Join(w.story, "\n\t"))
	if c != nil {
		b.WriteString("requests:\n")
		id := c.plan.ID.String()
		about := slices.DeleteFunc(slices.Clone(w.recent), func(r emulator.Request) bool { return !strings.Contains(r.Blob, id) })
		for _, r := range about[max(0, len(about)-15):] {
			fmt.Fprintf(&b, "\t%v %s %v\n", r.Time.Sub(w.began), r.Client, r)
		}
	}
	w.t.Error(b.String())
}

// play plays a week of some hours.
func play(t *testing.T, seed uint64, long time.Duration) {
	cryptotest.SetGlobalRandom(t, seed)
	retries.Seed(int64(seed))                       //lint:ignore SA1019 nothing else makes a seed play the same again
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // nothing is parallel, so a seed plays almost the same again
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour)
		ctx, over := context.WithCancel(t.Context())
		w := &week{
			t: t, seed: seed, server: emulator.New(emulator.Options{}), ctx: ctx, began: time.Now(),
			seats: make([]*process, 5), nodes: map[uuid.UUID]*process{}, plans: map[uuid.UUID]*career{}, open: map[uuid.UUID]*career{},
			pauses: map[string]keyPause{}, found: map[string]int{}, counts: map[string]int{},
		}
		w.longestAction = min(6*time.Hour, long/6)
		reg := registry.Must(plugins.Typed[task, string](common), plugins.Typed[task, string](rare))
		var err error
		w.operator, err = azblob.New(ctx, prefix, "https://blob.emulator.invalid/"+emulator.DefaultAccount, vaulttest.Token{}, reg, settings.Over(w.server.Transport()))
		vaulttest.Must(t, err)
		w.begin(long)
		w.rest(long)
		over()
		w.running.Wait()
		w.conclude(context.WithoutCancel(ctx))
	})
	t.Logf("took %v", time.Since(real).Round(time.Millisecond))
}

// begin lets things happen for some time.
func (w *week) begin(long time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.seats {
		w.start(i)
	}
	end := w.began.Add(long)
	var often func(name string, n int, mean time.Duration, do func())
	often = func(name string, n int, mean time.Duration, do func()) {
		w.after(time.Duration(w.draws(name, n, "when").ExpFloat64()*float64(mean)), func() {
			if time.Now().Before(end) {
				w.r = w.draws(name, n)
				do()
				often(name, n+1, mean, do)
			}
		})
	}
	often("event", 0, 4*time.Minute, w.disturb)
	often("plan", 0, 3*time.Minute, w.submit)
	w.until(func() bool { return !time.Now().Before(end) })
}

// until lets things happen until a condition holds, and looks for what waits.
func (w *week) until(done func() bool) {
	for look := time.Now(); !done(); {
		slices.SortStableFunc(w.agenda, func(a, b entry) int { return a.at.Compare(b.at) })
		next := entry{look, w.look}
		if len(w.agenda) > 0 && !w.agenda[0].at.After(look) {
			next, w.agenda = w.agenda[0], w.agenda[1:]
		} else {
			look = look.Add(tick)
		}
		w.mu.Unlock()
		time.Sleep(time.Until(next.at))
		w.mu.Lock()
		next.do()
	}
}

// tick is the time between two looks.
const tick = 5 * time.Second

// rest lets the fleet end all plans.
func (w *week) rest(long time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resting = true
	for i, p := range w.seats {
		w.after(time.Duration(i)*time.Minute, func() { w.deploy(i, p) })
	}
	end := time.Now().Add(2*w.longestAction + 8*time.Hour)
	w.until(func() bool { // a fork may be to come
		return len(w.open)+len(w.agenda)+w.underWay+len(w.debris()) == 0 || time.Now().After(end)
	})
	if len(w.open) > 0 {
		return
	}
	w.leaves()
	for i, p := range w.seats {
		w.deploy(i, p)
	}
	end = time.Now().Add(sweepTime)
	w.until(func() bool { return !w.held() || time.Now().After(end) })
}

// conclude compares what is stored with what is known.
func (w *week) conclude(ctx context.Context) {
	time.Sleep(15 * time.Minute) // Recovery leaves alone what is younger
	vaulttest.Must(w.t, w.operator.Recovery(ctx))
	w.mu.Lock()
	defer w.mu.Unlock()
	w.catchUp()
	for _, c := range w.openPlans() {
		w.find("never", c, "it is %s", c.status)
	}
	for id, c := range w.plans {
		if plan, err := w.operator.Read(ctx, id); c.stored && (err != nil || plan.State.Status != c.status) {
			w.find("lost", c, "it is not as it was stored: %v", err)
		}
	}
	w.turnsLeft()
	if left := w.debris(); len(left) > 0 {
		w.find("debris", nil, "notes are left: %v", left)
	}
	report, err := w.operator.Admin().Check(ctx, azblob.CheckOptions{})
	vaulttest.Must(w.t, err)
	for _, p := range report.Problems {
		w.find("check", w.plans[p.Plan], "%v", p)
	}
	w.t.Logf("seed %d: %v, %d plans, %d lives, %d calls, %d requests\n\tevents %v\n\tfound %v",
		w.seed, time.Since(w.began).Round(time.Minute), len(w.plans), w.lives, w.calls, w.requests, w.counts, w.found)
}

// debris returns the notes about plans that are stored.
func (w *week) debris() (left []string) {
	for b := range w.server.Blobs(prefix + "-control") {
		if strings.HasPrefix(b.Name, "notes/signal-") || strings.HasPrefix(b.Name, "notes/pause-") {
			left = append(left, b.Name)
		}
	}
	return left
}

// TestWeek plays the seeds.
func TestWeek(t *testing.T) {
	if *seeds == 0 {
		efforttest.NotShort(t, "the tests of fleet and engine run both under the race detector")
	}
	long := time.Duration(*hours * float64(time.Hour))
	if long == 0 {
		long = efforttest.Pick(time.Hour, 4*time.Hour, 7*day)
	}
	short, normal, many := 1, 2, 1000
	if *seeds > 0 {
		short, normal, many = *seeds, *seeds, *seeds
	}
	for n := range efforttest.Seeds(t, short, normal, many) {
		seed := *first + n
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { play(t, seed, long) })
	}
}
