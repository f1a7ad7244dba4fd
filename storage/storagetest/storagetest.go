// Package storagetest is the conformance suite of storage.Vault: whoever writes or embeds a vault proves it with one call of
// Run. The suite knows the contract and nothing of any vault behind it.
//
// Each case is a promise of the contract, in words in its name, sorted by verb: create, read, update, delete, list, search,
// recovery, check, and engine, which replays what existing engines do. What a harness can't offer (deaths, faults, a check) is left out, and the cases that need it are skipped
// with the reason. Model runs random operations of several clients on the vault under test and on a plain map.
package storagetest

import (
	"context"
	"slices"
	"testing"

	"github.com/planvault/azblob/storage"
)

// T is what a case needs of a *testing.T, so that programs can run the cases too.
type T interface {
	Helper()
	Name() string
	Context() context.Context
	Cleanup(func())
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Skipf(format string, args ...any)
	Failed() bool
}

var _ T = (*testing.T)(nil)

// Harness is how the suite gets at the vault under test.
type Harness struct {
	// New makes a new and empty store, which lives as long as the case.
	New func(t T) Store
	// Around, when set, runs each case, such as in a bubble of testing/synctest. Cases never rely on real time, but they sleep
	// and set deadlines.
	Around func(t *testing.T, run func(t *testing.T))
	// Parallel runs cases beside each other, where time passes in waiting for a service.
	Parallel bool
}

// Store is one store under test. Open is required, the rest is optional. All vaults read requests and responses with
// plantest.Register.
type Store struct {
	// Open opens a vault on the store. Each call is another node, or the process started again. The case closes it.
	Open func(t T) storage.Vault
	// Dying opens a vault whose process dies at its nth request to the store, counted from 1, before or after the request took
	// effect: from then on nothing that it does has any effect, and its calls fail when their contexts end. died says whether it
	// has come to that.
	Dying func(t T, n int, after bool) (v storage.Vault, died func() bool)
	// Faulty opens a vault whose requests meet passing faults at random, which depend on the seed: requests and answers that are
	// lost, errors before and after the request took effect, late copies. They are few enough for every call to succeed in time.
	Faulty func(t T, seed uint64) storage.Vault
	// Unversioned opens a vault that accepts updates without a version.
	Unversioned func(t T) storage.Vault
	// PassGrace lets enough time pass for Recovery to touch what is unfinished now. Where it is nil nothing need pass.
	PassGrace func(t T)
	// Check says which invariants of what is stored are broken, and whether anything is left of plans that are not there.
	Check func(t T, v storage.Vault) []string
}

// Case is one promise of the contract.
type Case struct {
	// Name is the verb and the promise, such as "create/a plan is shown whole or not at all".
	Name string
	// Run breaks the test where the vault does not keep it.
	Run func(t T, h Harness)
}

// Cases returns all cases, sorted by verb.
func Cases() []Case {
	return slices.Concat(
		createCases(), readCases(), updateCases(), deleteCases(),
		listCases(), searchCases(), recoveryCases(), checkCases(), engineCases(),
	)
}

// Run runs all cases of the suite, and more cases, as subtests.
func Run(t *testing.T, h Harness, more ...Case) {
	around := h.Around
	if around == nil {
		around = func(t *testing.T, run func(t *testing.T)) { run(t) }
	}
	for _, c := range append(Cases(), more...) {
		t.Run(c.Name, func(t *testing.T) {
			if h.Parallel {
				t.Parallel()
			}
			skipped := false
			around(t, func(t *testing.T) {
				defer func() { skipped = t.Skipped() }()
				c.Run(t, h)
			})
			if skipped { // a bubble keeps that to itself, but for the reason, which it has printed
				t.SkipNow()
			}
		})
	}
}
