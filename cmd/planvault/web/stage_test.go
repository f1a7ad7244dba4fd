package web_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// store is a vault in memory that counts what a server asks for, and fails when a test says so.
type store struct {
	*memvault.Vault
	rosters, reads, pings atomic.Int64

	mu  sync.Mutex
	err error
}

func newStore() *store { return &store{Vault: memvault.New(plantest.Register())} }

// fail makes all later calls return err.
func (s *store) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *store) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *store) Roster(ctx context.Context) (storage.Roster, error) {
	s.rosters.Add(1)
	if err := s.failure(); err != nil {
		return storage.Roster{}, err
	}
	return s.Vault.Roster(ctx)
}

func (s *store) Read(ctx context.Context, id uuid.UUID) (*workflow.Plan, error) {
	s.reads.Add(1)
	if err := s.failure(); err != nil {
		return nil, err
	}
	return s.Vault.Read(ctx, id)
}

func (s *store) Ping(context.Context, ...azblob.PingOption) (azblob.PingReport, error) {
	s.pings.Add(1)
	return azblob.PingReport{Container: "test-2026-11-22", Latency: 12 * time.Millisecond, Server: "Memory/1.0"}, s.failure()
}

var errOutage = &storage.Error{Op: "Roster", Err: fmt.Errorf("%w: connection refused", storage.ErrUnavailable)}

// add stores a plan.
func (s *store) add(t *testing.T, name string, status workflow.Status) *workflow.Plan {
	t.Helper()
	p := &workflow.Plan{Name: name}
	if err := s.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
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

// end ends a running plan.
func (s *store) end(t *testing.T, p *workflow.Plan, status workflow.Status) {
	t.Helper()
	p.State.Status, p.State.End = status, time.Now().Add(time.Minute)
	s.update(t, p)
}

func (s *store) update(t *testing.T, p *workflow.Plan) {
	t.Helper()
	if err := s.UpdatePlan(t.Context(), p); err != nil {
		t.Fatal(err)
	}
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

// slowStore answers no look until it is quick.
type slowStore struct {
	*store
	quick atomic.Bool
	begun chan struct{} // nil if nobody wants to know
	ended chan error
}

func (s *slowStore) Roster(ctx context.Context) (storage.Roster, error) {
	if s.quick.Load() {
		return s.store.Roster(ctx)
	}
	if s.begun != nil {
		s.begun <- struct{}{}
	}
	<-ctx.Done()
	s.ended <- ctx.Err()
	return storage.Roster{}, ctx.Err()
}
