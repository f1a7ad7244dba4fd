package emulator

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// pageLimit is the largest number of items in a page of a listing.
const pageLimit = 5000

// listing holds the parameters of a listing.
type listing struct {
	prefix, startFrom, delimiter string

	// after is the name at which the page begins, from the marker. A marker stands for the first name that
	// the previous page did not contain.
	after     string
	marker    string
	max       int // as requested; 0 if not given
	limit     int // of this page
	include   string
	metadata  bool
	emptyPage bool // see [EmptyPage]
}

// parseListing parses the parameters of a listing.
func (c *call) parseListing(limit int) *answer {
	l := &c.list
	l.prefix = c.query.Get("prefix")
	l.startFrom = c.query.Get("startfrom")
	l.delimiter = c.query.Get("delimiter")
	l.include = c.query.Get("include")
	l.limit = limit
	if c.query.Has("maxresults") {
		value := c.query.Get("maxresults")
		n, err := strconv.Atoi(value)
		if err != nil {
			return failWith("InvalidQueryParameterValue", "Parameter: maxresults.")
		}
		if n < 1 {
			return failWith("OutOfRangeQueryParameterValue", "Parameter: maxresults.")
		}
		l.max = n
		l.limit = min(n, limit)
	}
	if l.marker = c.query.Get("marker"); l.marker != "" {
		var ok bool
		if l.after, ok = parseMarker(l.marker); !ok {
			return failWith("InvalidQueryParameterValue", "Parameter: marker.")
		}
	}
	known := []string{"metadata", "deleted", "system"}
	if c.operation.op == ListBlobs {
		// Of these the emulator has only metadata, so the others add nothing.
		known = []string{
			"metadata", "copy", "deleted", "snapshots", "uncommittedblobs", "tags", "versions",
			"legalhold", "immutabilitypolicy", "deletedwithversions",
		}
	}
	if l.include != "" {
		for item := range strings.SplitSeq(l.include, ",") {
			if !slices.Contains(known, item) {
				return failWith("InvalidQueryParameterValue", "Parameter: include.")
			}
			l.metadata = l.metadata || item == "metadata"
		}
	}
	return nil
}

// Markers are opaque to clients. They contain an encoded name.
const markerPrefix = "2!"

func parseMarker(marker string) (string, bool) {
	encoded, ok := strings.CutPrefix(marker, markerPrefix)
	if !ok {
		return "", false
	}
	name, err := base64.RawURLEncoding.DecodeString(encoded)
	return string(name), err == nil && len(name) > 0
}

// page is the content of one page of a listing.
type page[T any] struct {
	items []T
	next  string // the first name after the page, or "" at the end
}

func (s *Server) listContainers(c *call) *answer {
	l := c.list
	var p page[*container]
	s.state.containers.AscendGreaterOrEqual(&container{Name: max(l.prefix, l.after)}, func(ct *container) bool {
		if !strings.HasPrefix(ct.Name, l.prefix) {
			return false
		}
		if len(p.items) == l.limit || l.emptyPage {
			p.next = ct.Name
			return false
		}
		// This is a copy, because a container's properties change and the page is rendered later.
		shown := *ct
		p.items = append(p.items, &shown)
		return true
	})
	return c.pageAnswer(l.max, p.next, func(w *bytes.Buffer) {
		w.WriteString("<Containers>")
		for _, ct := range p.items {
			ct.write(w, l.metadata, c.now)
		}
		w.WriteString("</Containers>")
	})
}

// pageAnswer answers with a page of a listing, which write writes without the server's lock.
func (c *call) pageAnswer(most int, next string, write func(*bytes.Buffer)) *answer {
	a := newAnswer(http.StatusOK)
	a.header.Set("Content-Type", "application/xml")
	a.render = func() []byte {
		var w bytes.Buffer
		w.WriteString(c.prolog() + `<EnumerationResults ServiceEndpoint="`)
		escapeXML(&w, c.endpoint)
		if c.container != "" {
			w.WriteString(`" ContainerName="`)
			escapeXML(&w, c.container)
		}
		w.WriteString(`">`)
		c.list.writeHead(&w, most)
		write(&w)
		if next == "" {
			w.WriteString("<NextMarker/>")
		} else {
			writeElement(&w, "NextMarker", markerPrefix+base64.RawURLEncoding.EncodeToString([]byte(next)))
		}
		w.WriteString("</EnumerationResults>")
		return w.Bytes()
	}
	return a
}

func (ct *container) write(w *bytes.Buffer, metadata bool, now time.Time) {
	w.WriteString("<Container>")
	writeElement(w, "Name", ct.Name)
	w.WriteString("<Properties>")
	writeElement(w, "Last-Modified", stamp(ct.Modified))
	writeElement(w, "Etag", ct.Version.quoted())
	status, state, duration := ct.Lease.status(now)
	writeElement(w, "LeaseStatus", status)
	writeElement(w, "LeaseState", string(state))
	if duration != "" {
		writeElement(w, "LeaseDuration", duration)
	}
	w.WriteString("<HasImmutabilityPolicy>false</HasImmutabilityPolicy><HasLegalHold>false</HasLegalHold></Properties>")
	if metadata {
		ct.Metadata.write(w)
	}
	w.WriteString("</Container>")
}

// listed is an entry of a listing: a blob, or a prefix that stands for all blobs that begin with it.
type listed struct {
	blob   *blob
	prefix string
}

func (s *Server) listBlobs(c *call) *answer {
	ct := s.state.container(c.container)
	if ct == nil {
		return fail("ContainerNotFound")
	}
	l := c.list
	if bad := s.checkHierarchy(ct, l); bad != nil {
		return bad
	}
	p := l.walk(ct, s.hierarchical)
	return c.pageAnswer(min(l.max, pageLimit), p.next, func(w *bytes.Buffer) {
		w.WriteString("<Blobs>")
		for i, item := range p.items {
			if item.blob == nil {
				w.WriteString("<BlobPrefix>")
				writeName(w, item.prefix)
				w.WriteString("</BlobPrefix>")
				continue
			}
			item.blob.write(w, l.metadata, s.hierarchical)
			if i == 0 {
				// The other items have about the same size. Doubling the buffer would hold the page twice.
				w.Grow(w.Len() * len(p.items) * 9 / 8)
			}
		}
		w.WriteString("</Blobs>")
	})
}

// walk collects a page. The cost depends on the size of the page, not of the container: walk jumps over the
// rest of a prefix. A directory is an item of a flat listing, and a prefix of others.
func (l *listing) walk(ct *container, hierarchical bool) page[listed] {
	var p page[listed]
	from := max(l.prefix, l.startFrom, l.after)
	for again := true; again; {
		again = false
		ct.blobs.AscendGreaterOrEqual(&blob{Name: from}, func(b *blob) bool {
			if !strings.HasPrefix(b.Name, l.prefix) {
				return false
			}
			if len(p.items) == l.limit || l.emptyPage {
				p.next = b.Name
				return false
			}
			if l.delimiter != "" {
				if i := strings.Index(b.Name[len(l.prefix):], l.delimiter); i >= 0 {
					group := b.Name[:len(l.prefix)+i+len(l.delimiter)]
					p.items = append(p.items, listed{prefix: group})
					from, again = successor(group)
					return false
				}
			}
			if hierarchical && l.delimiter != "" && b.directory() {
				if empty := b.Name + l.delimiter; !ct.has(empty) {
					p.items = append(p.items, listed{prefix: empty})
				}
				return true
			}
			p.items = append(p.items, listed{blob: b})
			return true
		})
	}
	return p
}

// successor returns the first name after all names with a prefix. A prefix of bytes 0xff has none.
func successor(prefix string) (string, bool) {
	b := []byte(prefix)
	for len(b) > 0 {
		if b[len(b)-1] < 0xff {
			b[len(b)-1]++
			return string(b), true
		}
		b = b[:len(b)-1]
	}
	return "", false
}

// writeHead writes the parameters of the request.
func (l *listing) writeHead(w *bytes.Buffer, most int) {
	if l.prefix != "" {
		writeElement(w, "Prefix", l.prefix)
	}
	if l.marker != "" {
		writeElement(w, "Marker", l.marker)
	}
	if most > 0 {
		writeElement(w, "MaxResults", strconv.Itoa(most))
	}
	if l.delimiter != "" {
		writeElement(w, "Delimiter", l.delimiter)
	}
}

func writeElement(w *bytes.Buffer, name, text string) {
	w.WriteString("<" + name + ">")
	escapeXML(w, text)
	w.WriteString("</" + name + ">")
}

// writeName writes a name. A name that XML can't represent is percent-encoded, as the service does since
// version 2021-02-12.
func writeName(w *bytes.Buffer, name string) {
	if validXML(name) {
		writeElement(w, "Name", name)
		return
	}
	w.WriteString(`<Name Encoded="true">`)
	escapeXML(w, url.PathEscape(name))
	w.WriteString("</Name>")
}

func (b *blob) write(w *bytes.Buffer, metadata, hierarchical bool) {
	w.WriteString("<Blob>")
	writeName(w, b.Name)
	w.WriteString("<Properties>")
	writeElement(w, "Creation-Time", stamp(b.Created))
	writeElement(w, "Last-Modified", stamp(b.Modified))
	writeElement(w, "Etag", b.Version.bare())
	writeElement(w, "Content-Length", strconv.Itoa(len(b.Body)))
	writeElement(w, "Content-Type", b.mediaType())
	w.WriteString("<Content-Encoding></Content-Encoding><Content-Language></Content-Language>")
	writeElement(w, "Content-MD5", base64.StdEncoding.EncodeToString(b.MD5[:]))
	w.WriteString("<Cache-Control></Cache-Control><Content-Disposition></Content-Disposition><BlobType>BlockBlob</BlobType>")
	writeElement(w, "AccessTier", b.tier())
	if !b.Archived {
		writeElement(w, "AccessTierInferred", "true")
	}
	w.WriteString("<LeaseStatus>unlocked</LeaseStatus><LeaseState>available</LeaseState><ServerEncrypted>true</ServerEncrypted>")
	switch { // since version 2020-10-02: https://learn.microsoft.com/rest/api/storageservices/list-blobs
	case hierarchical && b.directory():
		writeElement(w, "ResourceType", "directory")
	case hierarchical:
		writeElement(w, "ResourceType", "file")
	}
	w.WriteString("</Properties>")
	if metadata {
		b.Metadata.write(w)
	}
	w.WriteString("</Blob>")
}
