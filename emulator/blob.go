package emulator

import (
	"bytes"
	"cmp"
	"crypto/md5" // the service's own checksum
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"math"
	"net/http"
	"slices"
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
	if crc := c.http.Header.Get("x-ms-content-crc64"); crc != "" {
		a.header.Set("X-Ms-Content-Crc64", crc)
	}
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
	b := &blob{Name: c.blob, Body: c.body, Metadata: packMetadata(c.metadata), MD5: md5.Sum(c.body)}
	// x-ms-blob-content-md5 wins over Content-MD5.
	sum := "x-ms-blob-content-md5"
	if h.Get(sum) == "" {
		sum = "Content-MD5"
	}
	if h.Get(sum) != "" && h.Get("x-ms-content-crc64") != "" {
		return nil, fail("BothCrc64AndMd5HeaderPresent")
	}
	if bad := checkDigest(h, sum, b.MD5[:], "InvalidMd5", "Md5Mismatch"); bad != nil {
		return nil, bad
	}
	crc := binary.LittleEndian.AppendUint64(nil, crc64.Checksum(c.body, crcTable))
	if bad := checkDigest(h, "x-ms-content-crc64", crc, "InvalidHeaderValue", "Crc64Mismatch"); bad != nil {
		return nil, bad
	}
	if c.badMetadata != nil {
		return nil, c.badMetadata.copy()
	}
	tier := h.Get("x-ms-access-tier")
	if tier != "" && !slices.Contains([]string{"Hot", "Cool", "Cold"}, tier) {
		return nil, failWith("InvalidHeaderValue", "Header: x-ms-access-tier.")
	}
	// The x-ms-blob- header wins over the plain one.
	either := func(name string) string { return cmp.Or(h.Get("x-ms-blob-"+name), h.Get(name)) }
	given := content{
		MediaType:    cmp.Or(either("content-type"), defaultMediaType),
		Encoding:     either("content-encoding"),
		Language:     either("content-language"),
		Disposition:  h.Get("x-ms-blob-content-disposition"),
		CacheControl: either("cache-control"),
		Tier:         tier,
	}
	if given != (content{MediaType: defaultMediaType}) {
		b.Content = &given
	}
	return b, nil
}

// crcTable is of the polynomial of the service's CRC64, in the reversed notation of Go.
var crcTable = crc64.MakeTable(0x9A6C9329AC4BC9B5)

// checkDigest compares the body with a digest that the client may have sent.
func checkDigest(h http.Header, name string, digest []byte, invalid, mismatch string) *answer {
	value := h.Get(name)
	if value == "" {
		return nil
	}
	sent, err := base64.StdEncoding.DecodeString(value)
	if err != nil || len(sent) != len(digest) {
		return failWith(invalid, "Header: "+name+".")
	}
	if !bytes.Equal(sent, digest) {
		return failWith(mismatch, "Header: "+name+".")
	}
	return nil
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
	header := rangeHeader(c.http.Header)
	from, to, ok := parseRange(header)
	if !ok {
		// HTTP says to ignore a malformed range.
		if header == "" && c.http.Header.Get("x-ms-range-get-content-md5") != "" {
			return failWith("MissingRequiredHeader", "Header: x-ms-range.")
		}
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
	if strings.EqualFold(c.http.Header.Get("x-ms-range-get-content-md5"), "true") {
		if len(a.body) > 4<<20 {
			return failWith("InvalidHeaderValue", "Header: x-ms-range-get-content-md5.")
		}
		sum := md5.Sum(a.body)
		a.header.Set("Content-Md5", base64.StdEncoding.EncodeToString(sum[:]))
	}
	return a
}

func (s *Server) headBlob(c *call) *answer {
	b, bad := s.read(c)
	if bad != nil {
		return bad
	}
	a := newAnswer(http.StatusOK)
	s.describeVersion(b, a.header)
	if c.operation.op == GetBlobMetadata {
		b.describe(a.header)
		b.Metadata.set(a.header)
		return a
	}
	b.describeAll(a.header)
	a.header.Set("Content-Length", strconv.Itoa(len(b.Body)))
	// Only HEAD returns the tier; GET does not.
	a.header.Set("X-Ms-Access-Tier", b.tier())
	if b.tierInferred() {
		a.header.Set("X-Ms-Access-Tier-Inferred", "true")
	}
	return a
}

func (s *Server) setBlobMetadata(c *call) *answer {
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
	if bad := cmp.Or(ct.checkChange(old), checkOnline(old)); bad != nil {
		return bad
	}
	b := *old
	b.Metadata = packMetadata(c.metadata)
	b.Version = s.state.nextVersion(c.now)
	b.Modified = second(c.now)
	s.state.putBlob(ct, &b)
	if s.versioning { // soft delete does not keep metadata
		s.keep(old)
	}
	a := newAnswer(http.StatusOK)
	b.describe(a.header)
	s.describeVersion(&b, a.header)
	a.header.Set("X-Ms-Request-Server-Encrypted", "true")
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
	given := b.headers()
	set := func(name, value string) {
		if value != "" {
			h.Set(name, value)
		}
	}
	set("Content-Type", given.MediaType)
	set("Content-Encoding", given.Encoding)
	set("Content-Language", given.Language)
	set("Content-Disposition", given.Disposition)
	set("Cache-Control", given.CacheControl)
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
