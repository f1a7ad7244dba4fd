package azblob

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// RepairOptions are the options of [Admin.Repair].
type RepairOptions struct {
	// By says who asks, and why, for the audit log. Its At is ignored. Required, but for a dry run.
	By workflow.Attribution
	// DryRun changes nothing. The report says what would be done.
	DryRun bool
	// Thorough also repairs what no crash leaves: blobs that were lost or written late, from outside. It
	// lists everything that is stored and reads the object of each plan, so its cost grows with the history.
	// In addition to the default, it
	//   - restores the lost marker of an open plan, without which neither Recovery nor a search for open plans finds the plan;
	//   - rewrites lost sub-objects from the object, as they were when the object was written. In a Running plan they are then
	//     NotStarted again and may run again; the report says so;
	//   - restores a lost entry from the object: that of a final plan as it was, any other as Running, because nobody can know
	//     whether the plan had started;
	//   - removes what belongs to no plan: entries and sub-objects without a plan or a marker, and sub-objects that the
	//     object of their plan does not name. It leaves them alone until the grace period and the margin are over;
	//   - compares the catalogues with their days, and builds those anew that are damaged or differ;
	//   - reports strays.
	//
	// A rewrite that races with a Delete of the plan can leave sub-objects behind. The next thorough run
	// removes them.
	Thorough bool
	// Progress is called after each plan that was looked at: those with markers, or all if it is thorough. The total is
	// unknown. It may be nil.
	Progress func(storage.Progress)
}

// RepairReport is what [Admin.Repair] found and did.
type RepairReport struct {
	// Days is the number of containers that were listed.
	Days int
	// Open is the number of plans that are NotStarted or Running, and whole.
	Open int
	// Recent is the number of plans that were left alone because another process may be at work on them: they
	// were written less than the grace period and the margin ago, or changed during the run. A later Repair
	// finishes them.
	Recent int
	// Foreign is the number of plans, and of remains of plans, that another program wrote. They are left alone. Unless it
	// is thorough, Repair does not see those in days of the vault.
	Foreign int
	// Plans are the plans that were repaired, would be in a dry run, or could not be, newest first. A plan
	// that needed several repairs is listed once for each.
	Plans []RepairedPlan
	// Catalogues are the days whose catalogue was damaged or differed from the day. A thorough Repair has built it anew, or
	// only removed it if a plan of the day is open.
	Catalogues []storage.Day
	// Strays are the blobs that no vault writes, as container/name, in no order. Only a thorough Repair
	// looks for them, and it leaves them alone.
	Strays []string
}

// Recovery finishes or removes what crashed processes left, for a service that starts. It is what [Admin.Repair] does by
// default, says nothing of what it did, and is not in the audit log. The error joins those of the plans that could not be
// repaired. A person who wants to know what is wrong, or to repair what no crash leaves, calls [Admin.Repair].
func (v *Vault) Recovery(ctx context.Context) error {
	return v.call(ctx, opRecovery, uuid.Nil, func(ctx context.Context) error {
		return (&recovery{store: v.store, begin: func() {}}).run(ctx)
	})
}

// opRecovery is what observers see.
const opRecovery = "Recovery"

// Repair is for a person, and reports what it finds and does; a service that starts calls [Vault.Recovery]. It finishes or
// removes what crashed processes left: unfinished Creates and Deletes, and unfinished
// updates to a final status. It finds them by their markers, so its cost grows with the number of open plans
// and not with the history: one listing for each day, two requests for each open plan or a listing for many of
// them, and the repairs.
//
// Repair leaves recent plans alone, because another process may be at work on them. It measures their age by
// the service's clock, and waits for the longest grace period of all vaults that wrote the plan's markers. It
// removes nothing on the evidence of a single answer: a request for a blob and a listing must agree that the
// blob is gone. Damage that no crash of a vault can cause is reported, and nothing is removed.
//
// Repair may run on several nodes at once and beside all other calls. It may be stopped at any point and run
// again. If it can't repair a plan it goes on with the others; the error joins those of all plans, and the
// report is complete. Observers see Repair as Recovery. The audit log has a Repair of a plan, which takes two requests more;
// see [storage.Audit].
func (a *Admin) Repair(ctx context.Context, o RepairOptions) (report RepairReport, err error) {
	r := recovery{store: a.store, opts: o, begin: func() {}}
	err = a.call(ctx, opRecovery, uuid.Nil, func(ctx context.Context) error {
		if o.DryRun {
			return r.run(ctx)
		}
		return a.audit(ctx, storage.AuditEntry{What: "repair", By: o.By}, func(ctx context.Context, begin func()) error {
			r.begin = begin
			return r.run(ctx)
		})
	})
	slices.SortFunc(r.report.Plans, func(a, b RepairedPlan) int { return driver.NewestFirst(a.ID, b.ID) })
	return r.report, err
}

// recovery is a Repair that is running.
type recovery struct {
	*store
	opts  RepairOptions
	begin func() // before the first repair

	mu       sync.Mutex
	report   RepairReport
	errs     []error
	dropping map[string]bool // the containers with the mark of an expiry
	looked   int             // plans that were looked at

	catalogued []day // that may have a catalogue; of a thorough Repair
}

// run recovers the plans of all days. A day that can't be listed, or a plan that can't be repaired, does not
// stop the others.
func (r *recovery) run(ctx context.Context) error {
	days, err := r.days(ctx)
	if err != nil {
		return err
	}
	r.report.Days = len(days)
	list := r.candidates
	if r.opts.Thorough {
		list = r.allPlans
	}
	var workers sync.WaitGroup
	plans := make(chan planBlobs)
	for range r.concurrency {
		workers.Go(func() {
			for b := range plans {
				if err := r.recoverPlan(ctx, b); err != nil {
					r.failed(opError("", b.keys.plan, err))
				}
				r.sawPlan()
			}
		})
	}
	for b, err := range list(ctx, days) {
		if err != nil {
			r.failed(err)
			continue
		}
		plans <- b
	}
	close(plans)
	workers.Wait()
	for _, container := range slices.Sorted(maps.Keys(r.dropping)) {
		if err := r.clearExpiry(ctx, container); err != nil {
			r.failed(err)
		}
	}
	c := cataloguing{store: r.store, opts: CatalogueOptions{Verify: true, DryRun: r.opts.DryRun}}
	r.report.Catalogues, err = c.mend(ctx, r.catalogued)
	return errors.Join(append(r.errs, err)...)
}

// sawPlan notes that a plan was looked at.
func (r *recovery) sawPlan() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.looked++; r.opts.Progress != nil {
		r.opts.Progress(storage.Progress{Done: r.looked})
	}
}

// sawDropping notes that a container has the mark of an expiry.
func (r *recovery) sawDropping(container string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropping == nil {
		r.dropping = map[string]bool{}
	}
	r.dropping[container] = true
}

// clearExpiry removes what an expiry left that did not finish. While it is there, no plan can be created in the
// day.
func (r *recovery) clearExpiry(ctx context.Context, container string) error {
	if r.opts.DryRun {
		return nil
	}
	err := r.lookForExpiry(ctx, container)
	if errors.Is(err, storage.ErrConflict) {
		return nil // it is at work
	}
	return err
}

// candidates yields the plans that may need a repair. An error stands for the rest of a day.
func (r *recovery) candidates(ctx context.Context, days []day) iter.Seq2[planBlobs, error] {
	return func(yield func(planBlobs, error) bool) {
		marked := map[uuid.UUID]bool{} // in days that may have plans without markers
		markers := r.listDays(ctx, days, openDir, pageOfMarkers(len(days)))
		markers = r.listNeighbors(ctx, markers, 2, 0, anyName)
		unmarked := slices.DeleteFunc(slices.Clone(days), func(d day) bool { return d.marked })
		for p, err := range markers {
			if err == nil && !p.marked {
				marked[p.keys.plan] = true
			}
			if !yield(p.planBlobs, err) {
				return
			}
		}
		// The vault did not make these containers, so their open plans may lack markers.
		for p, err := range r.listDays(ctx, unmarked, plansDir, blob.MaxPage) {
			if !marked[p.keys.plan] && !yield(p.planBlobs, err) {
				return
			}
		}
	}
}

// listDays lists the plans of a directory of many days at once, without those that are known to be final.
func (r *recovery) listDays(ctx context.Context, days []day, dir string, page int) iter.Seq2[candidate, error] {
	var pieces []listing.Day[candidate]
	for _, w := range stretches(days, storage.Filters{}) {
		d := directory{store: r.store, day: w.day, dir: dir, metadataOf: anyName, dropping: r.sawDropping}
		pieces = append(pieces, listing.Day[candidate]{Span: w.Span, Source: repairable{d}})
	}
	return listing.Newest(ctx, pieces, r.pages(page))
}

// repairable lists the plans of a directory that may need a repair.
type repairable struct{ directory }

func (l repairable) Read(ctx context.Context, s listing.Span, most int) (listing.Page[candidate], error) {
	page, err := l.directory.Read(ctx, s, most)
	page.Items = slices.DeleteFunc(page.Items, func(p candidate) bool {
		return p.committed() && blobStatusOf(p.entry) == final && blobStatusOf(p.object) == final
	})
	return page, err
}

// anyName selects the metadata of all blobs: markers have grace periods, entries and objects have states.
func anyName(string) bool { return true }

// allPlans yields all plans of all days with all their blobs, and reports strays.
func (r *recovery) allPlans(ctx context.Context, days []day) iter.Seq2[planBlobs, error] {
	return func(yield func(planBlobs, error) bool) {
		for _, d := range days {
			stray := func(name, detail string) {
				if detail == isDropping {
					r.sawDropping(d.container)
					return
				}
				r.mu.Lock()
				defer r.mu.Unlock()
				r.report.Strays = append(r.report.Strays, blob.Ref{Container: d.container, Name: name}.String())
			}
			catalogued, err := r.strays(ctx, d, stray)
			if err != nil && !yield(planBlobs{}, err) {
				return
			}
			if catalogued || d.hinted { // a listing of names may have missed it
				r.catalogued = append(r.catalogued, d)
			}
			for b, err := range r.dayPlans(ctx, d, directories(), stray) {
				if blob.Is(err, blob.AbsentContainer) {
					if err = r.confirmDropped(ctx, d.container); err == nil {
						break
					}
				}
				if !yield(b, err) {
					return
				}
				if err != nil {
					break
				}
			}
		}
	}
}

// maxSteps bounds the repairs of one plan in one run. Each repair may uncover the need for another.
const maxSteps = 8

// recoverPlan repairs a plan step by step. Each step looks at the plan again: the listing only said where to
// look.
func (r *recovery) recoverPlan(ctx context.Context, b planBlobs) error {
	if done, err := r.removeChanges(ctx, &b); done || err != nil {
		return err
	}
	for range maxSteps {
		again, err := r.step(ctx, &b)
		if err != nil || !again {
			return err
		}
	}
	return nil
}

// removeChanges removes the markers of changes that did not finish. They say nothing about the plan: a change
// commits with one request. It reports whether to leave the plan alone, because somebody may be changing it or
// because nothing else leads to it.
func (r *recovery) removeChanges(ctx context.Context, b *planBlobs) (done bool, err error) {
	only := len(b.all()) == len(b.changes)
	for _, m := range b.changes {
		grace, err := r.graceOf(&m)
		if err != nil {
			return true, r.fail(ctx, b.keys, "a marker that can't be read", blobError("read metadata of marker", b.keys.at(m.Name), err))
		}
		if recent(&m, m.Seen, grace) {
			r.count(&r.report.Recent)
			return true, nil
		}
		_, err = r.repair(ctx, b.keys, "a change marker: an update of a final plan did not finish", func() (string, error) {
			return "removed the change marker", r.plan(b.keys).removeMarker(ctx, b.keys.at(m.Name), &m)
		})
		if err != nil {
			return true, err
		}
	}
	done = only && len(b.changes) > 0
	b.changes = nil
	return done, nil
}

// step makes the first repair that a plan needs, and notes in b how it changes the markers. It reports
// whether to look for another one.
func (r *recovery) step(ctx context.Context, b *planBlobs) (again bool, err error) {
	d, err := r.plan(b.keys).examine(ctx, *b, r.opts.Thorough)
	switch {
	case errors.Is(err, storage.ErrConflict):
		r.count(&r.report.Recent)
		return false, nil
	case errors.Is(err, storage.ErrCorrupt):
		return false, r.fail(ctx, b.keys, "a marker that can't be read", err)
	case err != nil:
		return false, r.lookFailed(ctx, b.keys, err)
	}
	switch d.finding {
	case openPlan:
		r.count(&r.report.Open)
	case tooRecent:
		r.count(&r.report.Recent)
	case foreignPlan:
		r.count(&r.report.Foreign)
	case lostObject, lostEntry, unreadableState:
		return false, r.fail(ctx, b.keys, d.String(), d.err())
	case setBack:
		return r.setBack(ctx, d)
	case unverified:
		return false, r.verify(ctx, d)
	case remains:
		return false, r.removeRemains(ctx, d)
	case restorableEntry:
		return r.restoreEntry(ctx, d)
	case leftDelete:
		return r.dismissDelete(ctx, d, b)
	case leftMarker:
		return r.removeMarker(ctx, d, b)
	case lostMarker:
		return r.restoreMarker(ctx, d, b)
	case unfinalized:
		return r.completePlan(ctx, d, b)
	}
	return false, nil
}

func (r *recovery) removeRemains(ctx context.Context, d diagnosis) error {
	_, err := r.repair(ctx, d.keys, d.String(), func() (string, error) { return "removed what was left", r.plan(d.keys).removeRemains(ctx, d) })
	return err
}

func (r *recovery) restoreEntry(ctx context.Context, d diagnosis) (again bool, err error) {
	done, err := r.repair(ctx, d.keys, d.String(), func() (string, error) { return r.plan(d.keys).restoreEntry(ctx, d) })
	return done && !r.opts.DryRun, err
}

func (r *recovery) dismissDelete(ctx context.Context, d diagnosis, b *planBlobs) (again bool, err error) {
	b.deleteMarker = nil
	return r.repair(ctx, d.keys, d.String(), func() (string, error) {
		return "rewrote the object, so that the delete can't go on, and removed the delete marker", r.plan(d.keys).dismissDelete(ctx, d.deleteMarker.ETag)
	})
}

func (r *recovery) removeMarker(ctx context.Context, d diagnosis, b *planBlobs) (again bool, err error) {
	b.marker = nil
	done, err := r.repair(ctx, d.keys, d.String(), func() (string, error) {
		return "removed the marker", r.plan(d.keys).removeMarker(ctx, d.keys.marker(), d.marker)
	})
	return done && r.opts.Thorough, err
}

func (r *recovery) restoreMarker(ctx context.Context, d diagnosis, b *planBlobs) (again bool, err error) {
	b.marker = &blob.Item{Name: d.keys.marker().Name}
	return r.repair(ctx, d.keys, d.String(), func() (did string, err error) {
		b.marker.ETag, err = r.plan(d.keys).restoreMarker(ctx)
		return "restored the marker", err
	})
}

// completePlan finishes the last update of a plan. It needs all sub-objects, so a thorough Repair restores
// them first.
func (r *recovery) completePlan(ctx context.Context, d diagnosis, b *planBlobs) (again bool, err error) {
	if r.opts.Thorough {
		if err := r.verify(ctx, d); err != nil {
			return false, err
		}
	}
	b.marker = nil
	done, err := r.repair(ctx, d.keys, d.String(), func() (string, error) { return "rewrote the object", r.plan(d.keys).completeObject(ctx, d) })
	return done && r.opts.Thorough && !r.opts.DryRun, err
}

// setBack handles a final object beside an entry that is not final, unless a second look finds the entry final: the
// plan may have been completed between the answers for entry and object. A thorough Repair restores the entry.
func (r *recovery) setBack(ctx context.Context, d diagnosis) (again bool, err error) {
	now, err := r.plan(d.keys).headPlan(ctx, "look at entry")
	if err != nil {
		return false, r.lookFailed(ctx, d.keys, err)
	}
	if !now.committed() || blobStatusOf(now.entry) == final {
		return false, nil
	}
	if !r.opts.Thorough {
		return false, r.fail(ctx, d.keys, d.String(), vaultError("compare entry and object", d.keys.entry(),
			"%w: the object is final and the entry is not, so the entry was set back: a thorough Repair restores it", storage.ErrCorrupt))
	}
	d.entry, d.object = now.entry, now.object
	done, err := r.repair(ctx, d.keys, d.String(), func() (string, error) { return r.plan(d.keys).restoreEntry(ctx, d) })
	return done && !r.opts.DryRun, err
}

// verify looks for the sub-objects of a plan, in a thorough Repair. They are written before the object, so a missing
// one was lost from outside.
func (r *recovery) verify(ctx context.Context, d diagnosis) error {
	object, read, err := r.plan(d.keys).readObject(ctx)
	if errors.Is(err, storage.ErrNotFound) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return r.fail(ctx, d.keys, "an object that can't be read", err)
	}
	f := findParts(d, object)
	f.lost, err = r.plan(d.keys).confirmLost(ctx, f.lost)
	if errors.Is(err, storage.ErrConflict) {
		r.count(&r.report.Recent)
		return nil
	}
	if err != nil {
		return r.lookFailed(ctx, d.keys, err)
	}
	if f.none() {
		if blobStatusOf(d.entry) != final {
			r.count(&r.report.Open)
		}
		return nil
	}
	ref := d.keys.object()
	now, err := r.client.Head(ctx, ref)
	if blob.Is(err, blob.Absent, blob.AbsentContainer) || err == nil && now.ETag != read.ETag {
		return nil // deleted or completed meanwhile, or another plan by now
	}
	if err != nil {
		return r.lookFailed(ctx, d.keys, blobError("look at object", ref, err))
	}
	return r.repairParts(ctx, d, f)
}

// repairParts repairs what is wrong with the sub-objects of a plan.
func (r *recovery) repairParts(ctx context.Context, d diagnosis, f partsFinding) (err error) {
	if f.stale && len(f.lost) == 0 { // rewriting the lost ones renews the object, too
		_, err = r.repair(ctx, d.keys, "sub-objects of a plan that has not started are newer than its object", func() (string, error) {
			return "rewrote the object", r.plan(d.keys).renewObject(ctx, d)
		})
	}
	return errors.Join(err, r.restoreParts(ctx, d, f.lost), r.removeExtra(ctx, d, f.extra))
}

// restoreParts rewrites lost sub-objects from the object.
func (r *recovery) restoreParts(ctx context.Context, d diagnosis, lost []workflow.Object) error {
	if len(lost) == 0 {
		return nil
	}
	found := fmt.Sprintf("a plan without %d of its sub-objects, such as %s, which was lost from outside", len(lost), d.keys.part(lost[0]))
	did := "rewrote them from the object"
	if blobStatusOf(d.entry) == running {
		did += ", which has them as NotStarted: they may run again"
	}
	_, err := r.repair(ctx, d.keys, found, func() (string, error) { return did, r.plan(d.keys).restoreParts(ctx, d, lost) })
	return err
}

// removeExtra removes sub-objects that the object of their plan does not name, in the version that was
// listed.
func (r *recovery) removeExtra(ctx context.Context, d diagnosis, extra []blob.Item) error {
	if len(extra) == 0 {
		return nil
	}
	found := fmt.Sprintf("%s that the object does not name, such as %s", plural(len(extra), "sub-object"), d.keys.at(extra[0].Name))
	_, err := r.repair(ctx, d.keys, found, func() (string, error) { return "removed them", r.plan(d.keys).removeParts(ctx, targetsOf(extra)) })
	return err
}

// repair calls do, except in a dry run, and reports the plan. A blob that has changed or is gone since it was
// looked at means that another process is at work: a later Recovery looks again.
func (r *recovery) repair(ctx context.Context, keys keys, found string, do func() (did string, err error)) (done bool, err error) {
	p := RepairedPlan{ID: keys.plan, Found: found}
	if !r.opts.DryRun {
		r.begin()
		switch did, err := do(); {
		case overtaken(err):
			r.count(&r.report.Recent)
			return false, nil
		case errors.Is(err, storage.ErrForeign):
			r.count(&r.report.Foreign)
			return false, nil
		case err != nil:
			p.Err = err
		default:
			p.Did = did
		}
	}
	r.note(ctx, p)
	return p.Err == nil, p.Err
}

// lookFailed reports a plan that could not be looked at. The end of the context says nothing about a plan.
func (r *recovery) lookFailed(ctx context.Context, keys keys, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return r.fail(ctx, keys, "a plan that could not be looked at", err)
}

// fail reports a plan that can't be repaired, and returns err.
func (r *recovery) fail(ctx context.Context, keys keys, found string, err error) error {
	r.note(ctx, RepairedPlan{ID: keys.plan, Found: found, Err: err})
	return err
}

func (r *recovery) note(ctx context.Context, p RepairedPlan) {
	p.Err = opError("", p.ID, p.Err)
	r.mu.Lock()
	r.report.Plans = append(r.report.Plans, p)
	r.mu.Unlock()
	if o := r.observer; o != nil {
		notify(ctx, o.Repair, RepairEvent{operationOf(ctx), p})
	}
}

// count adds one to a number of the report.
func (r *recovery) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// failed adds an error to that of the run.
func (r *recovery) failed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errs = append(r.errs, err)
}
