package emulator_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/planvault/azblob/emulator"
)

// TestConditions tries each condition on each operation, on an existing and on a missing blob. The tags "now"
// and "bare" stand for the blob's ETag with and without quotes.
func TestConditions(t *testing.T) {
	const stale = `"0x8D0000000000001"`
	type outcome struct {
		status int
		code   string
	}
	ok := outcome{}
	notMet := outcome{412, "ConditionNotMet"}
	notFound := outcome{404, "BlobNotFound"}
	for _, tc := range []struct {
		name             string
		match, noneMatch string
		missing          bool
		put, get, head   outcome
		set, del         outcome
	}{
		{name: "none", put: ok, get: ok, head: ok, set: ok, del: ok},
		{name: "If-Match now", match: "now", put: ok, get: ok, head: ok, set: ok, del: ok},
		{name: "If-Match bare", match: "bare", put: ok, get: ok, head: ok, set: ok, del: ok},
		{name: "If-Match any", match: "*", put: ok, get: ok, head: ok, set: ok, del: ok},
		{name: "If-Match stale", match: stale, put: notMet, get: notMet, head: notMet, set: notMet, del: notMet},
		{
			name: "If-None-Match any", noneMatch: "*", put: outcome{409, "BlobAlreadyExists"},
			get: outcome{400, "UnsatisfiableCondition"}, head: outcome{400, "UnsatisfiableCondition"}, set: notMet, del: notMet,
		},
		{
			name: "If-None-Match now", noneMatch: "now", put: notMet,
			get: outcome{304, "ConditionNotMet"}, head: outcome{304, "ConditionNotMet"}, set: notMet, del: notMet,
		},
		{name: "If-None-Match stale", noneMatch: stale, put: ok, get: ok, head: ok, set: ok, del: ok},

		{name: "none, missing", missing: true, put: ok, get: notFound, head: notFound, set: notFound, del: notFound},
		{name: "If-Match, missing", missing: true, match: stale, put: notMet, get: notFound, head: notFound, set: notMet, del: notMet},
		{name: "If-Match any, missing", missing: true, match: "*", put: notMet, get: notFound, head: notFound, set: notMet, del: notMet},
		{
			name: "If-None-Match any, missing", missing: true, noneMatch: "*", put: ok,
			get: outcome{400, "UnsatisfiableCondition"}, head: outcome{400, "UnsatisfiableCondition"}, set: notFound, del: notFound,
		},
		{name: "If-None-Match, missing", missing: true, noneMatch: stale, put: ok, get: notFound, head: notFound, set: notFound, del: notFound},
	} {
		t.Run(tc.name, func(t *testing.T) {
			onBothWires(t, func(t *testing.T, s *emulator.Server, c *container.Client) {
				b := c.NewBlobClient("a")
				for _, op := range []struct {
					name string
					want outcome
					do   func(*blob.AccessConditions) error
				}{
					{"put", tc.put, func(a *blob.AccessConditions) error {
						_, err := upload(t.Context(), c, "a", "new", &blockblob.UploadOptions{AccessConditions: a})
						return err
					}},
					{"get", tc.get, func(a *blob.AccessConditions) error {
						_, _, err := download(t.Context(), c, "a", &blob.DownloadStreamOptions{AccessConditions: a})
						return err
					}},
					{"head", tc.head, func(a *blob.AccessConditions) error {
						_, err := b.GetProperties(t.Context(), &blob.GetPropertiesOptions{AccessConditions: a})
						return err
					}},
					{"set metadata", tc.set, func(a *blob.AccessConditions) error {
						_, err := b.SetMetadata(t.Context(), nil, &blob.SetMetadataOptions{AccessConditions: a})
						return err
					}},
					{"delete", tc.del, func(a *blob.AccessConditions) error {
						_, err := b.Delete(t.Context(), &blob.DeleteOptions{AccessConditions: a})
						return err
					}},
				} {
					s.Remove("plans", "a")
					etag := ""
					if !tc.missing {
						s.Put("plans", "a", []byte("old"), nil)
						stored, _ := s.Blob("plans", "a")
						etag = stored.ETag
					}
					resolve := func(tag string) string {
						switch tag {
						case "now":
							return `"` + etag + `"`
						case "bare":
							return etag
						default:
							return tag
						}
					}
					err := op.do(conditions(resolve(tc.match), resolve(tc.noneMatch)))
					if op.want == ok {
						if err != nil {
							t.Errorf("%s: %v", op.name, err)
						}
						continue
					}
					wantFor(t, op.name, err, op.want.status, op.want.code)
					stored, there := s.Blob("plans", "a")
					if there == tc.missing || there && stored.ETag != etag {
						t.Errorf("%s took effect", op.name)
					}
				}
			})
		})
	}
}

func TestConditionsOnTime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	s := emulator.New(emulator.WithClock(func() time.Time { return now }))
	s.Put("plans", "a", []byte("old"), nil)
	for _, tc := range []struct {
		method, header string
		at             time.Duration
		status         int
	}{
		{"GET", "If-Modified-Since", -time.Second, 200},
		{"GET", "If-Modified-Since", 0, 304},
		{"GET", "If-Unmodified-Since", 0, 200},
		{"GET", "If-Unmodified-Since", -time.Second, 412},
		{"HEAD", "If-Modified-Since", 0, 304},
		{"PUT", "If-Modified-Since", -time.Second, 201},
		{"PUT", "If-Modified-Since", 0, 412},
		{"PUT", "If-Unmodified-Since", 0, 201},
		{"PUT", "If-Unmodified-Since", -time.Second, 412},
		{"DELETE", "If-Unmodified-Since", -time.Second, 412},
		{"DELETE", "If-Unmodified-Since", 0, 202},
	} {
		header := map[string]string{tc.header: now.Add(tc.at).Format(http.TimeFormat)}
		if tc.method == "PUT" {
			header["x-ms-blob-type"] = "BlockBlob"
		}
		resp, _ := raw(t, s, tc.method, "/plans/a", "", header)
		if resp.StatusCode != tc.status {
			t.Errorf("%s %s %s: got %d, want %d", tc.method, tc.header, tc.at, resp.StatusCode, tc.status)
		}
	}
	// For a pair the ETag decides. For a read one of the two is enough.
	s.Put("plans", "a", []byte("old"), nil)
	resp, _ := raw(t, s, "DELETE", "/plans/a", "", map[string]string{
		"If-Match": "*", "If-Unmodified-Since": now.Add(-time.Hour).Format(http.TimeFormat),
	})
	if resp.StatusCode != http.StatusAccepted {
		t.Errorf("a pair of conditions: got %d", resp.StatusCode)
	}
}
