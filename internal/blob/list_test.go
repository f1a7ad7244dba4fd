package blob

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
)

// numbered are the names of the blobs of fill.
var numbered = []string{"000", "001", "002", "003", "004", "005", "006", "007", "008", "009"}

func TestListYieldsEachBlobOnce(t *testing.T) {
	for _, test := range []struct {
		what      string
		pageLimit int
		o         ListOptions
		want      []string
	}{
		{"one page", 5000, ListOptions{}, numbered},
		{"small pages", 3, ListOptions{}, numbered},
		{"pages of one", 1, ListOptions{}, numbered},
		{"a full last page", 5, ListOptions{}, numbered},
		{"pages as asked for", 5000, ListOptions{MaxResults: 4}, numbered},
		{"a prefix of one", 3, ListOptions{Prefix: "004"}, numbered[4:5]},
		{"a prefix of none", 3, ListOptions{Prefix: "x"}, nil},
		{"a start", 3, ListOptions{StartFrom: "004"}, numbered[4:]},
		{"a start between names", 3, ListOptions{StartFrom: "0031"}, numbered[4:]},
		{"a start behind all", 3, ListOptions{StartFrom: "1"}, nil},
	} {
		inWorld(t, func(t *testing.T, w *world) {
			w.fill(10, false)
			names, _, err := all(w.List(t.Context(), "box", test.o))
			if err != nil || !slices.Equal(names, test.want) {
				t.Errorf("%s: %q, %v", test.what, names, err)
			}
			if most := w.server.Requests()[0].MaxResults; test.o.MaxResults > 0 && most != test.o.MaxResults {
				t.Errorf("%s: %d were requested", test.what, most)
			}
		}, emulator.Options{PageLimit: test.pageLimit})
	}
}

// TestListTellsProperties lists two blobs with metadata, without, and with that of one. Get and Head tell the same.
func TestListTellsProperties(t *testing.T) {
	metadata := map[string]string{WriteID: "mine", "name": "<&> \"x\" =?utf-8?b?YQ==?="}
	for _, o := range []ListOptions{{}, {Metadata: true}, {Metadata: true, MetadataOf: func(name string) bool { return name == "b" }}} {
		inWorld(t, func(t *testing.T, w *world) {
			for _, name := range []string{"b", "c"} {
				_, err := w.Put(t.Context(), Ref{"box", name}, []byte("{}"), metadata, Always)
				must(t, err)
			}
			written := time.Now()
			time.Sleep(time.Hour)
			head, err := w.Head(t.Context(), ref)
			must(t, err)
			if _, got, err := w.Get(t.Context(), ref); err != nil || !reflect.DeepEqual(got, head) || !got.Seen.Equal(time.Now()) || !got.LastModified.Equal(written) {
				t.Errorf("%+v is read, and %+v looked at, %v", got, head, err)
			}
			for page, err := range w.List(t.Context(), "box", o) {
				if err != nil || len(page.Items) != 2 || page.More || !page.Seen.Equal(time.Now()) {
					t.Fatalf("%+v, %v", page, err)
				}
				if b := page.Items[0]; b.Name != "b" || b.ETag != w.etag() || !b.LastModified.Equal(written) || !b.Seen.Equal(time.Now()) || b.Size != 2 {
					t.Errorf("%+v, the ETag is %q", b, w.etag())
				}
				for i, want := range []bool{o.Metadata, o.Metadata && o.MetadataOf == nil} {
					if got := page.Items[i].Metadata; want != maps.Equal(got, metadata) || !want && len(got) > 0 {
						t.Errorf("metadata %v", got)
					}
				}
			}
		})
	}
}

// TestListMayBeRangedOverAgain ends a first loop anywhere. A listing asks for nothing ahead.
func TestListMayBeRangedOverAgain(t *testing.T) {
	for stop := 1; stop <= 4; stop++ {
		inWorld(t, func(t *testing.T, w *world) {
			w.fill(10, false)
			blobs := w.List(t.Context(), "box", ListOptions{})
			pages := 0
			for range blobs {
				if pages++; pages == stop {
					break
				}
			}
			if n := len(w.server.Requests()); n != stop {
				t.Errorf("%d requests for %d pages", n, stop)
			}
			for range 2 {
				if names, _, err := all(blobs); err != nil || !slices.Equal(names, numbered) {
					t.Errorf("after a break on page %d: %q, %v", stop, names, err)
				}
			}
		}, emulator.Options{PageLimit: 3})
	}
}

// TestGarbledListingsAreAskedForAgain removes something from an answer that stays well-formed, or adds a group, which would
// hide blobs.
func TestGarbledListingsAreAskedForAgain(t *testing.T) {
	without := func(tag string) func(string) string {
		return func(text string) string { // the last one, so that everything before it has been read
			from, to := strings.LastIndex(text, "<"+tag+">"), strings.LastIndex(text, "</"+tag+">")
			return text[:from] + text[to+len(tag)+3:]
		}
	}
	blobs := func(c *Client) ([]string, int, error) { return all(c.List(t.Context(), "box", ListOptions{})) }
	containers := func(c *Client) ([]string, int, error) { return all(c.ListContainers(t.Context(), "b")) }
	for what, test := range map[string]struct {
		garble func(string) string
		list   func(*Client) ([]string, int, error)
		want   string
	}{
		"name": {without("Name"), blobs, "b c"}, "properties": {without("Properties"), blobs, "b c"}, "blobs": {without("Blobs"), blobs, "b c"},
		"container": {without("Name"), containers, "box"}, "containers": {without("Containers"), containers, "box"}, "all": {func(string) string { return "" }, containers, "box"},
		"a group": {func(s string) string {
			return strings.Replace(s, "</Blobs>", "<BlobPrefix><Name>b/</Name></BlobPrefix></Blobs>", 1)
		}, blobs, "b c"},
	} {
		w := newWorld(t, emulator.New(emulator.Options{}))
		w.server.Put("box", "b", nil, nil)
		w.server.Put("box", "c", nil, nil)
		c, n := w.garbled(t, test.garble)
		c.retry.InitialInterval = time.Microsecond
		if names, _, err := test.list(c); err != nil || strings.Join(names, " ") != test.want || *n != 2 {
			t.Errorf("%s: %q are listed after %d requests, %v", what, names, *n, err)
		}
	}
}
