package bundle

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Keeper writes plans to a bundle before they are removed. If its process dies, the bundle has no end, and [Import] restores
// what is in it. It is safe for concurrent use.
type Keeper struct {
	limits  limits
	encoder *zstd.Encoder
	sync    func() error

	mu    sync.Mutex // guards what follows
	out   *writer
	plans int
	ended bool
}

// errEnded is why nothing more is written to a bundle.
var errEnded = fmt.Errorf("%w: the bundle has its end", storage.ErrClosed)

// NewKeeper begins a bundle. Source says where the plans come from, for people. If w has a method Sync, as an [os.File]
// does, it is called before a plan counts as kept. A file that is not empty is [storage.ErrInvalid]: a bundle has one to itself.
func NewKeeper(w io.Writer, source string) (*Keeper, error) {
	l, err := limitsOf(0)
	if err != nil {
		return nil, err
	}
	if file, ok := w.(io.Seeker); ok {
		if size, err := file.Seek(0, io.SeekEnd); err == nil && size > 0 {
			return nil, failed("NewKeeper", fmt.Errorf("%w: the file has %d bytes already, and a bundle needs an empty one", storage.ErrInvalid, size))
		}
	}
	encoder, err := newEncoder(l.concurrency)
	if err != nil {
		return nil, failed("NewKeeper", err)
	}
	k := &Keeper{limits: l, encoder: encoder, sync: func() error { return nil }, out: &writer{w: w, chain: sha256.New(), encoder: encoder}}
	if file, ok := w.(interface{ Sync() error }); ok {
		k.sync = file.Sync
	}
	k.out.begin(Manifest{Format: format, Schema: schema, Created: time.Now().UTC(), Source: source, Growing: true})
	return k, k.settle()
}

// settle returns the first error of writing, after what was written is synced.
func (k *Keeper) settle() error {
	if k.out.err == nil {
		k.out.err = k.sync()
	}
	if k.out.err != nil {
		return fmt.Errorf("write to the bundle: %w", k.out.err)
	}
	return nil
}

// Keep writes a plan. When it returns nil, a crash does not lose the copy. After an error of writing, each call fails. It
// has the form of [storage.PurgeOptions].Keep. After Close it is [storage.ErrClosed].
func (k *Keeper) Keep(_ context.Context, plan *workflow.Plan) error {
	r, err := encode(k.encoder, workflow.Copy(plan))
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return errEnded
	}
	k.out.put(r)
	k.plans++
	return k.settle()
}

// KeepAll writes the plans of a vault that filters select, up to 16 at a time in memory. Plans that are deleted meanwhile
// are left out. The first plan that can't be read ends it with an error: not all was kept.
func (k *Keeper) KeepAll(ctx context.Context, from storage.Reader, f storage.Filters) error {
	err := ordered(k.limits, listed(ctx, from, f), func(found storage.Stream[storage.ListResult]) exported {
		if found.Err != nil {
			return exported{err: found.Err}
		}
		e := read(ctx, from, k.encoder, found.Result.ID)
		k.limits.held.Add(e.length())
		return e
	}, func(e exported) error {
		k.limits.held.Add(-e.length())
		if e.err != nil || e.record == nil {
			return e.err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.ended {
			return errEnded
		}
		k.out.put(e.record)
		k.plans++
		return k.out.err
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(err, k.settle())
}

// Plans returns how many plans were written.
func (k *Keeper) Plans() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.plans
}

// Close writes the end of the bundle, and does not close the writer. No other call may be under way. A second Close writes
// nothing.
func (k *Keeper) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return k.settle()
	}
	k.ended = true
	defer k.encoder.Close()
	k.out.finish(end{Plans: k.plans})
	return k.settle()
}
