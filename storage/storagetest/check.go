package storagetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// checkPromises are about the vault as a whole: what it stores is sound, with faults and on several nodes,
// and Close works.
func checkPromises() []promise {
	var faulty []promise
	for seed := range uint64(4) {
		faulty = append(faulty, lifeUnderFaults(seed))
	}
	return slices.Concat(faulty, []promise{
		{"everything is sound after each step of a plan's life", checkEachStep},
		{"Close can be repeated, and ends sequences with ErrClosed", checkClosed},
		{"Close during calls lets each call succeed or refuses it", checkCloseDuringCalls},
		{"Close waits for calls in progress until its context ends", checkCloseWaits},
	})
}

func checkEachStep(s *stage) {
	s.sound() // an empty store
	plan := s.create(plantest.Full())
	for _, step := range []func(){
		func() { plan.RuntimeUpdate = moment; s.runs(plan) },
		func() { s.must(finishParts(s.ctx, s.vault, plan)) },
		func() { plan.Reason = workflow.ExceededRecovery; s.must(complete(s.ctx, s.vault, plan)) },
		func() { plan.Descr += " and filed"; s.update(plan) },
		func() { s.must(s.vault.Recovery(s.ctx)) },
	} {
		s.sound()
		s.shows(s.open(), plan)
		step()
	}
	s.sound()
	s.shows(s.open(), plan)
	s.must(s.vault.Delete(s.ctx, plan.ID))
}

func checkClosed(s *stage) {
	v := s.open()
	seq, err := v.List(s.ctx, 0)
	s.must(err)
	s.ages(2)
	s.must(v.Close(s.ctx))
	s.must(v.Close(s.ctx))
	_, err = storage.Collect(seq, nil) // it queries the store again
	s.want(storage.ErrClosed, "List", uuid.Nil, err)
}

func checkCloseDuringCalls(s *stage) {
	v := s.open()
	plans := make([]*workflow.Plan, 30)
	errs := make([]error, len(plans))
	_ = atOnce(len(plans), func(i int) error {
		if i == len(plans)/2 {
			errs[i] = v.Close(s.ctx)
			return nil
		}
		plans[i] = plantest.Small()
		plans[i].ID = workflow.NewV7()
		errs[i] = v.Create(s.ctx, plans[i])
		return nil
	})
	for i, plan := range plans {
		switch {
		case plan == nil:
			s.must(errs[i])
		case errs[i] == nil:
			s.shows(s.vault, plan)
		default:
			s.want(storage.ErrClosed, "Create", plan.ID, errs[i])
			s.lacks(s.vault, plan.ID)
		}
	}
}

func checkCloseWaits(s *stage) {
	s.needs(s.Dying != nil, "service that does not answer")
	v, died := s.Dying(s.T, 1, false)
	calling, cancel := context.WithTimeout(s.ctx, time.Minute)
	defer cancel()
	done := make(chan error, 1)
	id := workflow.NewV7()
	go func() { done <- second(v.Exists(calling, id)) }()
	for !died() {
		time.Sleep(time.Millisecond) // until the request was sent
	}
	ctx, cancelClose := context.WithTimeout(s.ctx, 50*time.Millisecond)
	defer cancelClose()
	started := time.Now()
	s.want(context.DeadlineExceeded, "Close", uuid.Nil, v.Close(ctx))
	if took := time.Since(started); took > 10*time.Second {
		s.Errorf("Close took %v", took)
	}
	if len(done) > 0 {
		s.Errorf("the call in progress returned before its context ended")
	}
	cancel()
	s.want(context.Canceled, "Exists", id, <-done)
	s.must(v.Close(s.ctx))
}

// lifeUnderFaults takes plans through their lives on a vault whose requests meet faults. A vault without
// faults checks them.
func lifeUnderFaults(seed uint64) promise {
	return promise{fmt.Sprintf("temporary faults make no call fail (seed %d)", seed), func(s *stage) {
		s.needs(s.Faulty != nil, "faults")
		v := s.closing(s.Faulty(s.T, seed))
		ctx, cancel := context.WithTimeout(s.ctx, 9*time.Minute) // no call takes that long
		defer cancel()
		var kept []*workflow.Plan
		for i, plan := range []*workflow.Plan{allKinds(), plantest.Full(), plantest.Random(seed), bare("small"), plantest.Sized(2, 2, 5)} {
			s.must(start(ctx, v, plan))
			s.shows(s.vault, plan)
			s.must(finishParts(ctx, v, plan))
			got, err := v.Read(ctx, plan.ID)
			s.must(err)
			s.same(plan, got)
			s.must(complete(ctx, v, plan))
			s.shows(s.vault, plan)
			if i%2 == 0 {
				kept = append(kept, plan)
				continue
			}
			s.must(v.Delete(ctx, plan.ID))
			s.lacks(s.vault, plan.ID)
		}
		all, err := storage.Collect(v.List(ctx, 0))
		s.must(err)
		s.onceEach("List with faults", ids(kept), all)
		s.must(v.Recovery(ctx))
		for _, plan := range kept {
			s.shows(s.vault, plan)
		}
	}}
}
