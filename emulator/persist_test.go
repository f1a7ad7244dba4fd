package emulator_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"go.etcd.io/bbolt"

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
			see("GET", "/"+name+"/"+b.Name)
			see("HEAD", "/"+name+"/"+b.Name)
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
func everything(t testing.TB, s *emulator.Server) {
	t.Helper()
	c := plans(t, s.Transport())
	must(t, errOf(c.SetMetadata(t.Context(), &container.SetMetadataOptions{Metadata: map[string]*string{"layout": to.Ptr("1")}})))
	mustUpload(t, c, "plain", "body", nil)
	mustUpload(t, c, "empty", "", nil)
	mustUpload(t, c, "full", "body", &blockblob.UploadOptions{
		Tier:     to.Ptr(blob.AccessTierCool),
		Metadata: map[string]*string{"a": to.Ptr(""), "b": to.Ptr(strings.Repeat("x", 300))},
		HTTPHeaders: &blob.HTTPHeaders{
			BlobContentType: to.Ptr("text/plain"), BlobContentEncoding: to.Ptr("gzip"), BlobContentLanguage: to.Ptr("en"),
			BlobContentDisposition: to.Ptr("attachment"), BlobCacheControl: to.Ptr("no-store"),
		},
	})
	mustUpload(t, c, "twice", "first", nil)
	mustUpload(t, c, "twice", strings.Repeat("second", 5000), nil)
	mustUpload(t, c, "changed", "body", nil)
	time.Sleep(5 * time.Second) // so that its creation and its last change differ
	must(t, errOf(c.NewBlobClient("changed").SetMetadata(t.Context(), map[string]*string{"new": to.Ptr("1")}, nil)))
	for _, name := range []string{"gone", "batch/1", "batch/2"} {
		mustUpload(t, c, name, "body", nil)
	}
	must(t, errOf(c.NewBlobClient("gone").Delete(t.Context(), nil)))
	if _, err := deleteBatch(t, c, "batch/1", "batch/2"); err != nil {
		t.Fatal(err)
	}
	other := newClient(t, s.Transport()).ServiceClient().NewContainerClient("deleted")
	must(t, errOf(other.Create(t.Context(), nil)))
	mustUpload(t, other, "a", "body", nil)
	must(t, errOf(other.Delete(t.Context(), nil)))

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

func TestEverythingComesBack(t *testing.T) { synctest.Test(t, testEverythingComesBack) }

func testEverythingComesBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	s := open(t, path)
	everything(t, s)
	before := shown(t, s)
	newest, _ := s.Blob("direct", "damaged")
	shut(t, s)

	// A clock that goes back must not repeat an ETag.
	s = open(t, path, emulator.WithClock(func() time.Time { return time.Now().Add(-10 * time.Minute) }))
	wantShown(t, s, before)
	c := plans(t, s.Transport())
	old, _ := s.Blob("plans", "twice")
	resp, err := upload(t.Context(), c, "twice", "third", &blockblob.UploadOptions{AccessConditions: conditions(old.ETag, "")})
	must(t, err)
	if tag := strings.Trim(string(*resp.ETag), `"`); tag <= newest.ETag {
		t.Errorf("the new ETag %s is not newer than %s", tag, newest.ETag)
	}

	deleted := newClient(t, s.Transport()).ServiceClient().NewContainerClient("deleted")
	want(t, errOf(deleted.Create(t.Context(), nil)), http.StatusConflict, "ContainerBeingDeleted")
	// A container created without a request exists at once, and its name is no longer held.
	s.PutContainer("deleted", nil)
	s.RemoveContainer("deleted")
	shut(t, s)
	s = open(t, path)
	deleted = newClient(t, s.Transport()).ServiceClient().NewContainerClient("deleted")
	if _, err := deleted.Create(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if _, err := deleted.Delete(t.Context(), nil); err != nil {
		t.Error(err)
	}
	time.Sleep(30 * time.Second)
	if _, err := deleted.Create(t.Context(), nil); err != nil {
		t.Error(err)
	}
	before = shown(t, s)
	shut(t, s)
	wantShown(t, open(t, path), before)
}

// TestETagsGoOn removes the newest blob, so that no stored blob has the last ETag.
func TestETagsGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	last := ""
	for range 3 {
		s := open(t, path, emulator.WithClock(func() time.Time { return now }))
		s.Put("plans", "a", nil, nil)
		b, _ := s.Blob("plans", "a")
		if b.ETag <= last {
			t.Errorf("%s after %s", b.ETag, last)
		}
		last = b.ETag
		s.RemoveContainer("plans")
		shut(t, s)
	}
}

func TestClonesOfAFileAreInMemory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	s := open(t, path)
	s.Put("plans", "a", []byte("1"), nil)
	before := shown(t, s)
	clone := s.Clone()
	clone.Put("plans", "a", []byte("2"), nil)
	clone.RemoveContainer("plans")
	shut(t, s)
	clone.Put("plans", "b", nil, nil)
	shut(t, clone)
	clone.Put("plans", "c", nil, nil)
	wantShown(t, open(t, path), before)
}

func TestOneServerHasTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	s := open(t, path)
	if _, err := emulator.Open(path); err == nil || !strings.Contains(err.Error(), "has the file open") {
		t.Errorf("got %v", err)
	}
	s.Put("plans", "a", []byte("body"), nil)
	shut(t, s)
	s = open(t, path)
	shut(t, s) // memory is still readable
	if b, _ := s.Blob("plans", "a"); string(b.Body) != "body" {
		t.Errorf("the blob is %+v", b)
	}
}

// TestClosedServer sends every kind of write to a closed server.
func TestClosedServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	s := open(t, path)
	s.Put("plans", "a", []byte("1"), map[string]string{"k": "v"})
	before := shown(t, s)
	shut(t, s)
	shut(t, s)
	for _, tc := range []struct{ method, path, kind string }{
		{"PUT", "/plans/a", ""},
		{"PUT", "/plans/b", ""},
		{"PUT", "/plans/a?comp=metadata", ""},
		{"DELETE", "/plans/a", ""},
		{"PUT", "/new?restype=container", ""},
		{"PUT", "/plans?restype=container&comp=metadata", ""},
		{"DELETE", "/plans?restype=container", ""},
	} {
		header := map[string]string{}
		if tc.method == "PUT" && !strings.Contains(tc.path, "?") {
			header["x-ms-blob-type"] = "BlockBlob"
		}
		resp, body := raw(t, s, tc.method, tc.path, "", header)
		if resp.StatusCode != 500 || resp.Header.Get("x-ms-error-code") != "InternalError" || !strings.Contains(body, "server is closed") {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, resp.StatusCode, body)
		}
	}
	_, body := raw(t, s, "POST", "/?comp=batch", batchBody("DELETE /devstoreaccount1/plans/a HTTP/1.1\r\nAuthorization: Bearer x\r\n\r\n"),
		map[string]string{"Content-Type": "multipart/mixed; boundary=b"})
	if !strings.Contains(body, "HTTP/1.1 500") {
		t.Errorf("batch: %s", body)
	}
	for name, write := range map[string]func(){
		"Put":             func() { s.Put("plans", "a", nil, nil) },
		"Put elsewhere":   func() { s.Put("new", "a", nil, nil) },
		"PutContainer":    func() { s.PutContainer("plans", nil) },
		"Restore":         func() { s.Restore("plans", emulator.Blob{Name: "a"}) },
		"Remove":          func() { s.Remove("plans", "a") },
		"RemoveContainer": func() { s.RemoveContainer("plans") },
		"Corrupt":         func() { s.Corrupt("plans", "a", func([]byte) []byte { return nil }) },
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
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	foreign := filepath.Join(dir, "foreign")
	db, err := bbolt.Open(foreign, 0o600, nil)
	must(t, err)
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucket([]byte("accounts"))
		return err
	})
	must(t, errors.Join(err, db.Close()))
	for _, tc := range []struct{ name, path, want string }{
		{"no path", "", "the path is empty"},
		{"a directory", dir, "is a directory"},
		{"no directory", filepath.Join(dir, "none", "blobs"), "no such file"},
		{"short text", write("short", "text"), "damaged or not a file of the emulator"},
		{"long text", write("long", strings.Repeat("text", 1<<16)), "damaged or not a file of the emulator"},
		{"another's database", foreign, "damaged or not a file of the emulator"},
	} {
		before, _ := os.ReadFile(tc.path)
		_, err := emulator.Open(tc.path)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v", tc.name, err)
		}
		if after, _ := os.ReadFile(tc.path); !bytes.Equal(before, after) {
			t.Errorf("%s: the file was changed", tc.name)
		}
	}
}

// TestDamagedFile flips bits of a file and truncates it. Open must fail, or the content must be unchanged,
// because a file has unused space. The first two pages are left out: if the newer one is damaged, bbolt takes
// it for an unfinished commit and uses the previous one.
func TestDamagedFile(t *testing.T) { synctest.Test(t, testDamagedFile) }

func testDamagedFile(t *testing.T) {
	efforttest.NotShort(t, "bbolt reads damaged pages in a way for which the race detector's checkptr ends the process")
	path := filepath.Join(t.TempDir(), "blobs")
	s := open(t, path)
	everything(t, s)
	for i := range 100 {
		s.Put("plans", fmt.Sprint("many/", i), bytes.Repeat([]byte("body"), 20), nil)
	}
	before := shown(t, s)
	shut(t, s)
	whole, err := os.ReadFile(path)
	must(t, err)
	noticed := 0
	tries := 0
	try := func(what string, damaged []byte) {
		tries++
		path := fmt.Sprint(path, tries) // bbolt may still have the previous file open
		defer os.Remove(path)
		must(t, os.WriteFile(path, damaged, 0o600))
		s, err := emulator.Open(path)
		if err != nil {
			noticed++
			if !strings.Contains(err.Error(), "damaged or not a file of the emulator") {
				t.Errorf("%s: %v", what, err)
			}
			return
		}
		if !maps.Equal(shown(t, s), before) {
			t.Errorf("%s: not noticed", what)
		}
		shut(t, s)
	}
	pages := 2 * os.Getpagesize()
	random := rand.New(rand.NewPCG(1, 1))
	for range efforttest.Pick(80, 80, 2000) {
		damaged, bit := bytes.Clone(whole), 8*pages+random.IntN(8*(len(whole)-pages))
		damaged[bit/8] ^= 1 << (bit % 8)
		try(fmt.Sprint("bit ", bit), damaged)
	}
	for n := pages; n < len(whole); n += os.Getpagesize() / 2 {
		try(fmt.Sprint("cut at ", n), whole[:n])
	}
	if noticed < tries/5 {
		t.Errorf("only %d of %d were noticed", noticed, tries)
	}
}

// killedWriter is the environment variable that makes a process of this test binary a writer. Its value is
// the path of the file.
const killedWriter = "EMULATOR_TEST_WRITER"

const writers = 4

// writer is a client of a writing process. It has its own container. Each step is one request, and the
// content after n steps depends only on n.
type writer struct{ id int }

func (w writer) container() string { return fmt.Sprint("writer-", w.id) }

// body returns a body that needs several pages.
func (w writer) body(step int) string {
	return strings.Repeat(fmt.Sprintf("%d by %d;", step, w.id), 1+step%7*300)
}

// step sends one request.
func (w writer) step(s *emulator.Server, step int) error {
	method, path, header, body := "PUT", "/"+w.container(), map[string]string{"x-ms-meta-step": fmt.Sprint(step)}, ""
	switch turn := step % 8; turn {
	case 0:
		path += "?restype=container"
	case 7:
		method, path, header = "DELETE", path+"?restype=container", nil
	case 5:
		path += "/1?comp=metadata"
	case 6:
		method, path, header = "DELETE", path+"/2", nil
	default: // 1 to 3 are new, 4 overwrites 1
		path += fmt.Sprint("/", (turn-1)%3+1)
		header["x-ms-blob-type"], body = "BlockBlob", w.body(step)
	}
	req, err := http.NewRequest(method, "http://localhost/devstoreaccount1"+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer token")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := s.Transport().Do(req)
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("step %d: %s %s: %s", step, method, path, resp.Status)
	}
	return nil
}

// after returns the content after n steps, in the form of writer.stored.
func (w writer) after(steps int) string {
	round, turn := steps-steps%8, steps%8
	if turn == 0 {
		return ""
	}
	text := fmt.Sprintf("container %d\n", round)
	for name := 1; name <= 3; name++ {
		made := round + name
		if made >= steps || name == 2 && turn > 6 {
			continue
		}
		body, metadata := made, made
		if name == 1 && turn > 4 {
			body, metadata = round+4, round+4
		}
		if name == 1 && turn > 5 {
			metadata = round + 5
		}
		text += fmt.Sprintf("%d: %d %s\n", name, metadata, w.body(body))
	}
	return text
}

func (w writer) stored(t *testing.T, s *emulator.Server) string {
	resp, _ := raw(t, s, "HEAD", "/"+w.container()+"?restype=container", "", nil)
	if resp.StatusCode == http.StatusNotFound {
		return ""
	}
	text := fmt.Sprintf("container %s\n", resp.Header.Get("x-ms-meta-step"))
	for b := range s.Blobs(w.container()) {
		text += fmt.Sprintf("%s: %s %s\n", b.Name, b.Metadata["step"], b.Body)
	}
	return text
}

// write is the main function of a writing process. Its arguments are the numbers of steps that the writers
// have done. It prints each further step after its answer, until it is killed.
func write(path string) int {
	s, err := emulator.Open(path, emulator.WithContainerDeletion(0), emulator.WithoutLog())
	if err != nil {
		fmt.Println(err)
		return 1
	}
	done := strings.Fields(os.Getenv(killedWriter + "_STEPS"))
	var say sync.Mutex
	for id := range writers {
		go func() {
			var step int
			_, err := fmt.Sscan(done[id], &step)
			for ; err == nil; step++ {
				if err = (writer{id}).step(s, step); err == nil {
					say.Lock()
					fmt.Println(id, step)
					say.Unlock()
				}
			}
			fmt.Println(err)
			os.Exit(1)
		}()
	}
	// The pipe closes if the parent is killed.
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// TestKilledInTheMiddleOfWrites repeatedly kills a process that writes to the same file. Every answered write
// must exist. The unanswered write of each writer may exist, but only as a whole.
func TestKilledInTheMiddleOfWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "blobs")
	steps := make([]int, writers) // steps that each writer has done
	last := ""                    // the newest ETag
	for round := range 6 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), killedWriter+"="+path, killedWriter+"_STEPS="+strings.Trim(fmt.Sprint(steps), "[]"))
		stdin, err := cmd.StdinPipe()
		must(t, err)
		stdout, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		// The output before the end is still in the pipe.
		kill := 60 + 7*round
		for lines, n := bufio.NewScanner(stdout), 1; lines.Scan(); n++ {
			var id, step int
			if _, err := fmt.Sscan(lines.Text(), &id, &step); err != nil || step != steps[id] {
				t.Fatalf("the writing process says %q after %v", lines.Text(), steps)
			}
			steps[id]++
			if n == kill {
				must(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait() // it was killed
		_ = stdin.Close()

		s := open(t, path, emulator.WithContainerDeletion(0))
		newest := last
		for id := range writers {
			w := writer{id}
			switch stored := w.stored(t, s); stored {
			case w.after(steps[id]):
			case w.after(steps[id] + 1):
				steps[id]++
			default:
				t.Errorf("round %d: after step %d writer %d finds %.200q, want %.200q", round, steps[id], id, stored, w.after(steps[id]))
			}
			for b := range s.Blobs(w.container()) {
				newest = max(newest, b.ETag)
			}
		}
		s.Put("probe", "a", nil, nil)
		if b, _ := s.Blob("probe", "a"); b.ETag <= newest {
			t.Errorf("round %d: ETag %s after %s", round, b.ETag, newest)
		} else {
			last = b.ETag
		}
		shut(t, s)
	}
	if least := slices.Min(steps); least < 8 {
		t.Errorf("a writer did only %d steps", least)
	}
}
