package emulator_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// TestLeases moves the lease of a container through its states, as the service documents them.
func TestLeases(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	const (
		a = "0190a3c0-0000-7000-8000-00000000000a"
		b = "0190a3c0-0000-7000-8000-00000000000b"
	)
	type step struct {
		do     string
		id     string
		n      string // duration, or break period
		status int
		code   string
		state  string // afterwards
	}
	of := func(do string) func(string, int, string, string) step {
		return func(id string, status int, code, state string) step { return step{do, id, "", status, code, state} }
	}
	renew, release, remove := of("renew"), of("release"), of("delete")
	acquire := func(id, n string, status int, code, state string) step {
		return step{"acquire", id, n, status, code, state}
	}
	end := func(n string, status int, code, state string) step { return step{"break", "", n, status, code, state} }
	wait := func(n, state string) step { return step{"wait", "", n, 0, "", state} }
	const (
		none      = "available"
		fixed     = "leased fixed"
		infinite  = "leased infinite"
		mismatch  = "LeaseIdMismatchWithLeaseOperation"
		noLease   = "LeaseNotPresentWithLeaseOperation"
		noLeaseOn = "LeaseNotPresentWithContainerOperation"
	)
	for name, steps := range map[string][]step{
		"available": {
			renew(a, 409, mismatch, none), release(a, 409, mismatch, none), end("", 409, noLease, none),
			remove(a, 412, noLeaseOn, none), remove("", 202, "", "gone"), acquire(a, "15", 404, "ContainerNotFound", "gone"),
		},
		"fixed": {
			acquire(a, "15", 201, "", fixed), acquire(b, "15", 409, "LeaseAlreadyPresent", fixed), renew(b, 409, mismatch, fixed),
			release(b, 409, mismatch, fixed), remove("", 412, "LeaseIdMissing", fixed), remove(b, 412, "LeaseIdMismatchWithContainerOperation", fixed),
			wait("14", fixed), renew(a, 200, "", fixed), wait("14", fixed), acquire(a, "60", 201, "", fixed), wait("59", fixed),
			remove("0190A3C0-0000-7000-8000-00000000000A", 202, "", "gone"),
		},
		"expired": {
			acquire(a, "15", 201, "", fixed), wait("15", "expired"), remove(a, 412, noLeaseOn, "expired"), renew(b, 409, mismatch, "expired"),
			renew(a, 200, "", fixed), wait("15", "expired"), acquire(b, "-1", 201, "", infinite), renew(a, 409, mismatch, infinite),
			wait("60", infinite), renew(b, 200, "", infinite), release(b, 200, "", none), release(b, 409, mismatch, none),
		},
		"expired and released": {acquire(a, "15", 201, "", fixed), wait("15", "expired"), release(a, 200, "", none)},
		"expired and broken":   {acquire(a, "15", 201, "", fixed), wait("15", "expired"), end("60", 202, "", "broken")},
		"expired and removed":  {acquire(a, "15", 201, "", fixed), wait("15", "expired"), remove("", 202, "", "gone")},
		"broken": {
			acquire(a, "-1", 201, "", infinite), end("", 202, "", "broken"), end("20", 202, "", "broken"),
			renew(a, 409, "LeaseIsBrokenAndCannotBeRenewed", "broken"), remove(a, 412, noLeaseOn, "broken"), acquire(b, "30", 201, "", fixed),
		},
		"breaking": {
			acquire(a, "-1", 201, "", infinite), end("30", 202, "", "breaking"), acquire(a, "15", 409, "LeaseIsBreakingAndCannotBeAcquired", "breaking"),
			acquire(b, "15", 409, "LeaseAlreadyPresent", "breaking"), renew(a, 409, "LeaseIsBrokenAndCannotBeRenewed", "breaking"),
			end("60", 202, "", "breaking"), wait("29", "breaking"), remove("", 412, "LeaseIdMissing", "breaking"), wait("1", "broken"), remove("", 202, "", "gone"),
		},
		"breaking and released":   {acquire(a, "-1", 201, "", infinite), end("30", 202, "", "breaking"), release(a, 200, "", none)},
		"breaking and removed":    {acquire(a, "-1", 201, "", infinite), end("30", 202, "", "breaking"), remove(a, 202, "", "gone")},
		"a break without period":  {acquire(a, "20", 201, "", fixed), wait("5", fixed), end("", 202, "", "breaking"), wait("14", "breaking"), wait("1", "broken")},
		"a break is no extension": {acquire(a, "20", 201, "", fixed), end("60", 202, "", "breaking"), wait("20", "broken")},
		"a break at once":         {acquire(a, "20", 201, "", fixed), end("0", 202, "", "broken")},
		"bad requests": {
			acquire(a, "14", 400, "InvalidHeaderValue", none), acquire(a, "61", 400, "InvalidHeaderValue", none), acquire(a, "", 400, "MissingRequiredHeader", none),
			acquire("a", "15", 400, "InvalidHeaderValue", none), acquire(a, "x", 400, "InvalidHeaderValue", none), end("61", 400, "InvalidHeaderValue", none),
			{"steal", a, "", 400, "InvalidHeaderValue", none},
			{"", a, "", 400, "MissingRequiredHeader", none},
			{"renew", "", "", 400, "MissingRequiredHeader", none},
			{"change", a, "", 501, "NotImplemented", none},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var clock atomic.Int64
			now := func() time.Time { return time.Unix(1_800_000_000+clock.Load(), 0) }
			path := filepath.Join(t.TempDir(), "account")
			s, err := emulator.Open(path, emulator.WithClock(now))
			must(t, err)
			s.PutContainer("plans", nil)
			for i, step := range steps {
				if step.do == "wait" {
					d, _ := time.ParseDuration(step.n + "s")
					clock.Add(int64(d / time.Second))
				} else {
					resp := lease(t, s, step.do, step.id, step.n)
					if code := resp.Header.Get("x-ms-error-code"); resp.StatusCode != step.status || code != step.code {
						t.Fatalf("step %d, %+v: %d %s", i, step, resp.StatusCode, code)
					}
				}
				if state := leaseState(t, s); state != step.state {
					t.Fatalf("step %d, %+v: the state is %q", i, step, state)
				}
				must(t, s.Close())
				s, err = emulator.Open(path, emulator.WithClock(now))
				must(t, err)
				if state := leaseState(t, s); state != step.state {
					t.Fatalf("step %d, %+v: after a restart the state is %q", i, step, state)
				}
			}
			must(t, s.Close())
		})
	}
}

// lease sends an action on the lease of the container "plans", or deletes it.
func lease(t *testing.T, s *emulator.Server, action, id, n string) *http.Response {
	t.Helper()
	if action == "delete" {
		h := map[string]string{}
		if id != "" {
			h["x-ms-lease-id"] = id
		}
		resp, _ := raw(t, s, "DELETE", "/plans?restype=container", "", h)
		return resp
	}
	h := map[string]string{}
	set := func(name, value string) {
		if value != "" {
			h[name] = value
		}
	}
	set("x-ms-lease-action", action)
	switch action {
	case "acquire":
		set("x-ms-proposed-lease-id", id)
		set("x-ms-lease-duration", n)
	case "break":
		set("x-ms-lease-break-period", n)
	default:
		set("x-ms-lease-id", id)
	}
	resp, _ := raw(t, s, "PUT", "/plans?restype=container&comp=lease", "", h)
	if got := resp.Header.Get("x-ms-lease-id"); got != "" && got != id {
		t.Errorf("%s: the answer has the ID %s", action, got)
	}
	return resp
}

// leaseState returns the state as HEAD shows it, which must be as listings show it.
func leaseState(t *testing.T, s *emulator.Server) string {
	t.Helper()
	resp, _ := raw(t, s, "HEAD", "/plans?restype=container", "", nil)
	if resp.StatusCode == http.StatusNotFound {
		return "gone"
	}
	state, duration := resp.Header.Get("x-ms-lease-state"), resp.Header.Get("x-ms-lease-duration")
	listed := fmt.Sprintf("<LeaseStatus>%s</LeaseStatus><LeaseState>%s</LeaseState>", resp.Header.Get("x-ms-lease-status"), state)
	if duration != "" {
		listed += "<LeaseDuration>" + duration + "</LeaseDuration>"
		state += " " + duration
	}
	_, text := raw(t, s, "GET", "/?comp=list", "", nil)
	if !strings.Contains(text, listed) {
		t.Errorf("the listing lacks %s: %s", listed, text)
	}
	return state
}
