package suite_test

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/merge"
	"github.com/planvault/azblob/internal/settings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/conformance"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/storage/storagetest/metamorphic"

	"github.com/planvault/azblob/internal/vaulttest"
)

// essential begins the names of the cases that run on Azurite: for each verb, one or two in which the service's conditions,
// batches, order and metadata decide. The other cases send the same requests again. TestFidelity compares the emulator with
// Azurite request by request.
var essential = []string{
	"create/Create keeps", "create/the ID of a deleted plan",
	"read/the versions that Read returns",
	"update/an update of a plan ", "update/an old version",
	"delete/other plans stay",
	"list/the newest plan comes first",
	"search/a search by status follows",
	"recovery/Recovery does not disturb",
	"members/a renewal gives", "members/a version that is not stored",
	"notes/a note comes back",
}

// elsewhere are long cases that run on the emulator with PLANVAULT_LONG alone, because other tests make the same requests.
var elsewhere = []string{
	"recovery/a Recovery that dies at any request is finished by another", // TestCrashInRecovery
	"create/a plan of 5,000 actions comes back whole in every state",      // pages are smaller here; TestCosts has 1,000 actions
}

// hierarchical matches the cases that see the directories of a hierarchical namespace: for each verb that lists or removes
// blobs, those whose listings have several pages, or begin or end within a day, or find what a deletion left.
var hierarchical = regexp.MustCompile(`^(list/(each of many|the newest plan)|search/(days are|pages of any size)|count/the zero value|` +
	`delete/(other plans|no sub-object|a death .* Recovery finishes)|recovery/Recovery (of a sound|does not)|check/everything)`)

// TestConformance runs the suite over the vault, on the emulator in virtual time and on Azurite, which runs all
// cases only with PLANVAULT_LONG. The race pass runs what is concurrent.
func TestConformance(t *testing.T) {
	leaveOut := func(out func(c storagetest.Case) bool) func(c storagetest.Case) string {
		return func(c storagetest.Case) string {
			if out(c) && !efforttest.Long() {
				return "left out without PLANVAULT_LONG"
			}
			return ""
		}
	}
	t.Run("emulator", func(t *testing.T) {
		storagetest.Run(t, storagetest.Harness{
			New:      func(t storagetest.T) storagetest.Store { return emulated(t) },
			Around:   synctest.Test,
			Parallel: true,
			Skip: leaveOut(func(c storagetest.Case) bool {
				return slices.Contains(elsewhere, c.Name) || testing.Short() && (c.Long || !efforttest.Concurrent(c.Name))
			}),
		}, metamorphic.Cases()...)
	})
	t.Run("hierarchical namespace", func(t *testing.T) {
		efforttest.NotShort(t, "the race detector sees the same cases on an ordinary account")
		storagetest.Run(t, storagetest.Harness{
			New: func(t storagetest.T) storagetest.Store {
				return emulated(t, emulator.Options{HierarchicalNamespace: true})
			},
			Around:   synctest.Test,
			Parallel: true,
			Skip:     leaveOut(func(c storagetest.Case) bool { return c.Long || !hierarchical.MatchString(c.Name) }),
		}, metamorphic.Cases()...)
	})
	t.Run("azurite", func(t *testing.T) {
		efforttest.NotShort(t, "the race detector sees the same cases on the emulator")
		begins := func(c storagetest.Case) func(string) bool {
			return func(name string) bool { return strings.HasPrefix(c.Name, name) }
		}
		for _, name := range essential {
			if !slices.ContainsFunc(storagetest.Cases(), func(c storagetest.Case) bool { return begins(c)(name) }) {
				t.Errorf("no case begins with %q", name)
			}
		}
		connectionString := vaulttest.Azurite.Get(t).ConnectionString()
		storagetest.Run(t, storagetest.Harness{
			New:      func(t storagetest.T) storagetest.Store { return onAzurite(t, connectionString) },
			Parallel: true, // each case has a prefix of its own
			Skip:     leaveOut(func(c storagetest.Case) bool { return !slices.ContainsFunc(essential, begins(c)) }),
		}, metamorphic.Cases()...)
	})
}

// emulated is a store on an emulator in this process that answers as real accounts do, with pages so small that
// listings have several. Each case has a seed of its own, which is the same in each run.
func emulated(t storagetest.T, opts ...emulator.Options) storagetest.Store {
	name := fnv.New64a()
	_, _ = name.Write([]byte(t.Name()))
	seed := name.Sum64()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the emulator had RealAnswers %d", seed)
		}
	})
	server := emulator.New(merge.Fields(append(opts, emulator.Options{PageLimit: 20}, emulator.Options{NoLog: true}, emulator.Options{RealAnswers: seed})...))
	vaulttest.Strict(t, server)
	return onConnections(func() policy.Transporter { return server.Transport() }, azblob.Options{Observer: refusing(t)}).Store()
}

// refusing fails the test if an operation with bad input sends a request.
func refusing(t storagetest.T) azblob.Observer {
	return azblob.Observer{OperationStart: func(ctx context.Context, _ azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
		return ctx, func(e azblob.OperationEnd) {
			if e.Outcome == azblob.OutcomeInvalid && e.Requests > 0 {
				t.Errorf("%s with bad input sent %d requests: %v", e.Name, e.Requests, e.Err)
			}
		}
	}}
}

// onConnections is an emulator in this process whose vaults each have a connection of their own.
func onConnections(dial func() policy.Transporter, more ...azblob.Options) conformance.Endpoint {
	return conformance.Endpoint{
		Dial: func(ctx context.Context, opts ...azblob.Options) (*azblob.Vault, error) {
			return vaulttest.Dial(ctx, slices.Concat([]azblob.Options{settings.Over(dial())}, more, opts)...)
		},
		Transport: func(storagetest.T) policy.Transporter { return dial() },
	}
}

// onAzurite is a store on Azurite under a prefix of its own.
func onAzurite(t storagetest.T, connectionString string) storagetest.Store {
	prefix := "t" + uuid.NewString()
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := vaulttest.DropContainers(ctx, connectionString, prefix); err != nil {
			t.Errorf("%v", err)
		}
	})
	return conformance.Endpoint{
		Dial: func(ctx context.Context, opts ...azblob.Options) (*azblob.Vault, error) {
			return azblob.NewFromConnectionString(ctx, prefix, connectionString, plantest.Register(), merge.Fields(opts...))
		},
		Transport: func(storagetest.T) policy.Transporter {
			transport := http.DefaultTransport.(*http.Transport).Clone()
			transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 256, 256
			return &http.Client{Transport: transport}
		},
	}.Store()
}

func TestMain(m *testing.M) { os.Exit(vaulttest.Azurite.Run(m)) }

// unsteadily runs the model on vaults on the emulator, in virtual time. The latency of the service varies,
// pages are small, and about every fifth request of a faulty vault meets a fault.
type unsteadily struct {
	mu    sync.Mutex
	fired int // faults
}

func (u *unsteadily) harness(t *testing.T) storagetest.Harness {
	return storagetest.Harness{New: func(storagetest.T) storagetest.Store {
		server := emulator.New(emulator.Options{NoLog: true, PageLimit: 3, RealAnswers: *vaulttest.ModelSeed})
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
