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

// searchOpen lists the markers of each day and looks at their plans. A closed day with a catalogue has none. A
// day without planvaultlayout may have open plans without markers, so its plans are listed.
func (q search) searchOpen(ctx context.Context) iter.Seq2[candidate, error] {
	markers, plans := directory{store: q.store, dir: openDir, take: func(p *candidate) bool {
		return p.isMarked() && driver.ChooseID(q.f, p.keys.plan)
	}}, q.plans(q.f)
	now := time.Now()
	candidates := q.notStarted(q.inDays(ctx, func(d day) listing.Source[candidate] {
		if d.marked {
			return unlessCatalogued{dayDirectory{markers, d}, now}
		}
		return plans.of(d)
	}))
	heads := 1
	if onlyNotStarted(q.f) {
		heads = 2
	}
	candidates = q.listNeighbors(ctx, candidates, heads, q.f.Limit, isEntry)
	return q.lookAtAll(candidates, func(p candidate) bool { return p.marked && !p.committed() }, func(p candidate) (candidate, bool) {
		if !p.marked { // its day was listed in full
			return p, true
		}
		p, chosen := q.headOpen(ctx, p)
		q.noteStarted(p)
		return p, chosen
	})
}

// headOpen looks at the entry of a plan that has a marker. If the plan is Running and has no delete marker,
// it existed when the markers were listed, unless a Restore may be writing it. Otherwise, headOpen looks at the
// object, too. A plan that a listing has shown whole since then needs no further look.
func (q search) headOpen(ctx context.Context, p candidate) (_ candidate, chosen bool) {
	failed := func(ref blob.Ref, err error) (candidate, bool) {
		p.err = blobError("look for plan", ref, err)
		return p, !blob.Is(err, blob.Absent, blob.AbsentContainer)
	}
	if p.committed() {
		chosen = p.choose(q.format, q.f, p.entry.Properties)
		return p, chosen
	}
	entry, err := q.headAgain(ctx, p.keys.entry())
	if err != nil {
		return failed(p.keys.entry(), err)
	}
	p.entry = &blob.Item{Properties: entry}
	if chosen = p.choose(q.format, q.f, entry); !chosen || p.result.State.Status == workflow.Running && p.deleteMarker == nil && !restored(p.entry) {
		return p, chosen
	}
	if _, err := q.headAgain(ctx, p.keys.object()); err != nil {
		return failed(p.keys.object(), err)
	}
	return p, true
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

// onlyNotStarted reports whether the filters ask for no other status.
func onlyNotStarted(f storage.Filters) bool {
	return !slices.ContainsFunc(f.ByStatus, func(s workflow.Status) bool { return s != workflow.NotStarted })
}
