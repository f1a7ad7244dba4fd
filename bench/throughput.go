package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
)

const (
	workers   = 64              // how many plans are worked on concurrently
	driveTime = 5 * time.Second // how long each load is repeated
)

// load is an operation that is repeated on many plans concurrently.
type load struct {
	name    string
	size    size
	prepare prepare
}

func (l load) String() string { return l.name }

func loads() []load {
	small, mid := sizes()[0], sizes()[1]
	again := func(_ context.Context, s *scene) (step, error) {
		return func(ctx context.Context) error { return s.vault.Create(ctx, s.size.plan()) }, nil
	}
	return []load{
		{"create S", small, again},
		{"create M", mid, again},
		{"update action", small, onStored(workflow.Running, none, updateAction)},
		{"read S", small, onStored(workflow.NotStarted, none, readPlan)},
		{"read running M", mid, onStored(workflow.Running, none, readPlan)},
	}
}

// throughput is the result of a load. The process that drives it reports it as JSON.
type throughput struct {
	Operations  int64
	Requests    int
	Took        time.Duration
	Allocations uint64
	// cpu is the processor time of the process, including its start.
	cpu time.Duration
}

// drive measures each load through a vault in another process, which keeps its processor time and allocations apart from
// those of the emulator. The other process is this program with the flag -worker.
func drive(ctx context.Context, cfg config, stdout, stderr io.Writer) error {
	if cfg.worker != "" {
		return eachRow(ctx, cfg, loads(), stdout, func(l load) error {
			t, err := l.driveHere(ctx, cfg.worker, workers, driveTime)
			return errors.Join(err, json.NewEncoder(stdout).Encode(t))
		})
	}
	port, err := emulator.New(emulator.WithoutLog()).Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	defer port.Close()
	if !cfg.list {
		fmt.Fprintf(stdout, "%-16s %12s %12s %12s %12s %12s\n", "load", "operations/s", "requests/s", "ms each", "CPU µs each", "allocs each")
	}
	return eachRow(ctx, cfg, loads(), stdout, func(l load) error {
		t, err := l.driveApart(ctx, port.ConnectionString(), stderr)
		if err != nil {
			return err
		}
		n, seconds := float64(t.Operations), t.Took.Seconds()
		fmt.Fprintf(stdout, "%-16s %12.0f %12.0f %12.2f %12.0f %12.0f\n", l, n/seconds, float64(t.Requests)/seconds,
			workers*seconds*1000/n, float64(t.cpu.Microseconds())/n, float64(t.Allocations)/n)
		return nil
	})
}

// driveApart drives a load in another process of this program.
func (l load) driveApart(ctx context.Context, connectionString string, stderr io.Writer) (t throughput, err error) {
	self, err := os.Executable()
	if err != nil {
		return t, err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "-throughput", "-run", "^"+l.name+"$", "-worker", connectionString)
	cmd.Stdout, cmd.Stderr = &out, stderr
	if err := cmd.Run(); err != nil {
		return t, err
	}
	err = json.Unmarshal(out.Bytes(), &t)
	t.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return t, err
}

// driveHere drives a load in this process.
func (l load) driveHere(ctx context.Context, connectionString string, workers int, long time.Duration) (t throughput, err error) {
	connections := http.DefaultTransport.(*http.Transport).Clone()
	connections.MaxIdleConns, connections.MaxIdleConnsPerHost = concurrency, concurrency // like the vault's own client
	defer connections.CloseIdleConnections()
	m := newMeter(&http.Client{Transport: connections})
	v, err := azblob.NewFromConnectionString(ctx, vaultName, connectionString, plantest.Register(),
		azblob.Options{ClientOptions: policy.ClientOptions{Transport: m}, Concurrency: concurrency, Observer: m.observer()})
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, v.Close(ctx)) }()
	steps := make([]step, workers)
	for i := range steps {
		if steps[i], err = l.prepare(ctx, &scene{vault: v, size: l.size}); err != nil {
			return t, err
		}
	}
	m.reset()
	var done atomic.Int64
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	started := time.Now()
	g, working := errgroup.WithContext(ctx)
	for _, do := range steps {
		g.Go(func() error {
			for {
				if err := do(working); err != nil {
					return err
				}
				done.Add(1)
				if time.Since(started) >= long {
					return nil
				}
			}
		})
	}
	err = g.Wait()
	runtime.ReadMemStats(&after)
	return throughput{
		Operations: done.Load(), Requests: m.counts().requests.Total(), Took: time.Since(started), Allocations: after.Mallocs - before.Mallocs,
	}, err
}
