// Package bundle writes the plans of a vault to one stream, and restores them from it: into another prefix, another
// account, or a vault of another kind. [Export] writes a bundle, [Verify] checks one, and [Import] restores its
// plans. All of them take constant memory, however many plans there are.
//
// Use vaults with a nil registry. They need no plugins, and requests and responses then pass unchanged. A vault with a
// registry drops the members of their JSON that its types lack, and can't read plans of plugins that it lacks.
//
// An export is not a snapshot. Each plan is as it was at some time during the export, and a plan that exists
// throughout is in the bundle.
//
// # Format
//
// A bundle is a line of text and then records: a manifest, the plans, and an end. A record has 61 bytes of header:
//
//	kind    1 byte    M, P or E
//	plan    16 bytes  the ID of the plan, otherwise zero
//	size    4 bytes   the length of the content, big-endian
//	stored  4 bytes   the length of the content as it follows, compressed with zstd
//	check   4 bytes   the CRC-32C of the 25 bytes before it, so that no wrong length is believed
//	sum     32 bytes  the SHA-256 of the 29 bytes before it and of the content as it follows
//
// The content of manifest and end is JSON, and that of a plan is the JSON of package workflow without versions. The
// end has the number of plans, and the SHA-256 of the sums of all records before it. A bundle that was
// truncated, or that lacks a record, is therefore noticed. The manifest says of
// the bundle of a [Keeper] that it may have no end.
package bundle

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"iter"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// magic is the line that a bundle begins with.
const magic = "planvault bundle\n"

const (
	// format is the version of the records, and schema that of the plans' JSON. A reader refuses newer ones.
	format = 1
	schema = 1

	// maxSize is the largest content of a record, in bytes. A vault stores no plan that is larger.
	maxSize = 512 << 20

	defaultConcurrency = 16

	// maxHeld is how many bytes of plans are in memory before no more are read.
	maxHeld = 16 << 20
)

// Manifest is the first record of a bundle. It says what the bundle is.
type Manifest struct {
	// Format is the version of the bundle's form, and Schema that of the plans in it.
	Format int `json:"format"`
	Schema int `json:"schema"`
	// Created is when the export began, by the clock of the machine.
	Created time.Time `json:"created"`
	// Source is ExportOptions.Source.
	Source string `json:"source,omitempty"`
	// Growing says that a [Keeper] wrote the bundle, plan by plan. Such a bundle may lack its end.
	Growing bool `json:"growing,omitzero"`
}

// end is the last record of a bundle.
type end struct {
	Plans int `json:"plans"`
	// Unreadable is the number of plans that the export could not read.
	Unreadable int    `json:"unreadable,omitzero"`
	SHA256     []byte `json:"sha256"`
}

// DamageError says where a bundle is damaged or truncated. It is [storage.ErrCorrupt], or [storage.ErrSchema] if a
// newer program wrote the bundle.
type DamageError struct {
	// Byte is the position at which the damaged record begins, or at which the bundle ends too early.
	Byte int64
	// Plan is the plan of the record, as the record has it, or uuid.Nil.
	Plan uuid.UUID
	// Err says what is wrong.
	Err error
}

// Error returns the position, the plan and what is wrong, on one line.
func (e *DamageError) Error() string {
	at := fmt.Sprintf("byte %d", e.Byte)
	if e.Plan != uuid.Nil {
		at += ", plan " + e.Plan.String()
	}
	return (&storage.Error{Op: at, Err: e.Err}).Error()
}

// Unwrap returns what is wrong.
func (e *DamageError) Unwrap() error { return e.Err }

// The kinds of records.
const (
	kindManifest = 'M'
	kindPlan     = 'P'
	kindEnd      = 'E'
)

// checkAt and sumAt are where a header has its check and its sum, and headerSize is how long it is.
const (
	checkAt    = 1 + 16 + 4 + 4
	sumAt      = checkAt + crc32.Size
	headerSize = sumAt + sha256.Size
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is a part of a bundle. Its content is compressed.
type record struct {
	header  [headerSize]byte
	content []byte
	at      int64 // where it begins
}

// newRecord returns a record, given its content and how long that is when it is not compressed.
func newRecord(kind byte, plan uuid.UUID, size int, content []byte) *record {
	r := &record{content: content}
	b := append(r.header[:0], kind)
	b = append(b, plan[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	b = binary.BigEndian.AppendUint32(b, r.check())
	sum := r.sum()
	copy(r.header[len(b):], sum[:])
	return r
}

func (r *record) kind() byte      { return r.header[0] }
func (r *record) plan() uuid.UUID { return uuid.UUID(r.header[1:17]) }
func (r *record) size() int64     { return int64(binary.BigEndian.Uint32(r.header[17:])) }
func (r *record) stored() int64   { return int64(binary.BigEndian.Uint32(r.header[21:])) }
func (r *record) length() int64   { return headerSize + int64(len(r.content)) }

// check returns the checksum of the header.
func (r *record) check() uint32 { return crc32.Checksum(r.header[:checkAt], castagnoli) }

// sum returns the hash of the record.
func (r *record) sum() (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(r.header[:sumAt])
	h.Write(r.content)
	h.Sum(sum[:0])
	return sum
}

// damaged returns the error of a record that is not what was written.
func (r *record) damaged(text string, args ...any) error {
	return &DamageError{r.at, r.plan(), fmt.Errorf("%w: "+text, append([]any{storage.ErrCorrupt}, args...)...)}
}

// open checks a record and returns its content.
func (r *record) open(d *zstd.Decoder) ([]byte, error) {
	if sum := r.sum(); sum != [sha256.Size]byte(r.header[sumAt:]) {
		return nil, r.damaged("the SHA-256 of the record does not match")
	}
	content, err := d.DecodeAll(r.content, make([]byte, 0, r.size())) // no longer than that, whatever is in it
	if err != nil {
		return nil, r.damaged("%w", err)
	}
	if int64(len(content)) != r.size() {
		return nil, r.damaged("it has %d bytes, not %d", len(content), r.size())
	}
	return content, nil
}

// readJSON reads the content of a manifest or an end.
func (r *record) readJSON(d *zstd.Decoder, into any) error {
	content, err := r.open(d)
	if err == nil {
		if err = json.Unmarshal(content, into); err != nil {
			err = r.damaged("%w", err)
		}
	}
	return err
}

func newEncoder(concurrency int) (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(min(concurrency, runtime.GOMAXPROCS(0))),
		zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
}

func newDecoder(concurrency int) (*zstd.Decoder, error) {
	return zstd.NewReader(nil, zstd.WithDecoderConcurrency(min(concurrency, runtime.GOMAXPROCS(0))),
		zstd.WithDecoderMaxMemory(maxSize), zstd.WithDecodeAllCapLimit(true))
}

// limits are how much is done at a time.
type limits struct {
	concurrency int
	held        *atomic.Int64 // bytes
}

// limitsOf returns limits with the default in place of 0.
func limitsOf(concurrency int) (limits, error) {
	if concurrency < 0 {
		return limits{}, driver.Invalid("Concurrency", "%d is negative", concurrency)
	}
	return limits{cmp.Or(concurrency, defaultConcurrency), new(atomic.Int64)}, nil
}

// ordered calls work for each item, as many at a time as the limits allow, and done with the results, in the
// order of the items. After an error it begins nothing new, and returns the first error when all that was begun
// has been done.
func ordered[I, O any](l limits, items iter.Seq2[I, error], work func(I) O, done func(O) error) (first error) {
	var queue []chan O
	next := func() {
		out := <-queue[0]
		queue = queue[1:]
		if err := done(out); first == nil {
			first = err
		}
	}
	var last error
	for item, err := range items {
		for err == nil && first == nil && (len(queue) == l.concurrency || len(queue) > 0 && l.held.Load() >= maxHeld) {
			next()
		}
		if last = err; err != nil || first != nil {
			break
		}
		out := make(chan O, 1)
		queue = append(queue, out)
		go func() { out <- work(item) }()
	}
	for len(queue) > 0 {
		next()
	}
	if first == nil {
		first = last
	}
	return first
}

// faults are the errors of single plans. Beyond a number of them only the number is kept.
type faults struct {
	errs []error
	more int
}

// maxFaults is how many errors are kept.
const maxFaults = 100

func (f *faults) add(err error) {
	if len(f.errs) < maxFaults {
		f.errs = append(f.errs, err)
	} else {
		f.more++
	}
}

// join returns an error that has all of them, and err.
func (f *faults) join(err error) error {
	errs := f.errs
	if f.more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", f.more))
	}
	return errors.Join(append([]error{err}, errs...)...)
}

// failed returns the error of a call, or nil.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	return &storage.Error{Op: op, Err: err}
}
