// Package efforttest says how much of a space a test explores. There are three levels: `go test -short`, which the race pass uses;
// plain `go test`; and `PLANVAULT_LONG=1 go test`, which explores whole spaces and takes hours. With a duration in place of 1, such
// as PLANVAULT_LONG=1m, each test stops to explore when it has taken that long, and logs how far it came.
package efforttest

import (
	"iter"
	"os"
	"regexp"
	"sync"
	"testing"
	"time"
)

// Long reports whether the tests explore whole spaces, which the environment variable PLANVAULT_LONG asks for.
func Long() bool { return os.Getenv("PLANVAULT_LONG") != "" }

// OneAtATime is the usual reason of NotShort.
const OneAtATime = "it makes one call at a time; the conformance suite runs the same requests under the race detector"

// NotShort skips the test with -short. The reason says why the race pass can do without it.
func NotShort(t testing.TB, reason string) {
	t.Helper()
	if testing.Short() && !Long() {
		t.Skip("left out by -short: " + reason)
	}
}

// Pick returns the value for the level at which the tests run. PLANVAULT_LONG takes precedence over -short.
func Pick[T any](short, normal, long T) T {
	switch {
	case Long():
		return long
	case testing.Short():
		return short
	default:
		return normal
	}
}

// More returns a function, safe for concurrent use, that reports whether the test has time left to explore; with PLANVAULT_LONG=1m it may not. Time in a
// bubble of testing/synctest does not count: call it outside.
func More(t testing.TB) func() bool {
	limit, err := time.ParseDuration(os.Getenv("PLANVAULT_LONG"))
	if err != nil {
		return func() bool { return true }
	}
	end := time.Now().Add(limit)
	say := sync.OnceFunc(func() { t.Logf("explored for %v: there is more", limit) })
	return func() bool {
		more := time.Now().Before(end)
		if !more {
			say()
		}
		return more
	}
}

// Seeds yields the seeds of the level at which the tests run, from 0, while the test has time left.
func Seeds(t testing.TB, short, normal, long int) iter.Seq[uint64] {
	more := More(t)
	return func(yield func(uint64) bool) {
		for seed := range uint64(Pick(short, normal, long)) {
			if !more() || !yield(seed) {
				return
			}
		}
	}
}

var concurrent = regexp.MustCompile(`at once|nodes|while|during|in progress|Close|seed 0|context|a break|body of the loop|` +
	`no memory|^engine/|^model/`)

// Concurrent reports whether the race pass runs the case of the conformance suite with this name: one with several clients, or
// with calls that are cancelled, time out or overlap with Close. The other cases make one call at a time, through the same code.
func Concurrent(name string) bool { return concurrent.MatchString(name) }
