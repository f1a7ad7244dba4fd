package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// TestDeleteOrder is the order of writes of a Delete.
func TestDeleteOrder(t *testing.T) {
	inBubble(t, "600 sub-objects", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		plan := created(t, v, plantest.Sized(1, 1, 598))
		other := created(t, v, plantest.Small())
		server.ResetRequests()
		if err := v.Delete(t.Context(), plan.ID); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range server.Requests() {
			line := fmt.Sprintf("%s %s", r.Op, strings.NewReplacer(plan.ID.String(), "ID", r.Container, "").Replace(r.Path()))
			if len(r.Items) > 2 {
				line += " of sub-objects"
			}
			got = append(got, line)
		}
		want := []string{
			"GetBlob /plans/ID-object.json", "PutBlob /open/ID-delete", "DeleteBlob /plans/ID-object.json",
			"BatchDelete  of sub-objects", "BatchDelete  of sub-objects", "BatchDelete  of sub-objects",
			"DeleteBlob /plans/ID-entry.json", "BatchDelete ",
		}
		if !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		same(t, v, other)
		sound(t, v)
		if n := stored(server); n != 6 {
			t.Errorf("%d blobs are left, want the 6 of the other plan", n)
		}
	})
}

func TestDeleteWhatIsNotThere(t *testing.T) {
	inBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		absent := func(what string, id *workflow.Plan) {
			t.Helper()
			before := stored(server)
			if err := v.Delete(t.Context(), id.ID); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s: %v, want ErrNotFound", what, err)
			}
			if stored(server) != before {
				t.Errorf("%s: something was written or removed", what)
			}
		}
		absent("no container", &workflow.Plan{ID: workflow.NewV7()})
		plan := created(t, v, plantest.Small())
		absent("no plan", &workflow.Plan{ID: workflow.NewV7()})
		half := plantest.Small()
		dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), half) })
		absent("a plan that is being created", half) // deleting its entry could make debris of what is still under way
		if err := v.Delete(t.Context(), plan.ID); err != nil {
			t.Fatal(err)
		}
		absent("deleted", plan)
	})
}

// TestDeleteLostAnswers loses each request of a Delete, or its answer.
func TestDeleteLostAnswers(t *testing.T) {
	for _, effect := range []emulator.Effect{
		emulator.LostAnswer(), emulator.LostRequest(), emulator.Answer(500, "InternalError").Applied(),
		emulator.Answer(503, "ServerBusy"), emulator.Silence(), emulator.Silence().Applied(), emulator.Duplicate(0), emulator.Duplicate(2),
		emulator.CutBody(10),
	} {
		for n := 1; n <= 6; n++ {
			inBubble(t, fmt.Sprintf("%v at %d", effect, n), func(t *testing.T, server *emulator.Server) {
				v := onEmulator(t, server)
				plan := created(t, v, plantest.Small())
				rule := emulator.On().Nth(n).Do(effect)
				if err := faulty(t, server, rule).Delete(t.Context(), plan.ID); err != nil {
					t.Fatal(err)
				}
				server.DeliverLate()
				settled(t, v)
				if n := stored(server); n != 0 {
					t.Errorf("%d blobs are left", n)
				}
			})
		}
	}
}

// TestDeleteCancelled ends the context at each request of a Delete: the same call again settles it.
func TestDeleteCancelled(t *testing.T) {
	for _, effect := range []emulator.Effect{emulator.Silence(), emulator.Silence().Applied()} {
		for n := 2; n <= 6; n++ {
			inBubble(t, fmt.Sprintf("%v at %d", effect, n), func(t *testing.T, server *emulator.Server) {
				v := faulty(t, server, emulator.On().Nth(n).Do(effect))
				plan := created(t, onEmulator(t, server), plantest.Small())
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := v.Delete(ctx, plan.ID); !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v, want ErrUnknown of the context's error", err)
				}
				if err := v.Delete(t.Context(), plan.ID); err != nil && !errors.Is(err, storage.ErrNotFound) {
					t.Fatalf("the same call again: %v", err)
				}
				if n := stored(server); n != 0 {
					t.Errorf("%d blobs are left", n)
				}
			})
		}
	}
}

// TestDeleteBesideOthers deletes twice at once, and beside a completion.
func TestDeleteBesideOthers(t *testing.T) {
	inBubble(t, "many deletes", func(t *testing.T, server *emulator.Server) {
		plan := created(t, onEmulator(t, server), plantest.Full())
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() { errs[i] = onEmulator(t, server).Delete(t.Context(), plan.ID) })
		}
		wg.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else if !errors.Is(err, storage.ErrNotFound) {
				t.Error(err)
			}
		}
		if won == 0 {
			t.Error("nobody deleted the plan")
		}
		settled(t, onEmulator(t, server))
		if n := stored(server); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
	})
	inBubble(t, "an object that is rewritten meanwhile", func(t *testing.T, server *emulator.Server) {
		v := onEmulator(t, server)
		_, plan := running(t, v, plantest.Full())
		transport := server.Transport()
		transport.SetGate(&between{emulator.DeleteBlob, "", func() {
			if err := v.UpdatePlan(t.Context(), plan); err != nil {
				t.Error(err)
			}
		}})
		if err := onEmulator(t, server, azblob.WithTransport(transport)).Delete(t.Context(), plan.ID); err != nil {
			t.Fatal(err)
		}
		if n := stored(server); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
	})
}

// TestDeleteDamaged removes a plan whose object can't tell what belongs to it; one of a newer schema is left untouched.
func TestDeleteDamaged(t *testing.T) {
	for name, damage := range map[string]func(s string) string{"corrupt": func(s string) string { return s[1:] }, "newer": func(s string) string { return strings.Replace(s, `"schema":1`, `"schema":2`, 1) }} {
		inBubble(t, name, func(t *testing.T, server *emulator.Server) {
			v := onEmulator(t, server)
			plan := created(t, v, plantest.Full())
			for c := range server.Containers() {
				b, _ := server.Blob(c, "plans/"+plan.ID.String()+"-object.json")
				server.Put(c, b.Name, []byte(damage(string(b.Body))), b.Metadata)
			}
			before := stored(server)
			err := v.Delete(t.Context(), plan.ID)
			if name == "newer" {
				if !errors.Is(err, storage.ErrSchema) || stored(server) != before {
					t.Errorf("got %v, and %d blobs of %d", err, stored(server), before)
				}
				return
			}
			if err != nil || stored(server) != 0 {
				t.Errorf("got %v, and %d blobs are left", err, stored(server))
			}
		})
	}
}
