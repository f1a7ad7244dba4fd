package protocol

import (
	"hash/maphash"
	"slices"
)

// model is what a search explores: states of type S, and moves of type M that lead from one to the next.
type model[S comparable, M any] interface {
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

// search visits the states of a model, breadth first.
type search[S comparable, M any] struct {
	seen   map[uint64]int32 // by the hash of a state, its number
	links  []link
	queue  [][]S // in pieces, so that it does not move as it grows
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

// link leads from a state to the state from which it was first reached.
type link struct {
	parent int32
	nth    int32 // the number of the step among the parent's
}

// report is the result of a search.
type report struct {
	states, steps int
	violation     string // "" if there is none
	path          []string
}

// visit visits all states that can be reached from first, until a promise is broken.
func (x *search[S, M]) visit(m model[S, M], first S) {
	x.seen = map[uint64]int32{}
	m.tidy(&first)
	x.add(&first, link{-1, 0})
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
			if x.add(to, link{i, nth}) && broken == "" {
				broken = m.check(to)
			}
			if broken != "" {
				x.report.violation = broken
				x.report.path = append(x.path(m, i), m.describe(s))
			}
		})
	}
	x.report.states = len(x.links)
}

// add adds a state and reports whether it is new.
func (x *search[S, M]) add(st *S, l link) bool {
	key, _, known := x.find(st)
	if known {
		return false
	}
	x.seen[key] = int32(len(x.links))
	x.links = append(x.links, l)
	if len(x.links)%piece == 1 {
		x.queue = append(x.queue, make([]S, 0, piece))
	}
	last := &x.queue[len(x.queue)-1]
	*last = append(*last, *st)
	return true
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

// stuck returns a state from which no steps that help lead to one that is good, or -1.
func (x *search[S, M]) stuck(m model[S, M], helps func(M) bool, good func(*S) bool) int32 {
	type edge struct{ from, next int32 }
	var (
		edges = make([]edge, 1)
		into  = make([]int32, len(x.links)) // the last edge to a state; 0 is none
		leads = make([]bool, len(x.links))
		queue []int32
	)
	to := new(S)
	for id := range int32(len(x.links)) {
		if good(x.state(id)) {
			leads[id], queue = true, append(queue, id)
			continue
		}
		m.steps(*x.state(id), func(s M, next S) {
			if helps(s) {
				*to = next
				m.tidy(to)
				_, t, _ := x.find(to)
				edges = append(edges, edge{id, into[t]})
				into[t] = int32(len(edges) - 1)
			}
		})
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for e := into[queue[0]]; e > 0; e = edges[e].next {
			if from := edges[e].from; !leads[from] {
				leads[from], queue = true, append(queue, from)
			}
		}
	}
	return int32(slices.Index(leads, false))
}
