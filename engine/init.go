package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/planvault/azblob/plugins"
)

// mostInits is how many plugins are initialized at a time.
const mostInits = 16

// initPlugins calls Init of each plugin that has it. The error joins those of all plugins, in the order of their names.
func (e *Engine) initPlugins(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, e.opts.Timeout, fmt.Errorf("timed out after %v", e.opts.Timeout))
	defer cancel()
	var (
		work   sync.WaitGroup
		places = semaphore.NewWeighted(mostInits)
		errs   []*error
	)
	for name, p := range e.reg.All() {
		plugin, ok := p.(plugins.Initer)
		if !ok {
			continue
		}
		failed := new(error)
		errs = append(errs, failed)
		work.Go(func() {
			err := places.Acquire(ctx, 1)
			if err == nil {
				defer places.Release(1)
				err = callWithin(ctx, plugin.Init)
			} else {
				err = context.Cause(ctx)
			}
			if err != nil {
				*failed = fmt.Errorf("init plugin %q: %w", name, err)
			}
		})
	}
	work.Wait()
	var all []error
	for _, err := range errs {
		all = append(all, *err)
	}
	return errors.Join(all...)
}

// initOnce calls Init of the plugins, unless it has done so already.
func (e *Engine) initOnce(ctx context.Context) error {
	if e.inits.Acquire(ctx, 1) != nil {
		return context.Cause(ctx)
	}
	defer e.inits.Release(1)
	if e.initialized {
		return nil
	}
	err := e.initPlugins(ctx)
	e.initialized = err == nil
	return err
}

// callWithin calls what users have given to the engine. It returns soon after ctx has ended, with its cause, whatever do
// does: it panics, ends its goroutine, or hangs.
func callWithin(ctx context.Context, do func(context.Context) error) error {
	done := make(chan error, 1)
	go func() {
		var err error = &plugins.Panic{Value: "runtime.Goexit", Stack: debug.Stack()}
		defer func() { done <- err }()
		err = plugins.Guard(func() error { return do(ctx) })
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	words := time.NewTimer(lastWords)
	defer words.Stop()
	select {
	case err := <-done:
		return err
	case <-words.C:
		return fmt.Errorf("it did not return: %w", context.Cause(ctx))
	}
}
