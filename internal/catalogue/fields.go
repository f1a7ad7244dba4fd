package catalogue

import (
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/planvault/azblob/workflow"
)

// Schema is the version of the form that is written, and OldestSchema the oldest one that is read. Schema 1 did not
// name the container of the day, schema 2 had no labels, schema 3 no forks, and schema 4 no submitters and one byte of flags
// for each plan.
const (
	Schema       = 5
	OldestSchema = 2

	oneByteOfFlags = 4 // the last schema
)

// field is how a block has a field of [storage.ListResult].
type field struct {
	name  string
	write func(b *builder, p *Plan)
	read  func(r *rows, p *Plan)
}

// fields has a row for each field of [storage.ListResult], but for WakeAt, LastSignal, External and what is about turns: a
// day with a catalogue has no open plans. The values in columns that fields share are in the order of
// the rows.
var fields = []field{
	{"ID", (*builder).planID, (*rows).planID},
	{"GroupID", func(b *builder, p *Plan) { b.id(colGroup, colGroups, p.GroupID) }, func(r *rows, p *Plan) { p.GroupID = r.id(colGroup, &r.groups) }},
	{"Owner", func(b *builder, p *Plan) { b.id(colOwner, colOwners, p.Owner) }, func(r *rows, p *Plan) { p.Owner = r.id(colOwner, &r.owners) }},
	{"Epoch", func(b *builder, p *Plan) { b.varint(colEpoch, p.Epoch) }, func(r *rows, p *Plan) { p.Epoch = r.varint(colEpoch) }},
	{"SubmitTime", func(b *builder, p *Plan) { b.time(colSubmit, flagNoSubmit, p.SubmitTime) }, func(r *rows, p *Plan) { p.SubmitTime = r.time(colSubmit, flagNoSubmit) }},
	{"Name", func(b *builder, p *Plan) { b.cutText(p.Name, flagNameCut, p.NameCut) }, func(r *rows, p *Plan) { p.Name, p.NameCut = r.cutText(flagNameCut) }},
	{"Descr", func(b *builder, p *Plan) { b.cutText(p.Descr, flagDescrCut, p.DescrCut) }, func(r *rows, p *Plan) { p.Descr, p.DescrCut = r.cutText(flagDescrCut) }},
	{"State", (*builder).state, (*rows).state},
	{"Labels", (*builder).labels, (*rows).labels},
	{"ForkedFrom", (*builder).forkedFrom, (*rows).forkedFrom},
	{"SubmittedBy", (*builder).submittedBy, (*rows).submittedBy},
}

// before is what the next value is the difference to, and the flags of the plan.
type before struct {
	flags   uint16
	seconds int64     // the time before, which is the plan's own
	last    uuid.UUID // the plan before
	etag    uint64    // of the plan before
}

func (b *builder) planID(p *Plan) {
	ms := millis(p.ID)
	b.uvarint(colAge, millis(b.last)-ms)
	b.col[colID] = append(b.col[colID], p.ID[6:]...)
	b.last, b.seconds = p.ID, int64(ms/1000)
}

func (r *rows) planID(p *Plan) {
	ms := millis(r.last) - r.uvarint(colAge)
	binary.BigEndian.PutUint64(p.ID[:8], ms<<16)
	copy(p.ID[6:], r.bytes(colID, 10))
	r.last, r.seconds = p.ID, int64(millis(p.ID)/1000)
}

// state encodes a state but for its status, which is the block's.
func (b *builder) state(p *Plan) {
	b.time(colStart, flagNoStart, p.State.Start)
	b.time(colEnd, flagNoEnd, p.State.End)
	if number, ok := parseETag(p.State.ETag); ok {
		b.varint(colETag, int64(number-b.etag))
		b.etag = number
	} else {
		b.flags |= flagTextETag
		b.text(p.State.ETag)
	}
}

func (r *rows) state(p *Plan) {
	p.State = workflow.State{Status: r.status, Start: r.time(colStart, flagNoStart), End: r.time(colEnd, flagNoEnd)}
	if r.flags&flagTextETag != 0 {
		p.State.ETag = r.text()
	} else {
		r.etag += uint64(r.varint(colETag))
		p.State.ETag = formatETag(r.etag)
	}
}

// cutText encodes a text, and whether it is cut.
func (b *builder) cutText(text string, flag uint16, cut bool) {
	if b.text(text); cut {
		b.flags |= flag
	}
}

func (r *rows) cutText(flag uint16) (text string, cut bool) { return r.text(), r.flags&flag != 0 }

func (b *builder) labels(p *Plan) {
	if len(p.Labels) > 0 {
		b.flags |= flagLabels
		b.text(workflow.FormatLabels(p.Labels))
	}
}

func (r *rows) labels(p *Plan) {
	if r.flags&flagLabels == 0 {
		return
	}
	var err error
	if p.Labels, err = workflow.ParseLabels(r.text()); err != nil {
		r.in.fail("labels: %v", err)
	}
}

func (b *builder) forkedFrom(p *Plan) {
	if p.ForkedFrom != uuid.Nil {
		b.flags |= flagFork
		b.text(string(p.ForkedFrom[:]))
	}
}

func (r *rows) forkedFrom(p *Plan) {
	if r.flags&flagFork == 0 {
		return
	}
	if text := r.text(); copy(p.ForkedFrom[:], text) != len(text) || len(text) != len(p.ForkedFrom) {
		r.in.fail("the plan that plan %s was forked from has an ID of %d bytes", p.ID, len(text))
	}
}

func (b *builder) submittedBy(p *Plan) {
	if p.SubmittedBy != "" {
		b.flags |= flagSubmittedBy
		b.text(p.SubmittedBy)
	}
}

func (r *rows) submittedBy(p *Plan) {
	if r.flags&flagSubmittedBy != 0 {
		p.SubmittedBy = r.text()
	}
}
