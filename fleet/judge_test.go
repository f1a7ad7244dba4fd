package fleet

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

var epoch0 = time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return epoch0.Add(time.Duration(seconds) * time.Second) }

// TestGauger: the member looks at the open plans that joined first of those that are alive and stay.
func TestGauger(t *testing.T) {
	member := func(joined, renewed int, phase storage.Phase) storage.Member {
		return storage.Member{ID: workflow.NewV7At(at(joined)), Renewed: at(renewed), TTL: 30 * time.Second, Phase: phase}
	}
	r := storage.Roster{Now: at(100), Members: []storage.Member{
		member(1, 69, ""), member(2, 99, storage.PhaseLeft), member(3, 99, storage.PhaseLeaving), member(5, 70, "napping"), member(4, 70, ""), member(6, 99, ""),
	}}
	if got := gaugerOf(inspectRoster(r).Members); got != r.Members[4].ID {
		t.Errorf("it is %s", got)
	}
	if got := gaugerOf(inspectRoster(storage.Roster{Now: at(100), Members: r.Members[:3]}).Members); got != uuid.Nil {
		t.Errorf("of members that are dead or about to leave, it is %s", got)
	}
}

// TestJudge gives a judge the looks of each case: the time of the look, of its own last heartbeat and of the
// other member's, in seconds. The other's TTL is 30s or as given.
func TestJudge(t *testing.T) {
	self, other := workflow.NewV7At(at(0)), workflow.NewV7At(at(1))
	type look struct{ now, own, other int }
	for _, test := range []struct {
		name  string
		ttl   time.Duration
		looks []look
		dead  bool // at the last look, and at none before
	}{
		{"a member that dies", 0, []look{{0, 0, 0}, {10, 10, 0}, {20, 20, 0}, {30, 30, 0}, {31, 30, 0}}, true},
		{"a record that was old before the judge came", 0, []look{{1000, 1000, 0}, {1010, 1010, 0}, {1020, 1020, 0}, {1030, 1030, 0}, {1031, 1030, 0}}, true},
		{"a judge that is no member", 0, []look{{0, -1000, -1000}, {10, -1000, -1000}, {20, -1000, -1000}, {31, -1000, -1000}, {50, -1000, -1000}}, false},
		{"a lost look keeps the watch", 0, []look{{0, 0, 0}, {10, 10, 0}, {25, 25, 0}, {31, 25, 0}}, true},
		{"a longer pause ends the watch", 0, []look{{0, 0, 0}, {10, 10, 0}, {27, 27, 0}, {37, 37, 0}, {47, 47, 0}, {57, 57, 0}, {58, 57, 0}}, true},
		{"the judge's own heartbeats do not arrive", 0, []look{{0, 0, 0}, {10, 0, 0}, {20, 0, 0}, {30, 0, 0}, {40, 0, 0}, {50, 50, 0}, {60, 60, 0}, {70, 70, 0}, {71, 70, 0}}, true},
		{"the judge's own heartbeats do not arrive for a while", 0, []look{{0, 0, 0}, {10, 0, 0}, {20, 0, 0}, {30, 30, 0}, {31, 30, 0}}, false},
		{"a member with a longer TTL", time.Minute, []look{{0, 0, 0}, {15, 15, 0}, {30, 30, 0}, {45, 45, 0}, {60, 60, 0}, {61, 60, 0}}, true},
		{"a member with a shorter TTL", time.Second, []look{{0, 0, 0}, {15, 15, 0}, {30, 30, 0}, {31, 30, 0}}, true},
		{"the store's clock goes back", 0, []look{{100, 100, 100}, {0, 0, -100}, {10, 10, -100}, {20, 20, -100}, {30, 30, -100}, {31, 30, -100}}, true},
	} {
		j := judge{self: self, ttl: 30 * time.Second}
		if test.ttl == 0 {
			test.ttl = 30 * time.Second
		}
		for i, l := range test.looks {
			dead := j.look(storage.Roster{Now: at(l.now), Members: []storage.Member{
				{ID: self, Renewed: at(l.own), TTL: 30 * time.Second},
				{ID: other, Renewed: at(l.other), TTL: test.ttl},
			}})
			if want := test.dead && i == len(test.looks)-1; len(dead) > 1 || want != (len(dead) == 1 && dead[0].ID == other) {
				t.Errorf("%s: at %ds %v are dead, want the other: %t", test.name, l.now, dead, want)
			}
		}
	}
}

// beating is a member: it renews each interval, and after a failure again within 35 % of it.
type beating struct {
	interval, ttl time.Duration
	next, renewed time.Time
}

// until makes the heartbeats until now, of which those in an outage fail.
func (b *beating) until(now time.Time, out func(time.Time) bool, retry func(*beating) time.Duration) {
	for !b.next.After(now) {
		if out(b.next) {
			b.next = b.next.Add(retry(b))
			continue
		}
		b.renewed = b.next
		b.next = b.next.Add(b.interval)
	}
}

// TestNoLiveMemberIsJudgedDead puts judges and members with settings of their own through random outages. No
// judge finds a live member dead, and each finds a member dead that stopped, once the outages are over.
func TestNoLiveMemberIsJudgedDead(t *testing.T) {
	for seed := range efforttest.Seeds(t, 20, 300, 100_000) {
		r := rand.New(rand.NewPCG(seed, 0))
		upTo := func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }
		settings := func() (interval, ttl time.Duration) {
			interval = time.Second + upTo(30*time.Second)
			return interval, beats*interval + upTo(time.Minute)
		}
		interval, ttl := settings()
		judging, live := beating{interval: interval, ttl: ttl, next: epoch0}, beating{next: epoch0.Add(upTo(time.Second))}
		live.interval, live.ttl = settings()
		retry := func(b *beating) time.Duration { return time.Millisecond + upTo(b.interval*35/100) }
		type outage struct{ from, to time.Time }
		var outages []outage
		for from := epoch0; len(outages) < 10; {
			from = from.Add(max(interval, live.interval)).Add(upTo(3 * time.Minute)) // each heartbeat gets through
			to := from.Add(upTo(time.Duration([]int64{2, 60, 600}[r.IntN(3)]) * time.Second))
			outages = append(outages, outage{from, to})
			from = to
		}
		out := func(t time.Time) bool {
			return slices.ContainsFunc(outages, func(o outage) bool { return !t.Before(o.from) && t.Before(o.to) })
		}
		self, other := workflow.NewV7(), workflow.NewV7()
		j := judge{self: self, ttl: ttl}
		end := outages[len(outages)-1].to.Add(5 * time.Minute)
		look := func(now time.Time) []storage.Member {
			return j.look(storage.Roster{Now: now, Members: []storage.Member{
				{ID: self, Renewed: judging.renewed, TTL: judging.ttl}, {ID: other, Renewed: live.renewed, TTL: live.ttl},
			}})
		}
		now := epoch0.Add(upTo(time.Second))
		for now.Before(end) {
			judging.until(now, out, retry)
			live.until(now, out, retry)
			if !out(now) {
				if dead := look(now); len(dead) > 0 {
					t.Fatalf("seed %d: %v after the start, a judge with %v and %v found a member with %v and %v dead, renewed %v before",
						seed, now.Sub(epoch0), interval, ttl, live.interval, live.ttl, now.Sub(live.renewed))
				}
				now = now.Add(interval)
			} else {
				now = now.Add(retry(&judging))
			}
		}
		limit := max(ttl, live.ttl) + 2*interval
		for stopped := now; ; now = now.Add(interval) {
			judging.until(now, out, retry)
			if len(look(now)) > 0 {
				break
			}
			if now.Sub(stopped) > limit {
				t.Fatalf("seed %d: a member with a TTL of %v that stopped is not dead after %v", seed, live.ttl, now.Sub(stopped))
			}
		}
	}
}

func TestNextLook(t *testing.T) {
	self, other := workflow.NewV7(), workflow.NewV7()
	j := judge{self: self, ttl: 30 * time.Second}
	for _, test := range []struct {
		age  int
		ttl  time.Duration
		want time.Duration
	}{
		{0, 0, 30 * time.Second},
		{15, 0, 30 * time.Second},
		{16, 0, 15 * time.Second},
		{25, 0, 6 * time.Second},
		{30, 0, time.Second},
		{31, 0, 30 * time.Second},
		{29, time.Minute, 30 * time.Second},
		{59, time.Minute, 2 * time.Second},
	} {
		members := []storage.Member{{ID: self, Renewed: at(-20)}, {ID: other, Renewed: at(-test.age), TTL: test.ttl}}
		if got := j.next(storage.Roster{Now: at(0), Members: members}); got != test.want {
			t.Errorf("with a record of %ds and a TTL of %v the next look is after %v, want %v", test.age, test.ttl, got, test.want)
		}
	}
}
