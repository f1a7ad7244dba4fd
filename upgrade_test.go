package azblob

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/google/uuid"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Upgrades of the stored form, rehearsed with a second schema that only these tests have. In it a block whose
// concurrency is 0 runs any number of sequences at once. In schema 1 it runs one.

var secondSchema = format{func(docType string, data []byte) ([]byte, error) {
	if docType != workflow.KindBlock.String() && docType != typeObject {
		return data, nil
	}
	var tree map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	blocks, _ := tree["blocks"].([]any)
	if docType != typeObject {
		blocks = []any{tree}
	}
	for _, b := range blocks {
		if block, ok := b.(map[string]any); ok && block["concurrency"] == nil {
			block["concurrency"] = 1
		}
	}
	return json.Marshal(tree)
}}

// openFormat opens a vault of a program that has this stored form.
func openFormat(t *testing.T, server *emulator.Server, form format) *Vault {
	t.Helper()
	v, err := NewFromConnectionString(t.Context(), "test", server.ConnectionString(), plantest.Register(), Options{ClientOptions: policy.ClientOptions{Transport: server.Transport()}, Backoff: Backoff{InitialInterval: time.Millisecond, MaxElapsed: time.Second}})
	must(t, err)
	v.format = form
	t.Cleanup(func() { must(t, v.Close(context.WithoutCancel(t.Context()))) })
	return v
}

// rehearse runs a test in virtual time, with a vault of the old program and one of the new program on one store.
func rehearse(t *testing.T, test func(t *testing.T, server *emulator.Server, before, after *Vault)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		test(t, server, openFormat(t, server, nil), openFormat(t, server, secondSchema))
	})
}

// contents returns all that is stored, by the names of blobs.
func contents(server *emulator.Server) map[string]emulator.Blob {
	all := map[string]emulator.Blob{}
	for c := range server.Containers() {
		for b := range server.Blobs(c) {
			all[c+"/"+b.Name] = b
		}
	}
	return all
}

// schemaOf returns the schema of a document, in its body and in its metadata.
func schemaOf(t *testing.T, b emulator.Blob) string {
	t.Helper()
	var d struct{ Schema json.Number }
	must(t, json.Unmarshal(b.Body, &d))
	if b.Metadata[metaSchema] != d.Schema.String() {
		t.Errorf("%s has schema %s, and its metadata %s", b.Name, d.Schema, b.Metadata[metaSchema])
	}
	return d.Schema.String()
}

func create(t *testing.T, v *Vault, status workflow.Status) *workflow.Plan {
	t.Helper()
	p := plantest.Sized(2, 1, 1)
	must(t, v.Create(t.Context(), p))
	for _, s := range []workflow.Status{workflow.Running, status} {
		if status >= workflow.Running && p.State.Status != s {
			p.State.Status = s
			must(t, v.UpdatePlan(t.Context(), p))
		}
	}
	return p
}

// TestOldProgramLeavesNewPlansAlone lets the old program do everything it can to plans of the new one.
func TestOldProgramLeavesNewPlansAlone(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	rehearse(t, func(t *testing.T, server *emulator.Server, before, after *Vault) {
		old := create(t, before, workflow.Running)
		plans := map[uuid.UUID]bool{}
		for _, status := range []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed} {
			plans[create(t, after, status).ID] = true
		}
		// The end of this one was interrupted after its entry, so a Recovery has something to do.
		cut := create(t, after, workflow.Running)
		plans[cut.ID] = true
		cut.State.Status = workflow.Failed
		rule := emulator.On(emulator.PutBlob).Path("*plans/*-object*").Do(emulator.LostRequest())
		server.Inject(rule)
		if err := after.UpdatePlan(t.Context(), cut); !errors.Is(err, storage.ErrUnknown) || rule.Fired() == 0 {
			t.Fatalf("an interrupted update returns %v", err)
		}
		server.ClearFaults()

		time.Sleep(48 * time.Hour) // everything may be an incomplete write's
		stored := func() map[string]emulator.Blob {
			all := contents(server)
			maps.DeleteFunc(all, func(name string, _ emulator.Blob) bool { return strings.Contains(name, old.ID.String()) })
			return all
		}
		was := stored()
		for id := range plans {
			if _, err := before.Read(t.Context(), id); !errors.Is(err, storage.ErrSchema) {
				t.Errorf("Read returns %v", err)
			}
			if err := before.Delete(t.Context(), id); !errors.Is(err, storage.ErrSchema) {
				t.Errorf("Delete returns %v", err)
			}
		}
		listed, err := before.List(t.Context(), 0)
		must(t, err)
		var all error
		for r := range listed {
			all = errors.Join(all, r.Err)
			if (r.Err == nil) != (r.Result.ID == old.ID) || r.Err != nil && !errors.Is(r.Err, storage.ErrSchema) {
				t.Errorf("List yields %v, %v", r.Result.ID, r.Err)
			}
		}
		for id := range plans {
			if all == nil || !strings.Contains(all.Error(), id.String()) {
				t.Errorf("List does not name %s: %v", id, all)
			}
		}
		for _, o := range []RepairOptions{{}, {Thorough: true}} {
			if report, err := before.Admin().Repair(audited.Mark(t.Context()), o); err == nil && o.Thorough {
				t.Errorf("Repair reports nothing: %+v", report)
			}
		}
		_, err = before.Admin().Check(t.Context(), CheckOptions{})
		must(t, err)
		if !reflect.DeepEqual(stored(), was) {
			t.Error("a plan of the new program has changed")
		}

		must(t, after.Recovery(t.Context()))
		got, err := after.Read(t.Context(), cut.ID)
		if err != nil || got.State.Status != workflow.Failed {
			t.Errorf("the new program recovers the plan as %v, %v", got, err)
		}
		sound(t, after)
	})
}

// sound fails if a store has problems.
func sound(t *testing.T, v *Vault) {
	t.Helper()
	report, err := v.Admin().Check(t.Context(), CheckOptions{})
	must(t, err)
	for _, p := range report.Problems {
		t.Error(p)
	}
}

// TestOldProgramLeavesExternalPlansAlone lets a node of a program without schema 3 look for plans that an engine of another kind
// places. It takes a plan after its handover, if the author had not given the plan to that engine.
func TestOldProgramLeavesExternalPlansAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		before, after := openFormat(t, server, format{nil}), openFormat(t, server, form)
		placer, err := fleet.NewPlacer(after, fleet.PlacerOptions{})
		must(t, err)
		var stays []*workflow.Plan
		for state := range 3 { // not begun, asleep and due, and Running
			p := plantest.Sized(1, 1, 1)
			if state == 0 {
				p.External.Name = "queue"
			}
			must(t, after.Create(t.Context(), p))
			if state > 0 {
				c, err := placer.Claim(p.ID, fleet.ClaimOptions{External: workflow.External{Name: "queue"}})
				must(t, err)
				p, err = c.Take(t.Context())
				if must(t, err); state == 1 {
					must(t, c.Sleep(t.Context(), p, c.Now(), 0))
				}
				c.Release()
			}
			stays = append(stays, p)
			if _, err := before.Read(t.Context(), p.ID); !errors.Is(err, storage.ErrSchema) {
				t.Errorf("the old program reads a plan of the queue: %v", err)
			}
		}
		node, err := fleet.Join(t.Context(), before, fleet.Options{TakeUnclaimed: true})
		must(t, err)
		defer func() { must(t, node.Leave(t.Context())) }()
		var taken []uuid.UUID
		go func() {
			for next := range node.Plans(t.Context()) {
				if next.Err == nil {
					taken = append(taken, next.Result.ID)
				} else if !errors.Is(next.Err, storage.ErrSchema) {
					t.Error(next.Err)
				}
			}
		}()
		time.Sleep(2 * time.Hour)
		for _, p := range stays {
			if now, err := after.Read(t.Context(), p.ID); err != nil || now.State.ETag != p.State.ETag {
				t.Errorf("a plan of the queue is now %+v, %v", now, err)
			}
		}
		by := workflow.Attribution{By: "ops"}
		_, err = fleet.HandOver(t.Context(), after, stays[2].ID, fleet.HandOverOptions{By: by, External: true})
		must(t, err)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if !slices.Equal(taken, []uuid.UUID{stays[2].ID}) {
			t.Errorf("it has run %v", taken)
		}
	})
}

// TestNewProgramUpgrades reads plans of schema 1 with the new program, which writes its own schema at updates.
func TestNewProgramUpgrades(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	rehearse(t, func(t *testing.T, server *emulator.Server, before, after *Vault) {
		for _, status := range []workflow.Status{workflow.NotStarted, workflow.Running, workflow.Completed} {
			id := create(t, before, status).ID
			was := contents(server)
			p, err := after.Read(t.Context(), id)
			must(t, err)
			for _, b := range p.Blocks {
				if b.Concurrency != 1 {
					t.Errorf("%s: a block of schema 1 is read with concurrency %d", status, b.Concurrency)
				}
			}
			if !reflect.DeepEqual(contents(server), was) {
				t.Errorf("%s: a read has changed what is stored", status)
			}
			sound(t, after)
			if status.Final() {
				continue
			}
			p.State.Status = workflow.Running
			must(t, after.UpdatePlan(t.Context(), p))
			must(t, after.UpdateBlock(t.Context(), p.Blocks[0]))
			sound(t, after)
			p.State.Status = workflow.Stopped
			must(t, after.UpdatePlan(t.Context(), p))
			for name, b := range contents(server) {
				if !strings.Contains(name, id.String()) || len(b.Body) == 0 {
					continue
				}
				want := "1"
				if strings.Contains(name, "-entry") || strings.Contains(name, "-object") || strings.Contains(name, p.Blocks[0].ID.String()) {
					want = "2"
				}
				if got := schemaOf(t, b); got != want {
					t.Errorf("%s has schema %s, want %s", name, got, want)
				}
			}
			again, err := after.Read(t.Context(), id)
			if err != nil || plantest.Diff(p, again) != "" {
				t.Errorf("the plan is read again as %v, %v", again, err)
			}
			sound(t, after)
		}
	})
}

// TestRollingUpgrade lets both programs work on all plans, in random order, with requests that fail. Each step
// succeeds or is refused, and nothing that the new program has written is lost.
func TestRollingUpgrade(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for seed := range efforttest.Seeds(t, 5, 12, 1000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rehearse(t, func(t *testing.T, server *emulator.Server, before, after *Vault) {
				r := rand.New(rand.NewPCG(seed, 0))
				names := map[uuid.UUID]string{} // the last descr of each plan
				var ids []uuid.UUID
				for step := range 60 {
					v := []*Vault{before, after}[r.IntN(2)]
					if len(ids) < 3 {
						p := plantest.Sized(1, 1, 2)
						must(t, v.Create(t.Context(), p))
						ids, names[p.ID] = append(ids, p.ID), p.Descr
						continue
					}
					id := ids[r.IntN(len(ids))]
					p, err := v.Read(t.Context(), id)
					if err != nil {
						if v == after || !errors.Is(err, storage.ErrSchema) {
							t.Fatalf("step %d: %v", step, err)
						}
						continue
					}
					if p.Descr != names[id] {
						t.Fatalf("step %d: an update is lost: %q, want %q", step, p.Descr, names[id])
					}
					if p.State.Status.Final() {
						continue
					}
					if r.IntN(4) == 0 { // a process dies at its next request but one, or at the one after
						server.Inject(emulator.On().Range(1+r.IntN(3), 100).Do(emulator.LostRequest()))
					}
					p.Descr = fmt.Sprint("step ", step)
					if p.State.Status = workflow.Running; r.IntN(8) == 0 {
						p.State.Status = workflow.Completed
					}
					err = v.UpdatePlan(t.Context(), p)
					if err == nil && !p.State.Status.Final() {
						for _, o := range workflow.Parts(p) {
							if a, ok := o.(*workflow.Action); ok {
								a.State.Status = workflow.Running
								err = errors.Join(err, v.UpdateAction(t.Context(), a))
							}
						}
					}
					server.ClearFaults()
					if now, readErr := after.Read(t.Context(), id); readErr != nil {
						t.Fatalf("step %d: after %v: %v", step, err, readErr)
					} else if now.Descr == p.Descr {
						names[id] = p.Descr
					} else if err == nil || now.Descr != names[id] {
						t.Fatalf("step %d: after %v the plan has %q", step, err, now.Descr)
					}
					if r.IntN(6) == 0 {
						time.Sleep(time.Hour)
						_ = before.Recovery(t.Context()) // it reports plans of the new schema
					}
				}
				time.Sleep(48 * time.Hour)
				must(t, after.Recovery(t.Context()))
				for _, id := range ids {
					p, err := after.Read(t.Context(), id)
					must(t, err)
					if p.Descr != names[id] {
						t.Errorf("%s has %q, want %q", id, p.Descr, names[id])
					}
				}
				sound(t, after)
			})
		})
	}
}

// TestTakeoverDuringAnUpgrade hands a plan from a node of the old program to one of the new program. A node of the
// old program can't take it back, and leaves it for the next new one.
func TestTakeoverDuringAnUpgrade(t *testing.T) {
	rehearse(t, func(t *testing.T, server *emulator.Server, before, after *Vault) {
		p := create(t, before, workflow.NotStarted)
		p.State.Status, p.Owner, p.Epoch = workflow.Running, workflow.NewV7(), 1
		must(t, before.UpdatePlan(t.Context(), p))
		take := func(v *Vault) (*workflow.Plan, error) {
			node, err := fleet.Join(t.Context(), v, fleet.Options{})
			must(t, err)
			got, takeErr := node.Take(t.Context(), p.ID)
			must(t, node.Leave(t.Context()))
			return got, takeErr
		}
		for epoch, v := range []*Vault{before, before, after} {
			got, err := take(v)
			if err != nil || got.Epoch != int64(epoch+2) {
				t.Fatalf("take %d: %v, %v", epoch, got, err)
			}
		}
		plans := func() map[string]emulator.Blob { // not the records of nodes that have left
			all := contents(server)
			maps.DeleteFunc(all, func(name string, _ emulator.Blob) bool { return strings.HasPrefix(name, after.prefix.control()+"/") })
			return all
		}
		was := plans()
		if _, err := take(before); !errors.Is(err, storage.ErrSchema) {
			t.Errorf("a node of the old program takes the plan: %v", err)
		}
		if !reflect.DeepEqual(plans(), was) {
			t.Error("a node of the old program has changed the plan")
		}
		if got, err := take(after); err != nil || got.Epoch != 5 {
			t.Errorf("the next node: %v, %v", got, err)
		}
		sound(t, after)
	})
}

// addMembers adds members that this code does not know to the data of a document, at each level but errors,
// requests and responses.
func addMembers(t *testing.T, body []byte) []byte {
	t.Helper()
	var tree map[string]any
	must(t, json.Unmarshal(body, &tree))
	var add func(v any)
	add = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, e := range v {
				add(e)
			}
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(v)) {
				if name != "req" && name != "resp" && name != "err" {
					add(v[name])
				}
			}
			v["new"] = map[string]any{"text": "новое", "list": []any{1, nil}}
		}
	}
	add(tree["data"])
	return mustJSON(t, tree)
}

// members counts the members that addMembers has added.
func members(text []byte) int { return bytes.Count(text, []byte(`"новое"`)) }

// TestUnknownMembersSurvive lets newer code of the same schema add members to all documents of a plan. They are
// there after each update, after the end, and after repairs.
func TestUnknownMembersSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		v := openFormat(t, server, nil)
		p := create(t, v, workflow.Running)
		for _, o := range workflow.Parts(p) {
			if a, ok := o.(*workflow.Action); ok {
				a.Attempts = []workflow.Attempt{{Start: time.Now().UTC(), End: time.Now().UTC()}}
				must(t, v.UpdateAction(t.Context(), a))
			}
		}
		keys := v.prefix.plan(p.ID)
		added := map[string]int{}
		for _, b := range contents(server) {
			if len(b.Body) == 0 {
				continue
			}
			body := addMembers(t, b.Body)
			if !strings.Contains(b.Name, "-object") { // its stubs and states are those of the sub-objects
				added[b.Name] = members(body)
			}
			server.Put(keys.container, b.Name, body, b.Metadata)
		}
		own := func(name string, stubs int) {
			t.Helper()
			b, _ := server.Blob(keys.container, name)
			if got, want := members(b.Body), added[name]-stubs; got != want {
				t.Errorf("%s has %d of the %d members", name, got, want)
			}
		}

		p, err := v.Read(t.Context(), p.ID)
		must(t, err)
		whole := members(mustJSON(t, p))
		must(t, v.UpdatePlan(t.Context(), p))
		own(keys.entry().Name, len(p.Blocks)) // the IDs of children are no objects of their own
		for _, o := range workflow.Parts(p) {
			switch o := o.(type) {
			case *workflow.Block:
				must(t, v.UpdateBlock(t.Context(), o))
				own(keys.part(o).Name, len(o.Sequences))
			case *workflow.Sequence:
				must(t, v.UpdateSequence(t.Context(), o))
				own(keys.part(o).Name, len(o.Actions))
			case *workflow.Action:
				must(t, v.UpdateAction(t.Context(), o))
				own(keys.part(o).Name, 0)
			}
		}

		p.State.Status = workflow.Completed
		must(t, v.UpdatePlan(t.Context(), p))
		object, _ := server.Blob(keys.container, keys.object().Name)
		if got := members(object.Body); got != whole || whole < 10 {
			t.Errorf("the object of the final plan has %d of %d members", got, whole)
		}
		final, err := v.Read(t.Context(), p.ID)
		must(t, err)
		if d := plantest.Diff(p, final); d != "" {
			t.Error(d)
		}

		// Recovery restores blobs that are lost.
		action := keys.part(p.Blocks[0].Sequences[0].Actions[0]).Name
		server.Remove(keys.container, keys.entry().Name)
		server.Remove(keys.container, action)
		time.Sleep(48 * time.Hour)
		for range 2 {
			_, err = v.Admin().Repair(audited.Mark(t.Context()), RepairOptions{Thorough: true})
			must(t, err)
		}
		own(keys.entry().Name, len(p.Blocks))
		own(action, 0)
		sound(t, v)
	})
}

// TestOldProgramLeavesSleepersAlone lets a program from before plans slept do what it can to one that sleeps, and to one
// with an action that is called later. Such a plan is the old program's again when it neither sleeps nor waits.
func TestOldProgramLeavesSleepersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := emulator.New(emulator.Options{})
		before, after := openFormat(t, server, nil), openFormat(t, server, form)
		asleep, waits := create(t, after, workflow.Running), create(t, after, workflow.Running)
		action := waits.Blocks[0].Sequences[0].Actions[0]
		action.State.Status, action.Attempts = workflow.Running, []workflow.Attempt{{Start: time.Now(), Later: &workflow.Later{At: time.Now().Add(time.Hour)}}}
		for what, change := range map[*workflow.Plan]func(){
			asleep: func() {
				asleep.Epoch, asleep.WakeAt = 1, time.Now().Add(time.Hour)
				must(t, after.UpdatePlan(t.Context(), asleep))
			},
			waits: func() { must(t, after.UpdateAction(t.Context(), action)) },
		} {
			_, err := before.Read(t.Context(), what.ID)
			must(t, err)
			change()
			_, err = before.Read(t.Context(), what.ID)
			if !errors.Is(err, storage.ErrSchema) || !strings.Contains(err.Error(), "update the program") {
				t.Errorf("Read returns %v", err)
			}
			_, err = after.Read(t.Context(), what.ID)
			must(t, err)
		}
		node, err := fleet.Join(t.Context(), before, fleet.Options{})
		must(t, err)
		var told []error
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
		defer cancel()
		for next := range node.Plans(ctx) {
			told = append(told, next.Err)
		}
		must(t, node.Leave(t.Context()))
		if all := errors.Join(told...); len(told) != 1 || !errors.Is(all, storage.ErrSchema) || !strings.Contains(all.Error(), asleep.ID.String()) {
			t.Errorf("a node of the old program yields %v", told)
		}
		sound(t, after)

		asleep.Owner, asleep.WakeAt, action.Attempts[0].Later = workflow.NewV7(), time.Time{}, nil
		must(t, after.UpdatePlan(t.Context(), asleep))
		must(t, after.UpdateAction(t.Context(), action))
		for _, p := range []*workflow.Plan{asleep, waits} {
			_, err := before.Read(t.Context(), p.ID)
			must(t, err)
		}
	})
}
