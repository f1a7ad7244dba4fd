package engine_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

// kept is a vault that counts its upkeep.
type kept struct {
	*memvault.Vault
	calls []time.Duration // since the beginning
	began time.Time
}

func (k *kept) Upkeep(context.Context) error {
	k.calls = append(k.calls, time.Since(k.began))
	return errors.New("a day can't be read")
}

// TestUpkeepIsDaily runs an engine for ten days.
func TestUpkeepIsDaily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plugins := registry.Must()
		k := &kept{Vault: memvault.NewStore().Open(plugins, memvault.Options{}), began: time.Now()}
		problems := 0
		e, err := engine.New(k, engine.Options{Poll: time.Hour, NoRetention: true, Observer: engine.Observer{Problem: func(context.Context, engine.ProblemEvent) { problems++ }}})
		must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*24*time.Hour)
		defer cancel()
		must(t, e.Run(ctx))
		if len(k.calls) != 10 || problems != 10 {
			t.Fatalf("%d calls, %d problems", len(k.calls), problems)
		}
		for i, at := range k.calls {
			if first := k.calls[0]; first < time.Hour || first > 2*time.Hour || at-first != time.Duration(i)*24*time.Hour {
				t.Errorf("call %d after %v", i, at)
			}
		}
	})
}

// TestNewTellsWhatADecoratorHides wraps a vault with all methods in decorators with those of storage.Vault.
func TestNewTellsWhatADecoratorHides(t *testing.T) {
	plugins := registry.Must()
	whole := newRetained(memvault.New(plugins, memvault.Options{}))
	for _, c := range []struct {
		vault storage.Vault
		fleet *fleet.Options
		told  string
		err   error
	}{
		{whole, &fleet.Options{}, "", nil},
		{whole.Vault, nil, "", nil},
		{hiding{whole, plugins}, nil, "a engine_test.hiding does not tell whether it is suspended, and enforces no policy of retention: a decorator needs a method Unwrap for that", nil},
		{hiding{whole, plugins}, &fleet.Options{}, "", errors.ErrUnsupported},
		{struct{ storage.Vault }{whole}, nil, "", errors.ErrUnsupported},
		{nil, nil, "", storage.ErrInvalid},
		{memvault.New(nil, memvault.Options{}), nil, "", storage.ErrInvalid},
	} {
		told := ""
		observer := engine.Observer{Problem: func(_ context.Context, e engine.ProblemEvent) { told += e.Err.Error() }}
		if _, err := engine.New(c.vault, engine.Options{Fleet: c.fleet, Observer: observer}); !errors.Is(err, c.err) || told != c.told {
			t.Errorf("%T: %v, told %q", c.vault, err, told)
		}
	}
}

// hiding is a decorator without Unwrap.
type hiding struct {
	storage.Vault
	plugins *registry.Register
}

func (h hiding) Registry() *registry.Register { return h.plugins }

// retained is a vault that a policy empties.
type retained struct {
	*memvault.Vault
	storage.Control
	retired, upkeeps int
}

func newRetained(v *memvault.Vault) *retained { return &retained{Vault: v, Control: v.Control()} }

func (r *retained) DueDays(context.Context, retention.Policy) ([]retention.Day, error) {
	return []retention.Day{{Day: storage.DayOf(time.Now()).Add(-365), Reach: retention.ReachFinal}}, nil
}

func (r *retained) Retire(context.Context, retention.Policy, storage.Day, time.Duration) (retention.Result, error) {
	r.retired++
	return retention.Result{Dropped: true}, nil
}

func (r *retained) Upkeep(context.Context) error { r.upkeeps++; return nil }

// TestEnginesEnforceAPolicy runs two engines for ten days. Each day one of them does a step. The engines leave catalogues to
// the policy, if it has any.
func TestEnginesEnforceAPolicy(t *testing.T) {
	for _, test := range []struct {
		policy           retention.Policy
		off              bool
		retired, upkeeps int
	}{
		{retention.Policy{KeepDays: 1}, false, 10, 20},
		{retention.Policy{KeepDays: 1, Catalogue: true}, false, 10, 10},
		{retention.Policy{KeepDays: 1, Catalogue: true}, true, 0, 20},
	} {
		synctest.Test(t, func(t *testing.T) {
			store, plugins := memvault.NewStore(), registry.Must()
			var vaults []*retained
			var work sync.WaitGroup
			ctx, cancel := context.WithTimeout(t.Context(), 10*24*time.Hour)
			defer cancel()
			for range 2 {
				v := newRetained(store.Open(plugins, memvault.Options{}))
				vaults = append(vaults, v)
				e, err := engine.New(v, engine.Options{Poll: time.Hour, NoRetention: test.off, Observer: engine.Observer{Problem: func(_ context.Context, e engine.ProblemEvent) { t.Error(e.Err) }}})
				must(t, err)
				work.Go(func() { _ = e.Run(ctx) })
			}
			_, err := retention.Set(t.Context(), vaults[0], test.policy, retention.Change{By: workflow.Attribution{By: "operator"}, AtOnce: true})
			must(t, err)
			work.Wait()
			retired, upkeeps := vaults[0].retired+vaults[1].retired, vaults[0].upkeeps+vaults[1].upkeeps
			if retired < test.retired || retired > test.retired+1 && test.retired > 0 || upkeeps < test.upkeeps || upkeeps > test.upkeeps+1 {
				t.Errorf("%+v: %d days were retired, and catalogues built %d times", test, retired, upkeeps)
			}
		})
	}
}
