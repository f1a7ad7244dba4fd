package fleet

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/storage"
)

// judge decides which members are dead, by the store's clock alone. A member is dead when its record is older
// than the TTL and the judge has watched for longer than the TTL. After an outage or a freeze of its own, the judge
// begins a new watch, which gives everybody time to renew.
type judge struct {
	self        uuid.UUID
	ttl         time.Duration
	since, last time.Time     // the first and the last look of the present watch
	lapse       time.Duration // the longest time between two of the judge's own heartbeats since the last look
}

// look notes a roster, and returns the members that are dead.
func (j *judge) look(r storage.Roster) (dead []storage.Member) {
	if max(j.lapse, r.Now.Sub(j.last)) > maxGap(j.ttl) || r.Now.Before(j.since) || !j.heard(r) {
		j.since = r.Now
	}
	j.last = r.Now
	watched := r.Now.Sub(j.since)
	for _, m := range r.Members {
		if m.ID != j.self && m.Phase != storage.PhaseLeft && silent(r.Now.Sub(m.Renewed), watched, max(j.ttl, m.TTL)) {
			dead = append(dead, m)
		}
	}
	return dead
}

// heard reports whether the judge's own heartbeats arrive. If not, those of others may not arrive either, as in an outage
// that lets reads through. If they have just resumed, lapse still shows the gap.
func (j *judge) heard(r storage.Roster) bool {
	return slices.ContainsFunc(r.Members, func(m storage.Member) bool {
		return m.ID == j.self && r.Now.Sub(m.Renewed) <= maxGap(j.ttl)
	})
}

// next returns the time until an overdue member will be dead, or the TTL. All judges then learn of a death at the same
// time, which spreads the plans among them.
func (j *judge) next(r storage.Roster) time.Duration {
	next := j.ttl
	for _, m := range r.Members {
		ttl := max(j.ttl, m.TTL)
		if age := r.Now.Sub(m.Renewed); m.ID != j.self && m.Phase != storage.PhaseLeft && age > ttl/2 && age <= ttl {
			next = min(next, ttl-age+resolution)
		}
	}
	return next
}

// resolution is the resolution of a store's clock.
const resolution = time.Second

// silent reports whether a record of this age shows a death to a judge that has watched for this long.
func silent(age, watched, ttl time.Duration) bool { return min(age, watched) > ttl }

// maxGap is the longest time between two looks of one watch. An outage of this length may begin just before a
// heartbeat takes effect, and the member then waits up to 35 % of its interval before it tries again:
//
//	interval + maxGap + 0.35 interval + 2 heartbeats <= TTL, and TTL >= 3 intervals
//
// Half the TTL leaves 7.5 % of an interval for a heartbeat. A judge that looks each third of its TTL may lose one look.
func maxGap(ttl time.Duration) time.Duration { return ttl / 2 }
