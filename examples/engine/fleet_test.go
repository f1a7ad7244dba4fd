package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
)

// TestFleet lets three processes share plans and the emulator in a folder. Again and again it kills a process
// that is at work, with SIGKILL, also the one that serves the emulator. Every plan is Completed at the end, and
// no action that was Completed runs again.
func TestFleet(t *testing.T) {
	t.Parallel()
	f := &fleetOfProcesses{survival: newSurvival(t), nodes: map[string]*nodeProcess{}, events: make(chan event, 1<<20)}
	for i := range 3 {
		f.join(fmt.Sprint("node-", i))
	}
	for range efforttest.Pick(2, 2, 30) {
		f.submit()
		victim := f.atWork(1 + f.rand.IntN(efforttest.Pick(80, 80, 150)))
		f.stop(victim, os.Kill)
		f.lookBeside()
		f.join(victim.name)
	}
	for !f.lookBeside() {
		time.Sleep(500 * time.Millisecond) // each look reads all plans
	}
	for _, n := range f.nodes {
		f.stop(n, syscall.SIGTERM) // a shell's background job ignores the interrupt, and so would its children
	}
	f.look()
	f.check()
	close(f.events)
	for e := range f.events {
		f.note(e)
	}
	if f.takeovers == 0 {
		t.Error("no plan was taken over")
	}
	t.Logf("%d plans, %d takeovers, %d actions Completed, of which %d ran more than once", f.plans, f.takeovers, len(f.completed), f.repeated())
}

// fleetOfProcesses is a vault that several processes share.
type fleetOfProcesses struct {
	*survival
	nodes     map[string]*nodeProcess
	events    chan event
	takeovers int
}

// nodeProcess is a process of a fleet.
type nodeProcess struct {
	name   string
	cmd    *exec.Cmd
	stderr *bytes.Buffer
	read   chan struct{} // closed when all its output is
}

// event is a line that a process printed.
type event struct {
	*nodeProcess
	line string
}

// join starts a process that is a node of the fleet.
func (f *fleetOfProcesses) join(name string) {
	f.t.Helper()
	cmd, stdout, stderr := f.start("-node", name, "-interval", "1s", "-ttl", "3s")
	n := &nodeProcess{name: name, cmd: cmd, stderr: stderr, read: make(chan struct{})}
	go func() {
		defer close(n.read)
		for in := bufio.NewScanner(stdout); in.Scan(); {
			f.events <- event{n, in.Text()}
		}
	}()
	f.nodes[name] = n
}

// stop ends a process with a signal.
func (f *fleetOfProcesses) stop(n *nodeProcess, signal os.Signal) {
	f.t.Helper()
	if err := n.cmd.Process.Signal(signal); err != nil {
		f.t.Fatalf("%s ended by itself: %s", n.name, n.stderr.String())
	}
	<-n.read
	_ = n.cmd.Wait()
}

// atWork returns the process that has made the nth transition of an action from now on.
func (f *fleetOfProcesses) atWork(n int) *nodeProcess {
	f.t.Helper()
	tooLong := time.After(time.Minute)
	for {
		select {
		case e := <-f.events:
			f.note(e)
			if !strings.Contains(e.line, " / ") || f.nodes[e.name] != e.nodeProcess {
				continue // not an action, or of a process that is dead
			}
			if n--; n <= 0 {
				return e.nodeProcess
			}
		case <-tooLong:
			f.t.Fatal("nothing happens for a minute")
		}
	}
}

func (f *fleetOfProcesses) note(e event) {
	if strings.HasPrefix(e.line, "picked up plan ") && strings.Contains(e.line, " from node") {
		f.takeovers++
	}
}

// lookBeside reads the plans while processes run them. It reports whether all are Completed.
func (s *survival) lookBeside() (through bool) {
	s.t.Helper()
	s.onVault(func(ctx context.Context, v *azblob.Vault) {
		completed := map[uuid.UUID]bool{}
		var plans []*workflow.Plan
		plans, through = s.read(ctx, v)
		for _, plan := range plans {
			for o := range workflow.Walk(plan) {
				if a, ok := o.(*workflow.Action); ok && a.State.Status == workflow.Completed {
					completed[a.ID] = true
				}
			}
		}
		runs := s.runs() // read after the plans: all runs of the completed actions are in it
		for id := range completed {
			if before, known := s.completed[id]; known && before != runs[id] {
				s.t.Errorf("action %s was Completed, and ran %d times more", id, runs[id]-before)
			}
			s.completed[id] = runs[id]
		}
	})
	return through
}

// TestFolderOutlivesItsServer lets the process that serves the emulator end. Another one serves it, at its next
// request, and a third one finds it there.
func TestFolderOutlivesItsServer(t *testing.T) {
	data := t.TempDir()
	var said []string // on a slow machine also about slow answers
	member := func() *opened {
		o, err := open(t.Context(), config{data: data, prefix: "engine"}, func(text string) {
			if strings.Contains(text, "serves it now") {
				said = append(said, text)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	first, second, third := member(), member(), member()
	if first.beside || !second.beside || !third.beside {
		t.Error("the first does not serve the others")
	}
	plan := manyActions("plan")
	if err := first.Create(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	address, err := os.ReadFile(filepath.Join(data, addressFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, addressFile), address, 0o600); err != nil { // as after SIGKILL
		t.Fatal(err)
	}
	for _, o := range []*opened{second, third} {
		if there, err := o.Exists(t.Context(), plan.ID); err != nil || !there {
			t.Errorf("%v, %v", there, err)
		}
	}
	if len(said) != 1 {
		t.Errorf("said %q", said)
	}
	for _, o := range []*opened{third, second} {
		if err := o.close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(data, addressFile)); !os.IsNotExist(err) {
		t.Errorf("the address is left: %v", err)
	}
}
