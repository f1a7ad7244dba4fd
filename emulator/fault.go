package emulator

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
)

// Rule is a fault: which requests it befalls, and what it does to them. It reads
// like a sentence and prints itself:
//
//	emulator.On(emulator.PutBlob).Path("plans/*-object.json").Nth(2).Do(emulator.LostAnswer())
//
// A rule counts the requests that match it, and fires on those that Nth, Range,
// Every, Times and Chance choose among them; without these on each. If several
// rules would fire on one request the first injected does, those of the transport
// before those of the server; the others only count it. A rule is built before it
// is injected; then it is safe for concurrent use.
type Rule struct {
	ops     []Op
	method  string
	pattern string
	client  string
	where   func(Request) bool
	from    int // 1-based; 0 is from the first
	to      int // 0 is no end
	every   int
	times   int
	effect  *Effect

	mu     sync.Mutex
	chance float64
	seed   uint64
	random *rand.Rand
	seen   int
	fired  int
}

// On matches requests of these operations; of any without arguments. An item of
// a batch matches only rules that name [BatchItem], and their only effect is
// [Answer].
func On(ops ...Op) *Rule { return &Rule{ops: ops} }

// Method matches one HTTP method.
func (r *Rule) Method(method string) *Rule {
	r.method = method
	return r
}

// Path matches the container and the blob. A pattern with one of *?[ is a glob
// as in [path.Match], for the whole of the blob's name or of "container/blob"; *
// does not match a slash. Any other is looked for within "container/blob". A
// batch matches if one of its items does. Path panics if the glob is malformed.
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

// Where matches requests for which a function says so. It must be quick and
// must not use the server.
func (r *Rule) Where(match func(Request) bool) *Rule {
	r.where = match
	return r
}

// Nth fires on the nth match, counted from 1.
func (r *Rule) Nth(n int) *Rule { return r.Range(n, n) }

// Range fires on the matches from and to, both included, counted from 1. 0 as to
// is no end.
func (r *Rule) Range(from, to int) *Rule {
	r.from, r.to = from, to
	return r
}

// Every fires on each kth match: the kth, the 2kth and so on.
func (r *Rule) Every(k int) *Rule {
	r.every = k
	return r
}

// Times fires at most n times.
func (r *Rule) Times(n int) *Rule {
	r.times = n
	return r
}

// Chance fires with a probability from 0 to 1. The same seed makes the same
// choices for the same sequence of matches.
func (r *Rule) Chance(p float64, seed uint64) *Rule {
	r.chance, r.seed = p, seed
	r.random = rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // repeatable on purpose
	return r
}

// Do says what happens, and ends the sentence.
func (r *Rule) Do(e Effect) *Rule {
	if slices.Contains(r.ops, BatchItem) && e.kind != kindAnswer {
		panic("emulator: the only effect on an item of a batch is Answer")
	}
	r.effect = &e
	return r
}

// Fired tells how often the rule fired.
func (r *Rule) Fired() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fired
}

// Seen tells how many requests matched.
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
	if r.effect == nil {
		w.WriteString("nothing")
	} else {
		w.WriteString(r.effect.String())
	}
	return w.String()
}

// matches tells whether the rule is about such requests.
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
	if r.pattern != "" && !r.matchesPath(q) && !slices.ContainsFunc(q.Items, func(item Request) bool { return r.matchesPath(&item) }) {
		return false
	}
	return r.where == nil || r.where(*q)
}

func (r *Rule) matchesPath(q *Request) bool {
	whole := q.Path()
	if !strings.ContainsAny(r.pattern, "*?[") {
		return strings.Contains(whole, r.pattern)
	}
	// The pattern was found to be well-formed.
	blob, _ := path.Match(r.pattern, q.Blob)
	both, _ := path.Match(r.pattern, whole)
	return both || blob && q.Blob != ""
}

// count counts a request that matches, and tells whether the rule fires on it.
// taken says that another rule did already.
func (r *Rule) count(taken bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen++
	fires := r.seen >= r.from && (r.to == 0 || r.seen <= r.to)
	fires = fires && (r.every == 0 || r.seen%r.every == 0)
	fires = fires && (r.times == 0 || r.fired < r.times)
	if r.random != nil {
		// Drawn for each match, so that other criteria don't shift the sequence.
		fires = r.random.Float64() < r.chance && fires
	}
	if !fires || taken {
		return false
	}
	r.fired++
	return true
}

// Inject adds rules for the requests of all clients.
func (s *Server) Inject(rules ...*Rule) {
	checkRules(rules)
	s.fmu.Lock()
	defer s.fmu.Unlock()
	s.rules = append(s.rules, rules...)
}

// ClearFaults removes the rules that were given to [Server.Inject].
func (s *Server) ClearFaults() {
	s.fmu.Lock()
	defer s.fmu.Unlock()
	s.rules = nil
}

// Inject adds rules for the requests of this transport.
func (t *Transport) Inject(rules ...*Rule) {
	checkRules(rules)
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	t.client.rules = append(t.client.rules, rules...)
}

// Inject adds rules for the requests that come over the listener.
func (l *Listener) Inject(rules ...*Rule) {
	checkRules(rules)
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	l.client.rules = append(l.client.rules, rules...)
}

// ClearFaults removes the rules that were given to [Transport.Inject].
func (t *Transport) ClearFaults() {
	t.client.mu.Lock()
	defer t.client.mu.Unlock()
	t.client.rules = nil
}

func checkRules(rules []*Rule) {
	for _, r := range rules {
		if r.effect == nil {
			panic("emulator: a rule without effect: " + r.String())
		}
	}
}

// rulesFor returns the rules for a client in the order in which they fire.
func (s *Server) rulesFor(cl *client) []*Rule {
	cl.mu.Lock()
	own := slices.Clip(cl.rules)
	cl.mu.Unlock()
	s.fmu.Lock()
	defer s.fmu.Unlock()
	return append(own, s.rules...)
}

// pick finds what befalls a request; nil is nothing.
func (s *Server) pick(cl *client, q *Request) *Effect {
	var e *Effect
	for _, r := range s.rulesFor(cl) {
		if r.matches(q) && r.count(e != nil) {
			e = r.effect
		}
	}
	return e
}

// pickItem is pick for an item of a batch.
func (s *Server) pickItem(cl *client, q *Request) *Effect {
	var e *Effect
	for _, r := range s.rulesFor(cl) {
		if slices.Contains(r.ops, BatchItem) && r.matches(q) && r.count(e != nil) {
			e = r.effect
		}
	}
	return e
}
