package main

import (
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/workflow"
)

// budget is the most that an operation may cost.
type budget struct{ requests, trips int }

// receivedBudgets holds the most that rows may receive, in bytes of bodies. They are a hundredth to a tenth above what the
// rows receive.
var receivedBudgets = map[string]int64{
	"Read, running, few changed, S":         1700,
	"Read, running, few changed, M":         30_000,
	"Read, running, few changed, L":         1_240_000,
	"Read, running, all actions changed, S": 1700,
	"Read, running, all actions changed, M": 53_000,
	"Read, running, all actions changed, L": 1_640_000,
}

// heapBudget is how much the live heap may grow while the largest vault is listed, in bytes.
const heapBudget = 64 << 20

// concurrency is the vault's default for requests in flight.
const concurrency = 256

// pageSize is the most blobs in a page of a listing.
const pageSize = 5000

// listInReads is the price of a page of a listing, in reads.
var listInReads = int(price.Of(azblob.ClassList) / price.Of(azblob.ClassRead))

// subject is what an operation works on.
type subject struct {
	parts map[workflow.Kind]int
	vault shape
	// period is how long a node works.
	period time.Duration
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

// readRunning is the budget for reading a running plan, of which changed actions were updated. The
// sub-objects of a small plan are all read. For a large plan, listings show which sub-objects changed. A kind
// is not listed if reading all of its sub-objects is cheaper.
func readRunning(changed func(actions int) int) func(subject) budget {
	return func(s subject) budget {
		if n := s.n(); n <= 2*listInReads*len(s.parts) {
			return budget{n + 2, 1 + ceil(n, concurrency)}
		}
		fetched := changed(s.parts[workflow.KindAction])
		b := budget{2 + fetched, 2 + ceil(fetched, concurrency)}
		for _, n := range s.parts {
			if n <= listInReads {
				b.requests += n
			} else {
				b.requests += ceil(n, pageSize)
			}
		}
		return b
	}
}

func searchRunning(s subject) budget {
	b := recovery(s)
	b.requests = min(b.requests, 30)
	return b
}

// recovery is one list of the days, one list of each day's markers, and two requests for each open plan.
func recovery(s subject) budget { return budget{1 + s.vault.days + 2*fill.RunningPlans, 3} }

// lookAtOpen is one list of the days, one list of each day's markers, and for each open plan some HEADs, or for each day
// a list and few HEADs, where the HEADs cost at least as much as 32 blobs. The first of these lists shows that, and one for
// some neighbors.
func lookAtOpen(heads int) func(subject) budget {
	return func(s subject) budget {
		lists, reads := 1+s.vault.days, heads*s.vault.open
		if 2*s.vault.plans <= 32*reads {
			return budget{lists + s.vault.days + 1 + max(30, ceil(reads, 600)), 2 + 3*ceil(s.vault.open, 2500)}
		}
		return budget{lists + 1 + reads, 4 + ceil(reads, concurrency)}
	}
}

// scan reads every entry and object of the vault once, at least four pages at a time, in windows of which a
// tenth may be in vain.
func scan(s subject) budget {
	pages := s.vault.days * ceil(2*s.vault.plans/s.vault.days, pageSize)
	return budget{1 + s.vault.days + ceil(11*pages, 10), 4 + ceil(pages, 4)}
}
