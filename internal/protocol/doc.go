// Package protocol is a model of the vault's protocol: docs/protocol.md as a program. It consists of tests;
// nothing imports it.
//
// The actors of the model are creators, updaters, deleters, recoveries, readers and listers of one plan. Each
// actor is a program that follows the vault's code request by request. A situation says which actors there
// are, what is stored at first, and how much may go wrong. The explorer visits every state that a situation
// can reach and reports a state in which a promise is broken, with the shortest path to it. The tests also
// remove the protocol's rules, one at a time, and expect a broken promise.
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
// Delete that overlaps with an update of the deleted plan. The situations exclude both, and TestLimits shows
// that the model finds the trouble. The model does not check what a Read returns that overlaps with both a
// Delete and another Create of its ID.
//
// The steps of the model have the names that the vault's errors use. TestNamesOfSteps compares them.
package protocol
