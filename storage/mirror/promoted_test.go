package mirror_test

import (
	"errors"
	"slices"
	"strings"
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

// promoted is a copy that is promoted just before a call of a kind, and then worked on as a vault of its own: a plan is created,
// one is deleted, and the others are changed.
func promoted(t *testing.T, to *memvault.Vault, op string, gone *workflow.Plan, others ...*workflow.Plan) (hook *hooked.Vault, kept func() []*workflow.Plan) {
	var all []*workflow.Plan
	return hooked.Wrap(to, func(c *hooked.Call) error {
		if c.Op != op || all != nil {
			return c.Do()
		}
		must(t, mirror.Promote(t.Context(), to, by))
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

// TestPromoted promotes a copy at each kind of call of a mirror to it. Nothing of what is done there from then on is undone, by
// that mirror or by the line that was left in a cron.
func TestPromoted(t *testing.T) {
	mirrors := map[string]func(w *world, to *hooked.Vault) error{
		"run": func(w *world, to *hooked.Vault) error {
			_, err := mirror.Run(w.t.Context(), mirror.Pair{Source: w.from, Copy: to}, mirror.Options{By: by, Delete: true, Deep: true, Concurrency: 1})
			return err
		},
		"follow": func(w *world, to *hooked.Vault) error {
			return w.follow(w.from, to, 4, mirror.FollowOptions{})
		},
	}
	for name, mirrored := range mirrors {
		for _, op := range []string{"Roster", "FindNote", "Recovery", "Search", "Read", "UpdateAction", "UpdateCopy", "RestoreCopy", "DeleteCopy"} {
			if name == "run" && op == "Search" {
				op = "List"
			}
			t.Run(name+" "+op, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { promotedAt(t, op, mirrored) }) })
		}
	}
}

// TestRemovesForItsSource mirrors another vault to a copy, as a wrong profile does. Nothing is removed.
func TestRemovesForItsSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		created(t, from, workflow.Completed)
		o := mirror.Options{By: by, Delete: true}
		_, err := mirror.Run(t.Context(), mirror.Pair{Source: from, Copy: to, From: "prod"}, o)
		must(t, err)
		wrong := mirror.Pair{Source: memvault.New(nil, memvault.Options{}), Copy: to, From: "empty"}
		for _, o.DryRun = range []bool{true, false} {
			if r, err := mirror.Run(t.Context(), wrong, o); !errors.Is(err, mirror.ErrNoCopy) || r.Deleted > 0 {
				t.Errorf("%+v, %v", r, err)
			}
		}
		equal(t, from, to)
	})
}

func promotedAt(t *testing.T, op string, mirrored func(w *world, to *hooked.Vault) error) {
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
	hook, kept := promoted(t, to, op, gone, extra, waits, works)
	_ = mirrored(w, hook)
	if len(kept()) == 0 {
		t.Fatal("the mirror does not make this call")
	}
	if _, err := mirror.Run(t.Context(), mirror.Pair{Source: w.from, Copy: to}, mirror.Options{By: by, Delete: true}); !errors.Is(err, mirror.ErrPromoted) {
		t.Errorf("a mirror into a promoted copy: %v", err)
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

// TestPairs refuses pairs that are swapped, have one store twice, or whose copy has plans of its own, before anything is
// written to either side.
func TestPairs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memvault.NewStore()
		open := func() storage.Vault { return store.Open(nil, memvault.Options{}) }
		original, copied, other := open(), memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		created(t, other, workflow.Completed)
		p := created(t, original, workflow.Completed)
		run(t, original, copied, mirror.Options{})
		var pairs []mirror.Pair
		for range 2 { // with plans in the original, and without
			pairs = append(pairs, mirror.Pair{Source: copied, Copy: original}, mirror.Pair{Source: copied, Copy: memvault.New(nil, memvault.Options{})})
		}
		for i, pair := range append(pairs, []mirror.Pair{
			{Source: original, Copy: other},
			{Source: original, Copy: open()},
			{Source: original, Copy: hooked.Wrap(original, func(c *hooked.Call) error { return c.Do() })},
			{Source: copied, Copy: copied},
			{Source: other, Copy: other},
		}...) {
			if i == 2 {
				must(t, original.Delete(t.Context(), p.ID))
			}
			if i == len(pairs) {
				created(t, original, workflow.Completed)
			}
			source, to := count(pair.Source), count(pair.Copy)
			pair = mirror.Pair{Source: source, Copy: to}
			_, runErr := mirror.Run(t.Context(), pair, mirror.Options{By: by, Delete: true})
			_, dryErr := mirror.Run(t.Context(), pair, mirror.Options{DryRun: true})
			follow := mirror.Follow(t.Context(), pair, mirror.FollowOptions{By: by, Name: "b"})
			for _, err := range []error{runErr, dryErr, follow, mirror.Adopt(t.Context(), pair, by)} {
				if !errors.Is(err, mirror.ErrNoCopy) || strings.Contains(err.Error(), "\n") {
					t.Errorf("pair %d: %v", i, err)
				}
			}
			if source.writes+to.writes > 0 {
				t.Errorf("pair %d: %v and %v", i, source.calls, to.calls)
			}
		}
	})
}

// TestWhoAsks logs each mirror in the copy once, by whoever asks. It refuses nobody, and vaults that offer less than it needs.
func TestWhoAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		to := memvault.New(nil, memvault.Options{})
		pair, nobody := mirror.Pair{Source: w.from, Copy: to, From: "prod"}, workflow.Attribution{}
		_, err := mirror.Run(t.Context(), pair, mirror.Options{})
		for _, err := range []error{err, mirror.Adopt(t.Context(), pair, nobody), mirror.Promote(t.Context(), to, nobody), mirror.MoveBack(t.Context(), pair, nobody)} {
			if !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("nobody asks: %v", err)
			}
		}
		type plain struct{ storage.Vault }
		unable := []mirror.Pair{{Source: w.from, Copy: plain{to}}, {Source: plain{w.from}, Copy: to}}
		for i, pair := range unable {
			_, err := mirror.Run(t.Context(), pair, mirror.Options{DryRun: true})
			follow := mirror.Follow(t.Context(), pair, mirror.FollowOptions{By: by, Name: "b"})
			if errors.Is(err, errors.ErrUnsupported) != (i == 0) || !errors.Is(follow, errors.ErrUnsupported) {
				t.Errorf("pair %d: %v, %v", i, err, follow)
			}
		}
		if entries, err := storage.Collect(to.Control().AuditEntries(t.Context(), storage.AuditFilters{})); err != nil || len(entries) > 0 {
			t.Errorf("%v, %v", entries, err)
		}
		for range 2 { // the second time, nothing is left to do
			must(t, mirror.Adopt(t.Context(), pair, by))
		}
		time.Sleep(time.Second) // virtual, as below: IDs in order
		must(t, w.follow(w.from, to, 2, mirror.FollowOptions{}))
		time.Sleep(time.Second)
		_, err = mirror.Run(t.Context(), pair, mirror.Options{By: by})
		must(t, err)
		time.Sleep(time.Second)
		must(t, mirror.Promote(t.Context(), to, by))
		entries, err := storage.Collect(to.Control().AuditEntries(t.Context(), storage.AuditFilters{}))
		must(t, err)
		got := ""
		for _, e := range slices.Backward(entries) {
			got += e.What + " by " + e.By.By + " " + e.Detail + ": " + e.Result + "\n"
		}
		if want := "adopt by operator from prod: done\nfollow by operator from a vault: done\nmirror by operator from prod: done\npromote by operator : done\n"; got != want {
			t.Errorf("the log has\n%s", got)
		}
	})
}

// TestPromoteOfNoCopy promotes a vault that is no copy: it stays as it is, and the caller learns that nothing was promoted.
func TestPromoteOfNoCopy(t *testing.T) {
	v := memvault.New(nil, memvault.Options{})
	p := created(t, v, workflow.Running)
	if err := mirror.Promote(t.Context(), v, by); !errors.Is(err, mirror.ErrNoCopy) {
		t.Error(err)
	}
	if there, err := v.Exists(t.Context(), p.ID); err != nil || !there {
		t.Errorf("%t, %v", there, err)
	}
}
