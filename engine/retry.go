package engine

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/plugins"
	"github.com/planvault/azblob/workflow"
)

const (
	// maxRetryDelay is the longest wait before a retry, unless an action or its plugin says another one.
	maxRetryDelay = time.Minute
	// longestWait is one that time.Duration has room for, whatever a float64 makes of it.
	longestWait time.Duration = 1 << 62
	// maxAfter is the longest wait that a plugin's error can ask for.
	maxAfter = 7 * 24 * time.Hour
)

// retryPolicy says how often an action is tried again, and how long it waits. No field of the backoff is left to a default.
type retryPolicy struct {
	retries int
	backoff plugins.Backoff
}

// policyOf returns the policy of an action here. Without its plugin, its next attempt fails.
func (e *Engine) policyOf(a *workflow.Action) retryPolicy {
	plugin, _ := e.plugin(a)
	return policyOf(a, plugin, e.opts.RetryDelay)
}

// policyOf returns the policy of an action: what it says, or else its plugin, which may be nil. first is the wait after the
// first failure if neither says it.
func policyOf(a *workflow.Action, plugin plugins.Plugin, first time.Duration) retryPolicy {
	p := retryPolicy{a.Retries, a.Backoff}
	if r, ok := plugin.(plugins.Retrier); ok {
		if p.retries == 0 && !a.NoRetries {
			p.retries = r.Retries()
		}
		p.backoff = cmp.Or(p.backoff, r.Backoff())
	}
	b := &p.backoff
	b.Most = cmp.Or(b.Most, max(maxRetryDelay, b.First))
	b.First = cmp.Or(b.First, first)
	b.Factor = cmp.Or(b.Factor, 2)
	return p
}

// wait returns how long an action waits after the end of a failed attempt, by what is stored: its ID, the error, and how many
// attempts have failed with this one. All engines therefore agree. After no failure it does not wait.
func (p retryPolicy) wait(action uuid.UUID, failures int, err *plugins.Error) time.Duration {
	switch {
	case failures == 0:
		return 0
	case err.After > 0:
		return min(err.After, maxAfter)
	}
	wait := min(float64(p.backoff.First)*math.Pow(p.backoff.Factor, float64(failures-1)), float64(p.backoff.Most), float64(longestWait))
	return time.Duration(wait - wait*p.backoff.Jitter*share(action, failures))
}

// share returns a number from 0 to 1 that is as good as random, but always the same for an attempt of an action.
func share(action uuid.UUID, attempt int) float64 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(action[:], uint64(attempt)))
	return float64(binary.BigEndian.Uint64(sum[:])) / (1 << 64)
}
