package metamorphic_test

import (
	"context"
	"fmt"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/storage/storagetest/metamorphic"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// recorder is a T that keeps the text of a failure.
type recorder struct {
	*testing.T
	said string
}

func (r *recorder) Errorf(format string, args ...any) { r.said += fmt.Sprintf(format, args...) + "\n" }
func (r *recorder) Failed() bool                      { return r.said != "" }

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// failure returns the text of the failure of run, or "".
func failure(t *testing.T, run func(t storagetest.T)) string {
	r := &recorder{T: t}
	func() {
		defer func() {
			if got := recover(); got != nil && got != any(r) {
				panic(got)
			}
		}()
		run(r)
	}()
	return r.said
}

// breaking returns a harness whose vaults are broken in one way.
func breaking(wrap func(v storage.Vault, s *shared) storage.Vault) storagetest.Harness {
	return storagetest.Harness{New: func(storagetest.T) storagetest.Store {
		store, s := memvault.NewStore(), &shared{plans: map[uuid.UUID]*workflow.Plan{}}
		open := func(opts ...memvault.Option) storage.Vault {
			return wrap(slowly{store.Open(plantest.Register(), opts...)}, s)
		}
		return storagetest.Store{
			Open:        func(storagetest.T) storage.Vault { return open() },
			Unversioned: func(storagetest.T) storage.Vault { return open(memvault.WithUnversionedUpdates()) },
		}
	}}
}

// slowly is a vault whose calls take some time before and after they take effect, so that they overlap.
type slowly struct{ storage.Vault }

func (v slowly) Create(ctx context.Context, plan *workflow.Plan) error {
	defer time.Sleep(3 * time.Millisecond)
	time.Sleep(2 * time.Millisecond)
	return v.Vault.Create(ctx, plan)
}

func (v slowly) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	defer time.Sleep(time.Millisecond)
	time.Sleep(time.Millisecond)
	return v.Vault.Read(ctx, id)
}

func (v slowly) UpdatePlan(ctx context.Context, plan *workflow.Plan) error {
	defer time.Sleep(time.Millisecond)
	time.Sleep(2 * time.Millisecond)
	return v.Vault.UpdatePlan(ctx, plan)
}

func (v slowly) Delete(ctx context.Context, id uuid.UUID) error {
	defer time.Sleep(3 * time.Millisecond)
	time.Sleep(2 * time.Millisecond)
	return v.Vault.Delete(ctx, id)
}

// shared is the common state of the broken vaults of a store.
type shared struct {
	mu    sync.Mutex
	plans map[uuid.UUID]*workflow.Plan
}

func (s *shared) get(id uuid.UUID) *workflow.Plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.plans[id]
}

func (s *shared) set(id uuid.UUID, plan *workflow.Plan) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.plans[id] = plan
}

// The following vaults break one promise each.

// loses returns nil for the last update of an action without storing it.
type loses struct{ storage.Vault }

func (v loses) UpdateAction(ctx context.Context, action *workflow.Action) error {
	if !action.State.Status.Final() || action.State.ETag == "" {
		return v.Vault.UpdateAction(ctx, action)
	}
	if _, err := v.Read(ctx, action.PlanID); err != nil {
		return err
	}
	action.State.ETag += "'"
	return nil
}

// overwrites ignores the versions of plans.
type overwrites struct{ storage.Vault }

func (v overwrites) UpdatePlan(ctx context.Context, plan *workflow.Plan) error {
	if now, err := v.Read(ctx, plan.ID); err == nil && plan.State.ETag != "" && now.State.Status <= plan.State.Status {
		plan.State.ETag = now.State.ETag
	}
	return v.Vault.UpdatePlan(ctx, plan)
}

// lags returns a running plan as it was at the Read before.
type lags struct {
	storage.Vault
	*shared
}

func (v lags) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	plan, err := v.Vault.Read(ctx, id)
	if err != nil || plan.State.Status != workflow.Running {
		return plan, err
	}
	before := v.get(id)
	v.set(id, plan)
	if before != nil {
		return before, nil
	}
	return plan, nil
}

// halves hides a deleted plan from Read but not from listings.
type halves struct {
	storage.Vault
	*shared
}

func (v halves) Delete(ctx context.Context, id uuid.UUID) error {
	plan, err := v.Vault.Read(ctx, id)
	if err != nil || v.get(id) != nil {
		return v.Vault.Delete(ctx, uuid.UUID(workflow.NewV7()))
	}
	v.set(id, plan)
	return nil
}

func (v halves) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	if v.get(id) != nil {
		return v.Vault.Read(ctx, workflow.NewV7())
	}
	return v.Vault.Read(ctx, id)
}

// resurrects restores deleted plans in Recovery.
type resurrects struct {
	storage.Vault
	*shared
}

func (v resurrects) Delete(ctx context.Context, id uuid.UUID) error {
	if plan, err := v.Read(ctx, id); err == nil && plan.State.Status == workflow.NotStarted {
		v.set(id, plan)
	}
	return v.Vault.Delete(ctx, id)
}

func (v resurrects) Recovery(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, plan := range v.plans {
		_ = v.Create(ctx, plan)
	}
	return v.Vault.Recovery(ctx)
}

// repeats lists the first plan twice.
type repeats struct{ storage.Vault }

func (v repeats) List(ctx context.Context, limit int) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	list, err := v.Vault.List(ctx, limit)
	if err != nil || limit > 0 {
		return list, err
	}
	return func(yield func(storage.Stream[storage.ListResult]) bool) {
		all := slices.Collect(list)
		for _, r := range append(all[:min(1, len(all))], all...) {
			if !yield(r) {
				return
			}
		}
	}, nil
}

// forgets uses only the first status of a search.
type forgets struct{ storage.Vault }

func (v forgets) Search(ctx context.Context, f storage.Filters) (iter.Seq[storage.Stream[storage.ListResult]], error) {
	if len(f.ByStatus) > 1 {
		f.ByStatus = f.ByStatus[:1]
	}
	return v.Vault.Search(ctx, f)
}

// races checks whether an ID is taken, and creates the plan some time later.
type races struct{ storage.Vault }

func (v races) Create(ctx context.Context, plan *workflow.Plan) error {
	found, err := v.Exists(ctx, plan.ID)
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Millisecond)
	if !found {
		_ = v.Delete(ctx, plan.ID)
	}
	return v.Vault.Create(ctx, plan)
}

var breakages = map[string]func(v storage.Vault, s *shared) storage.Vault{
	"lost update":           func(v storage.Vault, _ *shared) storage.Vault { return loses{v} },
	"no versions":           func(v storage.Vault, _ *shared) storage.Vault { return overwrites{v} },
	"stale read":            func(v storage.Vault, s *shared) storage.Vault { return lags{v, s} },
	"half delete":           func(v storage.Vault, s *shared) storage.Vault { return halves{v, s} },
	"resurrected plan":      func(v storage.Vault, s *shared) storage.Vault { return resurrects{v, s} },
	"double listing":        func(v storage.Vault, _ *shared) storage.Vault { return repeats{v} },
	"forgetful search":      func(v storage.Vault, _ *shared) storage.Vault { return forgets{v} },
	"create in two motions": func(v storage.Vault, _ *shared) storage.Vault { return races{v} },
}

var enough = regexp.MustCompile(`; (\d+) of them are enough:`)

// TestModelFinds runs the model on broken vaults. It must find each breakage, and show it with a few
// operations.
func TestModelFinds(t *testing.T) {
	for name, wrap := range breakages {
		if name == "create in two motions" {
			continue // only concurrent calls show it
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := failure(t, func(t storagetest.T) { metamorphic.Model{Seed: 1, Ops: 400}.Run(t, breaking(wrap)) })
				short := enough.FindStringSubmatch(said)
				if short == nil {
					t.Fatalf("not found, or not reduced: %q", said)
				}
				if n, _ := strconv.Atoi(short[1]); n > 5 {
					t.Errorf("the model needs %d operations to show it", n)
				}
				t.Log(said)
			})
		})
	}
}

// TestHistoriesFind runs histories on broken vaults.
func TestHistoriesFind(t *testing.T) {
	for _, name := range []string{"no versions", "stale read", "create in two motions"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for seed := range uint64(20) {
					said := failure(t, func(t storagetest.T) { metamorphic.History{Seed: seed}.Run(t, breaking(breakages[name])) })
					if said != "" {
						t.Logf("with seed %d: %s", seed, said)
						return
					}
				}
				t.Error("not found with any seed")
			})
		})
	}
}

// TestModelOfASoundVault runs the model and histories on the reference vault. Its calls are atomic, so plans
// may be created again at any time.
func TestModelOfASoundVault(t *testing.T) {
	sound := breaking(func(v storage.Vault, _ *shared) storage.Vault { return v })
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(5) {
			metamorphic.Model{Seed: seed, Ops: 1000, Clients: 5}.Run(t, sound)
			for _, recreate := range []bool{false, true} {
				metamorphic.History{Seed: seed, Clients: 6, Recreate: recreate}.Run(t, sound)
			}
		}
	})
}

// TestModelIsRepeatable runs one seed twice on a broken vault. The failures must be the same, except for IDs.
func TestModelIsRepeatable(t *testing.T) {
	ids := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|ETag:\S+|:\d\d\.\d+`)
	run := func() (said string) {
		synctest.Test(t, func(t *testing.T) {
			said = failure(t, func(t storagetest.T) { metamorphic.Model{Seed: 3, Ops: 400}.Run(t, breaking(breakages["half delete"])) })
		})
		return ids.ReplaceAllString(said, "*")
	}
	if a, b := run(), run(); a != b || a == "" {
		t.Errorf("two runs of one seed differ:\n%s\n%s", a, b)
	}
}
