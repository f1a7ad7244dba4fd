package days_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/planvault/azblob"
	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/audited"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/vaulttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

const aDay = 24 * time.Hour

// ended stores a plan of a day that has ended on that day.
func ended(t *testing.T, v *azblob.Vault, day time.Time, status workflow.Status) uuid.UUID {
	t.Helper()
	return endedAt(t, v, day, status, day.Add(2*time.Hour))
}

// endedAt stores a plan of a day that has ended at a time.
func endedAt(t *testing.T, v *azblob.Vault, day time.Time, status workflow.Status, at time.Time) uuid.UUID {
	t.Helper()
	plan := vaulttest.Copied(vaulttest.PlanOf(day), status)
	if status.Final() {
		plan.State.End = at
	}
	vaulttest.Must(t, v.Restore(t.Context(), plan))
	return plan.ID
}

// dayText says which plans a day has, in short: C for Completed, and so on, or "gone".
func dayText(t *testing.T, v *azblob.Vault, server *emulator.Server, n int) string {
	t.Helper()
	day := vaulttest.DaysAgo(n)
	var letters []string
	for _, r := range vaulttest.Collect(t, v, storage.Filters{After: day.Add(-time.Millisecond), Before: day.AddDate(0, 0, 1)}) {
		letters = append(letters, r.State.Status.String()[:1])
	}
	slices.Sort(letters)
	for c := range server.Containers() {
		if c == vaulttest.ContainerOf(day) {
			return strings.Join(letters, "")
		}
	}
	return "gone"
}

// TestRetire retires days of all kinds by a policy that keeps a week, and Failed plans two weeks, with and without
// catalogues.
func TestRetire(t *testing.T) {
	for _, built := range []bool{false, true} {
		retires(t, built)
	}
	vaulttest.InBubble(t, "plans of another program stay", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		day := vaulttest.DaysAgo(20)
		ended(t, v, day, workflow.Completed)
		others := vaulttest.PutForeign(server, day, 1)
		for again := range 2 {
			r, err := vaulttest.Offered[retention.Vault](v).Retire(t.Context(), retention.Policy{KeepDays: 7}, storage.DayOf(day), 0)
			if want := (retention.Result{Kept: string(azblob.ExpireForeign), Removed: 1 - again}); err != nil || r != want || len(others.Changed()) > 0 {
				t.Errorf("%+v, want %+v: %v; changed: %v", r, want, err, others.Changed())
			}
		}
	})
	vaulttest.InBubble(t, "a plan that another program is writing stays", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		day := vaulttest.DaysAgo(20)
		ended(t, v, day, workflow.Completed)
		theirs := vaulttest.PutForeign(server, day, 1)
		for b := range server.Blobs(theirs.Container) {
			if strings.Contains(b.Name, theirs.Plan.String()) {
				server.Remove(theirs.Container, b.Name)
			}
		}
		vaulttest.Must(t, vaulttest.ErrOf(v.Admin().Catalogue(t.Context(), azblob.CatalogueOptions{})))
		if r, err := vaulttest.Offered[retention.Vault](v).Retire(t.Context(), retention.Policy{KeepDays: 7}, storage.DayOf(day), 0); err != nil || r.Kept != string(azblob.ExpireForeign) {
			t.Errorf("%+v, %v", r, err)
		}
	})
	vaulttest.InBubble(t, "what is no whole plan stays", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		for name, blob := range map[string]string{"an object alone": "plans/" + uuid.NewString() + "-object.json", "a stray": "plans/a"} {
			day := vaulttest.DaysAgo(10)
			ended(t, v, day, workflow.Completed)
			server.Put(vaulttest.ContainerOf(day), blob, nil, nil)
			r, err := vaulttest.Offered[retention.Vault](v).Retire(t.Context(), retention.Policy{KeepDays: 3, KeepFailedDays: 30}, storage.DayOf(day), 0)
			if vaulttest.Must(t, err); r.Dropped || r.Removed != 1 || server.Len(vaulttest.ContainerOf(day)) == 0 {
				t.Errorf("%s: %+v", name, r)
			}
			server.RemoveContainer(vaulttest.ContainerOf(day))
		}
	})
}

func retires(t *testing.T, built bool) {
	vaulttest.InBubble(t, fmt.Sprint("with catalogues: ", built), func(t *testing.T, server *emulator.Server) {
		time.Sleep(time.Hour)
		v := vaulttest.OnEmulator(t, server)
		p := retention.Policy{KeepDays: 7, KeepFailedDays: 14}
		for _, test := range []struct {
			ago        int
			plans      string // as in dayText; R is Running, small letters have ended yesterday
			held       bool
			operation  retention.Operation // what DueDays advises; "" if the policy does not reach the day
			after, why string
			removed    int
		}{
			{ago: 20, plans: "CFS", operation: retention.OperationDrop, after: "gone"},
			{ago: 19, plans: "CFR", operation: retention.OperationDrop, after: "R", why: "open", removed: 2},
			{ago: 18, plans: "CF", held: true, operation: retention.OperationKeep, after: "CF", why: "held"},
			{ago: 15, plans: "F", operation: retention.OperationDrop, after: "gone"},
			{ago: 14, plans: "CFS", operation: retention.OperationPurge, after: "F", removed: 2},
			{ago: 13, plans: "CS", operation: retention.OperationDrop, after: "gone"},
			{ago: 12, plans: "CR", operation: retention.OperationPurge, after: "R", removed: 1},
			{ago: 11, plans: "F", operation: retention.OperationKeep, after: "F"},
			{ago: 10, plans: "C", held: true, operation: retention.OperationKeep, after: "C", why: "held"},
			{ago: 9, plans: "R", operation: retention.OperationKeep, after: "R"},
			{ago: 8, plans: "", operation: retention.OperationDrop, after: "gone"},
			{ago: 20, plans: "CFf", operation: retention.OperationPurge, after: "F", removed: 2},
			{ago: 20, plans: "c", operation: retention.OperationKeep, after: "C"},
			{ago: 14, plans: "CFs", operation: retention.OperationPurge, after: "FS", removed: 1},
			{ago: 13, plans: "Cs", operation: retention.OperationPurge, after: "S", removed: 1},
			{ago: 12, plans: "cs", operation: retention.OperationKeep, after: "CS"},
			{ago: 7, plans: "CS", after: "CS"},
			{ago: 1, plans: "C", after: "C"},
		} {
			day := vaulttest.DaysAgo(test.ago)
			server.PutContainer(vaulttest.ContainerOf(day), map[string]string{"planvaultlayout": "1"})
			for _, letter := range test.plans {
				at := day.Add(2 * time.Hour)
				if unicode.IsLower(letter) {
					at = vaulttest.DaysAgo(1)
				}
				endedAt(t, v, day, map[rune]workflow.Status{'C': workflow.Completed, 'F': workflow.Failed, 'S': workflow.Stopped, 'R': workflow.Running}[unicode.ToUpper(letter)], at)
			}
			if built {
				vaulttest.Must(t, vaulttest.ErrOf(v.Admin().Catalogue(t.Context(), azblob.CatalogueOptions{})))
			}
			if test.held {
				vaulttest.Must(t, v.Admin().Hold(audited.Mark(t.Context()), storage.DayOf(day), workflow.Attribution{}))
			}
			var operation retention.Operation
			due, err := vaulttest.Offered[retention.Vault](v).DueDays(t.Context(), p)
			vaulttest.Must(t, err)
			for _, d := range due {
				if d.Day == storage.DayOf(day) {
					operation = d.Operation()
				}
			}
			r, err := vaulttest.Offered[retention.Vault](v).Retire(t.Context(), p, storage.DayOf(day.Add(5*time.Hour)), 0)
			vaulttest.Must(t, err)
			want := retention.Result{Dropped: test.after == "gone", Kept: test.why, Removed: test.removed}
			if after := dayText(t, v, server, test.ago); operation != test.operation || after != test.after || r != want {
				t.Errorf("%+v: advised is %q, left is %q, and the result is %+v", test, operation, after, r)
			}
			noMark(t, server, day)
			if !test.held {
				server.RemoveContainer(vaulttest.ContainerOf(day))
			}
		}
		if due, err := vaulttest.Offered[retention.Vault](v).DueDays(t.Context(), p); err != nil || !slices.IsSortedFunc(due, func(a, b retention.Day) int { return a.Day.Compare(b.Day) }) {
			t.Errorf("%v, %v", due, err)
		}
		if r, err := vaulttest.Offered[retention.Vault](v).Retire(t.Context(), p, storage.DayOf(vaulttest.DaysAgo(400)), 0); err != nil || !r.Dropped {
			t.Errorf("a day that does not exist: %+v, %v", r, err)
		}
		for _, p := range []retention.Policy{{}, {KeepDays: -1}} {
			vaulttest.Fails(t, vaulttest.ErrOf(vaulttest.Offered[retention.Vault](v).DueDays(t.Context(), p)), storage.ErrInvalid)
			vaulttest.Fails(t, vaulttest.ErrOf(vaulttest.Offered[retention.Vault](v).Retire(t.Context(), p, storage.DayOf(vaulttest.DaysAgo(20)), 0)), storage.ErrInvalid)
		}
	})
}

// TestRetentionByTheServicesClock has a service whose clock is days behind this machine's, or ahead.
func TestRetentionByTheServicesClock(t *testing.T) {
	for off, want := range map[time.Duration]string{-3 * aDay: "C", 0: "C", aDay: "gone"} {
		clock := emulator.Options{Clock: func() time.Time { return time.Now().Add(off) }}
		vaulttest.InBubbleOf(t, emulator.New(clock), func(t *testing.T, server *emulator.Server) {
			v := vaulttest.OnEmulator(t, server)
			ended(t, v, vaulttest.DaysAgo(5), workflow.Completed)
			p := retention.Policy{KeepDays: 5}
			vaulttest.Must(t, vaulttest.ErrOf(retention.Set(t.Context(), v, p, retention.Change{By: workflow.Attribution{By: "operator"}})))
			if r, err := vaulttest.Offered[retention.Vault](v).Retire(t.Context(), p, storage.DayOf(vaulttest.DaysAgo(5)), 0); err != nil || r.Dropped != (want == "gone") {
				t.Errorf("the service is %v ahead: %+v, %v", off, r, err)
			}
			if due, err := vaulttest.Offered[retention.Vault](v).DueDays(t.Context(), p); err != nil || len(due) > 0 {
				t.Errorf("due: %v, %v", due, err)
			}
			e := retention.NewEnforcer(vaulttest.Offered[retention.Vault](v), "a")
			for hour := range 26 {
				if _, r, err := e.Look(t.Context()); err != nil || (r != nil) != (hour == 24) {
					t.Errorf("after %d hours: %+v, %v", hour, r, err)
				}
				time.Sleep(time.Hour)
			}
		})
	}
}

// TestRetireBesideARestore restores a plan that the policy keeps, a Failed one or one that ended yesterday, beside each
// request of a Retire: the Restore begins there, or ends there. It fails, or its plan stays.
func TestRetireBesideARestore(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for i := range 4 {
		begun, policy, status := i%2 == 0, retention.Policy{KeepDays: 3, KeepFailedDays: 30}, workflow.Failed
		if i > 1 {
			policy, status = retention.Policy{KeepDays: 3}, workflow.Completed
		}
		vaulttest.BeforeEach(t, fmt.Sprintf("%s, begun: %t", status, begun), func(t *testing.T, server *emulator.Server, at *vaulttest.NthRequest) {
			v, day := vaulttest.OnEmulator(t, server), vaulttest.DaysAgo(10)
			ended(t, v, day, workflow.Completed)
			failed := vaulttest.Copied(vaulttest.PlanOf(day), status)
			failed.State.End = vaulttest.DaysAgo(1)
			goOn, done := make(chan struct{}), make(chan error, 1)
			restorer := vaulttest.Meanwhile(t, server, emulator.PutBlob, "-entry.json", func() { <-goOn })
			restore := func() { done <- restorer.Restore(t.Context(), failed) }
			if begun {
				go restore()
				time.Sleep(time.Second) // it has written all but the entry
			}
			var once error
			meets := func() {
				close(goOn)
				if !begun {
					restore()
				}
				once = <-done
			}
			_, err := vaulttest.Offered[retention.Vault](at.Vault(t, server, meets)).Retire(t.Context(), policy, storage.DayOf(day), 0)
			if err != nil && !errors.Is(err, storage.ErrUnavailable) {
				t.Error(err)
			}
			if !at.Came() {
				meets()
			}
			found, err := v.Exists(t.Context(), failed.ID)
			if err != nil || found != (once == nil) || once != nil && !errors.Is(once, storage.ErrConflict) && !errors.Is(once, storage.ErrUnavailable) {
				t.Errorf("the plan is there: %t, %v; its Restore: %v", found, err, once)
			}
		})
	}
}

// history is a vault over years, and what was ever stored in it.
type history struct {
	t      *testing.T
	server *emulator.Server
	v      *azblob.Vault
	random *rand.Rand
	plans  map[uuid.UUID]workflow.State
	held   map[string]bool // by container
	policy retention.Policy
	// changed is when the policy was set, and since when it was, or a day was released.
	changed, since time.Time
}

// TestRetentionOverYears lets two processes enforce policies for a year, or for three. Plans end each day, some of them Failed, and
// some after weeks; days are held and released, the policy changes, and processes die in their steps. Nothing is removed that the policy
// keeps, and three days later nothing is there that it does not.
func TestRetentionOverYears(t *testing.T) {
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		h := &history{
			t: t, server: server, v: vaulttest.OnEmulator(t, server), random: rand.New(rand.NewPCG(1, 2)),
			plans: map[uuid.UUID]workflow.State{}, held: map[string]bool{},
		}
		time.Sleep(30 * time.Minute)
		enforcers := []*retention.Enforcer{retention.NewEnforcer(vaulttest.Offered[retention.Vault](h.v), "a"), retention.NewEnforcer(vaulttest.Offered[retention.Vault](h.v), "b")}
		idle, steps := 0, 0
		for day := range efforttest.Pick(80, 400, 1095) {
			h.live(day)
			for look := range 6 {
				time.Sleep(4 * time.Hour)
				before, changed := len(server.Requests()), true
				if h.random.IntN(75) == 0 {
					h.dies(1 + h.random.IntN(30))
				} else if _, report, err := enforcers[look%2].Look(t.Context()); err != nil {
					t.Fatal(err)
				} else if n := len(server.Requests()) - before; report == nil {
					idle, changed = max(idle, n), false
				} else {
					steps++
				}
				if server.ResetRequests(); look == 0 || changed {
					h.check()
				}
			}
		}
		if idle > 3 || steps < efforttest.Pick(72, 380, 1050) {
			t.Errorf("a look without a step took up to %d requests, and there were %d steps", idle, steps)
		}
	})
}

// live is what happens on a day besides.
func (h *history) live(day int) {
	for i, status := range []workflow.Status{workflow.Completed, workflow.Stopped, workflow.Failed} {
		if i == 0 || h.random.IntN(4) == 0 {
			day := vaulttest.DaysAgo(0)
			if h.random.IntN(5) == 0 {
				day = vaulttest.DaysAgo(h.random.IntN(70)) // it took that long
			}
			end := time.Now()
			h.plans[endedAt(h.t, h.v, day, status, end)] = workflow.State{Status: status, End: end}
		}
	}
	if n := 10 + h.random.IntN(60); day%7 == 0 && h.server.Len(vaulttest.ContainerOf(vaulttest.DaysAgo(n))) > 0 {
		if h.v.Admin().Hold(audited.Mark(h.t.Context()), storage.DayOf(vaulttest.DaysAgo(n)), workflow.Attribution{}) == nil {
			h.held[vaulttest.ContainerOf(vaulttest.DaysAgo(n))] = true
		}
	}
	if day%9 == 0 && len(h.held) > 0 {
		container := slices.Min(slices.Collect(maps.Keys(h.held)))
		held, _ := time.Parse(time.DateOnly, strings.TrimPrefix(container, "test-"))
		vaulttest.Must(h.t, h.v.Admin().Release(audited.Mark(h.t.Context()), storage.DayOf(held), workflow.Attribution{}))
		delete(h.held, container)
		h.since = time.Now() // what is due now was not due before
	}
	policies := map[int]retention.Policy{5: {KeepDays: 30, KeepFailedDays: 90}, 120: {KeepDays: 20, KeepFailedDays: 40, Catalogue: true}, 230: {KeepDays: 60, KeepFailedDays: 90}, 330: {KeepDays: 40}}
	if p, ok := policies[day]; ok {
		vaulttest.Must(h.t, vaulttest.ErrOf(retention.Set(h.t.Context(), h.v, p, retention.Change{By: workflow.Attribution{By: "operator"}})))
		h.policy, _ = p.WithDefaults()
		h.changed, h.since = time.Now(), time.Now()
	}
}

// dies lets a process look that dies at its nth request.
func (h *history) dies(n int) {
	ctx, cancel := context.WithCancel(h.t.Context())
	defer cancel()
	at := &vaulttest.NthRequest{N: n}
	_, _, _ = retention.NewEnforcer(vaulttest.Offered[retention.Vault](at.Vault(h.t, h.server, cancel)), "dying").Look(ctx)
}

// check compares what is stored with the policy.
func (h *history) check() {
	stored := map[uuid.UUID]bool{}
	for c := range h.server.Containers() {
		for b := range h.server.Blobs(c) {
			if text, ok := strings.CutSuffix(strings.TrimPrefix(b.Name, "plans/"), "-entry.json"); ok {
				stored[uuid.MustParse(text)] = true
			}
		}
	}
	const enough = 3 * aDay
	for id, state := range h.plans {
		day, status, keep := workflow.Time(id).Truncate(aDay), state.Status, h.policy.KeepDays
		if status == workflow.Failed {
			keep = h.policy.KeepFailedDays
		}
		reaches := func(at time.Time) bool { return keep > 0 && !at.Before(state.End.Truncate(aDay).AddDate(0, 0, 1+keep)) }
		switch held := h.held[vaulttest.ContainerOf(day)]; {
		case !stored[id] && (!reaches(time.Now()) || held || time.Since(h.changed) < aDay):
			h.t.Fatalf("%v: a %s plan of %v, ended %v, is gone, held: %t, policy %+v since %v", time.Now(), status, day, state.End, held, h.policy, h.since)
		case !stored[id]:
			delete(h.plans, id)
		case reaches(time.Now().Add(-enough)) && !held && time.Since(h.since) > enough:
			h.t.Fatalf("%v: a %s plan of %v, ended %v, is still there, policy %+v since %v", time.Now(), status, day, state.End, h.policy, h.since)
		}
	}
}

// TestCostOfRetention counts the requests of a day by a policy of docs/operating.md, in a vault that it has kept small for a
// year: 24 looks, of which one is a step.
func TestCostOfRetention(t *testing.T) {
	efforttest.NotShort(t, "requests are the same under the race detector")
	vaulttest.InBubble(t, "all", func(t *testing.T, server *emulator.Server) {
		v := vaulttest.OnEmulator(t, server)
		time.Sleep(400 * aDay)
		for n := range 367 {
			ended(t, v, vaulttest.DaysAgo(n+1), workflow.Failed)
			if n < 92 {
				for range 9 {
					ended(t, v, vaulttest.DaysAgo(n+1), workflow.Completed)
				}
			}
		}
		vaulttest.Must(t, vaulttest.ErrOf(retention.Set(t.Context(), v, retention.Policy{KeepDays: 90, KeepFailedDays: 365, Catalogue: true}, retention.Change{By: workflow.Attribution{By: "operator"}, AtOnce: true})))
		e := retention.NewEnforcer(vaulttest.Offered[retention.Vault](v), "a")
		for range 24 { // the backlog
			vaulttest.Must(t, func() error { _, _, err := e.Look(t.Context()); return err }())
			time.Sleep(time.Hour)
		}
		server.ResetRequests()
		var last *retention.Report
		for range 24 {
			_, report, err := e.Look(t.Context())
			if vaulttest.Must(t, err); report != nil {
				last = report
			}
			time.Sleep(time.Hour)
		}
		if last == nil || last.Dropped != 1 || last.Removed != 9 || last.More || last.KeptAll > 0 {
			t.Fatalf("%+v", last)
		}
		all := 0
		for _, n := range vaulttest.Requests(server) {
			all += n
		}
		if all > 820 {
			t.Errorf("a day takes %d requests: %v", all, vaulttest.Requests(server))
		}
	})
}
