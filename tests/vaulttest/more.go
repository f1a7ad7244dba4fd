package vaulttest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// Denied is the answer to an identity without the right to send a request.
var Denied = emulator.Answer(403, "AuthorizationPermissionMismatch")

// Thorough are the options of a Recovery that restores what was lost from outside.
var Thorough = azblob.RepairOptions{Thorough: true}

// Should reports an error. Unlike [Must], it may be called by any goroutine.
func Should(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Fails checks that an error is all of these, and that it is ErrUnknown only if that is one of them.
func Fails(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("got %v, want %v", err, w)
		}
	}
	if errors.Is(err, storage.ErrUnknown) && !slices.Contains(want, storage.ErrUnknown) {
		t.Errorf("got %v, want a known outcome", err)
	}
}

// Empty checks that no blob is stored.
func Empty(t *testing.T, server *emulator.Server) {
	t.Helper()
	if n := Stored(server); n != 0 {
		t.Errorf("%d blobs are left", n)
	}
}

// Untouched returns a check that no blob has changed since.
func Untouched(t *testing.T, server *emulator.Server) (check func()) {
	t.Helper()
	before := Contents(server)
	return func() {
		t.Helper()
		if !maps.Equal(before, Contents(server)) {
			t.Error("something has changed in the store")
		}
	}
}

// Sent counts the requests of an operation for blobs with this in their names.
func Sent(server *emulator.Server, op emulator.Op, part string) (n int) {
	for _, r := range server.Requests() {
		if r.Op == op && strings.Contains(r.Blob, part) {
			n++
		}
	}
	return n
}

// Meanwhile opens a vault of a process that does something before its first request of one kind for certain blobs, as
// [Before] says.
func Meanwhile(t *testing.T, server *emulator.Server, op emulator.Op, part string, do func(), rules ...*emulator.Rule) *azblob.Vault {
	t.Helper()
	return Faulty(t, server, append(rules, Before(op, part, do))...)
}

// DamagedOf returns a store that has one day, to damage one of its plans.
func DamagedOf(server *emulator.Server, plan *workflow.Plan) Damaged {
	d := Damaged{Server: server, Plan: plan}
	for d.Container = range server.Containers() {
	}
	return d
}
