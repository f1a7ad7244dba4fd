package verbs_test

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestReadOfMany checks that Read requests only what has changed, and shows every change.
func TestReadOfMany(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for what, shape := range map[string]vaulttest.Shape{"many": vaulttest.Many, "few": func() *workflow.Plan { return plantest.Sized(1, 2, 10) }} {
		vaulttest.InBubble(t, "updates of "+what, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			plan := vaulttest.CreatedRunning(t, v, shape())
			for i, a := range vaulttest.ActionsOf(plan) {
				if i%7 == 0 {
					a.State.Status = workflow.Running
					vaulttest.Must(t, v.UpdateAction(t.Context(), a))
				}
				if i%efforttest.Pick(10, 3, 1) != 0 {
					continue
				}
				server.ResetRequests()
				got := vaulttest.Reread(t, v, plan)
				if d := plantest.Diff(plan, got); d != "" {
					t.Fatal(d)
				}
				changed, all := i/7+1, len(workflow.Parts(plan))
				n := map[int]int{}
				for _, r := range server.Requests() {
					n[r.Status]++
				}
				want := map[int]int{200: 2 + 3 + changed}
				if what == "few" {
					want = map[int]int{200: 2 + changed, 304: all - changed}
				}
				if !maps.Equal(n, want) {
					t.Fatalf("requests %v, want %v", n, want)
				}
				for i, a := range vaulttest.ActionsOf(got) { // what was taken from the object has the versions that can be updated
					if want := vaulttest.ActionsOf(plan)[i].State; a.State != want {
						t.Fatalf("state %v, want %v", a.State, want)
					}
				}
			}
		})
		vaulttest.BeforeEach(t, "beside updates of "+what, func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
			v := vaulttest.OnEmulator(t, server)
			plan := vaulttest.CreatedRunning(t, v, shape())
			actions := vaulttest.ActionsOf(plan)
			var before []workflow.State
			for _, a := range actions {
				before = append(before, a.State)
			}
			got := vaulttest.Reread(t, at.Vault(t, server, func() {
				for i := 0; i < len(actions); i += 9 {
					actions[i].State.Status = workflow.Running
					vaulttest.Should(t, v.UpdateAction(t.Context(), actions[i]))
				}
			}), plan)
			shown := 0
			for i, a := range vaulttest.ActionsOf(got) {
				if i%9 == 0 && a.State == actions[i].State {
					shown++
				} else if a.State != before[i] {
					t.Fatalf("%v is neither before nor after", a.State)
				}
			}
			if all := len(actions)/9 + 1; at.N <= 2 && shown != all { // before any look at a sub-object
				t.Errorf("%d of %d updates are shown", shown, all)
			}
		})
	}
	vaulttest.InBubble(t, "a listing that misses some", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.CreatedRunning(t, v, vaulttest.Many())
		late := vaulttest.ActionsOf(plan)[3]
		late.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdateAction(t.Context(), late))
		short := &vaulttest.ShortLister{Transport: server.Transport(), Name: "[^<]*" + late.ID.String(), Times: 1}
		vaulttest.Same(t, v, plan)
		if d := plantest.Diff(plan, vaulttest.Reread(t, vaulttest.OnEmulator(t, server, settings.Over(short)), plan)); d != "" || short.Times > 0 {
			t.Errorf("%q; %d listings were not short", d, short.Times)
		}
	})
	vaulttest.InBubble(t, "lost from outside", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		d := vaulttest.DamagedOf(server, vaulttest.CreatedRunning(t, v, vaulttest.Many()))
		name := fmt.Sprintf("actions/%s/%s.json", d.Plan.ID, vaulttest.ActionsOf(d.Plan)[5].ID)
		d.Lose(name)
		if _, err := v.Read(t.Context(), d.Plan.ID); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want ErrCorrupt with %s", err, name)
		}
	})
	vaulttest.BeforeEach(t, "deleted", func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.CreatedRunning(t, v, vaulttest.Many())
		_, err := at.Vault(t, server, func() { vaulttest.Should(t, v.Delete(t.Context(), plan.ID)) }).Read(t.Context(), plan.ID)
		if at.Came() {
			vaulttest.Fails(t, err, storage.ErrNotFound)
		}
	})
}

// TestReadDamage damages each blob of a plan in each way. Read never panics and never returns a wrong plan.
func TestReadDamage(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	type damage struct {
		name string
		do   func(server *emulator.Server, container, name string)
		want error
	}
	put := func(change func(string) string) func(*emulator.Server, string, string) {
		return func(server *emulator.Server, container, name string) {
			b, _ := server.Blob(container, name)
			server.Put(container, name, []byte(change(string(b.Body))), b.Metadata)
		}
	}
	for _, d := range []damage{
		{"flipped bit", func(s *emulator.Server, c, n string) {
			s.Corrupt(c, n, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		}, storage.ErrCorrupt},
		{"short", func(s *emulator.Server, c, n string) {
			s.Corrupt(c, n, func(b []byte) []byte { return b[:len(b)/2] })
		}, storage.ErrCorrupt},
		{"empty", put(func(string) string { return "" }), storage.ErrCorrupt},
		{"not JSON", put(func(s string) string { return s[1:] }), storage.ErrCorrupt},
		{"another's", put(func(s string) string { return strings.Replace(s, `"id":"`, `"id":"0`, 1) }), storage.ErrCorrupt},
		{"newer schema", put(func(s string) string { return strings.Replace(s, `"schema":1`, `"schema":4`, 1) }), storage.ErrSchema},
		{"missing", func(s *emulator.Server, c, n string) { s.Remove(c, n) }, storage.ErrCorrupt},
	} {
		vaulttest.InBubble(t, d.name, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			before, _ := vaulttest.Running(t, v, vaulttest.EachKind())
			var names []string
			var container string
			for container = range server.Containers() {
				for b := range server.Blobs(container) {
					if !strings.HasPrefix(b.Name, "open/") {
						names = append(names, b.Name)
					}
				}
			}
			for _, name := range names {
				clone := server.Clone()
				d.do(clone, container, name)
				v := vaulttest.OnEmulator(t, clone)
				_, err := v.Read(t.Context(), before.ID)
				want := d.want
				if d.name == "missing" && strings.HasPrefix(name, "plans/") {
					want = storage.ErrNotFound
				}
				if errors.Is(err, storage.ErrNotFound) != (want == storage.ErrNotFound) || strings.Contains(err.Error(), "%!") {
					t.Errorf("%s: whether there is such a plan is told wrongly: %v", name, err)
				}
				if !errors.Is(err, want) || want != storage.ErrNotFound && !strings.Contains(err.Error(), name) {
					t.Errorf("%s: %v, want %v with the blob's name", name, err, want)
				}
				report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
				if err != nil || len(report.Problems) == 0 && report.InProgress == 0 {
					t.Errorf("%s: Check finds nothing, %v", name, err)
				}
			}
		})
	}
}

// TestReadTypes reads with other registries than the one the plan was written with.
func TestReadTypes(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		_, plan := vaulttest.Running(t, vaulttest.OnEmulator(t, server), plantest.Full())
		open := func(reg *registry.Register) *azblob.Vault {
			v, err := azblob.NewFromConnectionString(t.Context(), "test", server.ConnectionString(), reg, settings.Over(server.Transport()))
			vaulttest.Must(t, err)
			return v
		}
		types := func(v *azblob.Vault, want string) *workflow.Plan {
			t.Helper()
			got := vaulttest.Reread(t, v, plan)
			for _, a := range vaulttest.ActionsOf(got) {
				if types := fmt.Sprintf("%T, %T", a.Req, a.Attempts[1].Resp); types != want {
					t.Fatalf("a request and a response are %s, want %s", types, want)
				}
			}
			return got
		}
		raw := types(open(nil), "json.RawMessage, json.RawMessage")
		vaulttest.Must(t, open(nil).UpdatePlan(t.Context(), raw)) // a tool may write it back
		types(vaulttest.OnEmulator(t, server), "plantest.Request, *plantest.Response")
		if _, err := open(registry.New()).Read(t.Context(), plan.ID); !errors.Is(err, storage.ErrSchema) || !strings.Contains(err.Error(), plantest.PluginName) {
			t.Errorf("without the plugin: %v, want ErrSchema that names it", err)
		}
	})
}
