// Command placed has three processes run plans over one vault. A queue gives them the plans. One process is killed in the
// middle of a plan, and another one goes on.
//
//	go run ./examples/placed
//
// The queue is as small as one can be: a worker that sends no heartbeat for a lease has lost its plan. The exit code is 0 if all
// plans are Completed, and no step ran again that had ended before the kill.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// lease is how long a worker may be silent.
const lease = 3 * time.Second

// account makes the program a worker. It names the account of the vault.
const account = "PLACED_ACCOUNT"

func main() {
	if connection := os.Getenv(account); connection != "" {
		work(connection)
	} else {
		place()
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// job is what the queue sends to a worker.
type job struct {
	Plan  uuid.UUID
	Epoch int64 // of the last worker that had the plan, if that one is dead
}

// word is what a worker sends to the queue: a heartbeat, the beginning of a step, or what has become of the plan.
type word struct {
	Epoch  int64
	Step   string
	Action uuid.UUID
	Status *workflow.Status
	WakeAt time.Time
}

// open opens the vault. say is called when a step begins.
func open(connection string, say func(word)) (*azblob.Vault, *engine.TypedPlugin[string, string]) {
	step := engine.Task("step", func(ctx context.Context, call engine.Call, name string) (string, error) {
		say(word{Step: name, Action: call.Action})
		time.Sleep(400 * time.Millisecond)
		return "done", ctx.Err()
	})
	vault, err := azblob.NewFromConnectionString(context.Background(), "placed", connection, registry.Must(step), azblob.Options{})
	check(err)
	return vault, step
}

// work runs the plans that the queue sends, one after the other, until the queue is closed.
func work(connection string) {
	var mu sync.Mutex
	out, in := json.NewEncoder(os.Stdout), json.NewDecoder(os.Stdin)
	say := func(w word) {
		mu.Lock()
		defer mu.Unlock()
		check(out.Encode(w))
	}
	vault, _ := open(connection, say)
	e, err := engine.New(vault, engine.Options{})
	check(err)
	for j := (job{}); in.Decode(&j) == nil; j = (job{}) {
		placed, err := e.RunPlan(context.Background(), j.Plan, engine.RunOptions{
			External: workflow.External{Name: "queue"}, Epoch: j.Epoch,
			Every: lease / 6, Heartbeat: func(b engine.Beat) { say(word{Epoch: b.Epoch}) },
		})
		check(err)
		say(word{Status: &placed.Plan.State.Status, WakeAt: placed.WakeAt})
	}
	check(vault.Close(context.Background()))
}

// queue gives each job to one worker at a time, as far as it can tell.
type queue struct {
	jobs chan job
	said chan said
}

// said is a word of a worker about its job, or that there was none for a lease.
type said struct {
	word
	job    job
	worker int
	lost   bool
	kill   func() error
}

// serve starts a worker, and gives it jobs until it is silent.
func (q *queue) serve(worker int, connection string) {
	w := exec.Command(os.Args[0])
	w.Env, w.Stderr = append(os.Environ(), account+"="+connection), os.Stderr
	stdin, err := w.StdinPipe()
	check(err)
	stdout, err := w.StdoutPipe()
	check(err)
	check(w.Start())
	words := make(chan word)
	go func() {
		for in, next := json.NewDecoder(stdout), (word{}); in.Decode(&next) == nil; next = (word{}) {
			words <- next
		}
	}()
	for j := range q.jobs {
		_ = json.NewEncoder(stdin).Encode(j) // if it has died, it is silent
		for busy := true; busy; {
			s := said{job: j, worker: worker, kill: w.Process.Kill}
			select {
			case s.word = <-words:
				j.Epoch, busy = max(j.Epoch, s.Epoch), s.Status == nil
			case <-time.After(lease):
				s.lost = true
			}
			if q.said <- s; s.lost {
				q.jobs <- j
				return
			}
		}
	}
}

// place has three workers run four plans, and prints what happens.
func place() {
	began := time.Now()
	tell := func(format string, args ...any) {
		fmt.Printf("%4.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	server, err := emulator.New(emulator.Options{NoLog: true}).Listen("127.0.0.1:0")
	check(err)
	vault, step := open(server.ConnectionString(), nil)
	q, names := &queue{make(chan job, 4), make(chan said)}, map[uuid.UUID]string{} // of the plans that are left
	for _, name := range []string{"A", "B", "C", "D"} {
		s := &workflow.Sequence{}
		for i := range 6 {
			s.Actions = append(s.Actions, step.Action(fmt.Sprint("step ", i+1), fmt.Sprint(i+1)))
		}
		plan := &workflow.Plan{Name: name, Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{s}}}}
		if name == "D" {
			plan.NotBefore = began.Add(2 * lease)
		}
		check(vault.Create(context.Background(), plan))
		names[plan.ID] = name
		q.jobs <- job{Plan: plan.ID}
	}
	tell("3 workers, %d plans of 6 steps, a lease of %v", len(names), lease)
	for i := range 3 {
		go q.serve(i+1, server.ConnectionString())
	}
	var killed *workflow.Plan // plan A as it was stored when its worker was killed
	var at time.Time          // of the kill
	begun := map[uuid.UUID]int{}
	for late := time.After(time.Minute); len(names) > 0; {
		var s said
		select {
		case s = <-q.said:
		case <-late:
			log.Fatal("after a minute, some plans have not ended: ", names)
		}
		switch name := names[s.job.Plan]; {
		case s.lost:
			tell("worker %d is silent: plan %s is for the next one, with epoch %d", s.worker, name, s.job.Epoch)
		case s.Epoch > s.job.Epoch:
			tell("worker %d runs plan %s in epoch %d", s.worker, name, s.Epoch)
		case s.Step != "":
			if begun[s.Action]++; name != "A" || s.Step != "3" {
				break
			}
			if killed != nil {
				tell("worker %d begins step 3 of plan A again, %.1f s after the kill", s.worker, time.Since(at).Seconds())
				break
			}
			at = time.Now()
			check(s.kill()) // SIGKILL
			tell("worker %d was killed in step 3 of plan A", s.worker)
			killed, err = vault.Read(context.Background(), s.job.Plan)
			check(err)
		case s.Status != nil && s.Status.Final():
			tell("plan %s is %s", name, *s.Status)
			delete(names, s.job.Plan)
		case s.Status != nil:
			tell("plan %s waits for %.1f s", name, time.Until(s.WakeAt).Seconds())
			time.AfterFunc(time.Until(s.WakeAt), func() { q.jobs <- job{Plan: s.job.Plan} })
		}
	}
	ended, again := 0, 0
	for o := range workflow.Walk(killed) {
		if a, ok := o.(*workflow.Action); ok && a.State.Status == workflow.Completed {
			ended, again = ended+1, again+begun[a.ID]-1
		}
	}
	if tell("%d steps of plan A had ended before the kill; of these, %d ran again", ended, again); ended != 2 || again != 0 {
		log.Fatal("two should have ended, and none run again")
	}
}
