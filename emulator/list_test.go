package emulator_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// alphabet adds the blobs a/00 … a/24 and b/00 … b/24.
func alphabet(s *emulator.Server) (all []string) {
	for _, dir := range []string{"a", "b"} {
		for i := range 25 {
			name := fmt.Sprintf("%s/%02d", dir, i)
			s.Put("plans", name, []byte(name), map[string]string{"Name": name})
			all = append(all, name)
		}
	}
	return all
}

func TestListBlobs(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	for _, tc := range []struct {
		name        string
		o           container.ListBlobsFlatOptions
		first, last string
		n, pages    int
	}{
		{name: "all", first: "a/00", last: "b/24", n: 50, pages: 1},
		{name: "pages", o: container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(7))}, first: "a/00", last: "b/24", n: 50, pages: 8},
		{name: "pages that just fit", o: container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(25))}, first: "a/00", last: "b/24", n: 50, pages: 2},
		{name: "prefix", o: container.ListBlobsFlatOptions{Prefix: to.Ptr("b/1")}, first: "b/10", last: "b/19", n: 10, pages: 1},
		{name: "prefix of none", o: container.ListBlobsFlatOptions{Prefix: to.Ptr("c")}, pages: 1},
		{name: "start", o: container.ListBlobsFlatOptions{StartFrom: to.Ptr("b/05")}, first: "b/05", last: "b/24", n: 20, pages: 1},
		{name: "start between names", o: container.ListBlobsFlatOptions{StartFrom: to.Ptr("b/05x")}, first: "b/06", last: "b/24", n: 19, pages: 1},
		{name: "start within a prefix, in pages", o: container.ListBlobsFlatOptions{
			StartFrom: to.Ptr("a/20"), Prefix: to.Ptr("a/"), MaxResults: to.Ptr(int32(2)),
		}, first: "a/20", last: "a/24", n: 5, pages: 3},
		{name: "start behind the prefix", o: container.ListBlobsFlatOptions{StartFrom: to.Ptr("b"), Prefix: to.Ptr("a/")}, pages: 1},
		{name: "start before the prefix", o: container.ListBlobsFlatOptions{StartFrom: to.Ptr("a"), Prefix: to.Ptr("b/")}, first: "b/00", last: "b/24", n: 25, pages: 1},
		{name: "more than the service gives", o: container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(9999))}, first: "a/00", last: "b/24", n: 50, pages: 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
				alphabet(s)
				got, pages := names(t, c, &tc.o)
				if len(got) != tc.n || pages != tc.pages {
					t.Fatalf("got %d names in %d pages: %v", len(got), pages, got)
				}
				if tc.n > 0 && (got[0] != tc.first || got[tc.n-1] != tc.last || !slices.IsSorted(got)) {
					t.Errorf("got %v", got)
				}
			})
		})
	}
}

func TestListBlobsShowsProperties(t *testing.T) {
	onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
		put := mustUpload(t, c, "a", "body", nil)
		s.Put("plans", "b", nil, map[string]string{"State": `<&"'> ~`})
		page, err := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{
			Include: container.ListBlobsInclude{Metadata: true, Tags: true, UncommittedBlobs: true},
		}).NextPage(t.Context())
		must(t, err)
		a, b := page.Segment.BlobItems[0], page.Segment.BlobItems[1]
		if `"`+string(*a.Properties.ETag)+`"` != string(*put.ETag) {
			t.Errorf("ETag is %s in the listing and %s in the answer to put", *a.Properties.ETag, *put.ETag)
		}
		if *a.Properties.ContentLength != 4 || !slices.Equal(a.Properties.ContentMD5, put.ContentMD5) ||
			!a.Properties.LastModified.Equal(*put.LastModified) || *a.Properties.ContentType != "application/octet-stream" ||
			*a.Properties.BlobType != "BlockBlob" || *a.Properties.LeaseState != "available" || len(a.Metadata) != 0 {
			t.Errorf("properties are %+v", a.Properties)
		}
		if *b.Metadata["state"] != `<&"'> ~` {
			t.Errorf("metadata is %v", b.Metadata)
		}
		page, err = c.NewListBlobsFlatPager(nil).NextPage(t.Context())
		if err != nil || page.Segment.BlobItems[1].Metadata != nil {
			t.Errorf("metadata was not requested: %v", err)
		}
	})
}

// TestListWhileWriting checks that the pages of a listing are no snapshot: each page shows what exists when
// it is requested.
func TestListWhileWriting(t *testing.T) {
	s := emulator.New()
	c := plans(t, s.Transport())
	alphabet(s)
	pager := c.NewListBlobsFlatPager(&container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(10))})
	must(t, errOf(pager.NextPage(t.Context())))
	s.Put("plans", "a/05x", nil, nil) // before the marker: missed
	s.Put("plans", "a/10x", nil, nil) // after the marker
	s.Remove("plans", "a/10")         // the first item of the next page
	page, err := pager.NextPage(t.Context())
	must(t, err)
	var got []string
	for _, item := range page.Segment.BlobItems[:2] {
		got = append(got, *item.Name)
	}
	if !slices.Equal(got, []string{"a/10x", "a/11"}) {
		t.Errorf("the second page begins with %v", got)
	}
}

func TestListByDelimiter(t *testing.T) {
	s := emulator.New()
	c := plans(t, s.Transport())
	for _, name := range []string{"actions/1/a", "actions/1/b", "actions/2/c", "plain", "plans/x", "plans/y"} {
		s.Put("plans", name, nil, nil)
	}
	for _, tc := range []struct {
		prefix string
		max    int32
		want   string
	}{
		{"", 100, "actions/* plain plans/* |"},
		{"", 1, "actions/* | plain | plans/* |"},
		{"actions/", 100, "actions/1/* actions/2/* |"},
		{"actions/1/", 1, "actions/1/a | actions/1/b |"},
		{"none", 100, "|"},
	} {
		var got strings.Builder
		for pager := c.NewListBlobsHierarchyPager("/", &container.ListBlobsHierarchyOptions{
			Prefix: &tc.prefix, MaxResults: &tc.max,
		}); pager.More(); {
			page, err := pager.NextPage(t.Context())
			must(t, err)
			var items []string
			for _, p := range page.Segment.BlobPrefixes {
				items = append(items, *p.Name+"*")
			}
			for _, b := range page.Segment.BlobItems {
				items = append(items, *b.Name)
			}
			slices.Sort(items)
			for _, item := range items {
				got.WriteString(item + " ")
			}
			got.WriteString("| ")
		}
		if strings.TrimSpace(got.String()) != tc.want {
			t.Errorf("%q by %d: got %s, want %s", tc.prefix, tc.max, &got, tc.want)
		}
	}
}

func TestListOddNames(t *testing.T) {
	s := emulator.New()
	odd := []string{"<&>\"'", "\n", "tab\there", "ü/é", "😀", " blanks ", "a%2Fb", "\x01control", "\uFFFE"}
	for _, name := range odd {
		s.Put("plans", name, nil, nil)
	}
	got := listAll(t, s, url.Values{})
	slices.Sort(odd)
	if !slices.Equal(got, odd) {
		t.Errorf("got %q, want %q", got, odd)
	}
}

func TestPageLimit(t *testing.T) {
	s := emulator.New(emulator.WithPageLimit(3))
	c := plans(t, s.Transport())
	all := alphabet(s)
	got, pages := names(t, c, &container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(10))})
	if !slices.Equal(got, all) || pages != 17 {
		t.Errorf("got %d names in %d pages", len(got), pages)
	}
}

func TestPagesOf5000(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	s := emulator.New()
	for i := range 10001 {
		s.Put("plans", fmt.Sprintf("%05d", i), nil, nil)
	}
	got, pages := names(t, plans(t, s.Transport()), nil)
	if len(got) != 10001 || pages != 3 || !slices.IsSorted(got) {
		t.Errorf("got %d names in %d pages", len(got), pages)
	}
}
