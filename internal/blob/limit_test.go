package blob

import (
	"context"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
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

// TestResults checks what answers say about the limit. Absent and changed blobs say that the service keeps up. A front
// end may be busy, and answer without the marks of the service.
func TestResults(t *testing.T) {
	for _, test := range []struct {
		err  error
		want result
	}{
		{nil, succeeded},
		{answer(404, "BlobNotFound"), succeeded},
		{answer(404, "ContainerNotFound"), succeeded},
		{answer(412, "ConditionNotMet"), succeeded},
		{answer(409, "LeaseAlreadyPresent"), succeeded},
		{answer(503, "ServerBusy"), overload},
		{answer(429, "TooManyRequests"), overload},
		{&foreignError{status: 503}, overload},
		{&foreignError{status: 429}, overload},
		{&foreignError{status: 502}, unclear},
		{answer(500, "InternalError"), unclear},
		{answer(403, "AuthorizationFailure"), unclear},
		{io.EOF, unclear},
	} {
		if got := resultOf(test.err); got != test.want {
			t.Errorf("%v: %d, want %d", test.err, got, test.want)
		}
	}
	inFilledWorld(t, func(t *testing.T, w *world) {
		w.slots.limiter = newLimiter(64)
		w.server.Inject(emulator.On().Times(1).Do(emulator.Answer(503, "ServerBusy")))
		if _, err := w.Head(t.Context(), ref); err != nil || w.slots.limit != fewest {
			t.Errorf("after a refusal the limit is %.1f, %v", w.slots.limit, err)
		}
	})
}
