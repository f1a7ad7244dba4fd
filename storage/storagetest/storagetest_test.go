package storagetest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/storage/storagetest/metamorphic"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// harness returns a harness for vaults in memory, changed by broken and by options.
func harness(broken func(storage.Vault) storage.Vault, opts ...memvault.Option) storagetest.Harness {
	return storagetest.Harness{New: func(storagetest.T) storagetest.Store {
		store := memvault.NewStore()
		return storagetest.Store{
			Open: func(storagetest.T) storage.Vault { return broken(store.Open(plantest.Register(), opts...)) },
			Unversioned: func(storagetest.T) storage.Vault {
				return broken(store.Open(plantest.Register(), memvault.WithUnversionedUpdates()))
			},
			Dying: func(_ storagetest.T, n int, after bool) (storage.Vault, func() bool) {
				m := &mortal{Vault: store.Open(plantest.Register()), n: n, after: after}
				return broken(m), m.died
			},
			PassGrace: func(storagetest.T) {},
			Check:     func(storagetest.T, storage.Vault) []string { return nil },
		}
	}}
}

// cases are those of the suite and of package metamorphic.
func cases() []storagetest.Case { return append(storagetest.Cases(), metamorphic.Cases()...) }

func sound(v storage.Vault) storage.Vault { return v }

// recentCase fails for a vault that leaves nothing unfinished.
const recentCase = "recovery/Recovery leaves recent remains alone"

func TestSoundVaultPasses(t *testing.T) {
	for _, c := range cases() {
		if c.Name == recentCase || c.Long { // memvault's own test runs the long cases
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, harness(sound)) })
		})
	}
}

// TestGoroutinesOfOthers runs the cases that look for leaked goroutines while another goroutine of the
// process appears.
func TestGoroutinesOfOthers(t *testing.T) {
	begin, end := make(chan struct{}), make(chan struct{})
	defer close(end)
	go func() {
		for range begin {
			go func() { <-end }()
		}
	}()
	defer close(begin)
	h := harness(sound)
	unbroken := h.New
	h.New = func(t storagetest.T) storagetest.Store {
		s := unbroken(t)
		opens := s.Open
		s.Open = func(t storagetest.T) storage.Vault {
			begin <- struct{}{}
			return opens(t)
		}
		return s
	}
	for _, name := range []string{
		"list/a break leaves no goroutine, and the vault is still usable",
		"list/a listing whose context ends is never taken for a short list",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { caseOf(t, name).Run(t, h) })
		})
	}
}

// TestNames checks that names are unique and ordered, and how many cases are long.
func TestNames(t *testing.T) {
	verbs := []string{"create", "restore", "read", "update", "delete", "list", "search", "count", "recovery", "members", "check", "engine", "model"}
	last, long := 0, 0
	seen := map[string]bool{}
	for _, c := range cases() {
		verb, promise, _ := strings.Cut(c.Name, "/")
		i := slices.Index(verbs, verb)
		if i < last || promise == "" || strings.Contains(promise, "/") {
			t.Errorf("case %q is not a verb and a promise, in the order of verbs", c.Name)
		}
		if seen[c.Name] {
			t.Errorf("two cases have the name %q", c.Name)
		}
		last, seen[c.Name] = max(i, last), true
		if c.Long {
			long++
		}
	}
	if long != 8 {
		t.Errorf("%d cases are long, want 8", long)
	}
}

func TestWhatIsNotOfferedIsSkipped(t *testing.T) {
	h := storagetest.Harness{New: func(storagetest.T) storagetest.Store {
		store := memvault.NewStore()
		return storagetest.Store{Open: func(storagetest.T) storage.Vault { return store.Open(plantest.Register()) }}
	}}
	skipped := 0
	for _, c := range storagetest.Cases() {
		if c.Long {
			continue
		}
		r := record(t, c, h)
		if r.failed {
			t.Errorf("%s: %s", c.Name, r.text())
		}
		if r.skipped {
			skipped++
		}
	}
	if skipped == 0 {
		t.Error("no case was skipped")
	}
}

// TestBrokenVaultsAreCaught breaks one promise after the other. The case for the promise must fail.
func TestBrokenVaultsAreCaught(t *testing.T) {
	for _, b := range []struct {
		breakage string
		vault    func(storage.Vault) storage.Vault
		caughtBy string
	}{
		{"an update is dropped", func(v storage.Vault) storage.Vault { return dropsUpdates{v} }, "read/a running plan shows each update and its version"},
		{"versions are ignored", func(v storage.Vault) storage.Vault { return ignoresVersions{v} }, "update/an old version is ErrConflict and changes nothing"},
		{"states go back", func(v storage.Vault) storage.Vault { return ignoresVersions{v} }, "update/plans only move forward, and a final status stays"},
		{"updates without a version are accepted", sound, "update/an empty version is ErrInvalid and changes nothing"},
		{"a string that is not a version is accepted", func(v storage.Vault) storage.Vault { return ignoresVersions{v} }, "update/a string that is not a version is ErrInvalid and changes nothing"},
		{"children are not compared", func(v storage.Vault) storage.Vault { return ignoresVersions{v} }, "update/other children than those of the version are ErrInvalid and change nothing"},
		{"sub-objects only move forward", func(v storage.Vault) storage.Vault { return forwardOnly{v} }, "update/sub-objects move to any status, forward and back"},
		{"sub-objects that went back keep the plan from becoming final", func(v storage.Vault) storage.Vault { return forwardOnly{v} }, "engine/a plan can become final with sub-objects that were reset in memory"},
		{"two nodes both win", func(v storage.Vault) storage.Vault { return ignoresVersions{v} }, "update/if two nodes update one version, one wins"},
		{"half of a plan is stored", func(v storage.Vault) storage.Vault { return storesHalf{v} }, "create/Create fills in what the author left out"},
		{"a fork starts from the beginning", func(v storage.Vault) storage.Vault { return startsAnew{v} }, "create/a fork comes back with what was Completed, in every state"},
		{"a fork is refused", func(v storage.Vault) storage.Vault { return refusesForks{v} }, "create/a plan that failed can be forked, and a fork that failed again"},
		{"any fork is accepted", func(v storage.Vault) storage.Vault { return acceptsForks{v} }, "create/a fork with a status that it can't have is ErrInvalid with the field, and nothing is stored"},
		{"an existing plan is replaced", func(v storage.Vault) storage.Vault { return replaces{v} }, "create/an ID that is taken is ErrExists, and the plan stays as it is"},
		{"an update restores a deleted plan", func(v storage.Vault) storage.Vault { return revives{v} }, "update/an update of a deleted plan is ErrNotFound and restores nothing"},
		{"memory is shared with readers", func(v storage.Vault) storage.Vault { return &shares{Vault: v} }, "read/the result shares no memory with the store"},
		{"a Delete without a plan succeeds", func(v storage.Vault) storage.Vault { return deletesAnything{v} }, "delete/an ID without a plan is ErrNotFound"},
		{"errors are bare", func(v storage.Vault) storage.Vault { return bareErrors{v} }, "read/an ID without a plan is ErrNotFound, and does not exist"},
		{"Close closes nothing", func(v storage.Vault) storage.Vault { return staysOpen{v} }, "check/a closed vault does nothing and returns ErrClosed"},
		{"reads ignore their context", func(v storage.Vault) storage.Vault { return ignoresContext{v} }, "read/a call whose context has ended fails with its error and does nothing"},
		{"plans are listed twice", lists(twice), "list/the newest plan comes first, in whatever order they were created"},
		{"the oldest comes first", lists(reversed), "list/the newest plan comes first, in whatever order they were created"},
		{"a plan is missed", lists(missing), "list/each of many plans is yielded once"},
		{"a cancelled listing is short", lists(short), "list/a listing whose context ends is never taken for a short list"},
		{"a dead listing is short", lists(short), "list/a listing whose service dies is never taken for a short list"},
		{"a listing leaves a goroutine", lists(leaking), "list/a break leaves no goroutine, and the vault is still usable"},
		{"a sequence can be used once", lists(once), "list/a sequence can be ranged over again, and queries the store each time"},
		{"names are trimmed", lists(trimmed), "list/strange names and descriptions of any length come back unchanged"},
		{"statuses are ignored", searches(func(f *storage.Filters) { f.ByStatus = nil; f.Limit = 1000 }), "search/a search by status follows a plan through its life"},
		{"BeforeID is ignored", searches(func(f *storage.Filters) { f.BeforeID = uuid.Nil }), "search/BeforeID need not belong to a plan"},
		{"times are compared to the second", searches(func(f *storage.Filters) { f.After = f.After.Truncate(time.Second) }), "search/times are exclusive bounds, compared to the millisecond"},
		{"names are compared without case", searches(func(f *storage.Filters) { f.NamePrefix = strings.ToLower(f.NamePrefix) }), "search/names match by prefix and substring, byte by byte, however long they are"},
		{"substrings are cut", searches(func(f *storage.Filters) { f.NameContains = f.NameContains[:min(len(f.NameContains), 4)] }), "search/names match by prefix and substring, byte by byte, however long they are"},
		{"EndedAfter is ignored", searches(func(f *storage.Filters) { f.EndedAfter, f.Limit = time.Time{}, 1000 }), "search/times of end are exclusive bounds, to the nanosecond, of plans that have ended"},
		{"ends are compared to the microsecond", searches(func(f *storage.Filters) { f.EndedBefore = f.EndedBefore.Truncate(time.Microsecond) }), "search/times of end are exclusive bounds, to the nanosecond, of plans that have ended"},
		{"Count counts one more", counts(func(n int64, err error) (int64, error) { return n + 1, err }), "count/the zero value counts all plans, and of each day"},
		{"a dead count is short", counts(func(n int64, err error) (int64, error) { return n, nil }), "count/a count whose service dies is an error"},
		{"the limit is exceeded by one", searches(func(f *storage.Filters) { f.Limit += min(f.Limit, 1) }), "search/a search by IDs yields each plan once and skips IDs without a plan"},
	} {
		t.Run(b.breakage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The vault accepts empty versions, because some of the broken vaults remove versions.
				fails(t, b.caughtBy, harness(b.vault, memvault.WithUnversionedUpdates()))
				time.Sleep(time.Minute) // leaked goroutines end
			})
		})
	}
}

// TestBrokenMembersAreCaught breaks one promise of storage.Members after the other.
func TestBrokenMembersAreCaught(t *testing.T) {
	const (
		stale   = "members/a version that is not stored any more is ErrConflict and changes nothing"
		gone    = "members/a record that was removed can't be renewed or removed"
		renewed = "members/a renewal gives the record a new version and a later time"
		race    = "members/if several nodes renew or remove one version, one wins"
		stop    = "members/a stop request is kept once, until its version is removed"
	)
	for _, b := range []struct {
		breakage string
		members  func(*memvault.Vault) storage.Members
		caughtBy string
	}{
		{"a renewal ignores the version", func(v *memvault.Vault) storage.Members { return renewsAny{v} }, stale},
		{"two nodes renew one version", func(v *memvault.Vault) storage.Members { return renewsAny{v} }, race},
		{"a renewal restores the record", func(v *memvault.Vault) storage.Members { return restores{v} }, gone},
		{"a renewal stores nothing", func(v *memvault.Vault) storage.Members { return renewsNothing{v} }, renewed},
		{"a removal ignores the version", func(v *memvault.Vault) storage.Members { return removesAny{v} }, stale},
		{"a stop request replaces an earlier one", func(v *memvault.Vault) storage.Members { return replacesStops{v} }, stop},
		{"a roster is told a minute late", func(v *memvault.Vault) storage.Members { return lateRoster{v} }, "members/a member is found by all nodes, until its record is removed"},
		{"a roster ends early", func(v *memvault.Vault) storage.Members { return shortRoster{v} }, "members/a roster has all of many members, in order"},
		{"Recovery removes members", func(v *memvault.Vault) storage.Members { return forgetful{v} }, "members/members and stop requests are no plans, and Recovery leaves them alone"},
	} {
		t.Run(b.breakage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fails(t, b.caughtBy, harness(func(v storage.Vault) storage.Vault {
					return b.members(v.(*memvault.Vault)).(storage.Vault)
				}))
			})
		})
	}
}

type renewsAny struct{ *memvault.Vault }

func (v renewsAny) RenewMember(ctx context.Context, m storage.Member) (string, error) {
	now, err := v.FindMember(ctx, m.ID)
	if err != nil {
		return "", err
	}
	m.Version = now.Version
	return v.Vault.RenewMember(ctx, m)
}

type restores struct{ *memvault.Vault }

func (v restores) RenewMember(ctx context.Context, m storage.Member) (string, error) {
	version, err := v.Vault.RenewMember(ctx, m)
	if errors.Is(err, storage.ErrNotFound) {
		m.Version = ""
		return v.AddMember(ctx, m)
	}
	return version, err
}

type renewsNothing struct{ *memvault.Vault }

func (v renewsNothing) RenewMember(_ context.Context, m storage.Member) (string, error) {
	return m.Version, nil
}

type removesAny struct{ *memvault.Vault }

func (v removesAny) RemoveMember(ctx context.Context, id uuid.UUID, _ string) error {
	m, err := v.FindMember(ctx, id)
	if err != nil {
		return err
	}
	return v.Vault.RemoveMember(ctx, id, m.Version)
}

type replacesStops struct{ *memvault.Vault }

func (v replacesStops) RequestStop(ctx context.Context, plan uuid.UUID) error {
	r, err := v.Roster(ctx)
	for _, stop := range r.Stops {
		err = errors.Join(err, v.RemoveStop(ctx, stop.Plan, stop.Version))
	}
	return errors.Join(err, v.Vault.RequestStop(ctx, plan))
}

type lateRoster struct{ *memvault.Vault }

func (v lateRoster) Roster(ctx context.Context) (storage.Roster, error) {
	r, err := v.Vault.Roster(ctx)
	r.Now = r.Now.Add(-time.Minute)
	return r, err
}

type shortRoster struct{ *memvault.Vault }

func (v shortRoster) Roster(ctx context.Context) (storage.Roster, error) {
	r, err := v.Vault.Roster(ctx)
	r.Members = r.Members[:min(len(r.Members), 30)]
	return r, err
}

type forgetful struct{ *memvault.Vault }

func (v forgetful) Recovery(ctx context.Context) error {
	r, err := v.Roster(ctx)
	for _, m := range r.Members {
		err = errors.Join(err, v.RemoveMember(ctx, m.ID, m.Version))
	}
	return err
}

// TestBrokenDeathsAreCaught breaks promises about processes that die, and about the grace period.
func TestBrokenDeathsAreCaught(t *testing.T) {
	const (
		creates   = "create/a death at any request leaves a whole plan or none, and Recovery removes the remains"
		deletes   = "delete/a death at any request leaves the plan whole or gone, and another Delete finishes"
		completes = "update/a death leaves a whole plan, with or without the update, and Recovery keeps it"
		returns   = "delete/a call returns soon after its context ends, whatever the service does"
	)
	done := func(context.Context) error { return nil }
	for _, b := range []struct {
		breakage string
		says     func(ctx context.Context) error
		half     bool
		caughtBy string
	}{
		{"Create returns nil without storing the plan", done, false, creates},
		{"Delete returns nil without removing the plan", done, false, deletes},
		{"the error of a write that took effect is not ErrUnknown", func(context.Context) error { return storage.ErrUnavailable }, false, completes},
		{"calls return long after their contexts end", func(ctx context.Context) error { time.Sleep(time.Minute); return ctx.Err() }, false, returns},
		{"half of a plan survives a death", nil, true, creates},
		{"recent remains are removed", nil, false, recentCase},
	} {
		t.Run(b.breakage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := harness(sound)
				unbroken := h.New
				h.New = func(t storagetest.T) storagetest.Store {
					s := unbroken(t)
					s.Dying = func(t storagetest.T, n int, after bool) (storage.Vault, func() bool) {
						m := &mortal{Vault: s.Open(t), n: n, after: after, says: b.says, half: b.half}
						return m, m.died
					}
					return s
				}
				fails(t, b.caughtBy, h)
			})
		})
	}
}

// caseOf returns the case with this name.
func caseOf(t *testing.T, name string) storagetest.Case {
	t.Helper()
	i := slices.IndexFunc(storagetest.Cases(), func(c storagetest.Case) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	return storagetest.Cases()[i]
}

// fails checks that a case fails on a broken vault.
func fails(t *testing.T, name string, h storagetest.Harness) {
	t.Helper()
	w := record(t, caseOf(t, name), h)
	if !w.failed {
		t.Errorf("%q did not fail", name)
	}
	t.Logf("%.300s", w.text())
}

func TestUnsoundStoreIsCaught(t *testing.T) {
	h := harness(sound)
	unbroken := h.New
	h.New = func(t storagetest.T) storagetest.Store {
		s := unbroken(t)
		s.Check = func(storagetest.T, storage.Vault) []string { return []string{"debris"} }
		return s
	}
	if r := record(t, storagetest.Cases()[0], h); !r.failed || !strings.Contains(r.text(), "debris") {
		t.Errorf("%s", r.text())
	}
}

// witness is a T that records how a case ended.
type witness struct {
	ctx  context.Context
	name string

	mu              sync.Mutex
	failed, skipped bool
	lines           []string
	cleanups        []func()
}

// record runs a case with a witness.
func record(t *testing.T, c storagetest.Case, h storagetest.Harness) *witness {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &witness{ctx: ctx, name: c.Name}
	r.do(func() { c.Run(r, h) })
	cancel()
	for _, f := range slices.Backward(r.cleanups) {
		r.do(f)
	}
	return r
}

// do runs a function that may call runtime.Goexit.
func (r *witness) do(f func()) {
	var wg sync.WaitGroup
	wg.Go(f)
	wg.Wait()
}

func (r *witness) text() string { return strings.Join(r.lines, "\n") }

func (r *witness) Helper()                      {}
func (r *witness) Name() string                 { return r.name }
func (r *witness) Context() context.Context     { return r.ctx }
func (r *witness) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *witness) Logf(format string, a ...any) { r.note(format, a...) }

func (r *witness) note(format string, a ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf(format, a...))
}

func (r *witness) Errorf(format string, a ...any) {
	r.note(format, a...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

func (r *witness) Fatalf(format string, a ...any) {
	r.Errorf(format, a...)
	runtime.Goexit()
}

func (r *witness) Skipf(format string, a ...any) {
	r.note(format, a...)
	r.skipped = true
	runtime.Goexit()
}

func (r *witness) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// mortal is a process that dies at its nth call. Each call of a vault in memory is one request.
type mortal struct {
	storage.Vault
	n     int
	after bool
	// says, if set, returns the errors of its calls after its death. The default is ErrUnknown.
	says func(ctx context.Context) error
	// half lets the last Create store a plan without its blocks.
	half bool

	mu      sync.Mutex
	seen    int
	hanging sync.WaitGroup
}

func (m *mortal) died() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen >= m.n
}

func (m *mortal) do(ctx context.Context, op string, plan uuid.UUID, call func() error) error {
	m.mu.Lock()
	m.seen++
	nth := m.seen
	if nth >= m.n {
		m.hanging.Add(1)
		defer m.hanging.Done()
	}
	m.mu.Unlock()
	if nth < m.n {
		return call()
	}
	if nth == m.n && m.after {
		_ = call()
	}
	<-ctx.Done()
	err := fmt.Errorf("%w: %w", storage.ErrUnknown, ctx.Err())
	if m.says != nil {
		err = m.says(ctx)
	}
	if err == nil {
		return nil
	}
	return &storage.Error{Op: op, Plan: plan, Err: err}
}

func (m *mortal) Close(ctx context.Context) error {
	_ = m.Vault.Close(ctx)
	idle := make(chan struct{})
	go func() { m.hanging.Wait(); close(idle) }()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return &storage.Error{Op: "Close", Err: ctx.Err()}
	}
}

func (m *mortal) Create(ctx context.Context, p *workflow.Plan) error {
	driver.Complete(p)
	return m.do(ctx, "Create", p.ID, func() error {
		if m.half {
			c := *p
			c.Blocks = nil
			return m.Vault.Create(ctx, &c)
		}
		return m.Vault.Create(ctx, p)
	})
}

func (m *mortal) Exists(ctx context.Context, id uuid.UUID) (found bool, err error) {
	err = m.do(ctx, "Exists", id, func() (err error) { found, err = m.Vault.Exists(ctx, id); return err })
	return found, err
}

func (m *mortal) Read(ctx context.Context, id uuid.UUID) (p *workflow.Plan, err error) {
	err = m.do(ctx, "Read", id, func() (err error) { p, err = m.Vault.Read(ctx, id); return err })
	return p, err
}

func (m *mortal) List(ctx context.Context, limit int) (results, error) {
	seq, err := m.Vault.List(ctx, limit)
	return m.stream(ctx, "List", seq), err
}

func (m *mortal) Search(ctx context.Context, f storage.Filters) (results, error) {
	seq, err := m.Vault.Search(ctx, f)
	return m.stream(ctx, "Search", seq), err
}

func (m *mortal) Count(ctx context.Context, f storage.Filters) (n int64, err error) {
	if err = m.do(ctx, "Count", uuid.Nil, func() (err error) { n, err = m.Vault.Count(ctx, f); return err }); err != nil {
		n = 0 // the answer was lost
	}
	return n, err
}

// stream treats each result as one request.
func (m *mortal) stream(ctx context.Context, op string, seq results) results {
	return func(yield func(result) bool) {
		next, stop := iter.Pull(seq)
		defer stop()
		for {
			var r result
			more := false
			if err := m.do(ctx, op, uuid.Nil, func() error { r, more = next(); return nil }); err != nil {
				yield(result{Err: err})
				return
			}
			if !more || !yield(r) {
				return
			}
		}
	}
}

func (m *mortal) Delete(ctx context.Context, id uuid.UUID) error {
	return m.do(ctx, "Delete", id, func() error { return m.Vault.Delete(ctx, id) })
}

func (m *mortal) Recovery(ctx context.Context) error {
	return m.do(ctx, "Recovery", uuid.Nil, func() error { return m.Vault.Recovery(ctx) })
}

func (m *mortal) UpdatePlan(ctx context.Context, o *workflow.Plan) error {
	return m.do(ctx, "UpdatePlan", o.ID, func() error { return m.Vault.UpdatePlan(ctx, o) })
}

func (m *mortal) UpdateChecks(ctx context.Context, o *workflow.Checks) error {
	return m.do(ctx, "UpdateChecks", o.PlanID, func() error { return m.Vault.UpdateChecks(ctx, o) })
}

func (m *mortal) UpdateBlock(ctx context.Context, o *workflow.Block) error {
	return m.do(ctx, "UpdateBlock", o.PlanID, func() error { return m.Vault.UpdateBlock(ctx, o) })
}

func (m *mortal) UpdateSequence(ctx context.Context, o *workflow.Sequence) error {
	return m.do(ctx, "UpdateSequence", o.PlanID, func() error { return m.Vault.UpdateSequence(ctx, o) })
}

func (m *mortal) UpdateAction(ctx context.Context, o *workflow.Action) error {
	return m.do(ctx, "UpdateAction", o.PlanID, func() error { return m.Vault.UpdateAction(ctx, o) })
}

func (m *mortal) UpdateDeferredActions(ctx context.Context, o *workflow.DeferredActions) error {
	return m.do(ctx, "UpdateDeferredActions", o.PlanID, func() error { return m.Vault.UpdateDeferredActions(ctx, o) })
}

func (m *mortal) UpdateDeferBatch(ctx context.Context, o *workflow.DeferBatch) error {
	return m.do(ctx, "UpdateDeferBatch", o.PlanID, func() error { return m.Vault.UpdateDeferBatch(ctx, o) })
}

// The following vaults break one promise each.

type dropsUpdates struct{ storage.Vault }

func (v dropsUpdates) UpdateAction(context.Context, *workflow.Action) error { return nil }

type ignoresVersions struct{ storage.Vault }

func (v ignoresVersions) UpdateAction(ctx context.Context, a *workflow.Action) error {
	a.State.ETag = ""
	return v.Vault.UpdateAction(ctx, a)
}

func (v ignoresVersions) UpdatePlan(ctx context.Context, p *workflow.Plan) error {
	p.State.ETag = ""
	return v.Vault.UpdatePlan(ctx, p)
}

// forwardOnly refuses sub-objects that go back, as if they were plans.
type forwardOnly struct{ storage.Vault }

func (v forwardOnly) UpdateAction(ctx context.Context, a *workflow.Action) error {
	if err := goesBack(a); err != nil {
		return err
	}
	return v.Vault.UpdateAction(ctx, a)
}

func (v forwardOnly) UpdatePlan(ctx context.Context, p *workflow.Plan) error {
	for o := range workflow.Walk(p) {
		if err := goesBack(o); err != nil {
			return err
		}
	}
	return v.Vault.UpdatePlan(ctx, p)
}

func goesBack(o workflow.Object) error {
	_, was, known := driver.SplitVersion(o.Header().State.ETag)
	if known && o.Header().State.Status < was {
		return &storage.Error{Op: "Update", Plan: *o.Header().PlanID, Err: driver.Invalid("State.Status", "goes back")}
	}
	return nil
}

type storesHalf struct{ storage.Vault }

func (v storesHalf) Create(ctx context.Context, p *workflow.Plan) error {
	blocks := p.Blocks
	defer func() { p.Blocks = blocks }()
	p.Blocks = blocks[:len(blocks)/2]
	return v.Vault.Create(ctx, p)
}

type replaces struct{ storage.Vault }

func (v replaces) Create(ctx context.Context, p *workflow.Plan) error {
	err := v.Vault.Create(ctx, p)
	if errors.Is(err, storage.ErrExists) {
		_ = v.Delete(ctx, p.ID)
		_ = v.Vault.Create(ctx, p)
	}
	return err
}

type revives struct{ storage.Vault }

func (v revives) UpdatePlan(ctx context.Context, p *workflow.Plan) error {
	err := v.Vault.UpdatePlan(ctx, p)
	if errors.Is(err, storage.ErrNotFound) {
		_ = v.Create(ctx, &workflow.Plan{ID: p.ID, Name: p.Name})
	}
	return err
}

type shares struct {
	storage.Vault
	plans sync.Map
}

func (v *shares) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	if p, ok := v.plans.Load(id); ok {
		return p.(*workflow.Plan), nil
	}
	p, err := v.Vault.Read(ctx, id)
	if err == nil {
		v.plans.Store(id, p)
	}
	return p, err
}

type deletesAnything struct{ storage.Vault }

func (v deletesAnything) Delete(ctx context.Context, id uuid.UUID) error {
	if err := v.Vault.Delete(ctx, id); !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	return nil
}

type bareErrors struct{ storage.Vault }

func (v bareErrors) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	p, err := v.Vault.Read(ctx, id)
	return p, errors.Unwrap(err)
}

type staysOpen struct{ storage.Vault }

func (v staysOpen) Close(context.Context) error { return nil }

type ignoresContext struct{ storage.Vault }

func (v ignoresContext) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	return v.Vault.Read(context.WithoutCancel(ctx), id)
}

type (
	result  = storage.Stream[storage.ListResult]
	results = iter.Seq[result]
)

// listsOtherwise changes the results of listings.
type listsOtherwise struct {
	storage.Vault
	change func(results) results
}

func lists(change func(results) results) func(storage.Vault) storage.Vault {
	return func(v storage.Vault) storage.Vault { return listsOtherwise{v, change} }
}

func (v listsOtherwise) List(ctx context.Context, limit int) (results, error) {
	seq, err := v.Vault.List(ctx, limit)
	if err != nil {
		return nil, err
	}
	return v.change(seq), nil
}

func (v listsOtherwise) Search(ctx context.Context, f storage.Filters) (results, error) {
	seq, err := v.Vault.Search(ctx, f)
	if err != nil {
		return nil, err
	}
	return v.change(seq), nil
}

func twice(seq results) results {
	return func(yield func(result) bool) {
		for r := range seq {
			for range 2 {
				if !yield(r) {
					return
				}
			}
		}
	}
}

func reversed(seq results) results {
	return func(yield func(result) bool) {
		for _, r := range slices.Backward(slices.Collect(seq)) {
			if !yield(r) {
				return
			}
		}
	}
}

func missing(seq results) results {
	return func(yield func(result) bool) {
		n := 0
		for r := range seq {
			if n++; n%50 != 0 && !yield(r) {
				return
			}
		}
	}
}

func short(seq results) results {
	return func(yield func(result) bool) {
		for r := range seq {
			if r.Err != nil || !yield(r) {
				return
			}
		}
	}
}

func leaking(seq results) results {
	return func(yield func(result) bool) {
		found := make(chan result)
		go func() {
			defer close(found)
			for r := range seq {
				select {
				case found <- r:
				case <-time.After(time.Minute): // so that the test ends
					return
				}
			}
		}()
		for r := range found {
			if !yield(r) {
				return
			}
		}
	}
}

func once(seq results) results {
	used := false
	return func(yield func(result) bool) {
		if !used {
			used = true
			seq(yield)
		}
	}
}

func trimmed(seq results) results {
	return func(yield func(result) bool) {
		for r := range seq {
			r.Result.Name = string(bytes.TrimSpace([]byte(r.Result.Name)))
			if !yield(r) {
				return
			}
		}
	}
}

// searchesOtherwise changes the filters of searches.
type searchesOtherwise struct {
	storage.Vault
	change func(*storage.Filters)
}

func searches(change func(*storage.Filters)) func(storage.Vault) storage.Vault {
	return func(v storage.Vault) storage.Vault { return searchesOtherwise{v, change} }
}

func (v searchesOtherwise) Search(ctx context.Context, f storage.Filters) (results, error) {
	v.change(&f)
	return v.Vault.Search(ctx, f)
}

// countsOtherwise changes the results of counts.
type countsOtherwise struct {
	storage.Vault
	change func(int64, error) (int64, error)
}

func counts(change func(int64, error) (int64, error)) func(storage.Vault) storage.Vault {
	return func(v storage.Vault) storage.Vault { return countsOtherwise{v, change} }
}

func (v countsOtherwise) Count(ctx context.Context, f storage.Filters) (int64, error) {
	return v.change(v.Vault.Count(ctx, f))
}

// startsAnew is a vault that carries nothing over into a fork.
type startsAnew struct{ storage.Vault }

func (v startsAnew) Create(ctx context.Context, plan *workflow.Plan) error {
	anew := plantest.Clone(plan)
	for o := range workflow.Walk(anew) {
		o.Header().State.Reset()
		if a, ok := o.(*workflow.Action); ok {
			a.Attempts = nil
		}
	}
	return v.Vault.Create(ctx, anew)
}

// refusesForks is a vault that creates only plans of which nothing has run.
type refusesForks struct{ storage.Vault }

func (v refusesForks) Create(ctx context.Context, plan *workflow.Plan) error {
	for o := range workflow.Walk(plan) {
		if o.Header().State.Status != workflow.NotStarted {
			return fmt.Errorf("Create: %w", storage.ErrInvalid)
		}
	}
	return v.Vault.Create(ctx, plan)
}

// acceptsForks is a vault that does not check what a fork carries over.
type acceptsForks struct{ storage.Vault }

func (v acceptsForks) Create(ctx context.Context, plan *workflow.Plan) error {
	if plan == nil || plan.ForkedFrom == uuid.Nil {
		return v.Vault.Create(ctx, plan)
	}
	return v.Vault.Create(ctx, &workflow.Plan{Name: "whatever"})
}
