package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// cpuRow is an operation whose processor time is compared with the floor: that of a bare client of the SDK
// which sends the same requests.
type cpuRow struct {
	row
	// most is the budget: how many times the floor's processor time the operation may take.
	most float64
}

// cpuVault is the vault that listings and Recovery are measured in.
var cpuVault = shape{5000, 1}

// cpuBudgets holds the budgets of the rows of -cpu: how many times the floor's processor time an operation may
// take. They are a quarter to a half above what it takes, for machines that have other work.
var cpuBudgets = map[string]float64{
	"Create, S":                              1.8,
	"Create, M":                              1.7,
	"Create, L":                              1.7,
	"UpdateAction, M":                        1.8,
	"UpdatePlan, running, M":                 1.9,
	"UpdatePlan, final, M":                   4.6,
	"Exists, M":                              1.25,
	"Read, not started, M":                   8,
	"Read, running, all actions changed, M":  1.9,
	"Read, running, all actions changed, L":  0.85,
	"Read, final, M":                         8.4,
	"Delete, M":                              1.4,
	"List(all), 5000 plans in 1 day":         0.17,
	"List(10), 5000 plans in 1 day":          0.3,
	"Search by ID, 5000 plans in 1 day":      2,
	"Search Running, 5000 plans in 1 day":    0.95,
	"Search NotStarted, 5000 plans in 1 day": 0.5,
	"Recovery, 5000 plans in 1 day":          1.55,
}

// cpuRows returns the rows of -cpu.
func cpuRows() (rows []cpuRow) {
	add := func(r row) {
		if most, wanted := cpuBudgets[r.String()]; wanted {
			rows = append(rows, cpuRow{r, most})
		}
	}
	for _, o := range onPlans() {
		for _, s := range sizes() {
			add(row{operation: o, size: s})
		}
	}
	poll := operation{name: "Search NotStarted", prepare: found(0, func(fill.Filling) query {
		return matching(storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}})
	})}
	for _, o := range append(inVaults(), poll) {
		add(row{operation: o, vault: cpuVault})
	}
	return rows
}

// spent is what one operation takes.
type spent struct {
	CPU         time.Duration `json:"cpuNanoseconds"` // the median of the rounds
	Least       time.Duration `json:"leastNanoseconds"`
	Most        time.Duration `json:"mostNanoseconds"`
	Bytes       uint64        `json:"bytes"` // allocated
	Allocations uint64        `json:"allocations"`
}

// cpuResult is the measurement of one row.
type cpuResult struct {
	Row      string  `json:"row"`
	Requests int     `json:"requests"`
	Vault    spent   `json:"vault"`
	Floor    spent   `json:"floor"`
	Ratio    float64 `json:"ratio"`  // of the medians
	Budget   float64 `json:"budget"` // of the ratio
	Over     bool    `json:"over,omitzero"`
}

// effort says how exactly processor time is measured.
type effort struct {
	rounds int
	// each is how long a round repeats the vault's operation, and the floor.
	each time.Duration
	// judge holds the ratios against their budgets.
	judge bool
}

func (c config) effort() effort {
	if c.short {
		return effort{rounds: 1}
	}
	return effort{rounds: 7, each: 60 * time.Millisecond, judge: true}
}

// compare measures the processor time of the rows beside the floor. Both run by turns in this process, on one
// processor, and get recorded answers, so that no time of a service is in either.
func compare(ctx context.Context, cfg config, stdout io.Writer) error {
	if _, err := processorTime(); err != nil {
		return err
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	rows := slices.DeleteFunc(cpuRows(), func(r cpuRow) bool { return !cfg.run.MatchString(r.String()) })
	if !cfg.list && !cfg.json {
		fmt.Fprintf(stdout, "%-40s %8s %26s %26s %13s %19s %19s\n", "operation", "requests", "CPU µs (min–max)", "floor µs (min–max)", "ratio/budget", "bytes/floor", "allocs/floor")
	}
	var errs []error
	for _, r := range rows {
		if cfg.list {
			fmt.Fprintln(stdout, r)
			continue
		}
		res, err := r.compare(ctx, cfg.effort())
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r, err))
			continue
		}
		if res.Over {
			errs = append(errs, fmt.Errorf("%s exceeds its budget: %.2f times the floor's processor time of %.2f", r, res.Ratio, res.Budget))
		}
		if err := res.print(cfg, stdout); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

func (r cpuResult) print(cfg config, w io.Writer) error {
	if cfg.json {
		return json.NewEncoder(w).Encode(r)
	}
	micros := func(s spent) string {
		return fmt.Sprintf("%d (%d–%d)", s.CPU.Microseconds(), s.Least.Microseconds(), s.Most.Microseconds())
	}
	over := ""
	if r.Over {
		over = "  OVER BUDGET"
	}
	_, err := fmt.Fprintf(w, "%-40s %8d %26s %26s %13s %19s %19s%s\n", r.Row, r.Requests, micros(r.Vault), micros(r.Floor),
		fmt.Sprintf("%.2f/%.2f", r.Ratio, r.Budget), fmt.Sprintf("%d/%d", r.Vault.Bytes, r.Floor.Bytes),
		fmt.Sprintf("%d/%d", r.Vault.Allocations, r.Floor.Allocations), over)
	return err
}

// compare records the row's operation on an emulator and measures it and its floor.
func (r cpuRow) compare(ctx context.Context, e effort) (res cpuResult, err error) {
	t := &tape{}
	op, floor, err := r.record(ctx, t)
	if err != nil {
		return res, err
	}
	return r.weigh(ctx, e, t, op, floor)
}

// weigh measures an operation and its floor, whose answers are on the tape.
func (r cpuRow) weigh(ctx context.Context, e effort, t *tape, op, floor repeated) (res cpuResult, err error) {
	sides := [2]*side{{do: op}, {do: floor}}
	for range e.rounds {
		for _, s := range sides {
			if err := s.round(ctx, e.each); err != nil {
				return res, err
			}
		}
	}
	for _, s := range sides {
		if err := s.allocate(ctx); err != nil {
			return res, err
		}
	}
	res = cpuResult{Row: r.String(), Requests: len(t.sent()), Vault: sides[0].spent(), Floor: sides[1].spent(), Budget: r.most}
	res.Ratio = float64(res.Vault.CPU) / float64(max(res.Floor.CPU, 1))
	res.Over = e.judge && res.Ratio > res.Budget
	return res, nil
}

// record runs the row's operation twice on an emulator and records the second run: a vault remembers, for
// instance, which containers exist. It returns the operation and its floor, both on the tape.
func (r cpuRow) record(ctx context.Context, t *tape) (op, floor repeated, err error) {
	server := emulator.New(emulator.WithoutLog())
	s := &scene{size: r.size}
	if r.vault.plans > 0 {
		s.filling = fillingAt(r.vault, time.Now().UTC().Truncate(24*time.Hour).Add(-6*time.Hour))
		if err := s.filling.FillServer(ctx, server, vaultName); err != nil {
			return op, floor, err
		}
	}
	t.record(server.Transport())
	if s.vault, err = azblob.NewFromConnectionString(ctx, vaultName, server.ConnectionString(), plantest.Register(),
		azblob.WithTransport(t), azblob.WithConcurrency(concurrency)); err != nil {
		return op, floor, err
	}
	for range 2 {
		do, err := r.prepare(ctx, s)
		if err != nil {
			return op, floor, err
		}
		t.record(server.Transport())
		op = repeated{do, s.again}
		if err := op.once(ctx); err != nil {
			return op, floor, err
		}
	}
	t.play()
	bare, err := newFloor(server.ConnectionString(), t)
	if err != nil {
		return op, floor, err
	}
	floor.do, err = bare.replay(t.sent())
	return op, floor, err
}

// repeated is an operation that can be repeated.
type repeated struct {
	do step
	// again undoes what the operation has changed in memory; nil for nothing. Its time does not count.
	again func()
}

func (r repeated) once(ctx context.Context) error {
	if r.again != nil {
		r.again()
	}
	return r.do(ctx)
}

// side is one of the two that are compared.
type side struct {
	do             repeated
	took           []time.Duration // an operation, in each round
	bytes, objects uint64
}

// round repeats the operation and records its mean processor time. Collecting the garbage that it makes is
// part of it.
func (s *side) round(ctx context.Context, each time.Duration) error {
	runtime.GC()
	var sum time.Duration
	n := 0
	for begun := time.Now(); n == 0 || time.Since(begun) < each; n++ {
		if s.do.again != nil {
			s.do.again()
		}
		before, _ := processorTime()
		if err := s.do.do(ctx); err != nil {
			return err
		}
		after, _ := processorTime()
		sum += after - before
	}
	s.took = append(s.took, sum/time.Duration(n))
	return nil
}

// allocate measures what one operation allocates.
func (s *side) allocate(ctx context.Context) error {
	var before, after runtime.MemStats
	if s.do.again != nil {
		s.do.again()
	}
	runtime.ReadMemStats(&before)
	err := s.do.do(ctx)
	runtime.ReadMemStats(&after)
	s.bytes, s.objects = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	return err
}

func (s *side) spent() spent {
	slices.Sort(s.took)
	return spent{s.took[len(s.took)/2], s.took[0], s.took[len(s.took)-1], s.bytes, s.objects}
}
