package emulator_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/planvault/azblob/emulator"
)

// deviation is a known difference between Azurite and the emulator, and its justification.
type deviation struct {
	what   string // what Azurite does, and what the service and the emulator do
	source string // where this is documented

	// whole reports whether the deviation explains the two answers as a whole.
	whole func(x *exchange) bool

	// single reports whether the deviation explains one fact of two answers.
	single func(x *exchange, d difference) bool
}

// exchange is a request and its two answers.
type exchange struct {
	ask   *ask
	reply [2]*reply
	facts [2]facts
}

// outcome returns the status and the error code of an answer.
func (x *exchange) outcome(on side) string {
	r := x.reply[on]
	text := strconv.Itoa(r.status)
	if code := r.header.Get("X-Ms-Error-Code"); code != "" {
		text += " " + code
	}
	return text
}

// are reports whether the two answers have these outcomes.
func (x *exchange) are(azurite, emulated string) bool {
	return x.outcome(inAzurite) == azurite && x.outcome(inEmulator) == emulated
}

// comparison sends requests to two services and counts the deviations that explain differences.
type comparison struct {
	services [2]*endpoint

	mu   sync.Mutex
	n    int
	used map[string]int
}

// alone reports whether there is only one service, which is compared with itself.
func (c *comparison) alone() bool { return c.services[0] == c.services[1] }

// verdict is the result of comparing one request.
type verdict struct {
	*exchange
	unexplained []difference
}

// diverged reports whether only one of the services executed the request, or an item of a batch.
func (v *verdict) diverged() bool {
	if v.ask.op == emulator.GetBlob || v.ask.method == http.MethodHead || v.ask.method == http.MethodGet {
		return false
	}
	for fact, status := range v.facts[inAzurite] {
		if strings.HasSuffix(fact, "status") && (status < "3") != (v.facts[inEmulator][fact] < "3") {
			return true
		}
	}
	return false
}

// do sends a request to both services and compares the answers.
func (c *comparison) do(ctx context.Context, m *memory, a *ask) (*verdict, error) {
	m.n++
	x := &exchange{ask: a}
	for on, s := range c.services {
		if on > 0 && c.alone() {
			x.reply[on] = x.reply[0]
			continue
		}
		r, err := a.send(ctx, s, side(on))
		if err != nil {
			return nil, err
		}
		x.reply[on] = r
	}
	for on, s := range c.services {
		x.facts[on] = m.facts(a, s, side(on), x.reply[on])
	}
	v := &verdict{exchange: x}
	used := make(map[*deviation]bool)
	all := differences(x.facts[inAzurite], x.facts[inEmulator])
	if len(all) > 0 {
		for _, d := range deviations {
			if d.whole != nil && d.whole(x) {
				used[d] = true
				all = nil
				break
			}
		}
	}
	for _, found := range all {
		explained := false
		for _, d := range deviations {
			if d.single != nil && d.single(x, found) {
				used[d], explained = true, true
				break
			}
		}
		if !explained {
			v.unexplained = append(v.unexplained, found)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if c.used == nil {
		c.used = make(map[string]int)
	}
	for d := range used {
		c.used[d.what]++
	}
	return v, nil
}

// realign makes the services store the same again after a request that only one of them executed: it removes
// or rewrites what the request was about.
func (c *comparison) realign(ctx context.Context, m *memory, a *ask) error {
	container, blob := "/"+a.container, "/"+a.container+"/"+a.blob
	var mend []string
	switch a.op {
	case emulator.CreateContainer, emulator.DeleteContainer:
		mend = []string{"lease " + container + " do=break period=0", "drop " + container}
	case emulator.LeaseContainer:
		for _, act := range []string{"do=break period=0", "do=acquire propose=ONE for=-1", "do=release id=ONE"} {
			mend = append(mend, "lease "+container+" "+act)
		}
	case emulator.SetContainerMetadata:
		mend = []string{"describe " + container}
	case emulator.BatchDelete:
		for _, it := range a.items {
			mend = append(mend, "delete /"+it.container+"/"+it.blob)
		}
	default:
		mend = []string{"delete " + strconv.Quote(blob)}
	}
	for _, line := range mend {
		w := parse(m, line)
		m.n++
		for on, s := range c.services {
			r, err := w.send(ctx, s, side(on))
			if err != nil {
				return err
			}
			m.facts(w, s, side(on), r)
		}
	}
	return nil
}

// String returns what is not explained.
func (v *verdict) String() string {
	var w strings.Builder
	fmt.Fprintf(&w, "%s\n\tAzurite: %s, emulator: %s", v.ask, v.outcome(inAzurite), v.outcome(inEmulator))
	for _, d := range v.unexplained {
		w.WriteString("\n\t" + d.String())
	}
	return w.String()
}

// must sends a request and reports what is not explained.
func (c *comparison) must(t *testing.T, m *memory, a *ask) *verdict {
	t.Helper()
	v, err := c.do(t.Context(), m, a)
	if err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	if len(v.unexplained) > 0 {
		t.Error(v)
	}
	if v.diverged() {
		must(t, c.realign(t.Context(), m, a))
	}
	return v
}
