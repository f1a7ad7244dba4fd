package azblob

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/storage"
)

// store is what all verbs share: the vault's containers, how blobs are encoded, what is remembered
// between calls, and how many requests may be in flight.
type store struct {
	prefix      prefix
	client      *blob.Client
	format      format
	observer    *Observer // nil if nobody observes
	grace       time.Duration
	concurrency int
	probing     int  // days
	unversioned bool // updates need no versions

	unknown      unknownWrites
	containers   containers
	started      startedPlans
	absent       absences // days that don't exist
	uncatalogued absences // days without a catalogue
}

// newStore returns the store of a vault in an account.
func newStore(name string, account blob.Account, o Options) (*store, error) {
	client, err := account.New(o.client())
	if err != nil {
		return nil, err
	}
	s := &store{
		format: form, prefix: prefix(name), client: client, grace: o.GracePeriod, concurrency: o.Concurrency, probing: o.DayProbing, unversioned: o.UnversionedUpdates,
	}
	if !o.Observer.empty() {
		s.observer = &o.Observer
	}
	return s, nil
}

// parallel calls do for 0 to n-1, as many at a time as the vault may have requests in flight, and waits for
// all calls. After a failure it starts no more calls, but lets those under way finish, so that their outcomes
// are known.
func (s *store) parallel(n int, do func(i int) error) error {
	var (
		wg     sync.WaitGroup
		begun  atomic.Int64
		failed atomic.Bool
		errs   = make([]error, n)
	)
	for range min(n, s.concurrency) { // a goroutine for each item would grow a stack for each
		wg.Go(func() {
			for !failed.Load() {
				i := int(begun.Add(1)) - 1
				if i >= n {
					return
				}
				if errs[i] = do(i); errs[i] != nil {
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return preferUnknown(errs)
}

// preferUnknown returns the first error of unknown outcome, or else the first error.
func preferUnknown(errs []error) error {
	var first error
	for _, err := range errs {
		if errors.Is(err, storage.ErrUnknown) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// ensureContainer creates the container of a day unless this vault knows that it exists.
func (s *store) ensureContainer(ctx context.Context, name string) error {
	return s.containers.ensure(ctx, name, func() error {
		return s.client.CreateContainer(ctx, name, map[string]string{metaLayout: "1"})
	})
}

// planStore is a store narrowed to the blobs of one plan.
type planStore struct {
	*store
	keys keys
}

// plan narrows the store to one plan.
func (s *store) plan(k keys) planStore { return planStore{store: s, keys: k} }

// inContainer creates a container unless this vault knows that it exists, and calls put, which writes to it.
// An identity that may not create containers can write to those that were made beforehand.
func (s *store) inContainer(ctx context.Context, name string, put func() error) error {
	for again := false; ; again = true {
		denied := s.ensureContainer(ctx, name)
		if denied != nil && !blob.IsForbidden(denied) {
			return denied
		}
		err := put()
		switch {
		case !blob.Is(err, blob.AbsentContainer):
			if denied != nil && err == nil {
				s.containers.learn(name)
			}
			return err
		case denied != nil:
			return &blob.Error{Reason: blob.Refused, Err: fmt.Errorf("%w; or create the day's container beforehand", denied)}
		case again:
			return err
		}
		s.containers.forget(name) // the day was dropped
	}
}
