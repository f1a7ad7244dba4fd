// Package storagetest is the conformance suite of [storage.Vault]. Authors of a vault prove it with one call
// of [Run]. The suite depends on the contract alone.
//
// Each case is a promise of the contract. Its name consists of a verb and the promise in words. The verbs are create,
// restore, copy, read, update, delete, list, search, count, recovery, members, notes, audit, check, and engine, which
// replays what existing engines do. A harness need not offer deaths, faults or a check, and a vault need not offer a
// [storage.Control], a [storage.Restorer] or a [storage.Copier]; the cases that need
// them are then skipped. Package metamorphic adds random operations to the suite.
//
// docs/embedding.md has a table of what a vault that passed the suite of commit b60c38c has to change.
package storagetest

import (
	"context"
	"slices"
	"testing"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
)

// T is the part of *testing.T that cases need. Programs can implement it to run cases.
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

// Harness gives the suite access to the vault under test.
type Harness struct {
	// New makes a new, empty store for one case.
	New func(t T) Store
	// Around, if set, runs each case, for example in a bubble of testing/synctest. Cases sleep and set
	// deadlines, but none depends on real time.
	Around func(t *testing.T, run func(t *testing.T))
	// Parallel runs the cases in parallel, for services that take time to answer.
	Parallel bool
	// Skip, if set, returns the reason to leave a case out, or an empty string.
	Skip func(c Case) string
}

// Register returns a new registry with the plugins of the suite's plans.
func Register() *registry.Register { return plantest.Register() }

// Store is one store under test. Open is required, the other fields are optional. All vaults use the registry
// that [Register] returns.
type Store struct {
	// Open opens a vault on the store: another node, or the same node after a restart. The case closes it.
	Open func(t T) storage.Vault
	// Dying opens a vault whose process dies at its nth request to the store, counted from 1, before or after
	// the request takes effect. From then on nothing that it does has any effect, and its calls fail when
	// their contexts end. died reports whether the process has died.
	Dying func(t T, n int, after bool) (v storage.Vault, died func() bool)
	// Faulty opens a vault whose requests meet temporary faults: requests and answers are lost, errors come
	// before and after the request takes effect, copies arrive late. The faults depend on the seed. There are
	// so few that every call succeeds in time.
	Faulty func(t T, seed uint64) storage.Vault
	// Unversioned opens a vault that accepts updates without a version.
	Unversioned func(t T) storage.Vault
	// PassGrace lets enough time pass for Recovery to act on what is unfinished now. It is nil if no time
	// need pass.
	PassGrace func(t T)
	// Check returns the invariants that the stored data violates, and what is left of plans that are gone.
	Check func(t T, v storage.Vault) []string
}

// Case is one promise of the contract.
type Case struct {
	// Name is the verb and the promise, such as "create/no reader sees a plan before it is whole".
	Name string
	// Run fails the test if the vault breaks the promise.
	Run func(t T, h Harness)
	// Long cases take a third of the suite's time. Short runs leave them out.
	Long bool
}

// long names the long cases.
var long = []string{
	"create/a plan of 5,000 actions comes back whole in every state",
	"create/requests and responses of 1 MB come back unchanged",
	"recovery/a Recovery that dies at any request is finished by another",
	"recovery/two nodes at once leave nothing unfinished",
}

// Cases returns all cases, sorted by verb.
func Cases() (list []Case) {
	for _, v := range []struct {
		name     string
		promises []promise
	}{
		{"create", createPromises()},
		{"restore", restorePromises()},
		{"read", readPromises()},
		{"update", updatePromises()},
		{"delete", deletePromises()},
		{"list", listPromises()},
		{"search", searchPromises()},
		{"count", countPromises()},
		{"recovery", recoveryPromises()},
		{"members", memberPromises()},
		{"notes", notePromises()},
		{"keys", keyPromises()},
		{"audit", auditPromises()},
	} {
		list = append(list, cases(v.name, append(v.promises, methodPromises(v.name)...))...)
	}
	return slices.Concat(list, cases("copy", copyPromises()), cases("check", checkPromises()), cases("engine", enginePromises()))
}

// Run runs all cases of the suite, and more cases, as subtests.
func Run(t *testing.T, h Harness, more ...Case) {
	around := h.Around
	if around == nil {
		around = func(t *testing.T, run func(t *testing.T)) { run(t) }
	}
	for _, c := range append(Cases(), more...) {
		t.Run(c.Name, func(t *testing.T) {
			if h.Skip != nil {
				if reason := h.Skip(c); reason != "" {
					t.Skip(reason)
				}
			}
			if h.Parallel {
				t.Parallel()
			}
			skipped := false
			around(t, func(t *testing.T) {
				defer func() { skipped = t.Skipped() }()
				c.Run(t, h)
			})
			if skipped { // a bubble prints the reason, but does not skip the test around it
				t.SkipNow()
			}
		})
	}
}
