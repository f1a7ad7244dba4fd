package catalogue

import (
	"bytes"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Query says which plans are wanted, as far as a directory and its postings can tell. Empty lists and zero
// times are no bounds.
type Query struct {
	From, To                uuid.UUID // the first ID, and the first one after the last
	Statuses                []workflow.Status
	Groups                  []uuid.UUID
	EndedAfter, EndedBefore time.Time // both exclusive
}

// Match is a block that may have plans of a query.
type Match struct {
	Block
	// Wanted is how many plans of the query the block has, or at most has if Exact is false.
	Wanted int
	Exact  bool
}

// PagesOf returns the pages that have the postings of some groups.
func (d *Directory) PagesOf(groups []uuid.UUID) (pages []Page) {
	for i, p := range d.Pages {
		in := func(group uuid.UUID) bool {
			return bytes.Compare(p.first[:], group[:]) <= 0 && (i+1 == len(d.Pages) || bytes.Compare(group[:], d.Pages[i+1].first[:]) < 0)
		}
		if slices.ContainsFunc(groups, in) {
			pages = append(pages, p)
		}
	}
	return pages
}

// Matches returns the blocks that may have plans of a query, in the order of the directory. The postings are
// those of the query's groups.
func (d *Directory) Matches(q Query, postings []Posting) (matches []Match) {
	plans := make(map[int]int, len(postings))
	for _, p := range postings {
		plans[p.Block] += p.Plans
	}
	for _, b := range d.Blocks {
		m := Match{Block: b, Wanted: b.Plans}
		if len(q.Groups) > 0 {
			m.Wanted = min(plans[b.Number], b.Plans)
		}
		if m.Wanted == 0 || !q.mayHave(b) {
			continue
		}
		m.Exact = q.hasAll(b)
		matches = append(matches, m)
	}
	return matches
}

// mayHave reports whether a block may have plans of the query, by status and times.
func (q Query) mayHave(b Block) bool {
	return (len(q.Statuses) == 0 || slices.Contains(q.Statuses, b.Status)) &&
		bytes.Compare(b.Oldest[:], q.To[:]) < 0 && bytes.Compare(q.From[:], b.Newest[:]) <= 0 &&
		(q.EndedAfter.IsZero() || q.EndedAfter.Before(b.LastEnd)) && (q.EndedBefore.IsZero() || b.FirstEnd.Before(q.EndedBefore))
}

// hasAll reports whether all plans of a block are wanted, by status and times. If one of them has no end, the
// first end is the zero time.
func (q Query) hasAll(b Block) bool {
	anyEnd := q.EndedAfter.IsZero() && q.EndedBefore.IsZero()
	return (anyEnd || !b.FirstEnd.IsZero()) && (len(q.Statuses) == 0 || slices.Contains(q.Statuses, b.Status)) &&
		bytes.Compare(q.From[:], b.Oldest[:]) <= 0 && bytes.Compare(b.Newest[:], q.To[:]) < 0 &&
		(q.EndedAfter.IsZero() || q.EndedAfter.Before(b.FirstEnd)) && (q.EndedBefore.IsZero() || b.LastEnd.Before(q.EndedBefore))
}

// Merge puts the plans of several blocks in order. The blocks of a directory are added in its order. Once a
// block is added, the plans that are newer than the next block's newest are complete.
type Merge struct {
	blocks [][]Plan // what is left of each block
}

// Add adds the plans of a block, newest first.
func (m *Merge) Add(plans []Plan) {
	if len(plans) > 0 {
		m.blocks = append(m.blocks, plans)
	}
}

// Newer yields the plans that are newer than an ID, newest first, and removes them.
func (m *Merge) Newer(than uuid.UUID) iter.Seq[Plan] {
	return func(yield func(Plan) bool) {
		for len(m.blocks) > 0 {
			newest := 0 // there is about one block for each status
			for i, plans := range m.blocks {
				if bytes.Compare(plans[0].ID[:], m.blocks[newest][0].ID[:]) > 0 {
					newest = i
				}
			}
			p := m.blocks[newest][0]
			if bytes.Compare(p.ID[:], than[:]) <= 0 {
				return
			}
			if m.blocks[newest] = m.blocks[newest][1:]; len(m.blocks[newest]) == 0 {
				m.blocks = slices.Delete(m.blocks, newest, newest+1)
			}
			if !yield(p) {
				return
			}
		}
	}
}
