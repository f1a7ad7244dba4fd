package costs_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/fill"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

var (
	ratios = flag.Bool("ratios", false, "compare processor time with its budgets")
	token  = flag.Bool("token", false, "measure processor time with a token in place of the account's key")
)

// cpuBudgets has how many times the floor's processor time an operation may take, with the account's key and with a token.
// They are a quarter to a half above what it takes, for machines that have other work.
var cpuBudgets = map[string]struct{ key, token float64 }{
	"Create, S":                              {1.75, 2.25},
	"Create, M":                              {1.7, 2.05},
	"Create, L":                              {1.7, 1.95},
	"UpdateAction, M":                        {1.75, 2.2},
	"UpdatePlan, running, M":                 {2.3, 2.75},
	"UpdatePlan, final, M":                   {9.5, 11},
	"Exists, M":                              {0.8, 0.95},
	"Read, not started, M":                   {9.8, 10.8},
	"Read, running, all actions changed, M":  {2.05, 2.25},
	"Read, running, all actions changed, L":  {0.75, 0.8},
	"Read, final, M":                         {9.8, 10.8},
	"Delete, M":                              {1.5, 1.6},
	"List(all), 5000 plans in 1 day":         {0.2, 0.2},
	"List(10), 5000 plans in 1 day":          {0.35, 0.4},
	"Search by ID, 5000 plans in 1 day":      {1.9, 2.3},
	"Search Running, 5000 plans in 1 day":    {0.8, 0.95},
	"Search NotStarted, 5000 plans in 1 day": {0.5, 0.55},
	"Recovery, 5000 plans in 1 day":          {1.25, 1.3},
}

// cpuRows returns the rows whose processor time has a budget.
func cpuRows() (rows []row) {
	for _, o := range onPlans {
		for _, s := range sizes {
			rows = append(rows, row{operation: o, size: s})
		}
	}
	poll := search("Search NotStarted", func(fill.Filling) storage.Filters {
		return storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}}
	}, func(fill.Filling, int) bool { return false })
	for _, o := range append(inVaults(), poll) {
		rows = append(rows, row{operation: o, vault: shape{plans: 5000, days: 1}})
	}
	return slices.DeleteFunc(rows, func(r row) bool { return cpuBudgets[r.String()].key == 0 })
}

// side is one of the two that are compared: the vault's operation, or the floor.
type side struct {
	do    func()
	again func() // undoes what the operation has changed in memory; nil for nothing. Its time does not count.
}

func (s side) benchmark(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if s.again != nil {
			b.StopTimer()
			s.again()
			b.StartTimer()
		}
		s.do()
	}
}

// round returns the mean processor time of the operation over a while. Collecting the garbage that it makes is part of it.
func (s side) round(while time.Duration) time.Duration {
	runtime.GC()
	var sum time.Duration
	n := 0
	for begun := time.Now(); n == 0 || time.Since(begun) < while; n++ {
		if s.again != nil {
			s.again()
		}
		before := processorTime()
		s.do()
		sum += processorTime() - before
	}
	return sum / time.Duration(n)
}

// judge compares an operation with its floor: by turns, on one processor, and by the quickest rounds.
func judge(t *testing.T, op, floor side, most float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var took, least []time.Duration
	for range 7 {
		took, least = append(took, op.round(60*time.Millisecond)), append(least, floor.round(60*time.Millisecond))
	}
	ratio := float64(slices.Min(took)) / float64(max(slices.Min(least), 1))
	t.Logf("%v, the floor %v: %.2f of %.2f", slices.Min(took), slices.Min(least), ratio, most)
	if ratio > most {
		t.Errorf("%.2f times the floor's processor time of %.2f", ratio, most)
	}
}

// BenchmarkCPU repeats each operation with recorded answers, and the floor: a bare client of the SDK that sends the same
// requests and does nothing else. No time of a service is in either. Round trips, bytes and dollars are those of
// testdata/costs.txt.
func BenchmarkCPU(b *testing.B) {
	costs := readGolden(b)
	for _, r := range cpuRows() {
		b.Run(r.String(), func(b *testing.B) {
			op, floor, tape := r.record(b, credential())
			for name, s := range map[string]side{"vault": op, "floor": floor} {
				b.Run(name, func(b *testing.B) {
					s.benchmark(b)
					b.ReportMetric(float64(len(tape.requests)), "requests/op")
					costs.report(b, r.String())
				})
			}
		})
	}
}

// TestCPUBudgets compares the processor time of each operation with that of its floor, with -args -ratios. Such ratios hold
// on any machine.
func TestCPUBudgets(t *testing.T) {
	if !*ratios {
		t.Skip("without -ratios")
	}
	for _, r := range cpuRows() {
		t.Run(r.String(), func(t *testing.T) {
			op, floor, _ := r.record(t, credential())
			most := cpuBudgets[r.String()].key
			if *token {
				most = cpuBudgets[r.String()].token
			}
			judge(t, op, floor, most)
		})
	}
}

// credential returns the login that -token chooses; nil for the account's key.
func credential() azcore.TokenCredential {
	if *token {
		return staticToken{}
	}
	return nil
}

// tokenEndpoint is where the emulator takes tokens, which are sent over https only.
const tokenEndpoint = "https://devstoreaccount1.blob.core.windows.net"

// staticToken is a credential whose token is as long as those of Entra ID, and lasts.
type staticToken struct{}

var _ azcore.TokenCredential = staticToken{}

func (staticToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{Token: strings.Repeat("token", 300), ExpiresOn: time.Now().Add(24 * time.Hour)}, nil
}

// record runs the row's operation twice on an emulator and records the second run: a vault remembers, for instance, which
// containers exist. It returns the operation and its floor, both on the tape.
func (r row) record(t testing.TB, cred azcore.TokenCredential) (op, floor side, played *tape) {
	ctx := t.Context()
	server, played := emulator.New(emulator.Options{NoLog: true}), &tape{}
	s := &scene{plan: r.size.plan}
	if r.vault.plans > 0 {
		s.filling = r.vault.until(time.Now().UTC().Truncate(24 * time.Hour).Add(-6 * time.Hour))
		vaulttest.Must(t, s.filling.FillServer(ctx, server, vaultName))
	}
	played.record(server.Transport())
	options := azblob.Options{ClientOptions: policy.ClientOptions{Transport: played}}
	var err error
	if cred == nil {
		s.vault, err = azblob.NewFromConnectionString(ctx, vaultName, server.ConnectionString(), plantest.Register(), options)
	} else {
		s.vault, err = azblob.New(ctx, vaultName, tokenEndpoint, cred, plantest.Register(), options)
	}
	vaulttest.Must(t, err)
	for range 2 {
		op.do = r.prepare(t, s)
		if op.again = s.again; op.again != nil {
			op.again()
		}
		played.record(server.Transport())
		op.do()
	}
	played.play()
	bare, err := newFloor(server.ConnectionString(), cred, played)
	vaulttest.Must(t, err)
	replay, err := bare.replay(played.requests)
	vaulttest.Must(t, err)
	return op, side{do: func() { vaulttest.Must(t, replay(ctx)) }}, played
}

// TestFloor checks that the floor sends the requests of the vault, in every respect that costs time: their bodies, metadata,
// conditions and listings. Only their order differs.
func TestFloor(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	if len(cpuRows()) != len(cpuBudgets) {
		t.Errorf("%d rows for %d budgets", len(cpuRows()), len(cpuBudgets))
	}
	for _, r := range cpuRows() {
		if r.size.name == "L" {
			continue
		}
		if r.vault.plans > 0 {
			r.vault = shape{plans: 100, days: 2}
		}
		var cred azcore.TokenCredential
		if r.size.name == "S" { // one size is enough for tokens
			cred = staticToken{}
		}
		op, _, played := r.record(t, cred)
		if op.again != nil {
			op.again()
		}
		op.do()
		sent := &tape{}
		sent.record(played)
		bare, err := newFloor(emulator.New(emulator.Options{}).ConnectionString(), cred, sent)
		vaulttest.Must(t, err)
		send, err := bare.replay(played.requests)
		vaulttest.Must(t, err)
		vaulttest.Must(t, send(t.Context()))
		if want, got := texts(t, played), texts(t, sent); len(got) == 0 || !slices.Equal(got, want) {
			t.Errorf("%s: %q\nis not %q", r, got, want)
		}
	}
}

// texts returns what was sent, sorted.
func texts(t *testing.T, sent *tape) (all []string) {
	t.Helper()
	for _, r := range sent.requests {
		header := http.Header{}
		for name, values := range r.Header {
			if strings.HasPrefix(name, "X-Ms-Meta-") || strings.HasPrefix(name, "If-") || strings.HasSuffix(name, "Md5") {
				header[name] = values
			}
		}
		var text strings.Builder
		fmt.Fprintf(&text, "%s %s?%s\n", r.Method, strings.TrimSuffix(r.URL.Path, "/"), r.URL.Query().Encode())
		vaulttest.Must(t, header.Write(&text))
		for line := range strings.Lines(string(r.body)) {
			// Of a batch, the lines that select what is deleted: the others have times and boundaries.
			if r.Method != http.MethodPost || strings.HasPrefix(line, "DELETE ") || strings.HasPrefix(line, "If-") {
				text.WriteString(line)
			}
		}
		all = append(all, text.String())
	}
	slices.Sort(all)
	return all
}
