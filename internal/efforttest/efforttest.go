// Package efforttest says how much of a space a test explores. There are three levels: `go test -short`, which the race pass uses;
// plain `go test`; and `PLANVAULT_LONG=1 go test`, which explores whole spaces and takes hours.
package efforttest

import (
	"os"
	"regexp"
	"testing"
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

var concurrent = regexp.MustCompile(`at once|nodes|while|during|in progress|Close|seed 0|context|a break|body of the loop|` +
	`no memory|^engine/|^model/`)

// Concurrent reports whether the race pass runs the case of the conformance suite with this name: one with several clients, or
// with calls that are cancelled, time out or overlap with Close. The other cases make one call at a time, through the same code.
func Concurrent(name string) bool { return concurrent.MatchString(name) }
