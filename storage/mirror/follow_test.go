package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/mirror"
	"github.com/planvault/azblob/workflow"
)

// world is a source on which an engine works at random, and what it did.
type world struct {
	t     *testing.T
	rand  *rand.Rand
	from  storage.Vault
	plans []*workflow.Plan
	done  map[uuid.UUID][]progress
}

// progress is how far a plan had come at a time.
type progress struct {
	at    time.Time
	steps int
}

// steps counts how far a plan has come: it grows with each update.
func steps(p *workflow.Plan) (n int) {
	for o := range workflow.Walk(p) {
		n += int(o.Header().State.Status)
	}
	return n
}

// work lets the engine do something.
func (w *world) work() {
	var p *workflow.Plan
	if i := w.rand.IntN(8); i < len(w.plans) {
		p = w.plans[len(w.plans)-1-i]
	}
	switch {
	case p == nil || w.rand.IntN(6) == 0:
		p = created(w.t, w.from, workflow.NotStarted)
		w.plans = append(w.plans, p)
	case p.State.Status == workflow.NotStarted:
		moveOn(w.t, w.from, p, workflow.Running)
	case p.State.Status == workflow.Running && w.rand.IntN(2) == 0:
		moveOn(w.t, w.from, p, workflow.Completed)
	case p.State.Status == workflow.Running:
		parts := workflow.Parts(p)
		o := parts[w.rand.IntN(len(parts))]
		o.Header().State.Status = min(o.Header().State.Status+1, workflow.Completed)
		update(w.t, w.from, o)
	}
	w.done[p.ID] = append(w.done[p.ID], progress{time.Now(), steps(p)})
}

// claims checks that the copy has all that the engine did up to a time.
func (w *world) claims(to storage.Reader, caughtUp time.Time) {
	w.t.Helper()
	for id, history := range w.done {
		due := 0
		for _, d := range history {
			if d.at.Before(caughtUp) {
				due = d.steps
			}
		}
		if p, err := to.Read(w.t.Context(), id); due > 0 && (err != nil || steps(p) < due) {
			w.t.Fatalf("the note says %v, and plan %s of the copy has not come to %d: %v, %v", caughtUp, id, due, p, err)
		}
	}
}

func newWorld(t *testing.T, seed uint64) *world {
	return &world{t: t, rand: rand.New(rand.NewPCG(seed, 0)), from: memvault.New(nil, memvault.Options{}), done: map[uuid.UUID][]progress{}}
}

// standing returns what the note in the source says.
func (w *world) standing() (s mirror.Standing) {
	n, err := vaulttest.Offered[storage.Control](w.from).FindNote(w.t.Context(), storage.NoteCopy+"b")
	if err == nil {
		s, err = storage.ReadNote[mirror.Standing](n)
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		w.t.Fatal(err)
	}
	return s
}

var errDied = errors.New("the follower has died")

// mortal returns the two sides of a follower that dies at its nth call, before it or after it took effect.
func (w *world) mortal(to storage.Vault, n int, after bool) (from, replica *hooked.Vault) {
	calls := 0
	hook := func(c *hooked.Call) error {
		calls++
		if calls == n && after {
			_ = c.Do()
		}
		if calls >= n {
			return errDied
		}
		return c.Do()
	}
	return hooked.Wrap(w.from, hook), hooked.Wrap(to, hook)
}

// follow runs rounds until one of them fails or there were enough, beside the engine.
func (w *world) follow(from storage.Vault, to storage.Vault, rounds int, o mirror.FollowOptions) error {
	ctx, stop := context.WithCancel(w.t.Context())
	defer stop()
	o.By, o.Name, o.Concurrency, o.Delete = by, "b", 1, true
	var failed error
	o.Round = func(r mirror.Round) {
		rounds--
		if failed = r.Err; rounds <= 0 || errors.Is(r.Err, errDied) {
			stop()
		}
	}
	err := mirror.Follow(ctx, mirror.Pair{Source: from, Copy: to}, o)
	if errors.Is(err, context.Canceled) {
		return failed
	}
	return err
}

// TestFollow kills a follower at each of its calls, starts it again beside an engine that goes on, and compares what the
// note claims with what the copy has.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for n := 1; n < 120; n += efforttest.Pick(7, 1, 1) {
			w := newWorld(t, uint64(n))
			to := memvault.New(nil, memvault.Options{})
			for range 12 {
				w.work()
			}
			if n%2 == 0 { // the first rounds have passed
				must(t, w.follow(w.from, to, 2, mirror.FollowOptions{}))
				for range 12 {
					w.work()
				}
			}
			from, replica := w.mortal(to, 1+n/2, n%3 == 0)
			if err := w.follow(from, replica, 3, mirror.FollowOptions{}); err != nil && !errors.Is(err, errDied) {
				t.Fatal(err)
			}
			w.claims(to, w.standing().CaughtUp)
			w.work()
			must(t, w.follow(w.from, to, 1, mirror.FollowOptions{}))
			w.claims(to, time.Now())
			equal(t, w.from, to)
		}
	})
}

// TestTwoFollowers lets two followers and an engine work at once. Neither note claims too much, and the copy never moves
// back.
func TestTwoFollowers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 7)
		to := memvault.New(nil, memvault.Options{})
		slow := func(v storage.Vault, every int64) *hooked.Vault {
			calls := new(atomic.Int64)
			return hooked.Wrap(v, func(c *hooked.Call) error {
				err := c.Do()
				if calls.Add(1)%every == 0 {
					time.Sleep(40 * time.Second) // others go on
				}
				return err
			})
		}
		ctx, stop := context.WithCancel(t.Context())
		var ended []chan error
		for i := range 2 {
			done := make(chan error, 1)
			ended = append(ended, done)
			go func() {
				done <- mirror.Follow(ctx, mirror.Pair{Source: slow(w.from, int64(5+2*i)), Copy: slow(to, int64(3+2*i))}, mirror.FollowOptions{By: by, Name: "b", Interval: 10 * time.Second, Compare: time.Hour})
			}()
		}
		far := map[uuid.UUID]int{}
		for range efforttest.Pick(150, 500, 500) {
			w.work()
			time.Sleep(7 * time.Second)
			s := w.standing()
			w.claims(to, s.CaughtUp)
			for _, p := range w.plans {
				if there, err := to.Read(t.Context(), p.ID); err == nil {
					if steps(there) < far[p.ID] {
						t.Fatalf("plan %s has moved back", p.ID)
					}
					far[p.ID] = steps(there)
				}
			}
		}
		if s := w.standing(); time.Since(s.CaughtUp) > 30*time.Minute || time.Since(s.Compared) > 4*time.Hour {
			t.Errorf("the copy is behind: %+v at %v", s, time.Now())
		}
		stop()
		for _, done := range ended {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
	})
}

// TestFollowCompares finds by comparison what no round looks for: deletions, imports of old plans, and updates of final
// plans.
func TestFollowCompares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		to := memvault.New(nil, memvault.Options{})
		long, gone := created(t, w.from, workflow.Running), created(t, w.from, workflow.Running)
		var old []*workflow.Plan
		for range 5 {
			old = append(old, created(t, w.from, workflow.Completed))
			time.Sleep(30 * time.Hour)
		}
		follow := func(rounds int) {
			t.Helper()
			must(t, w.follow(w.from, to, rounds, mirror.FollowOptions{}))
		}
		follow(1)
		equal(t, w.from, to)
		moveOn(t, w.from, long, workflow.Failed) // a round looks for it, because the copy has it open
		must(t, errors.Join(w.from.Delete(t.Context(), old[1].ID), w.from.Delete(t.Context(), gone.ID)))
		late := plantest.Small()
		late.ID = workflow.NewV7At(time.Now().Add(-50 * time.Hour))
		must(t, w.from.Create(t.Context(), late))
		moveOn(t, w.from, late, workflow.Completed)
		old[0].Name = "corrected"
		update(t, w.from, old[0])
		before := w.standing()
		follow(3)
		if there, err := storage.Collect(to.List(t.Context(), 0)); err != nil || len(there) != 7 || read(t, to, long.ID).State.Status != workflow.Failed {
			t.Errorf("%d plans, %v", len(there), err)
		}
		time.Sleep(24 * time.Hour)
		follow(9) // a day each
		equal(t, w.from, to)
		if s := w.standing(); !s.Compared.After(before.Compared) || !s.Began.IsZero() {
			t.Errorf("%+v", s)
		}
	})
}

// TestFollowComparesInVain meets a plan that can't be compared. The copy has what engines do all the same, and the
// comparison is made again.
func TestFollowComparesInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		to := memvault.New(nil, memvault.Options{})
		bad := created(t, w.from, workflow.Completed)
		time.Sleep(30 * time.Hour)
		follow := func(from storage.Vault, rounds int) error {
			return w.follow(from, to, rounds, mirror.FollowOptions{})
		}
		must(t, follow(w.from, 1))
		before := w.standing()
		time.Sleep(25 * time.Hour)
		w.work()
		bad.Name = "corrected"
		update(t, w.from, bad)
		broken := hooked.Wrap(w.from, hooked.On("Read", func(c *hooked.Call) error {
			if c.ID == bad.ID {
				return &storage.Error{Op: "Read", Plan: c.ID, Err: storage.ErrCorrupt}
			}
			return c.Do()
		}))
		_ = follow(broken, 4)
		if s := w.standing(); !s.CaughtUp.After(before.CaughtUp.Add(25*time.Hour)) || !s.Compared.Equal(before.Compared) {
			t.Errorf("%+v after %+v", s, before)
		}
		_ = follow(w.from, 5)
		if s := w.standing(); !s.Compared.After(before.Compared) {
			t.Errorf("%+v after %+v", s, before)
		}
		equal(t, w.from, to)
	})
}

// TestOlderRead lets another run copy a later state after this one has read the source. The copy keeps the later state.
func TestOlderRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		p := created(t, from, workflow.Running)
		run(t, from, to, mirror.Options{})
		action := p.Blocks[0].Sequences[0].Actions[0]
		action.State.Status = workflow.Running
		update(t, from, action)
		source := hooked.Wrap(from, hooked.On("Read", func(c *hooked.Call) error {
			err := c.Do()
			if action.State.Status == workflow.Running {
				action.State.Status = workflow.Completed
				update(t, from, action)
				run(t, from, to, mirror.Options{})
			}
			return err
		}))
		_, _ = mirror.Run(t.Context(), mirror.Pair{Source: source, Copy: to}, mirror.Options{By: by}) // it may meet a conflict
		equal(t, from, to)
	})
}

// TestFollowClaimsNothing fails rounds in each way, and expects that the note stays as it was.
func TestFollowClaimsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		to := memvault.New(nil, memvault.Options{})
		for range 30 {
			w.work()
		}
		must(t, w.follow(w.from, to, 1, mirror.FollowOptions{}))
		was := w.standing()
		time.Sleep(time.Minute)
		p := created(t, w.from, workflow.Completed)
		short := func(c *hooked.Call) error {
			err := c.Do()
			whole := c.Listing
			c.Listing = func(yield func(storage.Stream[storage.ListResult]) bool) {
				for r := range whole {
					if r.Result.ID != p.ID && !yield(r) {
						return
					}
				}
				yield(storage.Stream[storage.ListResult]{Err: &storage.Error{Op: "Search", Plan: p.ID, Err: storage.ErrCorrupt}})
			}
			return err
		}
		for _, hook := range []func(*hooked.Call) error{
			hooked.On("Search", short),
			hooked.On("Read", func(c *hooked.Call) error { return &storage.Error{Op: "Read", Plan: c.ID, Err: storage.ErrCorrupt} }),
		} {
			if err := w.follow(hooked.Wrap(w.from, hook), to, 1, mirror.FollowOptions{}); err == nil {
				t.Error("no error")
			}
			if s := w.standing(); !s.CaughtUp.Equal(was.CaughtUp) {
				t.Errorf("it claims %+v after %+v", s, was)
			}
		}
		// A copy that was removed and made anew has nothing of what the note says.
		time.Sleep(3 * time.Hour)
		must(t, w.follow(w.from, to, 1, mirror.FollowOptions{}))
		anew := memvault.New(nil, memvault.Options{})
		must(t, w.follow(w.from, anew, 1, mirror.FollowOptions{}))
		equal(t, w.from, anew)
	})
}

// revising is a [mirror.Reviser].
type revising struct {
	*hooked.Vault
	revisions func(ids []uuid.UUID) (map[uuid.UUID]string, error)
}

func (v revising) Revisions(_ context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	return v.revisions(ids)
}

// TestRefusedForHours refuses a follower one kind of call on one side for two hours, beside an engine and a deletion. Each round
// that meets it says so, the note claims nothing that the copy lacks, and afterwards the copy has everything.
func TestRefusedForHours(t *testing.T) {
	type kind struct{ side, op string }
	processtest.EachRefusal(t, func(t *testing.T, refuse func(k kind) error) (told int64) {
		w, to := newWorld(t, 3), memvault.New(nil, memvault.Options{})
		for range 12 {
			w.work()
		}
		gone := created(t, w.from, workflow.Completed)
		must(t, w.follow(w.from, to, 1, mirror.FollowOptions{}))
		must(t, w.from.Delete(t.Context(), gone.ID))
		side := func(v storage.Vault, name string) *hooked.Vault {
			return hooked.Wrap(v, func(c *hooked.Call) error {
				if c.Op == "Record" { // a log that can't be written keeps nothing from being done
					return c.Do()
				}
				if err := refuse(kind{name, c.Op}); err != nil {
					return err
				}
				return c.Do()
			})
		}
		source := revising{side(w.from, "source"), func(ids []uuid.UUID) (map[uuid.UUID]string, error) {
			revisions := map[uuid.UUID]string{}
			for _, id := range ids {
				revisions[id] = fmt.Sprint(steps(read(t, w.from, id)))
			}
			return revisions, refuse(kind{"source", "Revisions"})
		}}
		ctx, stop := context.WithTimeout(t.Context(), processtest.Outage+6*time.Hour)
		defer stop()
		began := time.Now()
		err := mirror.Follow(ctx, mirror.Pair{Source: source, Copy: side(to, "copy")}, mirror.FollowOptions{
			By: by, Name: "b", Interval: 5 * time.Minute, Compare: time.Hour, Delete: true, Concurrency: 1,
			Round: func(r mirror.Round) {
				if r.Err != nil {
					told++
				}
				w.claims(to, w.standing().CaughtUp)
				if time.Since(began) < processtest.Outage {
					w.work()
				}
			},
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		w.claims(to, time.Now())
		equal(t, w.from, to)
		return told
	})
}

// TestFollowRefuses meets copies and sources that must not be followed.
func TestFollowRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		follow := func(to storage.Vault) error {
			return w.follow(w.from, to, 1, mirror.FollowOptions{})
		}
		used := memvault.New(nil, memvault.Options{})
		if _, err := used.Control().AddMember(t.Context(), storage.Member{ID: workflow.NewV7(), Name: "host-3"}); err != nil {
			t.Fatal(err)
		}
		if err := follow(used); err == nil {
			t.Error("a member works on the copy")
		}
		to := memvault.New(nil, memvault.Options{})
		must(t, follow(to))
		absent := 1
		liar := hooked.Wrap(to, hooked.On("FindNote", func(c *hooked.Call) error {
			if absent--; absent >= 0 {
				return storage.ErrNotFound
			}
			return c.Do()
		}))
		if err := mirror.Promote(t.Context(), liar, by); !errors.Is(err, storage.ErrUnavailable) {
			t.Errorf("its origin seems to be absent: %v", err)
		}
		absent = 1
		if s, err := mirror.StateOf(t.Context(), liar); err != nil || !s.Copy || !s.Promoted.IsZero() {
			t.Errorf("%+v, %v", s, err)
		}
		must(t, mirror.Promote(t.Context(), liar, by))
		if _, err := to.Control().FindNote(t.Context(), storage.NoteSuspended); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("it is still suspended: %v", err)
		}
		if err := follow(to); !errors.Is(err, mirror.ErrPromoted) {
			t.Errorf("an opened copy: %v", err)
		}
		cut := hooked.Wrap(to, func(c *hooked.Call) error {
			err := c.Do()
			c.Roster.Notes = nil
			return err
		})
		err := follow(cut)
		if _, note := to.Control().FindNote(t.Context(), storage.NoteSuspended); !errors.Is(err, mirror.ErrPromoted) || !errors.Is(note, storage.ErrNotFound) {
			t.Errorf("an opened copy whose notes are not listed: %v, %v", err, note)
		}
		n, err := storage.NewNote(storage.NoteSuspended, storage.Suspension{By: "ana"}, "")
		if err == nil {
			_, err = vaulttest.Offered[storage.Control](w.from).PutNote(t.Context(), n)
		}
		must(t, err)
		if err := follow(memvault.New(nil, memvault.Options{})); !errors.Is(err, mirror.ErrSourceSuspended) {
			t.Errorf("a suspended source: %v", err)
		}
		for _, o := range []mirror.FollowOptions{
			{By: by}, {By: by, Name: "A"}, {By: by, Name: "a", Interval: -1}, {By: by, Name: "a", Compare: -1}, {By: by, Name: "a", Concurrency: -1}, {Name: "a"},
		} {
			if err := mirror.Follow(t.Context(), mirror.Pair{Source: w.from, Copy: to}, o); !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	})
}

// TestLaterEpoch meets a plan of the copy that an engine there has taken. It stays.
func TestLaterEpoch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := memvault.New(nil, memvault.Options{}), memvault.New(nil, memvault.Options{})
		p := created(t, from, workflow.Running)
		run(t, from, to, mirror.Options{})
		taken := read(t, to, p.ID)
		taken.Owner, taken.Epoch = workflow.NewV7(), taken.Epoch+1
		update(t, to, taken)
		p.Blocks[0].State.Status = workflow.Running
		update(t, from, p.Blocks[0])
		if r, err := mirror.Run(t.Context(), mirror.Pair{Source: from, Copy: to}, mirror.Options{By: by}); !errors.Is(err, storage.ErrExists) || r.Failed != 1 {
			t.Errorf("%+v, %v", r, err)
		}
		if d := plantest.Diff(taken, read(t, to, p.ID)); d != "" {
			t.Error(d)
		}
	})
}

// FuzzStanding reads notes.
func FuzzStanding(f *testing.F) {
	f.Add([]byte(`{"to":"b","id":"01a1fc0b-e768-7000-8000-0000000000a0","caughtUp":"2026-11-21T03:00:00Z"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, err := storage.ReadNote[mirror.Standing](storage.Note{Text: text}); err != nil && !errors.Is(err, storage.ErrCorrupt) {
			t.Error(err)
		}
		if _, err := storage.ReadNote[storage.Suspension](storage.Note{Text: text}); err != nil && !errors.Is(err, storage.ErrCorrupt) {
			t.Error(err)
		}
	})
}
