package azblobotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// scope names the package that measures, in traces and metrics.
const scope = "github.com/planvault/azblob/azblobotel"

// Option changes what an observer reports, and where.
type Option func(*options)

type options struct {
	traces    trace.TracerProvider
	metrics   metric.MeterProvider
	namespace string
	requests  bool
}

// WithTracerProvider sets where spans go. Default: [otel.GetTracerProvider].
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.traces = p } }

// WithMeterProvider sets where metrics go. Default: [otel.GetMeterProvider].
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.metrics = p } }

// WithNamespace sets the attribute db.namespace of all spans and metrics. It tells the vaults of a process
// apart; use the vault's prefix. Default: no attribute.
func WithNamespace(name string) Option { return func(o *options) { o.namespace = name } }

// WithoutRequestSpans leaves out the spans of requests. A Create of a plan with a thousand sub-objects has more
// than a thousand of them. Default: a request has a span if the span of its call is sampled.
func WithoutRequestSpans() Option { return func(o *options) { o.requests = false } }

func applyOptions(opts []Option) options {
	o := options{traces: otel.GetTracerProvider(), metrics: otel.GetMeterProvider(), requests: true}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

func (o options) tracer() trace.Tracer {
	return o.traces.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
}

func (o options) meter() metric.Meter {
	return o.metrics.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
}

// common returns attrs with the attributes that all spans and metrics have.
func (o options) common(attrs ...attribute.KeyValue) []attribute.KeyValue {
	if o.namespace != "" {
		attrs = append(attrs, semconv.DBNamespace(o.namespace))
	}
	return attrs
}

// with returns the attributes of a measurement.
func (o options) with(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(o.common(attrs...)...)
}
