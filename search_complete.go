package azblob

import (
	"context"
	"iter"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage/driver"
)

// What a piece lacks for a decision about a candidate is read by name.

// missing is what may be missing of a candidate.
type missing int

const (
	theEntry missing = iota // only the ID or a marker is known
	theTexts                // name and description are too long for metadata
)

// lacks reports whether something must be read of a candidate.
func (q search) lacks(p candidate, m missing) bool {
	switch {
	case p.err != nil:
		return false
	case m == theTexts:
		return p.undecided || q.results && p.truncated
	}
	return !p.matched && !p.committed()
}

// complete reads what is missing of the candidates, and yields those that the filters choose. It sends requests for as
// many candidates at once as the vault may have in flight, wherever they lie among lookAhead. With a limit it begins with
// as many as are wanted, and doubles the number each time.
func (q search) complete(ctx context.Context, candidates iter.Seq2[candidate, error], m missing) iter.Seq2[candidate, error] {
	return func(yield func(candidate, error) bool) {
		atOnce, most := q.concurrency, lookAhead
		if q.f.Limit > 0 {
			atOnce, most = min(atOnce, q.f.Limit), q.f.Limit
		}
		var some []candidate
		lacking := 0 // how many of them lack something
		flush := func() bool {
			chosen := make([]bool, len(some))
			_ = q.parallel(len(some), func(i int) error {
				chosen[i] = q.completeOne(ctx, &some[i], m)
				return nil // the others follow a plan that can't be read
			})
			for i, p := range some {
				if chosen[i] && !yield(p, nil) {
					return false
				}
			}
			some, lacking, atOnce = some[:0], 0, min(2*atOnce, q.concurrency)
			return true
		}
		for p, err := range candidates {
			if err != nil {
				if flush() {
					yield(p, err)
				}
				return
			}
			switch {
			case q.lacks(p, m):
				lacking++
			case len(some) == 0:
				if q.completeOne(ctx, &p, m) && !yield(p, nil) {
					return
				}
				continue
			}
			some = append(some, p)
			if (lacking == atOnce || len(some) >= max(most, atOnce)) && !flush() {
				return
			}
		}
		flush()
	}
}

// completeOne reads what is missing of a candidate, and reports whether the filters choose it.
func (q search) completeOne(ctx context.Context, p *candidate, m missing) (chosen bool) {
	switch {
	case m == theTexts:
		return !q.lacks(*p, m) || q.readTexts(ctx, p)
	case p.matched || p.err != nil:
		return true
	case len(q.f.ByIDs) > 0:
		return q.headNamed(ctx, p)
	}
	chosen = q.headMarked(ctx, p)
	q.noteStarted(*p)
	return chosen
}

// headNamed looks for a plan that the filters name.
func (q search) headNamed(ctx context.Context, p *candidate) (chosen bool) {
	p.planBlobs, p.err = q.plan(p.keys).headPlan(ctx, "look for plan")
	if p.err == nil && len(p.missing()) == 1 { // is being written or removed, or one of the answers was false
		p.planBlobs, p.err = q.plan(p.keys).headPlan(ctx, "look for plan")
	}
	if p.err != nil || !p.committed() {
		return p.err != nil
	}
	return p.choose(q.format, q.f, p.entry.Properties)
}

// readTexts reads the name and description of a plan from its entry, and reports whether the filters choose the plan.
func (q search) readTexts(ctx context.Context, p *candidate) (chosen bool) {
	entry, err := q.plan(p.keys).readEntry(ctx)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) { // it was listed a moment ago
		entry, err = q.plan(p.keys).readEntry(ctx)
	}
	if err != nil {
		p.err = err
		return !blob.Is(err, blob.Absent, blob.AbsentContainer) // deleted since it was listed
	}
	p.result.Name, p.result.Descr = entry.Name, entry.Descr
	return driver.Choose(q.f, p.result)
}
