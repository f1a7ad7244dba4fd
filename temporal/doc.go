// Package temporal lets Temporal place the plans of a vault. The vault keeps what a plan is and what it has done. Temporal
// decides which worker runs it, and when.
//
// A plan is one workflow, whose ID is the plan's. The workflow calls one activity, which runs the plan with
// [engine.Engine.RunPlan], and returns its status and reason. Its history has eleven events for a plan of any size.
//
//	w := worker.New(c, "plans", temporal.WorkerOptions(engine.DefaultDrain))
//	temporal.Register(w, temporal.Placer{Engine: e, Vault: vault, Client: c})
//	err := w.Run(worker.InterruptCh())
//	…
//	plan.ID = workflow.NewV7()
//	plan.External = temporal.External("default", plan.ID) // no node of a fleet takes it
//	err := vault.Create(ctx, plan)
//	run, err := c.ExecuteWorkflow(ctx, temporal.StartOptions(plan, "plans"), temporal.WorkflowName)
//	var result temporal.Result
//	err = run.Get(ctx, &result)
//
// Create the plan first. After a crash between the two, do both again: Create says storage.ErrExists, and ExecuteWorkflow
// returns the workflow that there is. A plan that is final ends a new workflow at once. If Temporal has lost the workflow, start
// it again: it goes on with the plan.
//
// # Who runs the plan
//
// The activity tells Temporal the epoch of its ownership with each heartbeat. If the worker dies, the next attempt fences this
// epoch and goes on: [Settings].HeartbeatTimeout and some seconds later. If the worker lives and Temporal has only lost its
// heartbeats, two workers run the plan until the next write of the former is refused by the store. Actions run at least once,
// as in a fleet. While Temporal does not answer, a plan that runs goes on. A worker that stops drains first, and the next one
// goes on at once; see [WorkerOptions].
//
// An attempt that meets an owner takes the plan over if the owner is an earlier attempt of the same workflow, or one of an earlier
// run that was terminated and has not heard of it, and Temporal confirms that this attempt is the current one. It leaves the plan
// to any other owner, such as a workflow of another cluster, or a node of a fleet to which somebody has handed the plan over. The
// workflow then fails with the type Owned. Clusters that share a vault need namespaces of different names.
//
// A worker does nothing but that. A job, such as a schedule of Temporal, must call the vault's Recovery each hour, and enforce
// retention, unless an engine's Run does.
//
// # Waiting
//
// While a plan sleeps, no worker has it: the workflow waits for the plan's time with a durable timer. A paused plan waits to be
// resumed, and one that waits for a turn is looked at each ten seconds to five minutes. The workflow gets these signals:
//
//   - [SignalName] with a [fleet.Signal] is sent on to the plan, once, and the plan is looked at. Without a Key, it gets one.
//   - [LookName] makes the workflow look at the plan at once.
//
// While a plan runs, the engine sees within ten seconds what somebody has told the vault: fleet.Send, fleet.Stop,
// fleet.PausePlan and planvault. While it waits, the workflow looks each [Settings].Look. To be faster, signal LookName after
// that. A look costs an activity and a timer. The workflow continues as new when Temporal suggests it.
//
// Canceling the workflow stops the plan, in the name of whoever canceled it. The workflow ends when the deferred work of the plan
// has ended. Terminating the workflow leaves the plan as it is.
//
// # Errors
//
// A plan that failed or was stopped is a result, and no error. The activity is tried again, by any worker, for as long as that
// may help: after an outage, a lost right, a vault that is suspended, or closed in one process, and for a plan that has a newer
// schema or needs plugins that this worker lacks. Workers of one task queue may therefore differ. The workflow fails with a
// temporal.ApplicationError of one of these types:
//
//	NotFound   the plan does not exist any more
//	Invalid    the workflow's ID is not that of a plan, or the settings are wrong
//	Corrupt    what is stored of the plan is damaged: see planvault repair
//	Foreign    another program wrote the plan
//	Owned      somebody else runs the plan, and the error says who
//
// # Search attributes
//
// [StartOptions] sets [GroupAttribute] and [LabelsAttribute], which each namespace must register once:
//
//	temporal operator search-attribute create --name PlanGroup --type Keyword --name PlanLabels --type KeywordList
//	temporal workflow list --query 'PlanLabels = "region=west"'
//
// Without them, clear TypedSearchAttributes of the options.
package temporal
