// Command life runs one plan on the emulator in this process, and prints the trace that azblobotel makes of
// it: the plan is created, run by one process, updated in vain by another one, and finished. One request meets
// a busy service and is tried again. Each request takes 20 ms.
//
//	go run ./integration -otel    from the root of the main module
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "life:", err)
		os.Exit(1)
	}
}

// latency is how long a request takes.
const latency = 20 * time.Millisecond

func run(ctx context.Context, stdout io.Writer) error {
	spans := tracetest.NewInMemoryExporter()
	if err := live(ctx, sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))); err != nil {
		return err
	}
	children := map[trace.SpanID][]tracetest.SpanStub{}
	for _, s := range spans.GetSpans() {
		children[s.Parent.SpanID()] = append(children[s.Parent.SpanID()], s)
	}
	return write(stdout, children, trace.SpanID{}, "")
}

// write prints the spans below a parent in the order in which they began, each with its events and with the spans
// below it.
func write(w io.Writer, children map[trace.SpanID][]tracetest.SpanStub, parent trace.SpanID, indent string) error {
	slices.SortStableFunc(children[parent], func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	for _, s := range children[parent] {
		mark := ""
		if s.Status.Code == codes.Error {
			mark = "!"
		}
		took := float64(s.EndTime.Sub(s.StartTime)) / float64(time.Millisecond)
		name, result := describe(s)
		if _, err := fmt.Fprintf(w, "%-50s %6.1fms %1s %s\n", indent+name, took, mark, result); err != nil {
			return err
		}
		if err := write(w, children, s.SpanContext.SpanID(), indent+"   "); err != nil {
			return err
		}
		for _, e := range s.Events {
			if _, err := fmt.Fprintf(w, "%s   %s %s\n", indent, e.Name, value(e.Attributes, "error.type")); err != nil {
				return err
			}
		}
	}
	return nil
}

// describe returns the name and the result of a call or a request.
func describe(s tracetest.SpanStub) (name, result string) {
	if outcome := value(s.Attributes, "azblob.outcome"); outcome != "" {
		return s.Name, fmt.Sprintf("%s, requests %s, round trips %s", outcome, value(s.Attributes, "azblob.requests"), value(s.Attributes, "azblob.round_trips"))
	}
	name = s.Name
	if blob := value(s.Attributes, "azblob.blob"); blob != "" {
		name = value(s.Attributes, "http.request.method") + " " + ids.ReplaceAllString(blob, "<id>")
	}
	return name, value(s.Attributes, "http.response.status_code")
}

var ids = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)

func value(attrs []attribute.KeyValue, key attribute.Key) string {
	set := attribute.NewSet(attrs...)
	if !set.HasValue(key) {
		return ""
	}
	v, _ := set.Value(key)
	return v.String()
}
