package catalogue

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/planvault/azblob/workflow"
)

// ErrSchema is the error of a catalogue that newer code wrote.
var ErrSchema = errors.New("the catalogue has a newer schema")

// Damage is the error of bytes that no Encoder wrote.
type Damage struct {
	Part   string // such as "block 3"
	Offset int    // of the part in the catalogue
	What   string
}

func (d *Damage) Error() string {
	return fmt.Sprintf("the catalogue is damaged: %s at byte %d: %s", d.Part, d.Offset, d.What)
}

// Section is a part of a catalogue that is read as a whole.
type Section struct {
	Offset, Length int
	sum            uint32
}

// End is the offset of what follows the section.
func (s Section) End() int { return s.Offset + s.Length }

// check compares the content of a section with its checksum.
func (s Section) check(part string, data []byte) error {
	if len(data) != s.Length {
		return &Damage{part, s.Offset, fmt.Sprintf("it has %d bytes, not %d", len(data), s.Length)}
	}
	if sum := sumOf(data); sum != s.sum {
		return &Damage{part, s.Offset, fmt.Sprintf("its checksum is %08x, not %08x", sum, s.sum)}
	}
	return nil
}

// Directory says where everything in a catalogue is. It is not safe for concurrent use.
type Directory struct {
	Pages  []Page  // sorted by group
	Blocks []Block // sorted by their newest plan, newest first
	schema int
	zstd   *zstd.Decoder
}

// Page is a page of postings.
type Page struct {
	Section
	number int
	groups int
	first  uuid.UUID // group
}

// Block is a block of plans.
type Block struct {
	Section
	Number            int
	Status            workflow.Status // of all its plans
	Plans             int             // their number
	Newest, Oldest    uuid.UUID       // plan
	FirstEnd, LastEnd time.Time       // of its plans
	plainSize         int
}

// The least that an encoding takes, which bounds what a decoder allocates.
const (
	leastPage  = 1 + 4 + 1 + 16
	leastBlock = 1 + 4 + 1 + 1 + 1 + 2*16 + 2*2
)

// DirectorySize returns how many bytes of a catalogue have its header and directory. head is the start of the
// catalogue.
func DirectorySize(head []byte) (int, error) {
	if len(head) < headerSize || string(head[:len(magic)]) != magic {
		return 0, &Damage{"header", 0, "it is not that of a catalogue"}
	}
	u32 := binary.BigEndian.Uint32
	if sum := sumOf(head[:headerSize-4]); sum != u32(head[headerSize-4:]) {
		return 0, &Damage{"header", 0, fmt.Sprintf("its checksum is %08x, not %08x", sum, u32(head[headerSize-4:]))}
	}
	switch schema := u32(head[len(magic):]); {
	case schema < OldestSchema:
		return 0, &Damage{"header", 0, fmt.Sprintf("its schema %d does not name its day", schema)}
	case schema > Schema:
		return 0, fmt.Errorf("%w: %d, but this program knows only %d: update the program", ErrSchema, schema, Schema)
	}
	return headerSize + int(u32(head[len(magic)+4:])), nil
}

// ReadDirectory decodes the directory of the catalogue of a container. That of another one is [Damage]. head has at least its
// first [DirectorySize] bytes.
func ReadDirectory(head []byte, container string) (*Directory, error) {
	end, err := DirectorySize(head)
	if err != nil {
		return nil, err
	}
	if len(head) < end {
		return nil, &Damage{"directory", headerSize, fmt.Sprintf("it ends after %d bytes", len(head))}
	}
	in := input{part: "directory", offset: headerSize, rest: head[headerSize:end]}
	whole := Section{headerSize, len(in.rest), binary.BigEndian.Uint32(head[headerSize-8:])}
	if err := whole.check(in.part, in.rest); err != nil {
		return nil, err
	}
	if of := string(in.bytes(in.number())); in.err == nil && of != container {
		in.fail("it is the catalogue of %.63q, not of %s", of, container)
	}
	d := &Directory{schema: int(binary.BigEndian.Uint32(head[len(magic):])), Pages: make([]Page, in.count(leastPage))}
	for i := range d.Pages {
		d.Pages[i] = Page{Section: in.section(), number: i, groups: in.number(), first: in.id()}
		if i > 0 && bytes.Compare(d.Pages[i].first[:], d.Pages[i-1].first[:]) <= 0 {
			in.fail("page %d is not sorted", i)
		}
	}
	d.Blocks = make([]Block, in.count(leastBlock))
	for i := range d.Blocks {
		b := Block{
			Section: in.section(), Number: i, plainSize: in.number(), Plans: in.number(), Status: workflow.Status(in.number()),
			Newest: in.id(), Oldest: in.id(), FirstEnd: in.time(), LastEnd: in.time(),
		}
		switch {
		case !b.Status.Valid(), !b.Status.Final(), b.Plans == 0, b.plainSize > 2*maxBlockBytes, bytes.Compare(b.Newest[:], b.Oldest[:]) < 0:
			in.fail("block %d can't be", i)
		case i > 0 && bytes.Compare(b.Newest[:], d.Blocks[i-1].Newest[:]) >= 0:
			in.fail("block %d is not sorted", i)
		}
		d.Blocks[i] = b
	}
	if len(in.rest) > 0 {
		in.fail("%d bytes follow it", len(in.rest))
	}
	d.place(end)
	return d, in.err
}

// place sets the offsets of all sections.
func (d *Directory) place(at int) {
	postings := 0
	for _, p := range d.Pages {
		postings += p.Length
	}
	pages := func() {
		for i := range d.Pages {
			d.Pages[i].Offset = at
			at += d.Pages[i].Length
		}
	}
	if postings <= maxFront {
		pages()
	}
	for i := range d.Blocks {
		d.Blocks[i].Offset = at
		at += d.Blocks[i].Length
	}
	if postings > maxFront {
		pages()
	}
}

// Len returns the number of plans in the catalogue.
func (d *Directory) Len() (n int64) {
	for _, b := range d.Blocks {
		n += int64(b.Plans)
	}
	return n
}

// Posting says how many plans of a group a block has.
type Posting struct {
	Block, Plans int
}

// Postings returns the postings of some groups, given the content of a page.
func (d *Directory) Postings(p Page, data []byte, groups []uuid.UUID) (found []Posting, err error) {
	in := input{part: fmt.Sprintf("page %d", p.number), offset: p.Offset, rest: data}
	if err := p.check(in.part, data); err != nil {
		return nil, err
	}
	for range p.groups {
		group, block := in.id(), 0
		wanted := slices.Contains(groups, group)
		for range in.count(2) {
			block += in.number()
			plans := in.number()
			if block >= len(d.Blocks) {
				in.fail("there is no block %d", block)
				break
			}
			if wanted {
				found = append(found, Posting{block, plans})
			}
		}
		if in.err != nil {
			return nil, in.err
		}
	}
	if len(in.rest) > 0 {
		in.fail("%d bytes follow its last group", len(in.rest))
	}
	return found, in.err
}

// Plans decodes the plans of a block, newest first. An error is the last element. The texts of plans share
// memory: clone those that are kept.
func (d *Directory) Plans(b Block, data []byte) iter.Seq2[Plan, error] {
	return func(yield func(Plan, error) bool) {
		r := rows{in: input{part: fmt.Sprintf("block %d", b.Number), offset: b.Offset}, status: b.Status, schema: d.schema, before: before{last: b.Newest}}
		r.open(d, b, data)
		for i := range b.Plans {
			p := r.next()
			if r.in.err == nil && (i == 0 && p.ID != b.Newest || i == b.Plans-1 && p.ID != b.Oldest) {
				r.in.fail("plan %d is %s, which the directory does not say", i, p.ID)
			}
			if r.in.err != nil {
				yield(Plan{}, r.in.err)
				return
			}
			if !yield(p, nil) {
				return
			}
		}
		for _, c := range r.col {
			if len(c) > 0 {
				r.in.fail("%d bytes follow its last plan", len(c))
				yield(Plan{}, r.in.err)
				return
			}
		}
	}
}

// rows decodes a block plan by plan.
type rows struct {
	in     input
	col    [columns][]byte
	status workflow.Status
	schema int
	before
	plan   Plan // the last one
	groups ids
	owners ids
	texts  texts
}

// ids is a table of IDs, as far as they were referred to.
type ids struct {
	all  []byte
	seen int
}

// texts is a table of texts, as far as they were referred to.
type texts struct {
	all  string
	ends []uint32
}

// decompress returns the content of a block. The length is at most that of the block before compression.
func (d *Directory) decompress(b Block, data []byte) (plain []byte, err error) {
	if d.zstd == nil {
		d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			return nil, err
		}
	}
	return d.zstd.DecodeAll(data, make([]byte, 0, b.plainSize))
}

// open decompresses a block and finds its columns.
func (r *rows) open(d *Directory, b Block, data []byte) {
	if r.in.err = b.check(r.in.part, data); r.in.err != nil {
		return
	}
	plain, err := d.decompress(b, data)
	if err != nil || len(plain) != b.plainSize {
		r.in.fail("it can't be decompressed to %d bytes: %d bytes, %v", b.plainSize, len(plain), err)
		return
	}
	r.in.rest = plain
	var lengths [columns]int
	for i := range lengths {
		lengths[i] = r.in.number()
	}
	for i, n := range lengths {
		r.col[i] = r.in.bytes(n)
	}
	if len(r.in.rest) > 0 {
		r.in.fail("%d bytes follow its columns", len(r.in.rest))
	}
	r.groups.all, r.owners.all, r.texts.all = r.col[colGroups], r.col[colOwners], string(r.col[colTexts])
	r.col[colGroups], r.col[colOwners], r.col[colTexts] = nil, nil, nil
}

// next decodes a plan.
func (r *rows) next() Plan {
	if r.schema <= oneByteOfFlags {
		r.flags = uint16(r.bytes(colFlags, 1)[0])
	} else {
		r.flags = binary.BigEndian.Uint16(r.bytes(colFlags, 2))
	}
	r.plan = Plan{}
	for _, f := range fields {
		f.read(r, &r.plan)
	}
	return r.plan
}

// bytes returns the next n bytes of a column.
func (r *rows) bytes(col, n int) []byte {
	if len(r.col[col]) < n {
		r.in.fail("column %d ends", col)
		return make([]byte, n)
	}
	b := r.col[col][:n]
	r.col[col] = r.col[col][n:]
	return b
}

func (r *rows) uvarint(col int) uint64 {
	v, n := binary.Uvarint(r.col[col])
	if n <= 0 {
		r.in.fail("column %d ends", col)
		return 0
	}
	r.col[col] = r.col[col][n:]
	return v
}

func (r *rows) varint(col int) int64 {
	u := r.uvarint(col)
	return int64(u>>1) ^ -int64(u&1)
}

// time reads a time, unless the flag says that there is none.
func (r *rows) time(col int, none uint16) time.Time {
	if r.flags&none != 0 {
		return time.Time{}
	}
	r.seconds += r.varint(col)
	nanos := r.uvarint(colNanos)
	if nanos > 999_999_999 {
		r.in.fail("a second has no %d nanoseconds", nanos)
		return time.Time{}
	}
	return time.Unix(r.seconds, int64(nanos)).UTC()
}

// id resolves a reference.
func (r *rows) id(refs int, table *ids) (id uuid.UUID) {
	ref := r.uvarint(refs)
	if ref == 0 {
		table.seen++
		ref = uint64(table.seen)
	}
	if ref > uint64(table.seen) || int(ref)*len(id) > len(table.all) {
		r.in.fail("there is no ID %d", ref)
		return uuid.Nil
	}
	copy(id[:], table.all[int(ref-1)*len(id):])
	return id
}

// text resolves a reference.
func (r *rows) text() string {
	t := &r.texts
	ref := r.uvarint(colText)
	if ref == 0 {
		begin, length := t.end(len(t.ends)), r.uvarint(colLengths)
		if length > uint64(len(t.all)-begin) {
			r.in.fail("a text of %d bytes is too long", length)
			return ""
		}
		t.ends = append(t.ends, uint32(begin+int(length)))
		ref = uint64(len(t.ends))
	}
	if ref > uint64(len(t.ends)) {
		r.in.fail("there is no text %d", ref)
		return ""
	}
	return t.all[t.end(int(ref)-1):t.end(int(ref))]
}

// end returns where the first n texts end.
func (t *texts) end(n int) int {
	if n == 0 {
		return 0
	}
	return int(t.ends[n-1])
}

// input reads a section from its start. After the first failure its methods return zero values.
type input struct {
	part   string
	offset int
	rest   []byte
	err    error
}

func (in *input) fail(format string, args ...any) {
	if in.err == nil {
		in.err = &Damage{in.part, in.offset, fmt.Sprintf(format, args...)}
	}
	in.rest = nil
}

func (in *input) bytes(n int) []byte {
	if n > len(in.rest) {
		in.fail("it ends too soon")
		return nil
	}
	b := in.rest[:n]
	in.rest = in.rest[n:]
	return b
}

// number reads a number that fits into 31 bits.
func (in *input) number() int {
	v, n := binary.Uvarint(in.rest)
	if n <= 0 || v > math.MaxInt32 {
		in.fail("it has no number where it should")
		return 0
	}
	in.rest = in.rest[n:]
	return int(v)
}

// count reads the number of things that follow, which take at least so many bytes each.
func (in *input) count(least int) int {
	n := in.number()
	if n > len(in.rest)/least {
		in.fail("%d parts don't fit into %d bytes", n, len(in.rest))
		return 0
	}
	return n
}

func (in *input) id() (id uuid.UUID) {
	copy(id[:], in.bytes(len(id)))
	return id
}

func (in *input) section() (s Section) {
	s.Length = in.number()
	if b := in.bytes(4); b != nil {
		s.sum = binary.BigEndian.Uint32(b)
	}
	return s
}

func (in *input) time() time.Time {
	seconds, n := binary.Varint(in.rest)
	if n <= 0 {
		in.fail("it has no time where it should")
		return time.Time{}
	}
	in.rest = in.rest[n:]
	nanos := in.number()
	if nanos > 999_999_999 {
		in.fail("a second has no %d nanoseconds", nanos)
	}
	return time.Unix(seconds, int64(nanos)).UTC()
}
