package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestUpdateUnknownTwice repeats an update of unknown outcome, which is refused, and repeats it again.
func TestUpdateUnknownTwice(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		plan.State.Status = workflow.Running
		v := vaulttest.Faulty(t, server, emulator.On(emulator.PutBlob).Nth(1).Do(emulator.Silence().Applied()), emulator.On(emulator.PutBlob).Nth(2).Do(emulator.Answer(403, "AuthorizationFailure")))
		ctx := vaulttest.Within(t, time.Second)
		for _, want := range []error{storage.ErrUnknown, storage.ErrDenied, nil} {
			if err := v.UpdatePlan(ctx, plan); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			ctx = t.Context()
		}
		vaulttest.Same(t, v, plan)
	})
}

// TestUpdateUnknown loses the answer to an update. The same call again settles it, unless another update has come since.
func TestUpdateUnknown(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "what settled it does so once", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		plan.State.Status = workflow.Running
		v := vaulttest.Faulty(t, server, emulator.On(emulator.PutBlob).Nth(1).Do(emulator.Silence()))
		ctx := vaulttest.Within(t, time.Second)
		twin := *plan // another owner's copy, of the same version and content
		vaulttest.Fails(t, v.UpdatePlan(ctx, plan), storage.ErrUnknown, context.DeadlineExceeded)
		vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
		vaulttest.Fails(t, v.UpdatePlan(t.Context(), &twin), storage.ErrConflict)
	})
	vaulttest.InBubble(t, "a conflict after a lost answer may have been ours before", func(t *testing.T, server *emulator.Server) {
		other := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, other, plantest.Small())
		plan.State.Status = workflow.Running
		v := vaulttest.Meanwhile(t, server, emulator.HeadBlob, "", func() {
			theirs := vaulttest.Reread(t, other, plan)
			theirs.Name = "theirs"
			vaulttest.Should(t, other.UpdatePlan(t.Context(), theirs))
		}, emulator.On(emulator.PutBlob).Nth(1).Do(emulator.LostAnswer()))
		vaulttest.Fails(t, v.UpdatePlan(t.Context(), plan), storage.ErrUnknown, storage.ErrConflict)
	})
	for blob, nth := range map[string]int{"-object.json": 2, "-entry.json": 1} {
		vaulttest.InBubble(t, "a look at "+blob+" that fails is no conflict", func(t *testing.T, server *emulator.Server) {
			plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
			plantest.Finish(plan)
			v := vaulttest.Faulty(t, server,
				emulator.On(emulator.PutBlob).Path("-object.json").Nth(1).Do(emulator.Answer(412, "ConditionNotMet")),
				emulator.On(emulator.HeadBlob).Path(blob).Nth(nth).Do(emulator.Answer(403, "AuthorizationFailure")))
			err := v.UpdatePlan(t.Context(), plan)
			if vaulttest.Fails(t, err, storage.ErrUnknown, storage.ErrDenied); errors.Is(err, storage.ErrConflict) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestUpdateBesideItsParts updates objects while their sub-objects are changed, as engines do. The race
// detector watches.
func TestUpdateBesideItsParts(t *testing.T) {
	vaulttest.InBubble(t, "all at once", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, plantest.Full())
		var wg sync.WaitGroup
		for o := range workflow.Walk(plan) {
			wg.Go(func() {
				s := o.Header().State
				for _, s.Status = range []workflow.Status{workflow.Running, workflow.Running} {
					s.Start = time.Now()
					vaulttest.Should(t, storage.Update(t.Context(), v, o))
				}
			})
		}
		wg.Wait()
		vaulttest.Same(t, v, plan)
	})
}

// TestCompletionAgain breaks off a final update at each of its requests, for a running plan and for a final
// one. The same call again completes it, with the plan as given or as it is now, and also after Recovery has
// completed it.
func TestCompletionAgain(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for run := range 2 * 3 * 2 * 2 * 2 {
		effect := []emulator.Effect{emulator.Silence(), emulator.Silence().Applied()}[run%2]
		n, final, asGiven, recovered := 1+run/2%3, run/6%2 == 1, run/12%2 == 1, run/24 == 1
		name := fmt.Sprintf("%v at %d, final %v, as given %v, recovered %v", effect, n, final, asGiven, recovered)
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			healthy := vaulttest.OnEmulator(t, server)
			_, plan := vaulttest.Running(t, healthy, vaulttest.EachKind())
			if final {
				vaulttest.Must(t, healthy.UpdatePlan(t.Context(), plan))
				plan.Descr, plan.Blocks[0].State.End = "filed", time.Now()
			}
			etag := plan.State.ETag
			v := vaulttest.Faulty(t, server, emulator.On().Nth(n).Do(effect))
			ctx := vaulttest.Within(t, time.Second)
			want := storage.ErrUnknown
			if final && n == 1 { // the marker of the change
				want = storage.ErrUnavailable
			}
			vaulttest.Fails(t, v.UpdatePlan(ctx, plan), want)
			if asGiven {
				plan.State.ETag = etag
			}
			if recovered {
				time.Sleep(vaulttest.PastGrace)
				vaulttest.Must(t, healthy.Recovery(t.Context()))
			}
			for range 2 { // the version that it sets is good
				vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
				vaulttest.Same(t, healthy, plan)
			}
			time.Sleep(vaulttest.PastGrace)
			if final { // the marker of a change that did not finish
				vaulttest.Must(t, healthy.Recovery(t.Context()))
			}
			vaulttest.Sound(t, healthy)
		})
	}
}

// TestTwoCompletions lets somebody else, or Recovery, complete a plan between the entry and the object of a
// completion. The last write wins.
func TestTwoCompletions(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	type ending struct {
		v *azblob.Vault
		vaulttest.Damaged
		entry, object emulator.Blob // of the running plan
	}
	rewrite := func(e ending, b emulator.Blob) { e.Put(e.Container, b.Name, b.Body, b.Metadata) } // gives it a new version
	// complete completes a plan, and calls a function before the request for its object.
	complete := func(t *testing.T, e ending, plan *workflow.Plan, do func()) error {
		t.Helper()
		return vaulttest.Meanwhile(t, e.Server, emulator.PutBlob, "-object.json", do).UpdatePlan(t.Context(), plan)
	}
	later := func(t *testing.T, e ending) *workflow.Plan {
		theirs := vaulttest.Reread(t, e.v, e.Plan)
		theirs.Descr = "theirs"
		return theirs
	}
	falseAbsence := func(times int) func(t *testing.T, e ending) *workflow.Plan {
		return func(t *testing.T, e ending) *workflow.Plan {
			rule := emulator.On(emulator.HeadBlob).Path("-object.json").Range(1, times).Do(vaulttest.Absences[0])
			err := complete(t, e, e.Plan, func() {
				rewrite(e, e.object)
				e.Inject(rule)
			})
			if rule.Fired() == 0 || !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrNotFound) {
				t.Errorf("got %v, want ErrUnknown", err)
			}
			e.ClearFaults()
			vaulttest.Should(t, e.v.UpdatePlan(t.Context(), e.Plan))
			return e.Plan
		}
	}
	for name, test := range map[string]func(t *testing.T, e ending) (shown *workflow.Plan){
		"a later completion keeps its object": func(t *testing.T, e ending) (theirs *workflow.Plan) {
			// The first completion took effect before the second one.
			vaulttest.Should(t, complete(t, e, e.Plan, func() {
				theirs = later(t, e)
				theirs.Blocks[0].State.End, theirs.Blocks[0].Sequences[0].Actions[0].Attempts = time.Now(), nil
				vaulttest.Should(t, e.v.UpdatePlan(t.Context(), theirs))
			}))
			vaulttest.Same(t, e.v, theirs)
			vaulttest.Fails(t, e.v.UpdatePlan(t.Context(), e.Plan), storage.ErrConflict)
			vaulttest.Should(t, e.v.UpdatePlan(t.Context(), theirs))
			return theirs
		},
		"a later completion that is under way keeps its object": func(t *testing.T, e ending) (theirs *workflow.Plan) {
			vaulttest.Should(t, complete(t, e, e.Plan, func() {
				theirs = later(t, e)
				theirs.Blocks[0].State.End = time.Now()
				vaulttest.Should(t, complete(t, e, theirs, func() { rewrite(e, e.object) }))
			}))
			return theirs
		},
		"a later completion that dies keeps its marker": func(t *testing.T, e ending) (theirs *workflow.Plan) {
			vaulttest.Should(t, complete(t, e, e.Plan, func() {
				rewrite(e, e.object) // as Recovery does with an old delete marker
				theirs = later(t, e)
				vaulttest.Dies(t, e.Server, emulator.On(emulator.PutBlob).Path("-object.json"), func(v *azblob.Vault) { _ = v.UpdatePlan(t.Context(), theirs) })
			}))
			vaulttest.Settled(t, e.v)
			return theirs
		},
		"an entry that is restored in between is no later completion": func(t *testing.T, e ending) *workflow.Plan {
			e.entry.Metadata["writeid"] = "restored"
			vaulttest.Fails(t, complete(t, e, e.Plan, func() {
				rewrite(e, e.object)
				rewrite(e, e.entry)
			}), storage.ErrUnknown, storage.ErrConflict)
			now := vaulttest.Reread(t, e.v, e.Plan)
			if now.State.Status != workflow.Running {
				t.Errorf("the plan is %s", now.State.Status)
			}
			return now
		},
		"Recovery completes it in between": func(t *testing.T, e ending) *workflow.Plan {
			e.Plan.Blocks[0].State.End = time.Now() // which the block's own blob does not have
			vaulttest.Should(t, complete(t, e, e.Plan, func() { vaulttest.Should(t, e.v.Recovery(t.Context())) }))
			vaulttest.Same(t, e.v, e.Plan)
			vaulttest.Should(t, e.v.UpdatePlan(t.Context(), e.Plan))
			return e.Plan
		},
		"the object is rewritten before each try": func(t *testing.T, e ending) *workflow.Plan {
			e.ResetRequests()
			transport := e.Transport()
			transport.Inject(emulator.On(emulator.PutBlob).Path("-object.json").Do(emulator.Before(func() { rewrite(e, e.object) })))
			w := vaulttest.OnEmulator(t, e.Server, settings.Over(transport))
			vaulttest.Fails(t, w.UpdatePlan(t.Context(), e.Plan), storage.ErrUnknown, storage.ErrConflict)
			if n := len(e.Requests()); n > 20 {
				t.Errorf("%d requests were sent", n)
			}
			transport.ClearFaults()
			vaulttest.Should(t, w.UpdatePlan(t.Context(), e.Plan))
			return e.Plan
		},
		"a false 404 is no deletion":         falseAbsence(1),
		"a lasting false 404 is no deletion": falseAbsence(1 << 20),
		"a Delete is under way": func(t *testing.T, e ending) *workflow.Plan {
			vaulttest.Fails(t, complete(t, e, e.Plan, func() { vaulttest.Should(t, e.v.Delete(t.Context(), e.Plan.ID)) }), storage.ErrNotFound)
			vaulttest.Empty(t, e.Server)
			return nil
		},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			e := ending{v: vaulttest.OnEmulator(t, server)}
			_, plan := vaulttest.Running(t, e.v, plantest.Full())
			e.Damaged = vaulttest.DamagedOf(server, plan)
			e.entry, _ = e.Blob(e.Container, e.Name("entry"))
			e.object, _ = e.Blob(e.Container, e.Name("object"))
			if shown := test(t, e); shown != nil {
				vaulttest.Same(t, e.v, shown)
			}
			vaulttest.Sound(t, e.v)
		})
	}
}
