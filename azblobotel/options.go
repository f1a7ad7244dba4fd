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

// Options say what an observer reports, and where. The zero value has the defaults.
type Options struct {
	// TracerProvider is where spans go. Default: [otel.GetTracerProvider].
	TracerProvider trace.TracerProvider
	// MeterProvider is where metrics go. Default: [otel.GetMeterProvider].
	MeterProvider metric.MeterProvider
	// Namespace is the attribute db.namespace of all spans and metrics. It tells the vaults of a process apart; use the vault's
	// prefix. Default: no attribute.
	Namespace string
	// NoRequestSpans leaves out the spans of requests. A Create of a plan with a thousand sub-objects has more than a thousand
	// of them. Default: a request has a span if the span of its call is sampled.
	NoRequestSpans bool
}

func (o Options) tracer() trace.Tracer {
	p := o.TracerProvider
	if p == nil {
		p = otel.GetTracerProvider()
	}
	return p.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL))
}

func (o Options) meter() metric.Meter {
	p := o.MeterProvider
	if p == nil {
		p = otel.GetMeterProvider()
	}
	return p.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))
}

// common returns attrs with the attributes that all spans and metrics have.
func (o Options) common(attrs ...attribute.KeyValue) []attribute.KeyValue {
	if o.Namespace != "" {
		attrs = append(attrs, semconv.DBNamespace(o.Namespace))
	}
	return attrs
}

// with returns the attributes of a measurement.
func (o Options) with(attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(o.common(attrs...)...)
}
