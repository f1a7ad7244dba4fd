package catalogue

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

const (
	// FirstRead is the size of the first read of a catalogue.
	FirstRead = 512 << 10
	// maxRead bounds a read of blocks. It is about 200,000 plans.
	maxRead = 8 << 20
	// maxGap is how many bytes that nobody needs may lie between two blocks that are read together. They take
	// less time than a request.
	maxGap = 1 << 20
	// countedAtOnce is how many blocks a count decodes at a time, which is about two megabytes.
	countedAtOnce = 16
)

// Source reads one version of a catalogue.
type Source interface {
	// Get reads some bytes, or those up to the end of the catalogue.
	Get(ctx context.Context, offset, size int) ([]byte, error)
	// Parallel calls do for 0 to n-1, some at a time, and waits for all calls.
	Parallel(n int, do func(i int) error) error
}

// Search says what is wanted of a catalogue.
type Search struct {
	Query
	// Chosen reports whether a plan is wanted. It checks what the Query can't express, such as names.
	Chosen func(Plan) bool
	// Limit is how many plans are wanted; 0 for all.
	Limit int
	// Numbers says that the numbers of plans are wanted, and the plans are not.
	Numbers bool
}

// Reader reads the plans of a search. It is not safe for concurrent use.
type Reader struct {
	Search
	source Source
	dir    *Directory
	held   [][]byte // the content of the first blocks of left
	left   []Match  // the blocks that are not decoded
	turns  int      // how often blocks were read
	merge  Merge
}

// Open reads the directory of a container's catalogue, and the first of the blocks that are wanted. The first read has
// the directory, and all of most catalogues. Blocks that lie behind it take another one.
func Open(ctx context.Context, source Source, container string, s Search) (*Reader, error) {
	r := &Reader{Search: s, source: source}
	head, err := source.Get(ctx, 0, FirstRead)
	if err != nil {
		return nil, err
	}
	size, err := DirectorySize(head)
	if err == nil && size > len(head) {
		var rest []byte
		rest, err = source.Get(ctx, len(head), size-len(head))
		head = slices.Concat(head, rest)
	}
	if err != nil {
		return nil, err
	}
	if r.dir, err = ReadDirectory(head, container); err != nil {
		return nil, err
	}
	postings, err := r.postings(ctx, head)
	if err != nil {
		return nil, err
	}
	r.left = r.dir.Matches(s.Query, postings)
	if s.Numbers {
		return r, nil
	}
	r.hold(head)
	return r, r.readSoon(ctx)
}

// Len returns the number of all plans in the catalogue.
func (r *Reader) Len() int64 { return r.dir.Len() }

// postings reads the postings of the groups that are wanted. The head is the start of the catalogue.
func (r *Reader) postings(ctx context.Context, head []byte) ([]Posting, error) {
	pages := r.dir.PagesOf(r.Groups)
	found := make([][]Posting, len(pages))
	err := r.source.Parallel(len(pages), func(i int) (err error) {
		var data []byte
		if p := pages[i]; p.End() <= len(head) {
			data = head[p.Offset:p.End()]
		} else if data, err = r.source.Get(ctx, p.Offset, p.Length); err != nil {
			return err
		}
		found[i], err = r.dir.Postings(pages[i], data, r.Groups)
		return err
	})
	return slices.Concat(found...), err
}

// hold keeps the blocks that the first read has.
func (r *Reader) hold(head []byte) {
	for _, m := range r.left {
		if m.End() > len(head) {
			return
		}
		r.held = append(r.held, slices.Clone(head[m.Offset:m.End()])) // the rest of the head is garbage
	}
}

// readSoon reads the blocks behind the first read if they are few. A year of days would otherwise wait for them
// one after the other.
func (r *Reader) readSoon(ctx context.Context) error {
	behind := 0
	for _, m := range r.left[len(r.held):] {
		behind += m.Length
	}
	if behind == 0 || behind > FirstRead && (r.Limit == 0 || len(r.held) > 0) {
		return nil
	}
	return r.read(ctx)
}

// read reads the next blocks, at most maxRead bytes. A search with a limit begins with one block and doubles
// the number each time.
func (r *Reader) read(ctx context.Context) error {
	most := len(r.left)
	if r.Limit > 0 {
		most = 1 << min(r.turns, 20)
	}
	r.turns++
	next := r.left[len(r.held):]
	n, size := 0, 0
	for n < min(most, len(next)) && (n == 0 || size+next[n].Length <= maxRead) {
		size += next[n].Length
		n++
	}
	data, err := r.readBlocks(ctx, next[:n])
	r.held = append(r.held, data...)
	return err
}

// readBlocks reads some blocks, neighbors at once.
func (r *Reader) readBlocks(ctx context.Context, blocks []Match) ([][]byte, error) {
	var runs [][]Match
	for begin, i := 0, 1; i <= len(blocks); i++ {
		if i == len(blocks) || blocks[i].Offset-blocks[i-1].End() > maxGap || blocks[i].End()-blocks[begin].Offset > 2*maxRead {
			runs = append(runs, blocks[begin:i])
			begin = i
		}
	}
	read := make([][][]byte, len(runs))
	err := r.source.Parallel(len(runs), func(i int) error {
		first := runs[i][0].Offset
		data, err := r.source.Get(ctx, first, runs[i][len(runs[i])-1].End()-first)
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

// Plans yields the plans, newest first. An error is the last element.
func (r *Reader) Plans(ctx context.Context) iter.Seq2[Plan, error] {
	return func(yield func(Plan, error) bool) {
		for len(r.left) > 0 {
			var chosen []Plan
			var err error
			if len(r.held) == 0 {
				err = r.read(ctx)
			}
			if err == nil {
				chosen, err = r.chosen(r.left[0], r.held[0])
			}
			if err != nil {
				yield(Plan{}, err)
				return
			}
			r.left, r.held = r.left[1:], r.held[1:]
			r.merge.Add(chosen)
			for plan := range r.merge.Newer(r.Newest()) {
				if !yield(plan, nil) {
					return
				}
			}
		}
	}
}

// Newest returns the newest plan of the next block; uuid.Nil if there is none. All newer plans have been yielded.
func (r *Reader) Newest() uuid.UUID {
	if len(r.left) == 0 {
		return uuid.Nil
	}
	return r.left[0].Newest
}

// chosen decodes a block and returns the plans that are wanted.
func (r *Reader) chosen(m Match, data []byte) (plans []Plan, err error) {
	for plan, err := range r.dir.Plans(m.Block, data) {
		if err != nil {
			return nil, err
		}
		if bytes.Compare(plan.ID[:], r.From[:]) >= 0 && bytes.Compare(plan.ID[:], r.To[:]) < 0 && r.Chosen(plan) {
			plan.Name, plan.Descr, plan.SubmittedBy = strings.Clone(plan.Name), strings.Clone(plan.Descr), strings.Clone(plan.SubmittedBy) // of the block's memory
			plans = append(plans, plan)
		}
	}
	return plans, nil
}

// Count returns the numbers of plans by status. It reads a block only if the directory does not tell the number.
func (r *Reader) Count(ctx context.Context) (map[workflow.Status]int, error) {
	n := map[workflow.Status]int{}
	var unsure []Match
	for _, m := range r.left {
		if m.Exact {
			n[m.Status] += m.Wanted
		} else {
			unsure = append(unsure, m)
		}
	}
	for some := range slices.Chunk(unsure, countedAtOnce) {
		data, err := r.readBlocks(ctx, some)
		if err != nil {
			return nil, err
		}
		for i, m := range some {
			chosen, err := r.chosen(m, data[i])
			if err != nil {
				return nil, err
			}
			n[m.Status] += len(chosen)
		}
	}
	return n, nil
}
