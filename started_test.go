package azblob

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/planvault/azblob/internal/blob"
	"github.com/planvault/azblob/internal/efforttest"
	"github.com/planvault/azblob/internal/listing"
	"github.com/planvault/azblob/storage"
	"github.com/planvault/azblob/workflow"
)

// TestStartedPlans searches with markers that come and go.
func TestStartedPlans(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	synctest.Test(t, func(t *testing.T) {
		var in store
		s := &in.started
		open := func(id uuid.UUID, etag string, status workflow.Status) candidate {
			c := candidate{planBlobs: planBlobs{keys: prefix("p").plan(id), marker: &blob.Item{Properties: blob.Properties{ETag: etag}}, entry: &blob.Item{}}}
			c.result.State.Status = status
			return c
		}
		// run runs a search that lists the candidates, and looks at those that the memory leaves.
		run := func(f storage.Filters, all ...candidate) (looked []uuid.UUID) {
			listed := func(yield func(candidate, error) bool) {
				for _, c := range all {
					if !yield(c, nil) {
						return
					}
				}
			}
			for c, err := range (search{store: &in, f: f}).notStarted(listed) {
				if err != nil {
					t.Fatal(err)
				}
				looked = append(looked, c.keys.plan)
				search{store: &in}.noteStarted(c)
			}
			time.Sleep(time.Minute)
			return looked
		}
		expect := func(what string, got []uuid.UUID, want ...uuid.UUID) {
			t.Helper()
			if !slices.Equal(got, want) {
				t.Errorf("%s: looked at %v, want %v", what, got, want)
			}
		}
		now := time.Now()
		fresh, running, old := idAt(now, 1), idAt(now, 2), idAt(now.Add(-48*time.Hour), 3)
		polls := storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted}}
		near := polls
		near.After = now.Add(-24 * time.Hour)
		all := []candidate{open(fresh, "1", workflow.NotStarted), open(running, "2", workflow.Running), open(old, "3", workflow.Failed)}

		expect("the first search", run(polls, all...), fresh, running, old)
		expect("the second", run(polls, all...), fresh)
		expect("another status", run(storage.Filters{ByStatus: []workflow.Status{workflow.NotStarted, workflow.Running}}, all...), fresh, running, old)
		expect("a marker that was made anew", run(polls, open(running, "9", workflow.NotStarted), all[2]), running)
		expect("which then starts", run(polls, open(running, "9", workflow.Running), all[2]), running)
		expect("and is known", run(polls, open(running, "9", workflow.Running), all[2]))

		expect("near days, without its marker", run(near))
		if want := []uuid.UUID{old}; !slices.Equal(slices.Collect(maps.Keys(s.markers)), want) {
			t.Errorf("the memory has %v, want only %v", s.markers, want)
		}
		limited := polls
		limited.Limit = 1
		run(limited)
		if len(s.markers) != 1 {
			t.Errorf("a search that may have ended early has made the memory forget")
		}
		for range (search{store: &in, f: polls}).notStarted(func(yield func(candidate, error) bool) { yield(candidate{}, storage.ErrUnavailable) }) {
		}
		if len(s.markers) != 1 {
			t.Errorf("a search that failed has made the memory forget")
		}
		time.Sleep(startedFor)
		run(near)
		if len(s.markers) != 0 {
			t.Errorf("what no search lists is remembered: %v", s.markers)
		}

		broken := open(running, "2", workflow.Running)
		broken.err = storage.ErrCorrupt
		unmarked := open(old, "3", workflow.Running)
		unmarked.marker = nil
		earlier := open(fresh, "1", workflow.Completed)
		earlier.marker.LastModified = now
		absent := open(fresh, "1", workflow.Completed)
		absent.entry = nil
		for range 2 {
			expect("what can't be known", run(polls, broken, unmarked, earlier, absent), running, old, fresh, fresh)
		}

		for i := range maxStarted {
			s.markers[listing.IDOf(uint64(i))] = startedMarker{"1", time.Now()}
		}
		far := storage.Filters{ByStatus: polls.ByStatus, After: now.Add(24 * time.Hour)}
		for range 2 {
			expect("in a full memory", run(far, open(running, "1", workflow.Running)), running)
		}
		known := listing.IDOf(7)
		expect("in a full memory, anew", run(far, open(known, "2", workflow.Running)), known)
		expect("in a full memory, again", run(far, open(known, "2", workflow.Running)))
		if len(s.markers) != maxStarted {
			t.Errorf("the memory has %d markers", len(s.markers))
		}
	})
}
