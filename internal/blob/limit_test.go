package blob

import (
	"context"
	"math"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// TestLimit checks how the limit follows what the service says, for one operation that always has more to send.
func TestLimit(t *testing.T) {
	round := func(l *limiter, o *operation, r result) { // ends all that were in flight at its begin
		era := l.era
		for range l.inFlight {
			l.begin(o)
			l.end(era, r)
		}
	}
	for _, test := range []struct {
		what   string
		most   int
		rounds []result
		want   float64
	}{
		{"nothing happened", 64, nil, 64},
		{"success at the most", 64, []result{succeeded, succeeded}, 64},
		{"a round of refusals counts once", 64, []result{overload}, 32},
		{"a storm", 64, []result{overload, overload, overload, overload, overload, overload, overload}, fewest},
		{"few", 3, []result{overload, overload}, 3},
		{"one", 1, []result{overload, succeeded}, 1},
		{"a round of success", 256, []result{overload, succeeded}, 129},
		{"success up to the most", 8, []result{overload, succeeded, succeeded, succeeded, succeeded, succeeded, succeeded}, 8},
		{"what says nothing", 256, []result{overload, unclear, unclear}, 128},
	} {
		l, o := newLimiter(test.most), &operation{}
		for range test.most {
			l.begin(o)
		}
		for _, r := range test.rounds {
			round(l, o, r)
		}
		if math.Abs(l.limit-test.want) > 0.3 || l.inFlight < int(l.limit) {
			t.Errorf("%s: the limit is %.1f with %d in flight, want %.0f", test.what, l.limit, l.inFlight, test.want)
		}
	}

	l, o := newLimiter(64), &operation{}
	for range 10 {
		l.begin(o)
	}
	l.end(l.era, overload)
	if l.limit != 5 {
		t.Errorf("one of 10 in flight was refused: the limit is %.1f, want half of them", l.limit)
	}
	for l.inFlight > 0 {
		l.end(l.era, unclear)
	}
	for range 20 {
		l.begin(o)
		l.end(l.era, succeeded)
	}
	if l.limit != 5 {
		t.Errorf("the limit rose to %.1f while most of it was not used", l.limit)
	}
}

// TestTurns checks who goes when an attempt ends. Operations are letters; an attempt with an x has left.
func TestTurns(t *testing.T) {
	l := newLimiter(1)
	operations := map[byte]*operation{'a': {}, 'b': {}, 'c': {}}
	era, waits := l.begin(operations['a'])
	if waits != nil {
		t.Fatal("the first attempt waits")
	}
	names := map[*attempt]string{}
	for name := range strings.FieldsSeq("a1 a2 a3 b1 b2x b3 c1") {
		_, a := l.begin(operations[name[0]])
		names[a], a.left = name, strings.HasSuffix(name, "x")
	}
	var got []string
	for l.inFlight == 1 {
		l.end(era, succeeded)
		for a, name := range names {
			select {
			case <-a.ready:
				got = append(got, name)
				delete(names, a)
			default:
			}
		}
	}
	if want := "a1 b1 c1 a2 a3 b3"; strings.Join(got, " ") != want || l.inFlight != 0 || len(l.next) != 0 {
		t.Errorf("%q, want %q; %d are in flight, %d operations wait", got, want, l.inFlight, len(l.next))
	}
}

// TestLimitFollowsTheService sends attempts to a service that refuses all beyond a number in flight. The
// refusals are few, and most of the service is used.
func TestLimitFollowsTheService(t *testing.T) {
	for _, capacity := range []int32{8, 40, 200, 1000} {
		synctest.Test(t, func(t *testing.T) {
			const each = 10 * time.Millisecond
			attempts := efforttest.Pick[int32](10_000, 20_000, 20_000)
			s := slots{limiter: newLimiter(256)}
			var served, refused, inFlight atomic.Int32
			var wg sync.WaitGroup
			began := time.Now()
			ctx := AsOperation(t.Context())
			for range 300 {
				wg.Go(func() {
					for served.Load() < attempts {
						era, _ := s.take(ctx)
						busy := inFlight.Add(1) > capacity
						time.Sleep(each)
						inFlight.Add(-1)
						if !busy {
							served.Add(1)
							s.give(era, succeeded)
							continue
						}
						refused.Add(1)
						s.give(era, overload)
						time.Sleep(200 * time.Millisecond)
					}
				})
			}
			wg.Wait()
			ideal := time.Duration(attempts/min(capacity, 256)) * each
			took := time.Since(began)
			if share := float64(refused.Load()) / float64(served.Load()); share > 0.2 || took > ideal*5/2 {
				t.Errorf("capacity %d: %.3f refused for each served, %v, ideal is %v", capacity, share, took, ideal)
			}
		})
	}
}

// endsWith is a context that ends when somebody begins to wait for its end.
type endsWith struct {
	context.Context
	end func()
}

func (c endsWith) Done() <-chan struct{} {
	c.end()
	return c.Context.Done()
}

// TestSlotsAfterTheEnd ends a context at the moment at which a slot becomes free. The attempt never begins.
func TestSlotsAfterTheEnd(t *testing.T) {
	for range 64 { // select chooses at random
		s := slots{limiter: newLimiter(1)}
		era, _ := s.take(t.Context())
		ctx, cancel := context.WithCancel(t.Context())
		_, ok := s.take(endsWith{ctx, func() { s.give(era, succeeded); cancel() }})
		if ok || s.inFlight != 0 {
			t.Fatalf("the attempt began: %t; %d are in flight", ok, s.inFlight)
		}
	}
}

// TestLimitRisesByAnswers lets a busy service recover while all that is asked of it is absent or has changed. These
// answers say that it keeps up.
func TestLimitRisesByAnswers(t *testing.T) {
	for what, ask := range map[string]func(ctx context.Context, c *Client) error{
		"absent": func(ctx context.Context, c *Client) error { _, err := c.Head(ctx, ref); return err },
		"absent container": func(ctx context.Context, c *Client) error {
			_, _, err := c.Get(ctx, Ref{Container: "none", Name: "b"})
			return err
		},
		"changed": func(ctx context.Context, c *Client) error {
			_, err := c.Put(ctx, Ref{Container: "box", Name: "theirs"}, nil, mine(), IfNew)
			return err
		},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Put("box", "theirs", nil, others())
			w.slots.limiter = newLimiter(64)
			w.slots.limit = fewest
			var wg sync.WaitGroup
			for range 300 {
				wg.Go(func() {
					if err := ask(t.Context(), w.Client); !Is(err, Absent, AbsentContainer, Mismatch) {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if w.slots.limit < 3*fewest {
				t.Errorf("%s: the limit is %.1f after 300 answers", what, w.slots.limit)
			}
		}, emulator.WithLatency(time.Millisecond))
	}
}

// TestFrontEndsMayBeBusy sends 1,000 calls at once to a service that serves 8 at a time, and refuses the others: with its
// marks, or without any as a front end does. As many calls succeed before the deadline.
func TestFrontEndsMayBeBusy(t *testing.T) {
	const took = 50 * time.Millisecond
	succeeded := func(refuse func(http.Header) (status int)) (n int) {
		synctest.Test(t, func(t *testing.T) {
			var inFlight atomic.Int32
			c, err := NewFromConnectionString(emulator.New().ConnectionString(), Options{
				Concurrency: 256, Retry: retry,
				Transport: sender(func(*http.Request) (*http.Response, error) {
					defer inFlight.Add(-1)
					resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"X-Ms-Request-Id": {"1"}, "X-Ms-Version": {Version}, "Etag": {`"0x1"`}, "Last-Modified": {modified}}}
					if inFlight.Add(1) > 8 {
						resp.StatusCode = refuse(resp.Header)
						time.Sleep(took / 2) // a refusal costs it time, too
						return resp, nil
					}
					time.Sleep(took)
					return resp, nil
				}),
			})
			must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			for _, err := range each(make([]Target, 1000), func(Target) error { _, err := c.Head(ctx, ref); return err }) {
				if err == nil {
					n++
				}
			}
		})
		return n
	}
	want := succeeded(func(h http.Header) int { h.Set("x-ms-error-code", "ServerBusy"); return 503 })
	for _, status := range []int{503, 429} {
		if n := succeeded(func(h http.Header) int { clear(h); return status }); n < want*9/10 {
			t.Errorf("%d of a front end: %d calls succeed; if the service itself refuses: %d", status, n, want)
		}
	}
}
