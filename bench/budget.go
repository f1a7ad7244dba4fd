package main

import (
	"fmt"

	"github.com/planvault/azblob/workflow"
)

// budget is what an operation may spend.
type budget struct {
	Requests   int `json:"requests"`
	RoundTrips int `json:"roundTrips"`
}

// heapBudget is how much more memory may be live while the largest vault is listed.
const heapBudget = 64 << 20

// concurrency is the vault's default.
const concurrency = 64

// pageSize is the most that a page of a listing holds.
const pageSize = 5000

// listInReads is how many reads cost as much as a page of a listing.
var listInReads = int(prices[enumerate] / prices[read])

// subject is what a budget depends on.
type subject struct {
	parts map[workflow.Kind]int
	vault shape
}

// n is the number of sub-objects.
func (s subject) n() (n int) {
	for _, k := range s.parts {
		n += k
	}
	return n
}

func ceil(a, b int) int { return (a + b - 1) / b }

func fixed(requests, trips int) func(subject) budget {
	return func(subject) budget { return budget{requests, trips} }
}

// readRunning is for a plan of which so many actions changed. A plan of few sub-objects is read in one fan-out; of one of many,
// the kinds that are listed tell what changed. A kind of so few that the list would cost more is read as it is.
func readRunning(changed func(actions int) int) func(subject) budget {
	return func(s subject) budget {
		if n := s.n(); n <= 2*listInReads*len(s.parts) {
			return budget{n + 2, 1 + ceil(n, concurrency)}
		}
		fetched := changed(s.parts[workflow.KindAction])
		b := budget{2 + fetched, 2 + ceil(fetched, concurrency)}
		for _, n := range s.parts {
			if n <= listInReads {
				b.Requests += n
			} else {
				b.Requests += ceil(n, pageSize)
			}
		}
		return b
	}
}

func searchRunning(s subject) budget {
	b := recovery(s)
	b.Requests = min(b.Requests, 30)
	return b
}

// recovery is one list of the days, one of each day's markers, and two looks at each open plan.
func recovery(s subject) budget { return budget{1 + s.vault.days + 2*runningPlans, 3} }

// scan reads every entry and object of the vault once, at least four pages at a time, in windows of which a tenth may be in
// vain.
func scan(s subject) budget {
	pages := s.vault.days * ceil(2*s.vault.plans/s.vault.days, pageSize)
	return budget{1 + s.vault.days + ceil(11*pages, 10), 4 + ceil(pages, 4)}
}

// judge notes where a result is over its budget.
func (r *result) judge() {
	check := func(what string, is, budget int) {
		if is > budget {
			r.Over = append(r.Over, fmt.Sprintf("%d %s, %d are the budget", is, what, budget))
		}
	}
	check("requests", r.Total, r.Budget.Requests)
	if r.RoundTrips != nil {
		check("round trips", *r.RoundTrips, r.Budget.RoundTrips)
	}
	if r.PeakHeap != nil {
		check("bytes of heap", int(*r.PeakHeap), heapBudget)
	}
}
