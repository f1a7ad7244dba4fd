package engine_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
)

// kept is a vault that counts its upkeep.
type kept struct {
	storage.Vault
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
		k := &kept{Vault: memvault.NewStore().Open(plugins), began: time.Now()}
		problems := 0
		e, err := engine.New(k, plugins, engine.Options{Poll: time.Hour, Observer: engine.Observer{Problem: func(context.Context, error) { problems++ }}})
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
