package protocol

import (
	"fmt"
	"hash/maphash"
	"slices"
)

// model is what a search explores: states of type S, and moves of type M that lead from one to the next.
type model[S promising, M any] interface {
	// first returns the state in which the situation begins.
	first() S
	// steps calls yield for everything that can happen in a state, always in the same order.
	steps(from S, yield func(M, S))
	// tidy makes states equal that differ only in what no longer matters.
	tidy(*S)
	// regress returns which promise a step breaks, or "".
	regress(from, to *S) string
	// check returns which promise is broken in a state, or "".
	check(*S) string
	describe(M) string
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
type search[S promising, M any] struct {
	seen   map[uint64]int32 // by the hash of a state, its number
	links  []link
	queue  [][]S // in pieces, so that it does not move as it grows
	helps  func(M) bool
	edges  []edge // of the steps that help
	report report
}

var seed = maphash.MakeSeed()

func hash[S comparable](of S) uint64 { return maphash.Comparable(seed, of) }

// find returns the hash of a state, and its number if it is known.
func (x *search[S, M]) find(st *S) (key uint64, id int32, known bool) {
	key = hash(*st)
	id, known = x.seen[key]
	if known && *x.state(id) != *st {
		panic("two states have the same hash; another run has another seed")
	}
	return key, id, known
}

func (*search[S, M]) tidy(*S)                 {}
func (*search[S, M]) regress(_, to *S) string { return (*to).promise().String() }
func (*search[S, M]) check(*S) string         { return "" }
func (*search[S, M]) describe(step M) string  { return fmt.Sprint(step) }

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

// visit visits all states that can be reached, until a promise is broken.
func (x *search[S, M]) visit(m model[S, M]) report {
	x.seen = map[uint64]int32{}
	first := m.first()
	m.tidy(&first)
	x.add(&first, link{parent: -1})
	to := new(S) // one for all steps
	for i := int32(0); int(i) < len(x.links) && x.report.violation == ""; i++ {
		from := x.state(i)
		n := int32(0)
		m.steps(*from, func(s M, next S) {
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
			if x.helps != nil && x.helps(s) {
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
	return x.report
}

// add adds a state, unless it is known, and returns its number.
func (x *search[S, M]) add(st *S, l link) (id int32, known bool) {
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

func (x *search[S, M]) state(id int32) *S { return &x.queue[id/piece][id%piece] }

// path returns the steps of the shortest way to a state.
func (x *search[S, M]) path(m model[S, M], id int32) (steps []string) {
	var way []int32
	for ; id >= 0; id = x.links[id].parent {
		way = append(way, id)
	}
	slices.Reverse(way)
	for i, id := range way[:len(way)-1] {
		n, want := int32(0), x.links[way[i+1]].nth
		m.steps(*x.state(id), func(s M, _ S) {
			if n == want {
				steps = append(steps, m.describe(s))
			}
			n++
		})
	}
	return steps
}

// reaches does the same, and then looks for a state from which no steps that help lead to one that is good. The promise
// is that there is none.
func (x *search[S, M]) reaches(m model[S, M], promise breach, helps func(M) bool, good func(*S) bool) report {
	x.helps, x.edges = helps, make([]edge, 1)
	if x.visit(m); x.report.violation != "" {
		return x.report
	}
	if id := x.stuck(good); id >= 0 {
		x.report.violation, x.report.path = promise.String(), x.path(m, id)
	}
	return x.report
}

// stuck returns a state from which no steps that help lead to one that is good, or -1.
func (x *search[S, M]) stuck(good func(*S) bool) int32 {
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
