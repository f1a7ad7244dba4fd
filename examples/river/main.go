// Command river runs plans as jobs of River, a queue on PostgreSQL: a job is a plan.
//
//	planvault emulator      # a storage account on this machine
//	go run . -database "host=localhost user=postgres" -submit 3
//
// Any number of processes share the queue and the vault. Kill one, and the others go on with its plans. job.go is what to write for
// a queue; the rest is set-up.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// connect returns River's client for the jobs of a vault.
func connect(ctx context.Context, database string, vault storage.Vault, turn, drain time.Duration) (*river.Client[pgx.Tx], error) {
	pool, err := pgxpool.New(ctx, database)
	if err != nil {
		return nil, err
	}
	tables, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return nil, err
	}
	if _, err := tables.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, err
	}
	e, err := engine.New(vault, engine.Options{Drain: drain})
	if err != nil {
		return nil, err
	}
	workers, w := river.NewWorkers(), &worker{engine: e, turn: turn, drain: drain}
	river.AddWorker(workers, w)
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}},
		Workers: workers, JobTimeout: turn, RescueStuckJobsAfter: w.rescue(),
		SoftStopTimeout: time.Millisecond, // the end of Start's context is a shutdown, which RunPlan makes a gentle one
	})
}

func main() {
	database := flag.String("database", "host=localhost", "the connection `string` of PostgreSQL")
	account := flag.String("connection-string", "UseDevelopmentStorage=true", "connection string of the storage account (`text`)")
	plans := flag.Int("submit", 0, "submit this `number` of plans")
	turn := flag.Duration("turn", 10*time.Minute, "how long a plan has a worker at a time (`duration`)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *database, *account, *plans, *turn); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, database, account string, plans int, turn time.Duration) error {
	greet := engine.Task("greet", func(_ context.Context, call engine.Call, whom string) (string, error) {
		_, err := fmt.Println("hello", whom, "from plan", call.Plan, "in epoch", call.Epoch)
		return "", err
	})
	vault, err := azblob.NewFromConnectionString(ctx, "river", account, registry.Must(greet), azblob.Options{})
	if err != nil {
		return err
	}
	client, err := connect(ctx, database, vault, turn, engine.DefaultDrain)
	if err != nil {
		return err
	}
	for i := range plans {
		plan := &workflow.Plan{Name: "hello", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{greet.Action("hello", fmt.Sprint(i))}}}}}}
		if err := submit(ctx, vault, client, plan); err != nil {
			return err
		}
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	<-client.Stopped() // after a signal
	return vault.Close(context.Background())
}
