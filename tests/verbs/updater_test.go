package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestUpdateKnowsItsVersion updates with versions that are not the stored ones.
func TestUpdateKnowsItsVersion(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "the second of two writers loses", func(t *testing.T, server *emulator.Server) {
		v, other := vaulttest.OnEmulator(t, server), vaulttest.OnEmulator(t, server)
		mine := vaulttest.Created(t, v, plantest.Full())
		theirs := vaulttest.Reread(t, other, mine)
		vaulttest.Moved(mine, workflow.Running)
		vaulttest.Moved(theirs, workflow.Running)
		theirs.Name = "theirs"
		for o := range workflow.Walk(theirs) {
			vaulttest.Must(t, storage.Update(t.Context(), other, o))
		}
		for o := range workflow.Walk(mine) {
			before := o.Header().State.ETag
			vaulttest.Fails(t, storage.Update(t.Context(), v, o), storage.ErrConflict)
			if o.Header().State.ETag != before {
				t.Errorf("a lost update of %s changed the version that its caller knows", o.Kind())
			}
		}
		vaulttest.Same(t, v, theirs)
	})
	vaulttest.InBubble(t, "without a version it overwrites what is there, in a vault that was opened for it", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server, azblob.WithUnversionedUpdates())
		plan := vaulttest.Created(t, v, plantest.Full())
		vaulttest.Moved(plan, workflow.Running)
		for o := range workflow.Walk(plan) {
			o.Header().State.ETag = ""
			server.ResetRequests()
			vaulttest.Must(t, storage.Update(t.Context(), v, o))
			want, condition := 1, "If-Match:*"
			if o.Kind() == workflow.KindPlan {
				want, condition = 3, "If-Match:etag" // may it become Running?
			}
			if r := server.Requests(); len(r) != want || r[want-1].Condition != condition {
				t.Errorf("the update of %s asks %v", o.Kind(), r)
			}
		}
		vaulttest.Same(t, v, plan)
	})
	vaulttest.InBubble(t, "what was deleted is not found", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server, azblob.WithUnversionedUpdates())
		plan := vaulttest.Created(t, v, plantest.Full())
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		vaulttest.Moved(plan, workflow.Running)
		for _, versions := range []bool{true, false} {
			for o := range workflow.Walk(plan) {
				if !versions {
					o.Header().State.ETag = ""
				}
				vaulttest.Fails(t, storage.Update(t.Context(), v, o), storage.ErrNotFound)
			}
		}
		if n := vaulttest.Stored(server); n != 0 {
			t.Errorf("updates brought back %d blobs", n)
		}
		for c := range server.Containers() {
			server.RemoveContainer(c)
		}
		vaulttest.Fails(t, v.UpdatePlan(t.Context(), plan), storage.ErrNotFound)
	})
}

// TestUpdateUnknownTwice repeats an update of unknown outcome, which is refused, and repeats it again.
func TestUpdateUnknownTwice(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		plan.State.Status = workflow.Running
		v := vaulttest.Faulty(t, server, emulator.On(emulator.PutBlob).Nth(1).Do(emulator.Silence().Applied()), emulator.On(emulator.PutBlob).Nth(2).Do(emulator.Answer(403, "AuthorizationFailure")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, want := range []error{storage.ErrUnknown, storage.ErrDenied, nil} {
			if err := v.UpdatePlan(ctx, plan); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			ctx = t.Context()
		}
		vaulttest.Same(t, v, plan)
	})
}

// TestUpdateUnknown ends the context while an update is under way. The same call again settles the outcome.
func TestUpdateUnknown(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, effect := range []emulator.Effect{emulator.Silence(), emulator.Silence().Applied()} {
		for n := 1; n <= 3; n++ {
			vaulttest.InBubble(t, fmt.Sprintf("completion, %v at %d", effect, n), func(t *testing.T, server *emulator.Server) {
				_, plan := vaulttest.Running(t, vaulttest.OnEmulator(t, server), plantest.Small())
				v := vaulttest.Faulty(t, server, emulator.On().Nth(n).Do(effect))
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := v.UpdatePlan(ctx, plan); !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v, want ErrUnknown of the context's error", err)
				}
				if err := v.UpdatePlan(t.Context(), plan); err != nil {
					t.Fatalf("the same call again: %v", err)
				}
				vaulttest.Same(t, v, plan)
				time.Sleep(vaulttest.PastGrace)
				vaulttest.Sound(t, v)
			})
		}
	}
	vaulttest.InBubble(t, "what settled it does so once", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		plan.State.Status = workflow.Running
		v := vaulttest.Faulty(t, server, emulator.On(emulator.PutBlob).Nth(1).Do(emulator.Silence()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		twin := *plan // another owner's copy, of the same version and content
		if err := v.UpdatePlan(ctx, plan); !errors.Is(err, storage.ErrUnknown) {
			t.Fatalf("got %v, want ErrUnknown", err)
		}
		if err := v.UpdatePlan(t.Context(), plan); err != nil {
			t.Fatalf("the same call again: %v", err)
		}
		vaulttest.Fails(t, v.UpdatePlan(t.Context(), &twin), storage.ErrConflict)
	})
	vaulttest.InBubble(t, "a conflict after a lost answer may have been ours before", func(t *testing.T, server *emulator.Server) {
		v, other := vaulttest.OnEmulator(t, server), vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, plantest.Small())
		plan.State.Status = workflow.Running
		transport := server.Transport()
		transport.Inject(emulator.On(emulator.PutBlob).Nth(1).Do(emulator.LostAnswer()))
		transport.SetGate(vaulttest.Before(emulator.HeadBlob, "", func() {
			theirs := vaulttest.Reread(t, other, plan)
			theirs.Name = "theirs"
			vaulttest.Should(t, other.UpdatePlan(t.Context(), theirs))
		}))
		err := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport)).UpdatePlan(t.Context(), plan)
		vaulttest.Fails(t, err, storage.ErrUnknown, storage.ErrConflict)
	})
}

// TestUpdateOfAnUnfinishedPlan updates a plan without a version after its Create was broken off. There is no
// such plan, and no search takes its entry for a running plan.
func TestUpdateOfAnUnfinishedPlan(t *testing.T) {
	vaulttest.InBubble(t, "to Running", func(t *testing.T, server *emulator.Server) {
		plan := plantest.Small()
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), plan) })
		before := vaulttest.Contents(server)
		plan.State = workflow.State{Status: workflow.Running}
		v := vaulttest.OnEmulator(t, server, azblob.WithUnversionedUpdates())
		vaulttest.Fails(t, v.UpdatePlan(t.Context(), plan), storage.ErrNotFound)
		if !maps.Equal(before, vaulttest.Contents(server)) {
			t.Error("it changed something")
		}
		list, err := v.Search(t.Context(), storage.Filters{ByStatus: []workflow.Status{workflow.Running}})
		vaulttest.Must(t, err)
		for r := range list {
			t.Errorf("a search shows %+v", r)
		}
	})
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

// TestUpdateTwiceAtOnce makes the same update from two goroutines. One of them learns that it was second, so
// that only one engine goes on.
func TestUpdateTwiceAtOnce(t *testing.T) {
	vaulttest.InBubble(t, "of one vault", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, plantest.Small())
		plan.State.Status = workflow.Running
		var wg sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			mine := *plan
			wg.Go(func() { errs[i] = v.UpdatePlan(t.Context(), &mine) })
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), storage.ErrConflict) {
			t.Errorf("got %v, want one nil and one ErrConflict", errs)
		}
	})
}

// TestCompletion checks the order of the writes of a final update.
func TestCompletion(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, status := range []workflow.Status{workflow.Completed, workflow.Failed, workflow.Stopped} {
		vaulttest.InBubble(t, status.String(), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			_, plan := vaulttest.Running(t, v, plantest.Full())
			plan.State.Status, plan.Reason = status, workflow.BlockFailed
			server.ResetRequests()
			vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
			var got []string
			for _, r := range server.Requests() {
				got = append(got, fmt.Sprint(r.Op, strings.NewReplacer(plan.ID.String(), "", r.Container, "").Replace(r.Path())))
			}
			if want := []string{"PutBlob/plans/-entry.json", "PutBlob/plans/-object.json", "DeleteBlob/open/"}; !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
			vaulttest.Same(t, v, plan)
			if err := v.UpdatePlan(t.Context(), plan); err != nil {
				t.Errorf("once more: %v", err)
			}
			vaulttest.Same(t, v, plan)
		})
	}
}

// TestCompletionAgain breaks off a final update at each of its requests, for a running plan and for a final
// one. The same call again completes it, with the plan as given or as it is now, and also after Recovery has
// completed it.
func TestCompletionAgain(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, effect := range []emulator.Effect{emulator.Silence(), emulator.Silence().Applied()} {
		for n := 1; n <= 3; n++ {
			for _, final := range []bool{false, true} {
				for _, asGiven := range []bool{false, true} {
					for _, recovered := range []bool{false, true} {
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
							ctx, cancel := context.WithTimeout(t.Context(), time.Second)
							defer cancel()
							want := storage.ErrUnknown
							if final && n == 1 { // the marker of the change
								want = storage.ErrUnavailable
							}
							if err := v.UpdatePlan(ctx, plan); !errors.Is(err, want) {
								t.Fatalf("got %v, want %v", err, want)
							}
							if asGiven {
								plan.State.ETag = etag
							}
							if recovered {
								time.Sleep(vaulttest.PastGrace)
								vaulttest.Must(t, healthy.Recovery(t.Context()))
							}
							for range 2 { // the version that it sets is good
								if err := v.UpdatePlan(t.Context(), plan); err != nil {
									t.Fatalf("the same call again: %v", err)
								}
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
			}
		}
	}
}

// TestTwoCompletions lets somebody else, or Recovery, complete a plan between the entry and the object of a
// completion. The last write wins.
func TestTwoCompletions(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	// complete completes a plan, and calls a function before the request for its object.
	complete := func(t *testing.T, server *emulator.Server, plan *workflow.Plan, do func()) error {
		t.Helper()
		transport := server.Transport()
		transport.SetGate(vaulttest.Before(emulator.PutBlob, "-object.json", do))
		return vaulttest.OnEmulator(t, server, azblob.WithTransport(transport)).UpdatePlan(t.Context(), plan)
	}
	vaulttest.InBubble(t, "a later completion keeps its object", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, plan := vaulttest.Running(t, v, plantest.Full())
		var theirs *workflow.Plan
		err := complete(t, server, plan, func() {
			theirs = vaulttest.Reread(t, v, plan)
			theirs.Descr, theirs.Blocks[0].State.End, theirs.Blocks[0].Sequences[0].Actions[0].Attempts = "theirs", time.Now(), nil
			vaulttest.Should(t, v.UpdatePlan(t.Context(), theirs))
		})
		if err != nil {
			t.Errorf("the first completion took effect before the second one: %v", err)
		}
		vaulttest.Same(t, v, theirs)
		vaulttest.Fails(t, v.UpdatePlan(t.Context(), plan), storage.ErrConflict)
		if err := v.UpdatePlan(t.Context(), theirs); err != nil {
			t.Errorf("an update of the second one's version: %v", err)
		}
		vaulttest.Sound(t, v)
	})
	vaulttest.InBubble(t, "a later completion that is under way keeps its object", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, plan := vaulttest.Running(t, v, plantest.Full())
		var theirs *workflow.Plan
		err := complete(t, server, plan, func() {
			theirs = vaulttest.Reread(t, v, plan)
			theirs.Descr, theirs.Blocks[0].State.End = "theirs", time.Now()
			mine := *plan // the first completion's object is written between the entry and the object of the second
			body := objectBlob(t, server, &mine)
			vaulttest.Should(t, complete(t, server, theirs, func() { rewrite(t, server, plan, body) }))
		})
		vaulttest.Should(t, err)
		vaulttest.Same(t, v, theirs)
		vaulttest.Sound(t, v)
	})
	vaulttest.InBubble(t, "a later completion that dies keeps its marker", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, plan := vaulttest.Running(t, v, plantest.Full())
		mine := *plan
		body := objectBlob(t, server, &mine)
		var theirs *workflow.Plan
		err := complete(t, server, plan, func() {
			rewrite(t, server, plan, body) // as Recovery does with an old delete marker
			theirs = vaulttest.Reread(t, v, plan)
			theirs.Descr = "theirs"
			vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("-object.json"), func(v *azblob.Vault) { _ = v.UpdatePlan(t.Context(), theirs) })
		})
		if err != nil {
			t.Errorf("the first completion took effect before the second one: %v", err)
		}
		time.Sleep(vaulttest.PastGrace)
		vaulttest.Should(t, v.Recovery(t.Context()))
		vaulttest.Same(t, v, theirs)
		vaulttest.Sound(t, v)
	})
	vaulttest.InBubble(t, "an entry that is restored in between is no later completion", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, plan := vaulttest.Running(t, v, plantest.Full())
		mine := *plan
		body := objectBlob(t, server, &mine)
		var entry emulator.Blob
		for c := range server.Containers() {
			entry, _ = server.Blob(c, "plans/"+plan.ID.String()+"-entry.json")
		}
		entry.Metadata["writeid"] = "restored"
		err := complete(t, server, plan, func() {
			rewrite(t, server, plan, body)
			rewrite(t, server, plan, entry)
		})
		vaulttest.Fails(t, err, storage.ErrUnknown, storage.ErrConflict)
		if now := vaulttest.Reread(t, v, plan); now.State.Status != workflow.Running {
			t.Errorf("the plan is %s", now.State.Status)
		}
		vaulttest.Sound(t, v)
	})
	for _, lasting := range []bool{false, true} {
		vaulttest.InBubble(t, fmt.Sprintf("a false 404 is no deletion, lasting %v", lasting), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			_, plan := vaulttest.Running(t, v, plantest.Full())
			mine := *plan
			body := objectBlob(t, server, &mine)
			rule := emulator.On(emulator.HeadBlob).Path("-object.json").Do(emulator.Answer(404, "BlobNotFound"))
			if !lasting {
				rule.Nth(1)
			}
			err := complete(t, server, plan, func() {
				rewrite(t, server, plan, body)
				server.Inject(rule)
			})
			if rule.Fired() == 0 || !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrNotFound) {
				t.Errorf("got %v, want ErrUnknown", err)
			}
			server.ClearFaults()
			vaulttest.Should(t, v.UpdatePlan(t.Context(), plan))
			vaulttest.Same(t, v, plan)
			vaulttest.Sound(t, v)
		})
	}
	vaulttest.InBubble(t, "Recovery completes it in between", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, plan := vaulttest.Running(t, v, plantest.Full())
		plan.Blocks[0].State.End = time.Now() // which the block's own blob does not have
		if err := complete(t, server, plan, func() {
			vaulttest.Should(t, v.Recovery(t.Context()))
		}); err != nil {
			t.Error(err)
		}
		vaulttest.Same(t, v, plan)
		if err := v.UpdatePlan(t.Context(), plan); err != nil {
			t.Errorf("the version that it set: %v", err)
		}
		vaulttest.Sound(t, v)
	})
	vaulttest.InBubble(t, "the object is rewritten before each try", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, plan := vaulttest.Running(t, v, plantest.Full())
		body := objectBlob(t, server, plan)
		server.ResetRequests()
		transport := server.Transport()
		transport.SetGate(vaulttest.Gate(func(r emulator.Request) {
			if r.Op == emulator.PutBlob && strings.HasSuffix(r.Blob, "-object.json") {
				rewrite(t, server, plan, body)
			}
		}))
		w := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport))
		vaulttest.Fails(t, w.UpdatePlan(t.Context(), plan), storage.ErrUnknown, storage.ErrConflict)
		if n := len(server.Requests()); n > 20 {
			t.Errorf("%d requests were sent", n)
		}
		transport.SetGate(nil)
		if err := w.UpdatePlan(t.Context(), plan); err != nil {
			t.Errorf("the same call again: %v", err)
		}
		vaulttest.Same(t, v, plan)
		vaulttest.Sound(t, v)
	})
	vaulttest.InBubble(t, "a Delete is under way", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, plan := vaulttest.Running(t, v, plantest.Full())
		err := complete(t, server, plan, func() {
			vaulttest.Should(t, v.Delete(t.Context(), plan.ID))
		})
		vaulttest.Fails(t, err, storage.ErrNotFound)
		vaulttest.Empty(t, server)
	})
}

// TestUpdateBesideADelete checks what updates of sub-objects return beside a Delete. While the Delete is
// under way they may return nil, with no visible effect. After it they return ErrNotFound.
func TestUpdateBesideADelete(t *testing.T) {
	vaulttest.InBubble(t, "before the removal of the sub-objects", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, plan := vaulttest.Running(t, v, plantest.Full())
		transport := server.Transport()
		transport.SetGate(vaulttest.Before(emulator.BatchDelete, "", func() {
			if _, err := v.Read(t.Context(), plan.ID); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Read beside the Delete: %v", err)
			}
			for o, parent := range workflow.Walk(plan) {
				if parent == nil {
					continue
				}
				if err := storage.Update(t.Context(), v, o); err != nil && !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("update of %s beside the Delete: %v", o.Kind(), err)
				}
			}
		}))
		vaulttest.Must(t, vaulttest.OnEmulator(t, server, azblob.WithTransport(transport)).Delete(t.Context(), plan.ID))
		for o := range workflow.Walk(plan) {
			vaulttest.Fails(t, storage.Update(t.Context(), v, o), storage.ErrNotFound)
		}
		vaulttest.Empty(t, server)
	})
}

// TestUpdateAgainOfAHalfDeletedPlan updates a plan that a Delete has left. Whoever calls again, as engines do after
// ErrUnknown, learns that the plan is gone.
func TestUpdateAgainOfAHalfDeletedPlan(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, plantest.Small())
		vaulttest.Dies(t, server, emulator.On(emulator.BatchDelete), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
		vaulttest.Moved(plan, workflow.Running)
		for _, unknown := range []bool{true, false, false} {
			if err := v.UpdatePlan(t.Context(), plan); !errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrUnknown) != unknown {
				t.Errorf("got %v, want ErrNotFound, and ErrUnknown: %t", err, unknown)
			}
		}
	})
}

// TestUnversionedUpdateBelievesNoFalse404 answers each look of an update without a version with one 404.
func TestUnversionedUpdateBelievesNoFalse404(t *testing.T) {
	for _, effect := range vaulttest.Absences {
		for nth := 1; nth <= 2; nth++ {
			vaulttest.InBubble(t, fmt.Sprint(effect, nth), func(t *testing.T, server *emulator.Server) {
				plan := vaulttest.CreatedRunning(t, vaulttest.OnEmulator(t, server), plantest.Small())
				plan.State.ETag, plan.State.Start = "", plan.State.Start.Add(time.Second)
				rule, transport := emulator.On(emulator.HeadBlob).Nth(nth).Do(effect), server.Transport()
				transport.Inject(rule)
				v := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport), azblob.WithUnversionedUpdates())
				if err := v.UpdatePlan(t.Context(), plan); err != nil || rule.Fired() != 1 {
					t.Errorf("%d false responses, %v", rule.Fired(), err)
				}
				vaulttest.Same(t, vaulttest.OnEmulator(t, server), plan)
			})
		}
	}
}

// objectBlob returns the stored object of a plan.
func objectBlob(t *testing.T, server *emulator.Server, plan *workflow.Plan) emulator.Blob {
	t.Helper()
	for c := range server.Containers() {
		if b, ok := server.Blob(c, "plans/"+plan.ID.String()+"-object.json"); ok {
			return b
		}
	}
	t.Fatal("the plan has no object")
	return emulator.Blob{}
}

// rewrite stores the object of a plan again, which changes its version.
func rewrite(t *testing.T, server *emulator.Server, plan *workflow.Plan, b emulator.Blob) {
	t.Helper()
	for c := range server.Containers() {
		if _, ok := server.Blob(c, b.Name); ok {
			server.Put(c, b.Name, b.Body, b.Metadata)
			return
		}
	}
	t.Fatalf("plan %s has no object", plan.ID)
}

// TestStorm rides out a storm within its deadline.
func TestStorm(t *testing.T) {
	vaulttest.InBubble(t, "half an hour of 503", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, plantest.Small())
		end := time.Now().Add(30 * time.Minute)
		server.Inject(emulator.On().Where(func(emulator.Request) bool { return time.Now().Before(end) }).Do(emulator.Answer(503, "ServerBusy")))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		plan.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdatePlan(ctx, plan))
		if late := time.Since(end); late > time.Minute {
			t.Errorf("it took %v after the storm", late)
		}
		if n := len(server.Requests()); n > 2*200 { // the entry and the look at the object
			t.Errorf("%d requests were sent into the storm", n)
		}
	})
	vaulttest.InBubble(t, "without a deadline it ends by itself", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		server.Inject(emulator.On().Do(emulator.Answer(503, "ServerBusy")))
		started := time.Now()
		_, err := v.Read(context.WithoutCancel(t.Context()), workflow.NewV7())
		vaulttest.Fails(t, err, storage.ErrUnavailable)
		if took := time.Since(started); took > 15*time.Minute || took < 10*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}
