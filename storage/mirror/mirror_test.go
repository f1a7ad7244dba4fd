package mirror_test

import (
	"context"
	"errors"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// created creates a plan and brings it to a status.
func created(t *testing.T, v storage.Vault, status workflow.Status) *workflow.Plan {
	t.Helper()
	time.Sleep(time.Millisecond) // virtual: IDs in order
	p := plantest.Small()
	if err := v.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
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
	if err := storage.Update(t.Context(), v, o); err != nil {
		t.Fatal(err)
	}
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
		a, err := from.Read(t.Context(), r.ID)
		b, copyErr := to.Read(t.Context(), r.ID)
		if err := errors.Join(err, copyErr); err != nil {
			t.Fatal(err)
		}
		if d := plantest.Diff(a, b); d != "" {
			t.Errorf("plan %s: %s", r.ID, d)
		}
	}
}

// counted counts the calls of a vault.
type counted struct {
	storage.Vault
	storage.Restorer
	mu                              sync.Mutex
	reads, exists, updates, deletes int
	fail                            func(n int) error // of the nth write
	writes                          int
}

func count(v *memvault.Vault) *counted { return &counted{Vault: v, Restorer: v} }

func (c *counted) add(n *int, write bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
	if write {
		if c.writes++; c.fail != nil {
			return c.fail(c.writes)
		}
	}
	return nil
}

func (c *counted) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	_ = c.add(&c.reads, false)
	return c.Vault.Read(ctx, id)
}

func (c *counted) Exists(ctx context.Context, id uuid.UUID) (bool, error) {
	_ = c.add(&c.exists, false)
	return c.Vault.Exists(ctx, id)
}

func (c *counted) Restore(ctx context.Context, p *workflow.Plan) error {
	if err := c.add(new(int), true); err != nil {
		return err
	}
	return c.Restorer.Restore(ctx, p)
}

func (c *counted) UpdatePlan(ctx context.Context, p *workflow.Plan) error {
	if err := c.add(&c.updates, true); err != nil {
		return err
	}
	return c.Vault.UpdatePlan(ctx, p)
}

func (c *counted) UpdateAction(ctx context.Context, a *workflow.Action) error {
	if err := c.add(&c.updates, true); err != nil {
		return err
	}
	return c.Vault.UpdateAction(ctx, a)
}

func (c *counted) Delete(ctx context.Context, id uuid.UUID) error {
	if err := c.add(&c.deletes, true); err != nil {
		return err
	}
	return c.Vault.Delete(ctx, id)
}

// run runs a mirror that must succeed.
func run(t *testing.T, from storage.Reader, to mirror.Copy, o mirror.Options) mirror.Report {
	t.Helper()
	report, err := mirror.Run(t.Context(), from, to, o)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil), count(memvault.New(nil))
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
		*source, *to = counted{Vault: source.Vault, Restorer: source.Restorer}, counted{Vault: to.Vault, Restorer: to.Restorer}
		if r := run(t, source, to, mirror.Options{}); r != (mirror.Report{Plans: 5, Unchanged: 5}) || source.reads+source.exists != 1 || to.reads != 1 || to.writes != 0 {
			t.Errorf("%+v, %d and %d reads, %d writes", r, source.reads, to.reads, to.writes)
		}
		if r := run(t, source, to, mirror.Options{Deep: true}); r != (mirror.Report{Plans: 5, Unchanged: 5}) || source.reads != 1+5 {
			t.Errorf("deep: %+v, %d reads", r, source.reads)
		}

		// One sub-object of the Running plan has changed: one update.
		action := plans[1].Blocks[0].Sequences[0].Actions[0]
		action.State.Status = workflow.Running
		update(t, from, action)
		if r := run(t, source, to, mirror.Options{}); r.Updated != 1 || r.Unchanged != 4 || to.writes != 1 {
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
		if err := from.Delete(t.Context(), plans[3].ID); err != nil {
			t.Fatal(err)
		}
		if r := run(t, source, to, mirror.Options{}); r.Extra != 1 || r.Deleted != 0 || to.deletes != 0 {
			t.Errorf("%+v", r)
		}
		if r := run(t, source, to, mirror.Options{Delete: true, DryRun: true}); r.Deleted != 1 || to.deletes != 0 {
			t.Errorf("%+v", r)
		}
		if r := run(t, source, to, mirror.Options{Delete: true}); r.Deleted != 1 || to.deletes != 1 {
			t.Errorf("%+v", r)
		}
		equal(t, from, to)
	})
}

// held is a vault all of whose days are held.
type held struct{ *memvault.Vault }

func (held) Delete(_ context.Context, id uuid.UUID) error {
	return &storage.Error{Op: "Delete", Plan: id, Err: storage.ErrHeld}
}

// TestHeldDays meets plans of the copy that can't be deleted. The others are copied.
func TestHeldDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil), held{memvault.New(nil)}
		var gone []*workflow.Plan
		for range 20 {
			gone = append(gone, created(t, from, workflow.Completed))
		}
		run(t, from, to, mirror.Options{})
		for _, p := range gone[1:] {
			if err := from.Delete(t.Context(), p.ID); err != nil {
				t.Fatal(err)
			}
		}
		r, err := mirror.Run(t.Context(), from, to, mirror.Options{Delete: true, Concurrency: 1})
		if !errors.Is(err, storage.ErrHeld) || r.Unchanged != 1 || r.Failed != 19 || r.Deleted != 0 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// TestFieldsThatNoListingShows changes a final plan where only Deep looks.
func TestFieldsThatNoListingShows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil), memvault.New(nil)
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
	for name, change := range map[string]func(t *testing.T, to *memvault.Vault, p *workflow.Plan){
		"further": func(t *testing.T, to *memvault.Vault, p *workflow.Plan) { moveOn(t, to, p, workflow.Stopped) },
		"another tree": func(t *testing.T, to *memvault.Vault, p *workflow.Plan) {
			if err := to.Delete(t.Context(), p.ID); err != nil {
				t.Fatal(err)
			}
			other := plantest.Small()
			other.ID = p.ID
			if err := to.Create(t.Context(), other); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := memvault.New(nil), memvault.New(nil)
				p := created(t, from, workflow.Running)
				created(t, from, workflow.Completed)
				run(t, from, to, mirror.Options{})
				mine, err := to.Read(t.Context(), p.ID)
				if err != nil {
					t.Fatal(err)
				}
				change(t, to, mine)
				was, err := to.Read(t.Context(), p.ID)
				if err != nil {
					t.Fatal(err)
				}
				report, err := mirror.Run(t.Context(), from, to, mirror.Options{Deep: true})
				if !errors.Is(err, storage.ErrExists) || !strings.Contains(err.Error(), p.ID.String()) || report.Failed != 1 || report.Unchanged != 1 {
					t.Errorf("%+v, %v", report, err)
				}
				if got, err := to.Read(t.Context(), p.ID); err != nil || plantest.Diff(was, got) != "" {
					t.Errorf("the plan has changed: %v", err)
				}
			})
		})
	}
}

// short is a vault whose listing fails after n plans, or misses the first plan. Then Exists fails, too, if err is set.
type short struct {
	storage.Reader
	n    int
	err  error
	lose bool
	// asked is the number of calls of Exists.
	asked *int
}

func (s short) Exists(ctx context.Context, id uuid.UUID) (bool, error) {
	if *s.asked++; s.err != nil {
		return false, s.err
	}
	return s.Reader.Exists(ctx, id)
}

func (s short) List(ctx context.Context, limit int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	all, err := s.Reader.List(ctx, limit)
	return func(yield func(storage.Stream[storage.ListResult]) bool) {
		i := 0
		for r := range all {
			if i++; s.lose && i == 1 {
				continue
			}
			if i > s.n {
				yield(storage.Stream[storage.ListResult]{Err: s.err})
				return
			}
			if !yield(r) {
				return
			}
		}
	}, err
}

// TestListingsThatAreNotWhole deletes nothing on the evidence of a listing that failed or missed a plan.
func TestListingsThatAreNotWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil), memvault.New(nil)
		for range 4 {
			created(t, from, workflow.Completed)
		}
		run(t, from, to, mirror.Options{})
		for name, source := range map[string]short{
			"unavailable":   {from, 2, storage.ErrUnavailable, false, new(int)},
			"a corrupt one": {from, 2, storage.ErrCorrupt, false, new(int)},
			"a missed one":  {from, 9, nil, true, new(int)},
			"a denied look": {from, 9, storage.ErrDenied, true, new(int)},
		} {
			report, err := mirror.Run(t.Context(), source, to, mirror.Options{Delete: true})
			if !errors.Is(err, source.err) || report.Deleted+report.Extra != 0 || *source.asked > 1 || (*source.asked == 1) != source.lose {
				t.Errorf("%s: %+v, %v, asked for %d plans", name, report, err, *source.asked)
			}
			equal(t, from, to)
		}
	})
}

// TestDeaths stops a Run at each write, and runs it again.
func TestDeaths(t *testing.T) {
	died := errors.New("died")
	for n := 1; ; n++ {
		ended := false
		synctest.Test(t, func(t *testing.T) {
			from, vault := memvault.New(nil), memvault.New(nil)
			var plans []*workflow.Plan
			for status := workflow.NotStarted; status.Valid(); status++ {
				plans = append(plans, created(t, from, status))
			}
			run(t, from, vault, mirror.Options{})
			created(t, from, workflow.Running)
			moveOn(t, from, plans[0], workflow.Failed)
			moveOn(t, from, plans[1], workflow.Completed)
			to := count(vault)
			to.fail = func(write int) error {
				if write >= n {
					return died
				}
				return nil
			}
			_, err := mirror.Run(t.Context(), from, to, mirror.Options{Concurrency: 1})
			if ended = err == nil; !ended && !errors.Is(err, died) {
				t.Fatal(err)
			}
			run(t, from, vault, mirror.Options{})
			equal(t, from, vault)
		})
		if ended {
			if n < 7 {
				t.Errorf("only %d writes", n-1)
			}
			return
		}
	}
}

// TestBesideAnEngine runs mirrors while an engine works on the source.
func TestBesideAnEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil), memvault.New(nil)
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
	v := memvault.New(nil)
	if _, err := mirror.Run(t.Context(), v, v, mirror.Options{Concurrency: -1}); !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := mirror.Run(ctx, v, memvault.New(nil), mirror.Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
