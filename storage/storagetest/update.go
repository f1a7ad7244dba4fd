package storagetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

var statuses = []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed, workflow.Failed, workflow.Stopped}

func updateCases() []Case {
	var perKind []Case
	for _, o := range eachKind(allKinds()) {
		perKind = append(perKind, ownFields(o.Kind()))
	}
	return slices.Concat(perKind, []Case{
		on("update/each update gives the object a new version", func(s *stage) {
			plan := s.started(allKinds())
			for _, o := range eachKind(plan) {
				seen := map[string]bool{o.Header().State.ETag: true}
				for range 3 { // with the same content, too
					s.must(storage.Update(s.ctx, s.vault, o))
					v := o.Header().State.ETag
					if v == "" || seen[v] {
						s.Errorf("%s got version %q, which it had before", o.Kind(), v)
					}
					seen[v] = true
				}
			}
		}),
		on("update/one of a version that is not stored any more is ErrConflict and changes nothing", func(s *stage) {
			plan := s.started(allKinds())
			stale := s.read(s.vault, plan.ID)
			for _, o := range eachKind(plan) {
				s.must(storage.Update(s.ctx, s.vault, o))
			}
			for _, o := range eachKind(stale) {
				o.Header().State.Status = workflow.Failed
				for range 2 { // a conflict does not give the version away
					s.want(storage.ErrConflict, methodOf(o), plan.ID, storage.Update(s.ctx, s.vault, o))
				}
			}
			s.shows(s.vault, plan)
		}),
		on("update/one of a version that never was is ErrConflict and changes nothing", func(s *stage) {
			plan := s.started(allKinds())
			before := modelClone(plan)
			for _, version := range []string{"made up", `""`, plan.State.ETag + "x", plan.Blocks[0].State.ETag} {
				action := modelClone(plan.PreChecks.Actions[0])
				action.State.ETag, action.State.Status = version, workflow.Running
				if err := s.vault.UpdateAction(s.ctx, action); err == nil {
					s.Errorf("an update of the version %q succeeded", version)
				} else {
					s.want(storage.ErrConflict, "UpdateAction", plan.ID, err)
				}
			}
			s.shows(s.vault, before)
		}),
		on("update/of two nodes with one version, one wins", func(s *stage) {
			plan := s.started(allKinds())
			nodes := []storage.Vault{s.vault, s.open()}
			for range 5 {
				for _, o := range eachKind(plan) {
					tries := make([]*workflow.Plan, 4)
					errs := make([]error, len(tries))
					_ = atOnce(len(tries), func(i int) error {
						tries[i] = modelClone(plan)
						mine := objectOf(tries[i], *o.Header().ID)
						mine.Header().State.Start = moment.Add(time.Duration(i) * time.Hour)
						errs[i] = storage.Update(s.ctx, nodes[i%2], mine)
						return nil
					})
					var won []*workflow.Plan
					for i, err := range errs {
						if err == nil {
							won = append(won, tries[i])
							continue
						}
						s.want(storage.ErrConflict, methodOf(o), plan.ID, err)
					}
					if len(won) != 1 {
						s.Fatalf("%d updates of %s won: %v", len(won), o.Kind(), errs)
					}
					plan = won[0]
					s.shows(s.vault, plan)
				}
			}
		}),
		on("update/one without a version overwrites whatever is there", func(s *stage) {
			plan := s.started(allKinds())
			blind := modelClone(plan)
			for _, o := range eachKind(plan) {
				s.must(storage.Update(s.ctx, s.vault, o))
			}
			for _, o := range eachKind(blind) {
				o.Header().State.ETag, o.Header().State.End = "", moment
				s.must(storage.Update(s.ctx, s.vault, o))
				if o.Header().State.ETag == "" {
					s.Errorf("the update of %s set no version", o.Kind())
				}
			}
			s.shows(s.vault, blind)
		}),
		on("update/of a part or a plan that is not there is ErrNotFound and brings nothing about", func(s *stage) {
			plan := s.started(allKinds())
			before := modelClone(plan)
			noPlan := workflow.NewV7()
			for _, planID := range []uuid.UUID{plan.ID, noPlan} { // parts that the plan never had, then of no plan
				parts := modelClone(plan)
				for o := range workflow.Walk(parts) {
					*o.Header().ID, *o.Header().PlanID = workflow.NewV7(), planID
				}
				for _, o := range eachKind(parts)[1:] {
					for _, version := range []string{o.Header().State.ETag, ""} {
						o.Header().State.ETag = version
						s.want(storage.ErrNotFound, methodOf(o), planID, storage.Update(s.ctx, s.vault, o))
					}
				}
			}
			absent := modelClone(plan)
			for o := range workflow.Walk(absent) {
				*o.Header().PlanID = noPlan
			}
			s.want(storage.ErrNotFound, "UpdatePlan", absent.ID, s.vault.UpdatePlan(s.ctx, authored(absent)))
			absent.State.Status = workflow.Completed
			s.want(storage.ErrNotFound, "UpdatePlan", absent.ID, s.vault.UpdatePlan(s.ctx, absent))
			s.lacks(s.vault, absent.ID)
			s.shows(s.vault, before)
		}),
		on("update/of a deleted plan is ErrNotFound and brings nothing back", func(s *stage) {
			plan := s.started(allKinds())
			s.must(s.vault.Delete(s.ctx, plan.ID))
			for _, v := range []storage.Vault{s.vault, s.open()} {
				for _, o := range eachKind(plan) {
					for _, version := range []string{o.Header().State.ETag, ""} {
						o.Header().State.ETag = version
						s.want(storage.ErrNotFound, methodOf(o), plan.ID, storage.Update(s.ctx, v, o))
					}
				}
				blind := modelClone(plan)
				blind.State.ETag, blind.State.Status = "", workflow.Completed
				s.want(storage.ErrNotFound, "UpdatePlan", plan.ID, v.UpdatePlan(s.ctx, blind))
				s.lacks(v, plan.ID)
			}
		}),
		on("update/parts only move forward", func(s *stage) {
			plan := plantest.Sized(1, 5, 5)
			s.started(plan)
			for i, was := range statuses {
				for j, next := range statuses {
					a := plan.Blocks[0].Sequences[i].Actions[j]
					if a.State.Status = was; was != workflow.NotStarted {
						s.must(s.vault.UpdateAction(s.ctx, a))
					}
					a.State.Status = next
					err := s.vault.UpdateAction(s.ctx, a)
					if was == next || was < next && !was.Final() {
						s.must(err)
						continue
					}
					s.want(storage.ErrInvalid, "UpdateAction", plan.ID, err)
					a.State.Status = was
				}
			}
			s.shows(s.vault, plan)
		}),
		on("update/plans only move forward, and what is final stays", func(s *stage) {
			for _, was := range statuses {
				plan := s.create(allKinds())
				if plan.State.Status = was; was != workflow.NotStarted {
					s.must(s.vault.UpdatePlan(s.ctx, plan))
				}
				for _, next := range statuses {
					if was == next || was < next && !was.Final() {
						continue
					}
					back := modelClone(plan)
					back.State.Status = next
					s.want(storage.ErrInvalid, "UpdatePlan", plan.ID, s.vault.UpdatePlan(s.ctx, back))
				}
				s.shows(s.open(), plan)
			}
		}),
		on("update/a final status settles the whole plan as it is given", func(s *stage) {
			for _, final := range []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped} {
				plan := s.started(plantest.Full())
				plan.PreChecks.State.Status = workflow.Running
				s.must(s.vault.UpdateChecks(s.ctx, plan.PreChecks))
				etag := plan.State.ETag
				plantest.Finish(plan) // and no part is updated
				plan.State = workflow.State{Status: final, Start: moment, End: moment.Add(1), ETag: etag}
				s.must(s.vault.UpdatePlan(s.ctx, plan))
				s.shows(s.vault, plan)
				s.shows(s.open(), plan)
			}
		}),
		on("update/a final plan can be stored again as such", func(s *stage) {
			plan := s.completed(allKinds())
			for range 2 {
				plan.Descr += " and filed"
				s.must(s.vault.UpdatePlan(s.ctx, plan))
				s.shows(s.vault, plan)
			}
		}),
		on("update/each reason of a failure comes back", func(s *stage) {
			for reason := workflow.NoFailure; reason <= workflow.StopRequested; reason++ {
				plan := s.started(bare(reason.String()))
				plan.Reason, plan.State.Status = reason, workflow.Failed
				s.must(s.vault.UpdatePlan(s.ctx, plan))
				s.shows(s.vault, plan)
			}
		}),
		on("update/attempts of every kind come back in order", func(s *stage) {
			plan := s.started(plantest.Small())
			a := plan.Blocks[0].Sequences[0].Actions[0]
			a.State.Status = workflow.Running
			for _, attempt := range attemptsOf(12) {
				a.Attempts = append(a.Attempts, attempt)
				s.must(s.vault.UpdateAction(s.ctx, a))
				s.same(plan, s.read(s.vault, plan.ID))
			}
			s.must(complete(s.ctx, s.vault, plan))
			s.shows(s.vault, plan)
		}),
		on("update/times come back to the nanosecond, whatever their zone", func(s *stage) {
			plan := s.started(allKinds())
			for _, at := range []time.Time{
				moment, moment.In(time.FixedZone("west", -12*3600)), time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC),
				time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Unix(0, 0),
			} {
				for _, o := range eachKind(plan) {
					o.Header().State.Start, o.Header().State.End = at, at.UTC()
					s.must(storage.Update(s.ctx, s.vault, o))
				}
				got := s.find(s.vault, plan.ID)
				for _, o := range eachKind(plan) {
					if state := objectOf(got, *o.Header().ID).Header().State; !state.Start.Equal(at) || !state.End.Equal(at) {
						s.Errorf("%s has the times %v and %v, want %v", o.Kind(), state.Start, state.End, at)
					}
				}
			}
		}),
		on("update/many parts at once are all stored", func(s *stage) {
			plan := s.started(plantest.Sized(2, 5, 6))
			nodes := []storage.Vault{s.vault, s.open()}
			parts := partsOf(plan)
			for _, status := range []workflow.Status{workflow.Running, workflow.Completed} {
				s.must(atOnce(len(parts), func(i int) error {
					parts[i].Header().State.Status = status
					return storage.Update(s.ctx, nodes[i%2], parts[i])
				}))
			}
			s.shows(s.vault, plan)
		}),
		on("update/bad input is ErrInvalid and names the field, and nothing is stored", func(s *stage) {
			plan := s.started(plantest.Full())
			before := modelClone(plan)
			refused := func(op, field string, err error) {
				s.Helper()
				s.want(storage.ErrInvalid, op, plan.ID, err)
				var got *workflow.FieldError
				if !errors.As(err, &got) || got.Field != field {
					s.Errorf("the error does not name %s first: %v", field, err)
				}
			}
			for _, bad := range badFields() {
				edited := modelClone(plan)
				bad.edit(edited)
				o, field := holder(edited, bad.field)
				refused(methodOf(o), field, storage.Update(s.ctx, s.vault, o))
				if edited.State.Status == workflow.Running { // and as a part of a plan that becomes final
					edited.State.Status = workflow.Completed
					refused("UpdatePlan", bad.field, s.vault.UpdatePlan(s.ctx, edited))
				}
			}
			for _, o := range eachKind(plan) {
				for _, spoil := range []func(h workflow.Header){
					func(h workflow.Header) { *h.ID = uuid.Nil },
					func(h workflow.Header) { *h.PlanID = uuid.Nil },
					func(h workflow.Header) { *h.ID = uuid.New() },
					func(h workflow.Header) { h.State.Status = -1 },
				} {
					c := objectOf(modelClone(plan), *o.Header().ID)
					spoil(c.Header())
					s.want(storage.ErrInvalid, methodOf(c), uuid.Nil, storage.Update(s.ctx, s.vault, c))
				}
			}
			a := modelClone(plan.PreChecks.Actions[0])
			a.Attempts = []workflow.Attempt{{Resp: "of another type"}}
			s.want(storage.ErrInvalid, "UpdateAction", plan.ID, s.vault.UpdateAction(s.ctx, a))
			for _, none := range []workflow.Object{
				(*workflow.Plan)(nil), (*workflow.Checks)(nil), (*workflow.Block)(nil), (*workflow.Sequence)(nil),
				(*workflow.Action)(nil), (*workflow.DeferredActions)(nil), (*workflow.DeferBatch)(nil),
			} {
				s.want(storage.ErrInvalid, methodOf(none), uuid.Nil, storage.Update(s.ctx, s.vault, none))
			}
			s.shows(s.vault, before)
		}),
		on("update/a death leaves a plan as it was or as it should be, and whole, and Recovery keeps that", func(s *stage) {
			plans := map[uuid.UUID]*workflow.Plan{}
			for d := range s.deaths() {
				before := s.started(allKinds())
				after := modelClone(before)
				o := after.DeferredActions.Batches[0].Actions[0]
				o.State.Status, o.Attempts = workflow.Running, attemptsOf(3)
				err := d.run(func(ctx context.Context, v storage.Vault) error { return v.UpdateAction(ctx, o) })
				plans[before.ID] = s.either(before, after, err)
			}
			for d := range s.deaths() {
				before, after := s.finished()
				err := d.run(func(ctx context.Context, v storage.Vault) error { return complete(ctx, v, after) })
				plans[before.ID] = s.either(before, after, err)
			}
			s.settle()
			for _, plan := range plans {
				s.shows(s.vault, plan)
			}
		}),
		on("update/a completion that was broken off is finished by another one", func(s *stage) {
			for d := range s.deaths() {
				_, after := s.finished()
				_ = d.run(func(ctx context.Context, v storage.Vault) error { return complete(ctx, v, after) })
				again := s.read(s.vault, after.ID)
				s.must(complete(s.ctx, s.vault, again))
				s.shows(s.vault, after)
			}
		}),
	}, contextCases("update"))
}

// holder finds the object that has the field of a badEdit, and the field's name within it.
func holder(plan *workflow.Plan, field string) (workflow.Object, string) {
	for _, part := range []struct {
		at string
		o  workflow.Object
	}{
		{"PreChecks.Actions[0].", plan.PreChecks.Actions[0]},
		{"PreChecks.", plan.PreChecks},
		{"Blocks[0].Sequences[0].", plan.Blocks[0].Sequences[0]},
		{"Blocks[0].", plan.Blocks[0]},
		{"DeferredActions.Batches[0].", plan.DeferredActions.Batches[0]},
	} {
		if name, found := strings.CutPrefix(field, part.at); found {
			return part.o, name
		}
	}
	return plan, field
}

// ownFields is the promise of the updates of one kind of objects.
func ownFields(kind workflow.Kind) Case {
	return on(fmt.Sprintf("update/of a %s stores its own fields and leaves its children alone", kind), func(s *stage) {
		plan := s.started(allKinds())
		edited, want := modelClone(plan), modelClone(plan)
		i := slices.IndexFunc(eachKind(plan), func(o workflow.Object) bool { return o.Kind() == kind })
		o := eachKind(edited)[i]
		change(o)
		change(eachKind(want)[i])
		for child, parent := range workflow.Walk(edited) {
			if parent == o { // which must not be stored along
				child.Header().State.Status = workflow.Stopped
			}
		}
		s.must(storage.Update(s.ctx, s.vault, o))
		s.shows(s.vault, want)
		s.shows(s.open(), want)
		want.State.ETag = s.read(s.vault, want.ID).State.ETag
		s.must(complete(s.ctx, s.vault, want))
		s.shows(s.vault, want)
	})
}

// change changes all that an engine may change of an object, and what an author might.
func change(o workflow.Object) {
	state := o.Header().State
	state.Status, state.Start, state.End = workflow.Running, moment.Add(time.Hour), moment.Add(2*time.Hour)
	switch o := o.(type) {
	case *workflow.Plan:
		o.Name, o.Descr, o.Meta, o.Reason = "renamed", "план", []byte{0xff}, workflow.BlockFailed
	case *workflow.Checks:
		o.Delay = time.Nanosecond
	case *workflow.Block:
		o.Name, o.Descr, o.EntranceDelay, o.ExitDelay, o.Concurrency, o.ToleratedFailures = "", "план", 1, 100*time.Hour, 7, -1
	case *workflow.Sequence:
		o.Name, o.Descr = "renamed", "план"
	case *workflow.Action:
		o.Name, o.Descr, o.Timeout, o.Retries, o.Req = "", "план", 0, 0, nil
		o.Attempts = attemptsOf(4)
	case *workflow.DeferBatch:
		o.Name, o.Descr, o.When, o.FailElement = "renamed", "план", workflow.Always, true
	}
}

// finished prepares a plan that is about to end: running, with all parts done.
func (s *stage) finished() (plan, same *workflow.Plan) {
	s.Helper()
	plan = s.started(allKinds())
	s.must(finishParts(s.ctx, s.vault, plan))
	return plan, modelClone(plan)
}

// either says which of two plans is shown, after an update that ended with err.
func (s *stage) either(before, after *workflow.Plan, err error) *workflow.Plan {
	s.Helper()
	got := s.find(s.vault, before.ID)
	switch {
	case got == nil:
		s.Fatalf("plan %s is not there any more", before.ID)
	case plantest.Diff(after, got) == "":
		if err != nil && !errors.Is(err, storage.ErrUnknown) {
			s.Errorf("the update took effect, and the error was not ErrUnknown: %v", err)
		}
		return after
	case err == nil:
		s.same(after, got)
	default:
		s.same(before, got)
	}
	return before
}
