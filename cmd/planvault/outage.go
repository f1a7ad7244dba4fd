package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob"
)

// outage notices that the service leaves requests without a good answer, and says so once. Its methods may be called
// concurrently.
type outage struct {
	say func(why error)

	saying sync.Mutex // held while say runs, and before mu

	mu     sync.Mutex
	sent   map[time.Time]int // how many requests are under way, by when they were sent
	failed time.Time         // when the first request was sent that failed since the last good answer, or zero
	why    error             // why a request failed that is sent again; nil after a good answer
	said   time.Time         // requests that were sent until then are known to be in trouble
	timer  *time.Timer       // calls look; nil if nothing is under way, or after end
	ended  bool
}

// patience is how long a request may go without a good answer before somebody is told.
const patience = 2500 * time.Millisecond

// observer returns the observer of the requests.
func (o *outage) observer() azblob.Observer {
	return azblob.Observer{
		RequestStart: func(_ context.Context, e azblob.RequestEvent) { o.begin(e.Start) },
		Request: func(_ context.Context, e azblob.RequestEvent) {
			o.finish(e.Start)
			o.answered(e.Start, e.Err == nil && e.Status < 500)
		},
		Retry: func(_ context.Context, e azblob.RetryEvent) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.why = withoutURL(e.Err)
			if o.failed.IsZero() { // it failed before a request was sent
				o.failed = time.Now()
			}
			o.wait(patience)
		},
	}
}

// begin notes that a request was sent.
func (o *outage) begin(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sent == nil {
		o.sent = map[time.Time]int{}
	}
	o.sent[at]++
	o.wait(patience)
}

// finish notes that a request has ended.
func (o *outage) finish(at time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sent[at]--; o.sent[at] <= 0 {
		delete(o.sent, at)
	}
}

// answered notes whether a request to the vault's service had a good answer.
func (o *outage) answered(at time.Time, good bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case good:
		o.failed, o.why = time.Time{}, nil
	case o.failed.IsZero():
		o.failed = at
	}
}

// watchedLogin is a login whose service the outage watches, too.
type watchedLogin struct {
	azcore.TokenCredential
	outage *outage
}

func (l watchedLogin) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	at := time.Now()
	l.outage.begin(at)
	defer l.outage.finish(at)
	return l.TokenCredential.GetToken(ctx, o)
}

// wait makes look look after a time, unless it is about to look anyway.
func (o *outage) wait(d time.Duration) {
	if o.timer == nil && !o.ended {
		o.timer = time.AfterFunc(d, o.look)
	}
}

// look says what is wrong if a request has waited for too long.
func (o *outage) look() {
	o.saying.Lock()
	defer o.saying.Unlock()
	if why := o.news(); why != nil {
		o.say(why)
	}
}

// news returns what is wrong, unless it was said before, and looks again later while requests are under way.
func (o *outage) news() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.timer = nil
	since := o.since()
	if since.IsZero() || o.ended {
		return nil
	}
	waited := time.Since(since)
	if waited < patience {
		o.wait(patience - waited)
		return nil
	}
	o.wait(patience)
	if !since.After(o.said) {
		return nil
	}
	o.said = time.Now()
	if o.why != nil {
		return o.why
	}
	return fmt.Errorf("no answer for %s", span(waited.Round(time.Second)))
}

// since returns when the oldest request was sent that has no good answer, or the zero time.
func (o *outage) since() (oldest time.Time) {
	if o.why != nil {
		oldest = o.failed
	}
	for at := range o.sent {
		if oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}

// end makes the outage say nothing more once it has returned.
func (o *outage) end() {
	o.saying.Lock()
	defer o.saying.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	if o.timer != nil {
		o.timer.Stop()
	}
}
