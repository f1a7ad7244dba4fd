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

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
	"github.com/planvault/azblob/workflow"
)

// TestCreateUndoesItself refuses a request of a Create. Nothing is left, unless the Create may not remove what it has written,
// or a copy of a write may still arrive. Its error says which.
func TestCreateUndoesItself(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	refused := func(path string) *emulator.Rule { return emulator.On(emulator.PutBlob).Path(path).Do(vaulttest.Denied) }
	late := func(path string) *emulator.Rule {
		return emulator.On(emulator.PutBlob).Path(path).Nth(1).Do(emulator.LostRequest().Late(1 << 20))
	}
	type rules = []*emulator.Rule
	for name, c := range map[string]struct {
		rules    rules
		unknown  bool
		succeeds bool // when the late copy arrives
	}{
		"a block":    {rules: rules{refused("blocks/")}},
		"a sequence": {rules: rules{refused("sequences/")}},
		"an action":  {rules: rules{refused("actions/")}},
		"the object": {rules: rules{refused("-object.json")}},
		"the object, and its removals": {
			rules: rules{refused("-object.json"), emulator.On(emulator.BatchDelete, emulator.DeleteBlob).Do(vaulttest.Denied)}, unknown: true,
		},
		"a block that may still arrive":   {rules: rules{late("blocks/"), refused("blocks/")}, unknown: true},
		"an object that may still arrive": {rules: rules{late("-object.json"), refused("-object.json")}, unknown: true, succeeds: true},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			plan := plantest.Small()
			err := vaulttest.Faulty(t, server, c.rules...).Create(t.Context(), plan)
			if !c.unknown {
				vaulttest.Fails(t, err, storage.ErrDenied)
				vaulttest.Empty(t, server)
				return
			}
			vaulttest.Fails(t, err, storage.ErrDenied, storage.ErrUnknown)
			v := vaulttest.OnEmulator(t, server)
			if report := vaulttest.Sound(t, v); report.InProgress != 1 {
				t.Errorf("%d plans are in progress, want what is left to Recovery", report.InProgress)
			}
			server.DeliverLate()
			vaulttest.Settled(t, v)
			if c.succeeds {
				vaulttest.Same(t, v, plan)
			} else {
				vaulttest.Empty(t, server)
			}
		})
	}
}

// TestUndoBesideACreate undoes a refused Create beside a successful one with the same ID. The blobs of the
// successful one stay.
func TestUndoBesideACreate(t *testing.T) {
	refused := func() *emulator.Rule { return emulator.On(emulator.PutBlob).Path("actions/").Do(vaulttest.Denied) }
	// Both write the marker, the second undoes itself up to the marker, and then the first continues.
	vaulttest.InBubble(t, "the marker of both", func(t *testing.T, server *emulator.Server) {
		plan := plantest.Small()
		driver.Complete(plan)
		undone, created := make(chan struct{}), make(chan struct{})
		signal := sync.OnceFunc(func() { close(undone) })
		second := vaulttest.Meanwhile(t, server, emulator.DeleteBlob, "open/", func() { signal(); <-created }, refused())
		var loser error
		var both sync.WaitGroup
		first := vaulttest.Meanwhile(t, server, emulator.PutBlob, "-entry.json", func() {
			both.Go(func() {
				loser = second.Create(t.Context(), vaulttest.CopyOf(plan))
				signal()
			})
			<-undone
		})
		err := first.Create(t.Context(), plan)
		close(created)
		both.Wait()
		vaulttest.Must(t, err)
		if !errors.Is(loser, storage.ErrDenied) {
			t.Errorf("the second: %v, want ErrDenied", loser)
		}
		vaulttest.Same(t, first, plan)
		vaulttest.Sound(t, first)
	})
	// The undo comes after Recovery has removed everything and the same plan was created again.
	for name, op := range map[string]emulator.Op{"": emulator.BatchDelete, "-entry.json": emulator.DeleteBlob} {
		vaulttest.InBubble(t, "a later one, at "+string(op), func(t *testing.T, server *emulator.Server) {
			plan := plantest.Small()
			driver.Complete(plan)
			again := *plan
			v := vaulttest.OnEmulator(t, server)
			meets := vaulttest.Meets(server, refused(), vaulttest.Before(op, name, func() {
				vaulttest.Settled(t, v)
				vaulttest.Should(t, v.Create(t.Context(), &again))
			}))
			patient := azblob.Options{Backoff: azblob.Backoff{InitialInterval: time.Millisecond, MaxElapsed: time.Hour}}
			if err := vaulttest.OnEmulator(t, server, meets, patient).Create(t.Context(), plan); err == nil {
				t.Fatal("a Create that was refused returned nil")
			}
			vaulttest.Same(t, v, &again)
			vaulttest.Sound(t, v)
		})
	}
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
		err := vaulttest.OnEmulator(t, server, settings.Over(transport)).Create(t.Context(), plantest.Small())
		if !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, storage.ErrUnknown) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(started); took > 10*time.Minute {
			t.Errorf("it went on for %v", took)
		}
		vaulttest.Settled(t, vaulttest.OnEmulator(t, server))
		vaulttest.Empty(t, server)
	})
	vaulttest.InBubble(t, "with an answer to the object that comes too late", func(t *testing.T, server *emulator.Server) {
		vaulttest.Fails(t, vaulttest.Faulty(t, server, vaulttest.AlmostLate(), vaulttest.Frozen("-object.json", 20*time.Second)).Create(t.Context(), plantest.Small()), storage.ErrUnavailable)
		vaulttest.Empty(t, server)
	})
}

// TestLateCreateOfAPlanThatRuns freezes a Create between the write of its object and the answer until the
// grace period is over. Meanwhile another process runs the plan. Create leaves such a plan, unless some of it
// is gone.
func TestLateCreateOfAPlanThatRuns(t *testing.T) {
	claim := func(t *testing.T, v *azblob.Vault, plan *workflow.Plan) *workflow.Plan {
		t.Helper()
		run := vaulttest.Reread(t, v, plan)
		run.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdatePlan(t.Context(), run))
		return run
	}
	finish := func(t *testing.T, v *azblob.Vault, run *workflow.Plan) {
		t.Helper()
		for _, o := range append(workflow.Parts(run), run) {
			if o.Header().State.Status != workflow.Completed {
				o.Header().State.Status = workflow.Completed
				vaulttest.Must(t, storage.Update(t.Context(), v, o))
			}
		}
	}
	denies := func(op emulator.Op, path string) func(*testing.T, *emulator.Server, *azblob.Vault, *workflow.Plan) {
		return func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			claim(t, v, plan)
			server.Inject(emulator.On(op).Path(path).Nth(1).Do(vaulttest.Absences[0]))
		}
	}
	var done *workflow.Action // the first action, if it was completed meanwhile
	for _, tt := range []struct {
		name         string
		method, blob string // the request after which the Create freezes
		run          func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan)
		kept         bool // whether the plan stays
	}{
		{"an action is completed", "PUT", "-object.json", func(t *testing.T, _ *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			done = vaulttest.ActionsOf(claim(t, v, plan))[0]
			done.State.Status = workflow.Completed
			vaulttest.Must(t, v.UpdateAction(t.Context(), done))
		}, true},
		{"it is completed", "PUT", "-object.json", func(t *testing.T, _ *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			finish(t, v, claim(t, v, plan))
		}, true},
		{"Recovery has removed an action", "PUT", "-object.json", func(t *testing.T, server *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			a := vaulttest.ActionsOf(claim(t, v, plan))[1]
			vaulttest.DamagedOf(server, plan).Lose("actions/" + plan.ID.String() + "/" + a.ID.String() + ".json")
		}, false},
		{"claimed after the look", "HEAD", "-entry.json", func(t *testing.T, _ *emulator.Server, v *azblob.Vault, plan *workflow.Plan) {
			claim(t, v, plan)
		}, false},
		{"the service denies the entry", "PUT", "-object.json", denies(emulator.HeadBlob, "-entry.json"), true},
		{"the service denies a sub-object", "PUT", "-object.json", denies(emulator.PutBlob, "blocks/"), true},
	} {
		vaulttest.InBubble(t, tt.name, func(t *testing.T, server *emulator.Server) {
			v, plan := vaulttest.OnEmulator(t, server), plantest.Sized(1, 1, 2)
			done = nil
			slow := vaulttest.Faulty(t, server, vaulttest.AlmostLate(),
				emulator.On().Method(tt.method).Path(tt.blob).Nth(1).Do(emulator.After(func() {
					if tt.run(t, server, v, plan); tt.method == http.MethodPut { // the object
						time.Sleep(20 * time.Second)
					}
				})),
				vaulttest.Frozen("-object.json", 20*time.Second))
			err := slow.Create(t.Context(), plan)
			if !errors.Is(err, storage.ErrUnknown) || errors.Is(err, storage.ErrUnavailable) || strings.Contains(err.Error(), "\n") {
				t.Errorf("Create: %v, want ErrUnknown in one line", err)
			}
			again := vaulttest.CopyOf(plan)
			if !tt.kept {
				vaulttest.Fails(t, v.Create(t.Context(), again), storage.ErrConflict)
				vaulttest.Settled(t, v)
				vaulttest.Empty(t, server)
				return
			}
			vaulttest.Fails(t, v.Create(t.Context(), again), storage.ErrExists)
			run := vaulttest.Reread(t, v, plan)
			if done != nil {
				if a := vaulttest.ActionsOf(run)[0]; a.State.ETag != done.State.ETag {
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

// TestContainersAreCreatedOnce creates many plans at once, and then more in a vault that knows its
// containers.
func TestContainersAreCreatedOnce(t *testing.T) {
	vaulttest.InBubbleOf(t, emulator.New(emulator.Options{Latency: time.Second}), func(t *testing.T, server *emulator.Server) {
		asked := func() int { return vaulttest.Sent(server, emulator.CreateContainer, "") }
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
		ctx := vaulttest.Within(t, time.Millisecond)
		next := &workflow.Plan{ID: workflow.NewV7At(time.Now().Add(12 * time.Hour)), Name: "next day"}
		if err := v.Create(ctx, next); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// TestContainersThatAreNotThereYet lets the service deny for five seconds a container that it has just created. Whoever
// writes there waits. A container that has been there for longer is not awaited: the day was dropped.
func TestContainersThatAreNotThereYet(t *testing.T) {
	for name, test := range map[string]struct {
		op     emulator.Op // what is denied
		blob   string
		create bool // another process has just created the container
	}{
		"every blob":            {},
		"the object alone":      {emulator.PutBlob, "-object.json", false},
		"of another process":    {emulator.PutBlob, "", true},
		"what is read after it": {emulator.GetBlob, "", false},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			if test.create {
				vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
				_, err := vaulttest.OnEmulator(t, server).Control().PutNote(t.Context(), storage.Note{Name: "first", Text: []byte("{}")})
				vaulttest.Must(t, err)
			}
			created := map[string]time.Time{}
			server.Inject(emulator.On().Where(func(r emulator.Request) bool {
				if r.Op == emulator.CreateContainer && created[r.Container].IsZero() {
					created[r.Container] = time.Now()
				}
				return r.Blob != "" && (test.op == "" || test.op == r.Op) && strings.Contains(r.Blob, test.blob) && time.Since(created[r.Container]) < 5*time.Second
			}).Do(emulator.Answer(404, "ContainerNotFound")))
			v, started := vaulttest.OnEmulator(t, server), time.Now()
			plan := plantest.Small()
			vaulttest.Must(t, v.Create(t.Context(), plan))
			vaulttest.Same(t, v, plan)
			_, err := v.Control().PutNote(t.Context(), storage.Note{Name: "note", Text: []byte("{}")})
			vaulttest.Must(t, err)
			if took, n := time.Since(started), len(server.Requests()); took < 5*time.Second || took > 40*time.Second || n > 150 {
				t.Errorf("it took %v and %d requests", took, n)
			}
			server.ClearFaults()
			vaulttest.Sound(t, v)

			server.Inject(emulator.On(emulator.PutBlob).Path("actions/").Do(emulator.Answer(404, "ContainerNotFound")))
			time.Sleep(time.Minute)
			started = time.Now()
			vaulttest.Fails(t, v.Create(t.Context(), plantest.Small()), storage.ErrNotFound)
			if took := time.Since(started); took > 0 {
				t.Errorf("a minute later it waits %v", took)
			}
		})
	}
}

// TestCreateBesideADayBeingDeleted creates a plan of today while a Create of another day waits for the service to
// finish deleting that day's container.
func TestCreateBesideADayBeingDeleted(t *testing.T) {
	vaulttest.InBubble(t, "", func(t *testing.T, server *emulator.Server) {
		rule := emulator.On(emulator.CreateContainer).Nth(1).Do(emulator.Answer(409, "ContainerBeingDeleted").RetryAfter(8 * time.Minute))
		v := vaulttest.Faulty(t, server, rule)
		var wg sync.WaitGroup
		wg.Go(func() {
			old := &workflow.Plan{ID: workflow.NewV7At(time.Now().AddDate(0, 0, -2)), Name: "two days ago"}
			vaulttest.Should(t, v.Create(t.Context(), old))
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
		rule := emulator.On(emulator.PutBlob).Path("open/").Nth(2).Do(vaulttest.Denied)
		if err := vaulttest.Faulty(t, server, rule).Create(t.Context(), plan); !errors.Is(err, storage.ErrDenied) || rule.Fired() != 1 {
			t.Errorf("got %v, want ErrDenied", err)
		}
	})
}

// TestFailuresEndWhatIsParallel counts the requests that a call still sends after one of its requests has
// failed.
func TestFailuresEndWhatIsParallel(t *testing.T) {
	const atOnce, elapsed = 4, time.Minute
	open := func(t *testing.T, server *emulator.Server, rule *emulator.Rule) *azblob.Vault {
		return vaulttest.OnEmulator(t, server, vaulttest.Meets(server, rule), azblob.Options{Concurrency: atOnce, Backoff: azblob.Backoff{MaxElapsed: elapsed}})
	}
	vaulttest.InBubble(t, "a Create that is refused sends no more sub-objects", func(t *testing.T, server *emulator.Server) {
		v := open(t, server, emulator.On(emulator.PutBlob).Path("actions/").Do(vaulttest.Denied))
		vaulttest.Fails(t, v.Create(t.Context(), plantest.Sized(1, 1, 200)), storage.ErrDenied)
		if n := vaulttest.Sent(server, emulator.PutBlob, "actions/"); n == 0 || n > atOnce {
			t.Errorf("%d actions were sent, want at most %d", n, atOnce)
		}
	})
	vaulttest.InBubble(t, "a Read in an outage ends when the first of its requests gives up", func(t *testing.T, server *emulator.Server) {
		_, plan := vaulttest.Running(t, vaulttest.OnEmulator(t, server), plantest.Sized(1, 1, 20))
		v := open(t, server, emulator.On(emulator.GetBlob).Path("actions/").Do(emulator.Answer(503, "ServerBusy")))
		started := time.Now()
		_, err := v.Read(t.Context(), plan.ID)
		if took := time.Since(started); !errors.Is(err, storage.ErrUnavailable) || took > 2*elapsed {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
