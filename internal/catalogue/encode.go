package catalogue

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

const (
	magic      = "planvcat"
	headerSize = len(magic) + 4*4

	// maxBlockPlans and maxBlockBytes end a block, the second by its size before compression.
	maxBlockPlans = 2000
	maxBlockBytes = 1 << 20
	// maxPageBytes ends a page of postings.
	maxPageBytes = 32 << 10
	// maxFront is the size of postings that follow the directory.
	maxFront = 320 << 10
)

// ErrTooLarge is the error of a catalogue that exceeds the limit of its Encoder.
var ErrTooLarge = errors.New("the catalogue is too large")

// Plan is a plan in a catalogue.
type Plan struct {
	// ListResult is what a listing returns, in UTC. Its State.ETag is the ETag of the entry alone.
	storage.ListResult
	// NameCut and DescrCut mean that the entry has more of the name, or of the description.
	NameCut, DescrCut bool
}

// Encoder makes a catalogue. It holds the blocks in their compressed form, and one for each status before
// compression.
type Encoder struct {
	container string
	limit     int
	zstd      *zstd.Encoder
	open      map[workflow.Status]*builder
	closed    []encoded
	postings  []posting
	last      uuid.UUID
	size      int // of the blocks that are closed
}

// encoded is a block in its compressed form.
type encoded struct {
	Block
	data []byte
}

// posting says how many plans of a group a block has.
type posting struct {
	group uuid.UUID
	block int // in the order in which blocks were closed; once they are sorted, in the order of the directory
	plans int
}

// NewEncoder returns an Encoder of the catalogue of a container, which may have at most limit bytes.
func NewEncoder(container string, limit int) (*Encoder, error) {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
	return &Encoder{container: container, limit: limit, zstd: z, open: map[workflow.Status]*builder{}}, err
}

// Add adds a plan. Plans must be added oldest first, as the service lists them.
func (e *Encoder) Add(p Plan) error {
	if bytes.Compare(p.ID[:], e.last[:]) <= 0 {
		return fmt.Errorf("plan %s does not come after plan %s", p.ID, e.last)
	}
	status := p.State.Status
	if !status.Valid() || !status.Final() {
		return fmt.Errorf("plan %s is %s", p.ID, status)
	}
	e.last = p.ID
	b := e.open[status]
	if b == nil {
		b = newBuilder(p)
		e.open[status] = b
	}
	b.add(p)
	if len(b.plans) == maxBlockPlans || b.size >= maxBlockBytes {
		delete(e.open, status)
		return e.close(b)
	}
	return nil
}

// close compresses a block.
func (e *Encoder) close(b *builder) error {
	plain := b.encode()
	data := e.zstd.EncodeAll(plain, nil)
	b.plainSize = len(plain)
	b.Section = sectionOf(data)
	for group, plans := range b.groups {
		e.postings = append(e.postings, posting{group, len(e.closed), plans})
	}
	e.closed = append(e.closed, encoded{b.Block, data})
	if e.size += len(data); e.size > e.limit {
		return fmt.Errorf("%w: its plans take more than %d bytes", ErrTooLarge, e.limit)
	}
	return nil
}

// Finish returns the catalogue. The Encoder must not be used any more.
func (e *Encoder) Finish() ([]byte, error) {
	for _, status := range slices.Sorted(maps.Keys(e.open)) {
		if err := e.close(e.open[status]); err != nil {
			return nil, err
		}
	}
	e.sortBlocks()
	pages, postings := e.pages()
	blocks := make([]Block, len(e.closed))
	for i, b := range e.closed {
		blocks[i] = b.Block
	}
	dir := appendDirectory(nil, e.container, pages, blocks)
	size := headerSize + len(dir) + len(postings) + e.size
	if size > e.limit {
		return nil, fmt.Errorf("%w: %d bytes, the limit is %d", ErrTooLarge, size, e.limit)
	}
	body := appendHeader(make([]byte, 0, size), dir)
	body = append(body, dir...)
	if len(postings) <= maxFront {
		body, postings = append(body, postings...), nil
	}
	for i := range e.closed {
		body = append(body, e.closed[i].data...)
		e.closed[i].data = nil
	}
	return append(body, postings...), nil
}

// sortBlocks sorts the blocks by their newest plan, and the postings by group and block.
func (e *Encoder) sortBlocks() {
	order := make([]int, len(e.closed))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return bytes.Compare(e.closed[j].Newest[:], e.closed[i].Newest[:]) })
	sorted, number := make([]encoded, len(order)), make([]int, len(order))
	for to, from := range order {
		sorted[to], number[from] = e.closed[from], to
	}
	e.closed = sorted
	for i := range e.postings {
		e.postings[i].block = number[e.postings[i].block]
	}
	slices.SortFunc(e.postings, func(a, b posting) int {
		return cmp.Or(bytes.Compare(a.group[:], b.group[:]), cmp.Compare(a.block, b.block))
	})
}

// pages returns the pages of the postings, and their content.
func (e *Encoder) pages() (pages []Page, all []byte) {
	var p Page
	begin := 0
	flush := func() {
		if p.groups > 0 {
			p.Section = sectionOf(all[begin:])
			pages = append(pages, p)
		}
		p, begin = Page{}, len(all)
	}
	for len(e.postings) > 0 {
		group := e.postings[0].group
		n := slices.IndexFunc(e.postings, func(x posting) bool { return x.group != group })
		if n < 0 {
			n = len(e.postings)
		}
		if p.groups == 0 {
			p.first = group
		}
		p.groups++
		all = append(all, group[:]...)
		all = binary.AppendUvarint(all, uint64(n))
		last := 0
		for _, x := range e.postings[:n] {
			all = binary.AppendUvarint(all, uint64(x.block-last))
			all = binary.AppendUvarint(all, uint64(x.plans))
			last = x.block
		}
		e.postings = e.postings[n:]
		if len(all)-begin >= maxPageBytes {
			flush()
		}
	}
	flush()
	return pages, all
}

// appendHeader appends the header of a catalogue with a directory.
func appendHeader(b, dir []byte) []byte {
	b = append(b, magic...)
	b = binary.BigEndian.AppendUint32(b, Schema)
	b = binary.BigEndian.AppendUint32(b, uint32(len(dir)))
	b = binary.BigEndian.AppendUint32(b, sumOf(dir))
	return binary.BigEndian.AppendUint32(b, sumOf(b))
}

// appendDirectory appends a directory.
func appendDirectory(b []byte, container string, pages []Page, blocks []Block) []byte {
	b = append(binary.AppendUvarint(b, uint64(len(container))), container...)
	b = binary.AppendUvarint(b, uint64(len(pages)))
	for _, p := range pages {
		b = p.Section.append(b)
		b = binary.AppendUvarint(b, uint64(p.groups))
		b = append(b, p.first[:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(blocks)))
	for _, k := range blocks {
		b = k.Section.append(b)
		b = binary.AppendUvarint(b, uint64(k.plainSize))
		b = binary.AppendUvarint(b, uint64(k.Plans))
		b = binary.AppendUvarint(b, uint64(k.Status))
		b = append(append(b, k.Newest[:]...), k.Oldest[:]...)
		b = appendTime(appendTime(b, k.FirstEnd), k.LastEnd)
	}
	return b
}

// append appends the length and the checksum of a section. Sections follow each other, so their offsets are
// known.
func (s Section) append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.AppendUvarint(b, uint64(s.Length)), s.sum)
}

// appendTime appends a time.
func appendTime(b []byte, t time.Time) []byte {
	return binary.AppendUvarint(binary.AppendVarint(b, t.Unix()), uint64(t.Nanosecond()))
}

func sectionOf(data []byte) Section { return Section{Length: len(data), sum: sumOf(data)} }

// castagnoli is the polynomial for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func sumOf(data []byte) uint32 { return crc32.Checksum(data, castagnoli) }

// The columns of a block. Values that are alike are neighbors, which compression needs.
const (
	colFlags   = iota
	colAge     // milliseconds to the plan before, in time
	colID      // the last 10 bytes
	colGroup   // reference into colGroups
	colGroups  // the groups of the block
	colOwner   // reference into colOwners
	colOwners  // the owners of the block
	colEpoch   //
	colSubmit  // seconds after the time in the ID
	colStart   // seconds after SubmitTime
	colEnd     // seconds after Start
	colNanos   // of all times
	colETag    // difference to the plan before
	colText    // references into colTexts: name, description, an ETag that is not a number, labels, ForkedFrom and SubmittedBy
	colLengths // of texts
	colTexts   // the texts of the block
	columns
)

// The flags of a plan, which take two bytes.
const (
	flagNameCut = 1 << iota
	flagDescrCut
	flagNoSubmit
	flagNoStart
	flagNoEnd
	flagTextETag
	flagLabels
	flagFork
	flagSubmittedBy
)

// builder makes a block.
type builder struct {
	Block
	plans  []Plan // oldest first
	size   int    // about the size before compression
	col    [columns][]byte
	texts  map[string]int             // 0 until a text is encoded, and then its place in the table
	ids    [columns]map[uuid.UUID]int // by reference column
	groups map[uuid.UUID]int          // how many plans each has
	before
}

// newBuilder returns a builder for a block that begins with a plan.
func newBuilder(first Plan) *builder {
	b := &builder{texts: map[string]int{}, groups: map[uuid.UUID]int{}}
	b.ids[colGroup], b.ids[colOwner] = map[uuid.UUID]int{}, map[uuid.UUID]int{}
	b.Status, b.Oldest = first.State.Status, first.ID
	b.FirstEnd, b.LastEnd = first.State.End, first.State.End
	return b
}

// typicalPlan is about what a plan takes without its texts, before compression.
const typicalPlan = 64

// add adds a plan, whose texts may be part of a page of a listing.
func (b *builder) add(p Plan) {
	p.Name, p.Descr, p.SubmittedBy, p.State.ETag = strings.Clone(p.Name), strings.Clone(p.Descr), strings.Clone(p.SubmittedBy), strings.Clone(p.State.ETag)
	b.size += typicalPlan
	for _, s := range []string{p.Name, p.Descr, p.SubmittedBy, workflow.FormatLabels(p.Labels)} {
		if _, ok := b.texts[s]; !ok {
			b.texts[s] = 0
			b.size += len(s)
		}
	}
	b.plans = append(b.plans, p)
	if p.GroupID != uuid.Nil {
		b.groups[p.GroupID]++
	}
	b.Newest = p.ID
	if p.State.End.Before(b.FirstEnd) {
		b.FirstEnd = p.State.End
	}
	if p.State.End.After(b.LastEnd) {
		b.LastEnd = p.State.End
	}
}

// encode returns the content of the block: the lengths of the columns, and the columns.
func (b *builder) encode() []byte {
	clear(b.texts)
	b.last = b.Newest
	for i := range slices.Backward(b.plans) {
		b.plan(&b.plans[i])
	}
	b.Plans, b.plans = len(b.plans), nil
	plain := make([]byte, 0, b.size)
	for _, c := range b.col {
		plain = binary.AppendUvarint(plain, uint64(len(c)))
	}
	for _, c := range b.col {
		plain = append(plain, c...)
	}
	return plain
}

func (b *builder) uvarint(col int, v uint64) { b.col[col] = binary.AppendUvarint(b.col[col], v) }
func (b *builder) varint(col int, v int64)   { b.col[col] = binary.AppendVarint(b.col[col], v) }

// plan encodes a plan.
func (b *builder) plan(p *Plan) {
	b.flags = 0
	for _, f := range fields {
		f.write(b, p)
	}
	b.col[colFlags] = binary.BigEndian.AppendUint16(b.col[colFlags], b.flags)
}

// time adds a time as the difference to the one before, or sets the flag if there is none.
func (b *builder) time(col int, none uint16, t time.Time) {
	if t.IsZero() {
		b.flags |= none
		return
	}
	b.varint(col, t.Unix()-b.seconds)
	b.uvarint(colNanos, uint64(t.Nanosecond()))
	b.seconds = t.Unix()
}

// A reference is 0 for a value that has not been there, and otherwise its place in the table, from 1.

func (b *builder) id(refs, table int, id uuid.UUID) {
	ref, ok := b.ids[refs][id]
	if !ok {
		b.ids[refs][id] = len(b.ids[refs]) + 1
		b.col[table] = append(b.col[table], id[:]...)
	}
	b.uvarint(refs, uint64(ref))
}

func (b *builder) text(s string) {
	ref, ok := b.texts[s]
	if !ok {
		b.texts[s] = len(b.texts) + 1
		b.uvarint(colLengths, uint64(len(s)))
		b.col[colTexts] = append(b.col[colTexts], s...)
	}
	b.uvarint(colText, uint64(ref))
}

// millis returns the time in an ID.
func millis(id uuid.UUID) uint64 { return binary.BigEndian.Uint64(id[:8]) >> 16 }

// parseETag returns the number in an ETag of the service's form.
func parseETag(etag string) (number uint64, ok bool) {
	digits, hex := strings.CutPrefix(etag, "0x")
	number, err := strconv.ParseUint(digits, 16, 64)
	return number, hex && err == nil && formatETag(number) == etag
}

func formatETag(number uint64) string {
	return "0x" + strings.ToUpper(strconv.FormatUint(number, 16))
}
