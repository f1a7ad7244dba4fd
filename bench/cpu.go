package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// cpuVault is the vault that listings and Recovery are measured in.
var cpuVault = shape{plans: 5000, days: 1}

// cpuBudgets holds the budgets of the rows of -cpu: how many times the floor's processor time an operation may
// take, with the account's key and with a token. They are a quarter to a half above what it takes, for machines that have
// other work.
var cpuBudgets = map[string]struct{ key, token float64 }{
	"Create, S":                              {1.75, 2.25},
	"Create, M":                              {1.7, 2.05},
	"Create, L":                              {1.7, 1.95},
	"UpdateAction, M":                        {1.75, 2.2},
	"UpdatePlan, running, M":                 {2.3, 2.75},
	"UpdatePlan, final, M":                   {9.5, 11},
	"Exists, M":                              {0.8, 0.95},
	"Read, not started, M":                   {9.8, 10.8},
	"Read, running, all actions changed, M":  {2.05, 2.25},
	"Read, running, all actions changed, L":  {0.75, 0.8},
	"Read, final, M":                         {9.8, 10.8},
	"Delete, S":                              {1.05, 1.2},
	"Delete, M":                              {0.9, 1.05},
	"List(all), 5000 plans in 1 day":         {0.2, 0.2},
	"List(10), 5000 plans in 1 day":          {0.35, 0.4},
	"Search by ID, 5000 plans in 1 day":      {1.9, 2.3},
	"Search Running, 5000 plans in 1 day":    {0.8, 0.95},
	"Search NotStarted, 5000 plans in 1 day": {0.5, 0.55},
	"Recovery, 5000 plans in 1 day":          {1.25, 1.3},
}

// cpuRows returns the rows of -cpu.
func cpuRows() (rows []row) {
	for _, o := range onPlans() {
		for _, s := range sizes() {
			rows = append(rows, row{operation: o, size: s})
		}
	}
	poll := operation{name: "Search NotStarted", prepare: found(0, func(fill.Filling) query {
		return matching(storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}})
	})}
	for _, o := range append(inVaults(), poll) {
		rows = append(rows, row{operation: o, vault: cpuVault})
	}
	return slices.DeleteFunc(rows, func(r row) bool { return cpuBudgets[r.String()].key == 0 })
}

// effort says how exactly processor time is measured.
type effort struct {
	rounds int
	// each is how long a round repeats the vault's operation, and the floor.
	each time.Duration
}

// compare measures the processor time of the rows beside the floor. Both run by turns in this process, on one
// processor, and get recorded answers, so that no time of a service is in either.
func compare(ctx context.Context, cfg config, stdout io.Writer) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e := effort{rounds: 7, each: 60 * time.Millisecond}
	if cfg.short {
		e = effort{rounds: 1}
	}
	var cred azcore.TokenCredential
	if cfg.token {
		cred = staticToken{}
	}
	if !cfg.list {
		fmt.Fprintf(stdout, cpuFormat, "operation", "requests", "CPU µs (min–max)", "floor µs (min–max)", "ratio/budget", "bytes/floor", "allocs/floor", "")
	}
	err := eachRow(ctx, cfg, cpuRows(), stdout, func(r row) error {
		t := &tape{}
		op, floor, err := r.record(ctx, t, cred)
		if err == nil {
			err = weigh(ctx, e, op, floor)
		}
		if err != nil {
			return err
		}
		most := cpuBudgets[r.String()].key
		if cfg.token {
			most = cpuBudgets[r.String()].token
		}
		return verdict(stdout, cfg.short, r, len(t.requests), op, floor, most, "")
	})
	if cfg.token { // an engine sends no requests
		return err
	}
	return errors.Join(err, eachRow(ctx, cfg, cpuOfEngine(), stdout, func(r engineRow) error {
		return r.compare(ctx, cfg.short, e, stdout)
	}))
}

const cpuFormat = "%-40s %8v %26s %26s %13s %19s %19s%s\n"

// verdict prints a row, and more that is said of it. Its error says that the operation takes more of the floor's processor
// time than the most that it may.
func verdict(stdout io.Writer, short bool, r fmt.Stringer, requests int, op, floor *side, most float64, more string) error {
	ratio := op.ratio(floor)
	fmt.Fprintf(stdout, cpuFormat, r, requests, op, floor, fmt.Sprintf("%.2f/%.2f", ratio, most),
		fmt.Sprintf("%d/%d", op.bytes, floor.bytes), fmt.Sprintf("%d/%d", op.objects, floor.objects), more)
	if ratio > most && !short {
		return fmt.Errorf("over budget: %.2f times the floor's processor time of %.2f", ratio, most)
	}
	return nil
}

// weigh measures an operation and its floor by turns.
func weigh(ctx context.Context, e effort, op, floor *side) error {
	for range e.rounds {
		for _, s := range []*side{op, floor} {
			if err := s.round(ctx, e.each); err != nil {
				return err
			}
		}
	}
	return errors.Join(op.allocate(ctx), floor.allocate(ctx))
}

// tokenEndpoint is where the emulator takes tokens, which are sent over https only.
const tokenEndpoint = "https://devstoreaccount1.blob.core.windows.net"

// staticToken is a credential whose token is as long as those of Entra ID, and lasts.
type staticToken struct{}

var _ azcore.TokenCredential = staticToken{}

func (staticToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: strings.Repeat("token", 300), ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

// record runs the row's operation twice on an emulator and records the second run: a vault remembers, for
// instance, which containers exist. It returns the operation and its floor, both on the tape.
func (r row) record(ctx context.Context, t *tape, cred azcore.TokenCredential) (op, floor *side, err error) {
	server := emulator.New(emulator.WithoutLog())
	s := &scene{size: r.size}
	if r.vault.plans > 0 {
		s.filling = fillingAt(r.vault, time.Now().UTC().Truncate(24*time.Hour).Add(-6*time.Hour))
		if err := s.filling.FillServer(ctx, server, vaultName); err != nil {
			return nil, nil, err
		}
	}
	t.record(server.Transport())
	options := azblob.Options{ClientOptions: policy.ClientOptions{Transport: t}, Concurrency: concurrency}
	if cred == nil {
		s.vault, err = azblob.NewFromConnectionString(ctx, vaultName, server.ConnectionString(), plantest.Register(), options)
	} else {
		s.vault, err = azblob.New(ctx, vaultName, tokenEndpoint, cred, plantest.Register(), options)
	}
	if err != nil {
		return nil, nil, err
	}
	for range 2 {
		do, err := r.prepare(ctx, s)
		if err != nil {
			return nil, nil, err
		}
		t.record(server.Transport())
		op = &side{do: do, again: s.again}
		if err := op.once(ctx); err != nil {
			return nil, nil, err
		}
	}
	t.play()
	bare, err := newFloor(server.ConnectionString(), cred, t)
	if err != nil {
		return nil, nil, err
	}
	replay, err := bare.replay(t.requests)
	return op, &side{do: replay}, err
}

// side is one of the two that are compared.
type side struct {
	do step
	// again undoes what the operation has changed in memory; nil for nothing. Its time does not count.
	again          func()
	took           []time.Duration // an operation, in each round
	bytes, objects uint64          // allocated by one operation
}

func (s *side) once(ctx context.Context) error {
	if s.again != nil {
		s.again()
	}
	return s.do(ctx)
}

// round repeats the operation and records its mean processor time. Collecting the garbage that it makes is
// part of it.
func (s *side) round(ctx context.Context, each time.Duration) error {
	runtime.GC()
	var sum time.Duration
	n := 0
	for begun := time.Now(); n == 0 || time.Since(begun) < each; n++ {
		if s.again != nil {
			s.again()
		}
		before := processorTime()
		if err := s.do(ctx); err != nil {
			return err
		}
		sum += processorTime() - before
	}
	s.took = append(s.took, sum/time.Duration(n))
	return nil
}

// allocate measures what one operation allocates.
func (s *side) allocate(ctx context.Context) error {
	var before, after runtime.MemStats
	if s.again != nil {
		s.again()
	}
	runtime.ReadMemStats(&before)
	err := s.do(ctx)
	runtime.ReadMemStats(&after)
	s.bytes, s.objects = after.TotalAlloc-before.TotalAlloc, after.Mallocs-before.Mallocs
	return err
}

// median returns the median of the rounds.
func (s *side) median() time.Duration { return slices.Sorted(slices.Values(s.took))[len(s.took)/2] }

func (s *side) ratio(floor *side) float64 {
	return float64(s.median()) / float64(max(floor.median(), 1))
}

func (s *side) String() string {
	return fmt.Sprintf("%d (%d–%d)", s.median().Microseconds(), slices.Min(s.took).Microseconds(), slices.Max(s.took).Microseconds())
}
