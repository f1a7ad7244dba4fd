package suite_test

import (
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/storage/storagetest/metamorphic"

	"github.com/planvault/azblob/tests/vaulttest"
)

// unsteadily runs the model on vaults on the emulator, in virtual time. The latency of the service varies,
// pages are small, and about every fifth request of a faulty vault meets a fault.
type unsteadily struct {
	mu    sync.Mutex
	fired int // faults
}

func (u *unsteadily) harness(t *testing.T) storagetest.Harness {
	return storagetest.Harness{New: func(storagetest.T) storagetest.Store {
		server := emulator.New(emulator.WithoutLog(), emulator.WithPageLimit(3), emulator.WithRealAnswers(*vaulttest.ModelSeed))
		vaulttest.Strict(t, server)
		var seeds atomic.Uint64
		dial := func() policy.Transporter {
			return &unsteady{Transporter: server.Transport(), rand: rand.New(rand.NewPCG(seeds.Add(1), 0))}
		}
		e := onConnections(dial)
		e.Faulty = func(t storagetest.T, seed uint64) policy.Transporter {
			transport, faults := dial(), passingFaults(seed)
			transport.(*unsteady).Transporter.(*emulator.Transport).Inject(faults)
			t.Cleanup(func() {
				u.mu.Lock()
				defer u.mu.Unlock()
				u.fired += faults.Fired()
			})
			return transport
		}
		return e.Store()
	}}
}

// passingFaults returns random faults of the kinds that retries overcome.
func passingFaults(seed uint64) *emulator.Rule {
	return emulator.Random(0.22, seed,
		emulator.LostRequest(), emulator.LostAnswer(), emulator.Reset(), emulator.Reset().Applied(),
		emulator.Answer(500, "InternalError"), emulator.Answer(500, "InternalError").Applied(),
		emulator.Answer(503, "ServerBusy").RetryAfter(time.Second), emulator.Answer(503, "OperationTimedOut").Applied(),
		emulator.Silence(), emulator.Silence().Applied(), emulator.CutBody(20), emulator.EmptyPage(),
		emulator.Duplicate(0), emulator.Duplicate(1), emulator.Duplicate(2), emulator.LostRequest().Late(1),
	)
}

// unsteady delays each request before it is sent and after it is answered, so that requests of several
// clients overlap in every way.
type unsteady struct {
	policy.Transporter
	mu   sync.Mutex
	rand *rand.Rand
}

func (s *unsteady) Do(req *http.Request) (*http.Response, error) {
	s.wait()
	resp, err := s.Transporter.Do(req)
	s.wait()
	return resp, err
}

func (s *unsteady) wait() {
	s.mu.Lock()
	d := time.Duration(s.rand.IntN(2_000_000))
	s.mu.Unlock()
	time.Sleep(d)
}

// TestModel runs random operations of several clients on the vault and on a map.
func TestModel(t *testing.T) {
	efforttest.NotShort(t, "the conformance suite runs the model under the race detector")
	var sum metamorphic.Figures
	u := &unsteadily{}
	seeds := 0
	for i := range efforttest.Seeds(t, 1, 2, 100) {
		seeds++
		m := metamorphic.Model{Seed: *vaulttest.ModelSeed + i, Ops: efforttest.Pick(500, 1000, 1000), Faults: true, Deaths: true, Deadlines: true}
		synctest.Test(t, func(t *testing.T) { sum = sum.Plus(m.Run(t, u.harness(t))) })
		if t.Failed() {
			break
		}
	}
	t.Logf("model: %d operations, %d seeds from %d, %d under faults, %d faults, %d deaths, %d unknown outcomes",
		sum.Operations, seeds, *vaulttest.ModelSeed, sum.Faulty, u.fired, sum.Deaths, sum.Unknown)
}

// TestModelHistories looks for a sequential order that explains the results of concurrent clients.
func TestModelHistories(t *testing.T) {
	var sum metamorphic.Figures
	u := &unsteadily{}
	histories := 0
	for i := range efforttest.Seeds(t, 3, 36, 3000) {
		histories++
		hist := metamorphic.History{Seed: *vaulttest.ModelSeed + i, Clients: 3 + int(i%4), Faults: i%3 == 1, Deaths: i%3 == 2}
		synctest.Test(t, func(t *testing.T) { sum = sum.Plus(hist.Run(t, u.harness(t))) })
		if t.Failed() {
			break
		}
	}
	t.Logf("histories: %d from seed %d, %d operations, %d under faults, %d faults, %d deaths, %d unknown outcomes",
		histories, *vaulttest.ModelSeed, sum.Operations, sum.Faulty, u.fired, sum.Deaths, sum.Unknown)
}
