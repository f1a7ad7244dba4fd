package crash_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob"
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

// wrongs are the answers that a call meets for all requests of one kind: a refusal for as long as it takes, and the false
// statement that nothing is there, made once or as long as the call goes on.
var wrongs = []struct {
	answer       emulator.Effect
	absent, once bool
}{
	{vaulttest.Denied, false, false},
	{emulator.Answer(503, "ServerBusy"), false, false},
	{vaulttest.Absences[0], true, true},
	{vaulttest.Absences[0], true, false},
	{vaulttest.Absences[1], true, true},
	{vaulttest.Absences[1], true, false},
	{vaulttest.Absences[2], true, false},
}

// TestWrongAnswers gives a wrong answer to each kind of request of each call. The call fails and says so, or its result is
// whole. Afterwards Recovery brings everything in order, and so does the same call again.
func TestWrongAnswers(t *testing.T) {
	test := func(t *testing.T, st stage) (runs int) {
		readsOnly := st.call().untouched != nil
		for _, k := range st.kinds(t) {
			for i, wrong := range wrongs {
				if wrong.absent && readsOnly {
					continue // reads believe an absence
				}
				if !vaulttest.Sampled(efforttest.Pick(len(wrongs), 3, 1), len(k.where)+st.number, i) {
					continue
				}
				runs++
				st.run(t, fmt.Sprint(k.op, " ", k.where, " ", wrong.answer, ", once ", wrong.once), func(t *testing.T, w vaulttest.World, c *call) {
					var over atomic.Bool
					rule := emulator.On(k.op).Where(func(r emulator.Request) bool { return !over.Load() && requestKindOf(r) == k }).Do(wrong.answer)
					if wrong.once {
						rule.Nth(1)
					}
					v := w.Vault(t, vaulttest.Meets(w.Server, rule))
					err := c.do(vaulttest.Within(t, 5*time.Minute), t, v)
					over.Store(true)
					if rule.Fired() == 0 {
						t.Fatal("no answer was wrong")
					}
					vaulttest.EqualListings(t, w.Server)
					c.judge(t, w.Clone(), err)
					c.again(t, w, v, err)
				})
			}
		}
		return runs
	}
	everywhere(t, plainWorld, efforttest.Pick(slices.Concat(creations, deletions), everything(), everything()), smallOnly, test)
	everywhere(t, plainWorld, closedDays(), smallOnly, test)
	everywhere(t, unversionedWorld, unversioned, smallOnly, test)
}

// kinds returns the kinds of the requests of the call.
func (st stage) kinds(t *testing.T) []requestKind {
	t.Helper()
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
	return slices.SortedFunc(maps.Keys(seen), func(a, b requestKind) int {
		return cmp.Or(cmp.Compare(a.op, b.op), strings.Compare(a.where, b.where))
	})
}

// again makes the same call once more, which settles it.
func (c *call) again(t *testing.T, w vaulttest.World, v *azblob.Vault, first error) {
	t.Helper()
	switch again := c.do(t.Context(), t, v); {
	case again == nil, c.done != nil && errors.Is(again, c.done):
		c.judge(t, w, nil)
	case c.blocked != nil && errors.Is(again, c.blocked):
		c.judge(t, w, again)
	default:
		t.Errorf("the same call again: %v; the first one: %v", again, first)
	}
}
