package crash_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"

	"github.com/planvault/azblob/internal/vaulttest"
)

// requestKind is what requests have in common: the operation, and the container with the name or prefix, without days and
// UUIDs.
type requestKind struct {
	op    emulator.Op
	where string
}

var anyUUID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d{2}-\d{2}`)

func requestKindOf(r emulator.Request) requestKind {
	return requestKind{r.Op, anyUUID.ReplaceAllString(r.Path()+r.Prefix, "*")}
}

// TestRefusedKinds refuses each kind of request of each call for as long as it takes. The call fails and says so, or its
// result is whole. When the refusal ends, Recovery brings everything in order, and so does the same call again.
func TestRefusedKinds(t *testing.T) {
	test := func(t *testing.T, st stage) (runs int) {
		seen := map[requestKind]bool{}
		var mu sync.Mutex
		st.run(t, "kinds", func(t *testing.T, w vaulttest.World, c *call) {
			each := func(r emulator.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				seen[requestKindOf(r)] = true
				return false
			}
			rules := []*emulator.Rule{emulator.On().Where(each), emulator.On(emulator.BatchItem).Where(each)}
			for _, rule := range rules {
				rule.Do(emulator.Answer(500, "")) // matches nothing
			}
			vaulttest.Must(t, c.do(t.Context(), t, w.Vault(t, vaulttest.Meets(w.Server, rules...))))
		})
		for k := range seen {
			for i, refusal := range []emulator.Effect{vaulttest.Denied, emulator.Answer(503, "ServerBusy")} {
				if testing.Short() && i != (len(k.where)+st.number)%2 {
					continue
				}
				runs++
				st.run(t, fmt.Sprint(k.op, " ", k.where, " ", refusal), func(t *testing.T, w vaulttest.World, c *call) {
					var over atomic.Bool
					rule := emulator.On(k.op).Where(func(r emulator.Request) bool { return !over.Load() && requestKindOf(r) == k }).Do(refusal)
					v := w.Vault(t, vaulttest.Meets(w.Server, rule))
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
					defer cancel()
					err := c.do(ctx, t, v)
					over.Store(true)
					if rule.Fired() == 0 {
						t.Fatal("nothing was refused")
					}
					c.judge(t, w.Clone(), err)
					switch again := c.do(t.Context(), t, v); {
					case again == nil, c.done != nil && errors.Is(again, c.done):
						c.judge(t, w, nil)
					case c.blocked != nil && errors.Is(again, c.blocked):
						c.judge(t, w, again)
					default:
						t.Errorf("the same call again: %v; the first one: %v", again, err)
					}
				})
			}
		}
		return runs
	}
	everywhere(t, plainWorld, efforttest.Pick(slices.Concat(creations, deletions), everything(), everything()), smallOnly, test)
	everywhere(t, plainWorld, closedDays(), smallOnly, test)
	everywhere(t, unversionedWorld, unversioned, smallOnly, test)
}
