package azblob

import (
	"bytes"
	"context"
	"crypto/sha256"
	"iter"
	"slices"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage/driver"
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

// Revisions returns, for each of the plans, a text that changes with each update of one of its sub-objects. It is not
// the version of anything, and does not change with updates of the plan itself: listings show those. A plan without
// blobs has a text, too.
//
// It takes listings alone, at most one for each plan and kind of sub-object, and fewer where plans are neighbors: a
// page shows 5,000 sub-objects. An update that was stored before the call is seen.
//
// Errors: [storage.ErrInvalid] for an ID that is not a UUIDv7.
func (v *Vault) Revisions(ctx context.Context, plans []uuid.UUID) (revisions map[uuid.UUID]string, err error) {
	err = v.call(ctx, "Revisions", uuid.Nil, func(ctx context.Context) error {
		days := map[string][]uuid.UUID{}
		for _, id := range slices.SortedFunc(slices.Values(plans), driver.NewestFirst) {
			if driver.CheckID(id) != nil {
				return driver.Invalid("Plans", "%s is not the ID of a plan", id)
			}
			k := v.prefix.plan(id)
			days[k.container] = append(days[k.container], id)
		}
		var sweeps []*sweep
		for container, ids := range days {
			slices.Reverse(ids)
			for _, k := range kinds {
				sweeps = append(sweeps, &sweep{container: container, kind: k, plans: ids, sums: map[uuid.UUID][sha256.Size]byte{}})
			}
		}
		if err := v.parallel(len(sweeps), func(i int) error { return v.sweepParts(ctx, sweeps[i]) }); err != nil {
			return err
		}
		revisions = make(map[uuid.UUID]string, len(plans))
		for _, s := range sweeps {
			for _, id := range s.plans {
				sum := s.sums[id]
				revisions[id] += string(sum[:8])
			}
		}
		return nil
	})
	return revisions, err
}

// sweep is a listing of the sub-objects that some plans of a day have of a kind.
type sweep struct {
	container string
	kind      kind
	plans     []uuid.UUID // oldest first
	sums      map[uuid.UUID][sha256.Size]byte
}

// add adds a sub-object to the sum of its plan.
func (s *sweep) add(plan uuid.UUID, item blob.Item) {
	sum := s.sums[plan]
	s.sums[plan] = sha256.Sum256(slices.Concat(sum[:], []byte(item.Name), []byte{0}, []byte(item.ETag)))
}

// sweepParts lists sub-objects from the first of the plans to the last. Where the plans lie apart, it leaves out what is
// between them.
func (s *store) sweepParts(ctx context.Context, w *sweep) error {
	for left := w.plans; len(left) > 0; {
		opts := blob.ListOptions{Prefix: w.kind.dir, StartFrom: w.kind.dir + left[0].String()}
		if len(left) == 1 {
			opts = blob.ListOptions{Prefix: opts.StartFrom + "/"}
		}
		next, err := s.sweepOn(ctx, w, left, opts)
		if err != nil {
			return err
		}
		left = next
	}
	return nil
}

// sweepOn lists until what follows is not wanted, and returns the plans that are left.
func (s *store) sweepOn(ctx context.Context, w *sweep, left []uuid.UUID, opts blob.ListOptions) ([]uuid.UUID, error) {
	for page, err := range s.client.List(ctx, w.container, opts) {
		if blob.Is(err, blob.AbsentContainer) {
			return nil, nil
		}
		if err != nil {
			return nil, blobError("list sub-objects", blob.Ref{Container: w.container, Name: opts.Prefix}, err)
		}
		var last uuid.UUID
		for _, item := range page.Items {
			n, ok := parseName(item.Name)
			if !ok || item.Name < opts.StartFrom { // a stray, or the service ignores where to begin
				continue
			}
			for last = n.plan; len(left) > 0 && bytes.Compare(left[0][:], last[:]) < 0; left = left[1:] {
			}
			if len(left) > 0 && left[0] == last {
				w.add(last, item)
			}
		}
		if len(left) == 0 || last != uuid.Nil && left[0] != last && page.More {
			return left, nil
		}
	}
	return nil, nil
}
