package emulator

import (
	"bytes"
	"cmp"
	"crypto/md5" // the service's own checksum
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
)

// find returns the container and the blob of a call. The blob may be nil.
func (s *Server) find(c *call) (*container, *blob, *answer) {
	ct, b := s.state.find(c.container, c.blob)
	if ct == nil {
		return nil, nil, fail("ContainerNotFound")
	}
	return ct, b, nil
}

func (s *Server) putBlob(c *call) *answer {
	ct, old, bad := s.find(c)
	if bad != nil {
		return bad
	}
	b, bad := c.newBlob()
	if bad != nil {
		return bad
	}
	if bad := s.checkPath(ct, b.Name); bad != nil {
		return bad
	}
	if bad := c.cond.forWrite(old, "BlobAlreadyExists"); bad != nil {
		return bad
	}
	if bad := cmp.Or(ct.checkPut(old), checkOnline(old)); bad != nil {
		return bad
	}
	b.Version = s.state.nextVersion(c.now)
	b.Modified = second(c.now)
	b.Created = b.Modified
	s.store(ct, b)
	s.keepReplaced(old)

	a := newAnswer(http.StatusCreated)
	b.describe(a.header)
	s.describeVersion(b, a.header)
	a.header.Set("Content-Md5", base64.StdEncoding.EncodeToString(b.MD5[:]))
	a.header.Set("X-Ms-Request-Server-Encrypted", "true")
	return a
}

// newBlob builds the blob of a put and checks its headers.
func (c *call) newBlob() (*blob, *answer) {
	h := c.http.Header
	switch kind := h.Get("x-ms-blob-type"); kind {
	case "BlockBlob":
	case "":
		return nil, failWith("MissingRequiredHeader", "Header: x-ms-blob-type.")
	case "PageBlob", "AppendBlob":
		return nil, failWith("NotImplemented", "Blob type: "+kind+".")
	default:
		return nil, failWith("InvalidHeaderValue", "Header: x-ms-blob-type.")
	}
	for _, name := range []string{"Content-Encoding", "Content-Language", "Cache-Control"} {
		if h.Get(name) != "" {
			return nil, failWith("UnsupportedHeader", "Header: "+name+".")
		}
	}
	b := &blob{Name: c.blob, Body: c.body, Metadata: packMetadata(c.metadata), MD5: md5.Sum(c.body)}
	// x-ms-blob-content-md5 wins over Content-MD5.
	sum := "x-ms-blob-content-md5"
	if h.Get(sum) == "" {
		sum = "Content-MD5"
	}
	if sent, err := base64.StdEncoding.DecodeString(h.Get(sum)); err != nil || h.Get(sum) != "" && len(sent) != len(b.MD5) {
		return nil, failWith("InvalidMd5", "Header: "+sum+".")
	} else if len(sent) > 0 && !bytes.Equal(sent, b.MD5[:]) {
		return nil, failWith("Md5Mismatch", "Header: "+sum+".")
	}
	if c.badMetadata != nil {
		return nil, c.badMetadata.copy()
	}
	b.MediaType = cmp.Or(h.Get("x-ms-blob-content-type"), h.Get("Content-Type"))
	return b, nil
}

// read returns the blob of a read if its conditions are met.
func (s *Server) read(c *call) (*blob, *answer) {
	_, b, bad := s.find(c)
	if bad != nil {
		return nil, bad
	}
	if bad := c.cond.forRead(b); bad != nil {
		return nil, bad
	}
	if b == nil {
		return nil, fail("BlobNotFound")
	}
	return b, nil
}

func (s *Server) getBlob(c *call) *answer {
	b, bad := s.read(c)
	if bad != nil {
		return bad
	}
	if bad := checkOnline(b); bad != nil {
		return bad
	}
	size := int64(len(b.Body))
	from, to, ok := parseRange(rangeHeader(c.http.Header))
	if !ok {
		// HTTP says to ignore a malformed range.
		a := newAnswer(http.StatusOK)
		b.describeAll(a.header)
		s.describeVersion(b, a.header)
		a.body = b.Body
		return a
	}
	if from >= size {
		a := fail("InvalidRange")
		a.header.Set("Content-Range", fmt.Sprintf("bytes */%d", size))
		return a
	}
	to = min(to, size-1)
	a := newAnswer(http.StatusPartialContent)
	b.describeAll(a.header)
	s.describeVersion(b, a.header)
	a.body = b.Body[from : to+1]
	a.header.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to, size))
	// The stored digest is that of the whole body.
	a.header.Set("X-Ms-Blob-Content-Md5", a.header.Get("Content-Md5"))
	a.header.Del("Content-Md5")
	return a
}

func (s *Server) headBlob(c *call) *answer {
	b, bad := s.read(c)
	if bad != nil {
		return bad
	}
	a := newAnswer(http.StatusOK)
	s.describeVersion(b, a.header)
	b.describeAll(a.header)
	a.header.Set("Content-Length", strconv.Itoa(len(b.Body)))
	// Only HEAD returns the tier; GET does not.
	a.header.Set("X-Ms-Access-Tier", b.tier())
	if !b.Archived {
		a.header.Set("X-Ms-Access-Tier-Inferred", "true")
	}
	return a
}

func (s *Server) deleteBlob(c *call) *answer {
	if v := c.http.Header.Get("x-ms-delete-snapshots"); v != "" && v != "include" {
		return failWith("NotImplemented", "There are no snapshots.")
	}
	ct, old, bad := s.find(c)
	if bad != nil {
		return bad
	}
	if bad := c.cond.forWrite(old, "ConditionNotMet"); bad != nil {
		return bad
	}
	if old == nil {
		return fail("BlobNotFound")
	}
	if s.hierarchical && old.directory() {
		// https://github.com/Azure/azure-sdk-for-go/issues/20665. The documentation says that an empty
		// directory is deleted.
		return fail("OperationNotSupportedOnDirectory")
	}
	if bad := ct.checkChange(old); bad != nil {
		return bad
	}
	s.state.removeBlob(ct, old)
	a := newAnswer(http.StatusAccepted)
	a.header.Set("X-Ms-Delete-Type-Permanent", "true")
	s.keepDeleted(old, a)
	return a
}

// describe sets the headers of every answer about a blob.
func (b *blob) describe(h http.Header) {
	h.Set("Etag", b.Version.quoted())
	h.Set("Last-Modified", stamp(b.Modified))
}

// describeAll sets all properties of a blob except its length.
func (b *blob) describeAll(h http.Header) {
	b.describe(h)
	h.Set("Content-Type", b.mediaType())
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Md5", base64.StdEncoding.EncodeToString(b.MD5[:]))
	h.Set("X-Ms-Blob-Type", "BlockBlob")
	h.Set("X-Ms-Creation-Time", stamp(b.Created))
	h.Set("X-Ms-Lease-State", "available")
	h.Set("X-Ms-Lease-Status", "unlocked")
	h.Set("X-Ms-Server-Encrypted", "true")
	b.Metadata.set(h)
}

// rangeHeader returns the requested range, or "".
func rangeHeader(h http.Header) string { return cmp.Or(h.Get("x-ms-range"), h.Get("Range")) }

// parseRange parses "bytes=a-b" and "bytes=a-", the only forms that the service supports.
func parseRange(header string) (from, to int64, ok bool) {
	spec, ok := strings.CutPrefix(header, "bytes=")
	if !ok {
		return 0, 0, false
	}
	first, last, ok := strings.Cut(spec, "-")
	if !ok {
		return 0, 0, false
	}
	from, ok = parseOffset(first)
	if !ok {
		return 0, 0, false
	}
	if last == "" {
		return from, math.MaxInt64, true
	}
	to, ok = parseOffset(last)
	return from, to, ok && to >= from
}

// parseOffset parses digits. A number that overflows an int64 becomes the largest int64.
func parseOffset(text string) (int64, bool) {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < '0' || r > '9' }) {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return math.MaxInt64, true
	}
	return n, true
}
