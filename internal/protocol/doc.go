// Package protocol has models of the vault's protocol, of closed days, of a fleet and of what else docs/protocol.md and
// docs/fleet.md promise. It consists of tests; nothing imports it. All models share one search. It visits every state that
// can be reached, and reports a state in which a promise is broken with the shortest path to it. The tests also remove the
// rules one at a time, and expect a broken promise.
//
// Unless a section says otherwise, everything in it happens any number of times, at any moment.
//
// # A plan
//
// Creators, updaters, deleters, recoveries, readers and listers share one plan. A Restore is a creator whose plan is Running
// or final. Each actor is a program that follows the vault's code request by request. A situation says which actors there
// are, what is stored at first, and how much may go wrong. Between any two steps:
//   - a request takes effect and is answered, or is refused;
//   - an answer is lost and the request is retried;
//   - a request is given up and takes effect later, beside its own retry;
//   - an actor dies, and its requests in flight take effect later or never;
//   - the grace period of a call passes;
//   - everything stored becomes older than grace period and margin.
//
// In some situations the service also denies that a blob exists, or a blob is lost from outside. A request in flight is
// answered or lost before anything becomes older than grace period and margin, except in frozen situations: this is the
// purpose of the margin. An actor may pause between two requests for any time.
//
// docs/protocol.md does not cover a Create that overlaps with a Delete of the same ID, nor a Create after a Delete that
// overlaps with an update of the deleted plan. The situations exclude both, and TestLimits shows that the model finds the
// trouble. The model does not check what a Read returns that overlaps with both a Delete and another Create of its ID.
//
// The steps have the names that the vault's errors use. TestPromises compares them.
//
// # A closed day
//
// The catalogue of a day, changes of one of its plans, holds and expiry. A change is a Create, a Restore, an update of a
// final plan, a Delete, or a thorough Repair that restores an entry. The model has its marker, the removal of the
// catalogue with a look at the day, and its commit. Calls die, freeze and take longer than their grace periods; requests take
// effect late; leases run out; an answer may be dated by a clock that has not passed midnight yet. In some situations a
// dropped container is created again, a marker is lost, or machines sleep, so their clocks don't show how late they are.
//
// In each state, a catalogue that can be read is what a listing would yield. After the death of all calls, Recovery leaves
// nothing that belongs to no plan, and one builder builds the catalogue of a day in which nothing is open.
//
// # A fleet
//
// Nodes claim, take and end one plan. They die, freeze, give up, start again under a new ID, and are judged dead, rightly or
// wrongly. Requests are lost or take effect after their call. An owner may store the entry or a final sub-object again, or
// restart a final sub-object. In some situations an owner lets the plan sleep until a time, people pause and resume it, the plan is deleted, a late
// request adds a record again, or a process that is not a member updates a sub-object.
//
// In others, an engine of another kind places the plan, and may be wrong: some of the nodes are claims of it, without records.
// It tells each the epoch of the owner whenever it likes. Nodes also do what a HandOver does.
//
// The states are finite because a version is kept only as the answer to "is it still the stored one?", and epochs are kept as
// ranks. Nodes and sub-objects are sorted, calls that can have no more effect are forgotten (TestFleetDoomed shows that this
// loses nothing), and the oldest of several late requests that do the same stands for all. Without records, every node may
// take from every other at any time; this includes every judgement of who is dead.
//
// Safety is checked in every step. Liveness is reachability: in every state, each living node can end the plan by its own
// steps, if need be by a HandOver, and so can each claim from outside, unless the fleet has begun the plan. The model does
// not check that a plan ends while nodes keep taking it from each other; judgement is there to stop that. Who is dead is a
// model in discrete time (TestFleetWatch): a node renews its record, a judge polls, the service fails.
//
// # Discovery
//
// How a node finds a plan that nobody works on: members, marks and lists on their records, departures, searches, failed
// claims and takes. One node suits the plan and has a free place, in some situations beside a backlog that it would take
// first. In every state in which it is a member, its own steps lead to a member that works on the plan. The hourly search is
// left out. The other nodes do anything that the protocol allows, at any time, so they may lack plugins, drain, hang or
// seldom look; those that live renew their records and end what they have begun.
//
// The model has no clock, and assumes three things. A mark is older than every TTL when it is removed. Requests of a node
// that is no member take effect or are lost before that, and before a second search. A wait for the first node by hash ends
// before the second search. A claim sent after a longer freeze is left out: a node with a free place has claimed the plan by
// then.
//
// # Turns
//
// Plans that work only while they have a turn for each of their keys. Nodes claim, wake and take the plans, and change the
// records of the keys. They die and freeze, requests take effect late, plans sleep with and without their turns, and are
// deleted and restored. In some situations an operator changes a limit or pauses a key, a record is lost or damaged, plans have
// two keys in opposite order, or Submit takes the only turn of a Unique before its Create, which may be late.
//
// Safety: never more plans work than the limit of a key says, counted from an owner's first fenced write to the entry that ends
// the plan or lets it sleep without turns. Liveness: in every state, steps of nodes that live lead to the end of every plan,
// and no plan that has ended is left in a record. The order in which one node gives turns has a model of its own
// (TestTurnOrder), and so have the notes about plans that were overtaken (TestTurnWaiters). TestTurnLimits shows what the loss
// of a Unique's record does.
//
// # The small models
//
//   - A policy of retention, in discrete time: operators set and remove it, and two processes claim steps and remove days.
//     AtOnce and reports are left out: the time between two steps only saves requests.
//   - A copy: mirrors bring one plan up to date. Anybody may open the copy; others then change and delete the plan, and in
//     some situations do so before. With two mirrors, nobody deletes the plan while one is about to write (C5).
//   - A switch to a copy in another account: two fleets, a follower, and an operator who is interrupted.
//   - An engine: what it stores of a sequence, its actions and a deferred action before it acts, and of the outcome
//     before it calls the hook for ended plans (TestEngine).
//     In some situations the first action is called again, and the plan sleeps in between.
//   - Excuses: an action fails only if more owners crashed or froze in it than Options.Crashes allows, and does not run
//     again after that (TestExcuses). All who take have seen the records of excused members. Both models also have actions
//     with AtMost 1.
//   - Signals: how each reaches a call of a plan that waits, sleeps and changes hands, and none wakes it twice (TestSignals).
package protocol
