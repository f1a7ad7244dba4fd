package web_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/cmd/planvault/web"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
)

// event is an event of a stream.
type event struct {
	name string
	data struct {
		Now   time.Time
		Title *string
		Lists map[string]struct {
			Order []string
			Rows  map[string]string
		}
		Texts map[string]string
	}
}

// events returns the events since the last call, without signs of life.
func (v *viewer) events(t *testing.T) (events []event) {
	t.Helper()
	events, _ = v.take(t)
	return events
}

// take returns the events since the last call, and the number of signs of life.
func (v *viewer) take(t *testing.T) (events []event, beats int) {
	t.Helper()
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	for text := range strings.SplitSeq(string(v.text), "\n\n") {
		var e event
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch name {
			case "event":
				e.name = value
			case "data":
				if err := json.Unmarshal([]byte(value), &e.data); err != nil {
					t.Fatal(err)
				}
			}
		}
		switch e.name {
		case "beat":
			beats++
		case "change":
			events = append(events, e)
		}
	}
	v.text = nil
	return events, beats
}

const interval = 15 * time.Second

// rows returns the keys of the rows that an event has.
func (e event) rows(list string) (keys []string) {
	for key := range e.data.Lists[list].Rows {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func (e event) String() string {
	return fmt.Sprintf("%v %d texts", e.data.Lists, len(e.data.Texts))
}

func one(t *testing.T, events []event) event {
	t.Helper()
	if len(events) != 1 {
		t.Fatalf("%d events, want 1: %v", len(events), events)
	}
	return events[0]
}

func TestEventsSendChangesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		first := st.add(t, "first", workflow.NotStarted)
		s := web.New(st, web.Options{})
		v := watch(t, s)

		all := one(t, v.events(t))
		if got := all.data.Lists["open"]; !slices.Equal(got.Order, []string{first.ID.String()}) || !strings.Contains(got.Rows[first.ID.String()], "first") {
			t.Errorf("the first event has %v", got)
		}
		if all.data.Texts["counts"] == "" || !all.data.Now.Equal(time.Now()) {
			t.Errorf("the first event has %v at %v", all.data.Texts, all.data.Now)
		}

		time.Sleep(4 * interval)
		if events, beats := v.take(t); len(events) != 0 || beats < 3 {
			t.Errorf("nothing changed, but there are %d events and %d beats", len(events), beats)
		}

		second := st.add(t, "second", workflow.NotStarted)
		time.Sleep(interval)
		added := one(t, v.events(t))
		if got := added.rows("open"); !slices.Equal(got, []string{second.ID.String()}) || len(added.data.Lists["open"].Order) != 2 {
			t.Errorf("the event of a new plan has %v", added)
		}

		for _, p := range []*workflow.Plan{first, second} {
			if err := st.Delete(t.Context(), p.ID); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(interval)
		if got := one(t, v.events(t)).data.Lists["open"]; got.Order == nil || len(got.Order)+len(got.Rows) != 0 {
			t.Errorf("the event of the last plan's end has %v", got)
		}
	})
}

func TestEventsOfStuckPlans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		p := st.add(t, "slow", workflow.NotStarted)
		v := watch(t, web.New(st, web.Options{Older: time.Minute}))
		v.events(t)
		time.Sleep(time.Minute + interval)
		events := v.events(t)
		moved := events[0]
		if got := moved.data.Lists["stuck"]; !slices.Equal(got.Order, []string{p.ID.String()}) || !strings.Contains(got.Rows[p.ID.String()], "no node is alive to claim it") {
			t.Errorf("the event has %v", moved)
		}
		if got := moved.data.Lists["open"]; got.Order == nil || len(got.Order) != 0 {
			t.Errorf("the plan stays among the others: %v", moved)
		}
		if moved.data.Title == nil || *moved.data.Title != "(1 stuck) " || !strings.Contains(moved.data.Texts["alarm"], "1 plan is stuck.") {
			t.Errorf("nothing says that a plan is stuck: %v", moved.data)
		}
		if err := st.Delete(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(interval)
		events = v.events(t)
		if last := events[len(events)-1]; last.data.Title == nil || *last.data.Title != "" {
			t.Errorf("the title still says that a plan is stuck: %v", last.data)
		}
	})
}

// TestViewersShareLooks counts what viewers cost: one look in an interval however many they are, and none when
// nobody watches.
func TestViewersShareLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		s := web.New(st, web.Options{})
		const viewers, intervals = 100, 10
		var all []*viewer
		for range viewers {
			all = append(all, watch(t, s))
			time.Sleep(interval * intervals / viewers)
		}
		synctest.Wait()
		if got := st.rosters.Load(); got != intervals+1 {
			t.Errorf("%d viewers cost %d looks in %d intervals", viewers, got, intervals)
		}
		for range 20 {
			get(t, s, "/")
			get(t, s, "/fleet")
			get(t, s, "/health")
		}
		if got := st.rosters.Load(); got != intervals+1 {
			t.Errorf("pages cost %d more looks", got-intervals-1)
		}
		if got := st.pings.Load(); got != 1 {
			t.Errorf("20 looks at the health cost %d pings", got)
		}
		for _, v := range all {
			v.leave()
			<-v.left
		}
		time.Sleep(time.Hour)
		if got := st.rosters.Load(); got != intervals+1 {
			t.Errorf("an hour without viewers costs %d looks", got-intervals-1)
		}
	})
}

// TestNobodyWaits lets the only viewer leave during a look: the look ends soon, and counts for nothing.
func TestNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slowStore{store: newStore(), ended: make(chan error, 1)}
		s := web.New(st, web.Options{})
		v := watch(t, s)
		synctest.Wait()
		left := time.Now()
		v.leave()
		if err := <-st.ended; !errors.Is(err, context.Canceled) || time.Since(left) > 10*time.Second {
			t.Errorf("the look ends %v after its viewer has left: %v", time.Since(left), err)
		}
		<-v.left
		st.quick.Store(true)
		if body := get(t, s, "/").Body.String(); strings.Contains(body, "could not be looked at") {
			t.Error("a look that nobody waited for is shown as a failure")
		}
	})
}

// TestSlowLook asks a store that answers no look. Pages say so after a while, and events follow the same look.
func TestSlowLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slowStore{store: newStore(), ended: make(chan error, 1)}
		p := st.add(t, "first", workflow.NotStarted)
		s := web.New(st, web.Options{})
		for _, url := range []string{"/", "/fleet", "/health"} {
			began := time.Now()
			w := get(t, s, url)
			if took := time.Since(began); took > 10*time.Second || w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "has not ended yet") {
				t.Errorf("%s: %d after %v\n%s", url, w.Code, took, w.Body)
			}
		}
		v := watch(t, s)
		time.Sleep(time.Minute)
		if events, beats := v.take(t); len(events) != 0 || beats < 3 {
			t.Errorf("%d events and %d beats during a look", len(events), beats)
		}
		if err := <-st.ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the look ends with %v", err)
		}
		st.quick.Store(true)
		events := v.events(t)
		if len(events) == 0 || !strings.Contains(events[0].data.Texts["failure"], "deadline exceeded") {
			t.Errorf("the events after a look that took too long: %v", events)
		}
		time.Sleep(interval)
		if got := one(t, v.events(t)).rows("open"); !slices.Equal(got, []string{p.ID.String()}) {
			t.Errorf("the events of the next look have %v", got)
		}
	})
}

// TestSlowLookAfterARest asks a store that has become slow while nobody watched. The page says that it is old, and its
// events bring everything.
func TestSlowLookAfterARest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := &slowStore{store: newStore(), ended: make(chan error, 1)}
		st.quick.Store(true)
		p := st.add(t, "first", workflow.NotStarted)
		s := web.New(st, web.Options{})
		get(t, s, "/")
		time.Sleep(time.Hour)
		st.quick.Store(false)
		body := get(t, s, "/").Body.String()
		if !strings.Contains(body, "has not ended yet") || !strings.Contains(body, "first") {
			t.Errorf("the page does not say that it is old, or lacks what is known:\n%s", body)
		}
		st.quick.Store(true)
		v := watch(t, s)
		time.Sleep(3 * time.Minute)
		events := v.events(t)
		last := events[len(events)-1]
		if got := events[0].rows("open"); !slices.Equal(got, []string{p.ID.String()}) || strings.TrimSpace(last.data.Texts["failure"]) != "" {
			t.Errorf("the events are %v", events)
		}
	})
}

// TestManyPlans shows the first 500 plans and counts the others.
func TestManyPlans(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		for range 510 {
			st.add(t, "one of many", workflow.NotStarted)
		}
		body := get(t, web.New(st, web.Options{}), "/").Body.String()
		if n := strings.Count(body, "one of many"); n != 500 || !strings.Contains(body, "10 more open plans are not shown") || !strings.Contains(body, "<dd>510</dd>") {
			t.Errorf("%d of 510 plans are shown, or the others are not counted", n)
		}
	})
}

func TestTooManyViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := web.New(newStore(), web.Options{MaxViewers: 2})
		first := watch(t, s)
		watch(t, s)
		synctest.Wait()
		if w := get(t, s, "/events"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("the third viewer gets %d", w.Code)
		}
		if w := get(t, s, "/"); w.Code != http.StatusOK {
			t.Errorf("a page is %d", w.Code)
		}
		first.leave()
		<-first.left
		if v := watch(t, s); len(v.events(t)) != 1 {
			t.Error("a viewer who left still takes a place")
		}
	})
}

func TestEventsOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		st.add(t, "first", workflow.NotStarted)
		s := web.New(st, web.Options{})
		v := watch(t, s)
		v.events(t)
		st.fail(errOutage)
		time.Sleep(5 * interval)
		e := one(t, v.events(t))
		if len(e.data.Lists) != 0 || !strings.Contains(e.data.Texts["failure"], "connection refused") {
			t.Errorf("the event of the outage is %v", e.data)
		}
		if body := get(t, s, "/").Body.String(); !strings.Contains(body, "connection refused") || !strings.Contains(body, ">first<") {
			t.Error("the page shows no outage, or no plans")
		}
		st.fail(nil)
		time.Sleep(interval)
		if e := one(t, v.events(t)); len(e.data.Lists) != 0 || strings.TrimSpace(e.data.Texts["failure"]) != "" {
			t.Errorf("the event of the outage's end is %v", e.data)
		}
		if body := get(t, s, "/health").Body.String(); strings.Count(body, "connection refused") != 5 {
			t.Errorf("the health page shows %d failures, want 5", strings.Count(body, "connection refused"))
		}
	})
}

func TestEventsOfMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		one1 := st.join(t, "one")
		time.Sleep(time.Millisecond) // members are in the order of their IDs
		two := st.join(t, "two")
		v := watch(t, web.New(st, web.Options{}))
		if got := one(t, v.events(t)).rows("members"); len(got) != 2 {
			t.Errorf("the first event has %v", got)
		}
		for range 3 {
			time.Sleep(interval - time.Second)
			if version, err := st.RenewMember(t.Context(), one1); err != nil {
				t.Fatal(err)
			} else {
				one1.Version = version
			}
			time.Sleep(time.Second)
		}
		events := v.events(t)
		last := events[len(events)-1]
		if got := last.data.Lists["members"]; len(got.Order) != 2 || got.Order[0] != two.ID.String() || !strings.Contains(got.Rows[two.ID.String()], "dead") {
			t.Errorf("the event of a death is %v", last)
		}
		if !strings.Contains(last.data.Texts["alarm"], "1 of 2 nodes dead.") {
			t.Errorf("the event of a death says %q", last.data.Texts["alarm"])
		}
	})
}
