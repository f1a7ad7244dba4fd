package metamorphic_test

import (
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/trial"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/storage/storagetest/metamorphic"
	"github.com/planvault/azblob/workflow"
)

// breaking returns a harness of vaults that a hook breaks. The vaults of a store share it.
func breaking(breakage func() func(c *hooked.Call) error) storagetest.Harness {
	return storagetest.Harness{New: func(storagetest.T) storagetest.Store {
		store, hook := memvault.NewStore(), breakage()
		open := func(o memvault.Options) storage.Vault {
			return hooked.Wrap(hooked.Wrap(store.Open(plantest.Register(), o), slowly), hook)
		}
		return storagetest.Store{
			Open:        func(storagetest.T) storage.Vault { return open(memvault.Options{}) },
			Unversioned: func(storagetest.T) storage.Vault { return open(memvault.Options{UnversionedUpdates: true}) },
		}
	}}
}

// slowly lets calls take some time before and after they take effect, so that they overlap.
func slowly(c *hooked.Call) error {
	before, after := time.Duration(0), time.Duration(0)
	switch c.Op {
	case "Create", "Delete":
		before, after = 2*time.Millisecond, 3*time.Millisecond
	case "Read":
		before, after = time.Millisecond, time.Millisecond
	case "UpdatePlan":
		before, after = 2*time.Millisecond, time.Millisecond
	}
	time.Sleep(before)
	defer time.Sleep(after)
	return c.Do()
}

// breakages break one promise each.
var breakages = map[string]func() func(c *hooked.Call) error{
	"lost update": func() func(c *hooked.Call) error { // of an action that is final
		return hooked.On("UpdateAction", func(c *hooked.Call) error {
			state := c.Object.Header().State
			if !state.Status.Final() || state.ETag == "" {
				return c.Do()
			}
			if _, err := c.Below.Read(c.Ctx, c.ID); err != nil {
				return err
			}
			state.ETag += "'"
			return nil
		})
	},
	"no versions": func() func(c *hooked.Call) error { // of plans
		return hooked.On("UpdatePlan", func(c *hooked.Call) error {
			state := c.Object.Header().State
			if now, err := c.Below.Read(c.Ctx, c.ID); err == nil && state.ETag != "" && now.State.Status <= state.Status {
				state.ETag = now.State.ETag
			}
			return c.Do()
		})
	},
	"stale read": func() func(c *hooked.Call) error { // of a running plan, as it was at the Read before
		var before sync.Map
		return hooked.On("Read", func(c *hooked.Call) error {
			if err := c.Do(); err != nil || c.Plan.State.Status != workflow.Running {
				return err
			}
			if last, ok := before.Swap(c.ID, plantest.Clone(c.Plan)); ok {
				c.Plan = last.(*workflow.Plan)
			}
			return nil
		})
	},
	"half delete": func() func(c *hooked.Call) error { // listings still show the plan
		var gone sync.Map
		return func(c *hooked.Call) error {
			if _, deleted := gone.Load(c.ID); deleted && (c.Op == "Read" || c.Op == "Delete") {
				c.ID = workflow.NewV7()
			} else if c.Op == "Delete" {
				if _, err := c.Below.Read(c.Ctx, c.ID); err == nil {
					gone.Store(c.ID, true)
					return nil
				}
			}
			return c.Do()
		}
	},
	"resurrected plan": func() func(c *hooked.Call) error { // Recovery restores what was deleted
		var deleted sync.Map
		return func(c *hooked.Call) error {
			switch c.Op {
			case "Delete":
				if plan, err := c.Below.Read(c.Ctx, c.ID); err == nil && plan.State.Status == workflow.NotStarted {
					deleted.Store(c.ID, plan)
				}
			case "Recovery":
				for _, plan := range deleted.Range {
					_ = c.Below.Create(c.Ctx, plan.(*workflow.Plan))
				}
			}
			return c.Do()
		}
	},
	"double listing": func() func(c *hooked.Call) error { // of the first plan
		return hooked.On("List", func(c *hooked.Call) error {
			err := c.Do()
			if list := c.Listing; err == nil && c.Limit == 0 {
				c.Listing = func(yield func(storage.Stream[storage.ListResult]) bool) {
					all := slices.Collect(list)
					slices.Values(append(all[:min(1, len(all))], all...))(yield)
				}
			}
			return err
		})
	},
	"forgetful search": func() func(c *hooked.Call) error { // only the first status counts
		return hooked.On("Search", func(c *hooked.Call) error {
			c.Filters.ByStatus = c.Filters.ByStatus[:min(1, len(c.Filters.ByStatus))]
			return c.Do()
		})
	},
	"create in two motions": func() func(c *hooked.Call) error { // a look, and some time later the rest
		return hooked.On("Create", func(c *hooked.Call) error {
			found, err := c.Below.Exists(c.Ctx, c.ID)
			if err != nil {
				return err
			}
			time.Sleep(2 * time.Millisecond)
			if !found {
				_ = c.Below.Delete(c.Ctx, c.ID)
			}
			return c.Do()
		})
	},
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
				said := trial.Run(t.Context(), t.Name(), func(t storagetest.T) { metamorphic.Model{Seed: 1, Ops: 1000}.Run(t, breaking(wrap)) }).Failure()
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
					said := trial.Run(t.Context(), t.Name(), func(t storagetest.T) { metamorphic.History{Seed: seed}.Run(t, breaking(breakages[name])) }).Failure()
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

// TestModelIsRepeatable runs one seed twice on a broken vault. The failures must be the same, except for IDs.
func TestModelIsRepeatable(t *testing.T) {
	ids := regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|ETag:\S+|:\d\d\.\d+`)
	run := func() (said string) {
		synctest.Test(t, func(t *testing.T) {
			said = trial.Run(t.Context(), t.Name(), func(t storagetest.T) { metamorphic.Model{Seed: 3, Ops: 400}.Run(t, breaking(breakages["half delete"])) }).Failure()
		})
		return ids.ReplaceAllString(said, "*")
	}
	if a, b := run(), run(); a != b || a == "" {
		t.Errorf("two runs of one seed differ:\n%s\n%s", a, b)
	}
}
