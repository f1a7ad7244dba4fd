package emulator_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
	"github.com/planvault/azblob/internal/efforttest"
)

func TestConcurrentUseOfEverything(t *testing.T) {
	s := emulator.New(emulator.Options{})
	c := plans(t, s.Transport())
	s.Inject(emulator.On().Chance(0.2, 1).Do(emulator.Duplicate(3)))
	rounds := efforttest.Pick(5, 10, 10)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range rounds {
				name := fmt.Sprintf("%d/%d", i, j)
				mustUpload(t, c, name, name, nil)
				if got, _, err := download(t.Context(), c, name, nil); err != nil || got != name {
					t.Errorf("got %q, %v", got, err)
				}
				names(t, c, &container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(50))})
				for range s.Blobs("plans") {
					break
				}
				s.Clone().Put("plans", name, nil, nil)
				s.Requests()
				s.Put("plans", "direct", nil, nil)
			}
		})
	}
	all.Wait()
	s.DeliverLate()
	if s.Len("plans") != 8*rounds+1 {
		t.Errorf("%d blobs", s.Len("plans"))
	}
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := emulator.New(emulator.Options{Latency: 30 * time.Millisecond})
		c := plans(t, s.Transport())
		begin := time.Now()
		mustUpload(t, c, "a", "body", nil)
		if d := time.Since(begin); d != 30*time.Millisecond {
			t.Errorf("one request took %s", d)
		}
		begin = time.Now()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() { mustUpload(t, c, fmt.Sprint(i), "body", nil) })
		}
		all.Wait()
		if d := time.Since(begin); d != 30*time.Millisecond {
			t.Errorf("a hundred at once took %s", d)
		}
		// A client that gives up before the request arrives has not written. A client that gives up while the
		// answer is under way has.
		for _, tc := range []struct {
			patience time.Duration
			applied  bool
		}{{14 * time.Millisecond, false}, {16 * time.Millisecond, true}} {
			name := tc.patience.String()
			ctx, cancel := context.WithTimeout(t.Context(), tc.patience)
			_, err := upload(ctx, c, name, "body", nil)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			if _, there := s.Blob("plans", name); there != tc.applied {
				t.Errorf("%s: applied: %t", name, there)
			}
		}
	})
}

func TestCancelledContext(t *testing.T) {
	s := emulator.New(emulator.Options{})
	c := plans(t, s.Transport())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := upload(ctx, c, "a", "body", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if s.Len("plans") != 0 || len(s.Requests()) != 0 {
		t.Error("the request was sent")
	}
	mustUpload(t, c, "a", "body", nil)
	ctx, cancel = context.WithCancel(t.Context())
	resp, err := c.NewBlobClient("a").DownloadStream(ctx, nil)
	must(t, err)
	cancel()
	if _, err := resp.Body.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("reading the body: %v", err)
	}
}

func TestClone(t *testing.T) {
	s := emulator.New(emulator.Options{})
	c := plans(t, s.Transport())
	s.Put("plans", "same", []byte("1"), map[string]string{"k": "v"})
	s.Put("plans", "gone", []byte("1"), nil)
	s.Inject(emulator.On().Do(emulator.LostRequest()))
	s.Forbid(func(emulator.Request) error { return errors.New("nothing") })
	copied := s.Clone()
	d := plans(t, copied.Transport())
	mustUpload(t, d, "new", "2", nil)
	mustUpload(t, d, "same", "2", nil)
	must(t, errOf(d.NewBlobClient("gone").Delete(t.Context(), nil)))
	must(t, errOf(d.SetMetadata(t.Context(), &container.SetMetadataOptions{Metadata: map[string]*string{"of": to.Ptr("copy")}})))
	s.Forbid(nil)
	s.ClearFaults()
	if got, _ := names(t, c, nil); !slices.Equal(got, []string{"gone", "same"}) {
		t.Errorf("the original has %v", got)
	}
	if b, _ := s.Blob("plans", "same"); string(b.Body) != "1" || b.Metadata["k"] != "v" {
		t.Errorf("the original has %v", b)
	}
	if p, err := c.GetProperties(t.Context(), nil); err != nil || len(p.Metadata) != 0 {
		t.Errorf("the original's container has %v, %v", p.Metadata, err)
	}
	mustUpload(t, c, "original", "3", nil)
	if got, _ := names(t, d, nil); !slices.Equal(got, []string{"new", "same"}) {
		t.Errorf("the copy has %v", got)
	}
	if n := len(copied.Requests()); n != 5 {
		t.Errorf("the copy's log has %d requests", n)
	}
}

func TestForbid(t *testing.T) {
	s := emulator.New(emulator.Options{})
	c := plans(t, s.Transport())
	s.Put("plans", "a", nil, nil)
	s.Forbid(func(r emulator.Request) error {
		if r.Op == emulator.PutBlob && r.Condition == "" {
			return errors.New("a put without a condition")
		}
		for _, item := range r.Items {
			if _, there := s.Blob(item.Container, item.Blob); there && item.IfMatch == "" {
				return errors.New("a delete without a condition")
			}
		}
		return nil
	})
	want(t, errOf(upload(t.Context(), c, "b", "body", nil)), http.StatusBadRequest, "ForbiddenByTest")
	mustUpload(t, c, "c", "body", &blockblob.UploadOptions{AccessConditions: conditions("", "*")})
	want(t, errOf(deleteBatch(t, c, "a")), http.StatusBadRequest, "ForbiddenByTest")
	if got, _ := names(t, c, nil); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("stored are %v", got)
	}
	got := s.Violations()
	if len(got) != 2 || !strings.Contains(got[0].Error(), "PutBlob plans/b") || !strings.Contains(got[1].Error(), "a delete without") {
		t.Errorf("violations are %v", got)
	}
}

func TestLog(t *testing.T) {
	s := emulator.New(emulator.Options{})
	tr := s.NamedTransport("vault")
	c := newClient(t, tr).ServiceClient().NewContainerClient("plans")
	must(t, errOf(c.Create(t.Context(), nil)))
	tr.Inject(emulator.On(emulator.HeadBlob).Do(emulator.LostAnswer()))
	put := mustUpload(t, c, "a b", "body", &blockblob.UploadOptions{
		AccessConditions: conditions("", "*"), Metadata: map[string]*string{"writeid": to.Ptr("7")},
	})
	_, _ = upload(t.Context(), c, "a b", "body", &blockblob.UploadOptions{AccessConditions: conditions("", "*")})
	_, _ = upload(t.Context(), c, "a b", "body", &blockblob.UploadOptions{AccessConditions: conditions(string(*put.ETag), "")})
	_, _, _ = download(t.Context(), c, "missing", nil)
	_, _ = c.NewBlobClient("a b").GetProperties(t.Context(), nil)
	tr.ClearFaults()
	_, _ = c.NewBlobClient("c").GetProperties(t.Context(), nil)
	s.Put("plans", "b", nil, nil)
	names(t, c, &container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(1)), StartFrom: to.Ptr("a")})
	raw(t, s, "PATCH", "/plans", "", nil)
	wanted := []string{
		`CreateContainer plans -> 201`,
		`PutBlob plans/a b If-None-Match:* -> 201`,
		`PutBlob plans/a b If-None-Match:* -> 409 BlobAlreadyExists`,
		`PutBlob plans/a b If-Match:etag -> 201`,
		`GetBlob plans/missing -> 404 BlobNotFound`,
		`HeadBlob plans/a b -> 200 [lost answer]`,
		`HeadBlob plans/c -> 404 BlobNotFound`,
		`ListBlobs plans startFrom="a" max=1 -> 200`,
		`ListBlobs plans marker="b" startFrom="a" max=1 -> 200`,
		`Unsupported PATCH plans -> 501 NotImplemented`,
	}
	if got := trace(s); !slices.Equal(got, wanted) {
		t.Errorf("the log is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(wanted, "\n"))
	}
	log := s.Requests()
	for i, r := range log {
		if r.N != i+1 || r.Time.IsZero() || i < 9 && r.Client != "vault" {
			t.Errorf("entry %d is %+v", i, r)
		}
	}
	if log[1].In != 4 || log[1].Metadata["writeid"] != "7" || log[7].Out < 100 || log[5].Out != 0 || log[6].Out != 0 {
		t.Errorf("sizes are %d, %d, %d", log[1].In, log[7].Out, log[6].Out)
	}
	s.ResetRequests()
	if len(s.Requests()) != 0 {
		t.Error("the log is not empty")
	}
}

func TestCrashUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := emulator.New(emulator.Options{Latency: time.Second})
		tr := s.Transport()
		c := plans(t, tr)
		var early, late error
		go func() { _, early = upload(t.Context(), c, "early", "", nil) }()
		time.Sleep(600 * time.Millisecond)
		go func() { _, late = upload(t.Context(), c, "late", "", nil) }()
		synctest.Wait()
		tr.Crash()
		time.Sleep(time.Minute)
		synctest.Wait()
		if !errors.Is(late, emulator.ErrCrashed) || !errors.Is(early, emulator.ErrCrashed) {
			t.Errorf("got %v and %v", early, late)
		}
		if s.Len("plans") != 1 {
			t.Errorf("%d were applied", s.Len("plans"))
		}
	})
}

// TestCrashBetweenCheckAndEffect crashes a client at the last moment.
func TestCrashBetweenCheckAndEffect(t *testing.T) {
	s := emulator.New(emulator.Options{})
	tr := s.Transport()
	c := plans(t, tr)
	s.Forbid(func(emulator.Request) error {
		tr.Crash()
		return nil
	})
	if _, err := upload(t.Context(), c, "a", "", nil); !errors.Is(err, emulator.ErrCrashed) {
		t.Errorf("got %v", err)
	}
	if s.Len("plans") != 0 {
		t.Error("a crashed client has written")
	}
}

func TestDirectAccess(t *testing.T) {
	s := emulator.New(emulator.Options{})
	c := plans(t, s.Transport())
	s.Put("other", "b", []byte("2"), map[string]string{"State": "1"})
	s.Put("other", "a", []byte("1"), nil)
	if got := slices.Collect(s.Containers()); !slices.Equal(got, []string{"other", "plans"}) {
		t.Errorf("containers are %v", got)
	}
	var got []string
	for b := range s.Blobs("other") {
		got = append(got, b.Name+"="+string(b.Body)+b.Metadata["state"])
		s.Put("other", "later", nil, nil) // does not disturb the loop
	}
	if !slices.Equal(got, []string{"a=1", "b=21"}) {
		t.Errorf("blobs are %v", got)
	}
	for range s.Blobs("none") {
		t.Error("a container that is not there has blobs")
	}
	if s.Remove("other", "none") || s.Remove("none", "a") || !s.Remove("other", "later") {
		t.Error("Remove tells lies")
	}
	if _, there := s.Blob("none", "a"); there {
		t.Error("Blob tells lies")
	}

	mustUpload(t, c, "a", "body", nil)
	before, _ := s.Blob("plans", "a")
	if !s.Corrupt("plans", "a", func(b []byte) []byte { b[0] = 'X'; return b }) || s.Corrupt("plans", "b", nil) {
		t.Error("Corrupt tells lies")
	}
	after, _ := s.Blob("plans", "a")
	if string(before.Body) != "body" || string(after.Body) != "Xody" || after.ETag != before.ETag || !slices.Equal(after.MD5, before.MD5) {
		t.Errorf("got %v after %v", after, before)
	}
	if text, resp, err := download(t.Context(), c, "a", nil); err != nil || text != "Xody" || !slices.Equal(resp.ContentMD5, before.MD5) {
		t.Errorf("got %q %x, %v", text, resp.ContentMD5, err)
	}

	s.Remove("plans", "a")
	s.Restore("plans", before)
	if again, _ := s.Blob("plans", "a"); again.ETag != before.ETag || string(again.Body) != "body" {
		t.Errorf("restored is %v", again)
	}
	empty := emulator.New(emulator.Options{Clock: func() time.Time { return time.Unix(0, 0) }})
	empty.Restore("plans", before)
	empty.Put("plans", "a", nil, nil)
	if b, _ := empty.Blob("plans", "a"); b.ETag <= before.ETag {
		t.Errorf("ETag %s after %s", b.ETag, before.ETag)
	}
	if !s.RemoveContainer("plans") || s.RemoveContainer("plans") {
		t.Error("RemoveContainer tells lies")
	}
	must(t, errOf(c.Create(t.Context(), nil)))
}

func TestListener(t *testing.T) {
	s := emulator.New(emulator.Options{})
	l, err := s.Listen("127.0.0.1:0")
	must(t, err)
	if l.URL() != "http://"+l.Addr().String()+"/devstoreaccount1" || !strings.Contains(l.ConnectionString(), "BlobEndpoint="+l.URL()) {
		t.Errorf("got %s, %s", l.URL(), l.ConnectionString())
	}
	if _, err := s.Listen(l.Addr().String()); err == nil {
		t.Error("two listeners on one port")
	}
	must(t, l.Close())
	if _, err := http.Get(l.URL()); err == nil {
		t.Error("it still answers")
	}
}

// TestListenerCloseEndsSilence checks that Close does not wait forever.
func TestListenerCloseEndsSilence(t *testing.T) {
	s := emulator.New(emulator.Options{})
	s.Inject(emulator.On().Do(emulator.Silence()))
	l, err := s.Listen("127.0.0.1:0")
	must(t, err)
	done := make(chan error)
	go func() {
		resp, err := http.Get(l.URL())
		if err == nil {
			err = resp.Body.Close()
		}
		done <- err
	}()
	for len(s.Requests()) == 0 {
		time.Sleep(time.Millisecond)
	}
	must(t, l.Close())
	if err := <-done; err == nil {
		t.Error("the request was answered")
	}
}
