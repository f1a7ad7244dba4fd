package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/planvault/azblob/cmd/planvault/internal/human"
	"github.com/planvault/azblob/internal/sleep"
	"github.com/planvault/azblob/storage"
)

// repeat is the flags of a command that can look again and again.
type repeat struct {
	on    bool
	every age
}

func (r *repeat) addFlags(flags *pflag.FlagSet) {
	r.every = age(defaultInterval)
	flags.BoolVar(&r.on, "watch", false, "look again and again, until an interrupt ends it")
	flags.Var(&r.every, "interval", "with --watch, the `TIME` between two looks, such as 15s or 1m")
}

// repeat looks once, or with --watch until an interrupt ends it, which is no failure. A terminal shows the last look
// alone. In a pipe each look follows the one before, with a blank line between tables. After an outage, which it reports,
// the next look tries again. A bad answer, such as a stuck plan, does not end it.
func (a *app) repeat(ctx context.Context, r repeat, look func(ctx context.Context) error) error {
	if !r.on {
		return look(ctx)
	}
	if time.Duration(r.every) < shortestInterval {
		return usageError("--interval must be %v or more", shortestInterval)
	}
	once := look
	look = func(ctx context.Context) error { return a.expectVaults(ctx, once(ctx)) }
	if a.drawsOn(a.stdoutIsTerm) && a.output == outputTable {
		return a.redraw(ctx, r, look)
	}
	for first := true; ; first = false {
		if a.printed && a.output == outputTable {
			if err := a.write([]byte("\n")); err != nil {
				return unlessEnough(err)
			}
		}
		a.printed = false
		err := look(ctx)
		switch {
		case a.enough:
			return unlessFound(err)
		case ends(ctx, err, first):
			return unlessInterrupted(ctx, err)
		}
		if err = unlessFound(err); err != nil {
			a.complain(err)
		}
		if !sleep.For(ctx, time.Duration(r.every)) {
			return unlessInterrupted(ctx, ctx.Err())
		}
	}
}

// ends reports whether the error of a look ends a watch: another look would fail as well.
func ends(ctx context.Context, err error, first bool) bool {
	err = unlessFound(err)
	_, said := errors.AsType[*exitError](err)
	lasting := errors.Is(err, storage.ErrInvalid) || errors.Is(err, storage.ErrDenied) || errors.Is(err, storage.ErrClosed)
	return ctx.Err() != nil || said || lasting || first && errors.Is(err, storage.ErrUnavailable)
}

// unlessFound returns an error unless it says nothing but that the answer is bad.
func unlessFound(err error) error {
	if exit, ok := errors.AsType[*exitError](err); ok && exit.err == nil {
		return nil
	}
	return err
}

// unlessInterrupted returns an error unless the interrupt has come, by which a watch ends.
func unlessInterrupted(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

// redraw draws each look on the second screen of a terminal, and leaves the last one on the first.
func (a *app) redraw(ctx context.Context, r repeat, look func(ctx context.Context) error) error {
	c := &canvas{}
	terminal := a.stdout
	a.stdout, a.stderr, a.screen.w = c.over(a.stdout), c.over(a.stderr), nil // the progress would cover what is drawn
	fmt.Fprint(terminal, secondScreen, topLeft, restOfScreen, "Looking…")
	var good, last []string // what the last look that worked has shown, and what was drawn
	defer func() {
		fmt.Fprint(terminal, firstScreen)
		for _, line := range last {
			fmt.Fprintln(terminal, line)
		}
		c.end()
	}()
	for first := true; ; first = false {
		err := look(ctx)
		if ends(ctx, err, first) {
			return unlessInterrupted(ctx, err)
		}
		if err = unlessFound(err); err != nil {
			a.complain(err)
		}
		if last = c.take(); err == nil {
			good = last
		} else {
			last = slices.Concat(good, []string{""}, last)
		}
		width, height := a.terminalSize()
		lines := fitLines(last, fmt.Sprintf("Every %s. Ctrl-C ends.", span(time.Duration(r.every))), width, height-1)
		fmt.Fprint(terminal, screenOf(lines))
		if !sleep.For(ctx, time.Duration(r.every)) {
			return unlessInterrupted(ctx, ctx.Err())
		}
	}
}

// fitLines returns the lines that fit a screen above its last one, cut to its width.
func fitLines(lines []string, last string, width, height int) (fit []string) {
	if more := len(lines) - (height - 1); more > 0 {
		lines, last = lines[:max(0, height-1)], plural(more, "more line")+". "+last
	}
	for _, line := range slices.Concat(lines, []string{last}) {
		fit = append(fit, human.Cut(line, width))
	}
	return fit
}

// canvas keeps what a command writes until it is drawn.
type canvas struct {
	mu    sync.Mutex
	text  bytes.Buffer
	ended bool
}

// over returns a writer to the canvas, and to another one when the canvas has ended.
func (c *canvas) over(w io.Writer) io.Writer { return &overCanvas{c, w} }

type overCanvas struct {
	canvas *canvas
	below  io.Writer
}

func (o *overCanvas) Write(b []byte) (int, error) {
	o.canvas.mu.Lock()
	defer o.canvas.mu.Unlock()
	if o.canvas.ended {
		return o.below.Write(b)
	}
	return o.canvas.text.Write(b)
}

// take returns the lines that were written, and forgets them.
func (c *canvas) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.text.Reset()
	return strings.Split(strings.TrimRight(c.text.String(), "\n"), "\n")
}

// end lets through what is written from now on.
func (c *canvas) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
}
