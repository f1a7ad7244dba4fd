package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// load is an operation that is repeated on many plans concurrently.
type load struct {
	name    string
	size    size
	prepare prepare
}

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

// throughput is the result of a load.
type throughput struct {
	Load        string        `json:"load"`
	Operations  int64         `json:"operations"`
	Requests    int           `json:"requests"`
	Took        time.Duration `json:"tookNanoseconds"`
	Allocations uint64        `json:"allocations"`
	// CPU is the processor time of the process, including its start; 0 if it was not measured.
	CPU time.Duration `json:"cpuNanoseconds,omitzero"`
}

// drive measures each load through a vault of its own. Without an account the service is an emulator behind a
// socket, and each vault runs in another process, which keeps its processor time and allocations apart from
// the emulator's.
func drive(ctx context.Context, cfg config, stdout, stderr io.Writer) error {
	one := func(l load) (throughput, error) { return driveHere(ctx, cfg, l) }
	if cfg.connectionString == "" {
		server := emulator.New(emulator.WithoutLog())
		port, err := server.Listen("127.0.0.1:0")
		if err != nil {
			return err
		}
		defer port.Close()
		one = func(l load) (throughput, error) { return driveApart(ctx, cfg, l, port.ConnectionString(), stderr) }
	}
	chosen := slices.DeleteFunc(loads(), func(l load) bool { return !cfg.run.MatchString(l.name) })
	if !cfg.json {
		fmt.Fprintf(stdout, "%-16s %12s %12s %12s %12s %12s\n", "load", "operations/s", "requests/s", "ms each", "CPU µs each", "allocs each")
	}
	for _, l := range chosen {
		if cfg.list {
			fmt.Fprintln(stdout, l.name)
			continue
		}
		t, err := one(l)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		if cfg.json {
			if err := json.NewEncoder(stdout).Encode(t); err != nil {
				return err
			}
			continue
		}
		n, seconds := float64(t.Operations), t.Took.Seconds()
		cpu := "-"
		if t.CPU > 0 {
			cpu = fmt.Sprintf("%.0f", float64(t.CPU.Microseconds())/n)
		}
		fmt.Fprintf(stdout, "%-16s %12.0f %12.0f %12.2f %12s %12.0f\n", t.Load, n/seconds, float64(t.Requests)/seconds,
			float64(cfg.workers)*seconds*1000/n, cpu, float64(t.Allocations)/n)
	}
	return nil
}

// driveApart drives a load in another process of this program.
func driveApart(ctx context.Context, cfg config, l load, connectionString string, stderr io.Writer) (t throughput, err error) {
	self, err := os.Executable()
	if err != nil {
		return t, err
	}
	args := []string{
		"-throughput", "-json", "-run", "^" + l.name + "$", "-connection-string", connectionString,
		"-duration", cfg.duration.String(), "-workers", fmt.Sprint(cfg.workers),
	}
	if cfg.cpuProfile != "" {
		args = append(args, "-cpuprofile", cfg.cpuProfile)
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stdout, cmd.Stderr = &out, stderr
	if err := cmd.Run(); err != nil {
		return t, err
	}
	err = json.Unmarshal(out.Bytes(), &t)
	t.CPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return t, err
}

// driveHere drives a load in this process.
func driveHere(ctx context.Context, cfg config, l load) (t throughput, err error) {
	a, err := openAccount(cfg.connectionString)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, a.close(context.WithoutCancel(ctx))) }()
	m := newMeter(a.transport)
	v, err := azblob.NewFromConnectionString(ctx, a.newPrefix(), cfg.connectionString, plantest.Register(), azblob.WithTransport(m), azblob.WithConcurrency(concurrency), azblob.WithObserver(m.observer()))
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, v.Close(ctx)) }()

	steps := make([]step, cfg.workers)
	for i := range steps {
		if steps[i], err = l.prepare(ctx, &scene{vault: v, size: l.size}); err != nil {
			return t, err
		}
	}
	if cfg.cpuProfile != "" {
		f, err := os.Create(l.name + " " + cfg.cpuProfile)
		if err != nil {
			return t, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return t, err
		}
		defer pprof.StopCPUProfile()
	}
	m.reset()
	var done atomic.Int64
	before, started := allocations(), time.Now()
	g, working := errgroup.WithContext(ctx)
	for _, do := range steps {
		g.Go(func() error {
			for {
				if err := do(working); err != nil {
					return err
				}
				done.Add(1)
				if time.Since(started) >= cfg.duration {
					return nil
				}
			}
		})
	}
	err = g.Wait()
	return throughput{
		Load: l.name, Operations: done.Load(), Requests: m.end().requests.Total(),
		Took: time.Since(started), Allocations: allocations() - before,
	}, err
}
