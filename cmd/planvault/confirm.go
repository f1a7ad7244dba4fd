package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/planvault/azblob/internal/price"
)

// change is a bulk change that a command is about to make.
type change struct {
	doing    string // such as "purge"
	what     string // such as "5,000 plans"
	requests price.Tally
	warning  string // of what nothing undoes; may be empty
}

// String returns "purge: 5,000 plans, about 35,000 requests, $0.14".
func (c change) String() string {
	return fmt.Sprintf("%s: %s, about %s, %s", c.doing, c.what, plural(c.requests.Total(), "request"), dollars(c.requests.Dollars()))
}

// confirm says what a bulk change is about to do, and in which vault, and returns nil if it may: with --yes, or when
// somebody at the terminal agrees.
func (a *app) confirm(ctx context.Context, c change) error {
	fmt.Fprintf(a.stderr, "%s%s, in %s\n", c.warning, c, strings.Join(a.places, " and "))
	if a.yes {
		return nil
	}
	if !a.interactive {
		return usageError("%s: nothing was changed; give --yes to make the change", c.doing)
	}
	fmt.Fprint(a.stderr, "Go on? [y/N] ")
	answer := make(chan string, 1)
	go func() { // a read of a terminal can't be interrupted: it ends with the process
		line, _ := bufio.NewReader(a.stdin).ReadString('\n')
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(a.stderr) // the terminal echoes ^C behind the question
		return fmt.Errorf("%s: nothing was changed: %w", c.doing, ctx.Err())
	case text := <-answer:
		if text == "y" || text == "yes" {
			return nil
		}
		return &exitError{exitFailed, fmt.Errorf("%s: not confirmed; nothing was changed", c.doing)}
	}
}
