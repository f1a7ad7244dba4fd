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
	"github.com/planvault/azblob/cmd/planvault/internal/web"
	"github.com/planvault/azblob/internal/price"
)

// meter counts what vaults send and receive.
type meter struct {
	mu   sync.Mutex
	sums traffic
}

// traffic is what was sent and received up to some time.
type traffic struct {
	requests      price.Tally
	roundTrips    int
	sentBytes     int64
	receivedBytes int64
	askedToSlow   int   // answers with which the service asked for fewer requests
	unanswered    error // why the latest request had no answer; nil if it had one
}

// observer returns the observer with which the meter counts.
func (m *meter) observer() azblob.Observer {
	return azblob.Observer{
		OperationStart: func(ctx context.Context, _ azblob.Operation) (context.Context, func(azblob.OperationEnd)) {
			return ctx, func(e azblob.OperationEnd) {
				m.mu.Lock()
				defer m.mu.Unlock()
				m.sums.roundTrips += e.RoundTrips
			}
		},
		Request: func(ctx context.Context, e azblob.RequestEvent) {
			web.Observer().Request(ctx, e)
			m.mu.Lock()
			defer m.mu.Unlock()
			m.sums.requests[e.Class]++
			m.sums.sentBytes += e.BytesSent
			m.sums.receivedBytes += e.BytesReceived
			if e.Status == 503 || e.Status == 429 {
				m.sums.askedToSlow++
			}
			if !errors.Is(e.Err, context.Canceled) {
				m.sums.unanswered = e.Err
			}
		},
	}
}

// traffic returns a copy of the sums so far.
func (m *meter) traffic() traffic {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.sums
	t.requests = maps.Clone(t.requests)
	return t
}

// withoutURL returns an error without the URL of the request, which may have a signature.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// String says in a line what was sent, and what it costs.
func (t traffic) String() string {
	var classes []string
	for _, c := range price.Classes {
		if n := t.requests[c]; n > 0 {
			classes = append(classes, fmt.Sprintf("%s %s", count(n), c))
		}
	}
	kinds := ""
	if len(classes) > 0 {
		kinds = " (" + strings.Join(classes, ", ") + ")"
	}
	return fmt.Sprintf("cost: %s%s, %s, %s sent, %s received, %s", plural(t.requests.Total(), "request"), kinds,
		plural(t.roundTrips, "round trip"), byteSize(t.sentBytes), byteSize(t.receivedBytes), dollars(t.requests.Dollars()))
}
