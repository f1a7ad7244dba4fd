package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

const (
	// chaosCapacity is how many plans a node owns at once. It leaves room for the plans of dead nodes.
	chaosCapacity = 64
	// tidyAfter is the age at which a fleet compares a stop request with its plan, and some more.
	tidyAfter = 65 * time.Second
)

// chaosGrace returns the grace period of the vaults. It is longer than any freeze: a Create that takes longer
// takes its plan back, although a node may have begun it, and may leave blobs that no marker leads to.
func chaosGrace(ttl time.Duration) time.Duration { return longestFreeze(ttl) + 30*time.Second }

// Freezes last from a sixth of the TTL to twice the TTL: 5 to 60 seconds with the default.
func shortestFreeze(ttl time.Duration) time.Duration { return ttl / 6 }
func longestFreeze(ttl time.Duration) time.Duration  { return 2 * ttl }

// chaos is a run of a fleet of processes, which are killed, frozen and started again.
type chaos struct {
	*stage
	order  order
	vault  *azblob.Vault // on a connection without faults
	ledger *calls
	seats  []*seat

	mu      sync.Mutex
	figures fleetFigures
	// silent holds the nodes that were killed or frozen.
	silent map[uuid.UUID]silence
	from   map[claim]uuid.UUID     // former owners of plans that are being taken
	owned  map[uuid.UUID]time.Time // when a plan was claimed or taken last
	recent []uuid.UUID             // plans that were picked up
	// resumptions are the times from the death or freeze of an owner until another node works on its plan, and
	// removals those until its record is removed.
	resumptions, removals []time.Duration
	stirred               time.Time // when something happened last
}

// claim names an epoch of a plan.
type claim struct {
	plan  uuid.UUID
	epoch int64
}

// silence is that of a node.
type silence struct {
	since  time.Time
	thawed bool
}

// seat is a place for a process. Its fields are guarded by chaos.mu.
type seat struct {
	p       *process // nil if there is none, or if it is dying or leaving
	began   time.Time
	node    uuid.UUID // uuid.Nil until the process has joined
	frozen  bool
	pending int    // commands without an answer
	last    notice // with the counts of the process
}

// fleetFigures are the counts of a chaos so far.
type fleetFigures struct {
	Seconds   float64 `json:"seconds"`
	Plans     int     `json:"plans"`
	Ended     int     `json:"ended"`
	Calls     int     `json:"calls"` // of the plugin
	Again     int     `json:"again"` // calls of an action that had run before
	Kills     int     `json:"kills"`
	Freezes   int     `json:"freezes"`
	Leaves    int     `json:"leaves"`
	Processes int     `json:"processes"`
	Nodes     int     `json:"nodes"`   // a process that was fenced joins as a new one
	Removed   int     `json:"removed"` // members
	// Needless counts the removed members that were neither dead nor frozen.
	Needless  int `json:"needless"`
	Takeovers int `json:"takeovers"`
	// Repeated is how often a takeover began again because the former owner wrote.
	Repeated int `json:"repeated"`
	// Refused counts the owners whose stale write was refused.
	Refused      int            `json:"refused"`
	LetGo        map[string]int `json:"letGo"` // plans, by reason
	StopRequests int            `json:"stopRequests"`
	// Resumption is the time from the death or freeze of an owner to the resumption of a plan, and Removal the
	// time until the owner's record is removed.
	Resumption times    `json:"resumption"`
	Removal    times    `json:"removal"`
	Requests   int      `json:"requests"`
	PerNode    float64  `json:"requestsPerNode"`
	PerHour    float64  `json:"requestsPerNodeAndHour"`
	Faults     int      `json:"faults"`
	Problems   int      `json:"problems"`
	Such       []string `json:"such,omitempty"` // problems

	findings

	nodeHours float64
}

// times describes some times, in seconds.
type times struct {
	N       int     `json:"n"`
	Median  float64 `json:"median"`
	P99     float64 `json:"p99"`
	Longest float64 `json:"longest"`
}

func timesOf(all []time.Duration) times {
	sorted := slices.Sorted(slices.Values(all))
	return times{len(sorted), quantile(sorted, 50), quantile(sorted, 99), quantile(sorted, 100)}
}

func (t times) String() string {
	return fmt.Sprintf("%.1f s (p50), %.1f s (p99), %.1f s (longest of %d)", t.Median, t.P99, t.Longest, t.N)
}

func (f fleetFigures) String() string {
	return fmt.Sprintf("%s: %d of %d plans ended; %d kills, %d freezes, %d leaves, %d nodes (%d removed though alive); %d takeovers (%d begun again), stale writes of %d owners refused, let go: %s; "+
		"from death to resumption %v, to removal %v; %d calls, %d again; %d stop requests, %d faults, %d problems; "+
		"%d requests, %.0f per node, %.0f per node and hour; violations: %s",
		time.Duration(f.Seconds*float64(time.Second)).Round(time.Second), f.Ended, f.Plans, f.Kills, f.Freezes, f.Leaves, f.Nodes, f.Needless, f.Takeovers, f.Repeated, f.Refused, counts(f.LetGo),
		f.Resumption, f.Removal, f.Calls, f.Again, f.StopRequests, f.Faults, f.Problems,
		f.Requests, f.PerNode, f.PerHour, counts(f.Violations))
}

// playChaos runs a fleet under disturbances for the configured time, or until ctx ends. Then it lets the fleet
// end all plans, and checks what is stored.
func (s *stage) playChaos(ctx context.Context) error {
	return s.withProcesses(ctx, chaosGrace(s.cfg.ttl), func(o order) error {
		o.Fleet = &fleetOrder{Interval: s.cfg.interval, TTL: s.cfg.ttl, Capacity: chaosCapacity}
		run := &chaos{
			stage: s, order: o, ledger: newCalls(), silent: map[uuid.UUID]silence{}, from: map[claim]uuid.UUID{}, owned: map[uuid.UUID]time.Time{}, stirred: time.Now(),
			figures: fleetFigures{LetGo: map[string]int{}, findings: findings{Violations: map[string]int{}}},
		}
		s.out.step("chaos", fmt.Sprintf("%d nodes and %d plans for %v; interval %v, TTL %v; -seed %d repeats the plans and the disturbances",
			s.cfg.fleet, s.cfg.plans, s.cfg.chaos, s.cfg.interval, s.cfg.ttl, s.cfg.seed))
		err := run.play(ctx)
		s.chaosed = new(run.now())
		return err
	})
}

func (c *chaos) play(ctx context.Context) (err error) {
	// What is checked after an interrupt is the same.
	always := context.WithoutCancel(ctx)
	if c.vault, err = c.dial(always, c.cfg.prefix, azblob.WithGracePeriod(c.order.Grace)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.vault.Close(always)) }()

	working, release := context.WithCancel(always)
	defer release()
	disturbing, calm := context.WithTimeout(ctx, c.cfg.chaos)
	defer calm()
	started := time.Now()
	nodes, working := errgroup.WithContext(working) // a process that ends by itself ends the chaos
	context.AfterFunc(working, calm)
	for n := range c.cfg.fleet {
		seat := &seat{}
		c.seats = append(c.seats, seat)
		nodes.Go(func() error { return c.sit(working, disturbing, seat, n) })
	}
	var helpers sync.WaitGroup
	helpers.Go(func() { c.submit(disturbing) })
	helpers.Go(func() { c.disturb(disturbing, &helpers) })
	hush := c.report(func() fmt.Stringer { return c.measure(started) })
	helpers.Wait()

	c.drain(working)
	c.rest(working)
	release()
	err = nodes.Wait()
	hush()
	if c.measure(started); err != nil {
		return err
	}
	return c.judge(always)
}

// sit lets one process after the other work as a node.
func (c *chaos) sit(working, disturbing context.Context, s *seat, n int) error {
	r := rand.New(rand.NewPCG(c.cfg.seed, uint64(n)))
	for life := 0; working.Err() == nil; life++ {
		if err := c.oneNode(working, s, n, life, r.Uint64()); err != nil {
			return fmt.Errorf("node %d: %w", n, err)
		}
		sleep.For(disturbing, time.Duration(r.Int64N(int64(c.cfg.ttl))))
	}
	return nil
}

// oneNode runs a process until it dies or leaves.
func (c *chaos) oneNode(working context.Context, s *seat, n, life int, seed uint64) error {
	o := c.order
	o.Client, o.Life, o.Seed = n, life, seed
	p, err := startProcess(o)
	if err != nil {
		return err
	}
	defer context.AfterFunc(working, p.finish)()
	c.mu.Lock()
	*s = seat{p: p, began: time.Now()}
	c.figures.Processes++
	c.mu.Unlock()
	listenErr := listen(p, func(said notice) {
		c.ledger.note(said)
		c.hear(s, said)
	})
	err = p.wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.figures
	f.Requests, f.Faults, f.Refused = f.Requests+s.last.Requests, f.Faults+s.last.Faults, f.Refused+s.last.Refused
	f.nodeHours += time.Since(s.began).Hours()
	*s = seat{}
	if p.killed.Load() {
		return nil
	}
	return errors.Join(listenErr, err)
}

// hear counts what a process reports.
func (c *chaos) hear(s *seat, said notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.figures
	s.last = said
	if slices.Contains([]string{created, picked, called, stored, ended}, said.What) {
		c.stirred = time.Now()
	}
	wrong := said.Told == "wrong"
	switch said.What {
	case joined:
		s.node = said.Node
		f.Nodes++
	case beat:
		if c.silent[s.node].thawed {
			delete(c.silent, s.node) // it was not removed
		}
	case removed:
		f.Removed++
		was, silent := c.silent[said.Node]
		if silent {
			c.removals = append(c.removals, time.Since(was.since))
		} else if slices.ContainsFunc(c.seats, func(s *seat) bool { return s.p != nil && s.node == said.Node }) {
			f.Needless++
		}
	case claimed:
		c.owned[said.Plan] = time.Now()
	case taken:
		f.Repeated += said.Rounds - 1
		if said.From != s.node {
			f.Takeovers++
			c.from[claim{said.Plan, said.Epoch}] = said.From
		}
	case picked:
		at := claim{said.Plan, said.Epoch}
		if owner, known := c.silent[c.from[at]]; known {
			// A node that was frozen may still claim plans before it learns that it is fenced.
			since := owner.since
			if owned := c.owned[said.Plan]; owned.After(since) {
				since = owned
			}
			c.resumptions = append(c.resumptions, time.Since(since))
		}
		delete(c.from, at)
		c.owned[said.Plan] = time.Now()
		if c.recent = append(c.recent, said.Plan); len(c.recent) > 100 {
			c.recent = c.recent[1:]
		}
	case left:
		f.LetGo[said.Told]++
	case ended:
		f.Ended++
		delete(c.owned, said.Plan)
	case created, stopAsked:
		switch {
		case !said.End:
			return
		case said.What == created:
			f.Plans++
		default:
			f.StopRequests++
		}
		s.pending--
	case problem:
		if f.Problems++; len(f.Such) < 10 {
			f.Such = append(f.Such, said.Error)
		}
	}
	if wrong {
		f.add(finding{"error", said.Plan, fmt.Sprintf("%s: %s", said.What, said.Error)})
	}
}

// seatFor returns a random process that has joined and is not frozen, or nil.
func (c *chaos) seatFor(r *rand.Rand) *seat {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range r.Perm(len(c.seats)) {
		if s := c.seats[i]; s.p != nil && s.node != uuid.Nil && !s.frozen {
			return s
		}
	}
	return nil
}

// tell sends a command to a process. If the process dies, nobody carries the command out.
func (c *chaos) tell(s *seat, order command) {
	c.mu.Lock()
	p := s.p
	if p != nil {
		s.pending++
	}
	c.mu.Unlock()
	if p != nil {
		_ = p.send(order)
	}
}

// submit lets random nodes create plans at a steady rate, and request that some of them stop.
func (c *chaos) submit(ctx context.Context) {
	r := rand.New(rand.NewPCG(c.cfg.seed, 1<<32))
	start := time.Now()
	for i := range c.cfg.plans {
		at := start.Add(c.cfg.chaos * time.Duration(i) / time.Duration(c.cfg.plans))
		s := c.seatFor(r)
		for sleep.For(ctx, max(time.Until(at), 0)) && s == nil {
			at = time.Now().Add(100 * time.Millisecond)
			s = c.seatFor(r)
		}
		if ctx.Err() != nil {
			return
		}
		c.tell(s, c.plan(r))
		if plan := c.oneOf(r); r.IntN(30) == 0 && plan != uuid.Nil {
			c.tell(s, command{Stop: plan})
		}
	}
}

// plan returns the command to create a random plan.
func (c *chaos) plan(r *rand.Rand) command {
	return command{Submit: r.Uint64(), Pace: c.cfg.interval}
}

// oneOf returns one of the plans that were picked up lately.
func (c *chaos) oneOf(r *rand.Rand) uuid.UUID {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.recent) == 0 {
		return uuid.Nil
	}
	return c.recent[r.IntN(len(c.recent))]
}

// disturb kills and freezes random processes, and lets some leave. Frozen processes continue when it is over.
func (c *chaos) disturb(ctx context.Context, frozen *sync.WaitGroup) {
	r := rand.New(rand.NewPCG(c.cfg.seed, 1<<33))
	for sleep.For(ctx, time.Duration(r.ExpFloat64()*float64(c.cfg.every))) {
		s := c.seatFor(r)
		if s == nil {
			continue
		}
		switch r.IntN(10) {
		case 0: // a process that submits a plan and dies
			c.tell(s, c.plan(r))
			sleep.For(ctx, time.Duration(r.IntN(50))*time.Millisecond)
			c.kill(s)
		case 1, 2, 3:
			c.kill(s)
		case 4, 5, 6, 7:
			p := c.freeze(s)
			least := shortestFreeze(c.cfg.ttl)
			long := least + time.Duration(r.Int64N(int64(longestFreeze(c.cfg.ttl)-least)))
			frozen.Go(func() {
				sleep.For(ctx, long)
				c.thaw(s, p)
			})
		default:
			c.leave(s)
		}
	}
}

func (c *chaos) kill(s *seat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.p == nil || s.p.kill() != nil {
		return
	}
	s.p = nil
	c.figures.Kills++
	c.falls(s)
}

// falls notes that a node is silent from now on. The caller holds the lock.
func (c *chaos) falls(s *seat) {
	if was, known := c.silent[s.node]; !known || was.thawed {
		c.silent[s.node] = silence{since: time.Now()}
	}
}

// freeze stops a process with SIGSTOP.
func (c *chaos) freeze(s *seat) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := s.p
	if p == nil || p.cmd.Process.Signal(syscall.SIGSTOP) != nil {
		return nil
	}
	s.frozen = true
	c.figures.Freezes++
	c.falls(s)
	return p
}

// thaw lets a process continue, whether or not it is still the one of the seat.
func (c *chaos) thaw(s *seat, p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p == nil || p.cmd.Process.Signal(syscall.SIGCONT) != nil || s.p != p {
		return
	}
	s.frozen = false
	if was, known := c.silent[s.node]; known {
		was.thawed = true
		c.silent[s.node] = was
	}
}

// leave lets a process leave the fleet.
func (c *chaos) leave(s *seat) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.p == nil {
		return
	}
	s.p.finish()
	s.p = nil
	c.figures.Leaves++
}

// limit is how long no plan may make progress before the chaos gives up.
func (c *chaos) limit() time.Duration { return 2*time.Minute + 4*c.cfg.ttl }

// drain waits until all plans are final, or none makes progress.
func (c *chaos) drain(ctx context.Context) {
	for ctx.Err() == nil && c.idle() < c.limit() {
		if c.pending() == 0 {
			open, err := storage.Collect(c.vault.Search(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}))
			if err == nil && len(open) == 0 {
				return
			}
		}
		sleep.For(ctx, c.cfg.interval/2)
	}
}

func (c *chaos) idle() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.stirred)
}

// pending returns how many commands are being carried out.
func (c *chaos) pending() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.seats {
		n += s.pending
	}
	return n
}

// rest waits until the fleet has forgotten its dead, and the requests to stop plans.
func (c *chaos) rest(ctx context.Context) {
	waited := false
	for until := time.Now().Add(c.limit()); ctx.Err() == nil; sleep.For(ctx, c.cfg.interval/2) {
		found, stops := c.remains(ctx)
		switch {
		case len(found) == 0:
			return
		case stops && !waited:
			waited = true
			_ = c.wait(ctx, tidyAfter)
			until = time.Now().Add(c.limit())
		case time.Now().After(until):
			c.mu.Lock()
			defer c.mu.Unlock()
			c.figures.add(found...)
			return
		}
	}
}

// remains returns what is left of dead nodes, and whether stop requests are.
func (c *chaos) remains(ctx context.Context) (found []finding, stops bool) {
	r, err := c.vault.Roster(ctx)
	if err != nil {
		return []finding{{What: half, Detail: oneLine(err)}}, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range r.Members {
		if !slices.ContainsFunc(c.seats, func(s *seat) bool { return s.node == m.ID }) {
			found = append(found, finding{What: leftOver, Detail: fmt.Sprintf("the record of node %s (%s), which is dead", m.ID, m.Name)})
		}
	}
	for _, s := range r.Stops {
		found = append(found, finding{leftOver, s.Plan, "a stop request"})
	}
	return found, len(r.Stops) > 0
}

// now returns a copy of the figures.
func (c *chaos) now() fleetFigures {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.figures
	f.LetGo, f.Violations = maps.Clone(f.LetGo), maps.Clone(f.Violations)
	f.Calls, f.Again = c.ledger.count()
	for _, s := range c.seats {
		f.Requests, f.Faults, f.Refused = f.Requests+s.last.Requests, f.Faults+s.last.Faults, f.Refused+s.last.Refused
		if !s.began.IsZero() {
			f.nodeHours += time.Since(s.began).Hours()
		}
	}
	f.PerNode, f.PerHour = float64(f.Requests)/float64(max(1, f.Processes)), float64(f.Requests)/max(f.nodeHours, 1e-6)
	f.Resumption, f.Removal = timesOf(c.resumptions), timesOf(c.removals)
	return f
}

// quantile returns the nth percentile of sorted times, in seconds.
func quantile(sorted []time.Duration, n int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[max(0, (len(sorted)*n+99)/100-1)].Seconds()
}

// measure updates the time and returns a copy of the figures.
func (c *chaos) measure(started time.Time) fleetFigures {
	c.mu.Lock()
	c.figures.Seconds = time.Since(started).Seconds()
	c.mu.Unlock()
	return c.now()
}

// judge compares the vault with what the nodes reported, after all of them have left.
func (c *chaos) judge(ctx context.Context) error {
	there, found, err := c.inspect(ctx, c.vault, c.order.Grace)
	if err != nil {
		return err
	}
	remains, _ := c.remains(ctx)
	found = slices.Concat(found, remains, c.ledger.judge(there))
	c.mu.Lock()
	defer c.mu.Unlock()
	f := &c.figures
	f.Plans, f.Ended = len(there), 0
	for _, p := range there {
		if p != nil && p.State.Status.Final() {
			f.Ended++
		}
	}
	f.add(found...)
	return f.err("chaos")
}
