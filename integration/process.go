package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/conformance"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// A soak and a chaos run other processes of this program. A process gets its order on standard input, and a node of a
// fleet then commands. It reports messages on standard output. All of them are JSON.

// workerFlag makes this program a process of a soak or a fleet. It is internal.
const workerFlag = "-worker"

// order tells a process what to work on. It is never an argument, because it may hold a key.
type order struct {
	account
	Prefix string
	Grace  time.Duration
	Seed   uint64
	Faults bool
	// Interval makes the process a node of a fleet with this interval.
	Interval time.Duration
	// Client and Life make the stamps of this process unique.
	Client, Life int
}

// number returns the nth number of this process, which is unique in the run.
func (o order) number(n int64) int64 { return int64(o.Client)<<40 | int64(o.Life)<<24 | n }

const maxClients = 255 // a stamp has no room for more

// message is what a process reports. Calls of the vault or of a plugin are reported when they end, and with Begin before: a
// process that dies can't lose what it has written to a pipe.
type message struct {
	What   string
	Plan   uuid.UUID `json:",omitzero"`
	Object uuid.UUID `json:",omitzero"`

	Begin bool `json:",omitzero"`
	// Told is the kind of a call's error, "" for nil, and Error its text.
	Told, Error string `json:",omitzero"`
	// Requests, Faults and Refused count those of the process since its last message. Refused counts the plans that the
	// process owned when one of its updates was refused.
	Requests, Faults, Refused int `json:",omitzero"`

	// Objects are the objects of a plan that a client of a soak creates. It updates Object from one stamp to another.
	Objects  []uuid.UUID `json:",omitzero"`
	From, To stamp       `json:",omitzero"`

	// A node of a fleet reports itself, the former owner of a plan, the epoch, how often a takeover began, the call of
	// the plugin, what was stored, and the plan that it picked up.
	Node, Former uuid.UUID       `json:",omitzero"`
	Epoch, Call  int64           `json:",omitzero"`
	Rounds       int             `json:",omitzero"`
	Status       workflow.Status `json:",omitzero"`
	Results      []result        `json:",omitzero"`
	Picture      *picture        `json:",omitzero"`
}

// kinds are the errors of calls. The first one that matches decides.
var kinds = []struct {
	err  error
	name string
}{
	{fleet.ErrFenced, "fenced"},
	{engine.ErrDraining, "draining"},
	{fleet.ErrLeft, "draining"},
	{engine.ErrNotRunning, "not running"},
	{storage.ErrUnknown, "unknown"},
	{storage.ErrNotFound, "not found"},
	{storage.ErrConflict, "conflict"},
	{storage.ErrUnavailable, "unavailable"},
}

// wrong is the kind of an error that no process should see.
const wrong = "wrong"

// told returns the kind of an error of a call with this context.
func told(ctx context.Context, err error) string {
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.name
		}
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return "deadline"
	}
	return wrong
}

// worker is a process of a soak or a fleet, in that process.
type worker struct {
	order
	vault    *azblob.Vault
	faulty   *conformance.Faulty
	requests atomic.Int64
	refused  atomic.Int64
	stop     context.CancelFunc

	mu     sync.Mutex
	out    *json.Encoder
	faults int   // that were reported
	deaf   error // why nobody hears the reports
}

// isWorker reports whether the arguments are those of a process of a soak or a fleet.
func isWorker(args []string) bool { return len(args) == 1 && args[0] == workerFlag }

// runWorker works until standard input ends, and returns the exit code.
func runWorker(stdin io.Reader, stdout, stderr io.Writer) int {
	signal.Ignore(os.Interrupt) // the terminal sends it to all processes; the first one decides when to end
	if err := work(stdin, stdout); err != nil {
		fmt.Fprintln(stderr, "worker:", err)
		return exitFail
	}
	return exitPass
}

func work(stdin io.Reader, stdout io.Writer) (err error) {
	var o order
	in := json.NewDecoder(stdin)
	if err := in.Decode(&o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	w := &worker{order: o, stop: stop, out: json.NewEncoder(stdout)}
	t, err := newTarget(o.account, nil, newHTTPClient)
	if err != nil {
		return err
	}
	chance := 0.0
	if o.Faults {
		chance = 0.03
	}
	w.faulty = conformance.NewFaulty(t.transport, o.Seed, chance)
	run, observer := newClient(w).run, azblob.Observer{}
	if o.Interval > 0 {
		n := &node{worker: w, held: map[uuid.UUID]holding{}}
		run, observer = n.run, azblob.Observer{Conflict: n.conflicted}
	}
	if w.vault, err = t.dial(ctx, o.Prefix,
		azblob.WithGracePeriod(o.Grace), azblob.WithConcurrency(16), azblob.WithRetry(azblob.Retry{InitialInterval: 5 * time.Millisecond}),
		azblob.WithTransport(w.faulty),
		azblob.WithObserver(azblob.Tee(observer, azblob.Observer{Request: func(context.Context, azblob.RequestEvent) { w.requests.Add(1) }}))); err != nil {
		return err
	}
	err = run(ctx, in)
	w.faulty.Wait()
	return errors.Join(err, w.vault.Close(context.Background()), w.deaf)
}

// report writes a message. The process ends if nobody reads it.
func (w *worker) report(m message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	faults := w.faulty.Faults()
	m.Requests, m.Refused, m.Faults, w.faults = int(w.requests.Swap(0)), int(w.refused.Swap(0)), faults-w.faults, faults
	if err := w.out.Encode(m); err != nil {
		w.deaf = cmp.Or(w.deaf, err)
		w.stop()
	}
}

// call announces a call, makes it, and reports its outcome.
func (w *worker) call(ctx context.Context, m message, do func(context.Context) error) error {
	m.Begin = true
	w.report(m)
	err := do(ctx)
	if m.Begin = false; err != nil {
		m.Told, m.Error = told(ctx, err), oneLine(err)
	}
	w.report(m)
	return err
}

// process is another process of this program, as the first one sees it.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.Reader
	stderr bytes.Buffer
	killed atomic.Bool
}

// startProcess starts a process and sends it its order.
func startProcess(o order) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(program, workerFlag)}
	p.cmd.Stderr = &p.stderr
	stdin, errIn := p.cmd.StdinPipe()
	stdout, errOut := p.cmd.StdoutPipe()
	if err := errors.Join(errIn, errOut); err != nil {
		return nil, err
	}
	p.stdin, p.stdout = stdin, stdout
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.send(o)
	return p, nil
}

// send writes to the standard input of the process. If it fails, the process has ended, and listen says why.
func (p *process) send(what any) { _ = json.NewEncoder(p.stdin).Encode(what) }

// patience is how long a process may take to end.
const patience = 3 * time.Minute

// finish lets the process end what it does and exit. A process that hangs is killed, which is a failure.
func (p *process) finish() {
	_ = p.stdin.Close()
	time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
}

// kill ends the process with SIGKILL. It reports whether the process was alive.
func (p *process) kill() bool {
	p.killed.Store(true) // before listen can look
	alive := p.cmd.Process.Kill() == nil
	p.killed.Store(alive)
	return alive
}

// signal sends a signal. It reports whether the process was alive.
func (p *process) signal(s syscall.Signal) bool { return p.cmd.Process.Signal(s) == nil }

// listen calls hear for all messages of a process until it ends. It returns an error if the process was not killed and
// failed.
func (p *process) listen(hear func(message)) error {
	var heard error
	for in := json.NewDecoder(p.stdout); heard == nil; {
		var m message
		if heard = in.Decode(&m); heard == nil {
			hear(m)
		}
	}
	err := p.cmd.Wait()
	switch {
	case p.killed.Load():
		return nil // in the middle of a message, perhaps
	case err != nil:
		return fmt.Errorf("it ended by itself: %w: %s", err, p.stderr.String())
	case !errors.Is(heard, io.EOF):
		return heard
	}
	return nil
}

// processes are those of a soak or of a chaos.
type processes struct {
	*stage
	tally
	order order
	judge judge
}

// judge compares reports of processes with what is stored.
type judge interface {
	// note records a message.
	note(message)
	// compare returns what contradicts the messages. A plan that could not be read is nil.
	compare(there map[uuid.UUID]*workflow.Plan) []finding
}

// withProcesses calls play with what runs and judges the processes of a soak or a chaos. The grace period of their vaults
// is the configured one or the given one. Figures are printed every ten seconds, and in the end.
func (s *stage) withProcesses(name string, grace time.Duration, j judge, play func(*processes) error) error {
	a, end, err := s.reach()
	if err != nil {
		return err
	}
	p := &processes{stage: s, judge: j, tally: newTally(), order: order{
		account: a, Prefix: s.cfg.prefix, Grace: cmp.Or(s.cfg.grace, grace), Faults: s.cfg.faults,
	}}
	ctx, stop := context.WithCancel(context.Background())
	var reporting sync.WaitGroup
	reporting.Go(func() {
		for sleep.For(ctx, 10*time.Second) {
			s.printf("%s\n", &p.tally)
		}
	})
	err = play(p)
	stop()
	reporting.Wait()
	for _, f := range p.found {
		s.printf("%s\n", f)
	}
	s.printf("%s\n", &p.tally)
	if err = errors.Join(err, p.violations(), end()); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// live runs a process until it is killed or working ends, when it may finish its call. It calls began with the process,
// and hear for each message.
func (p *processes) live(working context.Context, client, life int, seed uint64, began func(*process), hear func(message)) error {
	o := p.order
	o.Client, o.Life, o.Seed = client, life, seed
	other, err := startProcess(o)
	if err != nil {
		return err
	}
	began(other)
	defer context.AfterFunc(working, other.finish)()
	return other.listen(func(m message) {
		p.add("requests", m.Requests)
		p.add("faults", m.Faults)
		p.add("stale writes refused", m.Refused)
		if !m.Begin {
			p.add(strings.TrimSuffix(m.What+": "+m.Told, ": "), 1)
		}
		if m.Told == wrong {
			p.find(finding{"error", m.Plan, fmt.Sprintf("client %d: %s: %s", client, m.What, m.Error)})
		}
		p.judge.note(m)
		hear(m)
	})
}

// kill kills a process.
func (p *processes) kill(other *process) bool {
	killed := other.kill()
	if killed {
		p.add("kills", 1)
	}
	return killed
}

// conclude recovers until nothing is recent, checks the vault, reads all plans and lets the judge compare them with the
// reports.
func (p *processes) conclude(ctx context.Context) error {
	v, err := p.dial(ctx, p.cfg.prefix, azblob.WithGracePeriod(p.order.Grace))
	if err != nil {
		return err
	}
	defer func() { _ = v.Close(ctx) }()
	// The grace period, its margin, and more than a second because the service tells whole seconds.
	if err := p.wait(ctx, p.order.Grace+p.order.Grace/4+2500*time.Millisecond); err != nil {
		return err
	}
	if _, err := p.recoverAll(ctx, v); err != nil {
		p.find(finding{What: half, Detail: oneLine(err)})
	}
	report, err := v.Check(ctx, azblob.CheckOptions{})
	if err != nil {
		return err
	}
	for _, problem := range report.Problems {
		what := half
		switch problem.Kind {
		case azblob.Orphan, azblob.Stray, azblob.LeftMarker:
			what = leftOver
		}
		p.find(finding{what, problem.Plan, problem.String()})
	}
	if report.InProgress > 0 {
		p.find(finding{What: half, Detail: count(report.InProgress, "plan") + " in progress, though no process is running"})
	}
	listed, err := storage.Collect(v.List(ctx, 0))
	if err != nil {
		return err
	}
	there := map[uuid.UUID]*workflow.Plan{}
	for _, r := range listed {
		plan, err := v.Read(ctx, r.ID)
		if err != nil {
			p.find(finding{half, r.ID, oneLine(err)})
		}
		there[r.ID] = plan
	}
	p.set("plans", len(there))
	p.find(p.judge.compare(there)...)
	return nil
}
