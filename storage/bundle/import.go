package bundle

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/planvault/azblob/internal/same"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// ImportOptions are the options of [Import] and [Verify].
type ImportOptions struct {
	// By says who imports, and why, for the audit log. Its At is ignored. Required, but for a dry run and for Verify.
	By workflow.Attribution
	// Concurrency is how many plans are restored at a time. Default: 16.
	Concurrency int
	// Plans are the only plans to restore or verify, if it is not nil. All records are checked for their order.
	// Default: nil, and these are all.
	Plans []uuid.UUID
	// DryRun restores nothing. The report says what would be restored. Default: false.
	DryRun bool
	// Budget is the time after which no other plan is restored, counted from the first one. The verification of
	// the bundle, and skipping the plans that are there already, does not count, so each Import makes progress.
	// Default: 0, and Import ends when no plan is left.
	Budget time.Duration
	// Each is called with each plan and what Import did with it, one call at a time. Default: nil, and nothing is called.
	Each func(plan uuid.UUID, result ImportResult)
	// Progress is called after each plan, but not while Import verifies the bundle. The total is unknown. Default: nil, and
	// nothing is called.
	Progress func(storage.Progress)
}

// ImportReport is what [Import] did.
type ImportReport struct {
	Manifest Manifest
	// Verified says that the whole bundle was verified before the first plan was restored.
	Verified bool
	// Restored is the number of plans that were restored. Present were there already, with the same content.
	// Failed could not be restored.
	Restored, Present, Failed int
	// More says that plans are left, because the budget was used up or Import stopped. Another Import skips those
	// that are there already, and continues.
	More bool
}

// ImportResult says what an import did with a plan.
type ImportResult string

// The results.
const (
	ImportRestored ImportResult = "restored" // in a dry run: it would be
	ImportPresent  ImportResult = "present"  // it was there already, with the same content
	ImportFailed   ImportResult = "failed"   // the error says why
)

// VerifyReport is what [Verify] found.
type VerifyReport struct {
	Manifest Manifest
	// Plans is the number of plans in the bundle, Parts that of their sub-objects, and Bytes the length of the
	// bundle.
	Plans, Parts int
	Bytes        int64
	// Unreadable is the number of plans that the export could not read, and that are therefore not in the
	// bundle.
	Unreadable int
	// Cut says that the bundle has no end, because the process of its [Keeper] died: it has what was complete by then.
	Cut bool
}

// Verify reads a bundle to its end and checks everything in it. The error has a [*DamageError], or that of r or of
// ctx.
func Verify(ctx context.Context, r io.Reader, o ImportOptions) (VerifyReport, error) {
	report, err := verify(ctx, r, o)
	return report, failed("Verify", err)
}

func verify(ctx context.Context, r io.Reader, o ImportOptions) (report VerifyReport, err error) {
	in, err := open(r, o)
	if err != nil {
		return report, err
	}
	defer in.decoder.Close()
	report.Manifest = in.manifest
	err = in.each(ctx, o, &report, handler{
		begin: ctx.Err,
		do:    func(context.Context, *workflow.Plan) error { return nil },
		done:  func(p passed) error { return p.err },
	})
	return report, err
}

// Import restores the plans of a bundle in a vault that is a [storage.Restorer], and has that in its audit log: see
// [storage.Audit]. A plan that is there already is compared: if it is
// the same, nothing is done, and otherwise the error names it with [storage.ErrExists] and it stays as it is.
// An import that was interrupted is therefore run again, and restores the rest.
//
// If r is an [io.Seeker] that can seek, such as a file, the whole bundle is verified before the first plan is
// restored, so that a damaged or truncated one restores nothing. Otherwise each plan is verified before it is
// restored, and Import stops at the damage, with a [*DamageError]. Plans that were restored before it are
// valid.
//
// A plan that can't be restored does not stop the import; the error has up to 100 of theirs. It is ErrConflict
// for a plan that an interrupted import has left half restored: the error says when to call again. Import
// stops if the store can't be used, or ctx ends.
//
// Open plans are open again: see [storage.Restorer].
//
// Errors: [errors.ErrUnsupported] for a vault that is no Restorer; [storage.ErrInvalid] for wrong options.
func Import(ctx context.Context, to storage.Vault, r io.Reader, o ImportOptions) (ImportReport, error) {
	i := importing{to: to, opts: o}
	err := i.check()
	if err == nil {
		err = i.run(ctx, r)
	}
	return i.report, failed("Import", err)
}

// importing is an Import that is restoring plans.
type importing struct {
	to       storage.Vault
	restorer storage.Restorer
	opts     ImportOptions
	report   ImportReport
	failed   faults
	began    time.Time // when the first plan was restored
}

// check checks the options and the vault.
func (i *importing) check() (err error) {
	if i.restorer, err = storage.Require[storage.Restorer](i.to); err != nil {
		return err
	}
	var errs []error
	if i.opts.Budget < 0 {
		errs = append(errs, driver.Invalid("Budget", "%v is negative", i.opts.Budget))
	}
	if !i.opts.DryRun {
		errs = append(errs, storage.CheckBy(i.opts.By))
	}
	_, err = limitsOf(i.opts.Concurrency)
	return errors.Join(append(errs, err)...)
}

// run restores the plans of a bundle, after it has verified all of it if that can be read twice.
func (i *importing) run(ctx context.Context, r io.Reader) error {
	what := "the plans of "
	if file, ok := r.(io.Seeker); ok {
		if start, err := file.Seek(0, io.SeekCurrent); err == nil { // a pipe is a file that can't seek
			found, err := verify(ctx, r, ImportOptions{Concurrency: i.opts.Concurrency, Plans: i.opts.Plans})
			i.report.Manifest = found.Manifest
			if err == nil {
				_, err = file.Seek(start, io.SeekStart)
			}
			if err != nil || found.Plans == 0 {
				i.report.Verified = err == nil
				return err
			}
			what, i.report.Verified = fmt.Sprintf("%d plans of ", found.Plans), true
		}
	}
	in, err := open(r, i.opts)
	if err != nil {
		return err
	}
	defer in.decoder.Close()
	i.report.Manifest = in.manifest
	do := func(ctx context.Context) error { return i.restoreAll(ctx, in) }
	if i.opts.DryRun {
		return do(ctx)
	}
	entry := storage.AuditEntry{What: "import", By: i.opts.By, Plans: i.opts.Plans, Detail: what + cmp.Or(in.manifest.Source, "a bundle")}
	return storage.Audit(ctx, i.to, entry, do)
}

func (i *importing) restoreAll(ctx context.Context, in *reader) error {
	err := in.each(ctx, i.opts, new(VerifyReport), handler{
		begin: func() error { return cmp.Or(ctx.Err(), i.budget()) },
		do:    i.restore,
		done:  i.count,
	})
	i.report.More = err != nil
	if errors.Is(err, errUsed) {
		err = nil
	}
	return i.failed.join(err)
}

// errUsed means that the budget is used up.
var errUsed = errors.New("the budget is used up")

func (i *importing) budget() error {
	if i.opts.Budget > 0 && !i.began.IsZero() && time.Since(i.began) >= i.opts.Budget {
		return errUsed
	}
	return nil
}

// count counts a plan. It returns an error that stops the import.
func (i *importing) count(p passed) error {
	result := ImportFailed
	switch {
	case p.err == nil:
		result = ImportRestored
		if i.report.Restored++; i.began.IsZero() {
			i.began = time.Now()
		}
	case errors.Is(p.err, errPresent):
		result = ImportPresent
		i.report.Present++
	case p.damaged || !single(p.err):
		return p.err
	default:
		i.report.Failed++
		i.failed.add(p.err)
	}
	if i.opts.Each != nil {
		i.opts.Each(p.plan, result)
	}
	return nil
}

// errPresent means that a plan is there already, with the same content.
var errPresent = errors.New("present")

// single reports whether an error of a Restore says nothing about other plans.
func single(err error) bool {
	for _, kind := range []error{storage.ErrExists, storage.ErrConflict, storage.ErrInvalid, storage.ErrCorrupt, storage.ErrSchema, storage.ErrNotFound} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// restore restores a plan. If the outcome is unknown, a second call settles it. A dry run only compares.
func (i *importing) restore(ctx context.Context, plan *workflow.Plan) error {
	if i.opts.DryRun {
		if err := i.compare(ctx, plan); !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		return nil
	}
	err := i.restorer.Restore(ctx, plan)
	if errors.Is(err, storage.ErrUnknown) && ctx.Err() == nil {
		err = i.restorer.Restore(ctx, plan)
	}
	if errors.Is(err, storage.ErrExists) {
		return i.compare(ctx, plan)
	}
	return err
}

// compare compares a plan with the one that is stored, and returns errPresent if they are the same.
func (i *importing) compare(ctx context.Context, plan *workflow.Plan) error {
	there, err := i.to.Read(ctx, plan.ID)
	if err != nil {
		return err
	}
	same, err := same.Plan(there, plan)
	switch {
	case err != nil:
		err = fmt.Errorf("%w: %w", storage.ErrExists, err)
	case !same:
		err = fmt.Errorf("%w, differs from that of the bundle, and stays as it is", storage.ErrExists)
	default:
		return errPresent
	}
	return &storage.Error{Op: "compare", Plan: plan.ID, Err: err}
}

// passed is a plan of a bundle that was handled.
type passed struct {
	at, next int64 // where its record begins and ends
	plan     uuid.UUID
	parts    int // the number of its sub-objects
	err      error
	damaged  bool // err is about the bundle
}

// handler handles the plans of a bundle.
type handler struct {
	// begin returns an error if no other plan may be begun.
	begin func() error
	// do handles a plan, several at a time.
	do func(ctx context.Context, plan *workflow.Plan) error
	// done gets what became of the plans, in the order of the bundle. An error is the last one.
	done func(passed) error
}

// open reads the beginning of a bundle. The caller closes the decoder.
func open(r io.Reader, o ImportOptions) (*reader, error) {
	l, err := limitsOf(o.Concurrency)
	if err != nil {
		return nil, err
	}
	in := &reader{r: r, chain: sha256.New(), limits: l}
	if in.decoder, err = newDecoder(l.concurrency); err != nil {
		return nil, err
	}
	if in.manifest, err = in.begin(); err != nil {
		in.decoder.Close()
		return nil, err
	}
	return in, nil
}

// each reads the plans of a bundle, and lets a handler handle them.
func (r *reader) each(ctx context.Context, o ImportOptions, report *VerifyReport, h handler) error {
	l, decoder := r.limits, r.decoder
	plans := func(yield func(*record, error) bool) {
		for rec, err := range r.plans(report) {
			if err == nil && o.Plans != nil && !slices.Contains(o.Plans, rec.plan()) {
				continue
			}
			if err == nil {
				err = h.begin()
			}
			if err == nil {
				l.held.Add(rec.size() + rec.stored())
			}
			if !yield(rec, err) || err != nil {
				return
			}
		}
	}
	return ordered(l, plans, func(rec *record) passed {
		defer l.held.Add(-rec.size() - rec.stored())
		p := passed{at: rec.at, next: rec.at + rec.length(), plan: rec.plan()}
		plan, err := decode(rec, decoder)
		if p.damaged = err != nil; err == nil {
			p.parts = len(workflow.Parts(plan))
			err = h.do(ctx, plan)
		}
		p.err = err
		return p
	}, func(p passed) error {
		err := h.done(p)
		if err == nil {
			report.Plans++
			report.Parts += p.parts
			report.Bytes = p.next
			if o.Progress != nil {
				o.Progress(storage.Progress{Done: report.Plans})
			}
		}
		return err
	})
}

// decode reads the plan of a record.
func decode(r *record, decoder *zstd.Decoder) (*workflow.Plan, error) {
	text, err := r.open(decoder)
	if err != nil {
		return nil, err
	}
	plan := new(workflow.Plan)
	if err := workflow.Unmarshal(text, plan); err != nil {
		return nil, r.damaged("%w", err)
	}
	if plan.ID != r.plan() {
		return nil, r.damaged("its content is plan %s", plan.ID)
	}
	if err := workflow.Validate(plan, driver.HasIDs); err != nil {
		return nil, r.damaged("%w", err)
	}
	return plan, nil
}

// reader reads records.
type reader struct {
	r        io.Reader
	limits   limits
	decoder  *zstd.Decoder
	manifest Manifest
	chain    hash.Hash
	n        int64
}

var errTruncated = fmt.Errorf("%w: the bundle is truncated", storage.ErrCorrupt)

// fail returns an error about the present position.
func (r *reader) fail(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &DamageError{Byte: r.n, Err: errTruncated}
	}
	return fmt.Errorf("byte %d: %w", r.n, err)
}

// begin reads what is before the plans.
func (r *reader) begin() (m Manifest, err error) {
	line := make([]byte, len(magic))
	n, err := io.ReadFull(r.r, line)
	r.n += int64(n)
	if err != nil {
		return m, r.fail(err)
	}
	if string(line) != magic {
		return m, &DamageError{Err: fmt.Errorf("%w: this is not a bundle", storage.ErrCorrupt)}
	}
	first, err := r.next()
	if err != nil {
		return m, err
	}
	if first.kind() != kindManifest {
		return m, first.damaged("there is no manifest")
	}
	if err := first.readJSON(r.decoder, &m); err != nil {
		return m, err
	}
	r.chain.Write(first.header[sumAt:])
	if m.Format < 1 || m.Schema < 1 {
		return m, first.damaged("there is no format %d with schema %d", m.Format, m.Schema)
	}
	if m.Format > format || m.Schema > schema {
		return m, &DamageError{first.at, uuid.Nil, fmt.Errorf("%w: it has format %d and schema %d, but this program knows only %d and %d: update the program", storage.ErrSchema, m.Format, m.Schema, format, schema)}
	}
	return m, nil
}

// next reads a record. It doesn't compare the record's sum.
func (r *reader) next() (*record, error) {
	rec := &record{at: r.n}
	n, err := io.ReadFull(r.r, rec.header[:])
	r.n += int64(n)
	if err != nil {
		return nil, r.fail(err)
	}
	if rec.check() != binary.BigEndian.Uint32(rec.header[checkAt:]) {
		rec.header = [headerSize]byte{} // nothing in it can be believed
		return nil, rec.damaged("the checksum of the record's header does not match")
	}
	if rec.size() > maxSize || rec.stored() > maxSize {
		return nil, rec.damaged("it says that it has %d bytes, and %d compressed: at most %d are allowed", rec.size(), rec.stored(), maxSize)
	}
	// Memory is taken as the content comes, because a damaged header may name any length.
	var content bytes.Buffer
	content.Grow(int(min(rec.stored(), 64<<10)))
	copied, err := io.CopyN(&content, r.r, rec.stored())
	r.n += copied
	if err != nil {
		if damage := (*DamageError)(nil); errors.As(r.fail(err), &damage) {
			damage.Plan = rec.plan()
			damage.Err = fmt.Errorf("%w, in the record that begins at byte %d", damage.Err, rec.at)
			return nil, damage
		}
		return nil, r.fail(err)
	}
	rec.content = content.Bytes()
	return rec, nil
}

// plans yields the records of plans, up to the end of the bundle. An error is the last element.
func (r *reader) plans(report *VerifyReport) iter.Seq2[*record, error] {
	return func(yield func(*record, error) bool) {
		plans := 0
		for {
			rec, err := r.next()
			switch {
			case r.manifest.Growing && isCut(err):
				report.Cut = true
				return
			case err != nil:
			case rec.kind() == kindPlan:
				plans++
				r.chain.Write(rec.header[sumAt:])
				if !yield(rec, nil) {
					return
				}
				continue
			case rec.kind() == kindEnd:
				err = r.finish(rec, plans, report)
			default:
				err = rec.damaged("there is no record of kind %q", rec.kind())
			}
			if err != nil {
				yield(nil, err)
			}
			return
		}
	}
}

// isCut reports whether a bundle ends before its end, or within a record.
func isCut(err error) bool {
	damage, ok := errors.AsType[*DamageError](err)
	return ok && errors.Is(damage.Err, errTruncated)
}

// finish compares the end with what came before it.
func (r *reader) finish(rec *record, plans int, report *VerifyReport) error {
	var e end
	if err := rec.readJSON(r.decoder, &e); err != nil {
		return err
	}
	if e.Plans != plans {
		return rec.damaged("the bundle had %d plans, and has %d", e.Plans, plans)
	}
	if !bytes.Equal(e.SHA256, r.chain.Sum(nil)) {
		return rec.damaged("records are missing, were replaced, or have another order")
	}
	report.Unreadable = e.Unreadable
	switch n, err := io.ReadFull(r.r, make([]byte, 1)); {
	case n > 0:
		return &DamageError{Byte: r.n, Err: fmt.Errorf("%w: there is more after the end of the bundle", storage.ErrCorrupt)}
	case !errors.Is(err, io.EOF):
		return r.fail(err)
	}
	return nil
}
