package week_test

import (
	"bytes"
	"crypto/md5" // the service's checksum
	"encoding/base64"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// In a bubble all processes have one clock. The clock of a process is off because all times that pass between it and
// the store are shifted, in headers and in contents: what the process stores is ahead, and what it reads is behind. The
// times in IDs are not shifted, because the names of days are made of them.

// shift moves all times in a text.
func shift(text []byte, by time.Duration) []byte {
	text = slices.Clone(text)
	for i := 0; i < len(text); i++ {
		for _, f := range forms {
			from := i - f.before
			if text[i] != f.mark || from < 0 || from+len(f.layout) > len(text) {
				continue
			}
			if t, err := time.Parse(f.layout, string(text[from:from+len(f.layout)])); err == nil && t.Year() > 1900 {
				t.Add(by).AppendFormat(text[from:from], f.layout)
				i = from + len(f.layout)
				break
			}
		}
	}
	return text
}

// forms are those of times: the first mark that each has, and how much is before it.
var forms = []struct {
	layout string
	mark   byte
	before int
}{{"2006-01-02T15:04:05", 'T', 10}, {http.TimeFormat, ',', 3}}

// shiftAll moves all times in a message, whose checksums then are those of the new content.
func shiftAll(h http.Header, body io.ReadCloser, by time.Duration) (io.ReadCloser, error) {
	if body != nil && body != http.NoBody {
		text, err := io.ReadAll(body)
		_ = body.Close()
		if err != nil {
			return nil, err
		}
		text = shift(text, by)
		sum := md5.Sum(text)
		for name := range h {
			if strings.HasSuffix(strings.ToLower(name), "content-md5") {
				h[name] = []string{base64.StdEncoding.EncodeToString(sum[:])}
			}
		}
		body = io.NopCloser(bytes.NewReader(text))
	}
	for _, values := range h {
		for i := range values {
			values[i] = string(shift([]byte(values[i]), by))
		}
	}
	return body, nil
}

// send sends a request of a process whose clock is ahead.
func send(req *http.Request, ahead time.Duration, do func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	if ahead == 0 {
		return do(req)
	}
	req = req.Clone(req.Context())
	var err error
	if req.Body, err = shiftAll(req.Header, req.Body, ahead); err != nil {
		return nil, err
	}
	resp, err := do(req)
	if err != nil || req.Method == http.MethodHead {
		if err == nil {
			_, err = shiftAll(resp.Header, nil, -ahead)
		}
		return resp, err
	}
	resp.Body, err = shiftAll(resp.Header, resp.Body, -ahead)
	return resp, err
}
