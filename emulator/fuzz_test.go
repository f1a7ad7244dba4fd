package emulator_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/planvault/azblob/emulator"
)

// FuzzRequest sends arbitrary requests to a server with some content. The server must not panic, and must
// always answer in the form of the service.
func FuzzRequest(f *testing.F) {
	for _, seed := range []struct{ method, target, header, body string }{
		{"GET", "/devstoreaccount1/plans/a", "Range: bytes=1-", ""},
		{"HEAD", "/devstoreaccount1/plans/a", "If-None-Match: *", ""},
		{"PUT", "/devstoreaccount1/plans/b", "x-ms-blob-type: BlockBlob\nx-ms-meta-a: b\nContent-MD5: AAAA", "body"},
		{"PUT", "/devstoreaccount1/plans/a?comp=metadata", "If-Match: 0x8D0000000000001", ""},
		{"DELETE", "/devstoreaccount1/plans/a", "If-Modified-Since: Mon, 02 Jan 2006 15:04:05 GMT", ""},
		{"PUT", "/devstoreaccount1/new?restype=container", "", ""},
		{"DELETE", "/devstoreaccount1/plans?restype=container", "", ""},
		{"GET", "/devstoreaccount1/?comp=list&include=metadata", "", ""},
		{"GET", "/devstoreaccount1/plans?restype=container&comp=list&prefix=a&marker=2!YQ&maxresults=1&startFrom=%00&delimiter=/", "", ""},
		{"POST", "/devstoreaccount1/?comp=batch", "Content-Type: multipart/mixed; boundary=b", batchBody("DELETE /devstoreaccount1/plans/a HTTP/1.1\r\n\r\n")},
		{"GET", "/devstoreaccount1/plans/a", "Authorization: SharedKey devstoreaccount1:AAAA\nx-ms-date: x", ""},
	} {
		f.Add(seed.method, seed.target, seed.header, seed.body)
	}
	f.Fuzz(func(t *testing.T, method, target, header, body string) {
		req, err := http.NewRequest(method, "http://localhost"+target, strings.NewReader(body))
		if err != nil {
			t.Skip()
		}
		req.Header.Set("Authorization", "Bearer x")
		for line := range strings.SplitSeq(header, "\n") {
			name, value, _ := strings.Cut(line, ": ")
			req.Header.Set(name, value)
		}
		s := emulator.New(emulator.Options{})
		s.Put("plans", "a", []byte("body"), map[string]string{"k": "v"})
		resp, err := s.Transport().Do(req)
		if err != nil {
			// The transport refuses requests that net/http would not send.
			return
		}
		checkAnswer(t, method, resp)

		// The handler also gets requests that a transport refuses.
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", "http://localhost/", strings.NewReader(body))
		r.Method, r.URL, r.Header = method, req.URL, req.Header
		s.ServeHTTP(w, r)
		checkAnswer(t, method, w.Result())
	})
}

// checkAnswer checks that an answer is complete and in the form of the service.
func checkAnswer(t *testing.T, method string, resp *http.Response) {
	t.Helper()
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode < 200 || resp.StatusCode > 599 || resp.Header.Get("x-ms-request-id") == "" || resp.Header.Get("Date") == "" {
		t.Errorf("status %d with %v", resp.StatusCode, resp.Header)
	}
	code := resp.Header.Get("x-ms-error-code")
	if resp.StatusCode >= 300 && code == "" {
		t.Errorf("status %d has no code", resp.StatusCode)
	}
	if method == http.MethodHead || resp.StatusCode == http.StatusNotModified {
		if len(body) > 0 {
			t.Errorf("status %d of %s has a body", resp.StatusCode, method)
		}
		return
	}
	if code != "" && !strings.Contains(string(body), "<Code>"+code+"</Code>") {
		t.Errorf("%s has the body %q", code, body)
	}
	switch kind := resp.Header.Get("Content-Type"); {
	case kind == "application/xml" && resp.Header.Get("x-ms-blob-type") == "":
		if _, err := parseXML(body); err != nil {
			t.Fatalf("%v in %q", err, body)
		}
	case strings.HasPrefix(kind, "multipart/mixed") && resp.Header.Get("x-ms-blob-type") == "":
		f := make(facts)
		newMemory("plans").batch(f, &ask{}, inEmulator, kind, body)
		if n, _ := strconv.Atoi(f["items"]); n == 0 {
			t.Errorf("a batch without answers: %q, %v", body, f)
		}
		for n := range f {
			if _, err := strconv.Atoi(f[n]); strings.HasSuffix(n, " status") && err != nil {
				t.Errorf("%s: %v in %q", n, err, body)
			}
		}
	}
}

// FuzzBatch sends arbitrary bytes as the body of a batch. They must not do anything but delete blobs.
func FuzzBatch(f *testing.F) {
	f.Add(batchBody("DELETE /devstoreaccount1/plans/a HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n"))
	f.Add(batchBody("DELETE /devstoreaccount1/plans/a HTTP/1.1\nIf-Match: *\nContent-Length: 5\n\nhello", "PUT / HTTP/1.1"))
	f.Add(batchBody("DELETE http://x/devstoreaccount1/plans/a HTTP/1.1\r\n\r\n"))
	f.Add("--b\r\n\r\n--b--")
	f.Fuzz(func(t *testing.T, body string) {
		s := emulator.New(emulator.Options{})
		s.Put("plans", "a", nil, nil)
		s.Put("plans", "b", nil, nil)
		for _, path := range []string{"/plans?restype=container&comp=batch", "/?comp=batch"} {
			resp, text := raw(t, s, "POST", path, body, map[string]string{"Content-Type": "multipart/mixed; boundary=b"})
			resp.Body = io.NopCloser(strings.NewReader(text))
			checkAnswer(t, "POST", resp)
		}
		for name := range s.Containers() {
			if name != "plans" || s.Len("plans") > 2 {
				t.Error("a batch has made something")
			}
		}
	})
}
