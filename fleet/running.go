package fleet

import (
	"context"
	"sync"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// runningPlans finds the Running plans of a vault that have keys. Those who ask at the same time share a search: the next one
// that begins after each has asked, so that it shows what was stored before.
type runningPlans struct {
	searching chan struct{} // has an element while a search is in progress

	mu   sync.Mutex
	next *runningSearch // has not begun
}

type runningSearch struct {
	over  chan struct{}
	plans []storage.ListResult
	err   error
}

func newRunningPlans() *runningPlans { return &runningPlans{searching: make(chan struct{}, 1)} }

// find returns the Running plans that have keys. Plans that can't be read are left out.
func (r *runningPlans) find(ctx context.Context, s store) ([]storage.ListResult, error) {
	for {
		r.mu.Lock()
		f, begins := r.next, r.next == nil
		if begins {
			f = &runningSearch{over: make(chan struct{})}
			r.next = f
		}
		r.mu.Unlock()
		if begins {
			r.search(ctx, s, f)
			return f.plans, f.err
		}
		select {
		case <-f.over:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if f.err == nil || !transient(f.err) {
			return f.plans, f.err
		} // else the one who searched may have given up
	}
}

func (r *runningPlans) search(ctx context.Context, s store, f *runningSearch) {
	r.searching <- struct{}{}
	defer func() { <-r.searching }()
	defer close(f.over)
	r.mu.Lock()
	r.next = nil // whoever asks from now on needs another one
	r.mu.Unlock()
	f.err = s.eachPlan(ctx, storage.Filters{ByStatus: []workflow.Status{workflow.Running}}, func(p storage.ListResult) {
		if len(p.Keys) > 0 {
			f.plans = append(f.plans, p)
		}
	})
}
