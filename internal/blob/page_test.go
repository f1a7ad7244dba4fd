package blob

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/service"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

const modified = "Fri, 20 Nov 2026 08:30:00 GMT"

// page returns a page of a listing with these blobs.
func page(blobs string) string {
	return `<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="https://a/" ContainerName="box">` +
		`<Prefix>p</Prefix><MaxResults>5000</MaxResults><Blobs>` + blobs + `</Blobs><NextMarker>2!bmV4dA</NextMarker></EnumerationResults>`
}

// blobNamed returns a blob of a page with this name and metadata.
func blobNamed(name, metadata string) string {
	return `<Blob>` + name + `<Properties><Creation-Time>` + modified + `</Creation-Time><Last-Modified>` + modified +
		`</Last-Modified><Etag>0x8D1</Etag><Content-Length>2</Content-Length><Content-MD5 /></Properties>` + metadata + `<OrMetadata /></Blob>`
}

const containersPage = `<?xml version="1.0"?><EnumerationResults ServiceEndpoint="https://a/"><Containers>` +
	`<Container><Name>day-1</Name><Properties><Etag>"0x1"</Etag></Properties><Metadata><PlanVaultLayout>1</PlanVaultLayout></Metadata></Container>` +
	`<Container><Name>day-2</Name></Container></Containers><NextMarker>/a/day-3</NextMarker></EnumerationResults>`

const groupsPage = `<EnumerationResults><Delimiter>-</Delimiter><Blobs><BlobPrefix><Name>plans/0190-</Name></BlobPrefix>` +
	`<BlobPrefix><Name Encoded="true">a%FFb</Name></BlobPrefix></Blobs><NextMarker/></EnumerationResults>`

func TestReadPage(t *testing.T) {
	at := time.Date(2026, 11, 20, 8, 30, 0, 0, time.UTC)
	one := func(name string, metadata map[string]string) listing {
		return listing{next: "2!bmV4dA", blobs: []Item{{name, Properties{ETag: "0x8D1", LastModified: at, Metadata: metadata}, 2}}}
	}
	const name = "<Name>n</Name>"
	for _, test := range []struct {
		what, text string
		want       listing
	}{
		{"a name", page(blobNamed("<Name>plans/a b</Name>", "")), one("plans/a b", nil)},
		{"an encoded name", page(blobNamed(`<Name Encoded="true">a%EF%BF%BFb%20c</Name>`, "")), one("a\uffffb c", nil)},
		{"a name that only looks encoded", page(blobNamed(`<Name Encoded="false">a%20b+</Name>`, "")), one("a%20b+", nil)},
		{"entities", page(blobNamed("<Name>&lt;&amp;&gt;&quot;&#39;&#x20AC;</Name>", "")), one(`<&>"'€`, nil)},
		{"a byte order mark", "\ufeff" + page(blobNamed(name, "")), one("n", nil)},
		{"what follows the list", page(blobNamed(name, "")) + "\r\n", one("n", nil)},
		{"metadata in any case", page(blobNamed(name, "<Metadata><PlanID>x</PlanID><_odd.name-1>y</_odd.name-1></Metadata>")), one("n", map[string]string{"planid": "x", "_odd.name-1": "y"})},
		{"empty metadata", page(blobNamed(name, "<Metadata><a></a><b/> <c> </c></Metadata>")), one("n", map[string]string{"a": "", "b": "", "c": " "})},
		{"no metadata", page(blobNamed(name, "<Metadata />")), one("n", map[string]string{})},
		{"encrypted metadata", page(blobNamed(name, `<Metadata Encrypted="true"><a>b</a></Metadata>`)), one("n", map[string]string{"a": "b"})},
		{"what is new", page("<New>n</New>" + blobNamed("<New><Name>x</Name></New>"+name, "<Tags><TagSet/></Tags>")), one("n", nil)},
		{"a directory", page("<Blob><Name>d</Name><Properties><ResourceType>directory</ResourceType></Properties></Blob>" +
			"<Blob><Name>n</Name><Properties><ResourceType>file</ResourceType><Etag>0x8D1</Etag><Content-Length>2</Content-Length><Last-Modified>" + modified + "</Last-Modified></Properties></Blob>"), one("n", nil)},
		{"a snapshot", page(blobNamed(name, "<Snapshot>2026-11-20T08:30:00.1234567Z</Snapshot>") + blobNamed(name, "<Snapshot/>")), one("n", nil)},
		{"versions", page(blobNamed(name, "<VersionId>2026-11-19T08:30:00.1234567Z</VersionId>") +
			blobNamed(name, "<VersionId>2026-11-20T08:30:00.1234567Z</VersionId><IsCurrentVersion>true</IsCurrentVersion>")), one("n", nil)},
		{"a deleted blob", page(blobNamed(name, "<Deleted>true</Deleted>") + blobNamed(name, "<Deleted>false</Deleted>")), one("n", nil)},
		{"an unknown type and tier", page(blobNamed(name, "") + "<Blob><Name>o</Name><Properties><Etag>0x8D1</Etag><Last-Modified>" + modified +
			"</Last-Modified><BlobType>NewBlob</BlobType><AccessTier>Frozen</AccessTier></Properties></Blob>"), listing{next: "2!bmV4dA", blobs: []Item{
			{"n", Properties{ETag: "0x8D1", LastModified: at}, 2}, {"o", Properties{ETag: "0x8D1", LastModified: at}, 0},
		}}},
		{"quotes around an ETag", page("<Blob><Name>n</Name><Properties><Etag>\"0x8D1\"</Etag><Content-Length>2</Content-Length><Last-Modified>" + modified + "</Last-Modified></Properties></Blob>"), one("n", nil)},
		{"an empty page that is not the last", page(""), listing{next: "2!bmV4dA"}},
		{"an empty list", "<EnumerationResults><Blobs/><NextMarker/></EnumerationResults>", listing{}},
		{"groups", groupsPage, listing{groups: []string{"plans/0190-", "a\xffb"}}},
		{"containers", containersPage, listing{next: "/a/day-3", containers: []ContainerItem{{Name: "day-1", Metadata: map[string]string{"planvaultlayout": "1"}}, {Name: "day-2"}}}},
		{"no containers", "<EnumerationResults><Containers/></EnumerationResults>", listing{}},
	} {
		for how, r := range map[string]io.Reader{"whole": strings.NewReader(test.text), "byte by byte": iotest.OneByteReader(strings.NewReader(test.text))} {
			if got, err := readPage(r, nil); err != nil || !reflect.DeepEqual(got, test.want) {
				t.Errorf("%s, %s: %+v, %v", test.what, how, got, err)
			}
		}
	}
}

func TestReadPageRefuses(t *testing.T) {
	for _, test := range []struct{ what, text, want string }{
		{"nothing", "", "unexpected EOF"},
		{"JSON", `{"error":{}}`, "unexpected EOF"},
		{"another answer", "<Error><Code>ServerBusy</Code></Error>", "<Error>"},
		{"an empty answer", "<EnumerationResults/>", "no list"},
		{"a blob without name", page("<Blob><Properties/></Blob>"), "no name"},
		{"a blob without properties", page("<Blob><Name>n</Name></Blob>"), "no name, ETag or time"},
		{"a blob without ETag", page("<Blob><Name>n</Name><Properties><Last-Modified>" + modified + "</Last-Modified></Properties></Blob>"), "no name, ETag or time"},
		{"a blob without time", page("<Blob><Name>n</Name><Properties><Etag>0x1</Etag><Last-Modified/></Properties></Blob>"), "no name, ETag or time"},
		{"a blob with two names", page("<Blob><Name>n</Name><Name>m</Name><Properties/></Blob>"), "second name"},
		{"a blob with two ETags", page("<Blob><Name>n</Name><Properties><Etag>0x1</Etag><Etag>0x2</Etag></Properties></Blob>"), "second ETag"},
		{"metadata with two values", page(blobNamed("<Name>n</Name>", "<Metadata><a>1</a><A>2</A></Metadata>")), "two values"},
		{"two markers", "<EnumerationResults><Blobs/><NextMarker>a</NextMarker><NextMarker>b</NextMarker></EnumerationResults>", "second marker"},
		{"a container with two names", "<EnumerationResults><Containers><Container><Name>a</Name><Name>b</Name></Container></Containers></EnumerationResults>", "second name"},
		{"a group without name", page("<BlobPrefix/>"), "no name"},
		{"a container without name", "<EnumerationResults><Containers><Container/></Containers></EnumerationResults>", "no name"},
		{"a name in pieces", page("<Blob><Name>a<b>c</b></Name><Properties/></Blob>"), "unexpected <b>"},
		{"a bad escape", page(blobNamed(`<Name Encoded="true">%zz</Name>`, "")), "%zz"},
		{"a bad mark of encoding", page(blobNamed(`<Name Encoded="perhaps">n</Name>`, "")), "perhaps"},
		{"a bad size", page("<Blob><Name>n</Name><Properties><Content-Length>-2</Content-Length></Properties></Blob>"), "Content-Length"},
		{"a size that overflows", page("<Blob><Name>n</Name><Properties><Content-Length>99999999999999999999</Content-Length></Properties></Blob>"), "Content-Length"},
		{"a bad time", page("<Blob><Name>n</Name><Properties><Last-Modified>today</Last-Modified></Properties></Blob>"), "Last-Modified"},
	} {
		if got, err := readPage(strings.NewReader(test.text), nil); err == nil || !strings.Contains(err.Error(), test.want) || !reflect.DeepEqual(got, listing{}) {
			t.Errorf("%s: %+v, %v", test.what, got, err)
		}
	}
}

// TestReadPageWantsTheEnd cuts pages at every byte, as when a connection ends early without an error.
func TestReadPageWantsTheEnd(t *testing.T) {
	for _, text := range []string{
		page(blobNamed("<Name>a</Name>", "<Metadata><a>b</a></Metadata>") + blobNamed(`<Name Encoded="true">b</Name>`, "")),
		page(""), containersPage, groupsPage,
	} {
		for n := range len(text) {
			if got, err := readPage(strings.NewReader(text[:n]), nil); err == nil {
				t.Fatalf("%q was accepted as a page: %+v", text[:n], got)
			}
		}
		broken := io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrUnexpectedEOF))
		if _, err := readPage(broken, nil); err == nil {
			t.Error("a connection that breaks behind the last tag is no error")
		}
	}
}

// TestPagesAreReadToTheEnd checks that an answer is read to the end and closed, so that its connection can be
// reused.
func TestPagesAreReadToTheEnd(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusAccepted, http.StatusForbidden} {
		body := &watched{Reader: strings.NewReader(page("") + strings.Repeat(" ", 10_000))}
		c := newWorld(t, emulator.New(emulator.Options{})).over(t, func(*http.Request, sender) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: body, Header: http.Header{
				"X-Ms-Error-Code": {"AuthorizationFailure"}, "X-Ms-Request-Id": {"1"}, "X-Ms-Version": {Version},
			}}, nil
		})
		for _, err := range c.List(Once(t.Context()), "box", ListOptions{}) {
			if (err == nil) != (status == http.StatusOK) || !body.ended || !body.closed {
				t.Errorf("status %d: %v, read to the end is %v, closed %v", status, err, body.ended, body.closed)
			}
			break
		}
	}
}

// fullPage returns a page of entries and objects.
func fullPage(blobs int) string {
	var items strings.Builder
	for i := range blobs {
		id, kind := fmt.Sprintf("0193472c-5f00-7000-8000-%012x", i/2), []string{"entry", "object"}[i%2]
		items.WriteString(blobNamed("<Name>plans/"+id+"-"+kind+".json</Name>", "<Metadata><planid>"+id+"</planid>"+
			"<groupid>0193472c-5f00-7000-8000-000000000002</groupid><name>nightly report</name><descr>all regions, one after the other</descr>"+
			fmt.Sprintf("<submittime>2026-11-20T08:30:00.%06dZ</submittime>", i/2)+
			"<state>{&quot;status&quot;:&quot;Completed&quot;}</state><plantype>"+kind+"</plantype><schema>1</schema>"+
			fmt.Sprintf("<writeid>6f1c1a58-98a0-4c5e-a5a8-%012x</writeid></Metadata>", i)))
	}
	return page(items.String())
}

// TestReadPageAllocations bounds what a blob of a full page allocates.
func TestReadPageAllocations(t *testing.T) {
	efforttest.NotShort(t, efforttest.OneAtATime)
	const blobs = 1000
	text := fullPage(blobs)
	perBlob := testing.AllocsPerRun(5, func() {
		if got, err := readPage(strings.NewReader(text), nil); err != nil || len(got.blobs) != blobs {
			t.Fatal(len(got.blobs), err)
		}
	}) / blobs
	if perBlob > 11 { // 10.0, and a few more under the race detector
		t.Errorf("%.2f allocations for each blob, want at most 11", perBlob)
	}
}

// FuzzReadPage compares the decoder with encoding/xml and the types of the SDK: they must agree on what both
// accept.
func FuzzReadPage(f *testing.F) {
	for _, seed := range []string{
		page(""), containersPage, groupsPage, "", "<EnumerationResults>",
		page(blobNamed(`<Name Encoded="true">a%20b</Name>`, "<Metadata><A>1</A><b/></Metadata>")),
		page(blobNamed("<Name>&lt;</Name>", "<Metadata><x-1>=?utf-8?b?YQ==?=</x-1></Metadata>")),
		page(blobNamed("<Name>a</Name>", "<Snapshot>1</Snapshot><VersionId>1</VersionId><IsCurrentVersion>true</IsCurrentVersion><Deleted>true</Deleted>")),
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := readPage(bytes.NewReader(text), nil)
		if err != nil {
			if !reflect.DeepEqual(got, listing{}) {
				t.Errorf("%+v, and %v", got, err)
			}
			return
		}
		for _, mark := range []string{"ResourceType", "Snapshot", "Deleted", "VersionId", "IsCurrentVersion"} {
			if bytes.Contains(text, []byte(mark)) {
				return // readPage leaves out what is no blob
			}
		}
		text = bytes.TrimPrefix(text, []byte("\ufeff"))
		var flat container.ListBlobsFlatSegmentResponse
		var groups container.ListBlobsHierarchySegmentResponse
		var containers service.ListContainersSegmentResponse
		for _, into := range []any{&flat, &groups, &containers} {
			if xml.Unmarshal(text, into) != nil {
				return // it also decodes what readPage skips
			}
		}
		want := listing{next: deref(flat.NextMarker)}
		for _, item := range deref(flat.Segment).BlobItems {
			p := deref(item.Properties)
			modified := deref(p.LastModified).UTC()
			want.blobs = append(want.blobs, Item{deref(item.Name), Properties{ETag: strings.Trim(string(deref(p.ETag)), `"`), LastModified: modified, Metadata: lower(item.Metadata)}, deref(p.ContentLength)})
		}
		for _, group := range deref(groups.Segment).BlobPrefixes {
			want.groups = append(want.groups, deref(group.Name))
		}
		for _, item := range containers.ContainerItems {
			p := deref(item.Properties)
			l := leaseOf(string(deref(p.LeaseState)), string(deref(p.LeaseDuration)))
			want.containers = append(want.containers, ContainerItem{Name: deref(item.Name), Metadata: lower(item.Metadata), Lease: l})
		}
		for i := range got.blobs { // no metadata and empty metadata are the same
			got.blobs[i].Metadata = maps.Collect(maps.All(got.blobs[i].Metadata))
			got.blobs[i].LastModified = got.blobs[i].LastModified.UTC()
		}
		for i := range got.containers {
			got.containers[i].Metadata = maps.Collect(maps.All(got.containers[i].Metadata))
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, the SDK reads %+v", got, want)
		}
	})
}
