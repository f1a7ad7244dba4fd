package verbs_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestReadsNeverWrite calls every reading method on a store with all possible remains.
func TestReadsNeverWrite(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "all reads", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		whole := vaulttest.Created(t, v, plantest.Full())
		half := plantest.Full()
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), half) })
		_, final := vaulttest.Running(t, v, plantest.Full())
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.UpdatePlan(t.Context(), final) })
		gone := vaulttest.Created(t, v, plantest.Full())
		vaulttest.Dies(t, server, emulator.On(emulator.BatchDelete), func(v *azblob.Vault) { _ = v.Delete(t.Context(), gone.ID) })
		time.Sleep(vaulttest.PastGrace)

		server.Forbid(func(r emulator.Request) error {
			if r.Method != "GET" && r.Method != "HEAD" {
				return fmt.Errorf("a read writes: %v", r)
			}
			return nil
		})
		for _, id := range []*workflow.Plan{whole, half, final, gone, {ID: workflow.NewV7()}} {
			_, err := v.Read(t.Context(), id.ID)
			there, existsErr := v.Exists(t.Context(), id.ID)
			if existsErr != nil || there != (id == whole || id == final) || there != (err == nil) || !there && !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("Exists: %v, %v; Read: %v", there, existsErr, err)
			}
		}
		got := map[string]bool{}
		for _, f := range []storage.Filters{{Limit: 9}, {ByStatus: []workflow.Status{workflow.NotStarted, workflow.Completed}}} {
			found, err := v.Search(t.Context(), f)
			vaulttest.Must(t, err)
			for r := range found {
				got[r.Result.ID.String()] = true
			}
		}
		if len(got) != 2 || !got[whole.ID.String()] || !got[final.ID.String()] {
			t.Errorf("listings show %v", got)
		}
		if _, err := v.Check(t.Context(), azblob.CheckOptions{}); err != nil {
			t.Error(err)
		}
		report, err := v.Recover(t.Context(), azblob.RecoverOptions{DryRun: true})
		if err != nil || len(report.Plans) != 3 {
			t.Errorf("a dry run: %+v, %v", report, err)
		}
		for _, err := range server.Violations() {
			t.Error(err)
		}
	})
}

// TestReadOfMany checks that Read requests only what has changed, and shows every change.
func TestReadOfMany(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "updates", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, vaulttest.Many())
		plan.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
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
			if n, want := len(server.Requests()), 2+3+i/7+1; n != want {
				t.Fatalf("%d requests, want %d", n, want)
			}
			for i, a := range vaulttest.ActionsOf(got) { // what was taken from the object has the versions that can be updated
				if want := vaulttest.ActionsOf(plan)[i].State; a.State != want {
					t.Fatalf("state %v, want %v", a.State, want)
				}
			}
		}
	})
	vaulttest.InBubble(t, "beside updates", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		for n := 1; ; n++ {
			plan := vaulttest.Created(t, v, vaulttest.Many())
			plan.State.Status = workflow.Running
			vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
			before := map[string]workflow.State{}
			for _, a := range vaulttest.ActionsOf(plan) {
				before[a.ID.String()] = a.State
			}
			transport, asked := server.Transport(), 0
			transport.SetGate(vaulttest.Gate(func(emulator.Request) {
				if asked++; asked != n {
					return
				}
				for i, a := range vaulttest.ActionsOf(plan) {
					if a.State.Status = workflow.Running; i%9 == 0 {
						vaulttest.Should(t, v.UpdateAction(t.Context(), a))
					}
				}
			}))
			got := vaulttest.Reread(t, vaulttest.OnEmulator(t, server, azblob.WithTransport(transport), azblob.WithConcurrency(1)), plan)
			shown := 0
			for i, a := range vaulttest.ActionsOf(got) {
				now := vaulttest.ActionsOf(plan)[i].State
				if i%9 == 0 && a.State == now {
					shown++
				} else if a.State != before[a.ID.String()] {
					t.Fatalf("at %d: %v is neither before nor after", n, a.State)
				}
			}
			if all := len(vaulttest.ActionsOf(plan))/9 + 1; n <= 2 && shown != all { // before the listing
				t.Errorf("at %d: %d of %d updates are shown", n, shown, all)
			}
			if asked < n {
				break
			}
		}
	})
	vaulttest.InBubble(t, "a listing that misses some", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, vaulttest.Many())
		plan.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
		late := vaulttest.ActionsOf(plan)[3]
		late.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdateAction(t.Context(), late))
		forgetful := vaulttest.OnEmulator(t, server, azblob.WithTransport(forgetful{server.Transport(), late.ID.String()}))
		if d := plantest.Diff(plan, vaulttest.Reread(t, forgetful, plan)); d != "" {
			t.Error(d)
		}
	})
	vaulttest.InBubble(t, "lost from outside, and deleted", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, vaulttest.Many())
		plan.State.Status = workflow.Running
		vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
		name := fmt.Sprintf("actions/%s/%s.json", plan.ID, vaulttest.ActionsOf(plan)[5].ID)
		for c := range server.Containers() {
			server.Remove(c, name)
		}
		if _, err := v.Read(t.Context(), plan.ID); !errors.Is(err, storage.ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want ErrCorrupt with %s", err, name)
		}
		for n := 3; n <= 5; n++ { // at each listing
			plan := vaulttest.Created(t, v, vaulttest.Many())
			plan.State.Status = workflow.Running
			vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
			transport, asked := server.Transport(), 0
			transport.SetGate(vaulttest.Gate(func(emulator.Request) {
				if asked++; asked == n {
					vaulttest.Should(t, v.Delete(t.Context(), plan.ID))
				}
			}))
			if _, err := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport), azblob.WithConcurrency(1)).Read(t.Context(), plan.ID); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("deleted at %d: %v, want ErrNotFound", n, err)
			}
		}
	})
}

// forgetful is a transport whose listings omit the blobs with an ID in their names.
type forgetful struct {
	policy.Transporter
	id string
}

func (f forgetful) Do(req *http.Request) (*http.Response, error) {
	resp, err := f.Transporter.Do(req)
	if err != nil || req.URL.Query().Get("comp") != "list" {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	body = regexp.MustCompile(`<Blob><Name>[^<]*`+f.id+`\.json</Name>.*?</Blob>`).ReplaceAll(body, nil)
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = -1
	resp.Header.Del("Content-Length")
	return resp, err
}

// TestReadBesideACompletion reads a plan while it is completed, between any two requests of the Read.
func TestReadBesideACompletion(t *testing.T) {
	for n := 1; n <= 2; n++ {
		vaulttest.InBubble(t, fmt.Sprintf("between request %d and %d of Read", n, n+1), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			_, after := vaulttest.Running(t, v, plantest.Small())
			transport := server.Transport()
			asked := 0
			transport.SetGate(vaulttest.Gate(func(emulator.Request) {
				if asked++; asked == n+1 {
					vaulttest.Should(t, v.UpdatePlan(t.Context(), after))
				}
			}))
			got := vaulttest.Reread(t, vaulttest.OnEmulator(t, server, azblob.WithTransport(transport), azblob.WithConcurrency(1)), after)
			if got.State.Status.Final() {
				if d := plantest.Diff(after, got); d != "" {
					t.Error(d)
				}
			}
			vaulttest.Should(t, v.UpdatePlan(t.Context(), vaulttest.Reread(t, v, after)))
		})
	}
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
		{"newer schema", put(func(s string) string { return strings.Replace(s, `"schema":1`, `"schema":2`, 1) }), storage.ErrSchema},
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
				report, err := v.Check(t.Context(), azblob.CheckOptions{})
				if err != nil || len(report.Problems) == 0 && report.InProgress == 0 {
					t.Errorf("%s: Check finds nothing, %v", name, err)
				}
			}
		})
	}
}

// TestReadRidesOutBadAnswers shortens and flips bodies in transit. Read requests them again.
func TestReadRidesOutBadAnswers(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, effect := range []emulator.Effect{emulator.CutBody(0), emulator.CutBody(1), emulator.CutBody(100), emulator.FlipBit(0), emulator.FlipBit(999), emulator.Reset()} {
		for n := 1; n <= 5; n++ {
			vaulttest.InBubble(t, fmt.Sprintf("%v at %d", effect, n), func(t *testing.T, server *emulator.Server) {
				before, _ := vaulttest.Running(t, vaulttest.OnEmulator(t, server), plantest.Small())
				rule := emulator.On(emulator.GetBlob).Nth(n).Do(effect)
				if d := plantest.Diff(before, vaulttest.Reread(t, vaulttest.Faulty(t, server, rule), before)); d != "" {
					t.Error(d)
				}
				if rule.Fired() != 1 {
					t.Errorf("the fault came %d times", rule.Fired())
				}
			})
		}
	}
}

// TestReadTypes reads with other registries than the one the plan was written with.
func TestReadTypes(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		_, plan := vaulttest.Running(t, vaulttest.OnEmulator(t, server), plantest.Full())
		open := func(reg *registry.Register) *azblob.Vault {
			v, err := azblob.NewFromConnectionString(t.Context(), "test", server.ConnectionString(), reg, azblob.WithTransport(server.Transport()))
			vaulttest.Must(t, err)
			return v
		}
		raw := vaulttest.Reread(t, open(nil), plan)
		for o := range workflow.Walk(raw) {
			if a, ok := o.(*workflow.Action); ok {
				if _, ok := a.Req.(json.RawMessage); !ok {
					t.Fatalf("a request is %T", a.Req)
				}
				if _, ok := a.Attempts[1].Resp.(json.RawMessage); !ok {
					t.Fatalf("a response is %T", a.Attempts[1].Resp)
				}
			}
		}
		if err := open(nil).UpdatePlan(t.Context(), raw); err != nil { // a tool may write it back
			t.Fatal(err)
		}
		typed := vaulttest.Reread(t, vaulttest.OnEmulator(t, server), plan)
		for o := range workflow.Walk(typed) {
			if a, ok := o.(*workflow.Action); ok {
				if _, ok := a.Req.(plantest.Request); !ok {
					t.Fatalf("a request is %T", a.Req)
				}
				if _, ok := a.Attempts[1].Resp.(*plantest.Response); !ok {
					t.Fatalf("a response is %T", a.Attempts[1].Resp)
				}
			}
		}
		if _, err := open(registry.New()).Read(t.Context(), plan.ID); !errors.Is(err, storage.ErrSchema) || !strings.Contains(err.Error(), plantest.PluginName) {
			t.Errorf("without the plugin: %v, want ErrSchema that names it", err)
		}
	})
}
