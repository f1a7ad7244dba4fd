package azblob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
	"github.com/planvault/azblob/workflow/plantest"
)

// statsOf returns all days of a Stats, and its requests.
func statsOf(t *testing.T, a *archive, v *Vault, o StatsOptions) ([]DayStats, int) {
	t.Helper()
	before := len(a.server.Requests())
	days, err := storage.Collect(v.Stats(t.Context(), o))
	must(t, err)
	return days, len(a.server.Requests()) - before
}

// TestStats compares the numbers of each day with what is stored, with and without catalogues.
func TestStats(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	inArchive(t, 1, nil, func(t *testing.T, a *archive, first time.Time) {
		a.fill(first, 10, 300)
		open := a.plan(first)
		open.State = workflow.State{Status: workflow.Running}
		a.put(open)
		a.server.PutContainer(prefix("test").day(first.AddDate(0, 0, -3)), map[string]string{metaLayout: "1"})
		v := a.open()
		must(t, v.Hold(t.Context(), first.AddDate(0, 0, 2)))
		unreadable := prefix("test").plan(a.plans[0].ID).entry()
		b, _ := a.server.Blob(unreadable.Container, unreadable.Name)
		b.Metadata[metaSchema] = "9"
		a.server.Put(unreadable.Container, b.Name, b.Body, b.Metadata)

		want := map[string]DayStats{}
		for container := range a.server.Containers() {
			date, _ := prefix("test").parseDay(container)
			d := DayStats{Day: date, Plans: map[workflow.Status]int64{}, Held: date.Equal(first.AddDate(0, 0, 2))}
			for b := range a.server.Blobs(container) {
				d.Blobs++
				d.Bytes += int64(len(b.Body))
			}
			want[container] = d
		}
		for _, p := range a.plans {
			k := prefix("test").plan(p.ID)
			d := want[k.container]
			if p == a.plans[0] {
				d.Unreadable++
			} else {
				d.Plans[p.State.Status]++
			}
			want[k.container] = d
		}
		compare := func(what string, days []DayStats, bytes bool) {
			t.Helper()
			if len(days) != len(want) {
				t.Fatalf("%s: %d days, want %d", what, len(days), len(want))
			}
			for i, d := range days {
				w := want[prefix("test").day(d.Day)]
				if w.Left = len(days) - 1 - i; !bytes {
					w.Blobs, w.Bytes = 0, 0
				}
				if !d.Day.Equal(w.Day) || d.Left != w.Left || d.Held != w.Held || !maps.Equal(d.Plans, w.Plans) || d.Unreadable != w.Unreadable || d.Blobs != w.Blobs || d.Bytes != w.Bytes {
					t.Errorf("%s: %+v, want %+v", what, d, w)
				}
			}
		}
		days, n := statsOf(t, a, v, StatsOptions{Bytes: true})
		compare("listed", days, true)
		if n != 1+2*len(want) {
			t.Errorf("listed: %d requests for %d days", n, len(want))
		}
		report, err := v.Catalogue(t.Context(), CatalogueOptions{})
		must(t, err)
		if len(report.Built) != 9 { // of ten days with plans, today has none, the first has an open plan, and the empty one has one, too
			t.Errorf("%+v", report)
		}
		days, n = statsOf(t, a, a.open(), StatsOptions{})
		compare("catalogued", days, false)
		if n != 1+len(want) {
			t.Errorf("catalogued: %d requests for %d days", n, len(want))
		}
		gets := 0
		for _, r := range a.server.Requests()[len(a.server.Requests())-n:] {
			if r.Op == emulator.GetBlob {
				gets++
			}
		}
		if gets != len(report.Built) {
			t.Errorf("%d catalogues were read, there are %d", gets, len(report.Built))
		}
		some, _ := statsOf(t, a, v, StatsOptions{After: first.AddDate(0, 0, 3), Before: first.AddDate(0, 0, 5)})
		if len(some) != 2 || !some[0].Day.Equal(first.AddDate(0, 0, 4)) || some[0].Left != 1 || some[0].Total() == 0 {
			t.Errorf("two days: %+v", some)
		}
	})
}

// TestStatsEnds fails each request of a Stats, cancels it and breaks out of it: what was yielded is whole, and the
// last element is the error.
func TestStatsEnds(t *testing.T) {
	inArchive(t, 1, nil, func(t *testing.T, a *archive, first time.Time) {
		a.fill(first, 6, 60)
		whole, n := statsOf(t, a, a.open(), StatsOptions{Bytes: true})
		same := func(got []DayStats) bool {
			return slices.EqualFunc(got, whole[:len(got)], func(a, b DayStats) bool { return a.Total() == b.Total() && a.Bytes == b.Bytes })
		}
		for nth := 1; nth <= n; nth++ {
			server := a.server.Clone()
			server.Inject(emulator.On().Nth(nth).Do(emulator.Answer(403, "AuthorizationFailure")))
			v := (&archive{t: t, server: server}).open()
			got, err := storage.Collect(v.Stats(t.Context(), StatsOptions{Bytes: true}))
			if !errors.Is(err, storage.ErrDenied) || !same(got) {
				t.Errorf("request %d: %d days, %v", nth, len(got), err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		days, err := a.open().Stats(ctx, StatsOptions{})
		must(t, err)
		var last error
		seen := 0
		for d := range days {
			if last = d.Err; last == nil {
				seen++
			}
			cancel()
		}
		if !errors.Is(last, context.Canceled) || seen != 1 {
			t.Errorf("canceled after %d days: %v", seen, last)
		}
		for range days {
			break
		}
		synctest.Wait()
		if _, err := a.open().Stats(t.Context(), StatsOptions{After: first, Before: first}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("no days: %v", err)
		}
	})
}

// TestProgressOfCheckAndRepair follows both over some days.
func TestProgressOfCheckAndRepair(t *testing.T) {
	observed(t, slowServer, func(t *testing.T, v *Vault, s *emulator.Server, _ *notes) {
		const days = 4
		for i := range days {
			plan := plantest.Small()
			plan.ID = workflow.NewV7At(time.Now().AddDate(0, 0, i-days))
			must(t, v.Create(t.Context(), plan))
		}
		var told []storage.Progress
		_, err := v.Check(t.Context(), CheckOptions{Progress: func(p storage.Progress) { told = append(told, p) }})
		if must(t, err); fmt.Sprint(told) != "[{1 4} {2 4} {3 4} {4 4}]" {
			t.Errorf("Check: %v", told)
		}
		for _, thorough := range []bool{false, true} {
			told = nil
			_, err := v.Repair(t.Context(), RepairOptions{Thorough: thorough, Progress: func(p storage.Progress) { told = append(told, p) }})
			if must(t, err); fmt.Sprint(told) != "[{1 0} {2 0} {3 0} {4 0}]" {
				t.Errorf("thorough %t: %+v", thorough, told)
			}
		}
	})
}
