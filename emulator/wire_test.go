package emulator_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/merge"
)

// side is one of the two services to compare.
type side int

const (
	inAzurite side = iota
	inEmulator
)

// pair is a text that may differ between the sides, such as an ETag.
type pair [2]string

// both returns a pair of equal texts.
func both(text string) pair { return pair{text, text} }

// param is a header or a query parameter.
type param struct {
	name  string
	value pair
}

// ask is a request to both services.
type ask struct {
	line      string // see requestsFile
	op        emulator.Op
	method    string
	container string
	blob      string
	query     []param
	header    []param // in addition to x-ms-date, x-ms-version and Authorization
	body      []byte
	items     []item // of a batch; they form the body

	// The fields below make a request invalid.
	account string            // for the default's
	key     string            // for the default's
	date    string            // for now
	version string            // for serviceVersion; "none" sends none
	tamper  map[string]string // headers that are changed after signing, or removed; also "method", "path" and "query"
}

// item is a delete of a batch.
type item struct {
	container, blob string
	header          []param
	unsigned        bool
	method          string // for DELETE
}

// serviceVersion is the newest version that Azurite supports. Both services name the version in their
// answers.
const serviceVersion = "2026-06-06"

// reply is the answer of a service; status 0 means no valid HTTP.
type reply struct {
	status int
	header http.Header
	body   []byte
}

// endpoint is a running Azurite or emulator.
type endpoint struct {
	url    string // of the account
	client interface {
		Do(*http.Request) (*http.Response, error)
	}
	now func() time.Time
}

// inProcess returns the endpoint of an emulator without sockets.
func inProcess(s *emulator.Server) *endpoint {
	return &endpoint{url: "http://localhost/" + emulator.DefaultAccount, client: s.Transport(), now: time.Now}
}

// send sends a request to an emulator without sockets.
func send(t testing.TB, s *emulator.Server, line string) *reply {
	t.Helper()
	r, err := parse(newMemory("plans"), line).send(t.Context(), inProcess(s), inEmulator)
	must(t, err)
	return r
}

// result sends a request to an emulator and returns the status and the error code.
func result(t testing.TB, s *emulator.Server, line string) string {
	t.Helper()
	return (&exchange{reply: [2]*reply{inEmulator: send(t, s, line)}}).outcome(inEmulator)
}

// send sends the request to one side.
func (a *ask) send(ctx context.Context, s *endpoint, on side) (*reply, error) {
	req, err := a.request(ctx, s, on)
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		if strings.Contains(err.Error(), "bad Content-Length") {
			return &reply{body: []byte(err.Error())}, nil
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	return &reply{status: resp.StatusCode, header: resp.Header, body: body}, nil
}

func (a *ask) request(ctx context.Context, s *endpoint, on side) (*http.Request, error) {
	target := s.url
	if a.account != "" {
		target = strings.TrimSuffix(target, emulator.DefaultAccount) + a.account
	}
	target += a.path()
	if len(a.query) > 0 {
		var parts []string
		for _, q := range a.query {
			parts = append(parts, q.name+"="+url.QueryEscape(q.value[on]))
		}
		target += "?" + strings.Join(parts, "&")
	} else if a.container == "" {
		target += "/"
	}
	date := a.date
	if date == "" {
		date = s.now().UTC().Format(http.TimeFormat)
	}
	body := a.body
	if a.items != nil {
		var err error
		if body, err = a.batchBody(s, on, date); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, a.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if date != "none" {
		req.Header.Set("x-ms-date", date)
	}
	switch a.version {
	case "":
		req.Header.Set("x-ms-version", serviceVersion)
	case "none":
	default:
		req.Header.Set("x-ms-version", a.version)
	}
	if a.items != nil {
		req.Header.Set("Content-Type", "multipart/mixed; boundary="+batchBoundary)
	}
	for _, h := range a.header {
		// Send the names of headers as they are written.
		name := h.name
		if !strings.HasPrefix(name, "x-ms-meta-") {
			name = http.CanonicalHeaderKey(name)
		}
		req.Header[name] = append(req.Header[name], h.value[on])
	}
	if err := a.sign(req); err != nil {
		return nil, err
	}
	for name, value := range a.tamper {
		switch {
		case name == "method":
			req.Method = value
		case name == "path":
			req.URL.Path += value
		case name == "query":
			req.URL.RawQuery = value
		case value == "":
			req.Header.Del(name)
		default:
			req.Header.Set(name, value)
		}
	}
	return req, nil
}

// path returns the escaped path after the account.
func (a *ask) path() string { return escapedPath(a.container, a.blob) }

func escapedPath(container, blob string) string {
	if container == "" {
		return ""
	}
	path := "/" + url.PathEscape(container)
	if blob == "" {
		return path
	}
	parts := strings.Split(blob, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return path + "/" + strings.Join(parts, "/")
}

const batchBoundary = "batch_0123456789"

// batchBody returns the deletes as the service requires them: each is a signed request of its own.
func (a *ask) batchBody(s *endpoint, on side, date string) ([]byte, error) {
	var w bytes.Buffer
	for i, it := range a.items {
		method := it.method
		if method == "" {
			method = http.MethodDelete
		}
		base, err := url.Parse(s.url)
		if err != nil {
			return nil, err
		}
		path := base.Path + escapedPath(it.container, it.blob)
		req, err := http.NewRequest(method, base.Scheme+"://"+base.Host+path, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("x-ms-date", date)
		for _, h := range it.header {
			req.Header.Set(h.name, h.value[on])
		}
		if !it.unsigned {
			if err := a.sign(req); err != nil {
				return nil, err
			}
		}
		fmt.Fprintf(&w, "--%s\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\nContent-ID: %d\r\n\r\n", batchBoundary, i)
		fmt.Fprintf(&w, "%s %s HTTP/1.1\r\nContent-Length: 0\r\n", method, path)
		if err := req.Header.Write(&w); err != nil {
			return nil, err
		}
		w.WriteString("\r\n")
	}
	fmt.Fprintf(&w, "--%s--\r\n", batchBoundary)
	return w.Bytes(), nil
}

// sign signs with the account's key. It follows the documentation and shares no code with the emulator's
// check. https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
func (a *ask) sign(req *http.Request) error {
	account, key := emulator.DefaultAccount, emulator.DefaultKey
	if a.account != "" {
		account = a.account
	}
	if a.key != "" {
		key = a.key
	}
	secret, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		return err
	}
	lines := []string{req.Method}
	for _, name := range []string{
		"Content-Encoding", "Content-Language", "Content-Length", "Content-MD5", "Content-Type", "Date",
		"If-Modified-Since", "If-Match", "If-None-Match", "If-Unmodified-Since", "Range",
	} {
		value := req.Header.Get(name)
		if name == "Content-Length" && req.ContentLength > 0 {
			value = strconv.FormatInt(req.ContentLength, 10)
		}
		lines = append(lines, value)
	}
	headers := make(map[string]string)
	for name, values := range req.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			headers[name] = strings.Join(values, ",")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		lines = append(lines, name+":"+headers[name])
	}
	resource := "/" + account + req.URL.EscapedPath()
	var params []string
	for name, values := range req.URL.Query() {
		slices.Sort(values)
		params = append(params, "\n"+strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	slices.Sort(params)
	lines = append(lines, resource+strings.Join(params, ""))
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(strings.Join(lines, "\n")))
	req.Header.Set("Authorization", "SharedKey "+account+":"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return nil
}

func (a *ask) String() string { return shorten(a.line) }

func shorten(text string) string {
	if len(text) > 100 {
		return fmt.Sprintf("%s… (%d bytes)", text[:100], len(text))
	}
	return text
}

// has returns the value of a header, or "".
func (a *ask) has(name string) string {
	for _, h := range a.header {
		if strings.EqualFold(h.name, name) {
			return h.value[inEmulator]
		}
	}
	return ""
}

// metadataSize returns the size of metadata as the service counts it: names and values.
func (a *ask) metadataSize() int {
	n := 0
	for _, h := range a.header {
		if name, ok := strings.CutPrefix(h.name, "x-ms-meta-"); ok {
			n += len(name) + len(h.value[inEmulator])
		}
	}
	return n
}

// sends reports whether the request has a header, even an empty one.
func (a *ask) sends(name string) bool {
	return slices.ContainsFunc(a.header, func(h param) bool { return h.name == name })
}

func (a *ask) param(name string) (string, bool) {
	for _, q := range a.query {
		if strings.EqualFold(q.name, name) {
			return q.value[inEmulator], true
		}
	}
	return "", false
}

// services returns the services to compare: the shared Azurite and a new emulator.
func services(t *testing.T, opts ...emulator.Options) [2]*endpoint {
	t.Helper()
	real := azuriteServer.Get(t)
	s := emulator.New(merge.Fields(append([]emulator.Options{{NoLog: true}}, opts...)...))
	l, err := s.Listen("127.0.0.1:0")
	must(t, err)
	// Azurite closes idle connections after 5 s.
	transport := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 4 * time.Second, DisableCompression: true}
	client := &http.Client{Transport: transport, Timeout: time.Minute}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return [2]*endpoint{
		inAzurite:  {url: real.URL(), client: client, now: time.Now},
		inEmulator: {url: l.URL(), client: client, now: time.Now},
	}
}
