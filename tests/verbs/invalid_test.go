package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/settings"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestNothingIsSent makes calls that need no request: with bad input, with IDs that no plan can have, and on a closed vault.
// Each error is one line, and not long.
func TestNothingIsSent(t *testing.T) {
	server := emulator.New(emulator.Options{})
	v := vaulttest.OnEmulator(t, server)
	plan := vaulttest.Created(t, v, plantest.Small())
	server.ResetRequests()
	refused := func(op string, err, want error) {
		t.Helper()
		var e *storage.Error
		if vaulttest.Fails(t, err, want); !errors.As(err, &e) || e.Op != op {
			t.Errorf("the error is not of %s: %v", op, err)
		}
		if text := fmt.Sprint(err); strings.ContainsAny(text, "\n\r") || strings.Contains(text, "m=+") || len(text) > 2000 {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
	refused("Create", v.Create(t.Context(), nil), storage.ErrInvalid)
	many := plantest.Sized(10, 10, 10)
	vaulttest.Moved(many, workflow.Running)
	err := v.Create(t.Context(), many)
	if refused("Create", err, storage.ErrInvalid); !strings.Contains(err.Error(), "more") {
		t.Errorf("it names each of its faults: %v", err)
	}
	for _, bad := range slices.Concat(plantest.BadPlans(), plantest.BadNewPlans()) {
		p := plantest.Full()
		bad.Edit(p)
		refused("Create", v.Create(t.Context(), p), storage.ErrInvalid)
	}
	raw, err := azblob.NewFromConnectionString(t.Context(), "test", server.ConnectionString(), nil, settings.Over(server.Transport()))
	vaulttest.Must(t, err)
	unfit := plantest.Small()
	vaulttest.ActionsOf(unfit)[0].Req = make(chan int) // which only the attempt to encode it shows
	refused("Create", raw.Create(t.Context(), unfit), storage.ErrInvalid)
	action := vaulttest.ActionsOf(plan)[0]
	action.Attempts = []workflow.Attempt{{Resp: make(chan int)}}
	for _, v := range []*azblob.Vault{v, raw} {
		refused("UpdateAction", v.UpdateAction(t.Context(), action), storage.ErrInvalid)
		plan.State.Status = workflow.Completed
		refused("UpdatePlan", v.UpdatePlan(t.Context(), plan), storage.ErrInvalid)
	}
	now := time.Now()
	for _, before := range []time.Time{now, now.Add(-time.Hour)} { // with monotonic readings
		refused("Search", vaulttest.ErrOf(v.Search(t.Context(), storage.Filters{After: now, Before: before})), storage.ErrInvalid)
	}
	noDay := storage.Day{Year: 2026, Month: 2, Day: 29}
	for _, o := range []azblob.CheckOptions{{From: storage.DayOf(now), To: storage.DayOf(now).Add(-1)}, {From: noDay}, {To: noDay}} {
		refused("Check", vaulttest.ErrOf(v.Admin().Check(t.Context(), o)), storage.ErrInvalid)
	}
	for _, day := range []storage.Day{{}, noDay} {
		refused("Hold", v.Admin().Hold(audited.Mark(t.Context()), day, workflow.Attribution{}), storage.ErrInvalid)
		refused("Release", v.Admin().Release(audited.Mark(t.Context()), day, workflow.Attribution{}), storage.ErrInvalid)
	}

	ofMicrosoft := workflow.NewV7()
	ofMicrosoft[8] = 0xc0 // another variant
	for _, id := range []uuid.UUID{uuid.Nil, uuid.New(), uuid.Max, ofMicrosoft} {
		if found, err := v.Exists(t.Context(), id); err != nil || found {
			t.Errorf("%s: Exists says %v, %v", id, found, err)
		}
		_, err := v.Read(t.Context(), id)
		refused("Read", err, storage.ErrNotFound)
		refused("Delete", v.Delete(t.Context(), id), storage.ErrNotFound)
		if found := vaulttest.Collect(t, v, storage.Filters{ByIDs: []uuid.UUID{id}}); len(found) > 0 {
			t.Errorf("%s: Search yields %+v", id, found)
		}
	}

	vaulttest.Must(t, v.Close(t.Context()))
	_, err = v.Admin().Check(t.Context(), azblob.CheckOptions{})
	refused("Check", err, storage.ErrClosed)
	_, err = v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{})
	refused("Recovery", err, storage.ErrClosed)
	if r := server.Requests(); len(r) > 0 {
		t.Errorf("%d requests were sent, such as %v", len(r), r[0])
	}
}

// TestPlansOfAClockAhead creates a plan with a clock that is three days ahead. The plan is listed, and can be
// read, updated and deleted.
func TestPlansOfAClockAhead(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	plan := plantest.Full()
	ahead := emulator.New(emulator.Options{})
	vaulttest.InBubbleOf(t, ahead, func(t *testing.T, _ *emulator.Server) {
		time.Sleep(72 * time.Hour)
		vaulttest.Must(t, vaulttest.OnEmulator(t, ahead).Create(t.Context(), plan))
	})
	vaulttest.InBubble(t, "three days before", func(t *testing.T, server *emulator.Server) {
		for c := range ahead.Containers() {
			for b := range ahead.Blobs(c) {
				server.Put(c, b.Name, b.Body, b.Metadata)
			}
		}
		v := vaulttest.OnEmulator(t, server)
		read := vaulttest.Reread(t, v, plan)
		for _, status := range []workflow.Status{workflow.Running, workflow.Completed} {
			read.State.Status = status
			vaulttest.Must(t, v.UpdatePlan(t.Context(), read))
			vaulttest.Same(t, v, read)
		}
		vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
		vaulttest.Empty(t, server)
	})
}

// TestCloseOfAnIdleVault closes an idle vault with an ended context. Close has nothing to wait for and
// succeeds.
func TestCloseOfAnIdleVault(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 64 { // a choice by chance would be right as often
		v, err := azblob.NewFromConnectionString(t.Context(), "test", emulator.New(emulator.Options{}).ConnectionString(), nil, azblob.Options{})
		vaulttest.Must(t, err)
		vaulttest.Must(t, v.Close(ctx))
	}
}
