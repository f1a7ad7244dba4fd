package engine_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// A plugin starts an operation of a service, and looks each second whether it has ended. Between two looks it takes no
// place. After more than five minutes without anything else to do, the plan would leave the memory, too.
func ExampleLater() {
	type operation struct{ ID, Looks int }
	resize := engine.Task("resize", func(_ context.Context, call engine.Call, disk string) (string, error) {
		var op operation
		again, err := call.State(&op)
		switch {
		case err != nil:
			return "", err
		case !again:
			fmt.Println("resize", disk)
			op.ID = 7 // the service's answer; give it call.Action, so that it recognizes a repetition
		case op.Looks == 2:
			return fmt.Sprintf("operation %d is done", op.ID), nil
		}
		op.Looks++
		return "", engine.Later(time.Second, op)
	})
	vault := memvault.New(registry.Must(resize), memvault.Options{})
	e, err := engine.New(vault, engine.Options{UntilIdle: true})
	if err != nil {
		log.Fatal(err)
	}
	action := resize.Action("resize", "disk-1")
	action.Timeout = 24 * time.Hour // from the first call; the default is five minutes
	plan := &workflow.Plan{Name: "grow", Blocks: []*workflow.Block{{Name: "b", Sequences: []*workflow.Sequence{{Name: "s", Actions: []*workflow.Action{action}}}}}}
	submitted, err := e.Submit(context.Background(), plan)
	if err != nil {
		log.Fatal(err)
	}
	if err := e.Run(context.Background()); err != nil {
		log.Fatal(err)
	}
	done, err := submitted.Wait(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	a := done.Blocks[0].Sequences[0].Actions[0]
	fmt.Println(a.Attempts[0].Resp, "in attempt", len(a.Attempts))
	// Output:
	// resize disk-1
	// operation 7 is done in attempt 1
}
