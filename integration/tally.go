package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
)

// finding is a contradiction between what is stored and what processes reported.
type finding struct {
	What   string
	Plan   uuid.UUID
	Detail string
}

func (f finding) String() string {
	if f.Plan == uuid.Nil {
		return f.What + ": " + f.Detail
	}
	return fmt.Sprintf("%s: plan %s: %s", f.What, f.Plan, f.Detail)
}

// The kinds of findings, beside "error".
const (
	lost     = "lost"
	half     = "half"
	leftOver = "left over"

	// In a fleet.
	orphan  = "orphan"  // a plan that nobody ended
	rerun   = "rerun"   // an action that ran after its outcome was stored
	crowded = "crowded" // more plans work with a key than may
)

// tally counts what happens in a soak or a chaos, and what is found.
type tally struct {
	mu     sync.Mutex
	began  time.Time
	counts map[string]int
	kinds  map[string]int // of findings
	found  []finding      // the first ones
}

func newTally() tally {
	return tally{began: time.Now(), counts: map[string]int{}, kinds: map[string]int{}}
}

func (t *tally) add(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what] += n
}

func (t *tally) set(what string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts[what] = n
}

func (t *tally) find(found ...finding) {
	const most = 50 // that are printed
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range found {
		t.kinds[f.What]++
		if len(t.found) < most {
			t.found = append(t.found, f)
		}
	}
}

// violations returns an error if anything was found.
func (t *tally) violations() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.found) == 0 {
		return nil
	}
	return fmt.Errorf("%s, such as %s", listed(t.kinds), t.found[0])
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%s: %s; violations: %s", time.Since(t.began).Round(time.Second), listed(t.counts), listed(t.kinds))
}

// listed describes numbers by kind.
func listed(of map[string]int) string {
	var text []string
	for _, what := range slices.Sorted(maps.Keys(of)) {
		if of[what] != 0 {
			text = append(text, fmt.Sprintf("%d %s", of[what], what))
		}
	}
	return cmp.Or(strings.Join(text, ", "), "none")
}
