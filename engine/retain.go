package engine

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"time"

	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage/retention"
)

// retain enforces the policy of the vault, as other engines do, and says whether it has catalogues built.
func (e *Engine) retain(ctx context.Context, vault retention.Vault, catalogues *atomic.Bool) {
	const interval = time.Hour
	name, _ := os.Hostname()
	if e.opts.Fleet != nil {
		name = cmp.Or(e.opts.Fleet.Name, name)
	}
	enforcer := retention.NewEnforcer(vault, name)
	for wait := rand.N(interval); sleep.For(ctx, wait); wait = interval {
		policy, _, err := enforcer.Look(ctx)
		if err != nil && ctx.Err() == nil {
			e.opts.Observer.Problem(ctx, ProblemEvent{err})
			continue
		}
		catalogues.Store(policy != nil && policy.Policy.Catalogue)
	}
}
