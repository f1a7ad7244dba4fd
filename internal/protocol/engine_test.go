package protocol

import (
	"testing"

	"github.com/planvault/azblob/internal/efforttest"
)

// runs is a situation of the model of what engines store of a plan: a sequence of two actions, and a deferred action
// that depends on whether the plan was asked to stop. Two engines take the plan from each other at any time, rightly or
// not. They die, freeze, and get stop requests between any two steps. That a taken plan refuses the former owner's writes is
// shown by the model of a fleet.
type runs struct {
	idempotent bool // the actions are
	delay      bool // the sequence waits before its first action
	checks     bool // the sequence has deferred checks, which run when it ends
	poison     bool // the second action ends each process
	once       bool // the actions have AtMost 1
	later      bool // the first action is called again, twice, and the plan may sleep in between; nobody asks for a stop
	hook       bool // engines call a hook before they end the plan, which has no deferred actions

	mutant
	search[runState]
}

// mostCrashes is Options.Crashes.
const mostCrashes = 1

// runState is a state of the model.
type runState struct {
	plan, sequence, deferred status
	actions                  [2]runAction
	asleep                   bool // nobody has it, because its owner lets it sleep
	asked                    bool // somebody has asked for a stop, and whoever owns the plan hears of it
	stop                     bool // it is stored in the plan
	engines                  [2]runEngine
	waited                   bool                 // the sequence's delay has begun
	cleaned                  bool                 // the deferred checks have run
	polled                   uint8                // calls of the first action that have ended, and asked for another one
	withState                [mostPolls + 1]uint8 // calls of the first action that began, by how many had asked for another one
	calls                    [2]uint8             // that began, of each action
	begun                    [2]bool              // the deferred actions that have begun: for success, and after a stop
	fixed                    runEnd               // the outcome that is stored before the hook is called
	told                     [2]bool              // the outcomes that a hook has heard of and returned
	outcome
}

type runAction struct {
	status  status
	unended uint8 // attempts that are stored and never ended
	polls   uint8 // calls that have ended, and asked for another one
	waits   bool  // the last attempt has not ended, and nothing of it runs; it is none of the unended ones
}

// runEnd is how a plan ends, if that is decided.
type runEnd uint8

const (
	runUndecided runEnd = iota
	runSucceeds
	runStopped
)

// runEngine is an engine, with the plan as it has it.
type runEngine struct {
	at       runPlace
	k        uint8 // the action
	match    bool  // the plan is its own
	sequence status
	actions  [2]runAction
	doubts   [2]bool // the action may have run already
	noted    bool    // the attempt is stored
	stop     bool    // it is stored in the plan
	halted   bool    // nothing more begins
	ending   bool    // the outcome is fixed
	end      runEnd  // how the plan ends, if it has a hook
	after    uint8   // calls that began after it lost the plan
}

type runPlace uint8

const (
	runNothing runPlace = iota
	runBegins
	runAttempts
	runWaits
	runCalls
	runReturns
	runEndsSequence
	runFixes
	runDefers
	runEndsDeferred
	runFixesEnd
	runTells
	runEndsPlan
)

// The promises of what an engine stores, as they are broken.
var (
	runUnseen       = breaking("an action that is not idempotent runs, and is stored as NotStarted")
	runWaitsAgain   = breaking("a death prolongs a delay")
	runUncleaned    = breaking("deferred checks of what has begun never run")
	runBothOutcomes = breaking("deferred actions of two outcomes begin")
	runTooLate      = breaking("an owner begins an action after deferred actions have begun")
	runForgets      = breaking("a plan ends with a container that is NotStarted above an action that is not")
	runEndless      = breaking("an action ends more processes than Options.Crashes allows")
	runTooOften     = breaking("an action runs more often than its AtMost allows")
	runTwiceFenced  = breaking("an engine begins more than one action after it has lost the plan")
	runUntold       = breaking("a plan ends, and no hook has heard of it and returned")
	runToldOther    = breaking("a plan ends otherwise than a hook has heard")
	runForgetsPolls = breaking("a call does not get the state of the one before")
	runCallsTwice   = breaking("an action with AtMost is called twice with one state")
	runBlamed       = breaking("an action fails although no more owners crashed or froze in it than Options.Crashes allows")
)

// The rules of what an engine stores.
const (
	runStoresAttempt rule = "an action that is not idempotent begins before its attempt is stored"
	runStoresDelay   rule = "an object that waits is not stored before"
	runStoresChecks  rule = "an object with deferred checks is not stored before anything below it"
	runStoresOutcome rule = "a deferred action begins before DeferredActions is stored"
	runKeepsOutcome  rule = "an engine stops a plan whose DeferredActions have begun"
	runHearsLate     rule = "an engine that takes a plan whose DeferredActions have begun halts it for a stop that nobody stored"
	runStoresStop    rule = "the outcome of a stop is fixed before the stop is stored"
	runInfers        rule = "an engine does not infer what has begun"
	runDoubts        rule = "an engine stores no attempt of an idempotent action that may have run already"
	runCounts        rule = "an engine does not count attempts that never ended against AtMost"
	runFixesBefore   rule = "the hook is called before the outcome is stored"
	runTellsAgain    rule = "an engine that takes a plan whose outcome is stored does not call the hook"
	runKeepsEnd      rule = "an engine that takes a plan whose outcome is stored accepts a stop"
	runStoresState   rule = "a plugin is called later before its state is stored"
	runKeepsAttempt  rule = "an engine that picks a plan up takes an attempt that waits for one that never ended"
	runStoresCall    rule = "a call of an action with AtMost is not stored before"
	runDoubtsCall    rule = "an engine that takes a plan does not store that it calls an action again"
	runGivesUp       rule = "an engine goes on after a write was refused"
)

func (x *runs) steps(from runState, yield func(move, runState)) {
	next := new(runState) // one for all steps
	for i := range from.engines {
		do := func(what string, change func(st *runState, e *runEngine)) {
			*next = from
			change(next, &next.engines[i])
			yield(move{i, -1, what, false}, *next)
		}
		// write is a step that stores something first.
		write := func(what string, change func(st *runState, e *runEngine)) {
			do(what, func(st *runState, e *runEngine) {
				switch before := *st; {
				case e.match:
					change(st, e)
				case x.lacks(runGivesUp):
					change(st, e)
					kept := st.engines[i]
					*st = before
					st.engines[i] = kept
				default:
					*e = runEngine{}
				}
			})
		}
		x.engine(from.engines[i], do, write)
		switch e := from.engines[i]; {
		case x.later:
		case !from.asked:
			do("is asked to stop the plan", func(st *runState, _ *runEngine) { st.asked = true })
		case e.at != runNothing && !e.halted && !e.ending:
			do("halts", func(_ *runState, e *runEngine) { e.halted = true })
		}
		if from.plan != final {
			do("picks the plan up", func(st *runState, e *runEngine) { x.pickUp(st, e, &st.engines[1-i]) })
		}
	}
}

// pickUp makes an engine the owner of the plan.
func (x *runs) pickUp(st *runState, e, other *runEngine) {
	other.match = false
	quiet := st.asleep // nothing ran when its owner let it sleep
	st.asleep = false
	*e = runEngine{at: runBegins, match: true, sequence: st.sequence, actions: st.actions, stop: st.stop}
	e.ending = st.deferred != notStarted && !x.lacks(runKeepsOutcome) || st.fixed != runUndecided && !x.lacks(runKeepsEnd)
	e.halted = st.stop || st.asked && (!e.ending || x.lacks(runHearsLate))
	if st.plan == running && !x.lacks(runDoubts) && !quiet {
		for k, a := range st.actions {
			if a.status != final {
				e.doubts[k] = true
				break
			}
		}
	}
	if !x.lacks(runInfers) && e.sequence == notStarted && st.actions[0].status != notStarted {
		e.sequence = running
	}
	if a := &e.actions[0]; a.waits && x.lacks(runKeepsAttempt) {
		a.waits, a.polls, a.unended = false, 0, a.unended+1
	}
	st.plan = running
	if e.end = st.fixed; e.end != runUndecided && !x.lacks(runKeepsEnd) {
		e.at = runTells
		if x.lacks(runTellsAgain) {
			e.at = runEndsPlan
		}
	}
}

// engine yields the steps of an engine that has picked the plan up.
func (x *runs) engine(e runEngine, do, write func(string, func(st *runState, e *runEngine))) {
	if e.at == runNothing {
		return
	}
	do("dies", func(_ *runState, e *runEngine) { *e = runEngine{} })
	if !e.stop && !e.ending && !x.later {
		write("stores a stop", func(st *runState, e *runEngine) { st.stop, e.stop, e.halted = true, true, true })
	}
	switch e.at {
	case runBegins:
		x.begin(e, do, write)
	case runAttempts:
		x.attempt(e, do, write)
	case runCalls:
		do("begins an action", func(st *runState, e *runEngine) { x.call(st, e) })
	case runWaits:
		do("waits until the next call", func(_ *runState, e *runEngine) { e.at = runAttempts })
		write("lets the plan sleep", func(st *runState, e *runEngine) { st.asleep, *e = true, runEngine{} })
	case runReturns:
		switch {
		case x.later && e.k == 0 && x.poison && e.actions[0].polls > 0: // each further call ends its process
		case x.later && e.k == 0 && e.actions[0].polls < mostPolls:
			x.postpone(do, write)
		case !x.poison || e.k == 0:
			write("stores the end of an action", func(st *runState, e *runEngine) {
				a := &e.actions[e.k]
				if a.status = final; e.noted {
					a.unended--
				}
				st.actions[e.k] = *a
				e.at, e.noted, e.k = runAttempts, false, e.k+1
			})
		}
	case runEndsSequence:
		write("stores the end of the sequence", func(st *runState, e *runEngine) { st.sequence, st.cleaned, e.at = final, true, runFixes })
	case runFixes:
		if x.hook {
			do("decides the outcome", func(_ *runState, e *runEngine) {
				e.ending, e.end, e.at = true, runSucceeds, runFixesEnd
				if e.halted {
					e.end = runStopped
				}
			})
			return
		}
		if e.halted && !e.stop && !x.lacks(runStoresStop) {
			write("stores the stop", func(st *runState, e *runEngine) { st.stop, e.stop, e.ending = true, true, true })
			return
		}
		fix := func(_ *runState, e *runEngine) { e.ending, e.at = true, runDefers }
		if x.lacks(runStoresOutcome) {
			do("fixes the outcome", fix)
			return
		}
		write("stores that deferred actions begin", func(st *runState, e *runEngine) {
			st.deferred = running
			fix(st, e)
		})
	case runDefers:
		do("begins a deferred action", func(st *runState, e *runEngine) {
			which := 0
			if e.halted {
				which = 1
			}
			st.begun[which], e.at = true, runEndsDeferred
			x.breaks(&st.outcome, runBothOutcomes, st.begun[1-which])
		})
	case runEndsDeferred:
		write("stores the end of deferred actions", func(st *runState, e *runEngine) { st.deferred, e.at = final, runEndsPlan })
	case runFixesEnd:
		fix := func(st *runState, e *runEngine) { e.at = runTells }
		if x.lacks(runFixesBefore) {
			do("fixes the outcome", fix)
			return
		}
		write("stores the outcome", func(st *runState, e *runEngine) {
			st.fixed = e.end
			fix(st, e)
		})
	case runTells:
		do("calls the hook", func(st *runState, e *runEngine) { st.told[e.end-1], e.at = true, runEndsPlan })
	case runEndsPlan:
		write("stores the end of the plan", func(st *runState, e *runEngine) {
			if x.hook {
				x.breaks(&st.outcome, runUntold, st.told == [2]bool{})
				x.breaks(&st.outcome, runToldOther, st.told[2-e.end])
			}
			x.breaks(&st.outcome, runForgets, st.sequence == notStarted && st.actions[0].status != notStarted)
			x.breaks(&st.outcome, runUncleaned, x.checks && st.calls[0] > 0 && !st.cleaned)
			st.plan, *e = final, runEngine{}
		})
	}
}

func (x *runs) begin(e runEngine, do, write func(string, func(st *runState, e *runEngine))) {
	begin := func(_ *runState, e *runEngine) { e.sequence, e.at = running, runAttempts }
	waits := func(st *runState, e *runEngine) {
		x.breaks(&st.outcome, runWaitsAgain, st.waited)
		st.waited = true
		begin(st, e)
	}
	switch {
	case e.sequence == final || e.sequence == notStarted && e.halted:
		do("skips the sequence", func(_ *runState, e *runEngine) { e.at = runFixes })
	case e.sequence == running || !x.delay && (!x.checks || x.lacks(runStoresChecks)):
		do("begins the sequence", begin)
	case x.delay && x.lacks(runStoresDelay):
		do("waits", waits)
	default:
		write("stores that the sequence begins, and waits", func(st *runState, e *runEngine) {
			st.sequence = running
			waits(st, e)
		})
	}
}

// attempt is what precedes the call of an action.
func (x *runs) attempt(e runEngine, do, write func(string, func(st *runState, e *runEngine))) {
	if int(e.k) == len(e.actions) || e.halted && e.actions[e.k].status == notStarted {
		do("leaves the sequence", func(_ *runState, e *runEngine) { e.at = runEndsSequence })
		return
	}
	switch a := e.actions[e.k]; {
	case a.status == final:
		do("skips an action", func(_ *runState, e *runEngine) { e.k++ })
	case e.halted || a.unended > mostCrashes || x.once && a.unended > 0 && !x.lacks(runCounts):
		write("stores the end of an action that does not run", func(st *runState, e *runEngine) {
			e.actions[e.k].status, e.at = final, runEndsSequence
			st.actions[e.k] = e.actions[e.k]
		})
	case a.waits && (e.doubts[e.k] && !x.lacks(runDoubtsCall) || x.once && !x.lacks(runStoresCall)):
		write("stores that it calls an action again", func(st *runState, e *runEngine) {
			a := &e.actions[e.k]
			a.waits, a.unended = false, a.unended+1
			st.actions[e.k] = *a
			e.noted, e.at = true, runCalls
		})
	case a.waits:
		do("calls an action again", func(_ *runState, e *runEngine) { e.at = runCalls })
	case x.idempotent && !e.doubts[e.k] || !x.idempotent && x.lacks(runStoresAttempt):
		do("stores no attempt", func(_ *runState, e *runEngine) { e.at = runCalls })
	default:
		write("stores an attempt", func(st *runState, e *runEngine) {
			a := &e.actions[e.k]
			a.status, a.unended = running, a.unended+1
			st.actions[e.k] = *a
			e.noted, e.at = true, runCalls
		})
	}
}

// mostPolls is how often the first action asks for another call.
const mostPolls = 2

// postpone ends a call that asks for another one.
func (x *runs) postpone(do, write func(string, func(st *runState, e *runEngine))) {
	asks := func(st *runState, e *runEngine) {
		a := &e.actions[0]
		if a.polls, a.waits = a.polls+1, true; e.noted {
			a.unended--
		}
		st.polled = max(st.polled, a.polls)
		e.noted, e.doubts[0], e.at = false, false, runWaits
	}
	if x.lacks(runStoresState) {
		do("calls an action later", asks)
		return
	}
	write("stores that it calls an action later", func(st *runState, e *runEngine) {
		asks(st, e)
		st.actions[0] = e.actions[0]
	})
}

// call begins an action.
func (x *runs) call(st *runState, e *runEngine) {
	e.at = runReturns
	st.calls[e.k]++
	if !e.match {
		e.after++
	}
	most := uint8(mostCrashes + 1)
	if x.idempotent {
		most++
	}
	x.breaks(&st.outcome, runTooLate, e.match && (st.begun[0] || st.begun[1]))
	x.breaks(&st.outcome, runUnseen, !x.idempotent && st.actions[e.k].status == notStarted)
	x.breaks(&st.outcome, runTwiceFenced, e.after > 1)
	if x.later && e.k == 0 {
		polls := e.actions[0].polls
		st.withState[polls]++
		st.calls[0] = 1
		x.breaks(&st.outcome, runForgetsPolls, e.match && polls < st.polled)
		x.breaks(&st.outcome, runCallsTwice, x.once && st.withState[polls] > 1)
		x.breaks(&st.outcome, runEndless, st.withState[polls] > mostCrashes+2)
		return
	}
	x.breaks(&st.outcome, runEndless, st.calls[e.k] > most)
	x.breaks(&st.outcome, runTooOften, x.once && st.calls[e.k] > 1)
}

// tidy makes states equal that differ only in the names of the engines, or in what an engine does not use again. The owner
// is the first.
func (x *runs) tidy(st *runState) {
	for i := range st.engines {
		st.engines[i].forget(x.lacks(runGivesUp) || x.lacks(runStoresOutcome) || x.lacks(runFixesBefore))
	}
	if e := &st.engines; e[1].match || !e[0].match && e[1].at > e[0].at {
		e[0], e[1] = e[1], e[0]
	}
}

// forget forgets what an engine knows of earlier actions. A former owner whose next step is a write has come to its end,
// unless it goes on after a write that was refused, or begins deferred actions without one.
func (e *runEngine) forget(goesOn bool) {
	begins := e.at == runBegins || e.at == runAttempts || e.at == runWaits || e.at == runCalls || e.at == runDefers || e.at == runTells
	switch {
	case !e.match && !begins && !goesOn:
		*e = runEngine{}
	case e.at > runReturns:
		e.sequence, e.k, e.actions, e.doubts = notStarted, 0, [2]runAction{}, [2]bool{}
	case e.k > 0:
		e.actions[0], e.doubts[0] = runAction{}, false
	}
	if e.at >= runAttempts {
		e.sequence = notStarted
	}
}

// TestEngine explores what engines store of a plan.
func TestEngine(t *testing.T) {
	list := []*runs{
		{},
		{delay: true, checks: true, idempotent: true},
		{delay: true, checks: true, idempotent: true, poison: true},
		{poison: true},
		{idempotent: true},
		{delay: true, checks: true},
		{idempotent: true, poison: true},
		{delay: true, checks: true, poison: true},
		{once: true},
		{later: true},
		{later: true, once: true},
		{later: true, poison: true},
		{hook: true},
	}
	holds(t, list[:efforttest.Pick(1, 2, len(list))])
}

// runNeeds says for each rule which promise is broken without it.
var runNeeds = needs{
	{&runs{}, runUnseen, rules{runStoresAttempt}},
	{&runs{delay: true}, runWaitsAgain, rules{runStoresDelay}},
	{&runs{checks: true, idempotent: true}, runUncleaned, rules{runStoresChecks}},
	{&runs{}, runBothOutcomes, rules{runStoresOutcome, runKeepsOutcome, runHearsLate}},
	{&runs{}, runTooLate, rules{runStoresStop}},
	{&runs{}, runForgets, rules{runInfers}},
	{&runs{poison: true, idempotent: true}, runEndless, rules{runDoubts}},
	{&runs{once: true}, runTooOften, rules{runCounts}},
	{&runs{hook: true}, runToldOther, rules{runFixesBefore, runKeepsEnd}},
	{&runs{hook: true}, runUntold, rules{runTellsAgain}},
	{&runs{later: true}, runForgetsPolls, rules{runStoresState, runKeepsAttempt}},
	{&runs{later: true, once: true}, runCallsTwice, rules{runStoresCall}},
	{&runs{later: true, poison: true}, runEndless, rules{runDoubtsCall}},
	{&runs{idempotent: true}, runTwiceFenced, rules{runGivesUp}},
}
