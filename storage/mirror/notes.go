package mirror

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/planvault/azblob/internal/plannote"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// The pauses and signals of plans are notes, which the copy has under the names of the source's. A plan of the copy has seen no
// note that the copy lacks: notes are copied before plans, and removed after them.

// notes are the notes about plans, at both sides.
type notes struct {
	source storage.Control

	copying sync.Mutex
	there   map[string]storage.Note // what the source had in this run
	copied  map[string]storage.Note // what the copy has
	behind  map[uuid.UUID]bool      // plans that could not be brought up to date; uuid.Nil stands for any
}

func planNotes(r storage.Roster) map[string]storage.Note {
	found := map[string]storage.Note{}
	for _, n := range r.Notes {
		if _, ok := plannote.Plan(n.Name); ok {
			found[n.Name] = n
		}
	}
	return found
}

// withNotes brings plans up to date, and the notes about them, as a roster of the source has them.
func (r *run) withNotes(ctx context.Context, source storage.Control, there storage.Roster, plans func(ctx context.Context) error) error {
	r.notes = &notes{source: source, there: map[string]storage.Note{}, copied: planNotes(r.roster), behind: map[uuid.UUID]bool{}}
	if err := r.bringNotes(ctx, there); err != nil {
		return err
	}
	if err := plans(ctx); err != nil || r.report.More {
		return err
	}
	return r.dropNotes(ctx)
}

// bringNotes copies the notes that the copy lacks, or that were stored in the source since they were copied.
func (r *run) bringNotes(ctx context.Context, there storage.Roster) error {
	n := r.notes
	n.copying.Lock()
	defer n.copying.Unlock()
	due := map[string]storage.Note{}
	for name, note := range planNotes(there) {
		copied, known := n.copied[name]
		if note.Version != n.there[name].Version && (!known || note.Stored.After(copied.Stored)) {
			due[name] = note
		}
		n.there[name] = note
	}
	return r.eachNote(ctx, due, func(ctx context.Context, note storage.Note) (changed bool, err error) {
		note, err = n.source.FindNote(ctx, note.Name)
		if err == nil {
			note.Version = n.copied[note.Name].Version
			err = r.write(ctx, func(ctx context.Context) error { _, err := r.to.PutNote(ctx, note); return err })
		}
		return true, err
	})
}

// dropNotes removes the notes that the source had no more before the plans were copied. A roster may miss a note, so the source
// is asked again. A plan that could not be brought up to date keeps its notes.
func (r *run) dropNotes(ctx context.Context) error {
	n := r.notes
	due := maps.Clone(n.copied)
	maps.DeleteFunc(due, func(name string, _ storage.Note) bool {
		_, there := n.there[name]
		plan, _ := plannote.Plan(name)
		return there || n.behind[plan] || n.behind[uuid.Nil]
	})
	return r.eachNote(ctx, due, func(ctx context.Context, note storage.Note) (changed bool, err error) {
		if _, err = n.source.FindNote(ctx, note.Name); !errors.Is(err, storage.ErrNotFound) {
			return false, err
		}
		return true, r.write(ctx, func(ctx context.Context) error { return r.to.RemoveNote(ctx, note.Name, note.Version) })
	})
}

// eachNote calls change for the notes about the plans that the options select, and counts what it changes.
func (r *run) eachNote(ctx context.Context, due map[string]storage.Note, change func(ctx context.Context, n storage.Note) (changed bool, err error)) error {
	selected := storage.Filters{After: r.opts.After, Before: r.opts.Before}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(cmp.Or(r.opts.Concurrency, defaultConcurrency))
	for name, n := range due {
		plan, _ := plannote.Plan(name)
		if !driver.ChooseID(selected, plan) {
			continue
		}
		g.Go(func() error {
			changed, err := true, error(nil)
			if !r.opts.DryRun {
				changed, err = change(ctx, n)
			}
			switch {
			case errors.Is(err, storage.ErrExists), errors.Is(err, storage.ErrConflict), errors.Is(err, storage.ErrNotFound):
				// Somebody else has changed the note, and the next run looks again.
			case err != nil && ends(ctx, err):
				return err
			case err != nil:
				r.failed(err)
			case changed:
				r.count(func(report *Report) { report.Notes++ })
			}
			return nil
		})
	}
	return g.Wait()
}

// writePlan writes a plan of the source, after the notes that it has seen.
func (r *run) writePlan(ctx context.Context, plan *workflow.Plan, do func(ctx context.Context) error) error {
	if r.notes != nil && r.sawMore(plan) {
		there, err := r.notes.source.Roster(ctx)
		if err == nil {
			err = r.bringNotes(ctx, there)
		}
		if err != nil {
			return err
		}
	}
	return r.write(ctx, do)
}

// sawMore reports whether an open plan has seen notes that the run has not.
func (r *run) sawMore(plan *workflow.Plan) bool {
	r.notes.copying.Lock()
	defer r.notes.copying.Unlock()
	lacks := func(name string) bool { _, there := r.notes.there[name]; return !there }
	if plan.State.Status.Final() {
		return false
	}
	if plan.Paused != (workflow.Attribution{}) && lacks(plannote.Pause(plan.ID)) {
		return true
	}
	for o := range workflow.Walk(plan) {
		a, ok := o.(*workflow.Action)
		if ok && a.Later() != nil && a.Later().LastSignal > 0 && lacks(plannote.Signal(plan.ID, a.Later().LastSignal)) {
			return true
		}
	}
	return false
}

// keepNotes keeps the notes about a plan that could not be brought up to date.
func (r *run) keepNotes(plan uuid.UUID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.notes != nil {
		r.notes.behind[plan] = true
	}
}
