package fleet

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		o             Options
		interval, ttl time.Duration
		field         string // the one that is wrong
	}{
		{Options{}, 10 * time.Second, 30 * time.Second, ""},
		{Options{Interval: time.Second}, time.Second, 30 * time.Second, ""},
		{Options{Interval: 20 * time.Second}, 20 * time.Second, time.Minute, ""},
		{Options{Interval: time.Second, TTL: 3 * time.Second}, time.Second, 3 * time.Second, ""},
		{Options{TTL: time.Minute, Capacity: 1}, 10 * time.Second, time.Minute, ""},
		{Options{Interval: time.Second - 1}, 0, 0, "Options.Interval"},
		{Options{Interval: -1}, 0, 0, "Options.Interval"},
		{Options{TTL: 30*time.Second - 1}, 0, 0, "Options.TTL"},
		{Options{TTL: -1}, 0, 0, "Options.TTL"},
		{Options{Interval: math.MaxInt64 / 2}, 0, 0, "Options.TTL"},
		{Options{Interval: math.MaxInt64 / 2, TTL: math.MaxInt64}, 0, 0, "Options.TTL"},
		{Options{Capacity: -1}, 0, 0, "Options.Capacity"},
		{Options{Gauges: -1}, 0, 0, "Options.Gauges"},
		{Options{Gauges: time.Millisecond, NoGauges: true}, 0, 0, "Options.Gauges"},
	} {
		o, err := test.o.complete()
		if test.field == "" {
			if err != nil || o.Interval != test.interval || o.TTL != test.ttl {
				t.Errorf("%+v: interval %v, TTL %v, %v", test.o, o.Interval, o.TTL, err)
			}
			if o.patience() >= o.retry() || o.Interval+o.retry()+maxGap(o.TTL) > o.TTL {
				t.Errorf("%+v: a heartbeat takes up to %v, and is tried again after %v", test.o, o.patience(), o.retry())
			}
			continue
		}
		field, ok := errors.AsType[*workflow.FieldError](err)
		if !errors.Is(err, storage.ErrInvalid) || !ok || field.Field != test.field {
			t.Errorf("%+v: %v, want ErrInvalid for %s", test.o, err, test.field)
		}
	}
	_, err := Options{Interval: 1, TTL: 1, Capacity: -1}.complete()
	if joined, ok := errors.AsType[*storage.Error](err); !ok || len(joined.Err.(interface{ Unwrap() []error }).Unwrap()) != 3 {
		t.Errorf("three faults: %v", err)
	}
}

// TestStandings enumerates how a running plan stands to a node.
func TestStandings(t *testing.T) {
	self, other := workflow.NewV7(), workflow.NewV7()
	for _, test := range []struct {
		what                string
		owner               [16]byte
		epoch               int64
		external            string
		held, takeUnclaimed bool
		want                standing
	}{
		{"the node's own plan, at work", self, 3, "", true, false, free},
		{"the node's own plan, let go", self, 3, "", false, false, free},
		{"taken by another", other, 4, "", true, false, lost},
		{"taken by another, who let go", [16]byte{}, 4, "", true, false, lost},
		{"of another", other, 1, "", false, false, owned},
		{"of another, while unclaimed ones may be taken", other, 1, "", false, true, owned},
		{"begun without a claim", [16]byte{}, 0, "", false, false, unclaimed},
		{"begun without a claim, which may be taken", [16]byte{}, 0, "", false, true, free},
		{"let go", [16]byte{}, 2, "", false, false, free},
		{"placed by an engine of another kind", other, 2, "queue", false, true, outside},
		{"the same, which the node has taken", self, 2, "queue", false, false, free},
	} {
		p := storage.ListResult{Owner: test.owner, Epoch: test.epoch, External: test.external}
		if got := standingOf(p, self, test.held, Options{TakeUnclaimed: test.takeUnclaimed}); got != test.want {
			t.Errorf("%s: %d, want %d", test.what, got, test.want)
		}
	}
}
