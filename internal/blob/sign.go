package blob

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"hash"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// signer is a policy that signs requests with the key of an account, as the SDK's own, which only the SDK's clients can
// use:
// https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
type signer struct {
	account string
	macs    sync.Pool // of hash.Hash
}

func newSigner(account string, key []byte) *signer {
	return &signer{account: account, macs: sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}}
}

// Do implements [policy.Policy].
func (s *signer) Do(req *policy.Request) (*http.Response, error) {
	if err := s.sign(req.Raw(), time.Now()); err != nil {
		return nil, err
	}
	return req.Next()
}

// sign signs a request at a time.
func (s *signer) sign(r *http.Request, at time.Time) error {
	r.Header["X-Ms-Date"] = []string{at.UTC().Format(http.TimeFormat)}
	text, err := s.appendText(make([]byte, 0, 1024), r)
	if err == nil {
		r.Header["Authorization"] = []string{s.authorization(text)}
	}
	return err
}

// authorization returns the header that signs a text.
func (s *signer) authorization(text []byte) string {
	mac := s.macs.Get().(hash.Hash)
	defer s.macs.Put(mac)
	mac.Reset()
	mac.Write(text)
	b := append(text[:0], "SharedKey "...)
	b = append(append(b, s.account...), ':')
	return string(base64.StdEncoding.AppendEncode(b, mac.Sum(make([]byte, 0, sha256.Size))))
}

// signedHeaders are the headers that the text to sign has in this order, and by their values alone. The date
// is that of x-ms-date.
var signedHeaders = [...]string{
	"Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
	"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
}

// appendText appends the text to sign of a request.
func (s *signer) appendText(b []byte, r *http.Request) ([]byte, error) {
	b = append(append(b, r.Method...), '\n')
	for _, name := range signedHeaders {
		if values := r.Header[name]; len(values) > 0 && (name != "Content-Length" || values[0] != "0") {
			b = append(b, values[0]...)
		}
		b = append(b, '\n')
	}
	b = appendOwnHeaders(b, r.Header)
	b = append(append(append(b, '/'), s.account...), r.URL.EscapedPath()...)
	if r.URL.Path == "" {
		b = append(b, '/')
	}
	return appendParameters(b, r.URL.RawQuery)
}

// ownHeader is a header of the service, with its name in lower case.
type ownHeader struct {
	name   string
	values []string
}

// appendOwnHeaders appends the headers whose names begin with x-ms-, in the service's order.
func appendOwnHeaders(b []byte, h http.Header) []byte {
	own := make([]ownHeader, 0, 24)
	for name, values := range h {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			own = append(own, ownHeader{name, values})
		}
	}
	slices.SortFunc(own, func(a, b ownHeader) int { return compareNames(a.name, b.name) })
	for _, o := range own {
		b = append(append(b, o.name...), ':')
		for i, value := range o.values {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, value...)
		}
		b = append(b, '\n')
	}
	return b
}

// compareNames compares the names of headers as the service does, as if they had no hyphens.
func compareNames(a, b string) int {
	i, j := 0, 0
	for {
		for i < len(a) && a[i] == '-' {
			i++
		}
		for j < len(b) && b[j] == '-' {
			j++
		}
		switch {
		case i == len(a) || j == len(b):
			return (len(a) - i) - (len(b) - j)
		case a[i] != b[j]:
			return int(a[i]) - int(b[j])
		}
		i++
		j++
	}
}

// appendParameters appends the parameters of a query in the order of their names, without escapes.
func appendParameters(b []byte, query string) ([]byte, error) {
	if query == "" {
		return b, nil
	}
	parameters, err := url.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		slices.Sort(parameters[name])
		b = append(append(append(b, '\n'), strings.ToLower(name)...), ':')
		b = append(b, strings.Join(parameters[name], ",")...)
	}
	return b, nil
}
