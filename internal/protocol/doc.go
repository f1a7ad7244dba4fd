// Package protocol has models of the vault's protocol, of closed days, and of a fleet's protocol: docs/protocol.md
// and docs/fleet.md as programs. It consists of tests; nothing imports it. All models share one search, which
// visits every state that can be reached and reports a state in which a promise is broken, with the shortest path
// to it. The tests also remove the protocols' rules, one at a time, and expect a broken promise.
//
// # The vault
//
// The actors of the model are creators, updaters, deleters, recoveries, readers and listers of one plan. A Restore
// is a creator whose plan is Running or final. Each actor is a program that follows the vault's code request by
// request. A situation says which actors there are, what is stored at first, and how much may go wrong.
//
// Between any two steps:
//   - a request takes effect and is answered, or is refused;
//   - an answer is lost and the request is retried;
//   - a request is given up and takes effect later, beside its own retry;
//   - an actor dies, and its requests under way take effect later or never;
//   - the grace period of a call passes;
//   - everything stored becomes older than grace period and margin.
//
// In some situations the service also lies that a blob does not exist, or a blob is lost from outside.
//
// As a rule, a request under way is answered or lost before anything becomes older than grace period and
// margin; this is the purpose of the margin. An actor may pause between two requests for any time. In frozen
// situations requests may be under way for any time, too.
//
// docs/protocol.md does not cover a Create that overlaps with a Delete of the same ID, nor a Create after a
// Delete that overlaps with an update of the deleted plan. Requests that a Delete has left under way are covered. The situations exclude both, and TestLimits shows
// that the model finds the trouble. The model does not check what a Read returns that overlaps with both a
// Delete and another Create of its ID.
//
// The steps of the model have the names that the vault's errors use. TestPromises compares them.
//
// # A closed day
//
// The catalogue of a day, changes of one of its plans, holds and expiry are a model of their own. A change is a
// Create, a Restore, an update of a final plan, a Delete, or a thorough Recovery that restores an entry. It is a
// marker, the removal of the catalogue with a look at the day, and a commit; what a change does otherwise is in the
// model of the vault. Nothing is counted: any number of times,
//   - a call begins, dies, freezes, or takes longer than its grace period;
//   - the request of a builder, the removal of a catalogue, or the removal of the container takes effect late;
//   - the lease of an Expire runs out, and everything stored becomes old;
//   - an answer is dated by a clock that has not passed midnight yet.
//
// In some situations a dropped container is made anew, the marker of an open plan is lost, or machines sleep, so
// that their clocks don't show how late they are.
//
// In each state, a catalogue that can be read is what a listing would yield. After the death of all calls, Recovery
// leaves nothing that belongs to no plan, and one builder builds the catalogue of a day in which nothing is open.
//
// # A fleet
//
// Nodes claim, take and end one plan. Nothing is counted: any number of times,
//   - a node dies, freezes, gives a call up, or starts again under a new ID;
//   - a node is taken for dead, rightly or wrongly, and its record is removed;
//   - a request is lost, or takes effect after its call has ended;
//   - an owner stores the entry or a final sub-object again, or restarts a final sub-object.
//
// In some situations the plan is deleted, a late request adds a record again, or a process that is not a member
// updates a sub-object.
//
// The states are finite because a version is kept only as the answer to "is it still the stored one?", and
// epochs are kept as ranks. Three things make fewer states: nodes and sub-objects are sorted, calls that can no
// longer have an effect are forgotten (TestFleetDoomed shows that this loses nothing), and of late requests that
// do the same the oldest stands for all. Without records, every node may take from every other at any time. This
// includes every judgement of who is dead, and is used where records would make too many states.
//
// Safety is checked in every step. Liveness is reachability: in every state, each node that is alive can bring
// the plan to its end by its own steps, whatever the others did before. The model does not check that a plan
// ends while nodes keep taking it from each other; that they stop is the purpose of the judgement.
//
// # Discovery
//
// How a node finds a plan that nobody works on is a model of its own: members, marks and lists on their records, looks,
// departures, searches, and failed claims and takes. Nothing is counted: any number of times,
//   - a node joins, leaves, dies, is evicted, or is judged dead by mistake;
//   - a node claims or takes the plan, fails to, or has its update stored and fails then;
//   - an owner lets the plan go, and takes it again;
//   - a request takes effect after its node has died or left.
//
// One node is suited to the plan and has a free place, in some situations beside a backlog that would take it. In every state in which it is a member, its own steps lead to a
// member that works on the plan. The hourly search is left out. The other nodes do anything that the protocol allows,
// at any time, so they may lack plugins, be full, drain, hang or look seldom. They help only in this: those that are
// alive renew their records, and end what they have begun.
//
// The model knows no time, and assumes three things of it. A mark is older than every TTL when it is removed. What a
// node that is no member has sent takes effect or is lost before that, and before a second search. A wait for the first
// node by hash ends before the second search. A claim that a node sends after it froze for longer is left out: nodes
// that have a free place have claimed the plan by then.
//
// # Policies
//
// A policy of retention is a small model in discrete time: operators set and remove it, and two processes claim steps and
// remove days. They die, and pause anywhere for any time. AtOnce is left out, and so are reports: the time between two
// steps saves requests only.
//
// # A copy
//
// Mirrors bring one plan of a copy up to date. Anybody may open the copy in any state, and others then change and delete the
// plan; in some situations they do so before. Each mirror is a Follow or a Run, of which there may be two, and may stop
// anywhere for any time, or die. With two, nobody deletes the plan while one of them is about to write (C5).
//
// # What an engine stores
//
// What of a plan an engine stores before it acts is a model of its own, too: a sequence, its actions and a deferred action.
// Any number of times, an engine dies, freezes, takes the plan from another one, or is asked to stop it (TestEngine).
//
// # Excuses
//
// Which attempts at an action count as crashes is a model of its own: an action fails only if more owners crashed or froze in
// it than Options.Crashes allows, and does not run again after that. Any number of times, nodes drain, die, freeze, are
// evicted, and take the plan from each other, as a whole or in part (TestExcuses). All that take have seen the records of
// excused members.
//
// # Deaths
//
// Who is dead is a model of its own, too, in discrete time: a node renews its record, a judge polls, and the service
// fails at any time (TestFleetWatch).
package protocol
