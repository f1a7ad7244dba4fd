package emulator_test

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

// open opens a server with a file and closes it when the test ends.
func open(t testing.TB, path string, opts ...emulator.Option) *emulator.Server {
	t.Helper()
	s, err := emulator.Open(path, opts...)
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
	f := alone(s)
	f.testRequests(t)
	f.testLeases(t)
	send(t, s, createAsk("deleted"))
	send(t, s, containerAsks()["delete"]("deleted"))

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
			s = open(t, path, emulator.WithClock(func() time.Time { return time.Time{} }))
		}
		shut(t, s)

		s = open(t, path)
		deleted := newClient(t, s.Transport()).ServiceClient().NewContainerClient("deleted")
		want(t, errOf(deleted.Create(t.Context(), nil)), http.StatusConflict, "ContainerBeingDeleted")
		// A container created without a request exists at once, and its name is no longer held.
		s.PutContainer("deleted", nil)
		s.RemoveContainer("deleted")
		clone := s.Clone()
		shut(t, s)
		clone.Put("direct", "later", nil, nil) // in memory alone
		s = open(t, path)
		must(t, errOf(newClient(t, s.Transport()).CreateContainer(t.Context(), "deleted", nil)))
		if _, there := s.Blob("direct", "later"); there {
			t.Error("a write to a clone is in the file")
		}
	})
}

// TestWritesThatCannotBeStored sends writes to a server whose file can't be written, and to a closed one.
func TestWritesThatCannotBeStored(t *testing.T) {
	for what, stop := range map[string]func(*emulator.Server){
		"a broken disk": emulator.BreakFile,
		"closed":        func(s *emulator.Server) { shut(t, s); shut(t, s) },
	} {
		path := filepath.Join(t.TempDir(), "blobs")
		s := open(t, path)
		s.Put("plans", "a", []byte("1"), map[string]string{"k": "v"})
		before := shown(t, s)
		stop(s)
		for _, a := range []*ask{
			putAsk("plans", "a", "2"), putAsk("plans", "b", ""), blobAsks()["set metadata"]("plans", "a"), blobAsks()["delete"]("plans", "a"),
			createAsk("new"), containerAsks()["set metadata"]("plans"), containerAsks()["delete"]("plans"), acquireAsk("plans", oneLease, "-1"),
		} {
			if r := send(t, s, a); r.status != 500 || r.header.Get("x-ms-error-code") != "InternalError" {
				t.Errorf("%s: %s: %d %s", what, a, r.status, r.body)
			}
		}
		batch := (&ask{method: "POST", items: []item{{container: "plans", blob: "a"}}}).where("comp", "batch")
		if r := send(t, s, batch); !strings.Contains(string(r.body), "HTTP/1.1 500") {
			t.Errorf("%s: batch: %s", what, r.body)
		}
		for name, write := range map[string]func(){
			"Put": func() { s.Put("plans", "a", nil, nil) }, "Put elsewhere": func() { s.Put("new", "a", nil, nil) },
			"PutContainer": func() { s.PutContainer("plans", nil) }, "RemoveContainer": func() { s.RemoveContainer("plans") },
			"Remove": func() { s.Remove("plans", "a") }, "Corrupt": func() { s.Corrupt("plans", "a", bytes.ToUpper) },
		} {
			if !panics(write) {
				t.Errorf("%s: %s does not panic", what, name)
			}
		}
		wantShown(t, s, before)
		_ = s.Close()
		wantShown(t, open(t, path), before)
	}
}

func panics(do func()) (did bool) {
	defer func() { did = recover() != nil }()
	do()
	return false
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	text, inUse := filepath.Join(dir, "text"), filepath.Join(dir, "used")
	must(t, os.WriteFile(text, []byte(strings.Repeat("text", 1000)), 0o600))
	open(t, inUse)
	for path, want := range map[string]string{
		"":                                  "the path is empty",
		dir:                                 "is a directory",
		filepath.Join(dir, "none", "blobs"): "no such file",
		text:                                "damaged or not a file of the emulator",
		inUse:                               "has the file open",
	} {
		before, _ := os.ReadFile(path)
		if _, err := emulator.Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v", path, err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
			t.Errorf("%s: the file was changed", path)
		}
	}
}

// TestDamagedFile cuts a file after every fifth byte and flips a bit of it; with PLANVAULT_LONG, of every byte. A file that can be opened has all
// writes up to a point; only its end may be missing.
func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	s := open(t, path)
	states := []map[string]string{shown(t, s)}
	send(t, s, createAsk("plans"))
	for i := range 4 {
		states = append(states, shown(t, s))
		s.Put("plans", "a", bytes.Repeat([]byte("body"), i), map[string]string{"k": fmt.Sprint(i)})
	}
	states = append(states, shown(t, s))
	shut(t, s)
	whole, err := os.ReadFile(path)
	must(t, err)
	stages := make(map[int]bool)
	try := func(what string, damaged []byte, mayFail bool) {
		must(t, os.WriteFile(path, damaged, 0o600))
		s, err := emulator.Open(path)
		if err != nil {
			if !mayFail || !strings.Contains(err.Error(), "damaged or not a file of the emulator") {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		got := shown(t, s)
		shut(t, s)
		stage := slices.IndexFunc(states, func(state map[string]string) bool { return maps.Equal(state, got) })
		stages[stage] = true
		if stage < 0 {
			t.Errorf("%s: it has %v", what, got)
		}
	}
	for n := 0; n < len(whole); n += efforttest.Pick(17, 5, 1) {
		try(fmt.Sprint("cut at ", n), whole[:n], n < 30)
		damaged := bytes.Clone(whole)
		damaged[n] ^= 1 << (n % 8)
		try(fmt.Sprint("byte ", n), damaged, true)
	}
	try("whole", whole, false)
	if len(stages) < len(states) {
		t.Errorf("found are only %v", stages)
	}
}
