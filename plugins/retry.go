package plugins

import (
	"fmt"
	"strings"
	"time"
)

// Retrier is a [Plugin] that says how its actions are retried, unless they say it themselves.
type Retrier interface {
	// Retries is how many more attempts may follow after the first one failed, for an action that has neither Retries nor
	// NoRetries.
	Retries() int
	// Backoff is the wait between attempts, for an action without a Backoff of its own.
	Backoff() Backoff
}

// Backoff says how long an action waits after a failed attempt before it is tried again. The zero value says nothing: the
// next one to be asked says it, the action, its plugin, or the engine.
type Backoff struct {
	// First is the wait after the first failure. Default: the engine's Options.RetryDelay.
	First time.Duration `json:"first,omitzero"`
	// Factor multiplies the wait after each further failure: 1 to 100. Default: 2.
	Factor float64 `json:"factor,omitzero"`
	// Most is the longest wait. Default: a minute, or First if that is longer.
	Most time.Duration `json:"most,omitzero"`
	// Jitter is the part of each wait, 0 to 1, that differs between actions, so that those that failed together are not all
	// tried again at once: a wait of 10s is 8s to 10s with a Jitter of 0.2. The same attempt of an action waits as long on
	// each node and after a restart. Default: 0.
	Jitter float64 `json:"jitter,omitzero"`
}

// String returns the fields that are set, such as "first 10s, factor 1.5".
func (b Backoff) String() string {
	var set []string
	for _, f := range []struct {
		name  string
		value any
		unset bool
	}{{"first", b.First, b.First == 0}, {"factor", b.Factor, b.Factor == 0}, {"most", b.Most, b.Most == 0}, {"jitter", b.Jitter, b.Jitter == 0}} {
		if !f.unset {
			set = append(set, fmt.Sprint(f.name, " ", f.value))
		}
	}
	return strings.Join(set, ", ")
}

// Wrong returns the first field that is wrong, and what is wrong with it, or nothing.
func (b Backoff) Wrong() (field, problem string) {
	switch {
	case b.First < 0:
		return "First", fmt.Sprintf("%v is negative", b.First)
	case b.Most < 0:
		return "Most", fmt.Sprintf("%v is negative", b.Most)
	case b.Most > 0 && b.Most < b.First:
		return "Most", fmt.Sprintf("%v is below First, which is %v", b.Most, b.First)
	case b.Factor != 0 && !(b.Factor >= 1 && b.Factor <= 100): // which NaN is not
		return "Factor", fmt.Sprintf("%v is not between 1 and 100", b.Factor)
	case !(b.Jitter >= 0 && b.Jitter <= 1):
		return "Jitter", fmt.Sprintf("%v is not between 0 and 1", b.Jitter)
	}
	return "", ""
}
