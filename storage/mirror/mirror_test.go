package mirror_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// by is who runs mirrors.
var by = workflow.Attribution{By: "operator"}

// created creates a plan and brings it to a status.
func created(t *testing.T, v storage.Vault, status workflow.Status) *workflow.Plan {
	t.Helper()
	time.Sleep(time.Millisecond) // virtual: IDs in order
	p := plantest.Small()
	must(t, v.Create(t.Context(), p))
	moveOn(t, v, p, status)
	return p
}

// moveOn brings a plan to a status as an engine would.
func moveOn(t *testing.T, v storage.Vault, p *workflow.Plan, status workflow.Status) {
	t.Helper()
	if p.State.Status == workflow.NotStarted && status != workflow.NotStarted {
		p.State.Status, p.State.Start = workflow.Running, time.Now()
		update(t, v, p)
	}
	if status.Final() {
		for _, o := range workflow.Parts(p) {
			o.Header().State.Status = workflow.Completed
			update(t, v, o)
		}
		p.State.Status, p.State.End = status, time.Now()
		update(t, v, p)
	}
}

func update(t *testing.T, v storage.Vault, o workflow.Object) {
	t.Helper()
	must(t, storage.Update(t.Context(), v, o))
}

// equal checks that a copy has the plans of the source.
func equal(t *testing.T, from, to storage.Reader) {
	t.Helper()
	all, err := storage.Collect(from.List(t.Context(), 0))
	there, copyErr := storage.Collect(to.List(t.Context(), 0))
	if err := errors.Join(err, copyErr); err != nil || len(all) != len(there) {
		t.Fatalf("%d plans in the copy, %d in the source: %v", len(there), len(all), err)
	}
	for _, r := range all {
		if d := plantest.Diff(read(t, from, r.ID), read(t, to, r.ID)); d != "" {
			t.Errorf("plan %s: %s", r.ID, d)
		}
	}
}

// counted is a vault that counts its calls and writes.
type counted struct {
	*hooked.Vault
	mu     sync.Mutex
	calls  map[string]int
	writes int
}

func count(v storage.Vault) *counted {
	c := &counted{calls: map[string]int{}}
	c.Vault = hooked.Wrap(v, c.call)
	return c
}

func (c *counted) call(call *hooked.Call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls[call.Op]++
	if !slices.Contains([]string{"Read", "Exists", "List", "Search", "Recovery", "Roster", "FindNote", "Keys", "FindKey", "AuditEntries"}, call.Op) {
		c.writes++
	}
	return call.Do()
}

// run runs a mirror that must succeed.
func run(t *testing.T, from, to storage.Vault, o mirror.Options) mirror.Report {
	t.Helper()
	o.By = by
	report, err := mirror.Run(t.Context(), mirror.Pair{Source: from, Copy: to}, o)
	must(t, err)
	return report
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), count(memvault.New(nil, memvault.Options{}))
		source := count(from)
		var plans []*workflow.Plan
		for status := workflow.NotStarted; status.Valid(); status++ {
			plans = append(plans, created(t, from, status))
		}
		time.Sleep(time.Hour)
		if r := run(t, source, to, mirror.Options{DryRun: true}); r.Copied != 5 || r.Plans != 5 || r.Behind < time.Hour || to.writes != 0 {
			t.Errorf("a dry run: %+v, %d writes", r, to.writes)
		}
		if r := run(t, source, to, mirror.Options{}); r.Copied != 5 || r.Behind < time.Hour {
			t.Errorf("%+v", r)
		}
		equal(t, from, to)

		// Nothing has changed: the Running plan is read, the others take listings alone.
		clear(source.calls)
		clear(to.calls)
		to.writes = 0
		if r := run(t, source, to, mirror.Options{}); r != (mirror.Report{Plans: 5, Unchanged: 5}) || source.calls["Read"]+source.calls["Exists"] != 1 || to.calls["Read"] != 1 || to.writes != to.calls["Record"] {
			t.Errorf("%+v, %d and %d reads, %d writes", r, source.calls["Read"], to.calls["Read"], to.writes)
		}
		if r := run(t, source, to, mirror.Options{Deep: true}); r != (mirror.Report{Plans: 5, Unchanged: 5}) || source.calls["Read"] != 1+5 {
			t.Errorf("deep: %+v, %d reads", r, source.calls["Read"])
		}

		// One sub-object of the Running plan has changed: one update.
		action := plans[1].Blocks[0].Sequences[0].Actions[0]
		action.State.Status = workflow.Running
		update(t, from, action)
		if r := run(t, source, to, mirror.Options{}); r.Updated != 1 || r.Unchanged != 4 || to.writes != to.calls["Record"]+1 {
			t.Errorf("%+v, %d writes", r, to.writes)
		}
		equal(t, from, to)

		// Open plans end, and a final one is changed.
		moveOn(t, from, plans[0], workflow.Failed)
		moveOn(t, from, plans[1], workflow.Completed)
		plans[2].Descr = "looked at"
		update(t, from, plans[2])
		if r := run(t, source, to, mirror.Options{}); r.Updated != 3 || r.Unchanged != 2 {
			t.Errorf("%+v", r)
		}
		equal(t, from, to)

		// A plan is deleted.
		must(t, from.Delete(t.Context(), plans[3].ID))
		if r := run(t, source, to, mirror.Options{}); r.Extra != 1 || r.Deleted != 0 || to.calls["DeleteCopy"] != 0 {
			t.Errorf("%+v", r)
		}
		if r := run(t, source, to, mirror.Options{Delete: true, DryRun: true}); r.Deleted != 1 || to.calls["DeleteCopy"] != 0 {
			t.Errorf("%+v", r)
		}
		if r := run(t, source, to, mirror.Options{Delete: true}); r.Deleted != 1 || to.calls["DeleteCopy"] != 1 {
			t.Errorf("%+v", r)
		}
		equal(t, from, to)
	})
}

// TestHeldDays meets plans of the copy that can't be deleted. The others are copied.
func TestHeldDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := memvault.New(nil, memvault.Options{})
		to := hooked.Wrap(memvault.New(nil, memvault.Options{}), hooked.On("DeleteCopy", func(c *hooked.Call) error {
			return &storage.Error{Op: "DeleteCopy", Plan: c.ID, Err: storage.ErrHeld}
		}))
		var gone []*workflow.Plan
		for range 20 {
			gone = append(gone, created(t, from, workflow.Completed))
		}
		run(t, from, to, mirror.Options{})
		for _, p := range gone[1:] {
			must(t, from.Delete(t.Context(), p.ID))
		}
		r, err := mirror.Run(t.Context(), mirror.Pair{Source: from, Copy: to}, mirror.Options{By: by, Delete: true, Concurrency: 1})
		if !errors.Is(err, storage.ErrHeld) || r.Unchanged != 1 || r.Failed != 19 || r.Deleted != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestFieldsThatNoListingShows changes a final plan where only Deep looks.
func TestFieldsThatNoListingShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		p := created(t, from, workflow.Completed)
		run(t, from, to, mirror.Options{})
		p.Meta = []byte("new")
		p.Blocks[0].Sequences[0].Actions[0].State.Status = workflow.Failed
		update(t, from, p)
		if r := run(t, from, to, mirror.Options{}); r.Unchanged != 1 {
			t.Errorf("%+v", r)
		}
		if r := run(t, from, to, mirror.Options{Deep: true}); r.Updated != 1 {
			t.Errorf("%+v", r)
		}
		equal(t, from, to)
	})
}

// TestPlansThatSomebodyElseWrote meets plans in the copy that can't become those of the source.
func TestPlansThatSomebodyElseWrote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		further, another, touched := created(t, from, workflow.Running), created(t, from, workflow.Running), created(t, from, workflow.Running)
		created(t, from, workflow.Completed)
		run(t, from, to, mirror.Options{})
		moveOn(t, to, read(t, to, further.ID), workflow.Stopped)
		tree := plantest.Small()
		tree.ID = another.ID
		must(t, errors.Join(to.Delete(t.Context(), tree.ID), to.Create(t.Context(), tree)))
		update(t, to, read(t, to, touched.ID)) // which changes nothing but the mark
		moveOn(t, from, touched, workflow.Completed)
		before := []*workflow.Plan{read(t, to, further.ID), read(t, to, another.ID), read(t, to, touched.ID), created(t, to, workflow.NotStarted)}
		for _, dry := range []bool{true, false} {
			report, err := mirror.Run(t.Context(), mirror.Pair{Source: from, Copy: to}, mirror.Options{By: by, Deep: true, Delete: true, DryRun: dry})
			if !errors.Is(err, storage.ErrExists) || strings.Count(err.Error(), storage.ErrExists.Error()) != 4 || report.Failed != 4 || report.Unchanged != 1 || strings.Contains(err.Error(), "delete it") {
				t.Errorf("%+v, %v", report, err)
			}
			for _, was := range before {
				if d := plantest.Diff(was, read(t, to, was.ID)); d != "" || !strings.Contains(err.Error(), was.ID.String()) {
					t.Errorf("plan %s has changed, or %v does not name it: %s", was.ID, err, d)
				}
			}
		}
	})
}

func read(t *testing.T, v storage.Reader, id uuid.UUID) *workflow.Plan {
	t.Helper()
	p, err := v.Read(t.Context(), id)
	must(t, err)
	return p
}

// TestListingsThatAreNotWhole deletes nothing on the evidence of a listing that failed or missed a plan. If a plan is
// missed, Run asks for it once.
func TestListingsThatAreNotWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		for range 4 {
			created(t, from, workflow.Completed)
		}
		run(t, from, to, mirror.Options{})
		for _, test := range []struct {
			name       string
			begin, end int   // of what is listed
			list, look error // of List, after that, and of Exists
		}{
			{"unavailable", 0, 2, storage.ErrUnavailable, nil},
			{"a corrupt one", 0, 2, storage.ErrCorrupt, nil},
			{"a missed one", 1, 4, nil, nil},
			{"a denied look", 1, 4, nil, storage.ErrDenied},
		} {
			asked := 0
			source := hooked.Wrap(from, func(c *hooked.Call) error {
				err := c.Do()
				switch c.Op {
				case "List":
					all := slices.Collect(c.Listing)[test.begin:test.end]
					if test.list != nil {
						all = append(all, storage.Stream[storage.ListResult]{Err: test.list})
					}
					c.Listing = slices.Values(all)
				case "Exists":
					asked++
					return errors.Join(err, test.look)
				}
				return err
			})
			report, err := mirror.Run(t.Context(), mirror.Pair{Source: source, Copy: to}, mirror.Options{By: by, Delete: true})
			if !errors.Is(err, cmp.Or(test.list, test.look)) || report.Deleted+report.Extra != 0 || asked != test.begin {
				t.Errorf("%s: %+v, %v, asked for %d plans", test.name, report, err, asked)
			}
			equal(t, from, to)
		}
	})
}

// TestBesideAnEngine runs mirrors while an engine works on the source.
func TestBesideAnEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		var engines sync.WaitGroup
		for range 4 {
			engines.Go(func() {
				for i := range 15 {
					p := created(t, from, workflow.Status(i%5))
					time.Sleep(time.Duration(i) * time.Millisecond)
					if i%7 == 6 {
						if err := from.Delete(t.Context(), p.ID); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		for range 30 {
			run(t, from, to, mirror.Options{Delete: true, Concurrency: 3})
			time.Sleep(5 * time.Millisecond)
		}
		engines.Wait()
		run(t, from, to, mirror.Options{Delete: true})
		equal(t, from, to)
		if r := run(t, from, to, mirror.Options{}); r.Copied+r.Updated+r.Extra+r.Failed != 0 || r.Behind != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestRunRefuses(t *testing.T) {
	v := memvault.New(nil, memvault.Options{})
	if _, err := mirror.Run(t.Context(), mirror.Pair{Source: v, Copy: v}, mirror.Options{By: by, Concurrency: -1}); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mirror.Run(ctx, mirror.Pair{Source: v, Copy: memvault.New(nil, memvault.Options{})}, mirror.Options{By: by}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestBudget brings a copy up to date within several budgets. Each Run copies some plans, and none that it has begun is
// cut off.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		for range 20 {
			created(t, from, workflow.Completed)
		}
		// The listing takes longer than the budget, and each Restore a second.
		late := hooked.Wrap(from, hooked.On("List", func(c *hooked.Call) error { time.Sleep(2 * time.Second); return c.Do() }))
		slow := hooked.Wrap(to, hooked.On("RestoreCopy", func(c *hooked.Call) error { time.Sleep(time.Second); return c.Do() }))
		copied := 0
		for more := true; more; {
			r := run(t, late, slow, mirror.Options{Concurrency: 4, Budget: time.Second})
			if r.Copied == 0 || r.Copied > 8 || r.Failed > 0 || r.CopiedParts != r.Copied*len(workflow.Parts(plantest.Small())) {
				t.Fatalf("%+v", r)
			}
			copied, more = copied+r.Copied, r.More
		}
		equal(t, from, to)
		if copied != 20 {
			t.Errorf("%d plans were copied", copied)
		}
		if r := run(t, from, to, mirror.Options{Budget: time.Nanosecond}); r.More || r.Unchanged != 20 {
			t.Errorf("a copy that is up to date: %+v", r)
		}
		if _, err := mirror.Run(t.Context(), mirror.Pair{Source: from, Copy: to}, mirror.Options{By: by, Budget: -1}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a negative budget: %v", err)
		}
	})
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
