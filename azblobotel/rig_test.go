package azblobotel_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/planvault/azblob/azblobotel"
)

// rig collects what observers report.
type rig struct {
	t      testing.TB
	spans  *tracetest.InMemoryExporter
	traces *sdktrace.TracerProvider
	reader *metric.ManualReader
	opts   azblobotel.Options // of observers
}

func newRig(t testing.TB, namespace string) *rig {
	r := &rig{t: t, spans: tracetest.NewInMemoryExporter(), reader: metric.NewManualReader()}
	r.traces = sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.spans))
	meters := metric.NewMeterProvider(metric.WithReader(r.reader))
	r.opts = azblobotel.Options{TracerProvider: r.traces, MeterProvider: meters, Namespace: namespace}
	return r
}

// series is a metric with one set of attributes. Value is that of a counter or a gauge, or the number of measurements of a
// histogram, which has buckets, too.
type series struct {
	name, unit, kind string
	attrs            attribute.Set
	value            float64
	bounds           []float64
	buckets          []uint64
}

// series returns all that was measured, by name and attributes.
func (r *rig) series() []series {
	r.t.Helper()
	var data metricdata.ResourceMetrics
	must(r.t, r.reader.Collect(context.WithoutCancel(r.t.Context()), &data))
	var list []series
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			s := series{name: m.Name, unit: m.Unit, kind: "gauge"}
			add := func(attrs attribute.Set, value float64) {
				s.attrs, s.value = attrs, value
				list = append(list, s)
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				if d.IsMonotonic {
					s.kind = "counter"
				}
				for _, p := range d.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					s.kind, s.bounds, s.buckets = "histogram", p.Bounds, p.BucketCounts
					add(p.Attributes, float64(p.Count))
				}
			default:
				r.t.Fatalf("%s is a %T", m.Name, d)
			}
		}
	}
	slices.SortFunc(list, func(a, b series) int { return cmp.Compare(a.String(), b.String()) })
	return list
}

// String returns the series as Prometheus prints it, with the names of OpenTelemetry.
func (s series) String() string {
	return fmt.Sprintf("%s{%s} %.0f", s.name, s.attrs.Encoded(attribute.DefaultEncoder()), s.value)
}

// measured returns the series of a metric, as text.
func (r *rig) measured(name string) []string {
	r.t.Helper()
	var list []string
	for _, s := range r.series() {
		if s.name == name {
			list = append(list, strings.TrimPrefix(s.String(), name))
		}
	}
	return list
}

func (r *rig) wantMeasured(name string, want ...string) {
	r.t.Helper()
	if got := r.measured(name); !slices.Equal(got, want) {
		r.t.Errorf("%s:\n\t%s\nwant\n\t%s", name, strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

func encoded(attrs []attribute.KeyValue) string {
	set := attribute.NewSet(attrs...)
	return set.Encoded(attribute.DefaultEncoder())
}

// text returns everything that was reported, as text.
func (r *rig) text() string {
	r.t.Helper()
	var b strings.Builder
	for _, s := range r.spans.GetSpans() {
		fmt.Fprintln(&b, s.Name, s.Status, encoded(s.Attributes))
		for _, e := range s.Events {
			fmt.Fprintln(&b, e.Name, encoded(e.Attributes))
		}
	}
	fmt.Fprint(&b, r.series())
	return b.String()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
