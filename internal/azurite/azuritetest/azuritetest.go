// Package azuritetest provides tests with an Azurite. It is separate from package azurite so that only tests
// link package testing.
//
// With -short, a test that needs Azurite is skipped. If Azurite is not installed, the test is skipped, too,
// or fails if the environment variable CI is true.
package azuritetest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/planvault/azblob/internal/azurite"
)

// Start starts an Azurite for the test t and closes it when t ends. If Azurite is not installed, the test is
// skipped, or fails if CI is true.
//
// Starting takes about half a second. With a [Holder] the tests of a package share one Azurite.
func Start(t testing.TB, opts ...azurite.Option) *azurite.Server {
	t.Helper()
	h := &Holder{Options: opts}
	server := h.Get(t)
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// Holder holds an Azurite that the tests of a package share. It starts when a test first asks for it. Declare
// one in the test package, and close it there:
//
//	var emulator azuritetest.Holder
//
//	func TestMain(m *testing.M) { os.Exit(emulator.Run(m)) }
//
//	func TestPut(t *testing.T) {
//		client := newClient(emulator.Get(t).ConnectionString())
//		...
//
// Tests that share a server should use containers with names of their own. The zero value is ready to use, by
// concurrent tests too.
type Holder struct {
	// Options are used when the server is started.
	Options []azurite.Option

	mu     sync.Mutex
	server *azurite.Server
	err    error
}

// Get returns the shared server and starts it if needed. If Azurite is not installed, the test is skipped, or
// fails if CI is true. Get does not retry a failed start.
func (h *Holder) Get(t testing.TB) *azurite.Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Azurite, which -short leaves out")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.server == nil && h.err == nil {
		h.server, h.err = azurite.Start(t.Context(), h.Options...)
	}
	ci, _ := strconv.ParseBool(os.Getenv("CI"))
	switch {
	case errors.Is(h.err, azurite.ErrNotInstalled) && !ci:
		t.Skip(h.err)
	case h.err != nil:
		t.Fatal(h.err)
	}
	return h.server
}

// Close closes the server if it was started. A later Get starts another one.
func (h *Holder) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	server := h.server
	h.server, h.err = nil, nil
	if server == nil {
		return nil
	}
	return server.Close()
}

// Run runs the tests and then closes the server. It returns the exit code, which is not 0 if a test failed or
// the server did not close well.
func (h *Holder) Run(m *testing.M) int {
	code := m.Run()
	if err := h.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	return code
}
