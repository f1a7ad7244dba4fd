package blob

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/streaming"
)

// direct sends the requests for single blobs and batches of them, which are nearly all that a vault sends, through a
// pipeline of azcore. The SDK's clients send all other requests.
type direct struct {
	account   *url.URL // with the signature
	pipeline  runtime.Pipeline
	authorize func(*http.Request, time.Time) error // adds what an item of a batch needs
}

// send sends a request about a blob. The names in the header are in the canonical form. The error is that of the SDK if
// the service refuses the request.
func (s *direct) send(ctx context.Context, method string, ref Ref, header http.Header, body []byte) (*http.Response, error) {
	u := *s.account
	u.Path += "/" + ref.Container + "/" + ref.Name
	return s.sendTo(ctx, method, u, header, body)
}

// sendTo is send for any address.
func (s *direct) sendTo(ctx context.Context, method string, u url.URL, header http.Header, body []byte) (*http.Response, error) {
	req, err := runtime.NewRequestFromRequest((&http.Request{
		Method: method, URL: &u, Host: u.Host, Header: header, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx))
	if err == nil && len(body) > 0 {
		err = req.SetBody(streaming.NopCloser(bytes.NewReader(body)), header.Get("Content-Type"))
	}
	if err != nil {
		return nil, err
	}
	runtime.SkipBodyDownload(req)
	resp, err := s.pipeline.Do(req)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		return nil, runtime.NewResponseError(resp)
	}
	return resp, err
}

// put writes a blob with its MD5.
func (s *direct) put(ctx context.Context, ref Ref, body []byte, sum [16]byte, metadata map[string]string, cond Condition) (*http.Response, error) {
	md5 := []string{base64.StdEncoding.EncodeToString(sum[:])}
	h := make(http.Header, 10+len(metadata))
	h["Content-MD5"] = md5
	h["X-Ms-Blob-Content-Md5"] = md5
	h["Content-Type"] = []string{contentType(body)} // which the service keeps with the blob
	h["X-Ms-Blob-Type"] = blockBlob
	values := make([]string, 0, len(metadata)) // one allocation for all
	for name, value := range metadata {
		values = append(values, value)
		h["x-ms-meta-"+name] = values[len(values)-1:]
	}
	cond.add(h)
	return s.send(ctx, http.MethodPut, ref, h, body)
}

var blockBlob = []string{"BlockBlob"}

// plain sends a request without a body, under a condition.
func (s *direct) plain(ctx context.Context, method string, ref Ref, cond Condition) (*http.Response, error) {
	h := make(http.Header, 6)
	cond.add(h)
	return s.send(ctx, method, ref, h, nil)
}

// delete removes a blob.
func (s *direct) delete(ctx context.Context, ref Ref, cond Condition) error {
	resp, err := s.plain(ctx, http.MethodDelete, ref, cond)
	if err != nil {
		return err
	}
	return finish(resp)
}

// finish reads an answer to its end, so that its connection can be used again. A broken answer says nothing.
func finish(resp *http.Response) error {
	defer resp.Body.Close()
	_, err := io.Copy(io.Discard, resp.Body)
	return err
}

// add adds the condition to the header of a request.
func (c Condition) add(h http.Header) {
	if c.ifMatch != "" {
		h["If-Match"] = []string{c.ifMatch}
	}
	if c.ifNoneMatch != "" {
		h["If-None-Match"] = []string{c.ifNoneMatch}
	}
}

// propertiesOf reads the properties of a blob in the header of an answer.
func propertiesOf(h http.Header) (p Properties, err error) {
	p.ETag = strings.Trim(h.Get("ETag"), `"`)
	if p.LastModified, err = timeIn(h, "Last-Modified"); err != nil {
		return Properties{}, err
	}
	if p.Seen, err = timeIn(h, "Date"); err != nil {
		return Properties{}, err
	}
	p.Metadata = make(map[string]string, 8)
	const start = "X-Ms-Meta-"
	for name, values := range h {
		if len(name) > len(start) && strings.EqualFold(name[:len(start)], start) && len(values) > 0 {
			p.Metadata[strings.ToLower(name[len(start):])] = values[0]
		}
	}
	return p, nil
}

// timeIn returns a time of a header, or the zero time if there is none.
func timeIn(h http.Header, name string) (time.Time, error) {
	text := h.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC1123, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("the answer's %s is no time", name)
	}
	return at, nil
}
