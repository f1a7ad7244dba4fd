package emulator

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// lease is the lease of a container. The zero value is no lease. An expired or broken lease keeps its ID until it
// is released or another lease is acquired.
// https://learn.microsoft.com/rest/api/storageservices/lease-container
type lease struct {
	ID string
	// Duration is how long a fixed lease lasts; 0 means an infinite lease.
	Duration time.Duration
	// Until is the end of a fixed lease, or of the break period if the lease was broken.
	Until  time.Time
	Broken bool
}

// leaseState is a state of a lease in the words of the service.
type leaseState string

const (
	leaseAvailable leaseState = "available"
	leaseLeased    leaseState = "leased"
	leaseExpired   leaseState = "expired"
	leaseBreaking  leaseState = "breaking"
	leaseBroken    leaseState = "broken"
)

// Limits of leases.
const (
	minLease       = 15 * time.Second
	maxLease       = 60 * time.Second
	maxBreakPeriod = 60 * time.Second
)

// state returns the state at a time.
func (l lease) state(now time.Time) leaseState {
	over := !now.Before(l.Until)
	switch {
	case l.ID == "":
		return leaseAvailable
	case l.Broken && over:
		return leaseBroken
	case l.Broken:
		return leaseBreaking
	case l.Duration > 0 && over:
		return leaseExpired
	}
	return leaseLeased
}

// locked reports whether the container can be deleted only with the ID of the lease.
func (l lease) locked(now time.Time) bool {
	state := l.state(now)
	return state == leaseLeased || state == leaseBreaking
}

// has reports whether an ID is that of the lease. Their case does not matter.
func (l lease) has(id string) bool { return strings.EqualFold(l.ID, id) }

// status returns the status, the state and the type of the duration. Only an active lease has a type.
func (l lease) status(now time.Time) (status string, state leaseState, duration string) {
	status, state = "unlocked", l.state(now)
	if l.locked(now) {
		status = "locked"
	}
	switch {
	case state != leaseLeased:
	case l.Duration > 0:
		duration = "fixed"
	default:
		duration = "infinite"
	}
	return status, state, duration
}

// check returns why a request with the ID of a lease, or without an ID, may not use the container, or nil. Only
// the deletion of a leased container needs the ID.
func (l lease) check(id string, deletes bool, now time.Time) *answer {
	switch {
	case id == "" && deletes && l.locked(now):
		return failWith("LeaseIdMissing", "The container is leased.")
	case id == "" || l.locked(now) && l.has(id):
		return nil
	case l.locked(now):
		return fail("LeaseIdMismatchWithContainerOperation")
	}
	return fail("LeaseNotPresentWithContainerOperation")
}

// acquired returns the lease after an acquisition.
func (l lease) acquired(id string, duration time.Duration, now time.Time) (lease, *answer) {
	switch state := l.state(now); {
	case state == leaseBreaking && l.has(id):
		return l, fail("LeaseIsBreakingAndCannotBeAcquired")
	case l.locked(now) && !l.has(id):
		return l, fail("LeaseAlreadyPresent")
	}
	l = lease{ID: id, Duration: duration}
	if duration > 0 {
		l.Until = now.Add(duration)
	}
	return l, nil
}

// renewed returns the lease after a renewal. An expired lease can be renewed if nobody has acquired another one.
func (l lease) renewed(id string, now time.Time) (lease, *answer) {
	switch {
	case !l.has(id):
		return l, fail("LeaseIdMismatchWithLeaseOperation")
	case l.Broken:
		return l, fail("LeaseIsBrokenAndCannotBeRenewed")
	case l.Duration > 0:
		l.Until = now.Add(l.Duration)
	}
	return l, nil
}

// released returns no lease.
func (l lease) released(id string) (lease, *answer) {
	if l.ID == "" || !l.has(id) {
		return l, fail("LeaseIdMismatchWithLeaseOperation")
	}
	return lease{}, nil
}

// brokenAfter returns the lease after a break. Without a period, a fixed lease ends when it would have, and an
// infinite one at once. The lease never lasts longer because of a break.
func (l lease) brokenAfter(period time.Duration, given bool, now time.Time) (lease, *answer) {
	state := l.state(now)
	if state == leaseAvailable {
		return l, fail("LeaseNotPresentWithLeaseOperation")
	}
	end := now.Add(period)
	bounded := l.Broken || l.Duration > 0
	if bounded && (!given || l.Until.Before(end)) {
		end = l.Until
	}
	if state == leaseExpired || state == leaseBroken {
		end = now
	}
	return lease{ID: l.ID, Until: end, Broken: true}, nil
}

// leaseContainer executes the actions on the lease of a container.
func (s *Server) leaseContainer(c *call) *answer {
	ct, bad := s.conditionally(c, false)
	if bad != nil {
		return bad
	}
	after, status, bad := ct.Lease.act(c.http.Header, c.now)
	if bad != nil {
		return bad
	}
	changed := *ct
	changed.Lease = after
	s.state.putContainer(&changed)
	a := newAnswer(status)
	changed.describe(a)
	switch status {
	case http.StatusAccepted:
		left := max(0, after.Until.Sub(c.now))
		a.header.Set("X-Ms-Lease-Time", strconv.Itoa(int((left+time.Second-1)/time.Second)))
	default:
		if after.ID != "" {
			a.header.Set("X-Ms-Lease-Id", after.ID)
		}
	}
	return a
}

// act returns the lease after the action that the headers ask for, and the status of a success.
func (l lease) act(h http.Header, now time.Time) (after lease, status int, bad *answer) {
	id := h.Get("x-ms-lease-id")
	action := strings.ToLower(h.Get("x-ms-lease-action"))
	if (action == "renew" || action == "release") && id == "" {
		return l, 0, failWith("MissingRequiredHeader", "Header: x-ms-lease-id.")
	}
	switch action {
	case "acquire":
		duration, bad := seconds(h, "x-ms-lease-duration")
		if bad == nil && h.Get("x-ms-lease-duration") == "" {
			bad = failWith("MissingRequiredHeader", "Header: x-ms-lease-duration.")
		}
		if bad == nil && duration != -time.Second && (duration < minLease || duration > maxLease) {
			bad = failWith("InvalidHeaderValue", "Header: x-ms-lease-duration.")
		}
		id := h.Get("x-ms-proposed-lease-id")
		if id == "" {
			id = uuid.NewString()
		}
		if _, err := uuid.Parse(id); err != nil && bad == nil {
			bad = failWith("InvalidHeaderValue", "Header: x-ms-proposed-lease-id.")
		}
		if bad == nil {
			after, bad = l.acquired(id, max(0, duration), now)
		}
		return after, http.StatusCreated, bad
	case "renew":
		after, bad = l.renewed(id, now)
		return after, http.StatusOK, bad
	case "release":
		after, bad = l.released(id)
		return after, http.StatusOK, bad
	case "break":
		period, bad := seconds(h, "x-ms-lease-break-period")
		if bad == nil && (period < 0 || period > maxBreakPeriod) {
			bad = failWith("InvalidHeaderValue", "Header: x-ms-lease-break-period.")
		}
		if bad == nil {
			after, bad = l.brokenAfter(period, h.Get("x-ms-lease-break-period") != "", now)
		}
		return after, http.StatusAccepted, bad
	case "":
		return l, 0, failWith("MissingRequiredHeader", "Header: x-ms-lease-action.")
	case "change":
		return l, 0, failWith("NotImplemented", "Leases can't be changed.")
	}
	return l, 0, failWith("InvalidHeaderValue", "Header: x-ms-lease-action.")
}

// seconds parses a header with a number of seconds; 0 if there is none.
func seconds(h http.Header, name string) (time.Duration, *answer) {
	text := h.Get(name)
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 16)
	if err != nil {
		return 0, failWith("InvalidHeaderValue", "Header: "+name+".")
	}
	return time.Duration(n) * time.Second, nil
}
