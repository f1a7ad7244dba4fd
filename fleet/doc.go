// Package fleet lets several engine processes share a vault. Each running plan has one owner. If the owner
// dies or freezes, another process takes the plan over, within 45 seconds with the default options, and the
// store refuses all later writes of the former owner. A fleet needs nothing but the store: no coordinator, no
// locks, no clocks that agree.
//
// A process calls [Join] and becomes a [Node]. It ranges over [Node.Plans] and runs what it gets:
//
//	node, err := fleet.Join(ctx, vault, fleet.Options{Name: hostname})
//	if err != nil {
//		return err
//	}
//	for next := range node.Plans(ctx) {
//		if next.Err != nil {
//			log.Print(next.Err) // for example a plan that can't be read; the loop continues
//			continue
//		}
//		plan := next.Result
//		running.Go(func() {
//			work, done := node.Work(plan.ID)
//			defer done()
//			run(work, plan) // store with versions, as always; the context is for the plugins
//		})
//	}
//	node.Drain()
//	running.Wait() // each goroutine ends soon, and calls node.LetGo if its plan is not final
//	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
//	defer cancel()
//	err = node.Leave(leaving)
//
// A node does not call Recovery. Call it when a process starts and each hour, as without a fleet.
//
// # Updates of an owned plan
//
// The owner updates the plan and its sub-objects through the vault, as docs/embedding.md says. When an update
// returns [storage.ErrConflict], the plan may have been taken over. The owner lets its requests in flight end
// and calls [Node.Take]. If Take returns the plan, the owner goes on from that plan and forgets its old one.
// If Take returns [ErrFenced], it lets the plan go. There is no other way to go on: reading the plan again is
// not enough. After [storage.ErrUnknown] the owner repeats the same call, as always.
//
// # What a fence can't stop
//
// A fence stops writes to the store. A plugin of a frozen owner may still be at work outside. Give plugins the
// action's ID as idempotency key and the plan's Epoch as fencing token: a later owner has a higher one.
//
// # Times
//
// The clocks of processes differ. Store times of [Node.Now] in plans, which is the store's time, so that the next owner
// can compare them.
//
// # Plans that wait
//
// [Node.Sleep] gives up a plan that only waits, until a time or a signal: [Node.Plans] of any node yields it then. [Send] stores
// a signal. After [PausePlan], nothing more of a plan begins until [ResumePlan].
//
// # Engines of another kind
//
// A [Placer] owns plans for whatever else decides which process runs which plan, such as a queue. Nodes leave such plans alone.
// [HandOver] gives them to the fleet if HandOverOptions.External is set.
//
// # Stuck plans
//
// [Inspect] says which members are alive, which open plans make no progress, and why. It is for operators and
// monitors, and needs no node. One node of a fleet inspects the vault for [Observer.Gauges].
//
// [Stop] asks the owner of a plan to stop it. [HandOver] fences a plan whose owner is no longer alive and leaves it to
// the live nodes, and [Evict] evicts a node that hangs although its heartbeats continue. What a node says with
// [Node.Report] is part of the explanation.
//
// # Several settings
//
// Each record says its node's TTL, and nobody removes it sooner: a judge uses the longer one of its own TTL and
// that of the record. Nodes with different settings can therefore share a fleet. A plan of a node with a long
// TTL takes that long to be taken over. Nothing but the time to a takeover depends on these settings: a node
// whose record is removed while it works loses its plans, and no update is lost.
package fleet
