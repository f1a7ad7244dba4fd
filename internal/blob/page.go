package blob

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// The SDK reads the body of a listing as a whole and decodes all that the service says about a blob, which
// takes tens of megabytes for a page of 5,000. This file decodes pages as they arrive and keeps only what the
// vault uses. The SDK still sends the request, signs it and checks its status.

// listing is a page of List Blobs or List Containers.
type listing struct {
	blobs      []Item // without Seen
	groups     []string
	containers []ContainerItem
	next       string // the marker of the next page; empty on the last page
}

// receiver is the decoder of a page.
type receiver struct {
	metadataOf func(name string) bool // selects the blobs whose metadata is kept; nil selects all
	page       listing
}

// receive sends a request of the SDK and decodes the page in the answer.
func receive(ctx context.Context, metadataOf func(name string) bool, ask func(context.Context) error) (*listing, error) {
	r := &receiver{metadataOf: metadataOf}
	if err := ask(context.WithValue(ctx, decoderKey{}, decoder(r))); err != nil {
		return nil, err
	}
	return &r.page, nil
}

func (r *receiver) decode(resp *http.Response) (err error) {
	r.page, err = readPage(resp.Body, r.metadataOf)
	return err
}

// readPage decodes a page and skips unknown elements. A page without its last tag and a page without a list
// are errors, because each would look like a short page.
func readPage(r io.Reader, metadataOf func(name string) bool) (listing, error) {
	d := pageDecoder{Decoder: xml.NewDecoder(r), metadataOf: metadataOf, names: map[string]string{}}
	err := d.results()
	if err == nil {
		_, err = io.Copy(io.Discard, r) // only a connection that was read to the end is reused
	}
	if err != nil {
		return listing{}, fmt.Errorf("read page of listing: %w", err)
	}
	return d.page, nil
}

type pageDecoder struct {
	*xml.Decoder
	metadataOf func(name string) bool
	page       listing
	names      map[string]string // names of metadata, which all blobs share
}

// results reads the whole document.
func (d *pageDecoder) results() error {
	root, err := d.root()
	if err != nil {
		return err
	}
	if root.Name.Local != "EnumerationResults" {
		return fmt.Errorf("the answer is <%s>, not <EnumerationResults>", root.Name.Local)
	}
	listed := false
	err = d.children(func(e xml.StartElement) (err error) {
		switch e.Name.Local {
		case "Blobs":
			listed = true
			return d.children(d.blob)
		case "Containers":
			listed = true
			return d.children(d.container)
		case "NextMarker":
			d.page.next, err = d.text(e)
			return err
		}
		return d.Skip()
	})
	if err == nil && !listed {
		return errors.New("the answer has no list")
	}
	return err
}

// root returns the first element. A byte order mark, the XML declaration and comments may precede it.
func (d *pageDecoder) root() (xml.StartElement, error) {
	for {
		t, err := d.Token()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return xml.StartElement{}, err
		}
		if e, ok := t.(xml.StartElement); ok {
			return e, nil
		}
	}
}

// children calls read for each child of the current element. read must read the child to its end.
func (d *pageDecoder) children(read func(xml.StartElement) error) error {
	for {
		t, err := d.Token() // fails at an early end
		if err != nil {
			return err
		}
		switch t := t.(type) {
		case xml.StartElement:
			if err := read(t); err != nil {
				return err
			}
		case xml.EndElement:
			return nil
		}
	}
}

// text reads an element that contains only text.
func (d *pageDecoder) text(of xml.StartElement) (string, error) {
	var text string
	for {
		t, err := d.Token()
		if err != nil {
			return "", err
		}
		switch t := t.(type) {
		case xml.CharData:
			text += string(t) // in one piece, except for CDATA sections
		case xml.StartElement:
			return "", fmt.Errorf("unexpected <%s> in <%s>", t.Name.Local, of.Name.Local)
		case xml.EndElement:
			return text, nil
		}
	}
}

// blob reads a child of Blobs.
func (d *pageDecoder) blob(e xml.StartElement) error {
	switch e.Name.Local {
	case "Blob":
		var item Item
		var marks marks
		err := d.children(func(e xml.StartElement) error {
			switch e.Name.Local {
			case "Name":
				return d.name(e, &item.Name)
			case "Properties":
				return d.children(func(e xml.StartElement) error { return d.property(e, &item.Properties, &marks) })
			case "Metadata":
				if d.metadataOf != nil && item.Name != "" && !d.metadataOf(item.Name) {
					return d.Skip()
				}
				return d.metadata(&item.Metadata)
			}
			return d.mark(e, &marks)
		})
		if !marks.blob() {
			return err
		}
		if err == nil && (item.Name == "" || item.ETag == "" || item.LastModified.IsZero()) {
			err = errors.New("a blob has no name, ETag or time")
		}
		d.page.blobs = append(d.page.blobs, item)
		return err
	case "BlobPrefix":
		var name string
		err := d.children(func(e xml.StartElement) error {
			if e.Name.Local == "Name" {
				return d.name(e, &name)
			}
			return d.Skip()
		})
		if err == nil && name == "" {
			err = errors.New("a group of blobs has no name")
		}
		d.page.groups = append(d.page.groups, name)
		return err
	}
	return d.Skip()
}

// name reads a name. A name that XML can't represent is percent-encoded and marked as such.
func (d *pageDecoder) name(e xml.StartElement, name *string) error {
	if *name != "" {
		return fmt.Errorf("%q has a second name", *name)
	}
	encoded := false
	for _, a := range e.Attr {
		if a.Name.Local == "Encoded" {
			var err error
			if encoded, err = strconv.ParseBool(a.Value); err != nil {
				return fmt.Errorf("read whether a name is encoded: %w", err)
			}
		}
	}
	text, err := d.text(e)
	if err == nil && encoded {
		text, err = url.QueryUnescape(text)
	}
	*name = text
	return err
}

// marks tell blobs from what else a page may list: directories on accounts with a hierarchical namespace, and
// snapshots, earlier versions and deleted blobs, which the client never asks for. These may have the name of a
// blob, but not its content.
type marks struct{ resource, snapshot, deleted, version, current string }

func (m marks) blob() bool {
	return m.resource != "directory" && m.snapshot == "" && m.deleted != "true" && (m.version == "" || m.current == "true")
}

// mark reads an element if it is a mark, and skips it otherwise.
func (d *pageDecoder) mark(e xml.StartElement, m *marks) (err error) {
	switch e.Name.Local {
	case "ResourceType":
		m.resource, err = d.text(e)
	case "Snapshot":
		m.snapshot, err = d.text(e)
	case "Deleted":
		m.deleted, err = d.text(e)
	case "VersionId":
		m.version, err = d.text(e)
	case "IsCurrentVersion":
		m.current, err = d.text(e)
	default:
		err = d.Skip()
	}
	return err
}

// property reads a child of a blob's Properties.
func (d *pageDecoder) property(e xml.StartElement, p *Properties, m *marks) error {
	switch e.Name.Local {
	case "Etag":
		text, err := d.text(e)
		p.ETag = strings.Trim(text, `"`)
		return err
	case "Last-Modified":
		text, err := d.text(e)
		if err != nil || text == "" {
			return err
		}
		if p.LastModified, err = time.Parse(http.TimeFormat, text); err != nil {
			return fmt.Errorf("read Last-Modified: %w", err)
		}
		return nil
	}
	return d.mark(e, m)
}

// metadata adds the content of a Metadata element, with names in lower case.
func (d *pageDecoder) metadata(into *map[string]string) error {
	if *into == nil {
		*into = map[string]string{}
	}
	return d.children(func(e xml.StartElement) error {
		text, err := d.text(e)
		name, known := d.names[e.Name.Local]
		if !known {
			name = strings.ToLower(e.Name.Local)
			d.names[e.Name.Local] = name
		}
		(*into)[name] = text
		return err
	})
}

// container reads a child of Containers.
func (d *pageDecoder) container(e xml.StartElement) error {
	if e.Name.Local != "Container" {
		return d.Skip()
	}
	var item ContainerItem
	err := d.children(func(e xml.StartElement) (err error) {
		switch e.Name.Local {
		case "Name":
			item.Name, err = d.text(e)
			return err
		case "Metadata":
			return d.metadata(&item.Metadata)
		}
		return d.Skip()
	})
	if err == nil && item.Name == "" {
		err = errors.New("a container has no name")
	}
	d.page.containers = append(d.page.containers, item)
	return err
}
