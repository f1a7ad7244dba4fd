//go:build conformance

package azblob_test

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"
	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/storagetest"
	"github.com/planvault/azblob/workflow/plantest"
)

var conformAzurite = flag.Bool("conformance.azurite", false, "run the conformance suite over Azurite too, which takes some minutes")

func TestConformance(t *testing.T) {
	t.Run("emulator", func(t *testing.T) {
		storagetest.Run(t, storagetest.Harness{New: emulated, Around: synctest.Test})
	})
	t.Run("azurite", func(t *testing.T) {
		if !*conformAzurite {
			t.Skip("the suite over Azurite takes minutes: go test -tags conformance -run TestConformance -conformance.azurite .")
		}
		connectionString := azurite.Get(t).ConnectionString()
		storagetest.Run(t, storagetest.Harness{New: func(t storagetest.T) storagetest.Store { return onAzurite(t, connectionString) }})
	})
}

// conforming opens vaults for the conformance suite.
type conforming struct {
	prefix, connectionString string
	opts                     []azblob.Option
	// dial makes a connection to the service; nil leaves it to the vault.
	dial func(t storagetest.T) policy.Transporter
}

func (c conforming) open(t storagetest.T, transport policy.Transporter) storage.Vault {
	t.Helper()
	opts := append([]azblob.Option{azblob.WithRetry(azblob.Retry{InitialInterval: time.Millisecond})}, c.opts...)
	if transport != nil {
		opts = append(opts, azblob.WithTransport(transport))
	}
	v, err := azblob.NewFromConnectionString(t.Context(), c.prefix, c.connectionString, plantest.Register(), opts...)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return v
}

// store is what emulator and Azurite have in common.
func (c conforming) store() storagetest.Store {
	return storagetest.Store{
		Open: func(t storagetest.T) storage.Vault {
			t.Helper()
			return c.open(t, c.dial(t))
		},
		Dying: func(t storagetest.T, n int, after bool) (storage.Vault, func() bool) {
			t.Helper()
			m := &mortal{Transporter: c.dial(t), n: n, after: after}
			return c.open(t, m), m.died.Load
		},
		Check: func(t storagetest.T, v storage.Vault) []string {
			t.Helper()
			report, err := v.(*azblob.Vault).Check(t.Context(), azblob.CheckOptions{})
			if err != nil {
				t.Fatalf("%v", err)
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

// emulated is a store on an emulator in this process, with pages so small that listings have several.
func emulated(t storagetest.T) storagetest.Store {
	server := emulator.New(emulator.WithPageLimit(20), emulator.WithoutLog())
	if t, ok := t.(*testing.T); ok {
		strict(t, server)
	}
	c := conforming{
		prefix: "test", connectionString: server.ConnectionString(),
		dial: func(storagetest.T) policy.Transporter { return server.Transport() },
	}
	s := c.store()
	s.PassGrace = func(storagetest.T) { time.Sleep(pastGrace) }
	s.Faulty = func(t storagetest.T, seed uint64) storage.Vault {
		transport := server.Transport()
		transport.Inject(passing(seed)...)
		return c.open(t, transport)
	}
	return s
}

// passing are faults of all kinds, which befall about one request in twenty.
func passing(seed uint64) (rules []*emulator.Rule) {
	add := func(chance float64, effect emulator.Effect, ops ...emulator.Op) {
		rules = append(rules, emulator.On(ops...).Chance(chance, seed+uint64(len(rules))<<32).Do(effect))
	}
	for _, effect := range []emulator.Effect{
		emulator.LostRequest(), emulator.LostAnswer(), emulator.LostRequest().Late(2), emulator.Reset(), emulator.Reset().Applied(),
		emulator.Answer(500, "InternalError"), emulator.Answer(500, "InternalError").Applied(),
		emulator.Answer(503, "ServerBusy").RetryAfter(time.Second), emulator.Answer(503, "OperationTimedOut").Applied(),
		emulator.Silence(), emulator.Silence().Applied(), emulator.Duplicate(0), emulator.Duplicate(2),
	} {
		add(0.003, effect)
	}
	add(0.02, emulator.CutBody(100), emulator.GetBlob, emulator.ListBlobs, emulator.ListContainers)
	add(0.02, emulator.EmptyPage(), emulator.ListBlobs, emulator.ListContainers)
	// Not at random, because damage that a second read shows again is reported as such.
	return append(rules, emulator.On(emulator.GetBlob).Every(97).Do(emulator.FlipBit(800)))
}

// onAzurite is a store on Azurite under a prefix of its own.
func onAzurite(t storagetest.T, connectionString string) storagetest.Store {
	grace := 2 * time.Second
	if strings.Contains(t.Name(), "5,000") {
		grace = time.Minute // so long can the Create of a big plan take; the case does not wait for its end
	}
	c := conforming{
		prefix: "t" + uuid.NewString(), connectionString: connectionString,
		opts: []azblob.Option{azblob.WithGracePeriod(grace)},
		dial: func(t storagetest.T) policy.Transporter {
			transport := http.DefaultTransport.(*http.Transport).Clone()
			transport.MaxIdleConnsPerHost = 64
			t.Cleanup(transport.CloseIdleConnections)
			return &http.Client{Transport: transport}
		},
	}
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		if err := dropContainers(ctx, connectionString, c.prefix); err != nil {
			t.Errorf("%v", err)
		}
	})
	s := c.store()
	s.Open = func(t storagetest.T) storage.Vault { return c.open(t, nil) }
	// The grace period, the margin of a quarter and a second, and a second for the service, which tells whole ones.
	s.PassGrace = func(storagetest.T) { time.Sleep(grace + grace/4 + 2500*time.Millisecond) }
	return s
}

// dropContainers removes what a case stored: Azurite looks through all of its blobs at each delete.
func dropContainers(ctx context.Context, connectionString, prefix string) error {
	client, err := service.NewClientFromConnectionString(connectionString, nil)
	if err != nil {
		return err
	}
	pager := client.NewListContainersPager(&service.ListContainersOptions{Prefix: &prefix})
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, container := range page.ContainerItems {
			if _, err := client.DeleteContainer(ctx, *container.Name, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// mortal is the connection of a process that dies at its nth request: before it is sent, or after it took effect. No later one
// is sent, and those sent before have come to their ends. Nothing is answered any more.
type mortal struct {
	policy.Transporter
	n     int
	after bool

	mu   sync.Mutex
	seen int
	sent sync.WaitGroup
	died atomic.Bool
}

func (m *mortal) Do(req *http.Request) (*http.Response, error) {
	m.mu.Lock()
	m.seen++
	nth := m.seen
	if nth < m.n {
		m.sent.Add(1)
	}
	m.mu.Unlock()
	if nth < m.n {
		defer m.sent.Done()
		return m.Transporter.Do(req)
	}
	if nth == m.n {
		if m.after {
			last := req.Clone(context.WithoutCancel(req.Context()))
			if resp, err := m.Transporter.Do(last); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
		m.sent.Wait()
		m.died.Store(true)
	}
	<-req.Context().Done()
	return nil, req.Context().Err()
}
