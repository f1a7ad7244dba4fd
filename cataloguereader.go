package azblob

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/catalogue"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Listings read a closed day by its catalogue. The first read has the directory, and all of most catalogues.
// Blocks that lie behind it take another one. Everything is read of one version of the catalogue, so the listing
// of the day takes effect at the first read. If the catalogue goes away in between, or is damaged, the rest of
// the day is listed.

const (
	// firstRead is the size of the first read of a catalogue.
	firstRead = 512 << 10
	// maxRead bounds a read of blocks. It is about 200,000 plans.
	maxRead = 8 << 20
	// maxGap is how many bytes that nobody needs may lie between two blocks that are read together. They take
	// less time than a request.
	maxGap = 1 << 20
)

// mayBeCatalogued reports whether it is worthwhile to ask for the catalogue of a day. The hint and the local clock
// decide what to ask for, and not what is found.
func (s *store) mayBeCatalogued(d day, now time.Time) bool {
	return d.marked && d.hinted && closed(d.date, now) && !s.uncatalogued.has(d.container, now)
}

// hasCatalogue asks whether a day has a catalogue. Then all of its plans are final.
func (s *store) hasCatalogue(ctx context.Context, d day) (bool, error) {
	ref := catalogueOf(d.container)
	p, err := s.client.Head(ctx, ref)
	if err != nil && !isUnusable(err) {
		return false, blobError("look for catalogue", ref, err)
	}
	built := err == nil && isBuiltOf(d.container, p)
	if !built {
		s.uncatalogued.remember(d.container, time.Now())
	}
	return built, nil
}

// isUnusable reports whether err, of reading a catalogue, is a reason to list the day.
func isUnusable(err error) bool { return !blob.Is(err, blob.Ended, blob.Unreachable) }

// unlessCatalogued reads the markers of days. Those that have a catalogue have none that matters, and a HEAD
// costs a twelfth of a listing.
type unlessCatalogued struct {
	dayDirectory
	now time.Time
}

func (m unlessCatalogued) Read(ctx context.Context, s listing.Span, most int) (listing.Page[candidate], error) {
	if m.mayBeCatalogued(m.day, m.now) {
		if closed, err := m.hasCatalogue(ctx, m.day); closed || err != nil {
			return listing.Page[candidate]{Rest: s.To}, err
		}
	}
	return m.dayDirectory.Read(ctx, s, most)
}

// history reads the closed days of a search by their catalogues.
type history struct {
	*store
	filters storage.Filters
	results bool // whether the results are wanted, or only the number of plans
}

// catalogued is the part of a day that a search wants of its catalogue.
type catalogued struct {
	history
	window
	query catalogue.Query
	etag  string
	dir   *catalogue.Directory
	held  [][]byte          // the content of the first blocks of left
	left  []catalogue.Match // the blocks that are not decoded
	turns int               // how often blocks were read
	merge catalogue.Merge
}

// query returns what a directory can tell about the filters.
func (h history) query(w window) catalogue.Query {
	f := h.filters
	return catalogue.Query{
		From: w.From, To: w.To, Statuses: f.ByStatus, Groups: f.ByGroupIDs, EndedAfter: f.EndedAfter, EndedBefore: f.EndedBefore,
	}
}

// opener returns a function that opens the catalogue of a day, or nil if it is not worthwhile to ask for one.
func (h history) opener(w window, now time.Time) func(context.Context) (listing.Catalogue[candidate], error) {
	if !h.mayBeCatalogued(w.day, now) {
		return nil
	}
	return func(ctx context.Context) (listing.Catalogue[candidate], error) { return h.open(ctx, w) }
}

// open reads the directory of a day's catalogue, and the first of the blocks that are wanted. It returns nil if
// the day has to be listed.
func (h history) open(ctx context.Context, w window) (listing.Catalogue[candidate], error) {
	c := &catalogued{history: h, window: w, query: h.query(w)}
	err := c.start(ctx)
	if err == nil {
		return c, nil
	}
	if !isUnusable(err) {
		return nil, err
	}
	h.listInstead(ctx, w.container, err)
	return nil, nil
}

// listInstead notes that a day has to be listed, because of an error of reading its catalogue.
func (s *store) listInstead(ctx context.Context, container string, err error) {
	s.uncatalogued.remember(container, time.Now())
	if damage := (*catalogue.Damage)(nil); errors.As(err, &damage) && s.observer != nil {
		ref := catalogueOf(container)
		notify(ctx, s.observer.Damage, DamageEvent{operationOf(ctx), ref.Container + "/" + ref.Name, err})
	}
}

// errNotBuilt is the error of a placeholder.
var errNotBuilt = errors.New("the catalogue is not built")

func (c *catalogued) start(ctx context.Context) error {
	ref := catalogueOf(c.container)
	head, p, err := c.client.GetRange(ctx, ref, 0, firstRead, "")
	switch {
	case err != nil:
		return blobError("read catalogue", ref, err)
	case !isBuilt(p):
		return errNotBuilt
	}
	c.etag = p.ETag
	size, err := catalogue.DirectorySize(head)
	if err == nil && size > len(head) {
		var rest []byte
		rest, err = c.get(ctx, len(head), size-len(head))
		head = slices.Concat(head, rest)
	}
	if err != nil {
		return err
	}
	dir, err := catalogue.ReadDirectory(head, c.container)
	if err != nil {
		return err
	}
	c.dir = dir
	postings, err := c.postings(ctx, dir, head)
	if err != nil {
		return err
	}
	c.left = dir.Matches(c.query, postings)
	c.hold(head)
	return c.readSoon(ctx)
}

// get reads a part of the catalogue.
func (c *catalogued) get(ctx context.Context, offset, size int) ([]byte, error) {
	ref := catalogueOf(c.container)
	data, _, err := c.client.GetRange(ctx, ref, offset, size, c.etag)
	return data, blobError("read catalogue", ref, err)
}

// section returns a section of the catalogue, of which head is the start.
func (c *catalogued) section(ctx context.Context, s catalogue.Section, head []byte) ([]byte, error) {
	if s.End() <= len(head) {
		return head[s.Offset:s.End()], nil
	}
	return c.get(ctx, s.Offset, s.Length)
}

// postings reads the postings of the groups that are wanted.
func (c *catalogued) postings(ctx context.Context, dir *catalogue.Directory, head []byte) ([]catalogue.Posting, error) {
	pages := dir.PagesOf(c.query.Groups)
	found := make([][]catalogue.Posting, len(pages))
	err := c.parallel(len(pages), func(i int) error {
		data, err := c.section(ctx, pages[i].Section, head)
		if err == nil {
			found[i], err = dir.Postings(pages[i], data, c.query.Groups)
		}
		return err
	})
	return slices.Concat(found...), err
}

// hold keeps the blocks that the first read has.
func (c *catalogued) hold(head []byte) {
	if c.counts() {
		return
	}
	for _, m := range c.left {
		if m.End() > len(head) {
			return
		}
		c.held = append(c.held, slices.Clone(head[m.Offset:m.End()])) // the rest of the head is garbage
	}
}

// readSoon reads the blocks behind the first read if they are few. A year of days would otherwise wait for them
// one after the other.
func (c *catalogued) readSoon(ctx context.Context) error {
	if c.counts() {
		return nil
	}
	behind := 0
	for _, m := range c.left[len(c.held):] {
		behind += m.Length
	}
	if behind == 0 || behind > firstRead && (c.filters.Limit == 0 || len(c.held) > 0) {
		return nil
	}
	return c.read(ctx)
}

// read reads the next blocks, at most maxRead bytes. A search with a limit begins with one block and doubles
// the number each time.
func (c *catalogued) read(ctx context.Context) error {
	most := len(c.left)
	if c.filters.Limit > 0 {
		most = 1 << min(c.turns, 20)
	}
	c.turns++
	next := c.left[len(c.held):]
	n, size := 0, 0
	for n < min(most, len(next)) && (n == 0 || size+next[n].Length <= maxRead) {
		size += next[n].Length
		n++
	}
	data, err := c.readBlocks(ctx, next[:n])
	c.held = append(c.held, data...)
	return err
}

// readBlocks reads some blocks, neighbors with one request.
func (c *catalogued) readBlocks(ctx context.Context, blocks []catalogue.Match) ([][]byte, error) {
	var runs [][]catalogue.Match
	for begin, i := 0, 1; i <= len(blocks); i++ {
		if i == len(blocks) || blocks[i].Offset-blocks[i-1].End() > maxGap || blocks[i].End()-blocks[begin].Offset > 2*maxRead {
			runs = append(runs, blocks[begin:i])
			begin = i
		}
	}
	read := make([][][]byte, len(runs))
	err := c.parallel(len(runs), func(i int) error {
		first := runs[i][0].Offset
		data, err := c.get(ctx, first, runs[i][len(runs[i])-1].End()-first)
		if err != nil {
			return err
		}
		for _, m := range runs[i] {
			read[i] = append(read[i], data[min(m.Offset-first, len(data)):min(m.End()-first, len(data))])
		}
		return nil
	})
	return slices.Concat(read...), err
}

// counts reports whether the search is a Count that needs no plan by itself.
func (c *catalogued) counts() bool {
	return !c.results && len(c.filters.NamePrefix)+len(c.filters.NameContains) == 0
}

// Blobs implements [listing.Catalogue].
func (c *catalogued) Blobs() int { return 2 * int(c.dir.Len()) }

// All yields the plans that the filters choose, newest first.
func (c *catalogued) All(ctx context.Context) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		if c.counts() {
			c.numbers(ctx, yield)
			return
		}
		for len(c.left) > 0 {
			if len(c.held) == 0 {
				if err := c.read(ctx); err != nil {
					yield(candidate{}, err)
					return
				}
			}
			chosen, err := c.chosen(c.left[0], c.held[0])
			if err != nil {
				yield(candidate{}, err)
				return
			}
			c.left, c.held = c.left[1:], c.held[1:]
			c.merge.Add(chosen)
			for plan := range c.merge.Newer(c.newest()) {
				p := candidate{planBlobs: planBlobs{keys: keys{c.container, plan.ID}, marked: true}}
				p.matchCatalogued(c.filters, plan)
				p.result = listResult(plan)
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}

// newest returns the newest plan of the next block. All newer plans have been yielded.
func (c *catalogued) newest() uuid.UUID {
	if len(c.left) == 0 {
		return uuid.Nil
	}
	return c.left[0].Newest
}

// Rest returns the part of the day that was not yielded, if err says that the catalogue can't be read to its end.
func (c *catalogued) Rest(ctx context.Context, err error) (listing.Span, bool) {
	if !isUnusable(err) {
		return listing.Span{}, false
	}
	c.listInstead(ctx, c.container, err)
	rest := c.Span
	if len(c.left) > 0 && !c.counts() {
		if to := listing.Next(c.newest()); listing.Less(to, rest.To) {
			rest.To = to
		}
	}
	return rest, true
}

// chosen decodes a block and returns the plans that the filters choose.
func (c *catalogued) chosen(m catalogue.Match, data []byte) (plans []catalogue.Plan, err error) {
	for plan, err := range c.dir.Plans(m.Block, data) {
		if err != nil {
			return nil, err
		}
		var p candidate
		if !listing.Less(plan.ID, c.From) && listing.Less(plan.ID, c.To) && p.matchCatalogued(c.filters, plan) {
			plan.Name, plan.Descr = strings.Clone(plan.Name), strings.Clone(plan.Descr) // of the block's memory
			plans = append(plans, plan)
		}
	}
	return plans, nil
}

// numbers yields a candidate for each status, which stands for the plans of that status that the filters choose.
func (c *catalogued) numbers(ctx context.Context, yield func(candidate, error) bool) {
	n, err := c.count(ctx)
	if err != nil {
		yield(candidate{}, err)
		return
	}
	for _, status := range slices.Sorted(maps.Keys(n)) {
		p := candidate{planBlobs: planBlobs{keys: keys{c.container, c.From}}, weight: n[status]}
		p.result.State.Status = status
		if n[status] > 0 && !yield(p, nil) {
			return
		}
	}
}

// count returns the numbers of plans that the filters choose. It reads the blocks of which the directory can't
// tell.
func (c *catalogued) count(ctx context.Context) (map[workflow.Status]int64, error) {
	n := map[workflow.Status]int64{}
	var unsure []catalogue.Match
	for _, m := range c.left {
		if m.Exact {
			n[m.Status] += int64(m.Wanted)
		} else {
			unsure = append(unsure, m)
		}
	}
	for len(unsure) > 0 {
		some := unsure[:min(len(unsure), 16)] // about two megabytes
		data, err := c.readBlocks(ctx, some)
		if err != nil {
			return nil, err
		}
		for i, m := range some {
			chosen, err := c.chosen(m, data[i])
			if err != nil {
				return nil, err
			}
			n[m.Status] += int64(len(chosen))
		}
		unsure = unsure[len(some):]
	}
	return n, nil
}

// openCatalogue opens the catalogue of a day for all of its plans.
func (s *store) openCatalogue(ctx context.Context, whole window) (*catalogued, error) {
	c := &catalogued{history: history{store: s, results: true}, window: whole, query: catalogue.Query{To: uuid.Max}}
	return c, c.start(ctx)
}

// compareCatalogue compares the catalogue of a day with two listings, and says how it differs from both. As long as the
// catalogue is the same version, what it lists is, too.
func (s *store) compareCatalogue(ctx context.Context, d day) (difference, etag string, err error) {
	whole, _ := stretch(d, storage.Filters{})
	for _, size := range pageSizes() {
		c, err := s.openCatalogue(ctx, whole)
		if err != nil || etag != "" && c.etag != etag {
			return "", etag, err // built anew meanwhile
		}
		etag = c.etag
		listed, stop := iter.Pull2(newest(ctx, []window{whole}, s.plans(storage.Filters{}).of, nil, s.pages(size)))
		difference, err = compareListings(c.All(ctx), listed)
		stop()
		if difference == "" || err != nil {
			return "", etag, err
		}
	}
	return difference, etag, nil
}

// compareListings compares the plans of a day in its catalogue with those that a listing yields, and says how they
// differ.
func compareListings(catalogued iter.Seq2[candidate, error], listed func() (candidate, error, bool)) (difference string, err error) {
	for has, err := range catalogued {
		if err != nil {
			return "", err
		}
		other, err, more := listed()
		switch {
		case err != nil:
			return "", err
		case !more:
			return fmt.Sprintf("it has plan %s, which is not listed", has.keys.plan), nil
		case has.keys.plan != other.keys.plan:
			return fmt.Sprintf("it has plan %s where plan %s is listed", has.keys.plan, other.keys.plan), nil
		case other.err != nil:
			return fmt.Sprintf("it has plan %s, of which the listing says: %v", has.keys.plan, other.err), nil
		case !driver.SameListed(has.result, other.result) || has.truncated != other.truncated:
			return fmt.Sprintf("its fields of plan %s are not those that are listed", has.keys.plan), nil
		}
	}
	other, err, more := listed()
	if more && err == nil {
		return fmt.Sprintf("it lacks plan %s, which is listed", other.keys.plan), nil
	}
	return "", err
}

// inUTC returns a result with its times in UTC.
func inUTC(r storage.ListResult) storage.ListResult {
	r.SubmitTime, r.State.Start, r.State.End = r.SubmitTime.UTC(), r.State.Start.UTC(), r.State.End.UTC()
	return r
}

// The states of a catalogue's blob, in its metadata.
const (
	statePlaceholder = "placeholder" // it is being built, or its builder died
	stateBuilt       = "built"
)

// isBuilt reports by its metadata whether a blob is a catalogue. One of an older schema counts as a placeholder.
func isBuilt(p blob.Properties) bool {
	schema, err := strconv.Atoi(p.Metadata[metaSchema])
	return p.Metadata[metaState] == stateBuilt && err == nil && schema >= catalogue.Schema
}

// isBuiltOf is isBuilt for the catalogue of a container. A copy of another day's counts as a placeholder, too.
func isBuiltOf(container string, p blob.Properties) bool {
	return isBuilt(p) && p.Metadata[metaContainer] == container
}

// matchCatalogued is match for a plan in a catalogue.
func (p *candidate) matchCatalogued(f storage.Filters, c catalogue.Plan) bool {
	var cut []string
	if c.NameCut {
		cut = append(cut, metaName)
	}
	if c.DescrCut {
		cut = append(cut, metaDescr)
	}
	return p.match(f, c.ListResult, cut)
}

// listResult returns what a listing returns of a plan in a catalogue.
func listResult(c catalogue.Plan) storage.ListResult {
	r := c.ListResult
	r.State.ETag = driver.Version(c.State.ETag, &workflow.Plan{State: r.State})
	return r
}

// cataloguePlan returns what a catalogue has of a plan, from its entry in a listing.
func (f format) cataloguePlan(id uuid.UUID, entry blob.Item) (catalogue.Plan, error) {
	r, cut, err := f.parseMetadata(entry.Metadata, id, typeEntry)
	r.State.ETag = entry.ETag
	return catalogue.Plan{ListResult: r, NameCut: slices.Contains(cut, metaName), DescrCut: slices.Contains(cut, metaDescr)}, err
}
