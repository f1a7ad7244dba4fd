package main

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// job is a plan to run. A plan has one job.
type job struct {
	Plan uuid.UUID `json:"plan" river:"unique"`
}

func (job) Kind() string { return "plan" }

func (job) InsertOpts() river.InsertOpts {
	return river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

// worker runs plans, each for a turn at most, because River knows no heartbeats: it takes a job back that runs for longer than
// all jobs may. A plan that takes longer than a turn goes on in the next one. What runs at the end of a turn has drain to end, or
// runs again, so a turn is longer than any action.
type worker struct {
	river.WorkerDefaults[job]
	engine      *engine.Engine
	turn, drain time.Duration
}

// rescue is when River takes a job back. A live worker has ended its turn then, within twice drain.
func (w *worker) rescue() time.Duration { return w.turn + 3*w.drain }

// Work runs a plan. Its error says what becomes of the job; after any other, River tries again. JobCancel stops a plan that runs.
// One that waits has no worker: call fleet.Stop, and JobRetry, which makes River deliver the job now.
func (w *worker) Work(jobCtx context.Context, j *river.Job[job]) error {
	ctx, end := context.WithCancelCause(context.WithoutCancel(jobCtx))
	defer context.AfterFunc(jobCtx, func() {
		if errors.Is(context.Cause(jobCtx), river.ErrJobCancelledRemotely) {
			end(&fleet.StopError{Attribution: workflow.Attribution{By: "river", Why: "the job was cancelled"}})
		}
		end(context.Cause(jobCtx))
	})()
	o := engine.RunOptions{External: workflow.External{Name: "river", Ask: "SELECT * FROM river_job WHERE args->>'plan' = 'ID'"}}
	placed, err := w.engine.RunPlan(ctx, j.Args.Plan, o)
	if owned, ok := errors.AsType[*fleet.OwnedError](err); ok && owned.External.Name == o.External.Name {
		o.Epoch = owned.Epoch // River has taken the job from that owner, which is dead, or is fenced now
		placed, err = w.engine.RunPlan(ctx, j.Args.Plan, o)
	}
	switch {
	case errors.Is(err, engine.ErrDraining):
		return river.JobSnooze(0) // the end of a turn, or of this process: the next worker goes on
	case errors.Is(err, fleet.ErrFenced):
		return river.JobSnooze(w.rescue()) // another worker has the job, and has ended its turn then
	case errors.Is(err, storage.ErrNotFound):
		return river.JobCancel(err)
	case err != nil || placed.Plan.State.Status.Final():
		return err
	case placed.WakeAt.IsZero(): // paused
		return river.JobSnooze(time.Minute)
	}
	return river.JobSnooze(min(max(0, time.Until(placed.WakeAt)), 10*time.Minute)) // or a signal comes meanwhile
}

// submit stores a plan and its job. Done again with the same plan, it does no harm.
func submit(ctx context.Context, vault storage.Vault, client *river.Client[pgx.Tx], plan *workflow.Plan) error {
	plan.External.Name = "river" // no engine of another kind begins it
	if err := vault.Create(ctx, plan); err != nil && !errors.Is(err, storage.ErrExists) {
		return err
	}
	_, err := client.Insert(ctx, job{plan.ID}, nil)
	return err
}
