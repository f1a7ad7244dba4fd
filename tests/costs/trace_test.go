package costs_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/goldentest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// TestTraces compares the requests of each operation with testdata/traces.txt, which is also documentation.
// The vault sends one request at a time here, so that their order is always the same.
func TestTraces(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		vaulttest.Strict(t, server)
		v := vaulttest.OnEmulator(t, server, azblob.Options{Concurrency: 1})
		ctx := t.Context()
		plan := plantest.Small()
		action := func() *workflow.Action { return plan.Blocks[0].Sequences[0].Actions[0] }

		var out strings.Builder
		step := func(name string, do func() error) {
			t.Helper()
			server.ResetRequests()
			if err := do(); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			fmt.Fprintf(&out, "# %s\n", name)
			for _, r := range server.Requests() {
				fmt.Fprintln(&out, r)
			}
			fmt.Fprintln(&out)
		}
		drain := func(f storage.Filters) error { return vaulttest.ErrOf(storage.Collect(v.Search(ctx, f))) }
		read := func() (err error) {
			plan, err = v.Read(ctx, plan.ID)
			return err
		}

		step("Create, the first of a day", func() error { return v.Create(ctx, plan) })
		second := plantest.Small()
		time.Sleep(time.Millisecond) // so that its ID sorts behind the first one's
		step("Create", func() error { return v.Create(ctx, second) })
		step("Exists", func() error { return vaulttest.ErrOf(v.Exists(ctx, plan.ID)) })
		step("Read, NotStarted", read)
		plan.State.Status = workflow.Running
		step("UpdatePlan, Running", func() error { return v.UpdatePlan(ctx, plan) })
		action().State.Status = workflow.Running
		step("UpdateAction", func() error { return v.UpdateAction(ctx, action()) })
		step("Read, Running", read)
		step("Search by status, of what is open", func() error {
			return drain(storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}})
		})
		step("Recovery, with nothing to do", func() error { return v.Recovery(ctx) })
		plan.State.Status = workflow.Completed
		step("UpdatePlan, final", func() error { return v.UpdatePlan(ctx, plan) })
		step("Read, final", read)
		step("Search by ID", func() error { return drain(storage.Filters{ByIDs: []uuid.UUID{plan.ID}}) })
		step("Search by status", func() error { return drain(storage.Filters{ByStatus: []workflow.Status{workflow.Completed}}) })
		step("Search for the newest", func() error { return drain(storage.Filters{Limit: 1}) })
		step("Search before a plan", func() error { return drain(storage.Filters{Limit: 1, BeforeID: second.ID}) })
		step("Delete", func() error { return v.Delete(ctx, plan.ID) })
		time.Sleep(time.Millisecond)
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(ctx, plantest.Small()) })
		time.Sleep(vaulttest.PastGrace)
		step("Recovery, of a Create that was broken off before the commit", func() error { return v.Recovery(ctx) })
		vaulttest.Dies(t, server, emulator.On(emulator.BatchDelete), func(v *azblob.Vault) { _ = v.Delete(ctx, second.ID) })
		time.Sleep(vaulttest.PastGrace)
		step("Recovery, of a Delete that was broken off after the commit", func() error { return v.Recovery(ctx) })
		large := vaulttest.CreatedRunning(t, v, vaulttest.Many())
		one := vaulttest.ActionsOf(large)[0]
		one.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdateAction(ctx, one))
		step("Read, Running, of 112 sub-objects of which one has changed", func() error { return vaulttest.ErrOf(v.Read(ctx, large.ID)) })

		time.Sleep(24 * time.Hour)
		for range 40 {
			time.Sleep(time.Minute)
			vaulttest.CreatedRunning(t, v, plantest.Small())
		}
		step("Search by status, of 40 plans that are open", func() error {
			return drain(storage.Filters{ByStatus: []workflow.Status{workflow.Running}})
		})

		m := storage.Member{ID: workflow.NewV7(), Name: "host-1", Started: time.Now()}
		add := func() (err error) {
			m.Version, err = v.Control().AddMember(ctx, m)
			return err
		}
		step("AddMember, the first of a vault", add)
		m = storage.Member{ID: workflow.NewV7()}
		step("AddMember", add)
		step("RenewMember", func() (err error) {
			m.Version, err = v.Control().RenewMember(ctx, m)
			return err
		})
		step("FindMember", func() error { return vaulttest.ErrOf(v.Control().FindMember(ctx, m.ID)) })
		step("AddStop", func() error { return v.Control().AddStop(ctx, large.ID, workflow.Attribution{}) })
		var stop storage.StopRequest
		step("Roster", func() error {
			r, err := v.Control().Roster(ctx)
			stop = r.Stops[0]
			return err
		})
		step("RemoveStop", func() error { return v.Control().RemoveStop(ctx, stop.Plan, stop.Version) })
		step("RemoveMember", func() error { return v.Control().RemoveMember(ctx, m.ID, m.Version) })
		n := storage.Note{Name: "policy", Text: []byte("{}")}
		for _, name := range []string{"PutNote, of a new note", "PutNote"} {
			step(name, func() (err error) {
				n.Version, err = v.Control().PutNote(ctx, n)
				return err
			})
		}
		step("FindNote", func() error { return vaulttest.ErrOf(v.Control().FindNote(ctx, n.Name)) })
		step("RemoveNote", func() error { return v.Control().RemoveNote(ctx, n.Name, n.Version) })
		k := storage.KeyRecord{Name: "key:west", Holders: []storage.Holder{{Plan: large.ID, Taken: true}}}
		for _, name := range []string{"PutKey, of a new key", "PutKey"} {
			step(name, func() (err error) {
				k.Version, err = v.Control().PutKey(ctx, k)
				return err
			})
		}
		step("FindKey", func() error { return vaulttest.ErrOf(v.Control().FindKey(ctx, k.Name)) })
		step("Keys", func() error { return vaulttest.ErrOf(storage.Collect(v.Control().Keys(ctx))) })
		step("RemoveKey", func() error { return v.Control().RemoveKey(ctx, k.Name, k.Version) })
		goldentest.Equal(t, filepath.Join("testdata", "traces.txt"), []byte(vaulttest.Named(out.String())))
	})
}
