package blob

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// listNames collects what a listing yields, which must end after an error.
func listNames(t *testing.T, w *world, o ListOptions) (names []string, pages int, err error) {
	t.Helper()
	for page, e := range w.List(t.Context(), "box", o) {
		if err != nil {
			t.Error("the listing goes on after an error")
		}
		err = e
		pages++
		for _, item := range page.Items {
			names = append(names, item.Name)
		}
	}
	return names, pages, err
}

func TestListYieldsEachBlobOnce(t *testing.T) {
	for _, test := range []struct {
		what        string
		pageLimit   int
		o           ListOptions
		first, last int // of 000 to 009; none if last is before first
	}{
		{"one page", 5000, ListOptions{}, 0, 9},
		{"small pages", 3, ListOptions{}, 0, 9},
		{"pages of one", 1, ListOptions{}, 0, 9},
		{"a full last page", 5, ListOptions{}, 0, 9},
		{"pages as asked for", 5000, ListOptions{MaxResults: 4}, 0, 9},
		{"a prefix", 3, ListOptions{Prefix: "00"}, 0, 9},
		{"a prefix of one", 3, ListOptions{Prefix: "004"}, 4, 4},
		{"a prefix of none", 3, ListOptions{Prefix: "x"}, 0, -1},
		{"a start", 3, ListOptions{StartFrom: "004"}, 4, 9},
		{"a start between names", 3, ListOptions{StartFrom: "0031"}, 4, 9},
		{"a start behind all", 3, ListOptions{StartFrom: "1"}, 0, -1},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.fill(10, false)
			names, _, err := listNames(t, w, test.o)
			var want []string
			for i := test.first; i <= test.last; i++ {
				want = append(want, fmt.Sprintf("%03d", i))
			}
			if err != nil || !slices.Equal(names, want) {
				t.Errorf("%s: %q, %v", test.what, names, err)
			}
			if test.o.MaxResults > 0 && w.server.Requests()[0].MaxResults != test.o.MaxResults {
				t.Errorf("%s: %d were requested", test.what, w.server.Requests()[0].MaxResults)
			}
		}, emulator.WithPageLimit(test.pageLimit))
	}
}

// TestListGoesOnAfterFaults interrupts each page in each way, several times.
func TestListGoesOnAfterFaults(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	want := []string{"000", "001", "002", "003", "004", "005", "006", "007", "008", "009"}
	effects := append(slices.Clone(interruptions), emulator.EmptyPage(), emulator.LostAnswer(), emulator.Answer(429, "TooManyRequests"))
	for _, n := range []int{0, 1, 10, 60, 100, 500, 1000, 1200} {
		effects = append(effects, emulator.CutBody(n))
	}
	for page := 1; page <= 4; page++ {
		for _, effect := range effects {
			for _, times := range []int{1, 3} {
				inWorld(t, func(t *testing.T, w *world) {
					w.fill(10, false)
					w.server.Inject(emulator.On(emulator.ListBlobs).Range(page, page+times-1).Do(effect))
					names, _, err := listNames(t, w, ListOptions{Metadata: true})
					if err != nil || !slices.Equal(names, want) {
						t.Errorf("page %d, %s %d times: %q, %v", page, effect, times, names, err)
					}
				}, emulator.WithPageLimit(3))
			}
		}
	}
}

func TestListEndsWithItsError(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.fill(10, false)
		w.server.Inject(emulator.On(emulator.ListBlobs).Range(3, 0).Do(emulator.Answer(403, "AuthorizationFailure")))
		names, pages, err := listNames(t, w, ListOptions{})
		wantError(t, "refused on the third page", err, Refused, false)
		if len(names) != 6 || pages != 3 {
			t.Errorf("%q on %d pages", names, pages)
		}
	}, emulator.WithPageLimit(3))
	inWorld(t, func(t *testing.T, w *world) {
		w.fill(10, false)
		w.server.Inject(emulator.On(emulator.ListBlobs).Range(2, 0).Do(emulator.Answer(503, "ServerBusy")))
		names, _, err := listNames(t, w, ListOptions{})
		wantError(t, "busy from the second page on", err, Unreachable, false)
		if len(names) != 3 {
			t.Errorf("%q", names)
		}
	}, emulator.WithPageLimit(3))
	inWorld(t, func(t *testing.T, w *world) {
		w.server.RemoveContainer("box")
		_, _, err := listNames(t, w, ListOptions{})
		wantError(t, "no container", err, AbsentContainer, false)
	})
}

func TestListTellsProperties(t *testing.T) {
	for _, metadata := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			etag, err := w.Put(t.Context(), Ref{"box", "b"}, []byte("{}"), map[string]string{WriteID: "mine", "name": "<&> \"x\" =?utf-8?b?YQ==?="}, Always)
			must(t, err)
			written := time.Now()
			time.Sleep(time.Hour)
			for page, err := range w.List(t.Context(), "box", ListOptions{Metadata: metadata}) {
				if err != nil || len(page.Items) != 1 {
					t.Fatalf("%+v, %v", page, err)
				}
				item := page.Items[0]
				if item.Name != "b" || item.ETag != etag || !item.LastModified.Equal(written) || !item.Seen.Equal(time.Now()) {
					t.Errorf("%+v, the ETag is %q", item, etag)
				}
				want := map[string]string{}
				if metadata {
					want = map[string]string{WriteID: "mine", "name": "<&> \"x\" =?utf-8?b?YQ==?="}
				}
				if !maps.Equal(item.Metadata, want) {
					t.Errorf("metadata %v", item.Metadata)
				}
			}
		})
	}
}

// TestListKeepsTheMetadataThatIsWanted lists two blobs and selects the metadata of one.
func TestListKeepsTheMetadataThatIsWanted(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.fill(2, false)
		wanted := func(name string) bool { return name == "001" }
		for page, err := range w.List(t.Context(), "box", ListOptions{Metadata: true, MetadataOf: wanted}) {
			if err != nil || len(page.Items) != 2 || len(page.Items[0].Metadata) != 0 || len(page.Items[1].Metadata) == 0 {
				t.Errorf("%+v, %v", page, err)
			}
		}
	})
}

// TestListMayBeRangedOverAgain ends a first loop anywhere.
func TestListMayBeRangedOverAgain(t *testing.T) {
	for stop := 1; stop <= 4; stop++ {
		inWorld(t, func(t *testing.T, w *world) {
			w.fill(10, false)
			for i := range 5 {
				w.server.PutContainer(fmt.Sprintf("day-%d", i), nil)
			}
			blobs := w.List(t.Context(), "box", ListOptions{})
			containers := w.ListContainers(t.Context(), "day-")
			pages := 0
			for range blobs {
				if pages++; pages == stop {
					break
				}
			}
			pages = 0
			for range containers {
				if pages++; pages == stop {
					break
				}
			}
			for range 2 {
				var names []string
				for page, err := range blobs {
					must(t, err)
					for _, item := range page.Items {
						names = append(names, item.Name)
					}
				}
				for page, err := range containers {
					must(t, err)
					for _, item := range page {
						names = append(names, item.Name)
					}
				}
				if want := []string{"000", "001", "002", "003", "004", "005", "006", "007", "008", "009", "day-0", "day-1", "day-2", "day-3", "day-4"}; !slices.Equal(names, want) {
					t.Errorf("after a break on page %d: %q", stop, names)
				}
			}
		}, emulator.WithPageLimit(3))
	}
}

func TestListAsksForNothingAhead(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.fill(10, false)
		seq := w.List(t.Context(), "box", ListOptions{})
		if n := len(w.server.Requests()); n != 0 {
			t.Errorf("%d requests before the range", n)
		}
		for range seq {
			break
		}
		if n := len(w.server.Requests()); n != 1 {
			t.Errorf("%d requests for one page", n)
		}
	}, emulator.WithPageLimit(3))
}

func TestListContainers(t *testing.T) {
	effects := append(slices.Clone(interruptions), emulator.CutBody(1), emulator.CutBody(200), emulator.EmptyPage())
	for page := 1; page <= 3; page++ {
		for _, effect := range effects {
			inWorld(t, func(t *testing.T, w *world) {
				for i := range 5 {
					w.server.PutContainer(fmt.Sprintf("day-%d", i), map[string]string{"number": fmt.Sprint(i)})
				}
				w.server.Inject(emulator.On(emulator.ListContainers).Range(page, page+1).Do(effect))
				var got []ContainerItem
				for items, err := range w.ListContainers(t.Context(), "day-") {
					must(t, err)
					got = append(got, items...)
				}
				if len(got) != 5 {
					t.Fatalf("page %d, %s: %+v", page, effect, got)
				}
				for i, c := range got {
					if c.Name != fmt.Sprintf("day-%d", i) || c.Metadata["number"] != fmt.Sprint(i) {
						t.Errorf("page %d, %s: %+v", page, effect, got)
					}
				}
			}, emulator.WithPageLimit(2))
		}
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.server.Inject(emulator.On(emulator.ListContainers).Do(emulator.Answer(403, "AuthorizationPermissionMismatch")))
		n := 0
		for _, err := range w.ListContainers(t.Context(), "day-") {
			n++
			wantError(t, "not allowed", err, Refused, false)
		}
		if n != 1 {
			t.Errorf("%d pairs", n)
		}
	})
}

// TestListContainersBelievesNoEmptyAnswer sends an empty body, which must not be read as a listing without
// containers.
func TestListContainersBelievesNoEmptyAnswer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.server.PutContainer("day-0", nil)
		w.server.Inject(emulator.On(emulator.ListContainers).Nth(1).Do(emulator.CutBody(0)))
		var names []string
		for items, err := range w.ListContainers(t.Context(), "day-") {
			must(t, err)
			for _, item := range items {
				names = append(names, item.Name)
			}
		}
		if !slices.Equal(names, []string{"day-0"}) {
			t.Errorf("%q are listed", names)
		}
	})
}

// TestGarbledListingsAreAskedForAgain removes something from an answer that stays well-formed.
func TestGarbledListingsAreAskedForAgain(t *testing.T) {
	blobs := func(t *testing.T, c *Client) (names []string) {
		for page, err := range c.List(t.Context(), "box", ListOptions{}) {
			must(t, err)
			for _, item := range page.Items {
				names = append(names, item.Name)
			}
		}
		return names
	}
	containers := func(t *testing.T, c *Client) (names []string) {
		for items, err := range c.ListContainers(t.Context(), "") {
			must(t, err)
			for _, item := range items {
				names = append(names, item.Name)
			}
		}
		return names
	}
	for _, test := range []struct {
		without string
		list    func(*testing.T, *Client) []string
		want    string
	}{
		{"Name", blobs, "ab"}, {"Properties", blobs, "ab"}, {"Blobs", blobs, "ab"}, {"Name", containers, "boxbox2"},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.server.Put("box", "a", nil, nil)
			w.server.Put("box", "b", nil, nil)
			w.server.PutContainer("box2", nil)
			c, n := w.garbled(t, func(text string) string {
				// Remove the last one, so that everything before it has been read.
				from, to := strings.LastIndex(text, "<"+test.without+">"), strings.LastIndex(text, "</"+test.without+">")
				return text[:from] + text[to+len(test.without)+3:]
			})
			if names := strings.Join(test.list(t, c), ""); names != test.want || *n != 2 {
				t.Errorf("without %s: %q are listed after %d requests", test.without, names, *n)
			}
		})
	}
}

// TestListGroups expects each group once, and names without a delimiter, with pages of any size.
func TestListGroups(t *testing.T) {
	for _, limit := range []int{1, 2, 5000} {
		inWorld(t, func(t *testing.T, w *world) {
			for _, name := range []string{"0", "a/1", "a/2", "a/b/3", "ab", "b/1", "z"} {
				w.server.Put("box", name, nil, nil)
			}
			for prefix, want := range map[string][]string{
				"": {"0", "a/", "ab", "b/", "z"}, "a": {"a/", "ab"}, "a/": {"a/1", "a/2", "a/b/"}, "x": nil,
			} {
				var got []string
				for groups, err := range w.ListGroups(t.Context(), "box", ListOptions{Prefix: prefix}, "/") {
					must(t, err)
					got = append(got, groups...)
				}
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%q by pages of %d: got %q, want %q", prefix, limit, got, want)
				}
			}
			for _, err := range w.ListGroups(t.Context(), "no-such-box", ListOptions{}, "/") {
				if !Is(err, AbsentContainer) {
					t.Errorf("of no container: %v", err)
				}
			}
		}, emulator.WithPageLimit(limit))
	}
}
