package emulator

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
)

// Rule is a fault: it selects requests and says what happens to them. A Rule reads like a sentence, and
// prints as one:
//
//	emulator.On(emulator.PutBlob).Path("plans/*-object.json").Nth(2).Do(emulator.LostAnswer())
//
// A Rule counts the requests that match it. Nth, Range, Every, Times and Chance select some of the matches;
// without them the Rule fires on every match. At most one Rule fires on a request: rules of the transport
// come before rules of the server, and older rules before newer ones. The other rules still count the
// request. Finish a Rule before injecting it. An injected Rule is safe for concurrent use.
type Rule struct {
	ops     []Op
	method  string
	pattern string
	client  string
	where   func(Request) bool
	from    int // 1-based; 0 means from the first
	to      int // 0 means no end
	every   int
	times   int
	effects []Effect // one of them is chosen at random

	mu     sync.Mutex
	chance float64
	seed   uint64
	random *rand.Rand
	seen   int
	fired  int
}

// On returns a Rule that matches requests of these operations, or all requests if there are none. Items of a
// batch match only rules that name [BatchItem], and [Answer] is the only effect for them.
func On(ops ...Op) *Rule { return &Rule{ops: ops} }

// Random returns a Rule that fires on each request with probability chance, from 0 to 1, and applies one of
// the effects. All effects are equally likely. The same seed makes the same choices for the same sequence of
// matches. Narrow the Rule down with [Rule.Where], [Rule.Client] and so on.
func Random(chance float64, seed uint64, effects ...Effect) *Rule {
	r := On().Chance(chance, seed)
	r.effects = effects
	return r
}

// Method matches one HTTP method.
func (r *Rule) Method(method string) *Rule {
	r.method = method
	return r
}

// Path matches container and blob. A pattern that contains *, ? or [ is a glob, as in [path.Match], that must
// match the blob's whole name or all of "container/blob"; * does not match a slash. Any other pattern matches
// if "container/blob" contains it. A batch matches if one of its items does. Path panics if the glob is
// malformed.
func (r *Rule) Path(pattern string) *Rule {
	if _, err := path.Match(pattern, ""); err != nil {
		panic(fmt.Sprintf("emulator: pattern %q: %v", pattern, err))
	}
	r.pattern = pattern
	return r
}

// Client matches the requests of one client. See [Transport.Name].
func (r *Rule) Client(name string) *Rule {
	r.client = name
	return r
}

// Where matches requests for which match returns true. The function must be quick and must not use the
// server.
func (r *Rule) Where(match func(Request) bool) *Rule {
	r.where = match
	return r
}

// Nth fires on the nth match, counted from 1.
func (r *Rule) Nth(n int) *Rule { return r.Range(n, n) }

// Range fires on the matches from through to, counted from 1. If to is 0, the range has no end.
func (r *Rule) Range(from, to int) *Rule {
	r.from, r.to = from, to
	return r
}

// Every fires on every kth match: the kth, the 2kth and so on.
func (r *Rule) Every(k int) *Rule {
	r.every = k
	return r
}

// Times fires at most n times.
func (r *Rule) Times(n int) *Rule {
	r.times = n
	return r
}

// Chance fires with probability p, from 0 to 1. The same seed makes the same choices for the same sequence of
// matches.
func (r *Rule) Chance(p float64, seed uint64) *Rule {
	r.chance, r.seed = p, seed
	r.random = rand.New(rand.NewPCG(seed, 0))
	return r
}

// Do sets the effect. It ends the sentence.
func (r *Rule) Do(e Effect) *Rule {
	if slices.Contains(r.ops, BatchItem) && e.kind != kindAnswer {
		panic("emulator: the only effect on an item of a batch is Answer")
	}
	r.effects = []Effect{e}
	return r
}

// Fired returns how often the rule has fired.
func (r *Rule) Fired() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fired
}

// Seen returns how many requests have matched.
func (r *Rule) Seen() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen
}

// String returns the rule in one line.
func (r *Rule) String() string {
	var w strings.Builder
	w.WriteString("on ")
	if len(r.ops) == 0 {
		w.WriteString("any")
	}
	for i, op := range r.ops {
		if i > 0 {
			w.WriteString("|")
		}
		w.WriteString(string(op))
	}
	if r.method != "" {
		w.WriteString(" method " + r.method)
	}
	if r.pattern != "" {
		fmt.Fprintf(&w, " path %q", r.pattern)
	}
	if r.client != "" {
		w.WriteString(" client " + r.client)
	}
	if r.where != nil {
		w.WriteString(" where func")
	}
	switch {
	case r.from > 0 && r.from == r.to:
		fmt.Fprintf(&w, " nth %d", r.from)
	case r.to > 0:
		fmt.Fprintf(&w, " range %d-%d", r.from, r.to)
	case r.from > 0:
		fmt.Fprintf(&w, " from %d", r.from)
	}
	if r.every > 0 {
		fmt.Fprintf(&w, " every %d", r.every)
	}
	if r.times > 0 {
		fmt.Fprintf(&w, " times %d", r.times)
	}
	if r.random != nil {
		fmt.Fprintf(&w, " chance %g seed %d", r.chance, r.seed)
	}
	w.WriteString(": ")
	if len(r.effects) == 0 {
		w.WriteString("nothing")
	}
	for i, e := range r.effects {
		if i > 0 {
			w.WriteString(" or ")
		}
		w.WriteString(e.String())
	}
	return w.String()
}

// matches reports whether the rule is about such a request.
func (r *Rule) matches(q *Request) bool {
	if len(r.ops) > 0 && !slices.Contains(r.ops, q.Op) {
		return false
	}
	if r.method != "" && !strings.EqualFold(r.method, q.Method) {
		return false
	}
	if r.client != "" && r.client != q.Client {
		return false
	}
	matches := func(q Request) bool { return r.matchesPath(&q) }
	if r.pattern != "" && !matches(*q) && !slices.ContainsFunc(q.Items, matches) {
		return false
	}
	return r.where == nil || r.where(*q)
}

func (r *Rule) matchesPath(q *Request) bool {
	whole := q.Path()
	if !strings.ContainsAny(r.pattern, "*?[") {
		return strings.Contains(whole, r.pattern)
	}
	// Path has checked that the pattern is well-formed.
	blob, _ := path.Match(r.pattern, q.Blob)
	both, _ := path.Match(r.pattern, whole)
	return both || blob && q.Blob != ""
}

// count counts a request that matches. It returns the effect to apply, or nil if the rule does not fire.
// taken means that another rule has fired on the request.
func (r *Rule) count(taken bool) *Effect {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	fires := r.seen >= r.from && (r.to == 0 || r.seen <= r.to)
	fires = fires && (r.every == 0 || r.seen%r.every == 0)
	fires = fires && (r.times == 0 || r.fired < r.times)
	effect := &r.effects[0]
	if r.random != nil {
		// Draw for every match, so that other criteria don't shift the sequence.
		fires = r.random.Float64() < r.chance && fires
		if n := len(r.effects); n > 1 {
			effect = &r.effects[r.random.IntN(n)]
		}
	}
	if !fires || taken {
		return nil
	}
	r.fired++
	return effect
}

// rules are the rules of a server or of a client.
type rules struct {
	mu   sync.Mutex
	list []*Rule
}

func (l *rules) add(rules []*Rule) {
	for _, r := range rules {
		if len(r.effects) == 0 {
			panic("emulator: a rule without an effect: " + r.String())
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = append(l.list, rules...)
}

func (l *rules) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.list = nil
}

func (l *rules) all() []*Rule {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.list)
}

// Inject adds rules for the requests of all clients.
func (s *Server) Inject(rules ...*Rule) { s.rules.add(rules) }

// ClearFaults removes the rules that [Server.Inject] added.
func (s *Server) ClearFaults() { s.rules.clear() }

// Inject adds rules for the requests of this transport.
func (t *Transport) Inject(rules ...*Rule) { t.client.rules.add(rules) }

// ClearFaults removes the rules that [Transport.Inject] added.
func (t *Transport) ClearFaults() { t.client.rules.clear() }

// Inject adds rules for the requests that arrive at this listener.
func (l *Listener) Inject(rules ...*Rule) { l.client.rules.add(rules) }

// pick counts a request in all rules that match it, first those of the client. It returns the effect of the rule that
// fires, or nil. An item of a batch matches only rules that name it.
func (s *Server) pick(cl *client, q *Request) *Effect {
	var picked *Effect
	for _, r := range append(cl.rules.all(), s.rules.all()...) {
		if !r.matches(q) || q.Op == BatchItem && len(r.ops) == 0 {
			continue
		}
		if e := r.count(picked != nil); e != nil {
			picked = e
		}
	}
	return picked
}
