package emulator_test

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/merge"
)

// open opens a server with a file and closes it when the test ends.
func open(t testing.TB, path string, opts ...emulator.Options) *emulator.Server {
	t.Helper()
	s, err := emulator.Open(path, merge.Fields(opts...))
	must(t, err)
	t.Cleanup(func() { shut(t, s) })
	return s
}

func shut(t testing.TB, s *emulator.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// shown returns everything that a client can see of a server: each container, each blob with every header,
// and the listings.
func shown(t testing.TB, s *emulator.Server) map[string]string {
	t.Helper()
	all := make(map[string]string)
	see := func(method, path string) {
		resp, body := raw(t, s, method, path, "", nil)
		resp.Header.Del("x-ms-request-id") // it counts requests
		resp.Header.Del("Date")
		all[method+" "+path] = fmt.Sprint(resp.StatusCode, resp.Header, body)
	}
	see("GET", "/?comp=list&include=metadata")
	for name := range s.Containers() {
		see("HEAD", "/"+name+"?restype=container")
		see("GET", "/"+name+"?restype=container&comp=list&include=metadata")
		for b := range s.Blobs(name) {
			see("GET", "/"+name+"/"+url.PathEscape(b.Name))
			see("HEAD", "/"+name+"/"+url.PathEscape(b.Name))
		}
	}
	return all
}

func wantShown(t testing.TB, s *emulator.Server, want map[string]string) {
	t.Helper()
	got := shown(t, s)
	for what, text := range want {
		if got[what] != text {
			t.Errorf("%s\n got %s\nwant %s", what, got[what], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d answers, want %d", len(got), len(want))
	}
}

// everything writes to a server in every possible way, in virtual time.
func everything(t *testing.T, s *emulator.Server) {
	t.Helper()
	alone(s).run(t)
	s.Put("direct", "put", []byte("body"), map[string]string{"Name": "\x01"})
	s.PutContainer("direct", map[string]string{"k": "v"})
	old, _ := s.Blob("direct", "put")
	s.Put("direct", "put", []byte("later"), nil)
	s.Restore("direct", old)
	s.Put("direct", "damaged", []byte("body"), nil)
	s.Corrupt("direct", "damaged", func(body []byte) []byte { return body[1:] })
	s.Put("direct", "removed", nil, nil)
	s.Remove("direct", "removed")
	s.Put("removed", "a", nil, nil)
	s.RemoveContainer("removed")
}

// TestFileKeepsEverything opens a file again after every kind of write.
func TestFileKeepsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "blobs")
		s := open(t, path)
		everything(t, s)
		before := shown(t, s)
		newest, _ := s.Blob("direct", "damaged")
		shut(t, s)

		s = open(t, path)
		wantShown(t, s, before)
		// A clock that goes back must not repeat an ETag, even if the newest blob is gone.
		for range 3 {
			s.Put("other", "a", nil, nil)
			b, _ := s.Blob("other", "a")
			if b.ETag <= newest.ETag {
				t.Errorf("ETag %s after %s", b.ETag, newest.ETag)
			}
			newest = b
			s.RemoveContainer("other")
			shut(t, s)
			s = open(t, path, emulator.Options{Clock: func() time.Time { return time.Time{} }})
		}
		clone := s.Clone()
		shut(t, s)
		clone.Put("direct", "later", nil, nil) // in memory alone
		s = open(t, path)
		if _, there := s.Blob("direct", "later"); there {
			t.Error("a write to a clone is in the file")
		}
	})
}

// TestWritesToAClosedFile sends writes to a server that was closed.
func TestWritesToAClosedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	s := open(t, path)
	s.Put("plans", "a", []byte("1"), map[string]string{"k": "v"})
	before := shown(t, s)
	shut(t, s)
	for _, line := range []string{
		"put /plans/a body=2", "put /plans/b", "delete /plans/a", "create /new", "describe /plans", "drop /plans",
		"lease /plans do=acquire for=-1", "batches / item=/plans/a",
	} {
		r := send(t, s, line)
		if r.header.Get("x-ms-error-code") != "InternalError" && !strings.Contains(string(r.body), "HTTP/1.1 500") {
			t.Errorf("%s: %d %s", line, r.status, r.body)
		}
	}
	for name, write := range map[string]func(){
		"Put": func() { s.Put("plans", "a", nil, nil) }, "Put elsewhere": func() { s.Put("new", "a", nil, nil) },
		"PutContainer": func() { s.PutContainer("plans", nil) }, "RemoveContainer": func() { s.RemoveContainer("plans") },
		"Remove": func() { s.Remove("plans", "a") }, "Corrupt": func() { s.Corrupt("plans", "a", bytes.ToUpper) },
	} {
		if !panics(write) {
			t.Errorf("%s does not panic", name)
		}
	}
	wantShown(t, s, before)
	wantShown(t, open(t, path), before)
}

func panics(do func()) (did bool) {
	defer func() { did = recover() != nil }()
	do()
	return false
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	text, inUse := filepath.Join(dir, "text"), filepath.Join(dir, "used")
	must(t, os.WriteFile(text, []byte(strings.Repeat("text", 10_000)), 0o600))
	open(t, inUse)
	for path, want := range map[string]string{
		"":                                  "no such file",
		dir:                                 "is a directory",
		filepath.Join(dir, "none", "blobs"): "no such file",
		text:                                "invalid database",
		inUse:                               "has the file open",
	} {
		before, _ := os.ReadFile(path)
		if _, err := emulator.Open(path, emulator.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", path, err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s: the file was changed", path)
		}
	}
}
