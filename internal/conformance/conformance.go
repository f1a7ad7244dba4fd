// Package conformance opens this module's vault on any endpoint for the suite of storage/storagetest. It adds
// processes that die, temporary faults, and a clock that can be advanced. All of these work on the client's
// side of the connection, by an [emulator.Proxy], so the service needs no support for them.
package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/storagetest"
)

// Endpoint is a prefix on a service.
type Endpoint struct {
	// Dial opens a vault with the given options, which include the transport.
	Dial func(ctx context.Context, opts ...azblob.Options) (*azblob.Vault, error)
	// Transport returns a new connection to the service.
	Transport func(t storagetest.T) policy.Transporter
	// Faulty returns a new connection with random temporary faults. If it is nil, NewFaulty is used, with a
	// chance of 0.05.
	Faulty func(t storagetest.T, seed uint64) policy.Transporter
}

// grace is the grace period of the vaults: longer than any Create of a case on a busy machine. PassGrace
// advances the clock by it.
const grace = 10 * time.Minute

// Store returns a store of the suite on the endpoint.
func (e Endpoint) Store() storagetest.Store {
	var c clock
	return storagetest.Store{
		Open: func(t storagetest.T) storage.Vault {
			t.Helper()
			return e.open(t, c.on(e.connect(t)))
		},
		Dying: func(t storagetest.T, n int, after bool) (storage.Vault, func() bool) {
			t.Helper()
			process := emulator.Proxy(c.on(e.connect(t)), emulator.Options{NoLog: true}).Transport()
			fatal := emulator.On().Nth(n).Do(emulator.Silence())
			if after {
				fatal.Do(emulator.Silence().Applied())
			}
			process.Inject(fatal, emulator.On().Range(n, 0).Do(emulator.Silence()))
			return e.open(t, process), func() bool { return fatal.Fired() > 0 }
		},
		Faulty: func(t storagetest.T, seed uint64) storage.Vault {
			t.Helper()
			if e.Faulty != nil {
				return e.open(t, c.on(e.Faulty(t, seed)))
			}
			f := NewFaulty(c.on(e.connect(t)), seed, 0.05)
			t.Cleanup(f.Wait)
			return e.open(t, f)
		},
		Unversioned: func(t storagetest.T) storage.Vault {
			t.Helper()
			return e.open(t, c.on(e.connect(t)), azblob.Options{UnversionedUpdates: true})
		},
		PassGrace: func(t storagetest.T) {
			t.Helper()
			// The grace period, its margin of a quarter and a second, and two seconds because the service
			// rounds times to seconds.
			if err := c.pass(t.Context(), grace+grace/4+3*time.Second); err != nil {
				t.Fatalf("%v", err)
			}
		},
		Check: func(t storagetest.T, v storage.Vault) []string {
			t.Helper()
			report, err := v.(connected).Admin().Check(t.Context(), azblob.CheckOptions{})
			if err != nil {
				t.Fatalf("Check: %v", err)
			}
			var problems []string
			for _, p := range report.Problems {
				problems = append(problems, p.String())
			}
			if report.InProgress > 0 {
				problems = append(problems, fmt.Sprintf("%d plans are in progress", report.InProgress))
			}
			return problems
		},
	}
}

// connect returns a new connection, which is closed when the test ends.
func (e Endpoint) connect(t storagetest.T) policy.Transporter {
	transport := e.Transport(t)
	t.Cleanup(func() { hangUp(transport) })
	return transport
}

// hangUp closes idle connections, as the vault does with its own transport.
func hangUp(transport policy.Transporter) {
	if pool, ok := transport.(interface{ CloseIdleConnections() }); ok {
		pool.CloseIdleConnections()
	}
}

// connected is a vault that closes its connection.
type connected struct {
	*azblob.Vault
	transport policy.Transporter
}

func (v connected) Close(ctx context.Context) error {
	defer hangUp(v.transport)
	return v.Vault.Close(ctx)
}

func (e Endpoint) open(t storagetest.T, transport policy.Transporter, more ...azblob.Options) storage.Vault {
	t.Helper()
	v, err := e.Dial(t.Context(), append([]azblob.Options{
		{ClientOptions: policy.ClientOptions{Transport: transport}, GracePeriod: grace},
		{Backoff: azblob.Backoff{InitialInterval: time.Millisecond}},
	}, more...)...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return connected{v, transport}
}
