package blob

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// The SDK reads the body of a listing as a whole and decodes all that the service says about a blob, which
// takes tens of megabytes for a page of 5,000. This file decodes pages as they arrive and keeps only what the
// vault uses. The SDK still sends the request, signs it and checks its status. Most of the time of a listing
// goes into reading XML, so a [scanner] does that, and not encoding/xml.

// listing is a page of List Blobs or List Containers.
type listing struct {
	blobs      []Item
	groups     []string
	containers []ContainerItem
	next       string    // the marker of the next page; empty on the last page
	seen       time.Time // the service's clock when it sent the page; zero if the answer has none
}

// page asks for a page of a listing. ask sends a request of the SDK, of which the page is the decoded answer. If it
// fails for good, the page is empty. metadataOf selects the blobs whose metadata is kept; nil selects all.
func (c *Client) page(ctx context.Context, call call, metadataOf func(name string) bool, ask func(context.Context, *listing) error) (page listing, err error) {
	decode := decoder(func(resp *http.Response) (err error) {
		page, err = readPage(resp.Body, metadataOf)
		page.seen, _ = http.ParseTime(resp.Header.Get("Date"))
		for i := range page.blobs {
			page.blobs[i].Seen = page.seen
		}
		for i := range page.containers {
			page.containers[i].Seen = page.seen
		}
		return err
	})
	err = c.do(ctx, call, func(ctx context.Context) error {
		page = listing{}
		return ask(context.WithValue(ctx, decoderKey{}, decode), &page)
	})
	if err != nil {
		return listing{}, err
	}
	return page, nil
}

// readPage decodes a page and skips unknown elements. A page without its last tag and a page without a list
// are errors, because each would look like a short page.
func readPage(r io.Reader, metadataOf func(name string) bool) (listing, error) {
	d := pageDecoder{scanner: newScanner(r), metadataOf: metadataOf, metadata: map[string]*metadatum{}}
	d.results()
	if err := d.rest(); err != nil {
		return listing{}, fmt.Errorf("read page of listing: %w", err)
	}
	return d.page, nil
}

// pageDecoder reads a page. After a failure of its scanner, it reads nothing more and its page is void.
type pageDecoder struct {
	*scanner
	metadataOf func(name string) bool
	page       listing
	metadata   map[string]*metadatum // by name in the document
	value      []byte                // of the last element
	modified   string                // the last time
	at         time.Time             // the same
}

// metadatum is what the pairs of one name have in common.
type metadatum struct {
	name string // in lower case
	last string // value: an entry and its object have most values in common
}

// results reads the whole document.
func (d *pageDecoder) results() {
	t := d.next()
	for t == textToken { // such as a byte order mark
		t = d.next()
	}
	if t == startTag && string(d.name) != "EnumerationResults" {
		d.fail("the answer is <%s>, not <EnumerationResults>", d.name)
	}
	listed := false
	for d.child() {
		switch string(d.name) {
		case "Blobs":
			listed = true
			for d.child() {
				d.blobOrGroup()
			}
		case "Containers":
			listed = true
			for d.child() {
				d.container()
			}
		case "NextMarker":
			d.once("marker", &d.page.next, string(d.content()))
		default:
			d.skip()
		}
	}
	if d.err == nil && !listed {
		d.fail("the answer has no list")
	}
}

// child moves to the next child of the current element. It returns false at the end of the element and after
// a failure. The caller must read each child to its end.
func (d *pageDecoder) child() bool {
	for {
		switch d.next() {
		case startTag:
			return true
		case endTag, failed:
			return false
		}
	}
}

// content returns the text of the current element, which contains only text. It is valid until the next call.
func (d *pageDecoder) content() []byte {
	t := d.next()
	d.value = d.value[:0]
	if t == textToken {
		d.value = append(d.value, d.text...)
		t = d.next()
	}
	if t == startTag {
		d.fail("unexpected <%s> in a value", d.name)
	}
	return d.value
}

// once sets a value that may be there once.
func (d *pageDecoder) once(what string, to *string, value string) {
	if *to != "" {
		d.fail("%q has a second %s, %q", *to, what, value)
	}
	*to = value
}

// blobOrGroup reads a child of Blobs.
func (d *pageDecoder) blobOrGroup() {
	switch string(d.name) {
	case "Blob":
		item, marks := d.blob()
		if !marks.blob() {
			return
		}
		if d.err == nil && (item.Name == "" || item.ETag == "" || item.LastModified.IsZero()) {
			d.fail("a blob has no name, ETag or time")
		}
		d.page.blobs = append(d.page.blobs, item)
	case "BlobPrefix":
		var name string
		for d.child() {
			if string(d.name) == "Name" {
				d.blobName(&name)
			} else {
				d.skip()
			}
		}
		if d.err == nil && name == "" {
			d.fail("a group of blobs has no name")
		}
		d.page.groups = append(d.page.groups, name)
	default:
		d.skip()
	}
}

func (d *pageDecoder) blob() (item Item, marks marks) {
	for d.child() {
		switch string(d.name) {
		case "Name":
			d.blobName(&item.Name)
		case "Properties":
			for d.child() {
				d.property(&item, &marks)
			}
		case "Metadata":
			if d.metadataOf != nil && item.Name != "" && !d.metadataOf(item.Name) {
				d.skip()
			} else {
				d.pairs(&item.Metadata)
			}
		default:
			d.mark(&marks)
		}
	}
	return item, marks
}

// blobName reads a name. A name that XML can't represent is percent-encoded and marked as such.
func (d *pageDecoder) blobName(name *string) {
	attributes := string(bytes.TrimSpace(d.attributes))
	text := string(d.content())
	switch attributes {
	case "", `Encoded="false"`:
	case `Encoded="true"`:
		var err error
		if text, err = url.QueryUnescape(text); err != nil {
			d.fail("read a name: %w", err)
		}
	default:
		d.fail("a name has the attributes %.60s", attributes)
	}
	d.once("name", name, text)
}

// marks tell blobs from what else a page may list: directories on accounts with a hierarchical namespace, and
// snapshots, earlier versions and deleted blobs, which the client never asks for. These may have the name of a
// blob, but not its content.
type marks struct{ resource, snapshot, deleted, version, current string }

func (m marks) blob() bool {
	return m.resource != "directory" && m.snapshot == "" && m.deleted != "true" && (m.version == "" || m.current == "true")
}

// mark reads an element if it is a mark, and skips it otherwise.
func (d *pageDecoder) mark(m *marks) {
	switch string(d.name) {
	case "ResourceType":
		m.resource = string(d.content())
	case "Snapshot":
		m.snapshot = string(d.content())
	case "Deleted":
		m.deleted = string(d.content())
	case "VersionId":
		m.version = string(d.content())
	case "IsCurrentVersion":
		m.current = string(d.content())
	default:
		d.skip()
	}
}

// property reads a child of a blob's Properties.
func (d *pageDecoder) property(item *Item, m *marks) {
	switch string(d.name) {
	case "Etag":
		d.once("ETag", &item.ETag, string(bytes.Trim(d.content(), `"`)))
	case "Last-Modified":
		if text := d.content(); len(text) > 0 {
			item.LastModified = d.time(text)
		}
	case "Content-Length":
		item.Size = d.size(d.content())
	default:
		d.mark(m)
	}
}

// time parses a time, which is often that of the blob before.
func (d *pageDecoder) time(text []byte) time.Time {
	if string(text) == d.modified {
		return d.at
	}
	at, err := time.Parse(http.TimeFormat, string(text))
	if err != nil {
		d.fail("read Last-Modified: %w", err)
	}
	d.modified, d.at = string(text), at
	return at
}

// size parses the size of a blob. An empty text is 0.
func (d *pageDecoder) size(text []byte) (n int64) {
	for _, c := range text {
		if c < '0' || c > '9' || n > MaxBody<<20 {
			d.fail("read Content-Length: %q is no size", text)
			return 0
		}
		n = 10*n + int64(c-'0')
	}
	return n
}

// pairs adds the content of a Metadata element, with names in lower case.
func (d *pageDecoder) pairs(into *map[string]string) {
	if *into == nil {
		*into = make(map[string]string, len(d.metadata)) // most blobs have the same names
	}
	for d.child() {
		m := d.metadata[string(d.name)]
		if m == nil {
			m = &metadatum{name: strings.ToLower(string(d.name))}
			d.metadata[string(d.name)] = m
		}
		if value := d.content(); string(value) != m.last {
			m.last = string(value)
		}
		before := len(*into)
		if (*into)[m.name] = m.last; len(*into) == before {
			d.fail("two values of metadata have the name %s", m.name)
		}
	}
}

// container reads a child of Containers.
func (d *pageDecoder) container() {
	if string(d.name) != "Container" {
		d.skip()
		return
	}
	var (
		item            ContainerItem
		state, duration string
	)
	for d.child() {
		switch string(d.name) {
		case "Name":
			d.once("name", &item.Name, string(d.content()))
		case "Properties":
			for d.child() {
				switch string(d.name) {
				case "LeaseState":
					d.once("lease state", &state, string(d.content()))
				case "LeaseDuration":
					d.once("lease duration", &duration, string(d.content()))
				default:
					d.skip()
				}
			}
		case "Metadata":
			d.pairs(&item.Metadata)
		default:
			d.skip()
		}
	}
	if d.err == nil && item.Name == "" {
		d.fail("a container has no name")
	}
	item.Lease = leaseOf(state, duration)
	d.page.containers = append(d.page.containers, item)
}
