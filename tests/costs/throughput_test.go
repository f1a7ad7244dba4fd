package costs_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/internal/price"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/workflow"
)

// serves is set for a process of the tests that is an emulator, until its stdin ends.
const serves = "COSTS_EMULATOR"

func TestMain(m *testing.M) {
	if os.Getenv(serves) == "" {
		os.Exit(m.Run())
	}
	port, err := emulator.New(emulator.Options{NoLog: true}).Listen("127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(port.ConnectionString())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// BenchmarkThroughput works on 64 plans at a time through one vault, over sockets to an emulator in another process, whose
// processor time and allocations don't count.
func BenchmarkThroughput(b *testing.B) {
	const workers = 64
	again := func(t testing.TB, s *scene) func() {
		return func() { vaulttest.Must(t, s.vault.Create(t.Context(), s.plan())) }
	}
	for _, r := range []row{
		{operation: operation{"Create", again}, size: sizes[0]},
		{operation: operation{"Create", again}, size: sizes[1]},
		{operation: operation{"UpdateAction", onStored(workflow.Running, none, updateAction)}, size: sizes[0]},
		{operation: operation{"Read, not started", onStored(workflow.NotStarted, none, read)}, size: sizes[0]},
		{operation: operation{"Read, running", onStored(workflow.Running, none, read)}, size: sizes[1]},
	} {
		b.Run(r.String(), func(b *testing.B) {
			c := &counter{requests: price.Tally{}}
			v, err := azblob.NewFromConnectionString(b.Context(), vaultName, elsewhere(b), plantest.Register(), azblob.Options{Observer: c.observer()})
			vaulttest.Must(b, err)
			defer v.Close(b.Context())
			steps := make(chan func(), workers)
			for range workers {
				steps <- r.prepare(b, &scene{vault: v, plan: r.size.plan})
			}
			c.start(false)
			b.ReportAllocs()
			b.SetParallelism(max(1, workers/runtime.GOMAXPROCS(0)))
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				do := <-steps
				for pb.Next() {
					do()
				}
				steps <- do
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
			b.ReportMetric(float64(c.requests.Total())/float64(b.N), "requests/op")
		})
	}
}

// elsewhere starts an emulator in another process, and returns its connection string.
func elsewhere(b *testing.B) string {
	self, err := os.Executable()
	vaulttest.Must(b, err)
	cmd := exec.CommandContext(b.Context(), self)
	cmd.Env = append(os.Environ(), serves+"=1")
	stdin, err := cmd.StdinPipe()
	vaulttest.Must(b, err)
	stdout, err := cmd.StdoutPipe()
	vaulttest.Must(b, err)
	vaulttest.Must(b, cmd.Start())
	b.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	vaulttest.Must(b, err)
	return strings.TrimSpace(line)
}
