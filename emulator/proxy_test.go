package emulator_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

// TestProxy puts faults in front of another service, which is an emulator that knows nothing of them.
func TestProxy(t *testing.T) {
	behind := emulator.New(emulator.Options{})
	t.Run("transport", func(t *testing.T) { testProxy(t, behind, behind.Transport(), behind.ConnectionString()) })
	behind = emulator.New(emulator.Options{})
	l, err := behind.Listen("127.0.0.1:0")
	must(t, err)
	defer func() { must(t, l.Close()) }()
	client := l.HTTPClient()
	t.Run("socket", func(t *testing.T) { testProxy(t, behind, client, l.ConnectionString()) })
	client.CloseIdleConnections()
}

func testProxy(t *testing.T, behind *emulator.Server, over policy.Transporter, connectionString string) {
	proxy := emulator.Proxy(over, emulator.Options{})
	open := func(tr *emulator.Transport) *container.Client {
		client, err := azblob.NewClientFromConnectionString(connectionString, noRetries(tr))
		must(t, err)
		return client.ServiceClient().NewContainerClient("plans")
	}
	c := plans(t, behind.Transport())
	tr := proxy.NamedTransport("client")
	p := open(tr)
	tr.Inject(
		emulator.On(emulator.PutBlob).Path("plans/lost").Do(emulator.LostAnswer()),
		emulator.On(emulator.PutBlob).Path("plans/busy").Do(emulator.Answer(503, "ServerBusy")),
		emulator.On(emulator.PutBlob).Path("plans/late").Do(emulator.Reset().Late(0)),
		emulator.On(emulator.PutBlob).Path("plans/twice").Do(emulator.Duplicate(9)),
		emulator.On(emulator.GetBlob).Nth(2).Do(emulator.FlipBit(0)),
		emulator.On(emulator.DeleteBlob).Do(emulator.Crash()),
	)
	if _, err := upload(t.Context(), p, "lost", "body", nil); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
	want(t, errOf(upload(t.Context(), p, "busy", "body", nil)), http.StatusServiceUnavailable, "ServerBusy")
	if _, err := upload(t.Context(), p, "late", "body", nil); err == nil {
		t.Error("the request was not late")
	}
	mustUpload(t, p, "twice", "body", nil)
	first, _ := behind.Blob("plans", "twice")
	for _, want := range []string{"body", "cody", "body"} {
		if got, _, err := download(t.Context(), p, "twice", nil); err != nil || got != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	if n := proxy.DeliverLate(); n != 1 {
		t.Errorf("%d requests were late", n)
	}
	if again, _ := behind.Blob("plans", "twice"); again.ETag == first.ETag {
		t.Error("the copy did not arrive")
	}
	// What is no fault is as without the proxy: conditions, errors, HEAD, pages.
	_, err := p.NewBlobClient("none").GetProperties(t.Context(), nil)
	want(t, err, http.StatusNotFound, "BlobNotFound")
	got, pages := names(t, p, &container.ListBlobsFlatOptions{MaxResults: to.Ptr(int32(2))})
	if wanted, _ := names(t, c, nil); !slices.Equal(got, wanted) || len(got) != 3 || pages != 2 {
		t.Errorf("got %v in %d pages, want %v", got, pages, wanted)
	}
	if _, err := p.NewBlobClient("lost").Delete(t.Context(), nil); !errors.Is(err, emulator.ErrCrashed) || !tr.Crashed() {
		t.Errorf("got %v", err)
	}
	if log := strings.Join(trace(proxy), "\n"); !strings.Contains(log, "PutBlob plans/lost -> 201 [lost answer]\nPutBlob plans/busy -> [answer 503 ServerBusy]") {
		t.Errorf("the log is\n%s", log)
	}

	// A request that was passed on takes effect, whether or not its client waits.
	ctx, cancel := context.WithCancel(t.Context())
	behind.Inject(emulator.On(emulator.PutBlob).Path("plans/given-up").Do(emulator.Before(cancel)))
	if _, err := upload(ctx, open(proxy.Transport()), "given-up", "", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, ok := behind.Blob("plans", "given-up"); !ok {
		t.Error("the request was cut off")
	}

	// Failures of the network behind the proxy are passed on.
	behind.Inject(emulator.On().Do(emulator.LostRequest()))
	p = open(proxy.Transport())
	if _, err := upload(t.Context(), p, "a", "", nil); !errors.Is(err, io.EOF) {
		t.Errorf("got %v", err)
	}
}

// TestForeignAnswers checks the headers of answers that do not come from the service or lack a header.
func TestForeignAnswers(t *testing.T) {
	for _, tc := range []struct {
		effect  emulator.Effect
		text    string
		applied bool
		status  int
		has     string
		lacks   []string
	}{
		{emulator.Foreign(200, "text/html", "<html>"), "foreign 200 text/html", false, 200, "Content-Type", []string{"X-Ms-Request-Id", "X-Ms-Version", "Etag"}},
		{emulator.Foreign(404, "", "").Applied(), "foreign 404, applied", true, 404, "Date", []string{"X-Ms-Request-Id", "X-Ms-Version", "X-Ms-Error-Code"}},
		{emulator.Redirect(302, "http://portal.invalid/"), "foreign 302 to http://portal.invalid/", false, 302, "Location", []string{"X-Ms-Request-Id"}},
		{emulator.Strip("ETag"), "without ETag", true, 201, "X-Ms-Request-Id", []string{"Etag"}},
		{emulator.Strip("X-Ms-Version"), "without X-Ms-Version", true, 201, "Etag", []string{"X-Ms-Version"}},
		{emulator.CutBatch(0), "batch cut after 0 items", true, 201, "Etag", nil},
	} {
		t.Run(tc.text, func(t *testing.T) {
			if tc.effect.String() != tc.text {
				t.Errorf("String returned %s", tc.effect)
			}
			s := emulator.New(emulator.Options{})
			s.PutContainer("plans", nil)
			s.Inject(emulator.On(emulator.PutBlob).Do(tc.effect))
			var resp *http.Response
			c := plans(t, s.Transport())
			_, _ = upload(policy.WithCaptureResponse(t.Context(), &resp), c, "a", "body", nil)
			if applied := s.Len("plans") == 1; applied != tc.applied {
				t.Errorf("applied: %t", applied)
			}
			if resp.StatusCode != tc.status || resp.Header.Get(tc.has) == "" {
				t.Errorf("got %d with %v", resp.StatusCode, resp.Header)
			}
			for _, name := range tc.lacks {
				if resp.Header.Get(name) != "" {
					t.Errorf("it has %s: %v", name, resp.Header)
				}
			}
		})
	}
}

// TestCutBatch deletes all blobs of a batch and answers only for some.
func TestCutBatch(t *testing.T) {
	onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
		names := []string{"a", "b", "c"}
		for _, name := range names {
			s.Put("plans", name, nil, nil)
		}
		s.Inject(emulator.On(emulator.BatchDelete).Do(emulator.CutBatch(2)))
		_, err := deleteBatch(t, c, names...)
		if err == nil || !strings.Contains(err.Error(), "expected 3 responses, got 2") {
			t.Errorf("got %v", err)
		}
		if s.Len("plans") != 0 {
			t.Errorf("%d blobs are left", s.Len("plans"))
		}
	})
}

// TestListenersHaveFaultsOfTheirOwn checks that clients in the process don't get the faults of a listener.
func TestListenersHaveFaultsOfTheirOwn(t *testing.T) {
	s := emulator.New(emulator.Options{})
	s.PutContainer("plans", nil)
	l, err := s.Listen("127.0.0.1:0")
	must(t, err)
	defer l.Close()
	l.Inject(emulator.On().Do(emulator.Foreign(418, "", "")))
	must(t, errOf(upload(t.Context(), plans(t, s.Transport()), "a", "body", nil)))
	resp, err := http.Get(l.URL())
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != 418 {
		t.Errorf("got %d", resp.StatusCode)
	}
}
