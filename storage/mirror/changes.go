package mirror

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// created returns the creation time of a plan.
func created(id uuid.UUID) time.Time { return workflow.Time(id) }

// open are the statuses of plans that change.
var open = []workflow.Status{workflow.NotStarted, workflow.Running}

// running is a Running plan of the source, whose sub-objects may have changed.
type running struct {
	state string // the version of the plan itself
	there bool   // the copy has it
	same  bool   // and lists it as the source does
}

// changes brings up to date what may have changed since a time: the plans that were created since then, with some
// overlap, and those that are open, in the source or in the copy. The zero time means everything. seen are the revisions of
// the Running plans that the copy has. changes returns those that it has afterwards, also after an error.
func (r *run) changes(ctx context.Context, since time.Time, seen map[uuid.UUID]string) (map[uuid.UUID]string, error) {
	c := &changes{run: r, runs: map[uuid.UUID]running{}, has: map[uuid.UUID]string{}}
	windows := []storage.Filters{{}}
	if !since.IsZero() {
		since = since.Add(-overlap)
		windows = []storage.Filters{{After: since}, {ByStatus: open, Before: since.Add(time.Millisecond)}}
	}
	for _, w := range windows {
		if err := c.window(ctx, w, func(s, there *storage.ListResult) (*storage.ListResult, bool) {
			switch {
			case s == nil && w.ByStatus != nil:
				return changed(there.ID), true // it has ended in the source, or was deleted
			case s == nil || s.State.Status != workflow.Running:
				return s, true
			}
			c.runs[s.ID] = running{s.State.ETag, there != nil, there != nil && sameListing(*s, *there)}
			return nil, false
		}); err != nil {
			return seen, err
		}
	}
	err := c.bringRunning(ctx, seen)
	return c.has, err
}

// changes is the work of a round on what has changed.
type changes struct {
	*run
	runs map[uuid.UUID]running

	having sync.Mutex
	has    map[uuid.UUID]string // the revisions of the Running plans that the copy has now
}

// bringRunning brings the Running plans of the source up to date, but for those that have not changed since the copy was
// given them. Revisions are asked for before a plan is read: a later change makes another one.
func (c *changes) bringRunning(ctx context.Context, seen map[uuid.UUID]string) error {
	revisions := map[uuid.UUID]string{}
	if v, ok := storage.As[Reviser](c.from); ok && len(c.runs) > 0 {
		var err error
		if revisions, err = v.Revisions(ctx, slices.Collect(maps.Keys(c.runs))); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(c.opts.Concurrency, defaultConcurrency))
	for id, p := range c.runs {
		revision, known := revisions[id]
		revision = p.state + " " + revision
		if known && p.same && seen[id] == revision {
			c.count(func(report *Report) { report.Plans++; report.Unchanged++ })
			c.note(id, revision)
			continue
		}
		g.Go(func() error {
			var there *storage.ListResult
			if p.there {
				there = changed(id)
			}
			ok, err := c.plan(ctx, changed(id), there)
			if ok && known {
				c.note(id, revision)
			}
			return err
		})
	}
	return g.Wait()
}

// note notes the revision of a plan that the copy has.
func (c *changes) note(id uuid.UUID, revision string) {
	c.having.Lock()
	defer c.having.Unlock()
	c.has[id] = revision
}

// changed stands for what the source lists of a plan that is to be read.
func changed(id uuid.UUID) *storage.ListResult {
	return &storage.ListResult{ID: id, State: workflow.State{Status: workflow.Running}}
}
