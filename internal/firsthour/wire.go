package firsthour

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/planvault/azblob/internal/blob"
)

// wire sends requests as they are, each once.
type wire struct {
	transport policy.Transporter
	login     *blob.Login
	version   string
	late      time.Duration           // how far the dates of requests are behind
	spoil     func(req *http.Request) // changes what is authorized; may be nil
	sent      func(class string)      // is told of each request
}

// answerLimit bounds an answer.
const answerLimit = 30 * time.Second

// maxBody bounds the bytes of an answer that are read.
const maxBody = 16 << 20

// send sends a request to a target such as "container/blob?comp=metadata". Headers are pairs of names and values.
func (w wire) send(ctx context.Context, method, target string, body []byte, headers ...string) answer {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	req, err := w.request(ctx, method, target, body, headers...)
	if err != nil {
		return answer{err: err}
	}
	w.sent(string(w.login.Class(req)))
	resp, err := w.transport.Do(req)
	if err != nil {
		return answer{err: withoutURL(err)}
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	return answer{resp.StatusCode, resp.Header, read, err}
}

// request returns an authorized request.
func (w wire) request(ctx context.Context, method, target string, body []byte, headers ...string) (*http.Request, error) {
	path, rawQuery, _ := strings.Cut(target, "?")
	query, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, w.login.URL(path, query).String(), bytes.NewReader(body))
	if err != nil {
		return nil, withoutURL(err)
	}
	req.Header["X-Ms-Version"] = []string{w.version}
	if len(body) > 0 {
		req.Header.Set("Content-Length", strconv.Itoa(len(body))) // which the signature covers
	}
	if method == http.MethodPut && strings.Contains(path, "/") {
		req.Header["X-Ms-Blob-Type"] = []string{"BlockBlob"}
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header[headers[i]] = []string{headers[i+1]}
	}
	if err := w.login.Authorize(req, time.Now().Add(-w.late)); err != nil {
		return nil, err
	}
	if w.spoil != nil {
		w.spoil(req)
	}
	return req, nil
}

// withoutURL returns an error without the URL of the request, which may have a signature.
func withoutURL(err error) error {
	if e, ok := err.(*url.Error); ok {
		return e.Err
	}
	return err
}

// answer is an answer of the service, or why there is none.
type answer struct {
	status int
	header http.Header
	body   []byte
	err    error
}

// code returns the error code in the header, or else in the body.
func (a answer) code() string {
	if code := a.header.Get("X-Ms-Error-Code"); code != "" {
		return code
	}
	var e struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
	}
	_ = xml.Unmarshal(bytes.TrimPrefix(a.body, byteOrderMark), &e)
	return e.Code
}

// is reports whether the answer has one of some outcomes, such as "201" or "409 BlobAlreadyExists", and comes from the
// service.
func (a answer) is(outcomes string) bool {
	for want := range strings.SplitSeq(outcomes, " or ") {
		status, code, _ := strings.Cut(want, " ")
		if strconv.Itoa(a.status) == status && (code == "" || code == a.code()) {
			return a.err == nil && a.header.Get("X-Ms-Request-Id") != ""
		}
	}
	return false
}

// String returns "404 BlobNotFound", or why there is no such answer.
func (a answer) String() string {
	if a.err != nil {
		return "no answer: " + a.err.Error()
	}
	text := strings.TrimSpace(fmt.Sprintf("%d %s", a.status, a.code()))
	if a.header.Get("X-Ms-Request-Id") == "" {
		text += " without x-ms-request-id"
	}
	return text
}

// marks returns String with the marks of the service that the answer lacks, and what its body is.
func (a answer) marks() string {
	if a.err != nil {
		return a.String()
	}
	var lacks []string
	refusal := a.status >= http.StatusMultipleChoices
	if a.header.Get("X-Ms-Version") == "" {
		lacks = append(lacks, "no version")
	}
	switch {
	case refusal && a.code() == "":
		lacks = append(lacks, "no code")
	case refusal && a.header.Get("X-Ms-Error-Code") == "":
		lacks = append(lacks, "code in the body")
	}
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err == nil && refusal && kind != "application/xml" && len(a.body) > 0 {
		lacks = append(lacks, kind)
	}
	if len(lacks) == 0 {
		return a.String()
	}
	return fmt.Sprintf("%s (%s)", a, strings.Join(lacks, ", "))
}

// etag returns the blob's ETag.
func (a answer) etag() string { return a.header.Get("ETag") }

// listing is a page of blobs or containers.
type listing struct {
	Blobs struct {
		Blob []struct {
			Name     string
			Metadata struct {
				Pairs []struct {
					XMLName xml.Name
					Value   string `xml:",chardata"`
				} `xml:",any"`
			}
		}
		BlobPrefix []struct{ Name string }
	}
	Containers struct{ Container []struct{ Name string } }
	NextMarker string
}

// listing decodes a page.
func (a answer) listing() (page listing, err error) {
	if !a.is("200") {
		return page, fmt.Errorf("%s", a)
	}
	err = xml.Unmarshal(bytes.TrimPrefix(a.body, byteOrderMark), &page)
	return page, err
}

// byteOrderMark begins bodies of the service. Package xml does not know it.
var byteOrderMark = []byte("\ufeff")

// maxPages bounds a listing. Pages may be empty.
const maxPages = 100

// list returns a listing with all pages in one.
func (w wire) list(ctx context.Context, target string) (all listing, err error) {
	for range maxPages {
		page, err := w.send(ctx, "GET", target+"&marker="+url.QueryEscape(all.NextMarker), nil).listing()
		if err != nil {
			return all, err
		}
		all.Blobs.Blob = append(all.Blobs.Blob, page.Blobs.Blob...)
		all.Blobs.BlobPrefix = append(all.Blobs.BlobPrefix, page.Blobs.BlobPrefix...)
		all.Containers.Container = append(all.Containers.Container, page.Containers.Container...)
		if all.NextMarker = page.NextMarker; all.NextMarker == "" {
			return all, nil
		}
	}
	return all, fmt.Errorf("no end after %d pages", maxPages)
}

// names returns the names of the blobs, groups and containers of a page.
func (l listing) names() (names []string) {
	for _, b := range l.Blobs.Blob {
		names = append(names, b.Name)
	}
	for _, p := range l.Blobs.BlobPrefix {
		names = append(names, p.Name)
	}
	for _, c := range l.Containers.Container {
		names = append(names, c.Name)
	}
	return names
}
