package retention_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/internal/hooked"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/storage/memvault"
	"github.com/planvault/azblob/storage/retention"
	"github.com/planvault/azblob/workflow"
)

const aDay = 24 * time.Hour

// by is who changes policies.
var by = workflow.Attribution{By: "operator"}

func TestReach(t *testing.T) {
	day := storage.Day{Year: 2026, Month: 3, Day: 1}
	for _, test := range []struct {
		p    retention.Policy
		age  time.Duration // since the end of the day
		want retention.Reach
	}{
		{retention.Policy{KeepDays: 2}, 2*aDay - 1, retention.ReachNone},
		{retention.Policy{KeepDays: 2}, 2 * aDay, retention.ReachFinal},
		{retention.Policy{KeepDays: 2, KeepFailedDays: 4}, 2*aDay - 1, retention.ReachNone},
		{retention.Policy{KeepDays: 2, KeepFailedDays: 4}, 2 * aDay, retention.ReachFinished},
		{retention.Policy{KeepDays: 2, KeepFailedDays: 4}, 4*aDay - 1, retention.ReachFinished},
		{retention.Policy{KeepDays: 2, KeepFailedDays: 4}, 4 * aDay, retention.ReachFinal},
		{retention.Policy{Catalogue: true}, 40_000 * aDay, retention.ReachNone},
		{retention.Policy{KeepDays: 2}, -10 * aDay, retention.ReachNone},
	} {
		if got := test.p.Reach(day, day.Start().Add(aDay+test.age)); got != test.want {
			t.Errorf("%+v reaches %v of a day %v old, want %v", test.p, got, test.age, test.want)
		}
	}
}

// TestEndedBefore compares the rule for the end of a plan with that for the day in which it was created.
func TestEndedBefore(t *testing.T) {
	end := time.Date(2026, 3, 1, 23, 59, 59, 999, time.UTC)
	for _, p := range []retention.Policy{{KeepDays: 2}, {KeepDays: 2, KeepFailedDays: 4}} {
		for after := time.Duration(0); after < 7*aDay; after += time.Hour {
			now := end.Truncate(aDay).Add(after)
			reached := p.Reach(storage.DayOf(end), now).Statuses()
			for _, s := range []workflow.Status{workflow.Completed, workflow.Stopped, workflow.Failed} {
				if got, want := end.Before(p.EndedBefore(s, now)), slices.Contains(reached, s); got != want {
					t.Errorf("%+v, %v after the day began: a %s plan is due: %t, by its day: %t", p, after, s, got, want)
				}
			}
		}
	}
}

func TestOperation(t *testing.T) {
	type plans = map[workflow.Status]int
	for _, test := range []struct {
		d    retention.Day
		want retention.Operation
	}{
		{retention.Day{Reach: retention.ReachNone, Plans: plans{workflow.Completed: 1}}, retention.OperationKeep},
		{retention.Day{Reach: retention.ReachFinal}, retention.OperationDrop},
		{retention.Day{Reach: retention.ReachFinal, Held: true}, retention.OperationKeep},
		{retention.Day{Reach: retention.ReachFinished, Held: true, Plans: plans{workflow.Completed: 1}}, retention.OperationKeep},
		{retention.Day{Reach: retention.ReachFinished, Plans: plans{}}, retention.OperationDrop},
		{retention.Day{Reach: retention.ReachFinished, Plans: plans{workflow.Completed: 2, workflow.Stopped: 1}}, retention.OperationDrop},
		{retention.Day{Reach: retention.ReachFinished, Plans: plans{workflow.Completed: 2, workflow.Failed: 1}}, retention.OperationPurge},
		{retention.Day{Reach: retention.ReachFinished, Plans: plans{workflow.Stopped: 2, workflow.Running: 1}}, retention.OperationPurge},
		{retention.Day{Reach: retention.ReachFinished, Plans: plans{workflow.Stopped: 2}, Unreadable: 1}, retention.OperationPurge},
		{retention.Day{Reach: retention.ReachFinished, Plans: plans{workflow.Failed: 2}}, retention.OperationKeep},
		{retention.Day{Reach: retention.ReachFinished, Unreadable: 1}, retention.OperationKeep},
		{retention.Day{Reach: retention.ReachFinished, Plans: plans{workflow.Completed: 2}, Recent: 1}, retention.OperationPurge},
		{retention.Day{Reach: retention.ReachFinished, Plans: plans{workflow.Completed: 2}, Recent: 2}, retention.OperationKeep},
		{retention.Day{Reach: retention.ReachFinal, Plans: plans{workflow.Failed: 2, workflow.Running: 1}, Recent: 1}, retention.OperationPurge},
		{retention.Day{Reach: retention.ReachFinal, Plans: plans{workflow.Failed: 2}, Recent: 2}, retention.OperationKeep},
	} {
		if got := test.d.Operation(); got != test.want {
			t.Errorf("%+v: %s, want %s", test.d, got, test.want)
		}
	}
}

func TestPoliciesThatMakeNoSense(t *testing.T) {
	v := memvault.New(nil, memvault.Options{})
	for _, p := range []retention.Policy{
		{}, {KeepDays: -1}, {KeepDays: 40_000}, {KeepFailedDays: 3}, {KeepDays: 3, KeepFailedDays: 2}, {KeepDays: 3, KeepFailedDays: 40_000}, {KeepDays: 3, KeepFailedDays: -1},
	} {
		if _, err := retention.Set(t.Context(), v, p, retention.Change{By: by}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

// whole is a vault in memory with all that it offers.
type whole struct {
	*memvault.Vault
	storage.Control
}

func open(v *memvault.Vault) whole { return whole{v, v.Control()} }

// vault is a store with two days to drop, which takes a while. Its notes are in a store that others share.
type vault struct {
	whole
	took    time.Duration // of a call of Retire
	slow    time.Duration // after a look at the roster
	retired []string      // the days
	during  func(day int) // called during a call of Retire; may be nil
	more    int           // how many calls of Retire leave something
	err     error         // of Retire
	cut     bool          // its process is dead: no write has an effect
	upkeeps int
	steps   int
	asked   time.Time // when DueDays was called last
	policy  retention.Policy
}

func (v *vault) DueDays(_ context.Context, p retention.Policy) (list []retention.Day, _ error) {
	v.asked, v.policy = time.Now(), p
	v.steps++
	for i := range 4 {
		day := storage.Day{Year: 2020, Month: 1, Day: 1 + i}
		list = append(list, retention.Day{Day: day, Reach: retention.ReachFinal, Held: i == 1 || i == 2})
	}
	return list, nil
}

func (v *vault) Retire(ctx context.Context, _ retention.Policy, day storage.Day, _ time.Duration) (retention.Result, error) {
	v.retired = append(v.retired, fmt.Sprint(day.Day))
	time.Sleep(v.took)
	if v.during != nil {
		v.during(day.Day)
	}
	if v.more > 0 {
		v.more--
		return retention.Result{Removed: 5, More: true}, v.err
	}
	return retention.Result{Dropped: v.err == nil}, v.err
}

func (v *vault) Roster(ctx context.Context) (storage.Roster, error) {
	defer time.Sleep(v.slow)
	return v.whole.Roster(ctx)
}

func (v *vault) PutNote(ctx context.Context, n storage.Note) (storage.Version, error) {
	if v.cut {
		return "", storage.ErrUnavailable
	}
	return v.whole.PutNote(ctx, n)
}

func (v *vault) Upkeep(context.Context) error { v.upkeeps++; return nil }

// inBubble runs a test with a store.
func inBubble(t *testing.T, name string, test func(t *testing.T, store *memvault.Store)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, memvault.NewStore()) })
	})
}

// firstLook looks each minute until a step is done, for at most some time, and returns how long that took.
func firstLook(t *testing.T, v *vault, e *retention.Enforcer, most time.Duration) (*retention.Report, time.Duration) {
	t.Helper()
	for began := time.Now(); time.Since(began) <= most; time.Sleep(time.Minute) {
		_, report, err := e.Look(t.Context())
		if report != nil || err != nil {
			if !errors.Is(err, v.err) {
				t.Fatal(err)
			}
			return report, v.asked.Sub(began)
		}
	}
	return nil, most
}

func set(t *testing.T, vault storage.Vault, p retention.Policy, c retention.Change) {
	t.Helper()
	if changed, err := retention.Set(t.Context(), vault, p, c); err != nil || !changed {
		t.Fatalf("the policy is set: %t, %v", changed, err)
	}
}

func found(t *testing.T, vault storage.Vault) retention.Stored {
	t.Helper()
	s, err := retention.Find(t.Context(), vault)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestWhenAStepBegins looks at the time of steps after changes.
func TestWhenAStepBegins(t *testing.T) {
	p := retention.Policy{KeepDays: 90}
	inBubble(t, "a new policy waits for a day, and steps are daily", func(t *testing.T, store *memvault.Store) {
		v := &vault{whole: open(store.Open(nil, memvault.Options{}))}
		e := retention.NewEnforcer(v, "a")
		if s, r, err := e.Look(t.Context()); s != nil || r != nil || err != nil {
			t.Fatalf("without a policy: %v, %v, %v", s, r, err)
		}
		set(t, v, p, retention.Change{By: workflow.Attribution{By: "ann", Why: "space"}})
		began := time.Now().UTC()
		for _, want := range []time.Duration{aDay, 23 * time.Hour, 23 * time.Hour} {
			if r, after := firstLook(t, v, e, 48*time.Hour); r == nil || after != want {
				t.Fatalf("the step begins after %v, want %v", after, want)
			}
		}
		s := found(t, v)
		want := retention.Report{At: began.Add(70 * time.Hour), By: "a", Dropped: 2, Kept: []retention.KeptDay{{Day: storage.Day{Year: 2020, Month: 1, Day: 2}, Why: "held"}, {Day: storage.Day{Year: 2020, Month: 1, Day: 3}, Why: "held"}}, KeptAll: 2}
		if got, _ := json.Marshal(s.Last); s.By.By != "ann" || s.By.Why != "space" || !s.By.At.Equal(began) || s.Claim != "" || string(got) != jsonOf(want) {
			t.Errorf("%+v, last %s", s, got)
		}
		if v.upkeeps != 0 || v.policy != (retention.Policy{KeepDays: 90, KeepFailedDays: 90}) {
			t.Errorf("%d upkeeps, %+v", v.upkeeps, v.policy)
		}
	})
	inBubble(t, "at once", func(t *testing.T, store *memvault.Store) {
		v := &vault{whole: open(store.Open(nil, memvault.Options{}))}
		set(t, v, retention.Policy{KeepDays: 90, Catalogue: true}, retention.Change{By: by, AtOnce: true})
		version, err := v.PutNote(t.Context(), storage.Note{Name: storage.NoteSuspended, Text: []byte("{}")})
		if r, _ := firstLook(t, v, retention.NewEnforcer(v, "a"), aDay); r != nil || err != nil {
			t.Errorf("a step in a suspended store: %+v, %v", r, err)
		}
		if err := v.RemoveNote(t.Context(), storage.NoteSuspended, version); err != nil {
			t.Fatal(err)
		}
		if r, after := firstLook(t, v, retention.NewEnforcer(v, "a"), aDay); r == nil || after != 0 || v.upkeeps != 1 {
			t.Errorf("the step begins after %v; %d upkeeps", after, v.upkeeps)
		}
	})
	inBubble(t, "each change waits, and none does not", func(t *testing.T, store *memvault.Store) {
		v := &vault{whole: open(store.Open(nil, memvault.Options{}))}
		e := retention.NewEnforcer(v, "a")
		set(t, v, p, retention.Change{By: by})
		firstLook(t, v, e, 48*time.Hour)
		for _, p := range []retention.Policy{{KeepDays: 30}, {KeepDays: 60}, {KeepDays: 60, KeepFailedDays: 61}} {
			time.Sleep(20 * time.Hour)
			set(t, v, p, retention.Change{By: by})
			if changed, err := retention.Set(t.Context(), v, p, retention.Change{By: by}); err != nil || changed {
				t.Errorf("the same policy again: %t, %v", changed, err)
			}
			if r, after := firstLook(t, v, e, 48*time.Hour); r == nil || after != aDay {
				t.Errorf("after a change to %+v, the step begins after %v", p, after)
			}
		}
		set(t, v, retention.Policy{KeepDays: 60, KeepFailedDays: 61}, retention.Change{By: by, AtOnce: true})
	})
	inBubble(t, "what is left or fails is tried again after an hour", func(t *testing.T, store *memvault.Store) {
		v := &vault{whole: open(store.Open(nil, memvault.Options{})), more: 20, took: time.Minute}
		e := retention.NewEnforcer(v, "a")
		set(t, v, p, retention.Change{By: by, AtOnce: true})
		if r, _ := firstLook(t, v, e, 0); r == nil || !r.More || r.Removed != 50 || r.Dropped != 0 {
			t.Errorf("the budget of ten minutes leaves %+v", r)
		}
		v.err = fmt.Errorf("%w: %s", storage.ErrUnavailable, strings.Repeat("ж", 1000))
		if r, after := firstLook(t, v, e, aDay); r == nil || after != 50*time.Minute || r.Error == "" || len(r.Error) > 500 {
			t.Errorf("after %v: %+v", after, r)
		}
		if v.err, v.more = nil, 0; found(t, v).Last.Error == "" {
			t.Error("the note lacks the error")
		}
		if r, _ := firstLook(t, v, e, aDay); r == nil || r.Dropped != 2 || r.More {
			t.Errorf("at last: %+v", r)
		}
	})
	inBubble(t, "a denied step ends early", func(t *testing.T, store *memvault.Store) {
		v := &vault{whole: open(store.Open(nil, memvault.Options{})), err: storage.ErrDenied}
		set(t, v, p, retention.Change{By: by, AtOnce: true})
		if r, _ := firstLook(t, v, retention.NewEnforcer(v, "a"), 0); len(v.retired) != 1 || !r.More {
			t.Errorf("days %v, %+v", v.retired, r)
		}
	})
}

func jsonOf(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// TestClaims has several processes, of which some die.
func TestClaims(t *testing.T) {
	p := retention.Policy{KeepDays: 90}
	inBubble(t, "one of many does a step", func(t *testing.T, store *memvault.Store) {
		var vaults []*vault
		var work sync.WaitGroup
		for i := range 5 {
			v := &vault{whole: open(store.Open(nil, memvault.Options{})), took: time.Minute, slow: time.Second}
			vaults = append(vaults, v)
			if i == 0 {
				set(t, v, p, retention.Change{By: by})
			}
			work.Go(func() {
				e := retention.NewEnforcer(v, fmt.Sprint(i))
				for range 10*24 + 1 {
					_, _, _ = e.Look(t.Context())
					time.Sleep(time.Hour)
				}
			})
		}
		work.Wait()
		retired, steps := 0, 0
		for _, v := range vaults {
			retired, steps = retired+len(v.retired), steps+v.steps
		}
		if retired != 2*10 || steps != 10 {
			t.Errorf("%d days were dropped by %d steps in ten days", retired, steps)
		}
	})
	inBubble(t, "the step of a dead process is done by another", func(t *testing.T, store *memvault.Store) {
		dying, other := &vault{whole: open(store.Open(nil, memvault.Options{}))}, &vault{whole: open(store.Open(nil, memvault.Options{}))}
		dying.during = func(int) { dying.cut = true }
		set(t, other, p, retention.Change{By: by, AtOnce: true})
		if _, r, err := retention.NewEnforcer(dying, "dying").Look(t.Context()); !errors.Is(err, storage.ErrUnavailable) || r == nil {
			t.Fatalf("%+v, %v", r, err)
		}
		if s := found(t, other); s.Claim != "dying" || s.Last != nil {
			t.Fatalf("%+v", s)
		}
		if r, after := firstLook(t, other, retention.NewEnforcer(other, "other"), aDay); r == nil || after != 30*time.Minute || found(t, other).Claim != "" {
			t.Errorf("the step is done after %v: %+v", after, r)
		}
	})
	inBubble(t, "a step whose policy changes ends before the next day", func(t *testing.T, store *memvault.Store) {
		for what, change := range map[string]func(v *vault){
			"set":        func(v *vault) { set(t, v, retention.Policy{KeepDays: 3000}, retention.Change{By: by}) },
			"removed":    func(v *vault) { _, _ = retention.Remove(t.Context(), v, by) },
			"taken over": func(v *vault) { n, _ := v.FindNote(t.Context(), "policy"); _, _ = v.PutNote(t.Context(), n) },
		} {
			v := &vault{whole: open(memvault.NewStore().Open(nil, memvault.Options{}))}
			v.during = func(int) { change(v) }
			set(t, v, p, retention.Change{By: by, AtOnce: true})
			_, _, err := retention.NewEnforcer(v, "a").Look(t.Context())
			if s, findErr := retention.Find(t.Context(), v); err != nil || !slices.Equal(v.retired, []string{"1"}) || (findErr != nil) != (what == "removed") || s.Last != nil {
				t.Errorf("%s: days %v, %v; then %+v, %v", what, v.retired, err, s, findErr)
			}
		}
	})
	inBubble(t, "a long day is left within a minute", func(t *testing.T, store *memvault.Store) {
		v := &vault{whole: open(store.Open(nil, memvault.Options{})), more: 9, took: time.Minute}
		v.during = func(int) {
			if len(v.retired) == 3 {
				_, _ = retention.Remove(t.Context(), v, by)
			}
		}
		set(t, v, p, retention.Change{By: by, AtOnce: true})
		if _, r, err := retention.NewEnforcer(v, "a").Look(t.Context()); err != nil || len(v.retired) != 3 || r.Removed != 15 {
			t.Errorf("%d calls: %+v, %v", len(v.retired), r, err)
		}
		if _, err := retention.Find(t.Context(), v); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the policy is there again: %v", err)
		}
	})
	inBubble(t, "a wrong answer", func(t *testing.T, store *memvault.Store) {
		v := store.Open(nil, memvault.Options{})
		set(t, v, p, retention.Change{By: by})
		lies := 1
		liar := hooked.Wrap(v, hooked.On("FindNote", func(c *hooked.Call) error {
			if lies--; lies >= 0 {
				return storage.ErrNotFound
			}
			return c.Do()
		}))
		if removed, err := retention.Remove(t.Context(), liar, by); !removed || err != nil {
			t.Errorf("%t, %v", removed, err)
		}
	})
}

// TestRecordsThatCantBeRead enforces nothing that it does not understand, and sets the policy anew only if it was damaged.
func TestRecordsThatCantBeRead(t *testing.T) {
	for text, want := range map[string]error{
		`{}`: storage.ErrCorrupt, `{"form":1}`: storage.ErrCorrupt, `{"form":1,"keepDays":"90d"}`: storage.ErrCorrupt,
		`{"form":1,"keepDays":-1}`: storage.ErrCorrupt, `{"form":2,"keepDays":{}}`: storage.ErrSchema,
	} {
		v := &vault{whole: open(memvault.New(nil, memvault.Options{}))}
		if _, err := v.PutNote(t.Context(), storage.Note{Name: "policy", Text: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		if _, r, err := retention.NewEnforcer(v, "a").Look(t.Context()); !errors.Is(err, want) || r != nil {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
		if _, err := retention.Set(t.Context(), v, retention.Policy{KeepDays: 1}, retention.Change{By: by}); (err == nil) != (want == storage.ErrCorrupt) {
			t.Errorf("%s: set again: %v", text, err)
		}
		if removed, err := retention.Remove(t.Context(), v, by); err != nil || !removed {
			t.Errorf("%s: %t, %v", text, removed, err)
		}
	}
}

// TestStoredForm reads a note with all that it may have, and sets another policy in its place.
func TestStoredForm(t *testing.T) {
	v := memvault.New(nil, memvault.Options{})
	const last = `"last":{"at":"2026-02-01T00:00:00Z","by":"b","dropped":1,"removed":2,"kept":[{"day":"2026-01-02","why":"held"}],"keptAll":3,"more":true,"error":"e"}}`
	const text = `{"form":1,"keepDays":90,"keepFailedDays":365,"catalogue":true,"by":"ann","why":"space","set":"2026-01-01T00:00:00Z","atOnce":true,"claim":"a",` + last
	if _, err := v.Control().PutNote(t.Context(), storage.Note{Name: "policy", Text: []byte(text)}); err != nil {
		t.Fatal(err)
	}
	s := found(t, v)
	want := retention.Stored{
		Policy: retention.Policy{KeepDays: 90, KeepFailedDays: 365, Catalogue: true},
		By:     workflow.Attribution{By: "ann", Why: "space", At: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		AtOnce: true, Claim: "a", Last: s.Last, Version: s.Version, At: s.At,
	}
	if got := "\"last\":" + jsonOf(s.Last) + "}"; s != want || got != last {
		t.Errorf("%+v, last %s", s, got)
	}
	set(t, v, retention.Policy{KeepDays: 1}, retention.Change{By: workflow.Attribution{By: "bob"}})
	if n, err := v.Control().FindNote(t.Context(), "policy"); err != nil || string(n.Text) != `{"form":1,"keepDays":1,"keepFailedDays":1,"by":"bob",`+last {
		t.Errorf("%s, %v", n.Text, err)
	}
}

// TestChangesAreLogged sets and removes policies. The log has what changed something, and by whom.
func TestChangesAreLogged(t *testing.T) {
	inBubble(t, "log", func(t *testing.T, store *memvault.Store) {
		v := store.Open(nil, memvault.Options{})
		p := retention.Policy{KeepDays: 1, KeepFailedDays: 3, Catalogue: true}
		for range 2 { // the second time, nothing changes
			_, err := retention.Set(t.Context(), v, p, retention.Change{By: by})
			if err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		for i := range 2 {
			if removed, err := retention.Remove(t.Context(), v, by); err != nil || removed != (i == 0) {
				t.Fatal(removed, err)
			}
		}
		_, setErr := retention.Set(t.Context(), v, p, retention.Change{})
		_, removeErr := retention.Remove(t.Context(), v, workflow.Attribution{})
		_, hidden := retention.Find(t.Context(), struct{ storage.Vault }{v})
		if !errors.Is(setErr, storage.ErrInvalid) || !errors.Is(removeErr, storage.ErrInvalid) || !errors.Is(hidden, errors.ErrUnsupported) {
			t.Errorf("%v, %v, %v", setErr, removeErr, hidden)
		}
		entries, err := storage.Collect(v.Control().AuditEntries(t.Context(), storage.AuditFilters{}))
		got := ""
		for _, e := range slices.Backward(entries) {
			got += fmt.Sprintf("%s by %s: %s: %s\n", e.What, e.By.By, e.Detail, e.Result)
		}
		if err != nil || got != "policy-set by operator: keep plans 1 day, Failed plans 3 days, build catalogues: done\npolicy-remove by operator: : done\n" {
			t.Errorf("%s%v", got, err)
		}
	})
}

// FuzzFind reads any note. A record that is read makes sense, and its first step does not begin before its day has passed.
func FuzzFind(f *testing.F) {
	f.Add([]byte(`{"form":1,"keepDays":90,"keepFailedDays":365,"set":"2026-01-01T00:00:00Z","claim":"a","last":{"at":"2026-02-01T00:00:00Z","kept":[{}]}}`))
	f.Add([]byte(`{"form":1,"catalogue":true,"atOnce":true,"last":{"more":true}}`))
	f.Add([]byte(`{"form":1,"keepDays":1e9}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		v := memvault.New(nil, memvault.Options{})
		if _, err := v.Control().PutNote(t.Context(), storage.Note{Name: "policy", Text: text}); err != nil {
			return
		}
		s, err := retention.Find(t.Context(), v)
		switch {
		case err != nil:
			if !errors.Is(err, storage.ErrCorrupt) && !errors.Is(err, storage.ErrSchema) || s.Version == "" {
				t.Errorf("%v", err)
			}
		case s.Policy.KeepDays < 0 || s.Policy.KeepFailedDays < s.Policy.KeepDays || s.By.At.IsZero() || !s.AtOnce && s.Begin().Before(s.By.At.Add(retention.Delay)):
			t.Errorf("%+v", s)
		}
	})
}
