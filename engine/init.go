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
	ctx, cancel := context.WithTimeoutCause(ctx, e.opts.Timeout, fmt.Errorf("did not return within %v", e.opts.Timeout))
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
				err = initPlugin(ctx, plugin)
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

// initPlugin calls Init of a plugin. It returns soon after ctx has ended, whatever the plugin does.
func initPlugin(ctx context.Context, p plugins.Initer) error {
	done := make(chan error, 1)
	go func() {
		var err error = &plugins.Panic{Value: "runtime.Goexit", Stack: debug.Stack()}
		defer func() { done <- err }()
		err = plugins.Guard(func() error { return p.Init(ctx) })
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
		return context.Cause(ctx)
	}
}
