package engine_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

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
		check(errors.Join(e.Submit(ctx, plan), e.Run(ctx)))
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
