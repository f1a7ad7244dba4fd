package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// store is a vault in memory that counts what a server asks for, fails when a test says so, and answers no look while it
// is slow.
type store struct {
	*hooked.Vault

	mu    sync.Mutex
	asked map[string]int // how often each method was called
	err   error          // of looks, reads and pings
	begun chan struct{}  // nil unless the store is slow
	ended chan error     // with what slow looks end
}

func newStore() *store {
	s := &store{asked: map[string]int{}, ended: make(chan error, 1)}
	s.Vault = hooked.Wrap(memvault.New(plantest.Register(), memvault.Options{}), func(c *hooked.Call) error {
		begun, err := s.note(c.Op)
		switch {
		case c.Op == "Roster" && begun != nil:
			begun <- struct{}{}
			<-c.Ctx.Done()
			s.ended <- c.Ctx.Err()
			return c.Ctx.Err()
		case (c.Op == "Roster" || c.Op == "Read") && err != nil:
			return err
		}
		return c.Do()
	})
	return s
}

// note counts a call, and returns whom looks tell that they hang, and how calls fail now.
func (s *store) note(op string) (begun chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[op]++
	return s.begun, s.err
}

// calls returns how often a method was called.
func (s *store) calls(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[op]
}

// fail makes all later calls return err.
func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// hang makes later looks tell begun that they have begun, and hang. If it is nil, looks are quick.
func (s *store) hang(begun chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = begun
}

func (s *store) Ping(context.Context, azblob.PingOptions) (azblob.PingReport, error) {
	_, err := s.note("Ping")
	return azblob.PingReport{Container: "test-2026-11-22", Latency: 12 * time.Millisecond, Server: "Memory/1.0", Vault: true}, err
}

var errOutage = &storage.Error{Op: "Roster", Err: fmt.Errorf("%w: connection refused", storage.ErrUnavailable)}

// add stores a plan.
func (s *store) add(t *testing.T, name string, status workflow.Status) *workflow.Plan {
	t.Helper()
	p := &workflow.Plan{Name: name}
	must(t, s.Create(t.Context(), p))
	if status == workflow.NotStarted {
		return p
	}
	p.State.Status, p.State.Start = workflow.Running, time.Now()
	s.update(t, p)
	if status.Final() {
		s.end(t, p, status)
	}
	return p
}

// keyed stores a plan with a key. One that runs has the turn.
func (s *store) keyed(t *testing.T, name, key string, status workflow.Status) *workflow.Plan {
	t.Helper()
	p := &workflow.Plan{Name: name, Keys: []workflow.Key{{Name: key}}}
	must(t, s.Create(t.Context(), p))
	if status == workflow.Running {
		p.State.Status, p.State.Start = status, time.Now()
		s.update(t, p)
		must(t, fleet.TakeTurns(t.Context(), s, p))
	}
	return p
}

// end ends a running plan.
func (s *store) end(t *testing.T, p *workflow.Plan, status workflow.Status) {
	t.Helper()
	p.State.Status, p.State.End = status, time.Now().Add(time.Minute)
	s.update(t, p)
}

func (s *store) update(t *testing.T, p *workflow.Plan) {
	t.Helper()
	must(t, s.UpdatePlan(t.Context(), p))
}

// join adds a member.
func (s *store) join(t *testing.T, name string) storage.Member {
	t.Helper()
	m := storage.Member{ID: workflow.NewV7(), Name: name, Started: time.Now(), TTL: 30 * time.Second}
	var err error
	if m.Version, err = s.AddMember(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return m
}

// get asks for a page.
func get(t *testing.T, h http.Handler, url string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))
	return w
}

// must fails the test if err is not nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
