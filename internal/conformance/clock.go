package conformance

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// clock advances the clock of a service, as seen through connections of the clock. It moves all times that
// the service returns: the times of the last changes of blobs and containers by as much as the clock had been
// advanced at that time, and the times of answers by as much as it had been advanced when the request was
// sent, because these may lag behind the service's clock by seconds. A grace period of any length therefore
// passes at once, on any service.
type clock struct {
	mu    sync.Mutex
	told  time.Time // the latest time that the service returned
	jumps []jump    // in order of time
}

// jump says that from a time of the service on, its clock is ahead by a total.
type jump struct {
	from  time.Time
	ahead time.Duration
}

// pass advances the clock. Services return whole seconds, so pass waits for a new second: what is written
// before and after never has the same time.
func (c *clock) pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.jumps = append(c.jumps, jump{c.told.Add(time.Second), c.advanced() + d.Round(time.Second)})
	return nil
}

// advanced returns by how much the clock has been advanced so far. The lock is held.
func (c *clock) advanced() time.Duration {
	if len(c.jumps) == 0 {
		return 0
	}
	return c.jumps[len(c.jumps)-1].ahead
}

// sent returns what moves the time of the answer to a request that is sent now.
func (c *clock) sent() func(time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead := c.advanced()
	return func(time.Time) time.Duration { return ahead }
}

// changed returns how far the time of a change is moved. The lock is held.
func (c *clock) changed(t time.Time) (ahead time.Duration) {
	for _, j := range c.jumps {
		if !t.Before(j.from) {
			ahead = j.ahead
		}
	}
	return ahead
}

// moved returns a time as the clock shows it. It returns other texts unchanged.
func (c *clock) moved(text string, by func(time.Time) time.Duration) string {
	t, err := http.ParseTime(text)
	if err != nil {
		return text
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.After(c.told) {
		c.told = t
	}
	return t.Add(by(t)).UTC().Format(http.TimeFormat)
}

// on returns a connection on which the service has this clock.
func (c *clock) on(inner policy.Transporter) policy.Transporter { return clocked{c, inner} }

type clocked struct {
	clock *clock
	inner policy.Transporter
}

func (c clocked) CloseIdleConnections() { hangUp(c.inner) }

func (c clocked) Do(req *http.Request) (*http.Response, error) {
	sent := c.clock.sent()
	resp, err := c.inner.Do(req)
	if err != nil {
		return resp, err
	}
	for name, by := range map[string]func(time.Time) time.Duration{"Date": sent, "Last-Modified": c.clock.changed} {
		if text := resp.Header.Get(name); text != "" {
			resp.Header.Set(name, c.clock.moved(text, by))
		}
	}
	if req.Method != http.MethodGet || req.URL.Query().Get("comp") != "list" {
		return resp, nil
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	body = c.clock.movedList(body)
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}

// lastModified matches the time of a blob or a container in a listing.
var lastModified = regexp.MustCompile(`<Last-Modified>[^<]+`)

// movedList returns a listing with the times of the last changes as the clock shows them.
func (c *clock) movedList(list []byte) []byte {
	return lastModified.ReplaceAllFunc(list, func(element []byte) []byte {
		name, text, _ := strings.Cut(string(element), ">")
		return []byte(name + ">" + c.moved(text, c.changed))
	})
}
