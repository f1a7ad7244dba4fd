package protocol

import (
	"hash/maphash"
	"slices"
)

// model is what a search explores: states, and moves that lead from one to the next.
type model[S promising] interface {
	// first returns the state in which the situation begins.
	first() S
	// steps calls yield for everything that can happen in a state, always in the same order.
	steps(from S, yield func(move, S))
	// tidy makes states equal that differ only in what no longer matters.
	tidy(*S)
	// regress returns which promise a step breaks, or "".
	regress(from, to *S) string
	// check returns which promise is broken in a state, or "".
	check(*S) string
	describe(move) string
	// judges reports whether a promise is judged.
	judges(breach) bool
	// lives returns the promise that from every state steps that help lead to one that is good; 0 means that there is no such
	// promise.
	lives() (breach, func(*S) bool)
}

// promising is what states have in common: they know which promise the last step broke, if any.
type promising interface {
	comparable
	promise() breach
}

// outcome is the promise that the last step broke, as part of a state.
type outcome struct{ broken breach }

func (o outcome) promise() breach { return o.broken }

// search visits the states of a model, breadth first. It has those methods of a model that few models need.
type search[S promising] struct {
	seen   map[uint64]int32 // by the hash of a state, its number
	links  []link
	queue  [][]S  // in pieces, so that it does not move as it grows
	edges  []edge // of the steps that help
	report report
}

var seed = maphash.MakeSeed()

func hash[S comparable](of S) uint64 { return maphash.Comparable(seed, of) }

// find returns the hash of a state, and its number if it is known.
func (x *search[S]) find(st *S) (key uint64, id int32, known bool) {
	key = hash(*st)
	id, known = x.seen[key]
	if known && *x.state(id) != *st {
		panic("two states have the same hash; another run has another seed")
	}
	return key, id, known
}

func (*search[S]) first() (st S)                  { return st }
func (*search[S]) tidy(*S)                        {}
func (*search[S]) regress(_, to *S) string        { return (*to).promise().String() }
func (*search[S]) check(*S) string                { return "" }
func (*search[S]) describe(m move) string         { return m.String() }
func (*search[S]) lives() (breach, func(*S) bool) { return 0, nil }

// explore visits all states that can be reached, and then looks for one from which nothing good follows.
func (x *search[S]) explore(in explorable) report {
	m := in.(model[S])
	promise, good := m.lives()
	if !m.judges(promise) {
		good = nil
	}
	if x.visit(m, good); good != nil && x.report.violation == "" {
		if id := x.stuck(good); id >= 0 {
			x.report.violation, x.report.path = promise.String(), x.path(m, id)
		}
	}
	return x.report
}

// link leads from a state to the state from which it was first reached.
type link struct {
	parent int32
	nth    int32 // the number of the step among the parent's
	into   int32 // the last edge to the state; 0 is none
}

// edge is a step from a state. The edges to one state are chained.
type edge struct{ from, next int32 }

// report is the result of a search.
type report struct {
	states, steps int
	violation     string // "" if there is none
	path          []string
}

// visit visits all states that can be reached, until a promise is broken. It notes the steps that help if some states are good.
func (x *search[S]) visit(m model[S], good func(*S) bool) {
	x.seen, x.edges = map[uint64]int32{}, make([]edge, 1)
	first := m.first()
	m.tidy(&first)
	x.add(&first, link{parent: -1})
	to := new(S) // one for all steps
	for i := int32(0); int(i) < len(x.links) && x.report.violation == ""; i++ {
		from := x.state(i)
		n := int32(0)
		m.steps(*from, func(s move, next S) {
			x.report.steps++
			nth := n
			n++
			if x.report.violation != "" {
				return
			}
			*to = next
			m.tidy(to)
			broken := m.regress(from, to) // check the step even if it leads to a known state
			id, known := x.add(to, link{parent: i, nth: nth})
			if !known && broken == "" {
				broken = m.check(to)
			}
			if good != nil && s.helps {
				x.edges = append(x.edges, edge{i, x.links[id].into})
				x.links[id].into = int32(len(x.edges) - 1)
			}
			if broken != "" {
				x.report.violation = broken
				x.report.path = append(x.path(m, i), m.describe(s))
			}
		})
	}
	x.report.states = len(x.links)
}

// add adds a state, unless it is known, and returns its number.
func (x *search[S]) add(st *S, l link) (id int32, known bool) {
	key, id, known := x.find(st)
	if known {
		return id, true
	}
	id = int32(len(x.links))
	x.seen[key] = id
	x.links = append(x.links, l)
	if id%piece == 0 {
		x.queue = append(x.queue, make([]S, 0, piece))
	}
	last := &x.queue[len(x.queue)-1]
	*last = append(*last, *st)
	return id, false
}

const piece = 1 << 12

func (x *search[S]) state(id int32) *S { return &x.queue[id/piece][id%piece] }

// path returns the steps of the shortest way to a state.
func (x *search[S]) path(m model[S], id int32) (steps []string) {
	var way []int32
	for ; id >= 0; id = x.links[id].parent {
		way = append(way, id)
	}
	slices.Reverse(way)
	for i, id := range way[:len(way)-1] {
		n, want := int32(0), x.links[way[i+1]].nth
		m.steps(*x.state(id), func(s move, _ S) {
			if n == want {
				steps = append(steps, m.describe(s))
			}
			n++
		})
	}
	return steps
}

// stuck returns a state from which no steps that help lead to one that is good, or -1.
func (x *search[S]) stuck(good func(*S) bool) int32 {
	leads := make([]bool, len(x.links))
	var queue []int32
	for id := range int32(len(x.links)) {
		if good(x.state(id)) {
			leads[id], queue = true, append(queue, id)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for e := x.links[queue[0]].into; e > 0; e = x.edges[e].next {
			if from := x.edges[e].from; !leads[from] {
				leads[from], queue = true, append(queue, from)
			}
		}
	}
	return int32(slices.Index(leads, false))
}
