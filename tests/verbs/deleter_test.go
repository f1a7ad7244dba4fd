package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestDeleteDamaged deletes a plan whose object is unreadable. A plan with a newer schema stays untouched.
func TestDeleteDamaged(t *testing.T) {
	for name, damage := range map[string]func(s string) string{
		"corrupt": func(s string) string { return s[1:] },
		"newer":   func(s string) string { return strings.Replace(s, `"schema":1`, `"schema":4`, 1) },
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			d := vaulttest.DamagedOf(server, vaulttest.Created(t, v, plantest.Full()))
			b, _ := d.Blob(d.Container, d.Name("object"))
			d.Put(d.Container, b.Name, []byte(damage(string(b.Body))), b.Metadata)
			untouched := vaulttest.Untouched(t, server)
			err := v.Delete(t.Context(), d.Plan.ID)
			if name == "newer" {
				vaulttest.Fails(t, err, storage.ErrSchema)
				untouched()
				return
			}
			vaulttest.Should(t, err)
			vaulttest.Empty(t, server)
		})
	}
}

// TestDeleteCantConfirm loses the answer to the removal of the object, and fails the requests that follow the
// retry's 404. The plan may be gone, so Delete returns ErrUnknown.
func TestDeleteCantConfirm(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for name, c := range map[string]struct {
		op    emulator.Op
		fault emulator.Effect
		cause error
	}{
		"listing not served":  {emulator.ListBlobs, emulator.Answer(503, "ServerBusy"), storage.ErrUnavailable},
		"listing refused":     {emulator.ListBlobs, emulator.Answer(400, "InvalidUri"), storage.ErrDenied},
		"HEAD not served":     {emulator.HeadBlob, emulator.Answer(503, "ServerBusy"), storage.ErrUnavailable},
		"HEAD without rights": {emulator.HeadBlob, vaulttest.Denied, storage.ErrDenied},
		"cancelled":           {emulator.ListBlobs, emulator.Silence(), context.DeadlineExceeded},
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			plan := vaulttest.Created(t, v, plantest.Small())
			lost := emulator.On(emulator.DeleteBlob).Path("-object.json").Nth(1).Do(emulator.LostAnswer())
			ctx := t.Context()
			if c.cause == context.DeadlineExceeded {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, time.Second)
				defer cancel()
			}
			vaulttest.Fails(t, vaulttest.Faulty(t, server, emulator.On(c.op).Where(func(emulator.Request) bool { return lost.Fired() > 0 }).Do(c.fault), lost).Delete(ctx, plan.ID), storage.ErrUnknown, c.cause)
			vaulttest.Should(t, v.Delete(t.Context(), plan.ID))
			vaulttest.Empty(t, server)
		})
	}
}

// TestDeleteWithoutListing deletes with an identity that may not list blobs, and loses each answer in turn.
func TestDeleteWithoutListing(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	open := func(t *testing.T, server *emulator.Server, rules ...*emulator.Rule) *azblob.Vault {
		return vaulttest.Faulty(t, server, append(rules, emulator.On(emulator.ListBlobs).Do(vaulttest.Denied))...)
	}
	for n := 1; n <= 8; n++ {
		vaulttest.InBubble(t, fmt.Sprintf("lost at %d", n), func(t *testing.T, server *emulator.Server) {
			plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), vaulttest.EachKind())
			rule := emulator.On().Nth(n).Do(emulator.LostAnswer())
			if err := open(t, server, rule).Delete(t.Context(), plan.ID); err != nil || rule.Fired() != 1 {
				t.Errorf("got %v; %d answers were lost", err, rule.Fired())
			}
			vaulttest.Empty(t, server)
		})
	}
	vaulttest.InBubble(t, "what is left of another", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.DeleteBroken(emulator.BatchDelete, "")(t, vaulttest.WorldOf(server), vaulttest.EachKind())
		vaulttest.Fails(t, open(t, server).Delete(t.Context(), plan.ID), storage.ErrUnknown, storage.ErrDenied)
		vaulttest.Should(t, vaulttest.OnEmulator(t, server).Delete(t.Context(), plan.ID))
		vaulttest.Empty(t, server)
	})
	for name, rule := range map[string]*emulator.Rule{
		"object":     emulator.On(emulator.DeleteBlob).Path("-object.json"),
		"look":       emulator.On(emulator.GetBlob, emulator.HeadBlob).Path("-object.json").Nth(1),
		"entry":      emulator.On(emulator.DeleteBlob).Path("-entry.json"),
		"sub-object": emulator.On(emulator.BatchItem).Path("actions/"),
	} {
		vaulttest.InBubble(t, "a false 404: "+name, func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			plan, _ := vaulttest.AtWork(t, vaulttest.WorldOf(server), vaulttest.EachKind())
			err := open(t, server, rule.Do(vaulttest.Absences[0])).Delete(t.Context(), plan.ID)
			if rule.Fired() == 0 || vaulttest.Stored(server) > 0 && (err == nil || errors.Is(err, storage.ErrNotFound)) {
				t.Errorf("got %v, and %d blobs are left; %d lies", err, vaulttest.Stored(server), rule.Fired())
			}
			if err := v.Delete(t.Context(), plan.ID); err != nil && !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("again: %v", err)
			}
			vaulttest.Empty(t, server)
		})
	}
}

// TestDeleteOfWhatLostItsObject follows Recovery's advice for a plan whose object was lost. Delete removes
// the rest, and the ID is free again.
func TestDeleteOfWhatLostItsObject(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	loses := func(t *testing.T, server *emulator.Server, in vaulttest.State) *workflow.Plan {
		plan, _ := in(t, vaulttest.WorldOf(server), vaulttest.EachKind())
		d := vaulttest.DamagedOf(server, plan)
		d.Lose(d.Name("object"))
		return plan
	}
	for name, in := range map[string]vaulttest.State{"running": vaulttest.AtWork, "final": vaulttest.Final} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			plan := loses(t, server, in)
			time.Sleep(vaulttest.PastGrace)
			v := vaulttest.OnEmulator(t, server)
			if _, err := v.Admin().Repair(audited.Mark(t.Context()), vaulttest.Thorough); !errors.Is(err, storage.ErrCorrupt) || !strings.HasSuffix(err.Error(), "or Delete the plan") {
				t.Errorf("Recover: %v, want the remedy", err)
			}
			vaulttest.Should(t, v.Delete(t.Context(), plan.ID))
			vaulttest.Empty(t, server)
			vaulttest.Fails(t, v.Delete(t.Context(), plan.ID), storage.ErrNotFound)
			vaulttest.Created(t, v, vaulttest.CopyOf(plan))
			vaulttest.Sound(t, v)
		})
	}
	for n, died := 1, true; died && !t.Failed(); n++ {
		vaulttest.InBubble(t, fmt.Sprintf("dies at %d", n), func(t *testing.T, server *emulator.Server) {
			plan := loses(t, server, vaulttest.AtWork)
			time.Sleep(vaulttest.PastGrace)
			died = vaulttest.WorldOf(server).MayDie(t, emulator.On().Nth(n), func(v *azblob.Vault) { _ = v.Delete(t.Context(), plan.ID) })
			if err := vaulttest.OnEmulator(t, server).Delete(t.Context(), plan.ID); err != nil && !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("again: %v", err)
			}
			vaulttest.Empty(t, server)
		})
	}
	vaulttest.InBubble(t, "recent", func(t *testing.T, server *emulator.Server) {
		plan := loses(t, server, vaulttest.AtWork)
		untouched := vaulttest.Untouched(t, server)
		if err := vaulttest.OnEmulator(t, server).Delete(t.Context(), plan.ID); !errors.Is(err, storage.ErrConflict) || !strings.Contains(err.Error(), "call again in") {
			t.Errorf("got %v", err)
		}
		untouched()
	})
	vaulttest.InBubble(t, "an object that only seems to be lost", func(t *testing.T, server *emulator.Server) {
		plan, _ := vaulttest.AtWork(t, vaulttest.WorldOf(server), vaulttest.EachKind())
		time.Sleep(vaulttest.PastGrace)
		untouched := vaulttest.Untouched(t, server)
		vaulttest.Fails(t, vaulttest.Faulty(t, server,
			emulator.On(emulator.GetBlob, emulator.HeadBlob).Path("-object.json").Do(vaulttest.Absences[0]),
			emulator.On(emulator.HeadBlob).Path("-delete").Do(vaulttest.Absences[0]),
		).Delete(t.Context(), plan.ID), storage.ErrUnavailable)
		untouched()
	})
}

// TestDeleteMarkersThatTakeTooLong delays each delete marker beyond the grace period. Delete gives up before
// its commit and says that it was too slow.
func TestDeleteMarkersThatTakeTooLong(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Small())
		slow := vaulttest.OnEmulator(t, server, vaulttest.Meets(server, vaulttest.Frozen("-delete", 3*time.Second)), azblob.Options{GracePeriod: 2 * time.Second})
		err := slow.Delete(t.Context(), plan.ID)
		if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want ErrUnavailable alone", err)
		}
		vaulttest.Same(t, vaulttest.OnEmulator(t, server), plan)
	})
}

// TestDeleteTriesAgain: one marker that takes too long, and one answer that the object is gone, do not end a Delete. It
// removes 256 sub-objects with one batch, and the entry with another.
func TestDeleteTriesAgain(t *testing.T) {
	for name, rule := range map[string]*emulator.Rule{
		"slow marker":   vaulttest.Frozen("-delete", 3*time.Second).Nth(1),
		"wrong absence": emulator.On(emulator.GetBlob).Path("-object.json").Nth(1).Do(vaulttest.Absences[0]),
	} {
		vaulttest.InBubble(t, name, func(t *testing.T, server *emulator.Server) {
			plan := vaulttest.Created(t, vaulttest.OnEmulator(t, server), plantest.Sized(1, 1, 254))
			batches := emulator.On(emulator.BatchDelete).Do(emulator.Before(func() {}))
			v := vaulttest.OnEmulator(t, server, vaulttest.Meets(server, rule, batches), azblob.Options{GracePeriod: 2 * time.Second})
			if err := v.Delete(t.Context(), plan.ID); err != nil || rule.Fired() != 1 || batches.Seen() != 2 {
				t.Errorf("%v; %v, %d batches", err, rule, batches.Seen())
			}
		})
	}
}
