package verbs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow/plantest"

	"github.com/planvault/azblob/tests/vaulttest"
)

// TestFailuresEndWhatIsParallel counts the requests that a call still sends after one of its requests has
// failed.
func TestFailuresEndWhatIsParallel(t *testing.T) {
	const atOnce = 4
	count := func(server *emulator.Server, op emulator.Op) (n int) {
		for _, r := range server.Requests() {
			if r.Op == op && strings.HasPrefix(r.Blob, "actions/") {
				n++
			}
		}
		return n
	}
	vaulttest.InBubble(t, "a Create that is refused sends no more sub-objects", func(t *testing.T, server *emulator.Server) {
		transport := server.Transport()
		transport.Inject(emulator.On(emulator.PutBlob).Path("actions/").Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
		v := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport), azblob.WithConcurrency(atOnce))
		server.ResetRequests()
		if err := v.Create(t.Context(), plantest.Sized(1, 1, 200)); !errors.Is(err, storage.ErrDenied) {
			t.Errorf("got %v", err)
		}
		if n := count(server, emulator.PutBlob); n == 0 || n > atOnce {
			t.Errorf("%d actions were sent, want at most %d", n, atOnce)
		}
	})
	vaulttest.InBubble(t, "a Read in an outage ends when the first of its requests gives up", func(t *testing.T, server *emulator.Server) {
		_, plan := vaulttest.Running(t, vaulttest.OnEmulator(t, server), plantest.Sized(1, 1, 20))
		transport := server.Transport()
		transport.Inject(emulator.On(emulator.GetBlob).Path("actions/").Do(emulator.Answer(503, "ServerBusy")))
		const elapsed = time.Minute
		v := vaulttest.OnEmulator(t, server, azblob.WithTransport(transport), azblob.WithConcurrency(atOnce), azblob.WithRetry(azblob.Retry{MaxElapsed: elapsed}))
		started := time.Now()
		_, err := v.Read(t.Context(), plan.ID)
		if took := time.Since(started); !errors.Is(err, storage.ErrUnavailable) || took > 2*elapsed {
			t.Errorf("after %v: %v", took, err)
		}
	})
}
