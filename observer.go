package azblob

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
)

// Observer has functions that a vault calls when something happens. Each may be nil. A function is called
// from the goroutine that does the work, and delays it while it runs; many calls may run at a time. The vault
// itself logs nothing.
type Observer struct {
	// Request is called after each HTTP request.
	Request func(Request)
	// Retry is called when a try of a request has failed, before the wait for the next one.
	Retry func(Retried)
	// Commit is called when a write of a plan, a sub-object, a member or a stop request has become durable.
	Commit func(Commit)
	// Conflict is called when a write met a version that its caller does not know.
	Conflict func(Conflict)
	// Repair is called for each plan that Recovery repaired, or could not repair.
	Repair func(RecoveredPlan)
}

// Request is one HTTP request.
type Request struct {
	// Op is the operation: put, get, head, delete, delete batch, list, list containers, create container,
	// head container.
	Op string
	// Container and Blob are what the request was about. For a list, Blob is the prefix of the names.
	Container, Blob string
	Method          string
	// URL may contain the signature of a shared access signature.
	URL *url.URL
	// Status is the HTTP status of the answer, 0 if there was none.
	Status int
	// RequestID is the service's own name for the request. Azure support asks for it.
	RequestID string
	// Took is the time until the header of the answer.
	Took time.Duration
	// Err says why there was no answer.
	Err error
}

// Retried is a failed try of a request that will be tried again.
type Retried struct {
	Op, Container, Blob string
	// Try is the number of the try that failed, from 1.
	Try int
	// Wait is the time until the next try.
	Wait time.Duration
	Err  error
}

// Commit is a write that has become durable.
type Commit struct {
	// Op is the vault's method.
	Op string
	// Plan is uuid.Nil for the record of a member.
	Plan uuid.UUID
	// Took is how long the method took.
	Took time.Duration
}

// Conflict is a write that met a version that its caller does not know.
type Conflict struct {
	// Op is the vault's method.
	Op string
	// Plan is uuid.Nil for the record of a member.
	Plan uuid.UUID
	Err  error
}

// RecoveredPlan is a plan that Recovery repaired, or could not repair.
type RecoveredPlan struct {
	ID uuid.UUID
	// Found says what was wrong. Did says what was done about it; it is "" if nothing could be done, or in a
	// dry run.
	Found, Did string
	// Err says why the plan could not be repaired; otherwise it is nil.
	Err error
}

// LogObserver returns an observer that writes to a logger: requests at level debug, commits at info,
// everything else at warn. It leaves out URLs.
func LogObserver(l *slog.Logger) Observer {
	log := func(level slog.Level, msg string, args ...any) {
		l.Log(context.Background(), level, msg, args...)
	}
	return Observer{
		Request: func(r Request) {
			log(slog.LevelDebug, "request", "op", r.Op, "container", r.Container, "blob", r.Blob, "status", r.Status,
				"requestID", r.RequestID, "took", r.Took, "err", r.Err)
		},
		Retry: func(r Retried) {
			log(slog.LevelWarn, "retry", "op", r.Op, "container", r.Container, "blob", r.Blob, "try", r.Try, "wait", r.Wait, "err", r.Err)
		},
		Commit:   func(c Commit) { log(slog.LevelInfo, "commit", "op", c.Op, "plan", c.Plan, "took", c.Took) },
		Conflict: func(c Conflict) { log(slog.LevelWarn, "conflict", "op", c.Op, "plan", c.Plan, "err", c.Err) },
		Repair: func(r RecoveredPlan) {
			log(slog.LevelWarn, "repair", "plan", r.ID, "found", r.Found, "did", r.Did, "err", r.Err)
		},
	}
}

// Tee returns an observer that calls several observers, in their order.
func Tee(observers ...Observer) Observer {
	return Observer{
		Request:  tee(observers, func(o Observer) func(Request) { return o.Request }),
		Retry:    tee(observers, func(o Observer) func(Retried) { return o.Retry }),
		Commit:   tee(observers, func(o Observer) func(Commit) { return o.Commit }),
		Conflict: tee(observers, func(o Observer) func(Conflict) { return o.Conflict }),
		Repair:   tee(observers, func(o Observer) func(RecoveredPlan) { return o.Repair }),
	}
}

func tee[T any](observers []Observer, pick func(Observer) func(T)) func(T) {
	return func(event T) {
		for _, o := range observers {
			notify(pick(o), event)
		}
	}
}

// notify calls a function of an observer unless it is nil.
func notify[T any](f func(T), event T) {
	if f != nil {
		f(event)
	}
}

// requests and retries adapt the observer to the blob client. They return nil if the observer has no such
// function.
func (o Observer) requests() func(blob.RequestEvent) {
	if o.Request == nil {
		return nil
	}
	return func(e blob.RequestEvent) {
		o.Request(Request{e.Op, e.Ref.Container, e.Ref.Name, e.Method, e.URL, e.Status, e.RequestID, e.Took, e.Err})
	}
}

func (o Observer) retries() func(blob.RetryEvent) {
	if o.Retry == nil {
		return nil
	}
	return func(e blob.RetryEvent) {
		o.Retry(Retried{e.Op, e.Ref.Container, e.Ref.Name, e.Try, e.Wait, e.Err})
	}
}
