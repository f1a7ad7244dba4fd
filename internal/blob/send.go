package blob

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// direct sends the requests for single blobs, which are nearly all that a vault sends. With the SDK such a request
// takes as much processor time as the rest of an update: it copies the request and its headers several times, and
// looks for options that this client never sets. The SDK sends all other requests.
type direct struct {
	account *url.URL // with the signature
	version []string
	login   authorizer
	wire    wire
}

// authorizer is the login of an account.
type authorizer interface {
	// authorize adds to a request what authorizes it.
	authorize(r *http.Request) error
	// renew reports whether a request that was refused with 401 will be authorized in another way the next time.
	renew() bool
}

// inURL is the login of a shared access signature, which is in the URL.
type inURL struct{}

func (inURL) authorize(*http.Request) error { return nil }
func (inURL) renew() bool                   { return false }

// authorized sends a request with what authorizes it, and once more after a refusal if that may help.
func authorized(a authorizer, r *http.Request, send func() (*http.Response, error)) (*http.Response, error) {
	for again := false; ; again = true {
		if err := a.authorize(r); err != nil {
			return nil, err
		}
		resp, err := send()
		if err != nil || again || resp.StatusCode != http.StatusUnauthorized || !a.renew() {
			return resp, err
		}
	}
}

// authorizing is the policy that authorizes the requests of the SDK.
type authorizing struct{ authorizer }

// Do implements [policy.Policy].
func (a authorizing) Do(req *policy.Request) (*http.Response, error) {
	return authorized(a.authorizer, req.Raw(), func() (*http.Response, error) {
		if err := req.RewindBody(); err != nil {
			return nil, err
		}
		return req.Next()
	})
}

// send sends a request about a blob. The names in the header are in the canonical form. The error is that of the SDK if
// the service refuses the request.
func (s *direct) send(ctx context.Context, method string, ref Ref, header http.Header, body []byte) (*http.Response, error) {
	u := *s.account
	u.Path += "/" + ref.Container + "/" + ref.Name
	header["X-Ms-Version"] = s.version
	r := (&http.Request{
		Method: method, URL: &u, Host: u.Host, Header: header, ContentLength: int64(len(body)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)
	if len(body) > 0 {
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	resp, err := authorized(s.login, r, func() (resp *http.Response, err error) {
		if r.GetBody != nil {
			r.Body, _ = r.GetBody()
		}
		return s.wire.Do(r)
	})
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		return nil, runtime.NewResponseError(resp)
	}
	return resp, err
}

// put writes a blob with its MD5.
func (s *direct) put(ctx context.Context, ref Ref, body []byte, sum [16]byte, metadata map[string]string, cond Condition) (*http.Response, error) {
	md5 := []string{base64.StdEncoding.EncodeToString(sum[:])}
	h := make(http.Header, 10+len(metadata))
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	h["Content-Type"] = octets
	h["Content-MD5"] = md5
	h["X-Ms-Blob-Content-Md5"] = md5
	h["X-Ms-Blob-Content-Type"] = []string{contentType(body)}
	h["X-Ms-Blob-Type"] = blockBlob
	values := make([]string, 0, len(metadata)) // one allocation for all
	for name, value := range metadata {
		values = append(values, value)
		h["x-ms-meta-"+name] = values[len(values)-1:]
	}
	cond.add(h)
	return s.send(ctx, http.MethodPut, ref, h, body)
}

var (
	octets    = []string{"application/octet-stream"}
	blockBlob = []string{"BlockBlob"}
)

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
