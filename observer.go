package azblob

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/tee"
	"github.com/planvault/azblob/storage"
)

// Observer has functions that a vault calls when something happens. Each may be nil. The vault itself logs
// nothing.
//
// A function is called from the goroutine that does the work, and delays it while it runs; many calls may run
// at a time. The context has the values of the operation's, and may already have ended. A function must not
// panic: the vault does not recover, and the goroutine may be one of its own.
type Observer struct {
	// OperationStart is called when a method of the vault begins, before it checks its arguments. The context
	// that it returns is used for everything the method does, and should come from ctx; nil stands for ctx.
	// End is called once, when the method has returned; it may be nil. For List and Search, an operation is a
	// range over the sequence, and ends with it, or a call that is refused.
	OperationStart func(ctx context.Context, op Operation) (_ context.Context, end func(OperationEnd))
	// RequestStart is called before each HTTP request is sent. The event has no Duration, Status, RequestID, Err or
	// received bytes yet; that of Request has the same Start.
	RequestStart func(ctx context.Context, e RequestEvent)
	// Request is called after each HTTP request, when its answer has been read.
	Request func(ctx context.Context, e RequestEvent)
	// Retry is called when a try of a request has failed, before the wait for the next one.
	Retry func(ctx context.Context, e RetryEvent)
	// Conflict is called when a method returns storage.ErrConflict or storage.ErrExists, because the stored version
	// is not the one that the caller read.
	Conflict func(ctx context.Context, e ConflictEvent)
	// Repair is called for each plan that Recovery repaired, or could not repair.
	Repair func(ctx context.Context, e RepairEvent)
	// Damage is called when a method finds a catalogue damaged. It lists the day in its place, so nothing is
	// missing; a vault calls Damage at most once an hour for each day.
	Damage func(ctx context.Context, e DamageEvent)
}

// Operation is one call of a method of the vault.
type Operation struct {
	// Name is the name of the method. Repair has that of Recovery.
	Name string
	// Plan is uuid.Nil if the method is not about one plan, and when a Create begins that makes the plan's ID.
	Plan uuid.UUID
}

// OperationEnd is what became of an operation.
type OperationEnd struct {
	Operation
	// Duration is how long the method took. For List and Search it includes the caller's loop.
	Duration time.Duration
	// Requests is the number of HTTP requests, including those that were tried again.
	Requests int
	// RoundTrips is the length of the longest chain of requests in which each began after the one before it
	// had ended. Requests that the vault sends at once may still follow each other, if their answers are quick.
	RoundTrips int
	// BytesSent and BytesReceived are those of the requests' and answers' bodies.
	BytesSent, BytesReceived int64
	// Outcome is the kind of Err.
	Outcome Outcome
	// Err is the error that the method returned. For List and Search it is the error that ended the sequence,
	// or else the first error of a plan in it.
	Err error
}

// RequestEvent is one HTTP request. It has no URL, because a URL may contain a signature.
type RequestEvent struct {
	// Operation is the operation that sent the request.
	Operation Operation
	// Name says what the request is for: put, get, head, delete, delete batch, list, list containers, create
	// container, head container, set container metadata, delete container, acquire lease, or release lease.
	// A put or delete includes the HEAD that settles its outcome.
	Name string
	// Container and Blob are what the request was about. For a list, Blob is the prefix of the names.
	Container, Blob string
	// Method is the HTTP method.
	Method string
	// Class is the class in which the service bills the request.
	Class Class
	// Try is the number of the try, from 1.
	Try int
	// Start is when the request was sent, and Duration the time until its answer was read.
	Start    time.Time
	Duration time.Duration
	// Status is the HTTP status of the answer, 0 if there was none.
	Status int
	// RequestID is the service's own name for the request. Azure support asks for it.
	RequestID string
	// BytesSent and BytesReceived are those of the bodies.
	BytesSent, BytesReceived int64
	// Err says why there was no whole answer of the service. A refusal is an answer.
	Err error
}

// Class is the class in which the service bills a request.
type Class string

// The classes. Azure's price list has a price for each.
const (
	ClassWrite  = Class(blob.ClassWrite)
	ClassList   = Class(blob.ClassList) // listings, and the creation of containers
	ClassRead   = Class(blob.ClassRead)
	ClassOther  = Class(blob.ClassOther)
	ClassDelete = Class(blob.ClassDelete) // free
)

// RetryEvent is a failed try of a request that will be tried again.
type RetryEvent struct {
	// Operation is the operation that sent the request.
	Operation Operation
	// Name, Container and Blob are those of the [RequestEvent].
	Name, Container, Blob string
	// Try is the number of the try that failed, from 1.
	Try int
	// Wait is the time until the next try.
	Wait time.Duration
	// Err is why the try failed.
	Err error
}

// ConflictEvent is a write that was refused, because the stored version is not the one that the caller read.
type ConflictEvent struct {
	Operation Operation
	// Blob is the container and name of the blob, if Err has them.
	Blob string
	// Err is the error that the method returned.
	Err error
}

// RepairEvent is a plan that Recovery repaired, or could not repair.
type RepairEvent struct {
	Operation Operation
	RepairedPlan
}

// DamageEvent is a catalogue that does not have the bytes that were written. [Admin.Catalogue] with Verify builds
// it anew.
type DamageEvent struct {
	Operation Operation
	// Blob is the container and name of the catalogue.
	Blob string
	// Err says what is damaged.
	Err error
}

// RepairedPlan is a plan that Recovery repaired, or could not repair.
type RepairedPlan struct {
	ID uuid.UUID
	// Found says what was wrong. Did says what was done about it; it is "" if nothing could be done, or in a
	// dry run.
	Found, Did string
	// Err says why the plan could not be repaired; otherwise it is nil.
	Err error
}

// observation is an operation that is observed.
type observation struct {
	observer *Observer
	Operation
	started time.Time
	meter   blob.Meter
	end     func(OperationEnd) // may be nil
}

// observationKey is the context key of the observation of an operation.
type observationKey struct{}

// errPanicked is the error of an operation that neither returned an error nor nil.
var errPanicked = errors.New("the method panicked, or the loop over its sequence did")

// observe runs a method, completes its error and reports the operation. A nil observer means that nobody observes.
func (o *Observer) observe(ctx context.Context, name string, plan uuid.UUID, do func(ctx context.Context) error) error {
	if o == nil {
		return opError(name, plan, do(ctx))
	}
	seen := &observation{observer: o, Operation: Operation{name, plan}, started: time.Now()}
	ctx = seen.start(ctx)
	err := errPanicked
	defer func() { seen.finish(ctx, err) }()
	err = opError(name, plan, do(ctx))
	return err
}

// start calls the observer and returns the context of the operation.
func (o *observation) start(ctx context.Context) context.Context {
	if o.observer.OperationStart != nil {
		var inner context.Context
		if inner, o.end = o.observer.OperationStart(ctx, o.Operation); inner != nil {
			ctx = inner
		}
	}
	return context.WithValue(blob.Metered(ctx, &o.meter), observationKey{}, o)
}

// finish tells the observer how the operation ended.
func (o *observation) finish(ctx context.Context, err error) {
	if errors.Is(err, storage.ErrConflict) || errors.Is(err, storage.ErrExists) {
		e := ConflictEvent{Operation: o.Operation, Err: err}
		if at := (*storage.Error)(nil); errors.As(err, &at) {
			e.Blob = at.Blob
		}
		notify(ctx, o.observer.Conflict, e)
	}
	if o.end != nil {
		used := o.meter.Usage()
		o.end(OperationEnd{
			Operation: o.Operation, Duration: time.Since(o.started), Requests: used.Requests, RoundTrips: used.RoundTrips,
			BytesSent: used.Sent, BytesReceived: used.Received, Outcome: OutcomeOf(err), Err: err,
		})
	}
}

// identify sets the plan of an observed operation that has made the plan's ID.
func identify(ctx context.Context, plan uuid.UUID) {
	if o, ok := ctx.Value(observationKey{}).(*observation); ok {
		o.Plan = plan
	}
}

// operationOf returns the operation of a context.
func operationOf(ctx context.Context) Operation {
	if o, ok := ctx.Value(observationKey{}).(*observation); ok {
		return o.Operation
	}
	return Operation{}
}

// notify calls a function of an observer unless it is nil.
func notify[E any](ctx context.Context, f func(context.Context, E), event E) {
	if f != nil {
		f(ctx, event)
	}
}

// empty reports whether the observer has no function.
func (o Observer) empty() bool {
	return o.OperationStart == nil && o.RequestStart == nil && o.Request == nil && o.Retry == nil && o.Conflict == nil && o.Repair == nil && o.Damage == nil
}

// requests and retries adapt functions of the observer to the blob client. They return nil if there is no such function.
func requests(f func(context.Context, RequestEvent)) func(context.Context, blob.RequestEvent) {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, e blob.RequestEvent) {
		f(ctx, RequestEvent{
			Operation: operationOf(ctx), Name: e.Op, Container: e.Ref.Container, Blob: e.Ref.Name, Method: e.Method, Class: Class(e.Class), Try: e.Try,
			Start: e.Start, Duration: e.Duration, Status: e.Status, RequestID: e.RequestID, BytesSent: e.Sent, BytesReceived: e.Received, Err: e.Err,
		})
	}
}

func (o Observer) retries() func(context.Context, blob.RetryEvent) {
	if o.Retry == nil {
		return nil
	}
	return func(ctx context.Context, e blob.RetryEvent) {
		o.Retry(ctx, RetryEvent{operationOf(ctx), e.Op, e.Ref.Container, e.Ref.Name, e.Try, e.Wait, e.Err})
	}
}

// slow is the duration from which a request is slow for LogObserver.
const slow = time.Second

// LogObserver returns an observer that writes to a logger, with the contexts of the events. It logs neither
// bodies nor URLs, and errors with [storage.Detail]. The levels are:
//
//   - error: operations that need a person (denied, corrupt, schema, failed);
//   - warn: operations that are unavailable, unknown or invalid, retries, conflicts, repairs, damage, and requests
//     that took a second or longer;
//   - info: operations that found something else than their caller expected (not_found, exists, conflict,
//     held, canceled, closed);
//   - debug: all other operations and requests.
func LogObserver(l *slog.Logger) Observer {
	return Observer{
		OperationStart: func(ctx context.Context, op Operation) (context.Context, func(OperationEnd)) {
			return ctx, func(e OperationEnd) {
				level := levelOf(e.Outcome)
				if e.Outcome == OutcomeNotFound && strings.HasPrefix(e.Operation.Name, "Find") {
					level, e.Err = slog.LevelDebug, nil // a look for what may be absent, such as the note that suspends a vault
				}
				l.LogAttrs(ctx, level, "operation", append(about(e.Operation), slog.String("outcome", string(e.Outcome)),
					slog.Duration("duration", e.Duration), slog.Int("requests", e.Requests), slog.Int("roundTrips", e.RoundTrips),
					slog.Int64("sent", e.BytesSent), slog.Int64("received", e.BytesReceived), detail(e.Err))...)
			}
		},
		Request: func(ctx context.Context, e RequestEvent) {
			level := slog.LevelDebug
			if e.Duration >= slow {
				level = slog.LevelWarn
			}
			l.LogAttrs(ctx, level, "request", append(about(e.Operation), slog.String("request", e.Name), slog.String("container", e.Container),
				slog.String("blob", e.Blob), slog.Int("try", e.Try), slog.Int("status", e.Status), slog.String("requestID", e.RequestID),
				slog.Duration("duration", e.Duration), slog.Int64("sent", e.BytesSent), slog.Int64("received", e.BytesReceived), detail(e.Err))...)
		},
		Retry: func(ctx context.Context, e RetryEvent) {
			l.LogAttrs(ctx, slog.LevelWarn, "retry", append(about(e.Operation), slog.String("request", e.Name), slog.String("container", e.Container),
				slog.String("blob", e.Blob), slog.Int("try", e.Try), slog.Duration("wait", e.Wait), detail(e.Err))...)
		},
		Conflict: func(ctx context.Context, e ConflictEvent) {
			l.LogAttrs(ctx, slog.LevelWarn, "conflict", append(about(e.Operation), slog.String("blob", e.Blob), detail(e.Err))...)
		},
		Repair: func(ctx context.Context, e RepairEvent) {
			l.LogAttrs(ctx, slog.LevelWarn, "repair", slog.String("operation", e.Operation.Name), slog.Any("plan", e.ID), slog.String("found", e.Found),
				slog.String("did", e.Did), detail(e.Err))
		},
		Damage: func(ctx context.Context, e DamageEvent) {
			l.LogAttrs(ctx, slog.LevelWarn, "damage", append(about(e.Operation), slog.String("blob", e.Blob), detail(e.Err))...)
		},
	}
}

// detail returns the attribute of an error.
func detail(err error) slog.Attr {
	if err == nil {
		return slog.Any("err", nil)
	}
	return slog.String("err", storage.Detail(err))
}

// about returns the attributes of an operation.
func about(op Operation) []slog.Attr {
	attrs := []slog.Attr{slog.String("operation", op.Name)}
	if op.Plan != uuid.Nil {
		attrs = append(attrs, slog.Any("plan", op.Plan))
	}
	return attrs
}

// levelOf returns the level at which LogObserver logs an operation.
func levelOf(o Outcome) slog.Level {
	switch o {
	case OutcomeOK:
		return slog.LevelDebug
	case OutcomeNotFound, OutcomeExists, OutcomeConflict, OutcomeHeld, OutcomeCanceled, OutcomeClosed:
		return slog.LevelInfo
	case OutcomeUnavailable, OutcomeUnknown, OutcomeInvalid:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// Tee returns an observer that calls several observers, in their order. Each OperationStart gets the context
// that the one before it returned, and the ends are called in the reverse order.
func Tee(observers ...Observer) Observer {
	t := Observer{
		RequestStart: tee.Of(observers, func(o Observer) func(context.Context, RequestEvent) { return o.RequestStart }),
		Request:      tee.Of(observers, func(o Observer) func(context.Context, RequestEvent) { return o.Request }),
		Retry:        tee.Of(observers, func(o Observer) func(context.Context, RetryEvent) { return o.Retry }),
		Conflict:     tee.Of(observers, func(o Observer) func(context.Context, ConflictEvent) { return o.Conflict }),
		Repair:       tee.Of(observers, func(o Observer) func(context.Context, RepairEvent) { return o.Repair }),
		Damage:       tee.Of(observers, func(o Observer) func(context.Context, DamageEvent) { return o.Damage }),
	}
	observers = slices.DeleteFunc(slices.Clone(observers), func(o Observer) bool { return o.OperationStart == nil })
	if len(observers) > 0 {
		t.OperationStart = func(ctx context.Context, op Operation) (context.Context, func(OperationEnd)) {
			return startAll(ctx, observers, op)
		}
	}
	return t
}

// startAll calls OperationStart of all observers.
func startAll(ctx context.Context, observers []Observer, op Operation) (context.Context, func(OperationEnd)) {
	var ends []func(OperationEnd)
	for _, o := range observers {
		inner, end := o.OperationStart(ctx, op)
		if inner != nil {
			ctx = inner
		}
		if end != nil {
			ends = append(ends, end)
		}
	}
	return ctx, func(e OperationEnd) {
		for _, end := range slices.Backward(ends) {
			end(e)
		}
	}
}
