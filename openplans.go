package azblob

import (
	"context"
	"iter"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
)

// Markers lead to open plans, and searches and Recovery look at each of these with a HEAD or two. Where open
// plans are close together, one listing of their entries and objects costs less and takes fewer round trips.

const (
	// lookAhead is how many candidates are looked at together: as many as a page may show.
	lookAhead = blob.MaxPage / 2
	// blobsPerHead is how many blobs a listing may read in place of one HEAD. It takes about as much time to
	// receive and decode them.
	blobsPerHead = 8
	// farApart is how many times the average distance lies between two candidates that no listing should
	// cover together. Distances of plans that come at random rarely reach it.
	farApart = 8
)

// listNeighbors yields the candidates, newest first. Each of them would take some HEADs. Where a listing costs less, it
// adds the entry and the object to the candidates. It leaves a plan as it is if the listing fails or does not show
// the whole plan: the caller looks at it by name.
func (s *store) listNeighbors(ctx context.Context, candidates iter.Seq2[candidate, error], heads, limit int, metadataOf func(name string) bool) iter.Seq2[candidate, error] {
	ahead := lookAhead
	if limit > 0 {
		ahead = min(ahead, limit)
	}
	return func(yield func(candidate, error) bool) {
		var some []candidate
		flush := func() bool {
			s.listRuns(ctx, neighbors(some, heads), heads, metadataOf)
			for _, p := range some {
				if !yield(p, nil) {
					return false
				}
			}
			some = some[:0]
			return true
		}
		for p, err := range candidates {
			if err != nil {
				if !flush() || !yield(p, err) {
					return
				}
				continue
			}
			if some = append(some, p); len(some) == ahead && !flush() {
				return
			}
		}
		flush()
	}
}

// neighbors returns the runs of candidates, newest first, for which a listing is worth its price. A run lies
// in one day whose open plans all have markers, and has no gap in which far more other plans may lie. It is so
// short that its listing may read blobsPerHead blobs for each HEAD, and still be one page.
func neighbors(candidates []candidate, heads int) (runs [][]candidate) {
	const longest = blob.MaxPage / blobsPerHead // HEADs
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
			parts := (heads*(i-begin) + longest - 1) / longest
			for run := range slices.Chunk(day[begin:i], (i-begin+parts-1)/parts) {
				if worthListing(heads*len(run), 1) {
					runs = append(runs, run)
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

// listRuns lists the plans of some runs, as many at once as fit in memory.
func (s *store) listRuns(ctx context.Context, runs [][]candidate, heads int, metadataOf func(name string) bool) {
	page := 1
	for _, run := range runs {
		page = max(page, blobsPerHead*heads*len(run))
	}
	turns := make(chan struct{}, s.pages(page).Ahead)
	_ = s.parallel(len(runs), func(i int) error {
		turns <- struct{}{}
		defer func() { <-turns }()
		s.listRun(ctx, runs[i], blobsPerHead*heads*len(runs[i]), metadataOf)
		return nil
	})
}

// listRun lists the plans of a run, oldest first, until a page is full, and adds what it finds.
func (s *store) listRun(ctx context.Context, run []candidate, page int, metadataOf func(name string) bool) {
	wanted := make(map[uuid.UUID]*candidate, len(run))
	for i := range run {
		wanted[run[i].keys.plan] = &run[i]
	}
	newest, oldest := run[0].keys, run[len(run)-1].keys
	plans := directory{store: s, dir: plansDir, metadataOf: metadataOf, needsStart: true, take: func(p *candidate) bool {
		return wanted[p.keys.plan] != nil
	}}
	d := dayDirectory{plans, day{container: newest.container, marked: true}}
	got, err := d.read(ctx, listing.Span{From: oldest.plan, To: listing.Next(newest.plan)}, page)
	if err != nil {
		return // the HEADs that follow have the error, or succeed
	}
	for _, p := range got.Items {
		was := wanted[p.keys.plan]
		was.entry, was.object = p.entry, p.object
	}
}
