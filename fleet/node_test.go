package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// roster returns the members that a store has, without those that have left.
func roster(t testing.TB, store *memvault.Store) map[uuid.UUID]storage.Member {
	t.Helper()
	r, err := store.Open(nil, memvault.Options{}).Control().Roster(context.WithoutCancel(t.Context()))
	must(t, err)
	members := map[uuid.UUID]storage.Member{}
	for _, m := range r.Members {
		if m.Phase != storage.PhaseLeft {
			members[m.ID] = m
		}
	}
	return members
}

func TestJoinAndLeave(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		n := join(t, open(store), fleet.Options{Name: "a", Interval: 20 * time.Second})
		for range 10 {
			m := roster(t, store)[n.ID()]
			if age := time.Since(m.Renewed); m.Name != "a" || m.TTL != time.Minute || age > 20*time.Second {
				t.Errorf("the record is %+v, %v old", m, age)
			}
			time.Sleep(19 * time.Second)
		}
		work, _ := n.Work(uuid.New())
		if !errors.Is(context.Cause(work), fleet.ErrFenced) {
			t.Errorf("the work on a plan that is not the node's ended with %v", context.Cause(work))
		}
		if err := context.Cause(n.Context()); err != nil {
			t.Error(err)
		}
		leave(t, n)
		leave(t, n)
		if m := roster(t, store); len(m) > 0 {
			t.Errorf("after Leave there is %v", m)
		}
		fails(t, context.Cause(n.Context()), fleet.ErrLeft, "the node's context ended with")
		for what, err := range map[string]error{
			"Claim": n.Claim(t.Context(), plantest.Small()),
			"Take":  second(n.Take(t.Context(), uuid.New())),
		} {
			if !errors.Is(err, fleet.ErrLeft) {
				t.Errorf("%s after Leave returned %v", what, err)
			}
		}
		for next := range n.Plans(t.Context()) {
			t.Errorf("after Leave there is %+v", next)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestJoinFails(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		for _, test := range []struct {
			what  string
			store storage.Vault
			o     fleet.Options
			want  error
		}{
			{"wrong options", open(store), fleet.Options{Capacity: -1}, storage.ErrInvalid},
			{"a vault without versions", store.Open(nil, memvault.Options{UnversionedUpdates: true}), fleet.Options{}, storage.ErrInvalid},
			{"a long name", open(store), fleet.Options{Name: strings.Repeat("x", 2000)}, storage.ErrInvalid},
			{"no roster", open(store).Fail("Roster", processtest.Unavailable), fleet.Options{}, storage.ErrUnavailable},
			{"no record", open(store).Fail("AddMember", processtest.Unavailable), fleet.Options{}, storage.ErrUnavailable},
		} {
			n, err := fleet.Join(t.Context(), test.store, test.o)
			if n != nil || !errors.Is(err, test.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: Join returned %v, %v, want %v", test.what, n, err, test.want)
			}
		}
		if m := roster(t, store); len(m) > 0 {
			t.Errorf("a failed Join left %v", m)
		}
	})
}

// TestInterruptedJoin ends the context of a Join when its record has been stored. Nobody may be there to remove the
// record when it is too old.
func TestInterruptedJoin(t *testing.T) {
	onStores(t, []string{"AddMember", "Roster"}, func(t *testing.T, store *memvault.Store, interrupted string) {
		ctx, cancel := context.WithCancel(t.Context())
		p := open(store)
		p.On(func(_ context.Context, c processtest.Call, do func() error) error {
			err := do()
			if c.Op != interrupted {
				return err
			}
			cancel()
			return processtest.Unknown(c.Op)
		})
		n, err := fleet.Join(ctx, p, fleet.Options{})
		if n != nil || !errors.Is(err, storage.ErrUnknown) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: Join returned %v, %v", interrupted, n, err)
		}
		if m := roster(t, store); len(m) > 0 {
			t.Errorf("%s: Join left %v", interrupted, m)
		}
	})
}

// TestFrozenJoin freezes a process whose record is stored, and that has not heard so, until others mark the record as left.
func TestFrozenJoin(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		var first uuid.UUID
		p := open(store)
		p.OnOp("AddMember", func(ctx context.Context, c processtest.Call, do func() error) error {
			if first != uuid.Nil {
				return do()
			}
			must(t, do())
			for id, m := range roster(t, store) {
				first = id
				must(t, second(store.Open(nil, memvault.Options{}).Control().RenewMember(ctx, storage.Member{ID: id, Version: m.Version, Phase: storage.PhaseLeft})))
			}
			return processtest.Unknown(c.Op)
		})
		n := join(t, p, fleet.Options{})
		if _, there := roster(t, store)[n.ID()]; !there || n.ID() == first || n.Context().Err() != nil {
			t.Errorf("node %s, after %s, of %v", n.ID(), first, roster(t, store))
		}
	})
}

// TestUndecidedFailures shows that failures that decide nothing never stop a node.
func TestUndecidedFailures(t *testing.T) {
	onStores(t, []func(string) error{processtest.Unavailable, processtest.Unknown}, func(t *testing.T, store *memvault.Store, with func(string) error) {
		p := open(store)
		var beats, failures atomic.Int64
		n := join(t, p, fleet.Options{Observer: fleet.Observer{
			Heartbeat: func(context.Context, fleet.HeartbeatEvent) { beats.Add(1) },
			Failure:   func(context.Context, fleet.FailureEvent) { failures.Add(1) },
		}})
		p.On(func(_ context.Context, c processtest.Call, _ func() error) error { return with(c.Op) })
		time.Sleep(30 * time.Minute)
		if err := context.Cause(n.Context()); err != nil {
			t.Errorf("after %v the node's context ended with %v", with("x"), err)
		}
		for what, n := range map[string]int64{"heartbeats": beats.Load(), "looks": failures.Load()} {
			if n < 360 || n > 520 {
				t.Errorf("%d %s in 30 minutes: want one each 3.5s to 5s", n, what)
			}
		}
		p.On(nil)
		time.Sleep(5 * time.Second)
		if age := time.Since(roster(t, store)[n.ID()].Renewed); age > 5*time.Second {
			t.Errorf("5s after the outage the record is %v old", age)
		}
	})
}

func TestFencedNode(t *testing.T) {
	for what, remove := range map[string]func(context.Context, *memvault.Vault, storage.Member) error{
		"removed": func(ctx context.Context, v *memvault.Vault, m storage.Member) error {
			return v.Control().RemoveMember(ctx, m.ID, m.Version)
		},
		"written by a late request": func(ctx context.Context, v *memvault.Vault, m storage.Member) error {
			return second(v.Control().RenewMember(ctx, m))
		},
	} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			p := open(store)
			fences := 0
			n := join(t, p, fleet.Options{Observer: fleet.Observer{Fenced: func(context.Context, fleet.FencedEvent) { fences++ }}})
			created := create(t, p, 1)
			found := plans(t.Context(), t, n)
			work, done := n.Work(within(t, found, time.Second).ID)
			defer done()
			must(t, remove(t.Context(), store.Open(nil, memvault.Options{}), roster(t, store)[n.ID()]))
			time.Sleep(10*time.Second + 1)
			for _, ctx := range []context.Context{n.Context(), work} {
				if err := context.Cause(ctx); !errors.Is(err, fleet.ErrFenced) {
					t.Fatalf("%s: a context ended with %v", what, err)
				}
			}
			if plan, more := <-found; more {
				t.Errorf("%s: another plan %s", what, plan.ID)
			}
			fails(t, n.Claim(t.Context(), plantest.Small()), fleet.ErrFenced, "%s: Claim", what)
			fails(t, second(n.Take(t.Context(), created.ID)), fleet.ErrFenced, "%s: Take", what)
			if fences != 1 {
				t.Errorf("%s: the observer was called %d times", what, fences)
			}
		})
	}
}

// TestMarkIsSeen: a node whose heartbeats do not get through learns at its next look that it was marked as left.
func TestMarkIsSeen(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		p.Fail("RenewMember", processtest.Unavailable)
		must(t, fleet.Evict(t.Context(), open(store), n.ID(), fleet.EvictOptions{By: ana}))
		time.Sleep(10*time.Second + 1)
		fails(t, context.Cause(n.Context()), fleet.ErrFenced, "the node ended with")
	})
}

// TestLeaveDuringAHeartbeat leaves while a heartbeat is under way, which takes effect without an answer.
func TestLeaveDuringAHeartbeat(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p, n := start(t, store, fleet.Options{})
		p.OnOp("RenewMember", func(ctx context.Context, c processtest.Call, do func() error) error {
			must(t, do())
			<-ctx.Done()
			return processtest.Unknown(c.Op)
		})
		time.Sleep(11 * time.Second)
		leave(t, n)
		if m := roster(t, store); len(m) > 0 {
			t.Errorf("after Leave there is %v", m)
		}
	})
}

// TestLeaveFails checks that Leave ends with its context, or with an error that stays, as where a store refuses to
// remove a record in the version that it shows. The node's goroutines end in any case.
func TestLeaveFails(t *testing.T) {
	for want, most := range map[error]int{storage.ErrUnavailable: 1, storage.ErrUnknown: 61, storage.ErrConflict: 2} {
		onStore(t, func(t *testing.T, store *memvault.Store) {
			p := open(store)
			n, err := fleet.Join(t.Context(), p, fleet.Options{})
			must(t, err)
			calls := 0
			p.Fail("RemoveMember", func(op string) error {
				calls++
				return &storage.Error{Op: op, Err: want}
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := n.Leave(ctx); !errors.Is(err, want) || calls > most {
				t.Errorf("Leave returned %v after %d calls, want %v", err, calls, want)
			}
			synctest.Wait() // a goroutine that is left ends the test with a panic
		})
	}
}

// TestOutagesRemoveNobody puts three nodes through outages of 1s to 30 minutes, in which requests fail at once,
// hang, or take effect without an answer, reads get through or not, and the nodes come back at different times.
func TestOutagesRemoveNobody(t *testing.T) {
	for seed := range efforttest.Seeds(t, 3, 20, 1000) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
			store := memvault.NewStore()
			var processes []*processtest.Process
			observer := fleet.Observer{
				Removal: func(_ context.Context, e fleet.RemovalEvent) {
					t.Errorf("seed %d: %s was removed", seed, e.Member.Name)
				},
				Fenced: func(context.Context, fleet.FencedEvent) { t.Errorf("seed %d: a node is fenced", seed) },
			}
			for i := range 3 {
				p := open(store)
				processes = append(processes, p)
				join(t, p, fleet.Options{Name: fmt.Sprint(i), Observer: observer})
				time.Sleep(upTo(10 * time.Second))
			}
			for range 3 {
				time.Sleep(30*time.Second + upTo(time.Minute))
				reads, hangs := r.IntN(3) == 0, r.IntN(2) == 0
				for _, p := range processes {
					p.On(func(ctx context.Context, c processtest.Call, do func() error) error {
						if reads && (c.Op == "Roster" || c.Op == "FindMember") {
							return do()
						}
						if hangs {
							<-ctx.Done()
						}
						return processtest.Unavailable(c.Op)
					})
				}
				time.Sleep(time.Second + upTo([]time.Duration{time.Minute, 30 * time.Minute}[r.IntN(2)]))
				for _, p := range processes {
					p.On(nil)
				}
			}
			time.Sleep(2 * time.Minute)
		})
	}
}

// TestOutageOfWrites: reads get through an outage. A judge's heartbeat is the first write that succeeds, just before
// the judge looks at a member that tries again half a second later. The judge has seen its own record young at each
// look, and yet judges nobody.
func TestOutageOfWrites(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		start := time.Now()
		until := func(seconds float64) {
			time.Sleep(time.Until(start.Add(time.Duration(seconds * float64(time.Second)))))
		}
		p, q := open(store), open(store)
		live := join(t, p, fleet.Options{}) // with a heartbeat at 60s
		until(6)
		q.Before("Roster", func() {
			until(10.5) // and a look each 10s from here
		})
		join(t, q, fleet.Options{}) // with a heartbeat at 66s, and a look at 80.5s
		until(68)
		p.Fail("RenewMember", processtest.Unavailable)
		q.Fail("RenewMember", processtest.Unavailable)
		until(89)
		p.On(nil) // the judge renews at 90s and looks at 90.5s, the member renews at 91s
		q.On(nil)
		until(120)
		if err := context.Cause(live.Context()); err != nil || len(roster(t, store)) != 2 {
			t.Errorf("the member ended with %v", err)
		}
	})
}

// TestLastHeartbeat: a member renews its record between the look that finds it dead and its removal. It stays.
func TestLastHeartbeat(t *testing.T) {
	onStore(t, func(t *testing.T, store *memvault.Store) {
		p := open(store)
		old := storage.Member{ID: workflow.NewV7(), Name: "old", TTL: 30 * time.Second}
		var err error
		old.Version, err = p.AddMember(t.Context(), old)
		must(t, err)
		join(t, p, fleet.Options{Observer: fleet.Observer{Removal: func(_ context.Context, e fleet.RemovalEvent) { t.Errorf("%s was removed", e.Member.Name) }}})
		joined := time.Now()
		p.On(func(_ context.Context, c processtest.Call, do func() error) error {
			err := do()
			if c.Op == "Roster" && time.Since(joined) > 30*time.Second {
				p.On(nil)
				must(t, second(vaulttest.Offered[storage.Control](p.Store).RenewMember(t.Context(), old)))
			}
			return err
		})
		time.Sleep(45 * time.Second)
		if _, there := roster(t, store)[old.ID]; !there {
			t.Error("the record is gone")
		}
	})
}

// TestRefusedForHours refuses one kind of call of a node for two hours, while it has a dead member to remove, that member's
// plan to take over, a new plan to claim, and a stop request to drop. The node says so, and does all of it afterwards.
func TestRefusedForHours(t *testing.T) {
	type kind struct {
		op    string
		other bool // of another member's record
	}
	processtest.EachRefusal(t, func(t *testing.T, refuse func(k kind) error) int64 {
		store := memvault.NewStore()
		p, dead := start(t, store, fleet.Options{})
		orphan, ended := claimed(t, p, dead, 2), claimed(t, p, dead, 1)
		must(t, p.AddStop(t.Context(), ended.ID, workflow.Attribution{By: "ana"}))
		must(t, finish(t.Context(), p, ended))
		var failures atomic.Int64
		q, n := start(t, store, fleet.Options{Observer: fleet.Observer{
			Failure: func(context.Context, fleet.FailureEvent) { failures.Add(1) },
			Heartbeat: func(_ context.Context, e fleet.HeartbeatEvent) {
				if e.Err != nil {
					failures.Add(1)
				}
			},
		}})
		q.On(func(_ context.Context, c processtest.Call, do func() error) error {
			if err := refuse(kind{c.Op, c.Op == "RenewMember" && c.Plan != n.ID()}); err != nil {
				return err
			}
			return do()
		})
		p.Kill()
		fresh := create(t, open(store), 1)
		found, errs := results(t.Context(), n)
		time.Sleep(processtest.Outage + 15*time.Minute)
		got := []uuid.UUID{within(t, found, time.Second).ID, within(t, found, time.Second).ID}
		if !slices.Contains(got, orphan.ID) || !slices.Contains(got, fresh.ID) || len(found) > 0 {
			t.Errorf("it took %v, and %d more; want %s and %s", got, len(found), orphan.ID, fresh.ID)
		}
		if r, err := open(store).Roster(t.Context()); err != nil || len(r.Members) != 1 || r.Members[0].ID != n.ID() || len(r.Stops) > 0 {
			t.Errorf("left: %+v, %v", r, err)
		}
		return failures.Load() + int64(len(errs))
	})
}
