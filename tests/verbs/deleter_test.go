package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
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

// TestDeleteOrder checks the order of the writes of a Delete.
func TestDeleteOrder(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	vaulttest.InBubble(t, "600 sub-objects", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		plan := vaulttest.Created(t, v, plantest.Sized(1, 1, 598))
		other := vaulttest.Created(t, v, plantest.Small())
		server.ResetRequests()
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
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
		vaulttest.Same(t, v, other)
		vaulttest.Sound(t, v)
		if n := vaulttest.Stored(server); n != 6 {
			t.Errorf("%d blobs are left, want the 6 of the other plan", n)
		}
	})
}

func TestDeleteWhatIsNotThere(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		absent := func(what string, id *workflow.Plan) {
			t.Helper()
			before := vaulttest.Stored(server)
			if err := v.Delete(t.Context(), id.ID); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s: %v, want ErrNotFound", what, err)
			}
			if vaulttest.Stored(server) != before {
				t.Errorf("%s: something was written or removed", what)
			}
		}
		absent("no container", &workflow.Plan{ID: workflow.NewV7()})
		plan := vaulttest.Created(t, v, plantest.Small())
		absent("no plan", &workflow.Plan{ID: workflow.NewV7()})
		half := plantest.Small()
		vaulttest.Dies(t, server, emulator.On(emulator.PutBlob).Path("plans/*-object.json"), func(v *azblob.Vault) { _ = v.Create(t.Context(), half) })
		absent("a plan that is being created", half) // deleting its entry could make debris of what is still under way
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		absent("deleted", plan)
	})
}

// TestDeleteBesideOthers runs two Deletes at once, and a Delete beside a completion.
func TestDeleteBesideOthers(t *testing.T) {
	vaulttest.InBubble(t, "an object that is rewritten meanwhile", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		_, plan := vaulttest.Running(t, v, plantest.Full())
		transport := server.Transport()
		transport.SetGate(vaulttest.Before(emulator.DeleteBlob, "", func() {
			if err := v.UpdatePlan(t.Context(), plan); err != nil {
				t.Error(err)
			}
		}))
		vaulttest.Must(t, vaulttest.OnEmulator(t, server, azblob.WithTransport(transport)).Delete(t.Context(), plan.ID))
		if n := vaulttest.Stored(server); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
	})
}

// TestDeleteDamaged deletes a plan whose object is unreadable. A plan with a newer schema stays untouched.
func TestDeleteDamaged(t *testing.T) {
	for name, damage := range map[string]func(s string) string{"corrupt": func(s string) string { return s[1:] }, "newer": func(s string) string { return strings.Replace(s, `"schema":1`, `"schema":2`, 1) }} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			plan := vaulttest.Created(t, v, plantest.Full())
			for c := range server.Containers() {
				b, _ := server.Blob(c, "plans/"+plan.ID.String()+"-object.json")
				server.Put(c, b.Name, []byte(damage(string(b.Body))), b.Metadata)
			}
			before := vaulttest.Stored(server)
			err := v.Delete(t.Context(), plan.ID)
			if name == "newer" {
				if !errors.Is(err, storage.ErrSchema) || vaulttest.Stored(server) != before {
					t.Errorf("got %v, and %d blobs of %d", err, vaulttest.Stored(server), before)
				}
				return
			}
			if err != nil || vaulttest.Stored(server) != 0 {
				t.Errorf("got %v, and %d blobs are left", err, vaulttest.Stored(server))
			}
		})
	}
}

// TestDeleteCantConfirm loses the answer to the removal of the object, and fails the requests that follow the
// retry's 404. The plan may be gone, so Delete returns ErrUnknown.
func TestDeleteCantConfirm(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	lost := func() *emulator.Rule {
		return emulator.On(emulator.DeleteBlob).Path("-object.json").Nth(1).Do(emulator.LostAnswer())
	}
	unknown := func(t *testing.T, server *emulator.Server, plan *workflow.Plan, err, cause error) {
		t.Helper()
		if !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, cause) {
			t.Errorf("the plan is gone, and Delete says %v, want ErrUnknown of %v", err, cause)
		}
		if err := vaulttest.OnEmulator(t, server).Delete(t.Context(), plan.ID); err != nil {
			t.Errorf("the same call again: %v", err)
		}
		if n := vaulttest.Stored(server); n != 0 {
			t.Errorf("%d blobs are left", n)
		}
	}
	for name, fails := range map[string]struct {
		rule  *emulator.Rule
		cause error
	}{
		"listing not served":  {emulator.On(emulator.ListBlobs).Do(emulator.Answer(503, "ServerBusy")), storage.ErrUnavailable},
		"listing refused":     {emulator.On(emulator.ListBlobs).Do(emulator.Answer(400, "InvalidUri")), storage.ErrDenied},
		"HEAD not served":     {emulator.On(emulator.HeadBlob).Do(emulator.Answer(503, "ServerBusy")), storage.ErrUnavailable},
		"HEAD without rights": {emulator.On(emulator.HeadBlob).Do(emulator.Answer(403, "AuthorizationPermissionMismatch")), storage.ErrDenied},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
			err := vaulttest.Faulty(t, server, fails.rule, lost()).Delete(t.Context(), plan.ID)
			unknown(t, server, plan, err, fails.cause)
		})
	}
	vaulttest.InBubble(t, "cancelled", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		transport := server.Transport()
		transport.Inject(lost())
		ctx, cancel := context.WithCancel(t.Context())
		transport.SetGate(vaulttest.Gate(func(r emulator.Request) {
			if r.Op == emulator.ListBlobs {
				cancel()
			}
		}))
		err := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport)).Delete(ctx, plan.ID)
		unknown(t, server, plan, err, context.Canceled)
	})
}

// TestDeleteWithoutListing deletes with an identity that may not list blobs, and loses each answer in turn.
func TestDeleteWithoutListing(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	denied := func() *emulator.Rule {
		return emulator.On(emulator.ListBlobs).Do(emulator.Answer(403, "AuthorizationPermissionMismatch"))
	}
	for n := 1; n <= 6; n++ {
		vaulttest.InBubble(t, fmt.Sprintf("lost at %d", n), func(t *testing.T, server *emulator.Server) {
			plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), vaulttest.EachKind())
			rule := emulator.On().Nth(n).Do(emulator.LostAnswer())
			if err := vaulttest.Faulty(t, server, denied(), rule).Delete(t.Context(), plan.ID); err != nil || rule.Fired() != 1 {
				t.Errorf("got %v; %d answers were lost", err, rule.Fired())
			}
			if n := vaulttest.Stored(server); n != 0 {
				t.Errorf("%d blobs are left", n)
			}
		})
	}
	vaulttest.InBubble(t, "what is left of another", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.DeleteBroken(emulator.BatchDelete, "")(t, vaulttest.WorldOf(server), vaulttest.EachKind())
		if err := vaulttest.Faulty(t, server, denied()).Delete(t.Context(), plan.ID); !errors.Is(err, storage.ErrUnknown) || !errors.Is(err, storage.ErrDenied) {
			t.Errorf("the plan is gone, and Delete says %v", err)
		}
		if err := vaulttest.OnEmulator(t, server).Delete(t.Context(), plan.ID); err != nil || vaulttest.Stored(server) != 0 {
			t.Errorf("%v, and %d blobs are left", err, vaulttest.Stored(server))
		}
	})
	for name, lie := range map[string]func() *emulator.Rule{
		"object": func() *emulator.Rule { return emulator.On(emulator.DeleteBlob).Path("-object.json") },
		"look": func() *emulator.Rule {
			return emulator.On(emulator.GetBlob, emulator.HeadBlob).Path("-object.json").Nth(1)
		},
		"entry":      func() *emulator.Rule { return emulator.On(emulator.DeleteBlob).Path("-entry.json") },
		"sub-object": func() *emulator.Rule { return emulator.On(emulator.BatchItem).Path("actions/") },
	} {
		vaulttest.InBubble(t, "a false 404: "+name, func(t *testing.T, server *emulator.Server) {
			plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), vaulttest.EachKind())
			rule := lie().Do(vaulttest.Absences[0])
			err := vaulttest.Faulty(t, server, denied(), rule).Delete(t.Context(), plan.ID)
			if rule.Fired() == 0 || vaulttest.Stored(server) > 0 && (err == nil || errors.Is(err, storage.ErrNotFound)) {
				t.Errorf("got %v, and %d blobs are left; %d lies", err, vaulttest.Stored(server), rule.Fired())
			}
			if err := vaulttest.OnEmulator(t, server).Delete(t.Context(), plan.ID); err != nil && !errors.Is(err, storage.ErrNotFound) || vaulttest.Stored(server) != 0 {
				t.Errorf("again: %v, and %d blobs are left", err, vaulttest.Stored(server))
			}
		})
	}
}

// TestDeleteOfWhatLostItsObject follows Recovery's advice for a plan whose object was lost. Delete removes
// the rest, and the ID is free again.
func TestDeleteOfWhatLostItsObject(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	loses := func(t *testing.T, server *emulator.Server, in vaulttest.State) *workflow.Plan {
		plan, _ := in(t, vaulttest.WorldOf(server), vaulttest.EachKind())
		for c := range server.Containers() {
			server.Remove(c, "plans/"+plan.ID.String()+"-object.json")
		}
		return plan
	}
	for name, in := range map[string]vaulttest.State{"running": vaulttest.AtWork, "final": vaulttest.Final} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			plan := loses(t, server, in)
			time.Sleep(vaulttest.PastGrace)
			v := vaulttest.OnEmulator(t, server)
			before := vaulttest.Stored(server)
			if _, err := v.Recover(t.Context(), azblob.RecoverOptions{Thorough: true}); !errors.Is(err, storage.ErrCorrupt) || !strings.HasSuffix(err.Error(), "or Delete the plan") {
				t.Errorf("Recover: %v, want the remedy", err)
			}
			if err := v.Delete(t.Context(), plan.ID); err != nil || vaulttest.Stored(server) != 0 {
				t.Errorf("%v, and %d blobs are left of %d", err, vaulttest.Stored(server), before)
			}
			if err := v.Delete(t.Context(), plan.ID); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("again: %v", err)
			}
			vaulttest.Created(t, v, vaulttest.CopyOf(plan))
			vaulttest.Sound(t, v)
		})
	}
	requests := 1
	for n := 1; n <= requests; n++ {
		vaulttest.InBubble(t, fmt.Sprintf("dies at %d", n), func(t *testing.T, server *emulator.Server) {
			plan := loses(t, server, vaulttest.AtWork)
			time.Sleep(vaulttest.PastGrace)
			w := vaulttest.WorldOf(server).Clone()
			w.Server.ResetRequests()
			vaulttest.Must(t, w.Vault(t).Delete(t.Context(), plan.ID))
			requests = len(w.Server.Requests())
			vaulttest.Dies(t, server, emulator.On().Nth(n).Do(emulator.Crash()), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
			if err := vaulttest.OnEmulator(t, server).Delete(t.Context(), plan.ID); err != nil && (n < requests || !errors.Is(err, storage.ErrNotFound)) {
				t.Errorf("again: %v", err)
			}
			if n := vaulttest.Stored(server); n != 0 {
				t.Errorf("%d blobs are left", n)
			}
		})
	}
	vaulttest.InBubble(t, "recent", func(t *testing.T, server *emulator.Server) {
		plan := loses(t, server, vaulttest.AtWork)
		before := vaulttest.Stored(server)
		if err := vaulttest.OnEmulator(t, server).Delete(t.Context(), plan.ID); !errors.Is(err, storage.ErrConflict) || !strings.Contains(err.Error(), "call again in") || vaulttest.Stored(server) != before {
			t.Errorf("got %v, and %d blobs are left of %d", err, vaulttest.Stored(server), before)
		}
	})
	vaulttest.InBubble(t, "an object that only seems to be lost", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.AtWork(t, vaulttest.WorldOf(server), vaulttest.EachKind())
		time.Sleep(vaulttest.PastGrace)
		before := vaulttest.Contents(server)
		lies := []*emulator.Rule{
			emulator.On(emulator.GetBlob, emulator.HeadBlob).Path("-object.json").Do(vaulttest.Absences[0]),
			emulator.On(emulator.HeadBlob).Path("-delete").Do(vaulttest.Absences[0]),
		}
		if err := vaulttest.Faulty(t, server, lies...).Delete(t.Context(), plan.ID); !errors.Is(err, storage.ErrUnavailable) || !maps.Equal(before, vaulttest.Contents(server)) {
			t.Errorf("got %v", err)
		}
	})
}

// TestDeleteMarkersThatTakeTooLong delays each delete marker beyond the grace period. Delete gives up before
// its commit and says that it was too slow.
func TestDeleteMarkersThatTakeTooLong(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		slow := vaulttest.OnEmulator(t, server, azblob.WithTransport(vaulttest.After(server.Transport(), func(req *http.Request) {
			if strings.HasSuffix(req.URL.Path, "-delete") {
				time.Sleep(3 * time.Second)
			}
		})), azblob.WithGracePeriod(2*time.Second))
		err := slow.Delete(t.Context(), plan.ID)
		if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrUnavailable alone", err)
		}
		vaulttest.Same(t, vaulttest.OnEmulator(t, server), plan)
	})
}
