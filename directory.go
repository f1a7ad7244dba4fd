package azblob

import (
	"context"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// directory reads the blobs of one directory, whose names begin with a plan's ID. It is a [reader].
type directory struct {
	v   *Vault
	dir string
	// metadataOf reports by its name whether the metadata of a blob is needed. If it is nil, no metadata is
	// listed.
	metadataOf func(name string) bool
	// take completes a candidate and reports whether it is wanted.
	take func(*candidate) bool
	// dropping, if it is not nil, is called for the mark of an expiry.
	dropping func(container string)
	// needsStart says to read nothing if the service ignores where to begin.
	needsStart bool
}

// plans returns a directory that lists the plans that the filters choose.
func (v *Vault) plans(f storage.Filters) directory {
	return directory{v: v, dir: plansDir, metadataOf: isEntry, take: func(p *candidate) bool {
		entry := p.entry
		chosen := p.committed() && p.choose(v.format, f, entry.Properties)
		p.entry, p.object = nil, nil // thousands of candidates are in memory
		return chosen
	}}
}

// names returns a directory that lists all plans, without results.
func (v *Vault) names() directory {
	return directory{v: v, dir: plansDir, take: func(p *candidate) bool {
		chosen := p.committed()
		p.entry, p.object = nil, nil
		return chosen
	}}
}

// options returns the options that list a window. Names within a minute or a millisecond have a prefix in
// common.
func (d directory) options(w window) blob.ListOptions {
	from := w.from.String()
	o := blob.ListOptions{Prefix: d.dir, StartFrom: d.dir + from}
	if w.wholeDay() {
		o.StartFrom = ""
	}
	switch {
	case w.inOne(aMillisecond):
		o.Prefix += from[:len("01234567-89ab-")]
	case w.inOne(aMinute):
		o.Prefix += from[:len("01234567-")]
	}
	return o
}

func (d directory) groups(ctx context.Context, w window) (groups []uint64, err error) {
	opts := d.options(w)
	opts.MaxResults = w.sample
	if opts.StartFrom != "" { // the first group may begin before the window
		digits := len("01234567")
		if w.inOne(aMinute) {
			digits = len("01234567-89ab")
		}
		opts.StartFrom = opts.StartFrom[:len(d.dir)+digits]
	}
	for names, err := range d.v.client.ListGroups(ctx, w.container, opts, groupEnd) {
		if blob.Is(err, blob.AbsentContainer) {
			d.v.containers.forget(w.container)
			return nil, nil // the day was dropped
		}
		if err != nil {
			return nil, blobError("list", blob.Ref{Container: w.container, Name: d.dir}, err)
		}
		for _, name := range names {
			if from, size, ok := parseGroup(d.dir, name); ok && size == w.groupSize() {
				groups = append(groups, from)
			}
		}
		if w.sample > 0 && len(groups) >= w.sample {
			break
		}
	}
	return groups, nil
}

// read lists a window until a page is full.
func (d directory) read(ctx context.Context, w window) (reading, error) {
	got := reading{to: w.to}
	opts := d.options(w)
	opts.Metadata, opts.MetadataOf, opts.MaxResults = d.metadataOf != nil, d.metadataOf, min(w.limit, blob.MaxPage)
	from, to := d.dir+w.from.String(), d.dir+w.to.String()
	var plan candidate // its blobs are neighbors, but may be on two pages
	plans := 0
	finish := func() {
		if plans > 0 && d.take(&plan) {
			got.plans = append(got.plans, plan)
		}
	}
	for page, err := range d.v.client.List(ctx, w.container, opts) {
		if blob.Is(err, blob.AbsentContainer) {
			d.v.containers.forget(w.container)
			return reading{to: w.to}, nil // the day was dropped
		}
		if err != nil {
			return got, blobError("list", blob.Ref{Container: w.container, Name: d.dir}, err)
		}
		for _, item := range page.Items {
			if item.Name < from { // a stray, or the service is older than version 2026-02-06 and ignores StartFrom
				if d.needsStart {
					return reading{to: w.from}, nil
				}
				if opts.StartFrom != "" && opts.MaxResults < blob.MaxPage {
					w.limit = blob.MaxPage
					return d.read(ctx, w)
				}
				continue
			}
			if item.Name == droppingName && d.dropping != nil {
				d.dropping(w.container)
			}
			if item.Name >= to {
				finish()
				return got, nil
			}
			n, ok := parseName(item.Name)
			if !ok || d.v.prefix.plan(n.plan).container != w.container {
				continue // a stray; Check reports it
			}
			if n.plan != plan.keys.plan {
				finish()
				plans++
				plan = candidate{planBlobs: planBlobs{keys: d.v.prefix.plan(n.plan), marked: w.marked}}
			}
			plan.add(n, item)
			got.blobs++
		}
		if page.More && plans > 1 && got.blobs >= opts.MaxResults/2 {
			got.blobs -= len(plan.all())
			got.to = plan.keys.plan // the next page may have more of it
			return got, nil
		}
	}
	finish()
	return got, nil
}

// byDay is a reader that chooses a reader for each day.
type byDay func(d day) reader

func (f byDay) read(ctx context.Context, w window) (reading, error) { return f(w.day).read(ctx, w) }

func (f byDay) groups(ctx context.Context, w window) ([]uint64, error) {
	return f(w.day).groups(ctx, w)
}
