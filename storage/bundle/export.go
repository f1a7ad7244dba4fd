package bundle

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// ExportOptions are the options of [Export].
type ExportOptions struct {
	// Filters select the plans. Default: all plans.
	Filters storage.Filters
	// Source says where the plans come from, such as an account and a prefix. It is for people. Default: empty.
	Source string
	// Concurrency is how many plans are read at a time. Default: 16.
	Concurrency int
	// Progress is called after each plan. The total is unknown. Default: nil, and nothing is called.
	Progress func(storage.Progress)
}

// ExportReport is what [Export] did.
type ExportReport struct {
	// Plans is the number of plans in the bundle, and Bytes the length of the bundle.
	Plans int
	Bytes int64
	// Unreadable is the number of plans that could not be read, because they are damaged, or because newer
	// code or an unknown plugin wrote them. They are not in the bundle.
	Unreadable int
	// Foreign is the number of plans that another program wrote. They are not in the bundle, and are no error.
	Foreign int
	// Whole says that the bundle has its end, so it can be imported. It may lack the unreadable plans.
	Whole bool
}

// Export writes the plans of a vault to w as a bundle, newest first. Plans that are deleted meanwhile are left
// out.
//
// A plan that can't be read does not stop the export. The bundle is then whole but for these plans, and the
// error has up to 100 of theirs. Every other error stops it: what was written is no bundle, and [Import] refuses
// it as truncated.
func Export(ctx context.Context, from storage.Vault, w io.Writer, o ExportOptions) (ExportReport, error) {
	report, err := export(ctx, from, w, o)
	return report, failed("Export", err)
}

func export(ctx context.Context, from storage.Vault, w io.Writer, o ExportOptions) (report ExportReport, err error) {
	l, err := limitsOf(o.Concurrency)
	if err != nil {
		return report, err
	}
	encoder, err := newEncoder(l.concurrency)
	if err != nil {
		return report, err
	}
	defer encoder.Close()
	out := &writer{w: w, chain: sha256.New(), encoder: encoder}
	var unreadable faults
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	out.begin(Manifest{Format: format, Schema: schema, Created: time.Now().UTC(), Source: o.Source})
	err = ordered(l, listed(ctx, from, o.Filters), func(found storage.Stream[storage.ListResult]) exported {
		if found.Err != nil {
			return exported{err: found.Err}
		}
		e := read(ctx, from, encoder, found.Result.ID)
		l.held.Add(e.length())
		return e
	}, func(e exported) error {
		l.held.Add(-e.length())
		switch {
		case errors.Is(e.err, storage.ErrForeign):
			report.Foreign++
		case e.err != nil && ofPlan(e.err):
			report.Unreadable++
			unreadable.add(e.err)
		case e.err != nil:
			cancel()
			return e.err
		case e.record != nil:
			out.put(e.record)
			if out.err != nil {
				cancel()
				return out.err
			}
			report.Plans++
		}
		if o.Progress != nil {
			o.Progress(storage.Progress{Done: report.Plans + report.Unreadable + report.Foreign})
		}
		return nil
	})
	if err == nil {
		out.finish(end{Plans: report.Plans, Unreadable: report.Unreadable})
		err = out.err
		report.Whole = err == nil
	}
	report.Bytes = out.n
	return report, unreadable.join(err)
}

// listed yields what a listing yields of the selected plans.
func listed(ctx context.Context, from storage.Reader, f storage.Filters) iter.Seq2[storage.Stream[storage.ListResult], error] {
	return func(yield func(storage.Stream[storage.ListResult], error) bool) {
		list, err := from.List(ctx, 0)
		if len(f.Fields()) > 0 {
			list, err = from.Search(ctx, f)
		}
		if err != nil {
			yield(storage.Stream[storage.ListResult]{}, err)
			return
		}
		for found := range list {
			if !yield(found, nil) {
				return
			}
		}
	}
}

// ofPlan reports whether an error is about one plan, and says nothing about others.
func ofPlan(err error) bool {
	return errors.Is(err, storage.ErrCorrupt) || errors.Is(err, storage.ErrSchema)
}

// exported is a plan that was read: its record, nil if the plan was deleted, or why it could not be read.
type exported struct {
	record *record
	err    error
}

func (e exported) length() int64 {
	if e.record == nil {
		return 0
	}
	return e.record.length()
}

// read reads a plan and encodes it.
func read(ctx context.Context, from storage.Reader, encoder *zstd.Encoder, id uuid.UUID) exported {
	plan, err := from.Read(ctx, id)
	if errors.Is(err, storage.ErrNotFound) { // it was listed, so a single answer is not believed
		plan, err = from.Read(ctx, id)
	}
	if errors.Is(err, storage.ErrNotFound) {
		return exported{}
	}
	if err != nil {
		return exported{err: err}
	}
	r, err := encode(encoder, plan)
	return exported{r, err}
}

// encode encodes a plan, whose versions it removes.
func encode(encoder *zstd.Encoder, plan *workflow.Plan) (*record, error) {
	for o := range workflow.Walk(plan) {
		o.Header().State.ETag = ""
	}
	text, err := workflow.Marshal(plan)
	if err == nil && len(text) > maxSize {
		err = fmt.Errorf("it takes %d bytes, at most %d are allowed", len(text), maxSize)
	}
	if err != nil {
		return nil, &storage.Error{Op: "encode", Plan: plan.ID, Err: fmt.Errorf("%w: %w", storage.ErrCorrupt, err)}
	}
	return newRecord(kindPlan, plan.ID, len(text), encoder.EncodeAll(text, nil)), nil
}

// writer writes records. It keeps the first error.
type writer struct {
	w       io.Writer
	encoder *zstd.Encoder
	chain   hash.Hash
	n       int64
	err     error
}

func (w *writer) write(p []byte) {
	if w.err == nil {
		var n int
		n, w.err = w.w.Write(p)
		w.n += int64(n)
	}
}

func (w *writer) put(r *record) {
	w.write(r.header[:])
	w.write(r.content)
	w.chain.Write(r.header[sumAt:])
}

func (w *writer) putJSON(kind byte, v any) {
	text, err := json.Marshal(v)
	if err != nil && w.err == nil {
		w.err = err
	}
	w.put(newRecord(kind, uuid.Nil, len(text), w.encoder.EncodeAll(text, nil)))
}

func (w *writer) begin(m Manifest) {
	w.write([]byte(magic))
	w.putJSON(kindManifest, m)
}

func (w *writer) finish(e end) {
	e.SHA256 = w.chain.Sum(nil)
	w.putJSON(kindEnd, e)
}
