package verbs_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestCreateOfATakenID creates a plan whose ID belongs to a plan, or to remains of one.
func TestCreateOfATakenID(t *testing.T) {
	again := func(plan *workflow.Plan) *workflow.Plan {
		other := plantest.Small()
		other.ID = plan.ID
		return other
	}
	vaulttest.InBubble(t, "a plan", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := plantest.Full()
		if err := v.Create(t.Context(), plan); err != nil {
			t.Fatal(err)
		}
		if err := v.Create(t.Context(), again(plan)); !errors.Is(err, storage.ErrExists) {
			t.Errorf("got %v, want ErrExists", err)
		}
		vaulttest.Same(t, v, plan)
		vaulttest.Settled(t, v)
		vaulttest.Same(t, v, plan)
	})
	vaulttest.InBubble(t, "remains", func(t *testing.T, server *emulator.Server) {
		plan := plantest.Full()
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), plan) })
		v := vaulttest.OnEmulator(t, server)
		before := vaulttest.Stored(server)
		if err := v.Create(t.Context(), again(plan)); !errors.Is(err, storage.ErrConflict) {
			t.Errorf("got %v, want ErrConflict", err)
		}
		if vaulttest.Stored(server) != before {
			t.Errorf("%d blobs became %d", before, vaulttest.Stored(server))
		}
		vaulttest.Settled(t, v)
		if err := v.Create(t.Context(), plan); err != nil {
			t.Errorf("after Recovery: %v", err)
		}
		vaulttest.Same(t, v, plan)
	})
}

// TestCreateUndoesItself makes Create fail for certain before it sends the object. Nothing is left.
func TestCreateUndoesItself(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, path := range []string{"blocks/", "sequences/", "actions/"} {
		vaulttest.InBubble(t, path, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.Faulty(t, server, emulator.On(emulator.PutBlob).Path(path).Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
			err := v.Create(t.Context(), plantest.Full())
			if !errors.Is(err, storage.ErrDenied) || errors.Is(err, storage.ErrUnknown) {
				t.Errorf("got %v, want ErrDenied", err)
			}
			if n := vaulttest.Stored(server); n != 0 {
				t.Errorf("%d blobs are left", n)
			}
		})
	}
	vaulttest.InBubble(t, "not while an outcome is unknown", func(t *testing.T, server *emulator.Server) {
		// The answer to the first block is lost for good, the second is refused.
		v := vaulttest.Faulty(t, server,
			emulator.On(emulator.PutBlob).Path("blocks/").Nth(1).Do(emulator.Silence().Late(40)),
			emulator.On(emulator.PutBlob).Path("blocks/").Nth(2).Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := v.Create(ctx, plantest.Full()); !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("got %v, want ErrUnknown", err)
		}
		v = vaulttest.OnEmulator(t, server)
		if report := vaulttest.Sound(t, v); report.InProgress != 1 {
			t.Errorf("%d plans are in progress, want what is left to Recovery", report.InProgress)
		}
		server.DeliverLate()
		vaulttest.Settled(t, v)
		if n := vaulttest.Stored(server); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
	})
}

// TestUndoBesideACreate undoes a refused Create beside a successful one with the same ID. The blobs of the
// successful one stay.
func TestUndoBesideACreate(t *testing.T) {
	refused := func() *emulator.Rule {
		return emulator.On(emulator.PutBlob).Path("actions/").Do(emulator.Answer(403, "AuthorizationPermissionMismatch"))
	}
	// Both write the marker, the second undoes itself up to the marker, and then the first continues.
	vaulttest.InBubble(t, "the marker of both", func(t *testing.T, server *emulator.Server) {
		plan, other := plantest.Small(), plantest.Small()
		driver.Complete(plan)
		other.ID = plan.ID
		undone, created := make(chan struct{}), make(chan struct{})
		second := server.Transport()
		second.Inject(refused())
		signal := sync.OnceFunc(func() { close(undone) })
		second.SetGate(vaulttest.Before(emulator.DeleteBlob, "open/", func() { signal(); <-created }))
		first := server.Transport()
		var loser error
		var both sync.WaitGroup
		first.SetGate(vaulttest.Before(emulator.PutBlob, "-entry.json", func() {
			both.Go(func() {
				loser = vaulttest.OnEmulator(t, server, azblob.WithTransport(second)).Create(t.Context(), other)
				signal()
			})
			<-undone
		}))
		v := vaulttest.OnEmulator(t, server, azblob.WithTransport(first))
		err := v.Create(t.Context(), plan)
		close(created)
		both.Wait()
		if err != nil || !errors.Is(loser, storage.ErrDenied) {
			t.Fatalf("the first: %v; the second: %v, want ErrDenied", err, loser)
		}
		vaulttest.Same(t, vaulttest.OnEmulator(t, server), plan)
		vaulttest.Sound(t, vaulttest.OnEmulator(t, server))
	})
	// The undo comes after Recovery has removed everything and the same plan was created again.
	vaulttest.InBubble(t, "the sub-objects of a later one", func(t *testing.T, server *emulator.Server) {
		plan := plantest.Small()
		driver.Complete(plan)
		again := *plan
		frozen := server.Transport()
		frozen.Inject(refused())
		frozen.SetGate(vaulttest.Before(emulator.BatchDelete, "", func() {
			vaulttest.Settled(t, vaulttest.OnEmulator(t, server))
			if err := vaulttest.OnEmulator(t, server).Create(t.Context(), &again); err != nil {
				t.Error(err)
			}
		}))
		patient := azblob.WithRetry(azblob.Retry{InitialInterval: time.Millisecond, MaxElapsed: time.Hour})
		if err := vaulttest.OnEmulator(t, server, azblob.WithTransport(frozen), patient).Create(t.Context(), plan); err == nil {
			t.Fatal("a Create that was refused returned nil")
		}
		vaulttest.Same(t, vaulttest.OnEmulator(t, server), &again)
		vaulttest.Sound(t, vaulttest.OnEmulator(t, server))
	})
}

// TestCreateLeavesWhatIsUncertain has a write refused after a try with an unknown outcome. The first copy may
// still arrive, so the Create leaves its remains.
func TestCreateLeavesWhatIsUncertain(t *testing.T) {
	vaulttest.InBubble(t, "a sub-object", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.Faulty(t, server,
			emulator.On(emulator.PutBlob).Path("blocks/").Nth(1).Do(emulator.LostRequest().Late(100)),
			emulator.On(emulator.PutBlob).Path("blocks/").Nth(2).Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
		err := v.Create(t.Context(), plantest.Small())
		if !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, storage.ErrDenied) {
			t.Errorf("got %v, want ErrUnknown and ErrDenied", err)
		}
		server.DeliverLate()
		vaulttest.Settled(t, vaulttest.OnEmulator(t, server))
		if n := vaulttest.Stored(server); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
	})
}

// TestCreateBeyondTheGracePeriod makes a Create slower than its grace period. It takes itself back, because
// Recovery may have begun to remove it.
func TestCreateBeyondTheGracePeriod(t *testing.T) {
	vaulttest.InBubble(t, "before the object is sent", func(t *testing.T, server *emulator.Server) {
		transport := vaulttest.Send(func(req *http.Request) (*http.Response, error) {
			if strings.Contains(req.URL.Path, "/actions/") {
				select {
				case <-time.After(11 * time.Minute):
				case <-req.Context().Done():
					return nil, req.Context().Err()
				}
			}
			return server.Transport().Do(req)
		})
		started := time.Now()
		err := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport)).Create(t.Context(), plantest.Small())
		if !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(started); took > 10*time.Minute {
			t.Errorf("it went on for %v", took)
		}
		v := vaulttest.OnEmulator(t, server)
		vaulttest.Settled(t, v)
		if n := vaulttest.Stored(server); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
	})
	vaulttest.InBubble(t, "with an answer to the object that comes too late", func(t *testing.T, server *emulator.Server) {
		transport := server.Transport()
		transport.Inject(emulator.On(emulator.PutBlob).Path("actions/").Nth(1).Do(emulator.Answer(503, "ServerBusy").RetryAfter(590 * time.Second)))
		plan := plantest.Small()
		err := vaulttest.OnEmulator(t, server, azblob.WithTransport(vaulttest.Frozen(transport, "-object.json", 20*time.Second))).Create(t.Context(), plan)
		if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) {
			t.Errorf("got %v, want ErrUnavailable: it was taken back", err)
		}
		if n := vaulttest.Stored(server); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
		if vaulttest.WholeOrGone(t, vaulttest.OnEmulator(t, server), plan) != nil {
			t.Error("the plan is there")
		}
	})
}

// TestLateCreateOfAPlanThatRuns freezes a Create between the write of its object and the answer until the
// grace period is over. Meanwhile another process runs the plan. Create leaves such a plan, unless some of it
// is gone.
func TestLateCreateOfAPlanThatRuns(t *testing.T) {
	const object, entry = "PUT -object.json", "HEAD -entry.json"
	claim := func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) *workflow.Plan {
		t.Helper()
		run, err := v.Read(t.Context(), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		run.State.Status = workflow.Running
		if err := v.UpdatePlan(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		return run
	}
	actions := func(plan *workflow.Plan) []*workflow.Action { return plan.Blocks[0].Sequences[0].Actions }
	finish := func(t *testing.T, v *azblob.Vault, run *workflow.Plan) {
		t.Helper()
		for _, o := range append(workflow.Parts(run), run) {
			if o.Header().State.Status != workflow.Completed {
				o.Header().State.Status = workflow.Completed
				if err := storage.Update(t.Context(), v, o); err != nil {
					t.Fatalf("%s: %v", o.Kind(), err)
				}
			}
		}
	}
	var done *workflow.Action // the first action, if it was completed meanwhile
	for _, tt := range []struct {
		name string
		at   string // the request after which the Create freezes
		run  func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan)
		kept bool // whether the plan stays
	}{
		{"an action is completed", object, func(t *testing.T, _ *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			done = actions(claim(t, v, plan))[0]
			done.State.Status = workflow.Completed
			if err := v.UpdateAction(t.Context(), done); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"it is completed", object, func(t *testing.T, _ *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			finish(t, v, claim(t, v, plan))
		}, true},
		{"Recovery has removed an action", object, func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			a := actions(claim(t, v, plan))[1]
			for c := range server.Containers() {
				server.Remove(c, "actions/"+plan.ID.String()+"/"+a.ID.String()+".json")
			}
		}, false},
		{"claimed after the look", entry, func(t *testing.T, _ *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			claim(t, v, plan)
		}, false},
		{"the service denies the entry", object, func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			claim(t, v, plan)
			server.Inject(emulator.On(emulator.HeadBlob).Path("-entry.json").Nth(1).Do(emulator.Answer(404, "BlobNotFound")))
		}, true},
		{"the service denies a sub-object", object, func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			claim(t, v, plan)
			server.Inject(emulator.On(emulator.PutBlob).Path("blocks/").Nth(1).Do(emulator.Answer(404, "BlobNotFound")))
		}, true},
	} {
		vaulttest.InBubble(t, tt.name, func(t *testing.T, server *emulator.Server) {
			v, plan := vaulttest.OnEmulator(t, server), plantest.Sized(1, 1, 2)
			slow := server.Transport()
			slow.Inject(emulator.On(emulator.PutBlob).Path("actions/").Nth(1).Do(emulator.Answer(503, "ServerBusy").RetryAfter(590 * time.Second)))
			method, suffix, _ := strings.Cut(tt.at, " ")
			ran := false
			done = nil
			transport := vaulttest.After(slow, func(req *http.Request) {
				if !ran && req.Method == method && strings.HasSuffix(req.URL.Path, suffix) {
					ran = true
					tt.run(t, server, v, plan)
				}
				if req.Method == http.MethodPut && strings.HasSuffix(req.URL.Path, "-object.json") {
					time.Sleep(20 * time.Second)
				}
			})
			err := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport)).Create(t.Context(), plan)
			if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("Create: %v, want ErrUnknown", err)
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q is more than a line", err)
			}
			again := plantest.Sized(1, 1, 2)
			again.ID = plan.ID
			err = v.Create(t.Context(), again)
			if !tt.kept {
				if !errors.Is(err, storage.ErrConflict) {
					t.Errorf("another Create beside the remains: %v, want ErrConflict", err)
				}
				vaulttest.Settled(t, v)
				if n := vaulttest.Stored(server); n != 0 {
					t.Errorf("%d blobs are left", n)
				}
				return
			}
			if !errors.Is(err, storage.ErrExists) {
				t.Errorf("another Create: %v, want ErrExists", err)
			}
			run, err := v.Read(t.Context(), plan.ID)
			if err != nil {
				t.Fatal(err)
			}
			if done != nil {
				if a := actions(run)[0]; a.State.ETag != done.State.ETag {
					t.Errorf("the version of the completed action is %q, want %q", a.State.ETag, done.State.ETag)
				}
				for i, o := range workflow.Parts(run) {
					if o.Header().State.ETag == workflow.Parts(plan)[i].Header().State.ETag {
						t.Errorf("%s: a Recovery that has begun can remove it", o.Kind())
					}
				}
			}
			finish(t, v, run)
			vaulttest.Settled(t, v)
			vaulttest.Same(t, v, run)
		})
	}
}

func TestCreateInADayThatWasDropped(t *testing.T) {
	vaulttest.InBubble(t, "container gone", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		first, second := plantest.Small(), plantest.Small()
		if err := v.Create(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		for c := range server.Containers() {
			server.RemoveContainer(c)
		}
		if err := v.Create(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		vaulttest.Same(t, v, second)
	})
}

func TestCreateOnlyTouchesItsPrefix(t *testing.T) {
	server := emulator.New()
	vaulttest.Strict(t, server)
	server.PutContainer("test-2-2000-01-01", nil)
	server.Put("test-2-2000-01-01", "open/"+uuid.NewString(), nil, nil)
	server.PutContainer("test-2000-1-1", nil)
	v := vaulttest.OnEmulator(t, server)
	plan := plantest.Small()
	if err := v.Create(t.Context(), plan); err != nil {
		t.Fatal(err)
	}
	if err := v.Recovery(t.Context()); err != nil {
		t.Fatal(err)
	}
	vaulttest.Same(t, v, plan)
	if r := vaulttest.Sound(t, v); r.Days != 1 {
		t.Errorf("%d days were checked", r.Days)
	}
	if err := v.Delete(t.Context(), plan.ID); err != nil {
		t.Fatal(err)
	}
}

// TestContainersAreCreatedOnce creates many plans at once, and then more in a vault that knows its
// containers.
func TestContainersAreCreatedOnce(t *testing.T) {
	vaulttest.InBubbleOf(t, emulator.New(emulator.WithLatency(time.Second)), func(t *testing.T, server *emulator.Server) {
		asked := func() (n int) {
			for _, r := range server.Requests() {
				if r.Op == emulator.CreateContainer {
					n++
				}
			}
			return n
		}
		rule := emulator.On(emulator.CreateContainer).Nth(1).Do(emulator.Answer(403, "AccountIsDisabled")) // the first of them fails, and another goes on
		v := vaulttest.Faulty(t, server, rule)
		var wg sync.WaitGroup
		var failed atomic.Int64
		for range 20 {
			wg.Go(func() {
				if err := v.Create(t.Context(), plantest.Small()); err != nil {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		if failed.Load() != 1 || asked() != 2 {
			t.Errorf("%d failed, %d containers were created", failed.Load(), asked())
		}
		v = vaulttest.OnEmulator(t, server)
		if n := len(vaulttest.Collect(t, v, storage.Filters{Limit: 100})); n != 19 {
			t.Errorf("%d plans", n)
		}
		vaulttest.Created(t, v, plantest.Small())
		if asked() != 2 {
			t.Error("a container that was listed is created")
		}
		for c := range server.Containers() {
			server.RemoveContainer(c)
		}
		vaulttest.Created(t, v, plantest.Small())
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		next := &workflow.Plan{ID: vaulttest.IDAt(time.Now().Add(12 * time.Hour)), Name: "next day"}
		if err := v.Create(ctx, next); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// TestCreateBesideADayBeingDeleted creates a plan of today while a Create of another day waits for the service to
// finish deleting that day's container.
func TestCreateBesideADayBeingDeleted(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		rule := emulator.On(emulator.CreateContainer).Nth(1).Do(emulator.Answer(409, "ContainerBeingDeleted").RetryAfter(8 * time.Minute))
		v := vaulttest.Faulty(t, server, rule)
		var wg sync.WaitGroup
		wg.Go(func() {
			old := &workflow.Plan{ID: vaulttest.IDAt(time.Now().AddDate(0, 0, -2)), Name: "two days ago"}
			if err := v.Create(t.Context(), old); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(time.Second)
		started := time.Now()
		vaulttest.Created(t, v, plantest.Small())
		if waited := time.Since(started); waited > time.Minute {
			t.Errorf("a plan of today waits %v for the container of another day", waited)
		}
		wg.Wait()
	})
}

// TestCreateThatMayNotTakeAMarkerOver lets a Create find the marker of another one with its ID. The service
// refuses to let it write that marker.
func TestCreateThatMayNotTakeAMarkerOver(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		plan := plantest.Small()
		vaulttest.CreateBroken("plans/*-entry.json", 1)(t, vaulttest.WorldOf(server), plan)
		rule := emulator.On(emulator.PutBlob).Path("open/").Nth(2).Do(emulator.Answer(403, "AuthorizationPermissionMismatch"))
		if err := vaulttest.Faulty(t, server, rule).Create(t.Context(), plan); !errors.Is(err, storage.ErrDenied) || rule.Fired() != 1 {
			t.Errorf("got %v, want ErrDenied", err)
		}
	})
}
