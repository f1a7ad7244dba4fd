package azblob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/driver"
)

// WithSecondary names the read-only secondary of the account, which accounts with read-access geo-redundant
// storage have. While the primary is unavailable, it answers Exists, Read, List, Search and Count of callers
// that [AcceptStale]. All other calls use the primary alone. With an empty endpoint, the secondary is the one that
// the connection string names, or that of the account's name with "-secondary". Default: none.
func WithSecondary(endpoint string) Option {
	return func(o *options) { o.secondary = &endpoint }
}

// Staleness tells whether reads were answered by the account's secondary. It is safe for concurrent use.
type Staleness struct {
	mu     sync.Mutex
	stale  bool
	synced time.Time
}

// AcceptStale returns a context whose Exists, Read, List, Search and Count may be answered by the vault's
// secondary (see [WithSecondary]), and a Staleness that tells whether one of them was. Use one for each call.
//
// The primary has 10 seconds for each request, or half of the time that ctx leaves if that is less. If it is
// unavailable, the secondary is read. For the next 30 seconds such calls go to the secondary at once; then
// one of them tries the primary again, and its outcome decides for the others. The secondary may lack the
// newest plans and states. What it lacks or contradicts is therefore [storage.ErrUnavailable], and never
// [storage.ErrNotFound] or [storage.ErrCorrupt]; Exists never returns false because of it. A listing that
// fails over continues after the last plan that it has yielded.
//
// Don't act on stale plans: show them. An update with a version that is no longer the stored one is
// [storage.ErrConflict], whoever read it.
func AcceptStale(ctx context.Context) (context.Context, *Staleness) {
	s := &Staleness{}
	return context.WithValue(ctx, staleKey{}, s), s
}

// staleKey is the context key of a *Staleness.
type staleKey struct{}

// Stale reports whether the secondary was read.
func (s *Staleness) Stale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stale
}

// Synced is a time, by the service's clock, up to which the secondary has all writes: its Last-Sync-Time. It
// is zero if the secondary has not answered, or the login may not ask for the time: that takes the account's
// key or a signature with the resource type s and the permission r.
func (s *Staleness) Synced() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synced
}

// note records that the secondary answers. Of several times, the earliest counts.
func (s *Staleness) note(synced time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stale || synced.Before(s.synced) {
		s.synced = synced
	}
	s.stale = true
}

const (
	// patience is the time that the primary has for a request before the secondary is read.
	patience = 10 * time.Second
	// syncPatience is the time that the secondary has to say how far it is behind.
	syncPatience = 2 * time.Second
	// primaryRest is the time in which a primary that was unavailable is not tried again.
	primaryRest = 30 * time.Second
)

// secondary reads from the account's secondary while the primary is unavailable.
type secondary struct {
	store *store // its methods that write are never called

	mu     sync.Mutex
	until  time.Time // the primary rests until then; zero if it is available
	why    error     // why it rests, or last rested
	asked  time.Time // when synced was asked for
	synced time.Time
}

// newSecondary returns the account's secondary.
func newSecondary(name string, account blob.Account, o options) (*secondary, error) {
	account, err := account.Secondary(*o.secondary)
	if err != nil {
		return nil, driver.Invalid("WithSecondary", "%v", err)
	}
	s, err := newStore(name, account, o)
	if err != nil {
		return nil, err
	}
	s.lagging = true
	return &secondary{store: s}, nil
}

// anywhere calls read with the primary. If the caller accepts stale answers and the primary is unavailable, it
// calls read with the secondary.
func (s *secondary) anywhere(ctx context.Context, primary *store, read func(ctx context.Context, from *store) error) error {
	if !s.mayAnswer(ctx) {
		return read(ctx, primary)
	}
	if s.primary(time.Now()) {
		err := read(blob.WithPatience(ctx, patienceOf(ctx)), primary)
		if ctx.Err() != nil {
			return err // it says nothing about the primary
		}
		s.judge(time.Now(), err)
		if !unavailable(err) {
			return err
		}
	}
	return s.read(ctx, read)
}

// mayAnswer reports whether there is a secondary and the caller accepts its answers.
func (s *secondary) mayAnswer(ctx context.Context) bool {
	return s != nil && ctx.Value(staleKey{}) != nil
}

// unavailable reports whether err is a reason to read the secondary.
func unavailable(err error) bool {
	return errors.Is(err, storage.ErrUnavailable) || errors.Is(err, blob.ErrPatience)
}

// patienceOf returns how long the primary has for a request.
func patienceOf(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return min(patience, time.Until(deadline)/2)
	}
	return patience
}

// primary reports whether a call is to try the primary. When the primary has rested, one call tries it.
func (s *secondary) primary(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Before(s.until) {
		return false
	}
	if !s.until.IsZero() {
		s.until = now.Add(primaryRest)
	}
	return true
}

// judge learns from a call that has tried the primary.
func (s *secondary) judge(now time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.until = (time.Time{}); unavailable(err) {
		s.until, s.why = now.Add(primaryRest), err
	}
}

// read calls read with the secondary.
func (s *secondary) read(ctx context.Context, read func(ctx context.Context, from *store) error) error {
	ctx.Value(staleKey{}).(*Staleness).note(s.lastSync(ctx))
	err := read(blob.WithPatience(ctx, patienceOf(ctx)), s.store)
	switch ended := ctx.Err(); {
	case err == nil, ended != nil && errors.Is(err, ended):
		return err
	case ended != nil:
		return fmt.Errorf("%w: %w", ended, s.excuse(err))
	}
	return s.excuse(err)
}

// excuse returns the error of a read that has failed at the secondary, too. What the secondary lacks or
// contradicts says nothing about the primary.
func (s *secondary) excuse(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Errorf("%w: the primary: %v; the secondary, which may lag behind: %v", storage.ErrUnavailable, s.why, err)
}

// lastSync returns the Last-Sync-Time of the secondary, which it asks for at most once in primaryRest.
func (s *secondary) lastSync(ctx context.Context) time.Time {
	s.mu.Lock()
	now := time.Now()
	synced, fresh := s.synced, now.Sub(s.asked) < primaryRest && !s.asked.IsZero()
	s.mu.Unlock()
	if fresh {
		return synced
	}
	r, err := s.replication(ctx)
	if err != nil {
		r.Synced = time.Time{} // the login may not ask; the reads are no worse for that
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked, s.synced = now, r.Synced
	return r.Synced
}

// replication asks the secondary how far it is behind. It does not wait long for a secondary that is away.
func (s *secondary) replication(ctx context.Context) (blob.Replication, error) {
	return s.store.client.Replication(blob.WithPatience(blob.Once(ctx), syncPatience))
}
