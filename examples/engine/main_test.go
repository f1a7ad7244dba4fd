package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// engineProcess makes the test binary the engine.
const engineProcess = "ENGINE_PROCESS"

func TestMain(m *testing.M) {
	if os.Getenv(engineProcess) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestSurvive kills a process at a random transition, with SIGKILL, and starts it again, until there were enough
// kills and all plans have ended: a process that is alone, and the processes of a fleet, also the one that serves
// the emulator. Every plan is Completed in the end, and every action has run. That none runs again is shown by the
// chaos of integration.
func TestSurvive(t *testing.T) {
	for _, nodes := range [][]string{{""}, {"a", "b", "c"}} {
		t.Run(fmt.Sprint(len(nodes), " processes"), func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			r := rand.New(rand.NewPCG(seed, 0))
			s := &survival{t: t, data: t.TempDir(), events: make(chan event, 1<<20), alive: map[string]*process{}}
			for _, node := range nodes {
				s.start(node)
			}
			for range efforttest.Seeds(t, 2, 3, 60) {
				s.kill(s.atWork(1 + r.IntN(100)))
			}
			for len(s.alive) > 0 {
				s.next()
			}
			s.look()
			if s.resumed == 0 {
				t.Error("no plan was picked up in the middle")
			}
		})
	}
}

// survival is a vault in a folder, and what was seen in it.
type survival struct {
	t       *testing.T
	data    string
	alive   map[string]*process
	events  chan event
	resumed int // plans that were picked up in the middle
}

type process struct {
	node   string
	cmd    *exec.Cmd
	stderr bytes.Buffer
}

// event is a line that a process printed. The last event of a process is its end.
type event struct {
	*process
	line string
	end  bool
}

// start starts a process with a plan of its own.
func (s *survival) start(node string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "plan.json")
	text, err := json.Marshal(manyActions("plan of " + node))
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	p := &process{node: node, cmd: exec.CommandContext(s.t.Context(), os.Args[0], "-data", s.data, "-plan", file, "-node", node)}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), engineProcess+"=1"), &p.stderr
	stdout, pipeErr := p.cmd.StdoutPipe()
	if err == nil && pipeErr == nil {
		err = p.cmd.Start()
	}
	if err != nil || pipeErr != nil {
		s.t.Fatal(err, pipeErr)
	}
	s.alive[node] = p
	go func() {
		for in := bufio.NewScanner(stdout); in.Scan(); {
			s.events <- event{process: p, line: in.Text()}
		}
		s.events <- event{process: p, end: true}
	}()
}

// manyActions returns a plan of many short actions, each of which adds a line with its ID to a log.
func manyActions(name string) *workflow.Plan {
	actions := func(n int) (all []*workflow.Action) {
		for i := range n {
			all = append(all, &workflow.Action{Name: fmt.Sprint(i), Plugin: "note", Retries: 1, Req: Note{name}})
		}
		return all
	}
	checks := func(n int) *workflow.Checks {
		return &workflow.Checks{Delay: 50 * time.Millisecond, Actions: actions(n)}
	}
	p := &workflow.Plan{Name: name, PreChecks: checks(2), ContChecks: checks(1), PostChecks: checks(2), DeferredChecks: checks(2)}
	for range efforttest.Pick(2, 2, 4) {
		b := &workflow.Block{Concurrency: 3, PreChecks: checks(1), DeferredChecks: checks(1)}
		for range 4 {
			b.Sequences = append(b.Sequences, &workflow.Sequence{Actions: actions(4)})
		}
		p.Blocks = append(p.Blocks, b)
	}
	p.DeferredActions = &workflow.DeferredActions{Batches: []*workflow.DeferBatch{
		{When: workflow.OnSuccess, Actions: actions(3)}, {When: workflow.Always, Actions: actions(3)},
	}}
	return p
}

// next waits for an event. A process that ended must have ended well.
func (s *survival) next() event {
	s.t.Helper()
	select {
	case e := <-s.events:
		if e.end && s.alive[e.node] == e.process {
			delete(s.alive, e.node)
			if err := e.cmd.Wait(); err != nil {
				s.t.Fatalf("%q ended with %v: %s", e.node, err, e.stderr.String())
			}
		}
		if strings.Contains(e.line, "tried again") {
			s.t.Errorf("%q says of a server that has left: %s", e.node, e.line)
		}
		if strings.Contains(e.line, "picked up") && !strings.Contains(e.line, ": 0 of ") {
			s.resumed++
		}
		return e
	case <-time.After(time.Minute):
		s.t.Fatal("nothing happens for a minute")
		return event{}
	}
}

// atWork returns the process that makes the nth transition of an action from now on. Processes whose plans have
// ended are started again.
func (s *survival) atWork(n int) *process {
	s.t.Helper()
	for {
		e := s.next()
		if e.end && s.alive[e.node] == nil {
			s.start(e.node)
		}
		if strings.Contains(e.line, "/") && s.alive[e.node] == e.process {
			if n--; n <= 0 {
				return e.process
			}
		}
	}
}

// kill kills a process and starts it again.
func (s *survival) kill(p *process) {
	s.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		s.t.Fatalf("%q ended by itself: %s", p.node, p.stderr.String())
	}
	delete(s.alive, p.node)
	_ = p.cmd.Wait()
	s.start(p.node)
}

// look checks that all plans are Completed, that their actions are in the log, and that nothing is left.
func (s *survival) look() {
	s.t.Helper()
	ctx := s.t.Context()
	ran, err := os.ReadFile(filepath.Join(s.data, "work", notes))
	if err != nil {
		s.t.Fatal(err)
	}
	err = withVault(ctx, config{data: s.data, prefix: "engine", node: "test"}, registry.Must(note("")), func(v *azblob.Vault) error {
		plans, err := storage.Collect(v.List(ctx, 0))
		if err != nil {
			return err
		}
		for _, found := range plans {
			plan, err := v.Read(ctx, found.ID)
			if err != nil {
				return err
			}
			if plan.State.Status != workflow.Completed {
				s.t.Errorf("%s is %s, %s", plan.Name, plan.State.Status, plan.Reason)
			}
			for o := range workflow.Walk(plan) {
				a, ok := o.(*workflow.Action)
				if ok && (a.State.Status != workflow.Completed || !bytes.Contains(ran, []byte(a.ID.String()))) {
					s.t.Errorf("action %s is %s, or has never run", a.ID, a.State.Status)
				}
			}
		}
		if err := v.Recovery(ctx); err != nil {
			return err
		}
		report, err := v.Admin().Check(ctx, azblob.CheckOptions{})
		if len(report.Problems) > 0 || report.InProgress > 0 {
			s.t.Errorf("%+v", report)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// TestSample checks that the sample that the documentation names is a plan.
func TestSample(t *testing.T) {
	plan, err := readPlan("hello.json", registry.Must(command(""), note("")))
	if err != nil || plan.Name != "hello" {
		t.Errorf("%v, %v", plan, err)
	}
}
