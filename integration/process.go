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
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

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
	defer func() { p.judge.note(message{What: died, Call: o.number(0), At: time.Now().UnixNano()}) }()
	return other.listen(func(m message) {
		p.add("requests", m.Requests)
		p.add("requests for keys", m.KeyRequests)
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
	v, err := p.dial(ctx, p.cfg.prefix, azblob.Options{GracePeriod: p.order.Grace})
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
	report, err := v.Admin().Check(ctx, azblob.CheckOptions{})
	if err != nil {
		return err
	}
	for _, problem := range report.Problems {
		what := half
		switch problem.Kind {
		case azblob.ProblemOrphan, azblob.ProblemStray, azblob.ProblemLeftMarker:
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
