package web_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/cmd/planvault/web"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/workflow"
)

// interval is the default of [web.Options].
const interval = 15 * time.Second

// contains reports what a page lacks, and what it has although it should not.
func contains(t *testing.T, s *web.Server, url string, want, not []string) {
	t.Helper()
	body := get(t, s, url).Body.String()
	for _, text := range want {
		if !strings.Contains(body, text) {
			t.Errorf("%s lacks %q:\n%s", url, text, body)
		}
	}
	for _, text := range not {
		if strings.Contains(body, text) {
			t.Errorf("%s has %q", url, text)
		}
	}
}

// TestOpenPlansGetStuck follows the page of open plans.
func TestOpenPlansGetStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		p := st.add(t, "slow", workflow.NotStarted)
		s := web.New(st, web.Options{Older: time.Minute})
		contains(t, s, "/", []string{`<body data-now="2000-01-01T00:00:00.000Z" data-live="15000">`, "<title>Open plans", "Nothing is stuck.", ">slow<"}, []string{"(1 stuck)"})
		time.Sleep(interval / 3)
		contains(t, s, "/", []string{`data-now="2000-01-01T00:00:05.000Z" data-live="10000"`}, nil)
		time.Sleep(time.Minute)
		contains(t, s, "/", []string{"<title>(1 stuck) ", "1 plan is stuck.", "no node is alive to claim it"}, []string{"Nothing is stuck. "})
		if err := st.Delete(t.Context(), p.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(interval)
		contains(t, s, "/", []string{"Nothing is stuck."}, []string{"(1 stuck)", ">slow<"})
	})
}

// TestMembersDie follows the page of the fleet.
func TestMembersDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		one := st.join(t, "one")
		time.Sleep(time.Millisecond) // members are in the order of their IDs
		st.join(t, "two")
		s := web.New(st, web.Options{})
		inOrder := func(first, second string) {
			t.Helper()
			if body := get(t, s, "/fleet").Body.String(); strings.Index(body, first) > strings.Index(body, second) {
				t.Errorf("%s is below %s:\n%s", first, second, body)
			}
		}
		inOrder("one", "two")
		contains(t, s, "/fleet", []string{"All nodes are alive."}, []string{"dead</span>"})
		for range 3 {
			time.Sleep(interval - time.Second)
			version, err := st.RenewMember(t.Context(), one)
			if err != nil {
				t.Fatal(err)
			}
			one.Version = version
			time.Sleep(time.Second)
		}
		inOrder("two", "one")
		contains(t, s, "/fleet", []string{"1 of 2 nodes dead.", "</span> dead</span>"}, nil)
	})
}

// TestViewersShareLooks counts what viewers cost: one look in an interval however many they are, and none when
// nobody watches.
func TestViewersShareLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		s := web.New(st, web.Options{})
		const intervals = 10
		for range intervals {
			for range 100 {
				get(t, s, "/")
				time.Sleep(interval / 100)
			}
		}
		for range 20 {
			get(t, s, "/")
			get(t, s, "/fleet")
			get(t, s, "/health")
		}
		if got := st.calls("Roster"); got != intervals+1 {
			t.Errorf("viewers cost %d looks in %d intervals", got, intervals)
		}
		if got := st.calls("Ping"); got != 1 {
			t.Errorf("20 looks at the health cost %d pings", got)
		}
		time.Sleep(time.Hour)
		if got := st.calls("Roster"); got != intervals+1 {
			t.Errorf("an hour without viewers costs %d looks", got-intervals-1)
		}
	})
}

// TestSlowLook asks a store that answers no look. Pages say so after a while, with what was known before, and readings
// that follow share the look.
func TestSlowLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		st.add(t, "first", workflow.NotStarted)
		s := web.New(st, web.Options{})
		get(t, s, "/")
		time.Sleep(time.Hour)
		st.hang(make(chan struct{}, 100))
		for url, known := range map[string]string{"/": "first", "/fleet": "Members", "/health": "Store"} {
			began := time.Now()
			contains(t, s, url, []string{"has not ended yet", known}, nil)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s takes %v", url, took)
			}
		}
		for len(st.ended) == 0 {
			get(t, s, "/")
		}
		if err := <-st.ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the look ends with %v", err)
		}
		synctest.Wait()
		contains(t, s, "/", []string{"deadline exceeded", "first"}, nil)
		st.hang(nil)
		time.Sleep(interval)
		contains(t, s, "/", []string{"first"}, []string{"could not be looked at"})
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

// TestOutage keeps what was known on the pages, with since when the store does not answer.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		st.add(t, "first", workflow.NotStarted)
		s := web.New(st, web.Options{})
		get(t, s, "/")
		st.fail(errOutage)
		var since string
		for range 5 {
			time.Sleep(interval)
			contains(t, s, "/", []string{"connection refused", ">first<", since}, nil)
			since = regexp.MustCompile(`looked at since <time datetime="[^"]*"`).FindString(get(t, s, "/").Body.String())
		}
		if body := get(t, s, "/health").Body.String(); strings.Count(body, "<li>") != 5 {
			t.Errorf("the health page does not show 5 failures:\n%s", body)
		}
		st.fail(nil)
		time.Sleep(interval)
		contains(t, s, "/", []string{">first<"}, []string{"connection refused"})
	})
}
