package engine

import (
	"errors"
	"slices"
	"sync"
)

// beginnings are writes that are made while the work goes on.
type beginnings struct {
	mu   sync.Mutex
	open []*beginning
}

type beginning struct {
	done chan struct{}
	err  error // set before done is closed
}

// add begins a write.
func (b *beginnings) add(write func() error) {
	w := &beginning{done: make(chan struct{})}
	b.mu.Lock()
	b.open = append(b.open, w)
	b.mu.Unlock()
	go func() {
		defer close(w.done)
		w.err = write()
	}()
}

// wait waits for the writes that have begun, and joins their errors.
func (b *beginnings) wait() error {
	b.mu.Lock()
	open := b.open
	b.mu.Unlock()
	var errs []error
	for _, w := range open {
		<-w.done
		errs = append(errs, w.err)
	}
	err := errors.Join(errs...)
	if err == nil && open != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.open = slices.DeleteFunc(slices.Clone(b.open), func(w *beginning) bool { return slices.Contains(open, w) })
	}
	return err
}
