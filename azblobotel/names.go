package azblobotel

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/planvault/azblob"
)

// The attributes that the semantic conventions lack.
const (
	keyOutcome   = attribute.Key("azblob.outcome")
	keyRequest   = attribute.Key("azblob.request.name")
	keyClass     = attribute.Key("azblob.request.class")
	keyRepair    = attribute.Key("azblob.repair.result")
	keyStatus    = attribute.Key("azblob.plan.status")
	keyReason    = attribute.Key("azblob.stuck.reason")
	keyMember    = attribute.Key("azblob.member.state")
	keyName      = attribute.Key("azblob.node.name")
	keyNode      = attribute.Key("azblob.fleet.node")
	keyCopy      = attribute.Key("azblob.copy.name")
	keyKeyName   = attribute.Key("azblob.key.name")
	keyKeyKind   = attribute.Key("azblob.key.kind")
	keyPlan      = attribute.Key("azblob.plan.id") // this one and the following are for spans alone
	keyContainer = attribute.Key("azblob.container")
	keyBlob      = attribute.Key("azblob.blob")
	keyRequests  = attribute.Key("azblob.requests")
	keyTrips     = attribute.Key("azblob.round_trips")
	keySent      = attribute.Key("azblob.sent")     // bytes
	keyReceived  = attribute.Key("azblob.received") // bytes
	keyTry       = attribute.Key("azblob.retry.try")
	keyWait      = attribute.Key("azblob.retry.wait") // seconds
	keyFound     = attribute.Key("azblob.repair.found")
	keyDid       = attribute.Key("azblob.repair.did")
	keyEpoch     = attribute.Key("azblob.fleet.epoch")
	keyFrom      = attribute.Key("azblob.fleet.from")
	keyRounds    = attribute.Key("azblob.fleet.rounds")
)

// system is the db.system.name. The conventions have no value for Blob Storage.
var system = semconv.DBSystemNameKey.String("azure.blob")

// boundaries are the upper bounds of the buckets of durations, in seconds: those of the semantic conventions
// for databases, finer ones among them, and some for calls that wait for retries.
var boundaries = metric.WithExplicitBucketBoundaries(
	0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300)

// failure returns the error.type of an operation, or "" if it did not fail.
func failure(outcome azblob.Outcome, err error) string {
	switch outcome {
	case azblob.OutcomeOK, azblob.OutcomeNotFound, azblob.OutcomeExists, azblob.OutcomeConflict, azblob.OutcomeHeld, azblob.OutcomeClosed, azblob.OutcomeForeign:
		return ""
	case azblob.OutcomeCanceled:
		if errors.Is(err, context.DeadlineExceeded) {
			return "timeout"
		}
		return ""
	}
	return string(outcome)
}

// requestFailure returns the error.type of a request, or "" if it did not fail.
func requestFailure(status int, err error) string {
	late, isNet := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded), isNet && late.Timeout():
		return "timeout"
	case status >= 500, status == http.StatusUnauthorized, status == http.StatusForbidden, status == http.StatusRequestTimeout,
		status == http.StatusTooManyRequests:
		return strconv.Itoa(status)
	case err != nil:
		return "no_answer"
	}
	return ""
}

// retryCause returns the error.type of a try that failed.
func retryCause(err error) string {
	if answer, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return strconv.Itoa(answer.StatusCode)
	}
	return requestFailure(0, err)
}

// short returns the text of an error, or its beginning: that of Recovery names every plan that is damaged.
func short(err error) string {
	const longest = 1000
	text := err.Error()
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// withFailure appends the attribute error.type unless failed is "".
func withFailure(attrs []attribute.KeyValue, failed string) []attribute.KeyValue {
	if failed != "" {
		attrs = append(attrs, semconv.ErrorTypeKey.String(failed))
	}
	return attrs
}

// instruments makes the instruments of a meter, and keeps the errors.
type instruments struct {
	metric.Meter
	errs []error
}

func (i *instruments) counter(name, unit, about string) metric.Int64Counter {
	c, err := i.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
	i.errs = append(i.errs, err)
	return c
}

func (i *instruments) gauge(name, unit, about string) metric.Int64UpDownCounter {
	c, err := i.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
	i.errs = append(i.errs, err)
	return c
}

func (i *instruments) observed(name, unit, about string) metric.Int64ObservableGauge {
	g, err := i.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(about))
	i.errs = append(i.errs, err)
	return g
}

func (i *instruments) observedTime(name, about string) metric.Float64ObservableGauge {
	g, err := i.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(about))
	i.errs = append(i.errs, err)
	return g
}

func (i *instruments) duration(name, about string) metric.Float64Histogram {
	h, err := i.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), boundaries)
	i.errs = append(i.errs, err)
	return h
}
