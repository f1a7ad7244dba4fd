package azblob

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/catalogue"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Listings read a past day by one version of its catalogue, so the listing takes effect at the first read. If the catalogue
// is removed meanwhile, or is damaged, the rest of the day is listed.

// mayBeCatalogued reports whether to look for the catalogue of a day. The hint and the local clock decide only about cost.
func (s *store) mayBeCatalogued(d day, now time.Time) bool {
	return d.marked && d.hinted && isPast(d.date, now) && !s.uncatalogued.has(d.container, now)
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

// catalogued is the part of a day that a search wants of its catalogue. It is the [catalogue.Source] of its reader.
type catalogued struct {
	search
	window
	etag   string // of the version that is read; empty before the first read
	reader *catalogue.Reader
}

// Open implements [listing.Catalogue].
func (c *catalogued) Open(ctx context.Context) (ok bool, err error) {
	err = c.open(ctx)
	if err == nil || !isUnusable(err) {
		return err == nil, err
	}
	c.listInstead(ctx, c.container, err)
	return false, nil
}

// open opens the catalogue of the day.
func (c *catalogued) open(ctx context.Context) (err error) {
	query, whole := queryOf(c.window, c.f)
	c.reader, err = catalogue.Open(ctx, c, c.container, catalogue.Search{
		Query:   query,
		Chosen:  func(plan catalogue.Plan) bool { return new(candidate).matchCatalogued(c.f, plan) },
		Limit:   c.f.Limit,
		Numbers: !c.results && whole,
	})
	return err
}

// queryOf returns the part of the filters that the directory of a catalogue can decide, and whether that is all of them.
func queryOf(w window, f storage.Filters) (q catalogue.Query, whole bool) {
	q = catalogue.Query{
		From: w.From, To: w.To, Statuses: f.ByStatus, Groups: f.ByGroupIDs, EndedAfter: f.EndedAfter, EndedBefore: f.EndedBefore,
	}
	f.ByStatus, f.ByGroupIDs, f.EndedAfter, f.EndedBefore = nil, nil, time.Time{}, time.Time{}
	return q, wantsAll(f)
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

// Get implements [catalogue.Source].
func (c *catalogued) Get(ctx context.Context, offset, size int) ([]byte, error) {
	ref := catalogueOf(c.container)
	data, p, err := c.client.GetRange(ctx, ref, offset, size, c.etag)
	switch {
	case err != nil:
		return nil, blobError("read catalogue", ref, err)
	case c.etag != "":
	case !isBuilt(p):
		return nil, errNotBuilt
	default:
		c.etag = p.ETag
	}
	return data, nil
}

// Parallel implements [catalogue.Source].
func (c *catalogued) Parallel(n int, do func(i int) error) error { return c.parallel(n, do) }

// Blobs implements [listing.Catalogue].
func (c *catalogued) Blobs() int { return 2 * int(c.reader.Len()) }

// All yields the plans that the filters choose, newest first.
func (c *catalogued) All(ctx context.Context) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		if c.reader.Numbers {
			c.numbers(ctx, yield)
			return
		}
		for plan, err := range c.reader.Plans(ctx) {
			if err != nil {
				yield(candidate{}, err)
				return
			}
			p := candidate{planBlobs: planBlobs{keys: keys{c.container, plan.ID}, marked: true}}
			p.matchCatalogued(c.f, plan)
			p.result = listResult(plan)
			if !yield(p, nil) {
				return
			}
		}
	}
}

// Rest implements [listing.Catalogue].
func (c *catalogued) Rest(ctx context.Context, err error) (listing.Span, bool) {
	if !isUnusable(err) {
		return listing.Span{}, false
	}
	c.listInstead(ctx, c.container, err)
	rest := c.Span
	if next := c.reader.Newest(); next != uuid.Nil && !c.reader.Numbers {
		if to := listing.Next(next); listing.Less(to, rest.To) {
			rest.To = to
		}
	}
	return rest, true
}

// numbers yields a candidate for each status. Its weight is the number of plans that the filters choose.
func (c *catalogued) numbers(ctx context.Context, yield func(candidate, error) bool) {
	n, err := c.reader.Count(ctx)
	if err != nil {
		yield(candidate{}, err)
		return
	}
	for _, status := range slices.Sorted(maps.Keys(n)) {
		p := candidate{planBlobs: planBlobs{keys: keys{c.container, c.From}}, matched: true, weight: n[status]}
		p.result.State.Status = status
		if n[status] > 0 && !yield(p, nil) {
			return
		}
	}
}

// The states of a catalogue's blob, in its metadata.
const (
	statePlaceholder = "placeholder" // it is being built, or its builder died
	stateBuilt       = "built"
)

// isBuilt reports by its metadata whether a blob is a catalogue. One of an older schema counts as a placeholder.
func isBuilt(p blob.Properties) bool {
	schema, err := strconv.Atoi(p.Metadata[metaSchema])
	return p.Metadata[metaState] == stateBuilt && err == nil && schema >= catalogue.OldestSchema
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
