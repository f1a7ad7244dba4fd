package storagetest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/trial"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/storage/storagetest/metamorphic"
	"github.com/planvault/azblob/workflow"
)

// hook breaks a vault. A nil hook leaves it sound.
type hook = func(c *hooked.Call) error

// harness returns a harness for vaults in memory.
func harness(broken hook, o memvault.Options) storagetest.Harness {
	wrap := func(v storage.Vault) storage.Vault {
		if broken == nil {
			return v
		}
		return hooked.Wrap(v, broken)
	}
	return storagetest.Harness{New: func(storagetest.T) storagetest.Store {
		store := memvault.NewStore()
		return storagetest.Store{
			Open: func(storagetest.T) storage.Vault { return wrap(store.Open(plantest.Register(), o)) },
			Unversioned: func(storagetest.T) storage.Vault {
				return wrap(store.Open(plantest.Register(), memvault.Options{UnversionedUpdates: true}))
			},
			Dying: func(_ storagetest.T, n int, after bool) (storage.Vault, func() bool) {
				m := &mortal{n: n, after: after}
				return wrap(hooked.Wrap(store.Open(plantest.Register(), memvault.Options{}), m.call)), m.died
			},
			PassGrace: func(storagetest.T) {},
			Check:     func(storagetest.T, storage.Vault) []string { return nil },
		}
	}}
}

// changed is a harness whose stores are changed.
func changed(h storagetest.Harness, change func(s *storagetest.Store)) storagetest.Harness {
	unchanged := h.New
	h.New = func(t storagetest.T) storagetest.Store {
		s := unchanged(t)
		change(&s)
		return s
	}
	return h
}

// cases are those of the suite and of package metamorphic.
func cases() []storagetest.Case { return append(storagetest.Cases(), metamorphic.Cases()...) }

// recentCase fails for a vault that leaves nothing unfinished.
const recentCase = "recovery/Recovery leaves recent remains alone"

func TestSoundVaultPasses(t *testing.T) {
	for _, c := range cases() {
		if c.Name == recentCase || c.Long { // memvault's own test runs the long cases
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Run(t, harness(nil, memvault.Options{})) })
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
	h := changed(harness(nil, memvault.Options{}), func(s *storagetest.Store) {
		opens := s.Open
		s.Open = func(t storagetest.T) storage.Vault {
			begin <- struct{}{}
			return opens(t)
		}
	})
	for _, name := range []string{
		"list/a break leaves no goroutine, and the vault is still usable",
		"list/a listing whose context ends is never taken for a short list",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { caseOf(t, name).Run(t, h) })
		})
	}
}

func TestUnsoundStoreIsCaught(t *testing.T) {
	h := changed(harness(nil, memvault.Options{}), func(s *storagetest.Store) {
		s.Check = func(storagetest.T, storage.Vault) []string { return []string{"debris"} }
	})
	if r := trial.Run(t.Context(), t.Name(), func(t storagetest.T) { storagetest.Cases()[0].Run(t, h) }); !strings.Contains(r.Failure(), "debris") {
		t.Error(r.Failure())
	}
}

// TestBrokenVaultsAreCaught breaks one promise after the other. The case for the promise must fail.
func TestBrokenVaultsAreCaught(t *testing.T) {
	for _, b := range []struct {
		breakage string
		hook     hook
		caughtBy string
	}{
		{"an update is dropped", hooked.On("UpdateAction", nothing), "update/each update gives the object a new version, and Read returns it"},
		{"versions are ignored", ignoresVersions, "update/an old version is ErrConflict and changes nothing"},
		{"states go back", ignoresVersions, "update/plans only move forward, and a final status stays"},
		{"updates without a version are accepted", nil, notAVersion},
		{"a string that is not a version is accepted", ignoresVersions, notAVersion},
		{"children are not compared", ignoresVersions, "update/other children than those of the version are ErrInvalid and change nothing"},
		{"sub-objects only move forward", forwardOnly, "update/sub-objects move to any status, forward and back"},
		{"sub-objects that went back keep the plan from becoming final", forwardOnly, "engine/a plan can become final with sub-objects that were reset in memory"},
		{"two nodes both win", ignoresVersions, "update/if two nodes update one version, one wins"},
		{"half of a plan is stored", creates(func(c *hooked.Call, p *workflow.Plan) error {
			blocks := p.Blocks
			defer func() { p.Blocks = blocks }()
			p.Blocks = blocks[:len(blocks)/2]
			return c.Do()
		}), "create/Create fills in what the author left out"},
		{"nobody submits a plan", creates(func(c *hooked.Call, _ *workflow.Plan) error {
			c.Ctx = storage.WithActor(c.Ctx, workflow.Actor{})
			return c.Do()
		}), "create/Create takes who submits a plan from its context, unless the plan says it, and Restore does not"},
		{"a fork starts from the beginning", creates(func(c *hooked.Call, p *workflow.Plan) error {
			anew := plantest.Clone(p)
			for o := range workflow.Walk(anew) {
				o.Header().State.Reset()
				if a, ok := o.(*workflow.Action); ok {
					a.Attempts = nil
				}
			}
			return c.Below.Create(c.Ctx, anew)
		}), "create/a fork comes back with what was Completed, in every state"},
		{"a fork is refused", creates(func(c *hooked.Call, p *workflow.Plan) error {
			if p.ForkedFrom != uuid.Nil {
				return storage.ErrInvalid
			}
			return c.Do()
		}), "create/a plan that failed can be forked, and a fork that failed again"},
		{"any fork is accepted", creates(func(c *hooked.Call, p *workflow.Plan) error {
			if p.ForkedFrom != uuid.Nil {
				return c.Below.Create(c.Ctx, &workflow.Plan{Name: "whatever"})
			}
			return c.Do()
		}), "create/a fork with a status that it can't have is ErrInvalid with the field, and nothing is stored"},
		{"an existing plan is replaced", creates(func(c *hooked.Call, p *workflow.Plan) error {
			err := c.Do()
			if errors.Is(err, storage.ErrExists) {
				_ = c.Below.Delete(c.Ctx, p.ID)
				_ = c.Do()
			}
			return err
		}), "create/an ID that is taken is ErrExists, and the plan stays as it is"},
		{"an update restores a deleted plan", hooked.On("UpdatePlan", func(c *hooked.Call) error {
			err := c.Do()
			if errors.Is(err, storage.ErrNotFound) {
				_ = c.Below.Create(c.Ctx, &workflow.Plan{ID: c.ID})
			}
			return err
		}), "update/an update of a deleted plan is ErrNotFound and restores nothing"},
		{"memory is shared with readers", shares(), "read/the store shares no memory with what it was given, nor with what it returns"},
		{"a Delete without a plan succeeds", hooked.On("Delete", func(c *hooked.Call) error {
			if err := c.Do(); !errors.Is(err, storage.ErrNotFound) {
				return err
			}
			return nil
		}), "read/an ID without a plan is ErrNotFound, and does not exist"},
		{"errors are bare", hooked.On("Read", func(c *hooked.Call) error { return errors.Unwrap(c.Do()) }), "read/an ID without a plan is ErrNotFound, and does not exist"},
		{"Close closes nothing", hooked.On("Close", nothing), "read/a closed vault does nothing and returns ErrClosed"},
		{"reads ignore their context", hooked.On("Read", func(c *hooked.Call) error {
			c.Ctx = context.WithoutCancel(c.Ctx)
			return c.Do()
		}), "read/a call whose context has ended fails with its error and does nothing"},

		{"plans are listed twice", lists(twice), newestCase},
		{"the oldest comes first", lists(reversed), newestCase},
		{"a plan is missed", lists(missing), "list/each of many plans is yielded once"},
		{"a cancelled listing is short", lists(short), "list/a listing whose context ends is never taken for a short list"},
		{"a dead listing is short", lists(short), "list/a listing whose service dies is never taken for a short list"},
		{"a listing leaves a goroutine", lists(leaking), "list/a break leaves no goroutine, and the vault is still usable"},
		{"a sequence can be used once", lists(once), "list/a sequence can be ranged over again, and queries the store each time"},
		{"names are trimmed", lists(trimmed), "list/strange names and descriptions of any length come back unchanged"},
		{"statuses are ignored", searches(func(f *storage.Filters) { f.ByStatus = nil; f.Limit = 1000 }), "search/a search by status follows a plan through its life"},
		{"BeforeID is ignored", searches(func(f *storage.Filters) { f.BeforeID = uuid.Nil }), "search/BeforeID need not belong to a plan"},
		{"times are compared to the second", searches(func(f *storage.Filters) { f.After = f.After.Truncate(time.Second) }), "search/times are exclusive bounds, compared to the millisecond"},
		{"names are compared without case", searches(func(f *storage.Filters) { f.NamePrefix = strings.ToLower(f.NamePrefix) }), namesCase},
		{"substrings are cut", searches(func(f *storage.Filters) { f.NameContains = f.NameContains[:min(len(f.NameContains), 4)] }), namesCase},
		{"EndedAfter is ignored", searches(func(f *storage.Filters) { f.EndedAfter, f.Limit = time.Time{}, 1000 }), endsCase},
		{"ends are compared to the microsecond", searches(func(f *storage.Filters) { f.EndedBefore = f.EndedBefore.Truncate(time.Microsecond) }), endsCase},
		{"the limit is exceeded by one", searches(func(f *storage.Filters) { f.Limit += min(f.Limit, 1) }), "search/a search by IDs yields each plan once and skips IDs without a plan"},
		{"Count counts one more", hooked.On("Count", func(c *hooked.Call) error {
			err := c.Do()
			c.Count++
			return err
		}), "count/the zero value counts all plans, and of each day"},
		{"a dead count is short", hooked.On("Count", func(c *hooked.Call) error {
			_ = c.Do()
			return nil
		}), "count/a count whose service dies is an error"},
	} {
		t.Run(b.breakage, func(t *testing.T) {
			// The vault accepts empty versions, because some of the broken vaults remove versions.
			fails(t, b.caughtBy, harness(b.hook, memvault.Options{UnversionedUpdates: true}))
		})
	}
}

const (
	newestCase  = "list/the newest plan comes first, the limit is the largest number, 0 means all, and a negative one is ErrInvalid"
	namesCase   = "search/names match by prefix and substring, byte by byte, however long they are"
	notAVersion = "update/an empty string, or one that is not a version, is ErrInvalid and changes nothing"
	endsCase    = "search/times of end are exclusive bounds, to the nanosecond, of plans that have ended"
)

func controlOf(v storage.Vault) storage.Control {
	c, _ := storage.As[storage.Control](v)
	return c
}

// TestBrokenMembersAndRestorersAreCaught breaks promises of storage.Control and storage.Restorer.
func TestBrokenMembersAndRestorersAreCaught(t *testing.T) {
	const stale = "members/a version that is not stored any more is ErrConflict and changes nothing"
	current := func(c *hooked.Call) storage.Version {
		m, _ := controlOf(c.Below).FindMember(c.Ctx, c.ID)
		return m.Version
	}
	renewsAny := hooked.On("RenewMember", func(c *hooked.Call) error {
		c.Member.Version = current(c)
		return c.Do()
	})
	restores := func(restore func(c *hooked.Call, p *workflow.Plan) error) hook {
		return hooked.On("Restore", func(c *hooked.Call) error {
			p, _ := c.Object.(*workflow.Plan)
			return restore(c, p)
		})
	}
	for _, b := range []struct {
		breakage string
		hook     hook
		caughtBy string
	}{
		{"a renewal ignores the version", renewsAny, stale},
		{"two nodes renew one version", renewsAny, "members/if several nodes renew or remove one version, one wins"},
		{"a renewal restores the record", hooked.On("RenewMember", func(c *hooked.Call) error {
			err := c.Do()
			if errors.Is(err, storage.ErrNotFound) {
				c.Member.Version = ""
				c.Version, err = controlOf(c.Below).AddMember(c.Ctx, c.Member)
			}
			return err
		}), "members/a record that was removed can't be renewed or removed"},
		{"a renewal stores nothing", hooked.On("RenewMember", func(c *hooked.Call) error {
			c.Version = c.Member.Version
			return nil
		}), "members/a renewal gives the record a new version and a later time"},
		{"a removal ignores the version", hooked.On("RemoveMember", func(c *hooked.Call) error {
			c.Version = current(c)
			return c.Do()
		}), stale},
		{"a stop request replaces an earlier one", hooked.On("AddStop", func(c *hooked.Call) error {
			r, err := controlOf(c.Below).Roster(c.Ctx)
			for _, stop := range r.Stops {
				err = errors.Join(err, controlOf(c.Below).RemoveStop(c.Ctx, stop.Plan, stop.Version))
			}
			return errors.Join(err, c.Do())
		}), "members/a stop request is kept once, until its version is removed"},
		{"a roster is told a minute late", hooked.On("Roster", func(c *hooked.Call) error {
			err := c.Do()
			c.Roster.Now = c.Roster.Now.Add(-time.Minute)
			return err
		}), "members/a member is found by all nodes, until its record is removed"},
		{"a roster ends early", hooked.On("Roster", func(c *hooked.Call) error {
			err := c.Do()
			c.Roster.Members = c.Roster.Members[:min(len(c.Roster.Members), 30)]
			return err
		}), "members/a roster has all of many members, in order"},
		{"Recovery removes members", hooked.On("Recovery", func(c *hooked.Call) error {
			r, err := controlOf(c.Below).Roster(c.Ctx)
			for _, m := range r.Members {
				err = errors.Join(err, controlOf(c.Below).RemoveMember(c.Ctx, m.ID, m.Version))
			}
			return err
		}), "members/members and stop requests are no plans, and Recovery leaves them alone"},

		{"times are lost", restores(func(c *hooked.Call, p *workflow.Plan) error {
			p.State.Start = time.Time{}
			return c.Do()
		}), "restore/a plan of any status comes back as it was"},
		{"owners are lost", restores(func(c *hooked.Call, p *workflow.Plan) error {
			p.Owner, p.Epoch = uuid.Nil, 0
			return c.Do()
		}), "restore/plans of any shape and text come back as they were"},
		{"versions are not set", restores(func(c *hooked.Call, p *workflow.Plan) error {
			old := p.Blocks[0].State.ETag
			err := c.Do()
			p.Blocks[0].State.ETag = old
			return err
		}), "restore/a restored plan goes on to its end, with its own versions"},
		{"a plan is replaced", restores(func(c *hooked.Call, p *workflow.Plan) error {
			_ = c.Below.Delete(c.Ctx, p.ID)
			return c.Do()
		}), "restore/an ID that is taken is ErrExists, and the plan stays as it is"},
		{"each node wins", restores(func(c *hooked.Call, _ *workflow.Plan) error {
			_ = c.Do()
			return nil
		}), "restore/if two nodes restore one ID at once, one wins"},
		{"bad plans are stored", restores(func(*hooked.Call, *workflow.Plan) error { return nil }), "restore/bad input is ErrInvalid with the field, and nothing is stored"},
	} {
		t.Run(b.breakage, func(t *testing.T) { fails(t, b.caughtBy, harness(b.hook, memvault.Options{})) })
	}
}

// TestBrokenDeathsAreCaught breaks promises about processes that die, and about the grace period.
func TestBrokenDeathsAreCaught(t *testing.T) {
	const creates = "create/a death at any request leaves a whole plan or none, and Recovery removes the remains"
	done := func(context.Context) error { return nil }
	for _, b := range []struct {
		breakage string
		says     func(ctx context.Context) error
		half     bool
		caughtBy string
	}{
		{"Create returns nil without storing the plan", done, false, creates},
		{"Delete returns nil without removing the plan", done, false, "delete/a death at any request leaves the plan whole or gone, and another Delete finishes"},
		{"the error of a write that took effect is not ErrUnknown", func(context.Context) error { return storage.ErrUnavailable }, false, "update/a death leaves a whole plan, with or without the update, and Recovery keeps it"},
		{"calls return long after their contexts end", func(ctx context.Context) error { time.Sleep(time.Minute); return ctx.Err() }, false, "delete/a call returns soon after its context ends, whatever the service does"},
		{"half of a plan survives a death", nil, true, creates},
		{"recent remains are removed", nil, false, recentCase},
	} {
		t.Run(b.breakage, func(t *testing.T) {
			fails(t, b.caughtBy, changed(harness(nil, memvault.Options{}), func(s *storagetest.Store) {
				s.Dying = func(t storagetest.T, n int, after bool) (storage.Vault, func() bool) {
					m := &mortal{n: n, after: after, says: b.says, half: b.half}
					return hooked.Wrap(s.Open(t), m.call), m.died
				}
			}))
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
	c := caseOf(t, name)
	synctest.Test(t, func(t *testing.T) {
		r := trial.Run(t.Context(), t.Name(), func(t storagetest.T) { c.Run(t, h) })
		if !r.Failed() {
			t.Errorf("%q did not fail", name)
		}
		t.Logf("%.300s", r.Failure())
		time.Sleep(time.Minute) // leaked goroutines end
	})
}

// mortal is a process that dies at its nth call. Each call of a vault in memory is one request, and so is each element
// of a listing.
type mortal struct {
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

func (m *mortal) call(c *hooked.Call) error {
	switch c.Op {
	case "Close":
		_ = c.Do()
		idle := make(chan struct{})
		go func() { m.hanging.Wait(); close(idle) }()
		select {
		case <-idle:
			return nil
		case <-c.Ctx.Done():
			return &storage.Error{Op: "Close", Err: c.Ctx.Err()}
		}
	case "List", "Search":
		err := c.Do()
		c.Listing = m.stream(c, c.Listing)
		return err
	case "Create":
		plan := c.Object.(*workflow.Plan)
		driver.Complete(plan)
		if c.ID = plan.ID; m.half {
			half := *plan
			half.Blocks = nil
			c.Object = &half
		}
	}
	return m.request(c, c.Do)
}

func (m *mortal) request(c *hooked.Call, do func() error) error {
	m.mu.Lock()
	m.seen++
	nth := m.seen
	if nth >= m.n {
		m.hanging.Add(1)
		defer m.hanging.Done()
	}
	m.mu.Unlock()
	if nth < m.n {
		return do()
	}
	if nth == m.n && m.after {
		_ = do()
	}
	<-c.Ctx.Done()
	err := fmt.Errorf("%w: %w", storage.ErrUnknown, c.Ctx.Err())
	if m.says != nil {
		err = m.says(c.Ctx)
	}
	if c.Count = 0; err == nil { // the answer was lost
		return nil
	}
	return &storage.Error{Op: c.Op, Plan: c.ID, Err: err}
}

func (m *mortal) stream(c *hooked.Call, seq hooked.Listing) hooked.Listing {
	return func(yield func(result) bool) {
		next, stop := iter.Pull(seq)
		defer stop()
		for {
			var r result
			more := false
			if err := m.request(c, func() error { r, more = next(); return nil }); err != nil {
				yield(result{Err: err})
				return
			}
			if !more || !yield(r) {
				return
			}
		}
	}
}

// The following hooks break a promise.

func nothing(*hooked.Call) error { return nil }

func ignoresVersions(c *hooked.Call) error {
	if c.Op == "UpdateAction" || c.Op == "UpdatePlan" {
		c.Object.Header().State.ETag = ""
	}
	return c.Do()
}

// forwardOnly refuses sub-objects that go back, as if they were plans.
func forwardOnly(c *hooked.Call) error {
	objects := []workflow.Object{c.Object}
	switch c.Op {
	case "UpdatePlan":
		objects = workflow.Parts(c.Object.(*workflow.Plan))
	case "UpdateAction":
	default:
		return c.Do()
	}
	for _, o := range objects {
		_, was, known := driver.SplitVersion(o.Header().State.ETag)
		if known && o.Header().State.Status < was {
			return &storage.Error{Op: "Update", Plan: c.ID, Err: driver.Invalid("State.Status", "goes back")}
		}
	}
	return c.Do()
}

// creates is a hook for Creates of plans.
func creates(create func(c *hooked.Call, p *workflow.Plan) error) hook {
	return hooked.On("Create", func(c *hooked.Call) error {
		if p, _ := c.Object.(*workflow.Plan); p != nil {
			return create(c, p)
		}
		return c.Do()
	})
}

// shares returns the same plan again.
func shares() hook {
	var plans sync.Map
	return hooked.On("Read", func(c *hooked.Call) error {
		if p, ok := plans.Load(c.ID); ok {
			c.Plan = p.(*workflow.Plan)
			return nil
		}
		err := c.Do()
		if err == nil {
			plans.Store(c.ID, c.Plan)
		}
		return err
	})
}

func searches(change func(*storage.Filters)) hook {
	return hooked.On("Search", func(c *hooked.Call) error {
		change(&c.Filters)
		return c.Do()
	})
}

type result = storage.Stream[storage.ListResult]

// lists changes the results of listings.
func lists(change func(hooked.Listing) hooked.Listing) hook {
	return func(c *hooked.Call) error {
		err := c.Do()
		if c.Listing != nil {
			c.Listing = change(c.Listing)
		}
		return err
	}
}

// each replaces each result of a listing by others, or by none.
func each(replace func(r result) []result) func(hooked.Listing) hooked.Listing {
	return func(seq hooked.Listing) hooked.Listing {
		return func(yield func(result) bool) {
			for r := range seq {
				for _, r := range replace(r) {
					if !yield(r) {
						return
					}
				}
			}
		}
	}
}

var (
	twice = each(func(r result) []result { return []result{r, r} })
	short = each(func(r result) []result {
		if r.Err != nil {
			return nil
		}
		return []result{r}
	})
	trimmed = each(func(r result) []result {
		r.Result.Name = strings.TrimSpace(r.Result.Name)
		return []result{r}
	})
)

func missing(seq hooked.Listing) hooked.Listing {
	n := 0
	return each(func(r result) []result {
		if n++; n%50 == 0 {
			return nil
		}
		return []result{r}
	})(seq)
}

func reversed(seq hooked.Listing) hooked.Listing {
	return func(yield func(result) bool) {
		all := slices.Collect(seq)
		slices.Reverse(all)
		slices.Values(all)(yield)
	}
}

func leaking(seq hooked.Listing) hooked.Listing {
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

func once(seq hooked.Listing) hooked.Listing {
	used := false
	return func(yield func(result) bool) {
		if !used {
			used = true
			seq(yield)
		}
	}
}
