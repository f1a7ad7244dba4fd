// Command life runs one plan on the emulator in this process, and prints the trace that azblobotel makes of
// it: the plan is created, run by one process, updated in vain by another one, and finished. One request meets
// a busy service and is tried again. Each request takes 20 ms.
//
//	go run ./integration -otel             from the root of the main module
//	go run ./internal/life -svg FILE       in this module; draws the trace, too
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

func main() {
	svg := flag.String("svg", "", "draw the trace into this `file`")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *svg); err != nil {
		fmt.Fprintln(os.Stderr, "life:", err)
		os.Exit(1)
	}
}

// latency is how long a request takes.
const latency = 20 * time.Millisecond

func run(ctx context.Context, stdout io.Writer, svg string) error {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	if err := live(ctx, provider); err != nil {
		return err
	}
	rows := arrange(spans.GetSpans())
	if err := write(stdout, rows); err != nil || svg == "" {
		return err
	}
	return os.WriteFile(svg, draw(rows), 0o644)
}
