package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// stopAndFork stops a plan, waits until it has stopped, and returns a fork that does what is left.
func stopAndFork(ctx context.Context, e *engine.Engine, vault storage.Vault, id uuid.UUID, by workflow.Attribution) (*workflow.Plan, error) {
	if err := e.Stop(ctx, id, by); err != nil && !errors.Is(err, fleet.ErrNotRunning) { // it may have ended just now
		return nil, err
	}
	for {
		plan, err := vault.Read(ctx, id)
		if err != nil {
			return nil, err
		}
		if plan.State.Status.Final() {
			return workflow.Fork(plan, workflow.ForkOptions{By: by})
		}
		time.Sleep(10 * time.Millisecond) // seconds, on an account
	}
}

// A plan is stopped while its first action runs, which ends as usual. The fork runs the second one.
func Example_stopAndFork() {
	ctx, shutdown := context.WithCancel(context.Background())
	begun, ended := make(chan bool), make(chan bool)
	first := engine.Task("first", func(context.Context, engine.Call, string) (string, error) {
		begun <- true
		time.Sleep(50 * time.Millisecond)
		return "done once", nil
	})
	second := engine.Task("second", func(_ context.Context, call engine.Call, _ string) (string, error) {
		defer close(ended)
		return first.Result(call, "one") // the fork has it, too
	})
	vault := memvault.New(registry.Must(first, second), memvault.Options{})
	e, err := engine.New(vault, engine.Options{Poll: time.Millisecond})
	check(err)
	var running sync.WaitGroup
	running.Go(func() { check(e.Run(ctx)) })
	plan := &workflow.Plan{Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{first.Action("one", ""), second.Action("two", "")}}}}}}
	_, err = e.Submit(ctx, plan)
	check(err)
	<-begun
	fork, err := stopAndFork(ctx, e, vault, plan.ID, workflow.Attribution{By: "ops", Why: "the disk is nearly full"})
	check(err)
	_, err = e.Submit(ctx, fork)
	check(err)
	<-ended
	shutdown() // running actions end first
	running.Wait()
	fork, err = vault.Read(context.Background(), fork.ID)
	check(err)
	for _, a := range fork.Blocks[0].Sequences[0].Actions {
		fmt.Println(a.Name, a.State.Status, a.Attempts[0].Resp)
	}
	fmt.Println("forked by", fork.Forked.By)
	// Output:
	// one Completed done once
	// two Completed done once
	// forked by ops
}

// A plan failed, and what made it fail is repaired. A fork of it runs what is left.
func Example_fork() {
	ctx := context.Background()
	full := true // the disk
	reg := registry.Must(engine.Task("step", func(_ context.Context, _ engine.Call, name string) (string, error) {
		if name == "copy" && full {
			return "", errors.New("the disk is full")
		}
		fmt.Println("done:", name)
		return "ok", nil
	}))
	vault := memvault.New(reg, memvault.Options{})
	run := func(plan *workflow.Plan) *workflow.Plan {
		e, err := engine.New(vault, engine.Options{UntilIdle: true})
		check(err)
		_, err = e.Submit(ctx, plan)
		check(errors.Join(err, e.Run(ctx)))
		plan, err = vault.Read(ctx, plan.ID)
		check(err)
		fmt.Println(plan.State.Status)
		return plan
	}
	step := func(name string) *workflow.Action { return &workflow.Action{Name: name, Plugin: "step", Req: name} }
	failed := run(&workflow.Plan{Name: "move", GroupID: uuid.New(), Blocks: []*workflow.Block{{
		Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{step("lock"), step("copy"), step("unlock")}}},
	}}})

	full = false
	fork, err := workflow.Fork(failed, workflow.ForkOptions{})
	check(err)
	run(fork)
	runs, err := storage.Collect(vault.Search(ctx, storage.Filters{ByGroupIDs: []uuid.UUID{failed.GroupID}}))
	fmt.Println(len(runs), "plans of the group; the newest was forked from the other:", runs[0].ID == fork.ID && fork.ForkedFrom == failed.ID, err)
	// Output:
	// done: lock
	// Failed
	// done: copy
	// done: unlock
	// Completed
	// 2 plans of the group; the newest was forked from the other: true <nil>
}
