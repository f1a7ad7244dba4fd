package storage_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/workflow"
)

// logged is a vault whose audit log is a list of what was recorded.
type logged struct {
	storage.Vault
	storage.Control
	entries []storage.AuditEntry
	record  func(ctx context.Context, d storage.AuditEntry) error // may be nil
}

func newLogged() *logged {
	v := memvault.New(nil, memvault.Options{})
	control, _ := storage.As[storage.Control](v)
	return &logged{Vault: v, Control: control}
}

func (l *logged) Record(ctx context.Context, d storage.AuditEntry) error {
	if l.record != nil {
		if err := l.record(ctx, d); err != nil {
			return err
		}
	}
	l.entries = append(l.entries, d)
	return nil
}

func (l *logged) results() (all []string) {
	for _, d := range l.entries {
		all = append(all, d.What+": "+d.Result)
	}
	return all
}

func TestAudit(t *testing.T) {
	errLost := errors.New("lost\nat sea")
	entry := storage.AuditEntry{What: "expire", By: operator, Detail: strings.Repeat("x", storage.MaxDetail+1)}
	plain := func(context.Context) error { return nil }
	for name, test := range map[string]struct {
		do   func(l *logged) func(context.Context) error
		want []string
		err  error
	}{
		"a change":            {func(*logged) func(context.Context) error { return plain }, []string{"expire: ", "expire: done"}, nil},
		"a change that fails": {func(*logged) func(context.Context) error { return func(context.Context) error { return errLost } }, []string{"expire: ", "expire: failed: lost at sea"}, errLost},
		"a change of parts": {func(l *logged) func(context.Context) error {
			return func(ctx context.Context) error {
				return storage.Audit(ctx, l, storage.AuditEntry{What: "purge"}, plain)
			}
		}, []string{"expire: ", "expire: done"}, nil},
	} {
		l := newLogged()
		err := storage.Audit(t.Context(), l, entry, test.do(l))
		if got := l.results(); !slices.Equal(got, test.want) || !errors.Is(err, test.err) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if first, last := l.entries[0], l.entries[1]; first.ID == uuid.Nil || first.ID != last.ID || len(first.Detail) > storage.MaxDetail {
			t.Errorf("%s: recorded %+v and %+v", name, first, last)
		}
	}
	l := newLogged()
	never := func(context.Context) error {
		t.Error("a wrong entry did not keep the change from being made")
		return nil
	}
	for _, d := range []storage.AuditEntry{
		{What: "purge"},
		{What: "purge", By: workflow.Attribution{Why: "because"}},
		{What: "purge", By: workflow.Attribution{By: "eve\x00"}},
		{What: "purge", By: workflow.Attribution{By: "  "}},
		{By: operator},
		{What: "Bad What", By: operator},
	} {
		if err := storage.Audit(t.Context(), l, d, never); !errors.Is(err, storage.ErrInvalid) || len(l.entries) > 0 {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

// TestAuditOfSilentLog checks that a log which does not answer neither delays a change for long nor makes it fail.
func TestAuditOfSilentLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silent := 1
		l := newLogged()
		l.record = func(ctx context.Context, _ storage.AuditEntry) error {
			if silent--; silent >= 0 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		began, done := time.Now(), 0
		change := func(context.Context) error { done++; return nil }
		entry := storage.AuditEntry{What: "purge", By: operator}
		if err := storage.Audit(t.Context(), l, entry, change); err != nil || done != 1 || len(l.entries) != 0 || time.Since(began) != 10*time.Second {
			t.Errorf("%v, %d changes, %q after %v", err, done, l.results(), time.Since(began))
		}
		ctx, cancel := context.WithCancel(t.Context())
		silent, began = 0, time.Now()
		interrupted := func(context.Context) error { cancel(); silent = 1; return ctx.Err() }
		if err := storage.Audit(ctx, l, entry, interrupted); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}
