package emulator_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

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
