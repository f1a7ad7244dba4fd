package mirror_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// opened is a copy that is opened just before a call of a kind, and then worked on as a vault of its own: a plan is created,
// one is deleted, and the others are changed.
func opened(t *testing.T, to *memvault.Vault, op string, gone *workflow.Plan, others ...*workflow.Plan) (hook *hooked.Vault, kept func() []*workflow.Plan) {
	var all []*workflow.Plan
	return hooked.Wrap(to, func(c *hooked.Call) error {
		if c.Op != op || all != nil {
			return c.Do()
		}
		must(t, mirror.Open(t.Context(), to, "ana"))
		must(t, to.Delete(t.Context(), gone.ID))
		all = append(all, created(t, to, workflow.NotStarted))
		for _, p := range others {
			p, err := to.Read(t.Context(), p.ID)
			if errors.Is(err, storage.ErrNotFound) {
				continue // the mirror had removed it
			}
			must(t, err)
			p.Owner, p.Epoch = workflow.NewV7(), p.Epoch+1
			update(t, to, p)
			if p.State.Status == workflow.Running { // a node fences what is not final
				for _, o := range workflow.Parts(p) {
					update(t, to, o)
				}
			}
			all = append(all, p)
		}
		return c.Do()
	}), func() []*workflow.Plan { return all }
}

// TestOpened opens a copy at each kind of call of a mirror to it. Nothing of what is done there from then on is undone, by
// that mirror or by the line that was left in a cron.
func TestOpened(t *testing.T) {
	mirrors := map[string]func(w *world, to *hooked.Vault) error{
		"run": func(w *world, to *hooked.Vault) error {
			_, err := mirror.Run(w.t.Context(), w.from, to, mirror.Options{Delete: true, Deep: true, Concurrency: 1})
			return err
		},
		"follow": func(w *world, to *hooked.Vault) error {
			return w.follow(w.from.(mirror.Source), to, 4, mirror.FollowOptions{})
		},
	}
	for name, mirrored := range mirrors {
		for _, op := range []string{"Roster", "FindNote", "Recovery", "Search", "Read", "UpdateAction", "UpdateCopy", "RestoreCopy", "DeleteCopy"} {
			if name == "run" && op == "Search" {
				op = "List"
			}
			t.Run(name+" "+op, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { openedAt(t, op, mirrored) }) })
		}
	}
}

// TestRemovesForItsSource mirrors another vault to a copy, as a wrong profile does. Nothing is removed.
func TestRemovesForItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		created(t, from, workflow.Completed)
		o := mirror.Options{Delete: true, From: "prod"}
		run(t, from, to, o)
		o.From = "empty"
		for _, o.DryRun = range []bool{true, false} {
			if r, err := mirror.Run(t.Context(), memvault.New(nil, memvault.Options{}), to, o); !errors.Is(err, mirror.ErrNoCopy) || r.Deleted > 0 {
				t.Errorf("%+v, %v", r, err)
			}
		}
		equal(t, from, to)
	})
}

func openedAt(t *testing.T, op string, mirrored func(w *world, to *hooked.Vault) error) {
	w := newWorld(t, 1)
	to := memvault.New(nil, memvault.Options{})
	gone, extra := created(t, w.from, workflow.Completed), created(t, w.from, workflow.Completed)
	waits, works := created(t, w.from, workflow.NotStarted), created(t, w.from, workflow.Running)
	run(t, w.from, to, mirror.Options{})
	time.Sleep(25 * time.Hour)
	must(t, w.from.Delete(t.Context(), extra.ID))
	moveOn(t, w.from, waits, workflow.Running)
	action := works.Blocks[0].Sequences[0].Actions[0]
	action.State.Status = workflow.Running
	update(t, w.from, action)
	created(t, w.from, workflow.Completed)
	hook, kept := opened(t, to, op, gone, extra, waits, works)
	_ = mirrored(w, hook)
	if len(kept()) == 0 {
		t.Fatal("the mirror does not make this call")
	}
	if _, err := mirror.Run(t.Context(), w.from, to, mirror.Options{Delete: true}); !errors.Is(err, mirror.ErrOpened) {
		t.Errorf("a mirror into an opened copy: %v", err)
	}
	for _, p := range kept() {
		if d := plantest.Diff(p, read(t, to, p.ID)); d != "" {
			t.Errorf("plan %s: %s", p.ID, d)
		}
	}
	if there, err := to.Exists(t.Context(), gone.ID); there || err != nil {
		t.Errorf("a plan that was deleted is back: %v", err)
	}
}
