package logins_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"

	"github.com/planvault/azblob/internal/vaulttest"
)

// history is what was stored of a plan over time.
type history struct {
	id        uuid.UUID
	container string
	looks     []map[string]emulator.Blob             // at all blobs, by name
	statuses  map[uuid.UUID]map[workflow.Status]bool // that each object has had
}

// historyOf creates, runs, completes and deletes a plan, and looks at what is stored before each request.
func historyOf(t *testing.T) history {
	l := history{statuses: map[uuid.UUID]map[workflow.Status]bool{}}
	server := emulator.New(emulator.Options{})
	var mu sync.Mutex // requests are concurrent
	look := func(emulator.Request) error {
		mu.Lock()
		defer mu.Unlock()
		now := map[string]emulator.Blob{}
		for l.container = range server.Containers() {
			for b := range server.Blobs(l.container) {
				now[b.Name] = b
			}
		}
		l.looks = append(l.looks, now)
		return nil
	}
	server.Forbid(look)
	v := vaulttest.OnEmulator(t, server)
	note := func(plan *workflow.Plan) {
		for o := range workflow.Walk(plan) {
			id := *o.Header().ID
			if l.statuses[id] == nil {
				l.statuses[id] = map[workflow.Status]bool{}
			}
			l.statuses[id][o.Header().State.Status] = true
		}
	}
	plan := vaulttest.EachKind()
	vaulttest.Must(t, v.Create(t.Context(), plan))
	note(plan)
	l.id = plan.ID
	plan.State.Status = workflow.Running
	vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
	note(plan)
	for o, parent := range workflow.Walk(plan) {
		if parent == nil {
			continue
		}
		o.Header().State.Status = workflow.Running
		vaulttest.Must(t, storage.Update(t.Context(), v, o))
	}
	note(plan)
	plan.State = vaulttest.FinishParts(t, v, plan)
	note(plan)
	vaulttest.Must(t, v.UpdatePlan(t.Context(), plan))
	vaulttest.Must(t, v.Delete(t.Context(), plan.ID))
	return l
}

// TestFailover gives the vault an account after a failover that lost the last writes of some blobs and not of
// others. Everything that is read was stored at some time, or the error says what is damaged; listings agree
// with Read, Check names what Read can't show, and Recovery takes nothing away that could be read.
func TestFailover(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	n := efforttest.Pick(100, 100, 5000)
	synctest.Test(t, func(t *testing.T) {
		l := historyOf(t)
		whole, damaged := 0, 0
		for seed := range uint64(n) {
			switch err := l.failOver(t, rand.New(rand.NewPCG(seed, 1)), fmt.Sprintf("seed %d", seed)); {
			case err == nil:
				whole++
			case errors.Is(err, storage.ErrCorrupt):
				damaged++
			}
		}
		if whole < n/10 || damaged < n/10 {
			t.Errorf("of %d plans %d were whole and %d damaged", n, whole, damaged)
		}
	})
}

// failOver returns the error of Read after the failover.
func (l *history) failOver(t *testing.T, r *rand.Rand, what string) error {
	server := emulator.New(emulator.Options{})
	server.PutContainer(l.container, map[string]string{"planvaultlayout": "1"})
	end, lost := r.IntN(len(l.looks)), r.Float64() // when the failover is, and how many blobs have lost writes
	names := map[string]bool{}
	for _, look := range l.looks[:end+1] {
		for name := range look {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		at := end
		if r.Float64() < lost {
			at = r.IntN(end + 1)
		}
		if b, ok := l.looks[at][name]; ok {
			server.Restore(l.container, b)
		}
	}
	v := vaulttest.OnEmulator(t, server)
	before, beforeErr := l.read(t, what, v)
	time.Sleep(vaulttest.PastGrace)
	if err := v.Recovery(t.Context()); err != nil && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: Recovery: %v", what, err)
	}
	after, afterErr := l.read(t, what, v)
	if beforeErr == nil && (afterErr != nil || plantest.Diff(before, after) != "") {
		t.Errorf("%s: before Recovery the plan was readable: %v", what, afterErr)
	}
	report, err := v.Admin().Check(t.Context(), azblob.CheckOptions{})
	if err != nil {
		t.Errorf("%s: Check: %v", what, err)
	}
	if errors.Is(afterErr, storage.ErrCorrupt) && len(report.Problems) == 0 {
		t.Errorf("%s: Check finds nothing, but Read: %v", what, afterErr)
	}
	settledAt := vaulttest.Contents(server)
	if err := v.Recovery(t.Context()); err != nil && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: Recovery again: %v", what, err)
	}
	if !maps.Equal(settledAt, vaulttest.Contents(server)) {
		t.Errorf("%s: a second Recovery changed something", what)
	}
	if _, err := v.Admin().Repair(audited.Mark(t.Context()), azblob.RepairOptions{Thorough: true}); err != nil && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: thorough Repair: %v", what, err)
	}
	_, _ = l.read(t, what, v)
	return beforeErr
}

// read reads the plan, and compares it with what its objects have been, and with a listing.
func (l *history) read(t *testing.T, what string, v *azblob.Vault) (*workflow.Plan, error) {
	t.Helper()
	plan, err := v.Read(t.Context(), l.id)
	if err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: Read: %v", what, err)
	}
	if err == nil {
		for o := range workflow.Walk(plan) {
			if status := o.Header().State.Status; !l.statuses[*o.Header().ID][status] {
				t.Errorf("%s: %v is %v, which it never was", what, o.Kind(), status)
			}
		}
	}
	found, listErr := storage.Collect(v.List(t.Context(), 0))
	if listErr != nil {
		t.Errorf("%s: List: %v", what, listErr)
	}
	if listed := len(found) == 1; listed != (err == nil) && !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("%s: %d plans are listed, but Read: %v", what, len(found), err)
	}
	return plan, err
}
