package azblob

import (
	"context"
	"slices"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
)

// A day is listed by its directories, in pieces.

// directory lists a directory of a day, in which the names of blobs begin with a plan's ID.
type directory struct {
	*store
	day day
	dir string
	// metadataOf reports by its name whether the metadata of a blob is needed. If it is nil, no metadata is
	// listed.
	metadataOf func(name string) bool
	// dropping, if it is not nil, is called for the mark of an expiry.
	dropping func(container string)
	// needsStart says to read nothing if the service ignores where to begin.
	needsStart bool
}

// options returns the options that list a span. Names within a minute or a millisecond have a prefix in common.
func (d directory) options(s listing.Span) blob.ListOptions {
	from := s.From.String()
	o := blob.ListOptions{Prefix: d.dir, StartFrom: d.dir + from}
	if s.From == listing.FirstID(d.day.date) {
		o.StartFrom = ""
	}
	switch {
	case s.InOne(listing.Millisecond):
		o.Prefix += from[:len("01234567-89ab-")]
	case s.InOne(listing.Minute):
		o.Prefix += from[:len("01234567-")]
	}
	return o
}

// Groups implements [listing.Source].
func (d directory) Groups(ctx context.Context, s listing.Span) (groups []uint64, err error) {
	opts := d.options(s)
	if opts.StartFrom != "" { // the first group may begin before the span
		digits := len("01234567")
		if s.InOne(listing.Minute) {
			digits = len("01234567-89ab")
		}
		opts.StartFrom = opts.StartFrom[:len(d.dir)+digits]
	}
	for names, err := range d.client.ListGroups(ctx, d.day.container, opts, groupEnd) {
		if blob.Is(err, blob.AbsentContainer) {
			return nil, nil // Read asks again
		}
		if err != nil {
			return nil, blobError("list", blob.Ref{Container: d.day.container, Name: d.dir}, err)
		}
		for _, name := range names {
			if from, unit, ok := parseGroup(d.dir, name); ok && unit == s.Unit() {
				groups = append(groups, from)
			}
		}
	}
	return groups, nil
}

// Read implements [listing.Source]. It returns all candidates. The day was there a moment ago, so a single answer that
// its container is absent is not believed.
func (d directory) Read(ctx context.Context, s listing.Span, most int) (page listing.Page[candidate], err error) {
	err = d.unlessDropped(ctx, blob.Ref{Container: d.day.container}, func() (err error) {
		page, err = d.read(ctx, s, most)
		return err
	})
	return page, err
}

// read reads a span once.
func (d directory) read(ctx context.Context, s listing.Span, most int) (listing.Page[candidate], error) {
	got := listing.Page[candidate]{Rest: s.To}
	opts := d.options(s)
	opts.Metadata, opts.MetadataOf, opts.MaxResults = d.metadataOf != nil, d.metadataOf, min(most, blob.MaxPage)
	from, to := d.dir+s.From.String(), d.dir+s.To.String()
	var plan candidate // its blobs are neighbors, but may be on two pages
	plans := 0
	finish := func() {
		if plans > 0 {
			got.Items = append(got.Items, plan)
		}
	}
	for page, err := range d.client.List(ctx, d.day.container, opts) {
		if err != nil {
			return listing.Page[candidate]{Rest: s.To}, blobError("list", blob.Ref{Container: d.day.container, Name: d.dir}, err)
		}
		for _, item := range page.Items {
			if item.Name < from { // a stray, or the service is older than version 2026-02-06 and ignores StartFrom
				if d.needsStart {
					return listing.Page[candidate]{Rest: s.To}, nil
				}
				if opts.StartFrom != "" && opts.MaxResults < blob.MaxPage {
					return d.read(ctx, s, blob.MaxPage)
				}
				continue
			}
			if item.Name == droppingName && d.dropping != nil {
				d.dropping(d.day.container)
			}
			if item.Name >= to {
				finish()
				return got, nil
			}
			n, ok := parseName(item.Name)
			if !ok || d.prefix.plan(n.plan).container != d.day.container {
				continue // a stray; Check reports it
			}
			if n.plan != plan.keys.plan {
				finish()
				plans++
				plan = candidate{planBlobs: planBlobs{keys: d.prefix.plan(n.plan), marked: d.day.marked}}
			}
			plan.add(n, item)
			got.Blobs++
		}
		if page.More && plans > 1 && got.Blobs >= opts.MaxResults/2 {
			got.Blobs -= len(plan.all())
			got.Rest = plan.keys.plan // the next page may have more of it
			return got, nil
		}
	}
	finish()
	return got, nil
}

// listedPlans lists the plans of a day that the filters choose.
type listedPlans struct {
	directory
	filters storage.Filters
}

func (s *store) plansOf(d day, f storage.Filters) listedPlans {
	return listedPlans{directory{store: s, day: d, dir: plansDir, metadataOf: isEntry}, f}
}

func (l listedPlans) Read(ctx context.Context, s listing.Span, most int) (listing.Page[candidate], error) {
	page, err := l.directory.Read(ctx, s, most)
	for i := range page.Items {
		p := &page.Items[i]
		if p.committed() {
			p.choose(l.format, l.filters, p.entry.Properties)
		}
		p.entry, p.object = nil, nil // thousands of candidates are in memory
	}
	page.Items = slices.DeleteFunc(page.Items, func(p candidate) bool { return !p.matched && p.err == nil })
	return page, err
}

// pages returns the options that list everything, by pages of a size: as many at once as the vault may have requests in
// flight, and as fit in memory.
func (s *store) pages(size int) listing.Options {
	return listing.Options{Page: size, Ahead: min(s.concurrency, max(1, maxAhead/size)), Now: time.Now()}
}

// pageOfMarkers returns how many markers a page holds, so that the pages of all days are read at once.
func pageOfMarkers(days int) int {
	return min(max(markersPage, maxAhead/max(1, days)), blob.MaxPage)
}

const (
	// markersPage is how many markers a page holds at least. In a vault of many days, small pages of all days
	// are read at once.
	markersPage = 500
	// maxAhead is about how many blobs are read ahead. A page of 5,000 takes a few MiB. Five of them keep the
	// round trips of a large vault within their budget, and the memory, too.
	maxAhead = 5 * blob.MaxPage
	// burst is how many more blobs than are wanted fit on a page, because plans are often created many at a
	// time.
	burst = 50
)
