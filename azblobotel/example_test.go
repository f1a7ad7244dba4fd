package azblobotel_test

import (
	"context"
	"fmt"
	"log"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/azblobotel"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/engine"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/plugins/registry"
	"github.com/planvault/azblob/workflow"
)

// A service makes its providers at the start, and gives the observers to its vault. Here the providers keep
// everything in memory; a service exports it, for example with otlptracehttp and the exporter for Prometheus.
func Example() {
	ctx := context.Background()
	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
	meters := metric.NewMeterProvider(metric.WithReader(reader))

	// Without these two, the observer uses the providers of otel.SetTracerProvider and
	// otel.SetMeterProvider.
	observer, err := azblobotel.New(azblobotel.Options{TracerProvider: traces, MeterProvider: meters, Namespace: "my-cluster"})
	check(err)
	account := emulator.New(emulator.Options{})
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", account.ConnectionString(), nil,
		azblob.Options{ClientOptions: account.ClientOptions(), Observer: observer})
	check(err)

	// The spans of the vault's calls are children of the span in the context.
	ctx, span := traces.Tracer("example").Start(ctx, "handle a request")
	there, err := vault.Exists(ctx, workflow.NewV7())
	check(err)
	fmt.Println("there:", there)
	span.End()

	for _, s := range spans.GetSpans() { // in the order in which they ended
		fmt.Println("span:", s.Name)
	}
	var all metricdata.ResourceMetrics
	check(reader.Collect(ctx, &all))
	for _, m := range all.ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
			fmt.Println("measured:", h.DataPoints[0].Count, m.Name)
		}
	}
	// Output:
	// there: false
	// span: HEAD plans
	// span: Exists my-cluster
	// span: handle a request
	// measured: 1 db.client.operation.duration
	// measured: 1 azblob.request.duration
}

// An engine that is a member of a fleet has three observers, which share the providers.
func Example_fleet() {
	ctx := context.Background()
	onVault, err := azblobotel.New(azblobotel.Options{})
	check(err)
	onNode, err := azblobotel.NewFleet(azblobotel.Options{})
	check(err)
	onEngine, err := azblobotel.NewEngine(azblobotel.Options{})
	check(err)

	plugins := registry.Must(engine.Task("greet", func(context.Context, engine.Call, string) (int, error) {
		return fmt.Println("hello")
	}))
	account := emulator.New(emulator.Options{})
	vault, err := azblob.NewFromConnectionString(ctx, "my-cluster", account.ConnectionString(), plugins,
		azblob.Options{ClientOptions: policy.ClientOptions{Transport: account.Transport()}, Observer: onVault})
	check(err)
	e, err := engine.New(vault, engine.Options{Fleet: &fleet.Options{Observer: onNode}, Observer: onEngine, UntilIdle: true})
	check(err)
	action := &workflow.Action{Name: "greet", Plugin: "greet", Req: ""}
	_, err = e.Submit(ctx, &workflow.Plan{Name: "hello", Blocks: []*workflow.Block{{Sequences: []*workflow.Sequence{{Actions: []*workflow.Action{action}}}}}})
	check(err)
	check(e.Run(ctx))
	// Output: hello
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
