package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/planvault/azblob"
)

// outage notices that the service leaves requests without a good answer, and says so once. Its methods may be called
// concurrently.
type outage struct {
	say func(why error)

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
		RequestStart: func(_ context.Context, e azblob.RequestEvent) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.sent == nil {
				o.sent = map[time.Time]int{}
			}
			o.sent[e.Start]++
			o.wait(patience)
		},
		Request: func(_ context.Context, e azblob.RequestEvent) {
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.sent[e.Start]--; o.sent[e.Start] <= 0 {
				delete(o.sent, e.Start)
			}
			switch {
			case e.Err == nil && e.Status < 500:
				o.failed, o.why = time.Time{}, nil
			case o.failed.IsZero():
				o.failed = e.Start
			}
		},
		Retry: func(_ context.Context, e azblob.RetryEvent) {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.why = withoutURL(e.Err)
			o.wait(patience)
		},
	}
}

// wait makes look look after a time, unless it is about to look anyway.
func (o *outage) wait(d time.Duration) {
	if o.timer == nil && !o.ended {
		o.timer = time.AfterFunc(d, o.look)
	}
}

// look says what is wrong if a request has waited for too long.
func (o *outage) look() {
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

// end makes the outage say nothing more.
func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	if o.timer != nil {
		o.timer.Stop()
	}
}
