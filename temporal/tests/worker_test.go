//go:build unix

package tests

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/temporal"
	"github.com/planvault/azblob/workflow"
)

// order is what a worker is told: where its account and its Temporal are, and how it works.
type order struct {
	Name             string // of the worker, in the ledger
	HostPort         string
	Namespace, Queue string
	Account, Folder  string
	AtOnce           int  // plans; 0 is no limit
	Fleet            bool // it is a node of a fleet, and does without Temporal
	Unsuited, Closed bool // it lacks the plugin; its vault is closed
}

const orderVariable = "TEMPORAL_WORKER"

// TestMain makes the test binary a worker if its environment has an order. The worker stops when standard input ends.
func TestMain(m *testing.M) {
	text := os.Getenv(orderVariable)
	if text == "" {
		os.Exit(m.Run())
	}
	var o order
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.process(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (o order) process(ctx context.Context) error {
	var c client.Client
	if !o.Fleet {
		var err error
		if c, err = client.Dial(client.Options{HostPort: o.HostPort, Namespace: o.Namespace, Logger: silent()}); err != nil {
			return err
		}
	}
	stop, err := o.start(ctx, c)
	if err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	return nil
}

func silent() log.Logger {
	return log.NewStructuredLogger(slog.New(slog.DiscardHandler))
}

// start starts a worker in this process, and returns what stops it.
func (o order) start(ctx context.Context, c client.Client) (stop func(), err error) {
	reg := registry.Must(o.step())
	if o.Unsuited {
		reg = registry.Must()
	}
	vault, err := azblob.NewFromConnectionString(ctx, "plans", o.Account, reg, azblob.Options{})
	if err != nil {
		return nil, err
	}
	options := engine.Options{
		Plans: cmp.Or(o.AtOnce, 1000), Drain: 2 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Crashes: 1000, // a kill is no fault of an action
		Observer: engine.Observer{Changed: func(_ context.Context, e engine.ChangedEvent) {
			if h := e.Object.Header(); h.State.Status.Final() {
				o.write(line{What: "stored", Plan: *h.PlanID, Action: *h.ID})
			}
		}, Left: func(_ context.Context, e engine.LeftEvent) {
			o.write(line{What: "left", Plan: e.Plan, Why: e.Err.Error()})
		}},
	}
	if o.Fleet {
		options.Fleet = &fleet.Options{Name: o.Name}
	}
	e, err := engine.New(vault, options)
	if err != nil {
		return nil, err
	}
	if o.Fleet {
		working, end := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- e.Run(working) }()
		return func() { end(); <-ended; _ = vault.Close(ctx) }, nil
	}
	if o.Closed {
		if err := vault.Close(ctx); err != nil {
			return nil, err
		}
	}
	settings := temporal.WorkerOptions(2 * time.Second)
	settings.MaxConcurrentActivityExecutionSize, settings.Identity = o.AtOnce, o.Name
	w := worker.New(c, o.Queue, settings)
	temporal.Register(w, temporal.Placer{Engine: e, Vault: vault, Client: c})
	return func() { w.Stop(); _ = vault.Close(ctx) }, w.Start()
}

// step is what an action does.
type step struct {
	Takes time.Duration
	Gate  string // the name of a file in the folder: it waits until there is one
	Until string // the name of a signal: the plan sleeps until it comes, or for an hour
}

// step returns the plugin. It writes to the ledger what it does.
func (o order) step() *engine.TypedPlugin[step, string] {
	return engine.Task("step", func(ctx context.Context, call engine.Call, req step) (string, error) {
		l := line{What: "begin", Plan: call.Plan, Action: call.Action, Epoch: call.Epoch}
		o.write(l)
		if req.Until != "" {
			if came, err := call.Signals(req.Until); err != nil || len(came) == 0 {
				return "", cmp.Or(err, engine.Later(time.Hour, nil))
			}
		}
		for begun := time.Now(); time.Since(begun) < req.Takes || req.Gate != "" && !exists(filepath.Join(o.Folder, req.Gate)); {
			select {
			case <-ctx.Done():
				l.What, l.Why = "cut", context.Cause(ctx).Error()
				o.write(l)
				return "", ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
		}
		l.What = "end"
		o.write(l)
		return o.Name, nil
	})
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

// line is one of the ledger.
type line struct {
	Who          string // the worker
	What         string // begin, end or cut: of a call of the plugin; stored: of an outcome; left: of the plan
	Plan, Action uuid.UUID
	Epoch        int64     `json:",omitzero"`
	Why          string    `json:",omitempty"`
	At           time.Time // all workers have one clock
}

// write adds a line to the ledger, which survives the process.
func (o order) write(l line) {
	l.Who, l.At = o.Name, time.Now()
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	f, err := os.OpenFile(filepath.Join(o.Folder, "ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return // the test has ended
	}
	_, _ = f.Write(append(text, '\n'))
	_ = f.Close()
}

// ledger returns all lines that there are, in the order in which they were written.
func (s *stage) ledger() (lines []line) {
	s.Helper()
	text, err := os.ReadFile(filepath.Join(s.folder, "ledger"))
	if err != nil && !os.IsNotExist(err) {
		s.Fatal(err)
	}
	for in := bufio.NewScanner(bytes.NewReader(text)); in.Scan(); {
		var l line
		if json.Unmarshal(in.Bytes(), &l) == nil { // a line may be half written
			lines = append(lines, l)
		}
	}
	return lines
}

// wait waits until the ledger has a line, and returns it.
func (s *stage) wait(what string, is func(line) bool) line {
	s.Helper()
	var found line
	s.until(what, func() bool {
		lines := s.ledger()
		i := slices.IndexFunc(lines, is)
		if i >= 0 {
			found = lines[i]
		}
		return i >= 0
	})
	return found
}

// until waits for something. It gives up after minutes, which no test takes.
func (s *stage) until(what string, is func() bool) {
	s.Helper()
	for begun := time.Now(); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Since(begun) > 4*time.Minute {
			s.Fatalf("waited in vain for %s; the ledger ends with %+v", what, s.ledger())
		}
	}
}

// open opens a gate of steps.
func (s *stage) open(gate string) {
	s.Helper()
	must(s.T, os.WriteFile(filepath.Join(s.folder, gate), nil, 0o600))
}

// process starts a worker that is a process. It ends with the test at the latest.
func (s *stage) process(o order) *exec.Cmd {
	s.Helper()
	text, err := json.Marshal(o)
	must(s.T, err)
	p := exec.Command(os.Args[0])
	p.Env = append(os.Environ(), orderVariable+"="+string(text))
	stderr, err := os.Create(filepath.Join(s.folder, o.Name+".stderr"))
	must(s.T, err)
	defer stderr.Close()
	p.Stderr = stderr
	in, err := p.StdinPipe()
	must(s.T, err)
	must(s.T, p.Start())
	s.Cleanup(func() {
		_ = in.Close()
		_ = p.Process.Kill()
		_ = p.Wait()
		if text, _ := os.ReadFile(stderr.Name()); len(text) > 0 {
			s.Logf("%s: %s", o.Name, text)
		}
	})
	return p
}

func (s *stage) signal(p *exec.Cmd, sig syscall.Signal) {
	s.Helper()
	must(s.T, p.Process.Signal(sig))
}

// planOf returns a plan of steps.
func planOf(blocks, sequences, actions int, req step) *workflow.Plan {
	p := &workflow.Plan{ID: workflow.NewV7(), Name: "steps"}
	for range blocks {
		b := &workflow.Block{Concurrency: sequences}
		for range sequences {
			q := &workflow.Sequence{}
			for range actions {
				q.Actions = append(q.Actions, &workflow.Action{Name: "step", Plugin: "step", Req: req, Timeout: 24 * time.Hour})
			}
			b.Sequences = append(b.Sequences, q)
		}
		p.Blocks = append(p.Blocks, b)
	}
	return p
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
