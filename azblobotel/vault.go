package azblobotel

import (
	"context"
	"errors"
	"strings"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/planvault/azblob"
)

// New returns the observer of a vault. To use it beside others, see [azblob.Tee]. An error means that the
// provider of metrics refused an instrument.
func New(o Options) (azblob.Observer, error) {
	i := instruments{Meter: o.meter()}
	v := &vault{
		Options:    o,
		spans:      o.tracer(),
		operations: i.duration("db.client.operation.duration", "Duration of calls of the vault's methods."),
		requests:   i.duration("azblob.request.duration", "Duration of HTTP requests, until the answer was read."),
		io:         i.counter("azblob.network.io", "By", "Bytes of the bodies of requests and answers."),
		retries:    i.counter("azblob.retries", "{retry}", "Tries of requests that failed and were tried again."),
		conflicts:  i.counter("azblob.conflicts", "{conflict}", "Writes that met a version that their caller did not know."),
		repairs:    i.counter("azblob.repairs", "{plan}", "Plans that Recovery repaired, found in need of repair, or could not repair."),
		damages:    i.counter("azblob.damages", "{catalogue}", "Catalogues that listings found damaged."),
	}
	return azblob.Observer{OperationStart: v.start, Request: v.request, Retry: v.retry, Conflict: v.conflict, Repair: v.repair, Damage: v.damage}, errors.Join(i.errs...)
}

// vault is the observer of vaults.
type vault struct {
	Options
	spans                                trace.Tracer
	operations, requests                 metric.Float64Histogram
	io                                   metric.Int64Counter
	retries, conflicts, repairs, damages metric.Int64Counter
}

// start begins the span of an operation.
func (v *vault) start(ctx context.Context, op azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
	name := op.Name
	if v.Namespace != "" {
		name += " " + v.Namespace
	}
	ctx, span := v.spans.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(v.common(system, semconv.DBOperationName(op.Name))...))
	return ctx, func(e azblob.OperationEnd) { v.end(ctx, span, e) }
}

func (v *vault) end(ctx context.Context, span trace.Span, e azblob.OperationEnd) {
	failed := failure(e.Outcome, e.Err)
	result := withFailure([]attribute.KeyValue{keyOutcome.String(string(e.Outcome))}, failed)
	v.operations.Record(ctx, e.Duration.Seconds(), v.with(append(result, system, semconv.DBOperationName(e.Name))...))
	span.SetAttributes(result...)
	span.SetAttributes(keyRequests.Int(e.Requests), keyTrips.Int(e.RoundTrips), keySent.Int64(e.BytesSent), keyReceived.Int64(e.BytesReceived))
	if e.Plan != uuid.Nil { // it may be new
		span.SetAttributes(keyPlan.String(e.Plan.String()))
	}
	if failed != "" {
		span.SetStatus(codes.Error, short(e.Err))
	}
	span.End()
}

// request measures a request, and makes a span of it.
func (v *vault) request(ctx context.Context, e azblob.RequestEvent) {
	failed := requestFailure(e.Status, e.Err)
	result := withFailure([]attribute.KeyValue{keyRequest.String(e.Name), keyClass.String(string(e.Class))}, failed)
	if e.Status != 0 {
		result = append(result, semconv.HTTPResponseStatusCode(e.Status))
	}
	v.requests.Record(ctx, e.Duration.Seconds(), v.with(result...))
	v.transferred(ctx, e.BytesSent, semconv.NetworkIODirectionTransmit)
	v.transferred(ctx, e.BytesReceived, semconv.NetworkIODirectionReceive)
	if v.NoRequestSpans || !trace.SpanFromContext(ctx).IsRecording() {
		return
	}
	_, span := v.spans.Start(ctx, requestName(e), trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(e.Start),
		trace.WithAttributes(v.common(result...)...), trace.WithAttributes(
			semconv.AzureResourceProviderNamespace("Microsoft.Storage"), semconv.HTTPRequestMethodKey.String(e.Method),
			keyContainer.String(e.Container), keyBlob.String(e.Blob), keySent.Int64(e.BytesSent), keyReceived.Int64(e.BytesReceived)))
	if e.Try > 1 {
		span.SetAttributes(semconv.HTTPRequestResendCount(e.Try - 1))
	}
	if e.RequestID != "" {
		span.SetAttributes(semconv.AzureServiceRequestID(e.RequestID))
	}
	if failed != "" {
		span.SetStatus(codes.Error, failed)
	}
	span.End(trace.WithTimestamp(e.Start.Add(e.Duration)))
}

// requestName returns the name of a request's span, without IDs: PUT actions, HEAD plans, GET list.
func requestName(e azblob.RequestEvent) string {
	what := e.Name
	switch e.Name {
	case "put", "get", "head", "delete":
		what, _, _ = strings.Cut(e.Blob, "/")
	}
	return e.Method + " " + what
}

func (v *vault) transferred(ctx context.Context, bytes int64, direction attribute.KeyValue) {
	if bytes > 0 {
		v.io.Add(ctx, bytes, v.with(direction))
	}
}

func (v *vault) retry(ctx context.Context, e azblob.RetryEvent) {
	kind := []attribute.KeyValue{keyRequest.String(e.Name), semconv.ErrorTypeKey.String(retryCause(e.Err))}
	v.retries.Add(ctx, 1, v.with(kind...))
	trace.SpanFromContext(ctx).AddEvent("azblob.retry", trace.WithAttributes(kind...), trace.WithAttributes(
		keyContainer.String(e.Container), keyBlob.String(e.Blob), keyTry.Int(e.Try), keyWait.Float64(e.Wait.Seconds())))
}

func (v *vault) conflict(ctx context.Context, e azblob.ConflictEvent) {
	v.conflicts.Add(ctx, 1, v.with(semconv.DBOperationName(e.Operation.Name)))
	trace.SpanFromContext(ctx).AddEvent("azblob.conflict", trace.WithAttributes(keyBlob.String(e.Blob)))
}

func (v *vault) repair(ctx context.Context, e azblob.RepairEvent) {
	result := "repaired"
	switch {
	case e.Err != nil:
		result = "failed"
	case e.Did == "":
		result = "found" // in a dry run
	}
	v.repairs.Add(ctx, 1, v.with(keyRepair.String(result)))
	trace.SpanFromContext(ctx).AddEvent("azblob.repair", trace.WithAttributes(
		keyRepair.String(result), keyPlan.String(e.ID.String()), keyFound.String(e.Found), keyDid.String(e.Did)))
}

func (v *vault) damage(ctx context.Context, e azblob.DamageEvent) {
	v.damages.Add(ctx, 1, v.with(semconv.DBOperationName(e.Operation.Name)))
	trace.SpanFromContext(ctx).AddEvent("azblob.damage", trace.WithAttributes(keyBlob.String(e.Blob)))
}
