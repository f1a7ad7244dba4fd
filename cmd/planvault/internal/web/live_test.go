package web_test

import (
	"context"
	"errors"
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/cmd/planvault/internal/web"
	"github.com/planvault/azblob/fleet"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/plantest"
	"github.com/planvault/azblob/storage"
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
		must(t, st.Delete(t.Context(), p.ID))
		time.Sleep(interval)
		contains(t, s, "/", []string{"Nothing is stuck."}, []string{"(1 stuck)", ">slow<", "vault is suspended"})
		if _, err := fleet.Suspend(t.Context(), st, workflow.Attribution{By: "<ana>", Why: "a move"}, fleet.SuspendOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(interval)
		contains(t, s, "/", []string{"vault is suspended by <bdi>&lt;ana&gt;</bdi>: <bdi>a move</bdi>"}, nil)
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
			must(t, err)
			one.Version = version
			time.Sleep(time.Second)
		}
		inOrder("two", "one")
		contains(t, s, "/fleet", []string{"1 of 2 nodes silent.", "</span> silent</span>"}, []string{"gone</span>"})
		p := &workflow.Plan{Name: "orphan"}
		must(t, st.Create(t.Context(), p))
		p.State.Status, p.Owner, p.Epoch = workflow.Running, workflow.NewV7(), 1
		st.update(t, p)
		time.Sleep(interval)
		inOrder(p.Owner.String(), "two")
		contains(t, s, "/fleet", []string{"</span> gone</span>", `<a href="/?owner=` + p.Owner.String() + `">1</a>`}, nil)
	})
}

// TestTurns has the keys for which plans wait on the page of the fleet, and on that of a plan who has its turn.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		s := web.New(st, web.Options{})
		contains(t, s, "/fleet", []string{"No plan waits for a turn"}, []string{"/plan/"})
		has := st.keyed(t, "has it", "west <b>", workflow.Running)
		time.Sleep(time.Minute)
		waits := st.keyed(t, "waits", "west <b>", workflow.NotStarted)
		time.Sleep(time.Minute)
		contains(t, s, "/fleet", []string{`data-key="key west &lt;b&gt;"`, `class="number">1</td>`, `href="/plan/` + has.ID.String(), `href="/plan/` + waits.ID.String()}, []string{"west <b>"})
		contains(t, s, "/plan/"+waits.ID.String(), []string{"Waits for a turn</h2>", "plan " + has.ID.String() + " has it."}, nil)
		contains(t, s, "/plan/"+has.ID.String(), nil, []string{"Waits for a turn"})
		must(t, st.Create(t.Context(), &workflow.Plan{Name: "placed", External: workflow.External{Name: "queue"}}))
		time.Sleep(time.Minute)
		contains(t, s, "/", []string{"<dt>waiting</dt><dd>2</dd>"}, nil)
		must(t, fleet.SetKey(t.Context(), st, "west <b>", workflow.Attribution{By: "ana <i>"}, func(k fleet.KeySettings) fleet.KeySettings {
			k.Limit, k.PausedUntil = 3, time.Now().Add(time.Hour)
			return k
		}))
		time.Sleep(time.Minute)
		contains(t, s, "/fleet", []string{"paused until 2000-01-01 ", ", last set by <bdi>ana &lt;i&gt;</bdi>", `class="number">3</td>`}, nil)
		st.end(t, has, workflow.Completed)
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
		if got := st.calls("Ping"); got != 2 { // the first look found nothing
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

// stuckPlans stores plans of ten objects each that are stuck: 312 whose owner is gone, 88 that nobody picks up, and 100 on
// a live node that hangs.
func stuckPlans(t *testing.T, v *azblob.Vault) {
	t.Helper()
	m := storage.Member{ID: workflow.NewV7(), Name: "host-3", TTL: 24 * time.Hour}
	if _, err := v.Control().AddMember(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	gone := workflow.NewV7()
	for n := range 500 {
		began := time.Now().Add(-time.Hour + time.Duration(n)*time.Second)
		p := plantest.Sized(1, 2, 3)
		p.SubmitTime, p.Name = began, fmt.Sprintf("release %d", n)
		for o := range workflow.Walk(p) {
			h := o.Header()
			*h.ID = workflow.NewV7At(began)
			*h.PlanID = p.ID
			if h.State.Status = workflow.NotStarted; n < 412 {
				h.State.Status, h.State.Start = workflow.Running, began
			}
		}
		switch {
		case n < 312:
			p.Owner, p.Epoch = gone, 1
		case n < 412:
			p.Owner, p.Epoch = m.ID, 1
		}
		must(t, v.Restore(t.Context(), p))
	}
}

// TestManyStuckPlans looks at 500 stuck plans: a look takes few requests and says how many, a page is short, and pages and
// filters lead to every plan.
func TestManyStuckPlans(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour)
		server, v, _ := account(t, 0)
		stuckPlans(t, v)
		s := web.New(v, web.Options{Older: 5 * time.Minute})
		var body string
		for n := range 4 {
			before := len(server.Requests())
			body = get(t, s, "/").Body.String()
			sent, most := len(server.Requests())-before, 60
			if n > 0 {
				most += 50 * (2 + 10) // to read 50 plans of ten objects
			}
			if sent > most {
				t.Errorf("look %d takes %d requests", n, sent)
			}
			contains(t, s, "/", []string{
				"312 plans: owner gone", "88 plans: not picked up", fmt.Sprintf("The latest look took %d requests", sent),
			}, nil)
			time.Sleep(interval)
		}
		if rows := strings.Count(body, "<tr data-key"); rows > 15 || len(body) > 40_000 {
			t.Errorf("the page has %d rows and %d bytes", rows, len(body))
		}
		found := map[string]bool{}
		var address string
		for _, group := range regexp.MustCompile(`<a href="([^"]*)">All `).FindAllStringSubmatch(body, -1) {
			for address = html.UnescapeString(group[1]); address != ""; {
				page := get(t, s, address).Body.String()
				rows := regexp.MustCompile(`<tr data-key="([^"]*)"`).FindAllStringSubmatch(page, -1)
				if len(rows) > 25 {
					t.Errorf("%s has %d rows", address, len(rows))
				}
				for _, row := range rows {
					found[row[1]] = true
				}
				address = ""
				if next := regexp.MustCompile(`<a href="([^"]*)" rel="next">`).FindStringSubmatch(page); next != nil {
					address = html.UnescapeString(next[1])
				}
			}
		}
		if len(found) != 500 {
			t.Errorf("the pages of the groups have %d plans", len(found))
		}
		contains(t, s, "/?owner=host-3", []string{"Open plans: owner contains host-3", "100"}, []string{"plans: owner gone", "plans: not picked up"})
		contains(t, s, "/?name=release+49", []string{"release 49<", "release 499<"}, []string{"release 59<"})
		contains(t, s, "/?name=none", []string{"No plan that matches is stuck."}, nil)
		for range 12 { // within a minute
			get(t, s, "/")
			time.Sleep(5 * time.Second)
		}
		contains(t, s, "/", []string{"<dt>stuck</dt><dd>500</dd>", "100 plans: no progress", "--evict"}, []string{"not read yet"})
	})
}

// TestMostPlans bounds a look at more open plans than it covers.
func TestMostPlans(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		st := newStore()
		for range 1010 {
			st.add(t, "one of many", workflow.NotStarted)
		}
		body := get(t, web.New(st, web.Options{}), "/").Body.String()
		if n := strings.Count(body, "one of many"); n != 20 || !strings.Contains(body, "about the newest 1000:") || !strings.Contains(body, "<dd>1000</dd>") {
			t.Errorf("%d plans are shown, or the page does not say that there are more", n)
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
