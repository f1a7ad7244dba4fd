package processtest

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
)

// Outage is how long EachRefusal refuses calls.
const Outage = 2 * time.Hour

// EachRefusal runs a test in virtual time, first without a fault, and then once with each kind of call, or all, refused as
// unavailable, and once as denied, for the time of an Outage that begins with the first call. The test asks refuse before
// each call, and returns how often somebody was told of a failure. A refusal must be told, and nothing else. With -short, all
// kinds are refused together, and only PLANVAULT_LONG denies them one at a time.
func EachRefusal[K comparable](t *testing.T, test func(t *testing.T, refuse func(kind K) error) (told int64)) {
	var mu sync.Mutex
	seen := map[K]bool{}
	bubble := func(t *testing.T, refused func(kind K) error) (told int64) {
		synctest.Test(t, func(t *testing.T) {
			var first time.Time
			told = test(t, func(kind K) error {
				mu.Lock()
				defer mu.Unlock()
				if first.IsZero() {
					first = time.Now()
				}
				if time.Since(first) >= Outage {
					return nil
				}
				return refused(kind)
			})
		})
		return told
	}
	if bubble(t, func(kind K) error { seen[kind] = true; return nil }) > 0 {
		t.Error("somebody was told of a failure, and nothing was refused")
	}
	refuses := func(name string, refused func(kind K) bool, as ...error) {
		for _, err := range as {
			t.Run(name+" "+err.Error(), func(t *testing.T) {
				if bubble(t, func(kind K) error {
					if refused(kind) {
						return &storage.Error{Op: fmt.Sprint(kind), Err: err}
					}
					return nil
				}) == 0 {
					t.Error("nobody was told")
				}
			})
		}
	}
	both := []error{storage.ErrUnavailable, storage.ErrDenied}
	refuses("all", func(K) bool { return true }, both...)
	if !efforttest.Long() && testing.Short() {
		return
	}
	for one := range seen {
		refuses(fmt.Sprint(one), func(kind K) bool { return kind == one }, both[:efforttest.Pick(1, 1, 2)]...)
	}
}
