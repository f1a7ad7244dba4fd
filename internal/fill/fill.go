// Package fill fills an emulator with a vault of up to a million plans within seconds, for the bench and for tests.
package fill

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

const (
	RunningPlans = 10 // of each vault; the others are Completed
	GroupPlans   = 10 // of each group
)

// Filling is the contents of a vault: numbered plans, spread evenly from midnight of the first day to the end.
type Filling struct {
	Plans, Days int
	End         time.Time // in UTC
	Ended       bool      // no plan is Running
}

func (f Filling) start() time.Time {
	return f.End.Truncate(24*time.Hour).AddDate(0, 0, 1-f.Days)
}

// Created returns the creation time of plan i, in whole milliseconds as in its ID.
func (f Filling) Created(i int) time.Time {
	// Dividing first keeps the product within 64 bits.
	span := f.End.Sub(f.start())
	return f.start().Add(span / time.Duration(f.Plans) * time.Duration(i)).Truncate(time.Millisecond)
}

// ID returns the UUIDv7 of plan i.
func (f Filling) ID(i int) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:], uint64(f.Created(i).UnixMilli())<<16)
	binary.BigEndian.PutUint64(id[8:], uint64(i))
	id[6], id[8] = 0x70, 0x80 // version and variant of RFC 9562
	return id
}

// Group returns the group of plan i. The plans of a group lie far apart.
func (f Filling) Group(i int) uuid.UUID {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[8:], uint64(i%(f.Plans/GroupPlans))+1)
	return id
}

func (f Filling) Running(i int) bool {
	return !f.Ended && i%(f.Plans/RunningPlans) == f.Plans/RunningPlans/2
}

// First reports whether plan i is the first of its day.
func (f Filling) First(i int) bool {
	return i == 0 || f.Created(i).Truncate(24*time.Hour) != f.Created(i-1).Truncate(24*time.Hour)
}

// plan returns plan i as it is created. Completed plans have no sub-objects, which listings do not read.
func (f Filling) plan(i int) *workflow.Plan {
	p := &workflow.Plan{}
	if f.Running(i) {
		p = plantest.Small()
	}
	p.ID, p.GroupID, p.SubmitTime = f.ID(i), f.Group(i), f.Created(i)
	p.Name, p.Descr = "nightly report", "all regions, one after the other"
	return p
}

// Put stores plan i through a vault, as an engine does.
func (f Filling) Put(ctx context.Context, v *azblob.Vault, i int) error {
	p := f.plan(i)
	if err := v.Create(ctx, p); err != nil {
		return err
	}
	p.State.Status, p.State.Start = workflow.Running, p.SubmitTime
	if !f.Running(i) {
		p.State.Status, p.State.End = workflow.Completed, p.SubmitTime
	}
	return v.UpdatePlan(ctx, p)
}

// FillServer stores all plans in an emulator. Running plans, and one plan of each day, go through the vault:
// it creates and marks the containers. All other plans are copies of the blobs of one plan, with ID, group
// and times replaced.
func (f Filling) FillServer(ctx context.Context, server *emulator.Server, prefix string) error {
	v, err := Open(ctx, server, prefix)
	if err != nil {
		return err
	}
	defer v.Close(ctx)
	copies, err := f.template(ctx, prefix)
	if err != nil {
		return err
	}
	for i := range f.Plans {
		if f.Running(i) || f.First(i) {
			if err := f.Put(ctx, v, i); err != nil {
				return err
			}
			continue
		}
		values := f.values(i)
		for _, c := range copies {
			metadata := make(map[string]string, len(c.metadata))
			for name, value := range c.metadata {
				metadata[name] = value.with(values)
			}
			server.Put(c.container.with(values), c.name.with(values), []byte(c.body.with(values)), metadata)
		}
	}
	return nil
}

// Open opens a vault on an emulator.
func Open(ctx context.Context, server *emulator.Server, prefix string) (*azblob.Vault, error) {
	return azblob.NewFromConnectionString(ctx, prefix, server.ConnectionString(), plantest.Register(), azblob.WithTransport(server.Transport()))
}

// values are the strings that differ from plan to plan: ID, group, time and day.
type values [4]string

func (f Filling) values(i int) values {
	at := f.Created(i)
	return values{f.ID(i).String(), f.Group(i).String(), at.Format(time.RFC3339Nano), at.Format(time.DateOnly)}
}

// blobTemplate is a blob with placeholders for values.
type blobTemplate struct {
	container, name, body template
	metadata              map[string]template
}

// template returns the blobs of one completed plan.
func (f Filling) template(ctx context.Context, prefix string) ([]blobTemplate, error) {
	server := emulator.New(emulator.WithoutLog())
	v, err := Open(ctx, server, prefix)
	if err != nil {
		return nil, err
	}
	defer v.Close(ctx)
	i := 1 // neither running nor the first
	if err := f.Put(ctx, v, i); err != nil {
		return nil, err
	}
	old := f.values(i)
	var copies []blobTemplate
	for container := range server.Containers() {
		for b := range server.Blobs(container) {
			c := blobTemplate{cut(container, old), cut(b.Name, old), cut(string(b.Body), old), map[string]template{}}
			for name, value := range b.Metadata {
				c.metadata[name] = cut(value, old)
			}
			copies = append(copies, c)
		}
	}
	if len(copies) == 0 {
		return nil, fmt.Errorf("plan %s left no blobs", f.ID(i))
	}
	return copies, nil
}

// template is a text with placeholders. Each piece is a text and the index of the value that follows it, or
// -1.
type template []struct {
	text string
	hole int
}

// cut replaces the old values in a text by placeholders.
func cut(text string, old values) (t template) {
	for {
		at, hole := len(text), -1
		for i, value := range old { // a day is the start of a time, which comes before it
			if j := strings.Index(text, value); j >= 0 && j < at {
				at, hole = j, i
			}
		}
		t = append(t, struct {
			text string
			hole int
		}{text[:at], hole})
		if hole < 0 {
			return t
		}
		text = text[at+len(old[hole]):]
	}
}

// with replaces the placeholders by values.
func (t template) with(v values) string {
	var b strings.Builder
	n := 0
	for _, piece := range t {
		n += len(piece.text)
		if piece.hole >= 0 {
			n += len(v[piece.hole])
		}
	}
	b.Grow(n)
	for _, piece := range t {
		b.WriteString(piece.text)
		if piece.hole >= 0 {
			b.WriteString(v[piece.hole])
		}
	}
	return b.String()
}
