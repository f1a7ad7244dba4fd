package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/processtest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// calls counts the calls of a process by their methods.
type calls struct {
	mu sync.Mutex
	of map[string]int
}

// counted returns a process on the stage's store, and its calls.
func (s *stage) counted() (*processtest.Process, *calls) {
	p, c := processtest.New(s.open()), &calls{of: map[string]int{}}
	p.On(func(_ context.Context, call processtest.Call, do func() error) error {
		c.mu.Lock()
		c.of[call.Op]++
		c.mu.Unlock()
		return do()
	})
	return p, c
}

func (c *calls) take() (of map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of, c.of = c.of, map[string]int{}
	return of
}

// text returns a plan as it is stored.
func text(t testing.TB, p *workflow.Plan) string {
	t.Helper()
	b, err := workflow.Marshal(p)
	must(t, err)
	return string(b)
}

// TestWaitHere: what the run holds is the plan as it is stored, each waiter has its own, and nobody asks the vault.
func TestWaitHere(t *testing.T) {
	for _, o := range []engine.Options{{}, {Fleet: &fleet.Options{}}} {
		var searches [2]int
		for waiters := range searches {
			onStage(t, func(t *testing.T, s *stage) {
				s.stored = nil
				v, count := s.counted()
				e := s.engine(v, o)
				s.create(plan(block("", sequence("", do(job{Name: "other", For: time.Hour}))))) // keeps Run active
				ended := start(t.Context(), e)
				time.Sleep(90*time.Second + 500*time.Millisecond) // between two searches
				count.take()
				p := plan(block("b", sequence("s", do(job{Name: "a", For: 3 * time.Minute, Fails: 1}), second("b"))))
				p.Blocks[0].Sequences[0].Actions[0].Retries = 1
				handle := submit(t, e, p)
				for range 3 * waiters {
					go func() {
						got, err := handle.Wait(t.Context())
						must(t, err)
						if late := time.Since(got.State.End); late > time.Second || text(t, got) != text(t, s.read(p.ID)) {
							t.Errorf("%v late: %s", late, outline(got))
						}
						got.Name, got.Blocks = "", nil
					}()
				}
				time.Sleep(7 * time.Minute)
				of := count.take()
				if searches[waiters] = of["Search"]; of["Read"] > 0 {
					t.Errorf("waiting reads: %v", of)
				}
				got, err := e.Wait(t.Context(), p.ID) // again, with a look
				must(t, err)
				if of := count.take(); of["Read"] != 1 || got.State.Status != workflow.Completed {
					t.Errorf("waiting for a final plan: %v", of)
				}
				must(t, <-ended)
			})
		}
		if searches[0] != searches[1] {
			t.Errorf("searches without waiters, and with them: %d", searches)
		}
	}
}

// TestWaitElsewhere: the owner dies while a process that only submits waits, and later another node. Each gets the plan
// within an interval of its end, or a quarter of the time so far, or a minute.
func TestWaitElsewhere(t *testing.T) {
	onStages(t, []time.Duration{20 * time.Second, 4 * time.Minute}, func(t *testing.T, s *stage, lasts time.Duration) {
		s.stored = nil
		v, count := s.counted()
		e := s.engine(v, engine.Options{Fleet: &fleet.Options{}})
		p := plan(block("", sequence("", do(job{Name: "a", For: lasts}), do(job{Name: "b", For: lasts}))))
		var waiting sync.WaitGroup
		wait := func(wait func(context.Context) (*workflow.Plan, error)) {
			waiting.Go(func() {
				got, err := wait(t.Context())
				must(t, err)
				stored := s.read(p.ID)
				if took, late := time.Since(got.SubmitTime), time.Since(got.State.End); text(t, got) != text(t, stored) || got.Epoch != 2 || late > max(10*time.Second, min(took/4, time.Minute))+time.Second {
					t.Errorf("%v after the end, epoch %d: %s", late, got.Epoch, outline(got))
				}
			})
		}
		wait(submit(t, e, p).Wait)
		dying := s.join("dying", engine.Options{})
		time.Sleep(lasts + 3*time.Second) // b runs
		other := s.join("other", engine.Options{})
		wait(func(ctx context.Context) (*workflow.Plan, error) { return other.Wait(ctx, p.ID) })
		dying.Kill()
		dying.end()
		waiting.Wait()
		<-other.ended
		if of := count.take(); of["Read"] != 1 || of["Search"] > 30 {
			t.Errorf("%v", of)
		}
	})
}

// TestWaitAlone: the plan's engine shuts down, and the next one ends the plan.
func TestWaitAlone(t *testing.T) {
	onStage(t, func(t *testing.T, s *stage) {
		e := s.engine(s.process(), engine.Options{})
		handle := submit(t, e, long("a", "b", "c"))
		time.AfterFunc(time.Hour, func() { s.run(t.Context(), s.process()) })
		time.AfterFunc(time.Minute, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			must(t, e.Run(ctx))
		})
		got, err := handle.Wait(t.Context())
		must(t, err)
		if late := time.Since(got.State.End); got.State.Status != workflow.Completed || late > time.Minute {
			t.Errorf("%v late: %s", late, outline(got))
		}
	})
}

// TestWaitErrors: what else ends a wait.
func TestWaitErrors(t *testing.T) {
	ours := errors.New("ours")
	cases := map[string]struct {
		during func(t *testing.T, v *processtest.Process, id uuid.UUID) // a minute after the wait has begun
		want   error
		within time.Duration
	}{
		"deleted": {func(t *testing.T, v *processtest.Process, id uuid.UUID) { must(t, v.Store.Delete(t.Context(), id)) }, storage.ErrNotFound, 15 * time.Second},
		"closed":  {func(t *testing.T, v *processtest.Process, _ uuid.UUID) { must(t, v.Close(t.Context())) }, storage.ErrClosed, 15 * time.Second},
		"denied":  {func(_ *testing.T, v *processtest.Process, _ uuid.UUID) { v.Fail("Search", failing(storage.ErrDenied)) }, storage.ErrDenied, 15 * time.Second},
		"nothing": {func(*testing.T, *processtest.Process, uuid.UUID) {}, ours, 3 * time.Hour},
		"unavailable": {func(_ *testing.T, v *processtest.Process, _ uuid.UUID) {
			v.Fail("Search", failing(storage.ErrUnavailable))
		}, ours, 3 * time.Hour},
		"unreadable": {func(t *testing.T, v *processtest.Process, id uuid.UUID) {
			p, err := v.Read(t.Context(), id)
			must(t, err)
			v.Fail("Read", failing(storage.ErrSchema))
			p.State.Status = workflow.Stopped
			must(t, v.UpdatePlan(t.Context(), p))
		}, storage.ErrSchema, 15 * time.Second},
	}
	for name, c := range cases {
		onStage(t, func(t *testing.T, s *stage) {
			s.stored = nil
			v := s.process()
			e := s.engine(v, engine.Options{})
			p := s.create(long("a"))
			ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Hour, ours)
			defer cancel()
			began := time.Now()
			time.AfterFunc(time.Minute, func() { c.during(t, v, p.ID) })
			_, err := e.Wait(ctx, p.ID)
			if took := time.Since(began) - time.Minute; !errors.Is(err, c.want) || took > c.within || !strings.Contains(err.Error(), p.ID.String()) {
				t.Errorf("%s: %v after %v", name, err, took)
			}
			if name == "unavailable" && !errors.Is(err, storage.ErrUnavailable) {
				t.Errorf("nothing says what hindered the look: %v", err)
			}
		})
	}
	onStage(t, func(t *testing.T, s *stage) {
		e := s.engine(s.process(), engine.Options{Fleet: &fleet.Options{}})
		for _, id := range []uuid.UUID{uuid.Nil, uuid.New(), workflow.NewV7()} {
			if _, err := e.Wait(t.Context(), id); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s: %v", id, err)
			}
		}
		if took := time.Since(s.began); took > 5*time.Second {
			t.Errorf("the answers took %v", took)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(ours)
		if _, err := e.Wait(ctx, uuid.Nil); !errors.Is(err, ours) {
			t.Error(err)
		}
	})
}

func failing(err error) func(op string) error {
	return func(op string) error { return &storage.Error{Op: op, Err: err} }
}

// countingTransport counts requests by their methods; listings are LIST.
type countingTransport struct {
	policy.Transporter
	mu sync.Mutex
	of map[string]int
}

func (c *countingTransport) Do(r *http.Request) (*http.Response, error) {
	method := r.Method
	if r.URL.Query().Get("comp") == "list" {
		method = "LIST"
	}
	c.mu.Lock()
	c.of[method]++
	c.mu.Unlock()
	return c.Transporter.Do(r)
}

// TestWaitCost: the looks of 1,000 waiters cost as much as those of one for plans that were created together. It says what
// the comment of Wait says.
func TestWaitCost(t *testing.T) {
	for _, c := range []struct {
		plans, waiters int
		want           map[string]int // in three looks
	}{
		{1, 1, map[string]int{"HEAD": 6}},
		{1, 1000, map[string]int{"HEAD": 6}},
		{8, 8, map[string]int{"HEAD": 48}},
		{200, 1000, map[string]int{"LIST": 6}},
	} {
		onEmulator(t, func(t *testing.T, s *stage, server *emulator.Server) {
			counting := &countingTransport{Transporter: server.Transport(), of: map[string]int{}}
			v, err := azblob.NewFromConnectionString(t.Context(), "test", server.ConnectionString(), s.reg, azblob.Options{ClientOptions: azcore.ClientOptions{Transport: counting}})
			must(t, err)
			e := s.engine(v, engine.Options{Fleet: &fleet.Options{}})
			var plans []*workflow.Plan
			for range c.plans {
				plans = append(plans, s.create(long("a")))
			}
			var waiting sync.WaitGroup
			for n := range c.waiters {
				waiting.Go(func() {
					_, err := e.Wait(t.Context(), plans[n%c.plans].ID)
					must(t, err)
				})
			}
			time.Sleep(5 * time.Second) // after the first looks
			count := func() map[string]int {
				synctest.Wait()
				counting.mu.Lock()
				defer counting.mu.Unlock()
				of := counting.of
				counting.of = map[string]int{}
				return of
			}
			count()
			time.Sleep(30 * time.Second)
			if got := count(); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("%d waiters for %d plans: %v, want %v", c.waiters, c.plans, got, c.want)
			}
			for _, p := range plans {
				p.State.Status = workflow.Stopped
				must(t, s.open().UpdatePlan(t.Context(), p))
			}
			waiting.Wait()
			if got := count(); got["GET"] > 2*c.plans {
				t.Errorf("%d waiters for %d plans that end: %v", c.waiters, c.plans, got)
			}
		})
	}
}

// TestStatus: one Read says what runs, what waits until when, and what looks stuck.
func TestStatus(t *testing.T) {
	retried := do(job{Name: "r", For: 10 * time.Second, Fails: 2})
	retried.Retries = 5
	slow := do(job{Name: "r", For: 10 * time.Second, Fails: 2})
	slow.Retries, slow.Backoff.First = 5, 3*time.Minute
	both := block("b", sequence("s", new(*slow)), sequence("q", new(*retried)))
	both.Concurrency = 2
	crashed := do(job{Name: "c", For: time.Hour})
	crashed.Timeout = 2 * time.Hour
	delayed := block("late", sequence("s", second("a")))
	delayed.EntranceDelay = time.Hour
	cases := []struct {
		name  string
		plan  *workflow.Plan
		after time.Duration
		died  bool // an engine died after ten seconds
		want  string
	}{
		{"waits for an engine", plan(block("b", sequence("s", second("a")))), -time.Minute, false, "NotStarted waiting false not-picked-up; runs: ; waits: "},
		{"works", plan(block("b", sequence("s", do(job{Name: "a", For: time.Minute})))), 30 * time.Second, false, "Running unclaimed false ; runs: b/s/a at 0s, attempt 1; waits: "},
		{"retries", plan(block("b", sequence("s", retried, second("r")))), 10500 * time.Millisecond, false, "Running unclaimed false ; runs: b/s/r at 0s, attempt 1; waits: b/s/r retry until 11s"},
		{"retries as it says", plan(block("b", sequence("s", slow))), 10500 * time.Millisecond, false, "Running unclaimed false ; runs: b/s/r at 0s, attempt 1; waits: b/s/r retry until 3m10s"},
		{"retries two", plan(both), 10500 * time.Millisecond, false, "Running unclaimed false ; runs: b/s/r at 0s, attempt 1b/q/r at 0s, attempt 1; waits: b/q/r retry until 11sb/s/r retry until 3m10s"},
		{"is delayed", plan(delayed), time.Minute, false, "Running asleep false asleep; runs: ; waits: late entrance delay until 1h0m0s"},
		{"has died", plan(block("b", sequence("s", crashed))), 40 * time.Minute, true, "Running unclaimed true unclaimed; runs: b/s/c at 0s, attempt 2 after 1; waits: "},
		{"ended", plan(block("b", sequence("s", second("a")))), time.Minute, false, "Completed  false ; runs: ; waits: "},
	}
	for _, c := range cases {
		onStage(t, func(t *testing.T, s *stage) {
			v, count := s.counted()
			s.stored = nil
			e := s.engine(v, engine.Options{})
			began := time.Now()
			handle := submit(t, s.engine(s.process(), engine.Options{}), c.plan)
			ctx, cancel := context.WithCancel(t.Context())
			if c.died {
				died := s.process()
				time.AfterFunc(10*time.Second, died.Kill)
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				defer cancel()
				_ = s.engine(died, engine.Options{}).Run(ctx)
			}
			ended := make(chan error, 1)
			if c.after > 0 {
				go func() { ended <- s.engine(s.process(), engine.Options{}).Run(ctx) }()
				time.Sleep(c.after)
			} else {
				ended <- nil
			}
			p, err := e.Status(t.Context(), handle.ID())
			must(t, err)
			got := fmt.Sprintf("%v %s %v %s; runs: ", p.Plan.State.Status, p.Condition, p.Stuck, string(p.Reason))
			for _, a := range p.Running {
				got += fmt.Sprintf("%s at %v, attempt %d", a.Path, a.Since.Sub(began).Truncate(time.Minute), a.Attempts)
				if a.Unended > 0 {
					got += fmt.Sprintf(" after %d", a.Unended)
				}
			}
			got += "; waits: "
			for _, w := range p.Waiting {
				got += fmt.Sprintf("%s %s until %v", w.Path, w.For, w.Until.Sub(began))
			}
			if got != c.want || (p.Why == "") != p.Plan.State.Status.Final() || fmt.Sprint(count.take()) != "map[Read:1]" {
				t.Errorf("%s:\n%s, want\n%s\n%s", c.name, got, c.want, p.Why)
			}
			cancel()
			must(t, <-ended)
		})
	}
}
