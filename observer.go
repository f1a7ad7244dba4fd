package azblob

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
)

// Observer is told what a vault does. Each function may be nil. They are called from the goroutine that does the work, many
// at a time, and hold it up while they run. The vault itself logs nothing.
type Observer struct {
	// Request is called after each HTTP request.
	Request func(Request)
	// Retry is called when a try of a request failed, before the wait for the next one.
	Retry func(Retried)
	// Commit is called when a write of a plan, or of a part of one, has become durable.
	Commit func(Commit)
	// Conflict is called when a write met a version that it did not know.
	Conflict func(Conflict)
	// Repair is called for each plan on which Recovery did something, or could not.
	Repair func(RecoveredPlan)
}

// Request tells of one HTTP request.
type Request struct {
	// Op is what the request was for: put, get, head, delete, delete batch, list, list containers, create container, head
	// container.
	Op string
	// Container and Blob are what it was about; for a list, Blob is the prefix of the names.
	Container, Blob string
	Method          string
	// URL may carry the signature of a shared access signature.
	URL *url.URL
	// Status is the answer's HTTP status, 0 when there was none.
	Status int
	// RequestID is the service's own name for the request, which its support asks for.
	RequestID string
	// Took is the time until the answer's header.
	Took time.Duration
	// Err says why there was no answer.
	Err error
}

// Retried tells that a try of a request failed and another follows.
type Retried struct {
	Op, Container, Blob string
	// Try is the try that failed, 1 for the first.
	Try int
	// Wait is the time until the next try.
	Wait time.Duration
	Err  error
}

// Commit tells that a write has become durable.
type Commit struct {
	// Op is the vault's method.
	Op   string
	Plan uuid.UUID
	// Took is how long the method took.
	Took time.Duration
}

// Conflict tells that a write met a version that it did not know.
type Conflict struct {
	Op   string
	Plan uuid.UUID
	Err  error
}

// LogObserver writes what it is told to a logger: requests as debug messages, commits as info, the rest as warnings. URLs
// are left out.
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

// Tee tells several observers, in their order.
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

// tell calls an observer's function, if there is one.
func notify[T any](f func(T), event T) {
	if f != nil {
		f(event)
	}
}

// requests and retries adapt the observer to the blob client; nil where nobody listens.
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

// RecoveredPlan says what was done about one plan.
type RecoveredPlan struct {
	ID uuid.UUID
	// Found says what was wrong, Did what was done about it: "" when nothing could be, or in a dry run.
	Found, Did string
	// Err says why it could not be mended; nil otherwise.
	Err error
}
