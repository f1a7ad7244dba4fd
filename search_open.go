package azblob

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// Open plans are found by their markers. A past day with a catalogue has none. A day without planvaultlayout may have
// open plans without markers, so its plans are listed.

// listedMarkers lists the markers of a day, unless it has a catalogue: then all its plans are final. A HEAD, which tells,
// costs a twelfth of a listing.
type listedMarkers struct {
	directory
	filters storage.Filters
	now     time.Time
}

func (l listedMarkers) Read(ctx context.Context, s listing.Span, most int) (listing.Page[candidate], error) {
	if l.mayBeCatalogued(l.day, l.now) {
		if has, err := l.hasCatalogue(ctx, l.day); has || err != nil {
			return listing.Page[candidate]{Rest: s.To}, err
		}
	}
	page, err := l.directory.Read(ctx, s, most)
	page.Items = slices.DeleteFunc(page.Items, func(p candidate) bool {
		return !p.isMarked() || !driver.ChooseID(l.filters, p.keys.plan)
	})
	return page, err
}

// headMarked looks at the entry of a plan that has a marker, and reports whether the filters choose the plan. If it is
// Running and has no delete marker, it existed when the markers were listed, unless a Restore may be writing it. Otherwise,
// headMarked looks at the object, too. A plan that a listing has shown whole since then needs no further look.
func (q search) headMarked(ctx context.Context, p *candidate) (chosen bool) {
	if p.committed() {
		return p.choose(q.format, q.f, p.entry.Properties)
	}
	failed := func(ref blob.Ref, err error) bool {
		p.err = blobError("look for plan", ref, err)
		return !blob.Is(err, blob.Absent, blob.AbsentContainer)
	}
	entry, err := q.headAgain(ctx, p.keys.entry())
	if err != nil {
		return failed(p.keys.entry(), err)
	}
	p.entry = &blob.Item{Properties: entry}
	if !p.choose(q.format, q.f, entry) {
		return false
	}
	if p.result.State.Status == workflow.Running && p.deleteMarker == nil && !restored(p.entry) {
		return true
	}
	_, err = q.headAgain(ctx, p.keys.object())
	return err == nil || failed(p.keys.object(), err)
}

// heads returns how many HEADs a marker takes.
func (q search) heads() int {
	if onlyNotStarted(q.f) {
		return 2
	}
	return 1
}

// notStarted yields the candidates of a search for NotStarted plans without those that are known to have started.
func (q search) notStarted(candidates iter.Seq2[candidate, error]) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		began := time.Now()
		for p, err := range candidates {
			if err == nil && p.marker != nil && q.started.relisted(p.keys.plan, p.marker.ETag, began) && onlyNotStarted(q.f) {
				continue
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
		q.started.forget(q.f, began)
	}
}

// noteStarted remembers a candidate that was looked at, if the plan has started. An entry that is older than the
// marker belongs to an earlier plan of this ID, whose remains are being removed.
func (q search) noteStarted(p candidate) {
	if p.marker == nil || p.entry == nil || p.err != nil ||
		p.result.State.Status == workflow.NotStarted || p.entry.LastModified.Before(p.marker.LastModified) {
		return
	}
	q.started.note(p.keys.plan, p.marker.ETag)
}
