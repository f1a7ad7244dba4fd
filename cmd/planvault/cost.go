package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"sync"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/internal/price"
)

// meter counts what vaults send and receive.
type meter struct {
	mu            sync.Mutex
	requests      price.Tally
	roundTrips    int
	sentBytes     int64
	receivedBytes int64
	askedToSlow   int   // answers with which the service asked for fewer requests
	unanswered    error // why the latest request had no answer; nil if it had one
	waits         bool  // retries was called, and nothing was answered since
	// retries is called once in an outage, when a request has been tried for some seconds. It may be nil.
	retries func(err error)
}

// patientTries is how many tries of a request take some seconds.
const patientTries = 5

// observer returns the observer with which the meter counts.
func (m *meter) observer() azblob.Observer {
	return azblob.Observer{
		OperationStart: func(ctx context.Context, _ azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
			return ctx, func(e azblob.OperationEnd) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.roundTrips += e.RoundTrips
			}
		},
		Request: func(_ context.Context, e azblob.RequestEvent) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.requests[e.Class]++
			m.sentBytes += e.BytesSent
			m.receivedBytes += e.BytesReceived
			if e.Status == 503 || e.Status == 429 {
				m.askedToSlow++
			}
			if !errors.Is(e.Err, context.Canceled) {
				m.unanswered = e.Err
			}
			if e.Err == nil && e.Status < 500 {
				m.waits = false
			}
		},
		Retry: func(_ context.Context, e azblob.RetryEvent) {
			m.mu.Lock()
			defer m.mu.Unlock()
			if e.Try >= patientTries && !m.waits && m.retries != nil {
				m.waits = true
				m.retries(e.Err)
			}
		},
	}
}

// sent returns the number of requests so far.
func (m *meter) sent() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.requests.Total()
}

// slowed returns how many answers so far asked for fewer requests.
func (m *meter) slowed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.askedToSlow
}

// trouble says why the latest request had no answer, or returns nil if it had one.
func (m *meter) trouble() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.unanswered == nil {
		return nil
	}
	return fmt.Errorf("the latest request had no answer: %w", withoutURL(m.unanswered))
}

// withoutURL returns an error without the URL of the request, which may have a signature.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// tally returns a copy of what was sent so far.
func (m *meter) tally() price.Tally {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.requests)
}

// String says in a line what was sent, and what it costs.
func (m *meter) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var classes []string
	for _, c := range price.Classes {
		if n := m.requests[c]; n > 0 {
			classes = append(classes, fmt.Sprintf("%s %s", count(n), c))
		}
	}
	kinds := ""
	if len(classes) > 0 {
		kinds = " (" + strings.Join(classes, ", ") + ")"
	}
	return fmt.Sprintf("cost: %s%s, %s, %s sent, %s received, %s", plural(m.requests.Total(), "request"), kinds,
		plural(m.roundTrips, "round trip"), byteSize(m.sentBytes), byteSize(m.receivedBytes), dollars(m.requests.Dollars()))
}
