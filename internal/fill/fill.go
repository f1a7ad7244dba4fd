// Package fill fills an emulator with a vault of up to a million plans within seconds, for tests.
package fill

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/workflow"
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
	Open        int       // how many are Running; 0 for RunningPlans
	Waiting     bool      // these are NotStarted
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
	open := cmp.Or(f.Open, RunningPlans)
	return !f.Ended && (i*open+f.Plans/2)%f.Plans < open
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
	if err := v.Create(ctx, p); err != nil || f.Waiting && f.Running(i) {
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
	old, copies, err := f.template(ctx, prefix)
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
		var pairs []string
		for k, value := range f.values(i) {
			pairs = append(pairs, old[k], value)
		}
		text := strings.NewReplacer(pairs...)
		for _, b := range copies {
			metadata := make(map[string]string, len(b.Metadata))
			for name, value := range b.Metadata {
				metadata[name] = text.Replace(value)
			}
			server.Put(text.Replace(b.container), text.Replace(b.Name), []byte(text.Replace(string(b.Body))), metadata)
		}
	}
	return nil
}

// Open opens a vault on an emulator.
func Open(ctx context.Context, server *emulator.Server, prefix string) (*azblob.Vault, error) {
	return azblob.NewFromConnectionString(ctx, prefix, server.ConnectionString(), plantest.Register(), azblob.Options{ClientOptions: server.ClientOptions()})
}

// values returns the strings that differ from plan to plan: ID, group, time and day, which is the start of the time.
func (f Filling) values(i int) []string {
	at := f.Created(i)
	return []string{f.ID(i).String(), f.Group(i).String(), at.Format(time.RFC3339Nano), at.Format(time.DateOnly)}
}

type stored struct {
	container string
	emulator.Blob
}

// template returns the blobs of one completed plan, and its values.
func (f Filling) template(ctx context.Context, prefix string) (values []string, blobs []stored, err error) {
	server := emulator.New(emulator.Options{NoLog: true})
	v, err := Open(ctx, server, prefix)
	if err != nil {
		return nil, nil, err
	}
	defer v.Close(ctx)
	i := 1 // neither running nor the first
	if err := f.Put(ctx, v, i); err != nil {
		return nil, nil, err
	}
	for container := range server.Containers() {
		for b := range server.Blobs(container) {
			blobs = append(blobs, stored{container, b})
		}
	}
	if len(blobs) == 0 {
		return nil, nil, fmt.Errorf("plan %s left no blobs", f.ID(i))
	}
	return f.values(i), blobs, nil
}
