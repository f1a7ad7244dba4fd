package azblob

import (
	"cmp"
	"context"
	"iter"
	"math"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
)

// Searches and Recovery look at each open plan with a HEAD or two. Where open plans are close together, one listing of their
// entries and objects costs less and takes fewer round trips.

const (
	// lookAhead is how many candidates are looked at together: as many as fit on a page.
	lookAhead = blob.MaxPage / 2
	// longestRun is how many HEADs one run may take. Its first page has at least 8 blobs for each.
	longestRun = blob.MaxPage / 8
	// blobsPerHead is how many blobs a page may have in place of one HEAD, which takes about as much processor time. If an
	// earlier page has shown how many to expect, twice as many are worth the money. A search switches from listings to HEADs
	// where fewer than one of blobsPerHead plans is open, since each has two blobs: from 30 requests to 930, and from 40 MB
	// to 5, for 1,000 open plans. docs/scale.md has the figures.
	blobsPerHead = 16
	// spare is how much larger a page may be than expected.
	spare = 1.25
	// sampleBudget is the most pages that the HEADs of a group of runs may be worth, if one run is sampled for all.
	sampleBudget = 12
	// farApart is how many times the average distance two candidates may lie apart to be listed together. Distances of
	// plans that come at random rarely reach it.
	farApart = 8
)

// listNeighbors yields the candidates, newest first. Each of them would take some HEADs. Where a listing costs less, it
// adds the entry and the object to the candidates. It leaves a candidate unchanged if the listing fails or lacks a part of
// the plan: the caller then looks at it by name.
func (s *store) listNeighbors(ctx context.Context, candidates iter.Seq2[candidate, error], heads, limit int, metadataOf func(name string) bool) iter.Seq2[candidate, error] {
	ahead := lookAhead
	if limit > 0 {
		ahead = min(ahead, limit)
	}
	return func(yield func(candidate, error) bool) {
		listed := crowds{store: s, heads: heads, metadataOf: metadataOf}
		for some, err := range batches(candidates, ahead) {
			listed.list(ctx, neighbors(some, heads))
			for _, p := range some {
				if !yield(p, nil) {
					return
				}
			}
			if err != nil && !yield(candidate{}, err) {
				return
			}
		}
	}
}

// batches yields the candidates in groups of n. An error comes with the candidates before it. The groups share memory.
func batches(candidates iter.Seq2[candidate, error], n int) iter.Seq2[[]candidate, error] {
	return func(yield func([]candidate, error) bool) {
		var some []candidate
		for p, err := range candidates {
			if err == nil {
				some = append(some, p)
			}
			if err != nil || len(some) == n {
				if !yield(some, err) {
					return
				}
				some = some[:0]
			}
		}
		yield(some, nil)
	}
}

// neighbors returns the runs of candidates, newest first, for which a listing is worth its price. A run lies in one day
// whose open plans all have markers, has no large gap, and takes at most longestRun HEADs.
func neighbors(candidates []candidate, heads int) (runs []*run) {
	for len(candidates) > 0 {
		n := len(candidates)
		if i := slices.IndexFunc(candidates, func(p candidate) bool { return p.keys.container != candidates[0].keys.container }); i > 0 {
			n = i
		}
		day := candidates[:n]
		candidates = candidates[n:]
		if !day[0].marked {
			continue
		}
		far := farApart * (distance(day[0], day[n-1]) / uint64(n))
		for begin, i := 0, 1; i <= n; i++ {
			if i < n && distance(day[i-1], day[i]) <= far {
				continue
			}
			parts := (heads*(i-begin) + longestRun - 1) / longestRun
			for plans := range slices.Chunk(day[begin:i], (i-begin+parts-1)/parts) {
				if worthListing(heads*len(plans), 1) {
					runs = append(runs, &run{plans: plans, left: plans})
				}
			}
			begin = i
		}
	}
	return runs
}

// distance returns the time between a candidate and an older one.
func distance(newer, older candidate) uint64 {
	return listing.KeyOf(newer.keys.plan) - listing.KeyOf(older.keys.plan)
}

// run is a run of candidates of a day, newest first.
type run struct {
	plans   []candidate
	left    []candidate // the plans that no page has reached
	pages   int         // how many were read
	density float64     // how many blobs there are in a unit of time; 0 if that is unknown
	sample  *run        // whose density holds for this one; optional
}

// day returns the container of the plans.
func (r *run) day() string { return r.plans[0].keys.container }

// span returns the time in which the plans lie that are left.
func (r *run) span() float64 { return 1 + float64(distance(r.left[0], r.left[len(r.left)-1])) }

// page returns how many blobs the next page of the run should have, or 0 if HEADs are cheaper. All pages of a run cost at
// most half as much as its HEADs, which bounds the cost of a wrong estimate.
func (r *run) page(heads int) int {
	reads := heads * len(r.left)
	if !worthListing(reads, 1) || !worthListing(heads*len(r.plans), r.pages+1) {
		return 0
	}
	blobs := blobsPerHead * reads
	if r.density > 0 {
		expected := r.density * r.span()
		if expected > float64(2*blobs) {
			return 0
		}
		blobs = max(blobs/2, int(spare*expected))
	}
	return min(blobs, blob.MaxPage)
}

// crowds lists runs of candidates.
type crowds struct {
	*store
	heads      int // that each candidate would take
	metadataOf func(name string) bool
	density    float64 // of the first run; 0 if it is unknown
}

// list lists the plans of some runs, and adds what it finds. If they lie in several days, it first lists the run whose plans
// lie farthest apart. Its density decides for the others, and the runs above the threshold are listed at once. Days differ,
// so runs below the threshold are sampled: one run per group is listed, and its density decides for the group. What a page
// did not reach may be worth another one by the run's own density.
func (c *crowds) list(ctx context.Context, runs []*run) {
	if n := len(runs); c.density == 0 && n > 0 && runs[0].day() != runs[n-1].day() {
		first := slices.MaxFunc(runs, func(a, b *run) int {
			return cmp.Compare(a.span()/float64(len(a.plans)), b.span()/float64(len(b.plans)))
		})
		c.readPage(ctx, first, first.page(c.heads))
		c.density = first.density
	}
	var sample *run
	reads := 0
	for _, r := range runs {
		if r.pages > 0 {
			continue
		}
		r.density = c.density
		if math.IsInf(c.density, 1) || r.page(c.heads) > 0 {
			continue
		}
		if reads += c.heads * len(r.plans); sample == nil || worthListing(reads, sampleBudget) {
			sample, reads = r, c.heads*len(r.plans)
			r.density = math.SmallestNonzeroFloat64 // a short page will do
		}
		r.sample = sample
	}
	c.readPages(ctx, runs)
	for _, r := range runs {
		if r.pages == 0 && r.sample != nil {
			r.density = r.sample.density
		}
	}
	c.readPages(ctx, runs)
}

// readPages reads the next pages of some runs, about as many at once as fit in memory.
func (c *crowds) readPages(ctx context.Context, runs []*run) {
	blobs, n := 0, 0
	for _, r := range runs {
		if page := r.page(c.heads); page > 0 {
			blobs, n = blobs+page, n+1
		}
	}
	if n == 0 {
		return
	}
	turns := make(chan struct{}, c.pages(blobs/n).Ahead)
	_ = c.parallel(len(runs), func(i int) error {
		if page := runs[i].page(c.heads); page > 0 {
			turns <- struct{}{}
			defer func() { <-turns }()
			c.readPage(ctx, runs[i], page)
		}
		return nil
	})
}

// readPage reads the next page of a run, from the oldest plan that is left.
func (c *crowds) readPage(ctx context.Context, r *run, most int) {
	wanted := make(map[uuid.UUID]*candidate, len(r.left))
	for i := range r.left {
		wanted[r.left[i].keys.plan] = &r.left[i]
	}
	newest, oldest := r.left[0].keys, r.left[len(r.left)-1].keys
	plans := directory{
		store: c.store, day: day{container: r.day(), marked: true}, dir: plansDir, metadataOf: c.metadataOf, needsStart: true,
	}
	got, err := plans.read(ctx, listing.Span{From: oldest.plan, To: listing.Next(newest.plan)}, most)
	found := slices.DeleteFunc(got.Items, func(p candidate) bool { return wanted[p.keys.plan] == nil })
	if err != nil || len(found) == 0 { // the service ignores StartFrom, or the HEADs will show the error
		r.density = math.Inf(1)
		return
	}
	for _, p := range found {
		was := wanted[p.keys.plan]
		was.entry, was.object = p.entry, p.object
	}
	r.pages++
	r.density = float64(got.Blobs) / float64(1+listing.KeyOf(got.Rest)-listing.KeyOf(oldest.plan))
	for n := len(r.left); n > 0 && listing.Less(r.left[n-1].keys.plan, got.Rest); n-- {
		r.left = r.left[:n-1]
	}
}
